//! The kernels, each written once over [`Isa`](super::vector::Isa).
//!
//! All functions are `#[inline(always)]`: they are compiled inside the functions of a
//! [`table`](super::table), for whose instruction set the vector type is made. Loops are written without
//! closures over vectors, because a closure would be a function of its own without that instruction set.

pub(super) mod elementwise;
pub(super) mod gemm;
pub(super) mod half;
pub(super) mod int8;
pub(super) mod int_unpack;
pub(super) mod kv;
pub(super) mod norm;
pub(super) mod pack;
pub(super) mod rope;
pub(super) mod soft;
pub(super) mod softmax;
pub(super) mod stats;
