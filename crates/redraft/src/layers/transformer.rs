//! The plain transformer: pre-norm blocks of attention and feed-forward, dense or of routed experts.

use redraft_compute::op::{Activation, Mask, Routing};
use redraft_compute::{ComputeError, Kind, ProgramBuilder, Val, WeightId};

use super::attention::{AttentionKind, Cache, Rotary, SelfAttention};
use super::feed_forward::{Experts, GatedMlp, Router};
use crate::weights::WeightLoader;

/// The feed-forward part of all blocks; gated by SiLU.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FeedForwardKind {
    /// One block of this width.
    Dense(usize),
    /// Routed experts.
    Experts(ExpertsKind),
}

/// A feed-forward part of routed experts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertsKind {
    /// How many there are.
    pub n: usize,
    /// Width of each.
    pub d_expert: usize,
    /// How a token finds its own; a bias is filled in per block.
    pub routing: Routing,
    /// Routers have a bias for the choice.
    pub biased: bool,
    /// Factor on the weights of experts, where they have one.
    pub scale: Option<f64>,
    /// Width of the expert that all tokens use besides.
    pub shared: Option<usize>,
    /// So many blocks at the beginning are dense instead, and how wide they are.
    pub dense: (usize, usize),
}

/// Sizes and kinds.
#[derive(Debug, Clone)]
pub(crate) struct TransformerKind {
    pub n_layers: usize,
    pub d_model: usize,
    pub vocab_len: usize,
    pub attention: AttentionKind,
    pub feed_forward: FeedForwardKind,
    pub eps: f32,
    pub rotary: Rotary,
}

enum FeedForward {
    Dense(GatedMlp),
    Experts { router: Router, experts: Experts, shared: Option<GatedMlp> },
}

struct Block {
    attn_norm: WeightId,
    attn: SelfAttention,
    ffn_norm: WeightId,
    ffn: FeedForward,
}

/// Embedding, blocks, final norm and head.
pub(crate) struct Transformer {
    pub kind: TransformerKind,
    token_embd: WeightId,
    blocks: Vec<Block>,
    output_norm: WeightId,
    /// The output head `[V, d_model]`.
    pub output: WeightId,
}

impl Transformer {
    /// The tensors `token_embd`, `blk.N.*`, `output_norm`, and `output`, which the embedding stands in for where it is
    /// missing.
    pub(crate) fn load(w: &mut WeightLoader<'_>, kind: TransformerKind) -> Transformer {
        let (n, vocab_len) = (kind.d_model, kind.vocab_len);
        let token_embd = w.matrix("token_embd.weight", vocab_len, n);
        let blocks = (0..kind.n_layers).map(|i| Block::load(w, &kind, i)).collect();
        let output_norm = w.vector("output_norm.weight", n);
        let output = w.head(vocab_len, n, token_embd);
        Transformer { kind, token_embd, blocks, output_norm, output }
    }

    /// Appends embedding and blocks for `ids` `[T, 1]`; declares the rotary table as an input. Returns the hidden
    /// state `[T, d_model]`.
    pub(crate) fn hidden(
        &self,
        b: &mut ProgramBuilder,
        ids: Val,
        mask: Mask,
        cache: Cache<'_>,
    ) -> Result<Val, ComputeError> {
        let table = b.input("rope table", self.kind.rotary.n_rot, Kind::Real)?;
        let mut x = b.embed(ids, self.token_embd, 1.0)?; // [T, n]
        b.tap("inp_embd", x);
        for (layer, block) in self.blocks.iter().enumerate() {
            b.set_layer(Some(layer));
            x = block.build(b, x, table, mask, (layer, cache), &self.kind)?;
        }
        b.set_layer(None);
        Ok(x)
    }

    /// Appends the final norm.
    pub(crate) fn result_norm(&self, b: &mut ProgramBuilder, hidden: Val) -> Result<Val, ComputeError> {
        let x = b.rms_norm(hidden, Some(self.output_norm), self.kind.eps, self.kind.d_model)?;
        b.tap("result_norm", x);
        Ok(x)
    }
}

impl Block {
    fn load(w: &mut WeightLoader<'_>, kind: &TransformerKind, i: usize) -> Block {
        let (n, act) = (kind.d_model, Activation::Silu);
        let name = |n: &str| format!("blk.{i}.{n}");
        Block {
            attn_norm: w.vector(&name("attn_norm.weight"), n),
            attn: SelfAttention::load(w, &name("attn_"), n, kind.attention),
            ffn_norm: w.vector(&name("ffn_norm.weight"), n),
            ffn: match kind.feed_forward {
                FeedForwardKind::Experts(k) if i >= k.dense.0 => {
                    let bias = k.biased.then(|| w.finite_vector(&name("exp_probs_b.bias"), k.n));
                    FeedForward::Experts {
                        router: Router {
                            w: w.matrix(&name("ffn_gate_inp.weight"), k.n, n),
                            routing: Routing { bias, ..k.routing },
                            scale: k.scale,
                        },
                        experts: Experts::load(w, &name("ffn_"), k.n, k.d_expert, n, act),
                        shared: k.shared.map(|d| GatedMlp::load(w, [&name("ffn_"), "_shexp"], d, n, act)),
                    }
                }
                FeedForwardKind::Dense(d_ff)
                | FeedForwardKind::Experts(ExpertsKind { dense: (_, d_ff), .. }) => {
                    FeedForward::Dense(GatedMlp::load(w, [&name("ffn_"), ""], d_ff, n, act))
                }
            },
        }
    }

    fn build(
        &self,
        b: &mut ProgramBuilder,
        x: Val,
        table: Val,
        mask: Mask,
        cache: (usize, Cache<'_>),
        kind: &TransformerKind,
    ) -> Result<Val, ComputeError> {
        let norm = |b: &mut ProgramBuilder, x, w| b.rms_norm(x, Some(w), kind.eps, kind.d_model);
        let h = norm(b, x, self.attn_norm)?;
        b.tap("attn_norm", h);
        let o = self.attn.build(b, h, table, mask, cache)?; // [T, n]
        let x = b.add(x, o)?;
        b.tap("ffn_inp", x);
        let h = norm(b, x, self.ffn_norm)?;
        b.tap("ffn_norm", h);
        let y = match &self.ffn {
            FeedForward::Dense(mlp) => {
                let y = mlp.build(b, h)?; // [T, n]
                b.tap("ffn_out", y);
                y
            }
            FeedForward::Experts { router, experts, shared } => {
                let route = router.build(b, h)?; // ids, weights: [T, k]
                let y = experts.build(b, h, route)?; // [T, n]
                match shared {
                    None => y,
                    Some(mlp) => {
                        let all = mlp.build(b, h)?; // [T, n]
                        b.tap("ffn_shexp", all);
                        let y = b.add(y, all)?;
                        b.tap("ffn_out", y);
                        y
                    }
                }
            }
        };
        let y = b.add(x, y)?;
        b.tap("l_out", y);
        Ok(y)
    }
}
