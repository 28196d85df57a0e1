//! Vectors of AArch64.
#![allow(unsafe_code)]

pub(super) mod dotprod;
pub(super) mod i8mm;
pub(super) mod neon;
pub(in crate::cpu) mod peak;
