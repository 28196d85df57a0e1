//! Parts that architectures share: each appends its ops and taps to a program.

mod attention;
mod feed_forward;
mod gemma4;

pub(crate) use attention::{Heads, Rotary, SelfAttention};
pub(crate) use feed_forward::{Experts, GatedMlp, Router};
pub(crate) use gemma4::{Gemma4, Scalars};
