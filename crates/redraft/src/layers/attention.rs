//! Self-attention with grouped queries, per-head norms and rotary positions (pairs `(i, i + n_rot / 2)`).

use redraft_compute::math::rope_table;
use redraft_compute::op::{Mask, RopeStyle};
use redraft_compute::{AttentionSpec, ComputeError, ProgramBuilder, Val, WeightId};

use crate::weights::WeightLoader;

/// One rotary scheme of a model: base, rotated channels, optional frequency factors.
#[derive(Debug, Clone)]
pub(crate) struct Rotary {
    /// Base of the geometric series of frequencies.
    pub base: f64,
    /// Rotated channels of a head.
    pub n_rot: usize,
    /// Divides each pair's frequency (`rope_freqs`), `n_rot / 2` entries.
    pub factors: Option<Vec<f32>>,
}

impl Rotary {
    /// The table `[rows, n_rot]` for positions `n_past..n_past + rows`.
    pub(crate) fn table(&self, n_past: usize, rows: usize) -> Vec<f64> {
        rope_table(n_past, rows, self.n_rot, self.base, self.n_rot, self.factors.as_deref())
    }
}

/// Heads of one layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    /// Query heads.
    pub q: usize,
    /// Key and value heads.
    pub kv: usize,
    /// Channels of a head.
    pub dim: usize,
}

/// Weights and sizes of one attention layer with norms over single heads.
#[derive(Debug, Clone)]
pub(crate) struct SelfAttention {
    wq: WeightId,
    wk: WeightId,
    /// None: the values are the raw key projection.
    wv: Option<WeightId>,
    wo: WeightId,
    q_norm: WeightId,
    k_norm: WeightId,
    /// Of the norms of queries, keys and values; that of the values has no weight.
    eps: f32,
    heads: Heads,
    /// Factor on the scores.
    scale: f64,
}

impl SelfAttention {
    /// The tensors `{prefix}q.weight`, `k`, `v` (with `own_values`), `output`, `q_norm`, `k_norm`.
    pub(crate) fn load(
        w: &mut WeightLoader<'_>,
        prefix: &str,
        d_model: usize,
        heads: Heads,
        own_values: bool,
        eps: f32,
        scale: f64,
    ) -> SelfAttention {
        let name = |n: &str| format!("{prefix}{n}.weight");
        let (q_width, kv_width) = (heads.q * heads.dim, heads.kv * heads.dim);
        SelfAttention {
            wq: w.matrix(&name("q"), q_width, d_model),
            wk: w.matrix(&name("k"), kv_width, d_model),
            wv: own_values.then(|| w.matrix(&name("v"), kv_width, d_model)),
            wo: w.matrix(&name("output"), d_model, q_width),
            q_norm: w.vector(&name("q_norm"), heads.dim),
            k_norm: w.vector(&name("k_norm"), heads.dim),
            eps,
            heads,
            scale,
        }
    }

    /// Appends the layer for the normed input `h` `[T, d_model]`; `table` is the rotary table of the pass.
    /// With `append`, keys and values extend the cache. Returns the projected result `[T, d_model]`.
    pub(crate) fn build(
        &self,
        b: &mut ProgramBuilder,
        h: Val,
        table: Val,
        layer: usize,
        mask: Mask,
        append: bool,
    ) -> Result<Val, ComputeError> {
        let (d, eps) = (self.heads.dim, self.eps);
        let q = b.matmul(h, self.wq)?; // [T, heads * d]
        b.tap("Qcur", q);
        let k = b.matmul(h, self.wk)?; // [T, kv_heads * d]
        b.tap("Kcur", k);
        let v = self.wv.map_or(Ok(k), |w| b.matmul(h, w))?; // [T, kv_heads * d]
        b.tap("Vcur", v);
        let q = b.rms_norm(q, Some(self.q_norm), eps, d)?;
        b.tap("Qcur_normed", q);
        let k = b.rms_norm(k, Some(self.k_norm), eps, d)?;
        b.tap("Kcur_normed", k);
        let v = b.rms_norm(v, None, eps, d)?;
        b.tap("Vcur_normed", v);
        let q = b.rope(q, table, d, RopeStyle::Neox)?;
        b.tap("Qcur_pos", q);
        let k = b.rope(k, table, d, RopeStyle::Neox)?;
        b.tap("Kcur_pos", k);
        let spec = AttentionSpec {
            cache_layer: Some(layer),
            n_heads: self.heads.q,
            n_kv_heads: self.heads.kv,
            head_dim: d,
            scale: self.scale,
            mask,
        };
        let o = b.attention([q, k, v], spec)?; // [T, heads * d]
        b.tap("kqv_out", o);
        if append {
            b.kv_append(layer, k, v)?;
        }
        b.matmul(o, self.wo) // [T, d_model]
    }
}
