//! Self-conditioning: the distributions of the step before, as soft embeddings through a gated block of their own.

use redraft_compute::op::{Activation, Distribution};
use redraft_compute::{ComputeError, ProgramBuilder, Val, WeightId};

use super::feed_forward::GatedMlp;
use crate::weights::WeightLoader;

/// Weights of the block.
pub(crate) struct SelfConditioning {
    pre_norm: WeightId,
    mlp: GatedMlp,
    d_model: usize,
    eps: f32,
}

impl SelfConditioning {
    /// The tensors `self_cond_pre_norm`, `self_cond_gate`, `self_cond_up`, `self_cond_down`; none where the file has
    /// none of them.
    pub(crate) fn load(
        w: &mut WeightLoader<'_>,
        d_ff: usize,
        d_model: usize,
        eps: f32,
    ) -> Option<SelfConditioning> {
        let any = ["pre_norm", "gate", "up", "down"].iter().any(|n| w.has(&format!("self_cond_{n}.weight")));
        any.then(|| SelfConditioning {
            pre_norm: w.vector("self_cond_pre_norm.weight", d_model),
            mlp: GatedMlp::load(w, ["self_cond_", ""], d_ff, d_model, Activation::GeluTanh),
            d_model,
            eps,
        })
    }

    /// Appends the block for the distributions `previous` of `T` rows; the soft embedding is scaled as the embedding
    /// `table` is. Returns `[T, d_model]`.
    pub(crate) fn build(
        &self,
        b: &mut ProgramBuilder,
        previous: Distribution,
        table: WeightId,
    ) -> Result<Val, ComputeError> {
        let s = b.soft_embed(previous, table, (self.d_model as f64).sqrt())?; // [T, n]
        b.tap("sc_soft", s);
        let z = b.rms_norm(s, Some(self.pre_norm), self.eps, self.d_model)?;
        b.tap("sc_normed", z);
        let s = self.mlp.build(b, z)?; // [T, n]
        b.tap("sc_sig", s);
        Ok(s)
    }
}
