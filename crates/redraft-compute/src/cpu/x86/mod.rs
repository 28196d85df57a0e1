//! Vectors of the x86-64 instruction sets.
#![allow(unsafe_code)]

pub(super) mod avx2;
pub(super) mod avx512;
pub(in crate::cpu) mod peak;
pub(super) mod vnni;
