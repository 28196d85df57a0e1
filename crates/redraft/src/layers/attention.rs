//! Self-attention with grouped queries, per-head norms and rotary positions.

use redraft_compute::math::rope_table;
use redraft_compute::op::{Mask, RopeStyle};
use redraft_compute::{AttentionSpec, ComputeError, ProgramBuilder, Val, WeightId};

/// One rotary scheme of a model: base, rotated channels, optional frequency factors.
#[derive(Debug, Clone)]
pub(crate) struct Rotary {
    /// Base of the geometric series of frequencies.
    pub base: f64,
    /// Rotated channels of a head.
    pub n_rot: usize,
    /// Divides each pair's frequency (`rope_freqs`), `n_rot / 2` entries.
    pub factors: Option<Vec<f32>>,
    /// Pairing of channels.
    pub style: RopeStyle,
}

impl Rotary {
    /// The table `[rows, n_rot]` for positions `n_past..n_past + rows`.
    pub(crate) fn table(&self, n_past: usize, rows: usize) -> Vec<f64> {
        rope_table(n_past, rows, self.n_rot, self.base, self.factors.as_deref())
    }
}

/// Norms over single heads, applied to queries, keys and values.
#[derive(Debug, Clone)]
pub(crate) struct QkvNorm {
    pub q: WeightId,
    pub k: WeightId,
    /// Epsilon of all three; the value norm has no weight.
    pub eps: f32,
}

/// Weights and sizes of one attention layer.
#[derive(Debug, Clone)]
pub(crate) struct SelfAttention {
    pub wq: WeightId,
    pub wk: WeightId,
    /// None: the values are the raw key projection.
    pub wv: Option<WeightId>,
    pub wo: WeightId,
    pub norm: QkvNorm,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f64,
    pub rope: RopeStyle,
}

impl SelfAttention {
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
        let (d, norm) = (self.head_dim, &self.norm);
        let q = b.matmul(h, self.wq)?; // [T, heads * d]
        b.tap("Qcur", q);
        let k = b.matmul(h, self.wk)?; // [T, kv_heads * d]
        b.tap("Kcur", k);
        let v = self.wv.map_or(Ok(k), |w| b.matmul(h, w))?; // [T, kv_heads * d]
        b.tap("Vcur", v);
        let q = b.rms_norm(q, Some(norm.q), norm.eps, d)?;
        b.tap("Qcur_normed", q);
        let k = b.rms_norm(k, Some(norm.k), norm.eps, d)?;
        b.tap("Kcur_normed", k);
        let v = b.rms_norm(v, None, norm.eps, d)?;
        b.tap("Vcur_normed", v);
        let q = b.rope(q, table, d, self.rope)?;
        b.tap("Qcur_pos", q);
        let k = b.rope(k, table, d, self.rope)?;
        b.tap("Kcur_pos", k);
        let spec = AttentionSpec {
            cache_layer: Some(layer),
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
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
