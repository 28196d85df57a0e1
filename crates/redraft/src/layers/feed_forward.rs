//! Feed-forward blocks: gated dense, and routed experts.

use redraft_compute::op::{Activation, Factor, GateUp, Routing};
use redraft_compute::{ComputeError, ProgramBuilder, Val, WeightId};

use crate::weights::WeightLoader;

/// `down(act(gate x) * up x)`.
#[derive(Debug, Clone)]
pub(crate) struct GatedMlp {
    pub gate: WeightId,
    pub up: WeightId,
    pub down: WeightId,
    pub act: Activation,
}

impl GatedMlp {
    /// The tensors `{prefix}gate{suffix}.weight`, and `up` and `down` alike.
    pub(crate) fn load(
        w: &mut WeightLoader<'_>,
        [prefix, suffix]: [&str; 2],
        d_ff: usize,
        d_model: usize,
        act: Activation,
    ) -> GatedMlp {
        GatedMlp {
            gate: w.matrix(&format!("{prefix}gate{suffix}.weight"), d_ff, d_model),
            up: w.matrix(&format!("{prefix}up{suffix}.weight"), d_ff, d_model),
            down: w.matrix(&format!("{prefix}down{suffix}.weight"), d_model, d_ff),
            act,
        }
    }

    /// Appends the block for `x` `[T, d_model]`; returns `[T, d_model]`.
    pub(crate) fn build(&self, b: &mut ProgramBuilder, x: Val) -> Result<Val, ComputeError> {
        let gate = b.matmul(x, self.gate)?; // [T, d_ff]
        let up = b.matmul(x, self.up)?; // [T, d_ff]
        let y = b.glu(gate, up, self.act)?; // [T, d_ff]
        b.matmul(y, self.down) // [T, d_model]
    }
}

/// Router over all experts.
#[derive(Debug, Clone)]
pub(crate) struct Router {
    pub w: WeightId,
    pub routing: Routing,
    /// Factor on the weights of experts, where they have one.
    pub scale: Option<f64>,
}

impl Router {
    /// Appends the router for its input `r` `[T, d_model]`; returns ids and weights, `[T, top_k]` each.
    pub(crate) fn build(&self, b: &mut ProgramBuilder, r: Val) -> Result<(Val, Val), ComputeError> {
        let logits = b.matmul(r, self.w)?; // [T, experts]
        b.tap("ffn_moe_logits", logits);
        let (probs, ids, mut weights) = b.moe_route(logits, self.routing)?;
        b.tap("ffn_moe_probs", probs);
        b.tap("ffn_moe_topk", ids);
        if let Some(scale) = self.scale {
            weights = b.scale(weights, Factor::Const(scale))?;
        }
        b.tap("ffn_moe_weights_scaled", weights);
        Ok((ids, weights))
    }
}

/// The experts' weights.
#[derive(Debug, Clone)]
pub(crate) struct Experts {
    pub gate_up: GateUp,
    pub down: WeightId,
    pub act: Activation,
}

impl Experts {
    /// The stacks `{prefix}gate_up_exps.weight` (or `gate_exps` and `up_exps`) and `{prefix}down_exps.weight`.
    pub(crate) fn load(
        w: &mut WeightLoader<'_>,
        prefix: &str,
        n_experts: usize,
        d_expert: usize,
        d_model: usize,
        act: Activation,
    ) -> Experts {
        let split = w.has(&format!("{prefix}gate_exps.weight"));
        let mut stack =
            |name: &str, rows| w.stack(&format!("{prefix}{name}.weight"), n_experts, rows, d_model);
        let gate_up = if split {
            GateUp::Split { gate: stack("gate_exps", d_expert), up: stack("up_exps", d_expert) }
        } else {
            GateUp::Fused(stack("gate_up_exps", 2 * d_expert))
        };
        let down = w.stack(&format!("{prefix}down_exps.weight"), n_experts, d_model, d_expert);
        Experts { gate_up, down, act }
    }

    /// Appends the experts for `x` `[T, d_model]`; returns the weighted sum `[T, d_model]`.
    pub(crate) fn build(
        &self,
        b: &mut ProgramBuilder,
        x: Val,
        route: (Val, Val),
    ) -> Result<Val, ComputeError> {
        let out = b.moe_experts(x, route, self.gate_up, self.down, self.act)?;
        b.tap("ffn_moe_out", out);
        Ok(out)
    }
}
