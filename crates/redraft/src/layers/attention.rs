//! Self-attention with grouped queries, per-head norms, biases and rotary positions, as an architecture needs them.

use redraft_compute::math::{rope_table, rope_table_f32};
use redraft_compute::op::{Mask, RopeStyle};
use redraft_compute::{AttentionSpec, ComputeError, ProgramBuilder, Val, WeightId};

use crate::arch::Angles;
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
    pub(crate) fn table(&self, n_past: usize, rows: usize, angles: Angles) -> Vec<f64> {
        let table = match angles {
            Angles::Exact => rope_table,
            Angles::F32 => rope_table_f32,
        };
        table(n_past, rows, self.n_rot, self.base, self.n_rot, self.factors.as_deref())
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

/// Norms over single heads, before the rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    /// None.
    None,
    /// Of queries and keys.
    QueryKey,
    /// Of queries, keys and values; that of the values has no weight.
    QueryKeyValue,
}

/// How the attention of an architecture or layer works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionKind {
    /// Heads.
    pub heads: Heads,
    /// The values have a projection of their own; else they are the raw key projection.
    pub own_values: bool,
    /// Queries, keys and values have biases.
    pub bias: bool,
    /// Norms over heads.
    pub norms: HeadNorms,
    /// Of the norms.
    pub eps: f32,
    /// Which channels are rotated together.
    pub style: RopeStyle,
    /// Factor on the scores.
    pub scale: f64,
}

/// A projection.
#[derive(Debug, Clone, Copy)]
struct Projection {
    weight: WeightId,
    bias: Option<WeightId>,
}

/// Weights and sizes of one attention layer.
#[derive(Debug, Clone)]
pub(crate) struct SelfAttention {
    q: Projection,
    k: Projection,
    v: Option<Projection>,
    wo: WeightId,
    /// Of queries and keys.
    norms: Option<(WeightId, WeightId)>,
    kind: AttentionKind,
}

impl SelfAttention {
    /// The tensors `{prefix}q.weight`, `k`, `v`, `output`, `q_norm`, `k_norm`, `q.bias`, `k.bias`, `v.bias`, as far as
    /// `kind` asks for them. Queries, keys and values without biases may be one matrix, `{prefix}qkv.weight`.
    pub(crate) fn load(
        w: &mut WeightLoader<'_>,
        prefix: &str,
        d_model: usize,
        kind: AttentionKind,
    ) -> SelfAttention {
        let heads = kind.heads;
        let (q_width, kv_width) = (heads.q * heads.dim, heads.kv * heads.dim);
        let fused = format!("{prefix}qkv.weight");
        let (q, k, v) = if kind.own_values && !kind.bias && w.has(&fused) {
            let all = w.matrices(&fused, [q_width, kv_width, kv_width], d_model);
            let [q, k, v] = all.map(|weight| Projection { weight, bias: None });
            (q, k, Some(v))
        } else {
            let mut projection = |n: &str, width| Projection {
                weight: w.matrix(&format!("{prefix}{n}.weight"), width, d_model),
                bias: kind.bias.then(|| w.vector(&format!("{prefix}{n}.bias"), width)),
            };
            let (q, k) = (projection("q", q_width), projection("k", kv_width));
            (q, k, kind.own_values.then(|| projection("v", kv_width)))
        };
        let mut norm = |n: &str| w.vector(&format!("{prefix}{n}.weight"), heads.dim);
        let norms = (kind.norms != HeadNorms::None).then(|| (norm("q_norm"), norm("k_norm")));
        let wo = w.matrix(&format!("{prefix}output.weight"), d_model, q_width);
        SelfAttention { q, k, v, wo, norms, kind }
    }

    /// Appends the layer for the normed input `h` `[T, d_model]`; `table` is the rotary table of the pass, `cache` what
    /// happens with that of layer `layer`. Returns the projected result `[T, d_model]`.
    pub(crate) fn build(
        &self,
        b: &mut ProgramBuilder,
        h: Val,
        table: Val,
        mask: Mask,
        (layer, cache): (usize, Cache<'_>),
    ) -> Result<Val, ComputeError> {
        let AttentionKind { heads, eps, style, .. } = self.kind;
        let d = heads.dim;
        let mut q = b.matmul_bias(h, self.q.weight, self.q.bias)?; // [T, heads * d]
        b.tap("Qcur", q);
        let mut k = b.matmul_bias(h, self.k.weight, self.k.bias)?; // [T, kv_heads * d]
        b.tap("Kcur", k);
        let mut v = self.v.map_or(Ok(k), |p| b.matmul_bias(h, p.weight, p.bias))?; // [T, kv_heads * d]
        b.tap("Vcur", v);
        if let Some((q_norm, k_norm)) = self.norms {
            q = b.rms_norm(q, Some(q_norm), eps, d)?;
            b.tap("Qcur_normed", q);
            k = b.rms_norm(k, Some(k_norm), eps, d)?;
            b.tap("Kcur_normed", k);
        }
        if self.kind.norms == HeadNorms::QueryKeyValue {
            v = b.rms_norm(v, None, eps, d)?;
            b.tap("Vcur_normed", v);
        }
        q = b.rope(q, table, d, style)?;
        b.tap("Qcur_pos", q);
        k = b.rope(k, table, d, style)?;
        b.tap("Kcur_pos", k);
        let spec = AttentionSpec {
            cache_layer: cache.is_read().then_some(layer),
            n_heads: heads.q,
            n_kv_heads: heads.kv,
            head_dim: d,
            scale: self.kind.scale,
            mask,
        };
        let o = b.attention([q, k, v], spec)?; // [T, heads * d]
        b.tap("kqv_out", o);
        match cache {
            Cache::Unused | Cache::Read => {}
            Cache::Append => b.kv_append(layer, k, v)?,
            Cache::Fill(order) => {
                let [k, v] = [k, v].map(|x| b.take_rows(x, order.to_vec())); // [T, kv_heads * d]
                b.kv_append(layer, k?, v?)?;
            }
        }
        b.matmul(o, self.wo) // [T, d_model]
    }
}

/// What a pass does with the KV cache.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cache<'a> {
    /// Nothing.
    Unused,
    /// Its keys and values come before those of the pass.
    Read,
    /// The same, and those of the pass extend it.
    Append,
    /// Those of the pass are all there are, and fill the empty cache in this order of rows.
    Fill(&'a [u32]),
}

impl Cache<'_> {
    fn is_read(self) -> bool {
        matches!(self, Cache::Read | Cache::Append)
    }
}
