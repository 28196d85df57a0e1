//! Canonical arithmetic: the functions from which every op is made.
//!
//! No operation here depends on hardware beyond IEEE-754 `+`, `-`, `*` (each rounded once, to nearest even),
//! `floor`, comparison and 32-bit integer arithmetic. There is no fused multiply-add, no division, no square
//! root, no library function and, by the rule in [`mod@flush`], no subnormal number. A device that has these
//! operations can give the same bits.
//!
//! The functions are generic over [`Lanes`]: the reference runs them on one `f32`, a kernel on a vector, and
//! both execute the same operations in the same order.

pub mod activation;
pub mod exp;
pub mod f16;
pub mod flush;
pub mod host;
pub mod int8;
pub mod lanes;
pub mod log;
pub mod recip;
pub mod reduce;
pub mod rsqrt;
pub mod tanh;

pub use activation::{gelu_tanh, sigmoid, silu};
pub use exp::exp;
pub use f16::{f16_code, f16_value};
pub use flush::flush;
pub use host::{rope_table, rope_table_f32};
pub use int8::{int8_code, int8_scale, int8_scales};
pub use lanes::{IntLanes, Lanes};
pub use log::log;
pub use recip::recip;
pub use rsqrt::rsqrt;
pub use tanh::tanh;

#[cfg(test)]
pub(crate) mod ulp;
