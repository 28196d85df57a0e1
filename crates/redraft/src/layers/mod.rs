//! Parts that architectures share: each appends its ops and taps to a program.

mod attention;
mod feed_forward;
mod gemma4;
mod self_conditioning;
mod transformer;

pub(crate) use attention::{AttentionKind, Cache, HeadNorms, Heads, Rotary, SelfAttention};
pub(crate) use feed_forward::{Experts, GatedMlp, Router};
pub(crate) use gemma4::{Gemma4, Scalars};
pub(crate) use self_conditioning::SelfConditioning;
pub(crate) use transformer::{ExpertsKind, FeedForwardKind, Transformer, TransformerKind};
