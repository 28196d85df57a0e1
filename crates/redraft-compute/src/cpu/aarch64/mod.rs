//! Vectors of AArch64.
#![allow(unsafe_code)]

pub(super) mod neon;
