//! MoeExperts, and one whole layer in which results of ops feed ops.

use redraft_gguf::DType;

use super::{Case, Data, Setup, Spread, Weights, push, single};
use crate::Numerics::Exact;
use crate::op::{Activation, GateUp, Mask, Routing};
use crate::{AttentionSpec, ComputeError, Kind, KvLayout, KvType, Numerics, ProgramBuilder};

/// A shape of experts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) tokens: usize,
    pub(super) experts: usize,
    pub(super) top_k: usize,
    pub(super) n: usize,
    pub(super) ff: usize,
}

pub(super) fn add(list: &mut Vec<Case>) {
    let shape = |tokens, experts, top_k, n, ff| Shape { tokens, experts, top_k, n, ff };
    let shapes = [
        shape(1, 1, 1, 1, 1),
        shape(1, 4, 2, 17, 33),
        shape(7, 4, 2, 33, 16),
        shape(13, 5, 3, 16, 15),
        shape(40, 3, 2, 20, 18),
        shape(31, 8, 8, 15, 17),
    ];
    for (i, s) in shapes.into_iter().enumerate() {
        for fused in [true, false] {
            let act = if i % 2 == 0 { Activation::Silu } else { Activation::GeluTanh };
            let name = format!("F32 {s:?} fused {fused} {act:?}");
            push(list, "MoeExperts", Exact, name, move || {
                experts([DType::F32; 3], s, fused, act, None, Spread::Unit, Exact)
            });
        }
    }
    for (gate, down, n, ff) in [
        (DType::Q4_K, DType::Q8_0, 256, 96),
        (DType::Q6_K, DType::Q5_0, 256, 64),
        (DType::Q5_K, DType::Q5_1, 512, 32),
        (DType::BF16, DType::Q4_0, 65, 64),
        (DType::Q2_K, DType::Q4_1, 256, 32),
        (DType::Q3_K, DType::IQ4_NL, 256, 64),
        (DType::IQ4_XS, DType::MXFP4, 256, 96),
        (DType::IQ2_XXS, DType::NVFP4, 256, 64),
        (DType::IQ2_XS, DType::Q1_0, 512, 128),
        (DType::IQ3_S, DType::Q2_0, 256, 192),
        (DType::IQ2_S, DType::IQ3_XXS, 256, 256),
        (DType::IQ1_S, DType::IQ1_M, 256, 256),
        (DType::TQ1_0, DType::TQ2_0, 256, 256),
        (DType::Q8_K, DType::Q8_1, 256, 32),
        (DType::F64, DType::I8, 31, 30),
        (DType::I16, DType::I32, 18, 33),
        (DType::F32, DType::I64, 33, 17),
        (DType::F16, DType::F16, 30, 31),
    ] {
        let s = shape(21, 6, 3, n, ff);
        let name = format!("{}, down {}, {s:?}", gate.name(), down.name());
        push(list, "MoeExperts", Exact, name, move || {
            experts([gate, gate, down], s, true, Activation::GeluTanh, None, Spread::Unit, Exact)
        });
    }
    for id in [-1, 3] {
        push(list, "MoeExperts", Exact, format!("expert {id} of 3"), move || {
            let s = shape(4, 3, 2, 5, 6);
            experts([DType::F32; 3], s, true, Activation::Silu, Some(id), Spread::Unit, Exact)
        });
    }
    push(list, "layer", Exact, "two passes through one layer of a model".into(), layer);
}

/// The types of a fused stack are those of its gate. The spread is that of the gate and of the activations.
pub(super) fn experts(
    [gate, up, down]: [DType; 3],
    s: Shape,
    fused: bool,
    act: Activation,
    bad_id: Option<i32>,
    spread: Spread,
    numerics: Numerics,
) -> Result<Setup, ComputeError> {
    let mut w = Weights::new(31);
    let gate_up = if fused {
        GateUp::Fused(w.add(gate, [s.experts, 2 * s.ff, s.n], spread)?)
    } else {
        let shape = [s.experts, s.ff, s.n];
        GateUp::Split { gate: w.add(gate, shape, spread)?, up: w.add(up, shape, Spread::Unit)? }
    };
    let down = w.add(down, [s.experts, s.n, s.ff], Spread::Unit)?;
    let (table, mut noise) = w.finish();
    let mut b = ProgramBuilder::new(&table, 0, s.tokens);
    let x = b.input("x", s.n, Kind::Real)?;
    let ids = b.input("ids", s.top_k, Kind::Int)?;
    let weights = b.input("weights", s.top_k, Kind::Real)?;
    b.set_numerics(numerics);
    let y = b.moe_experts(x, (ids, weights), gate_up, down, act)?;
    b.output(y);
    // Slots may name the same expert twice; a kernel must not care.
    let mut ids = noise.ids(s.tokens * s.top_k, s.experts);
    if let Some(bad) = bad_id {
        ids[s.top_k + 1] = bad;
    }
    let inputs = vec![
        Data::Real(noise.reals(s.tokens * s.n, spread)),
        Data::Int(ids),
        Data::Real(noise.reals(s.tokens * s.top_k, Spread::Unit)),
    ];
    Ok(single(b, table, inputs))
}

/// Embedding, attention and experts as a model wires them, twice, with the cache in between.
fn layer() -> Result<Setup, ComputeError> {
    let (n, heads, head_dim, vocab, ff, n_experts) = (96, 4, 24, 150, 32, 5);
    let kv = 2 * head_dim;
    let mut w = Weights::new(32);
    let table = w.add(DType::Q8_0, [1, vocab, n], Spread::Unit)?;
    let norm = w.vector(n, Spread::Unit)?;
    let [wq, wk, wv] = [heads * head_dim, kv, kv].map(|rows| w.add(DType::Q5_0, [1, rows, n], Spread::Unit));
    let (wq, wk, wv) = (wq?, wk?, wv?);
    let wo = w.add(DType::F16, [1, n, heads * head_dim], Spread::Unit)?;
    let router = w.add(DType::F32, [1, n_experts, n], Spread::Unit)?;
    let gate_up = GateUp::Fused(w.add(DType::Q8_0, [n_experts, 2 * ff, n], Spread::Unit)?);
    let down = w.add(DType::Q4_0, [n_experts, n, ff], Spread::Unit)?;
    let (weights, mut noise) = w.finish();

    let mut steps = Vec::new();
    for (n_past, rows, mask) in
        [(0, 19, Mask::Causal { window: Some(8) }), (19, 32, Mask::Canvas { prefix: Some(10) })]
    {
        let mut b = ProgramBuilder::new(&weights, n_past, rows);
        let ids = b.input("ids", 1, Kind::Int)?;
        let u = b.input("u", 1, Kind::Real)?;
        let h = b.embed(ids, table, (n as f64).sqrt())?; // [rows, n]
        let x = b.rms_norm(h, Some(norm), 1e-6, n)?;
        let (q, k, v) = (b.matmul(x, wq)?, b.matmul(x, wk)?, b.matmul(x, wv)?);
        let q = b.rms_norm(q, None, 1e-6, head_dim)?;
        let k = b.rms_norm(k, None, 1e-6, head_dim)?;
        let spec =
            AttentionSpec { cache_layer: Some(0), n_heads: heads, n_kv_heads: 2, head_dim, scale: 0.3, mask };
        let y = b.attention([q, k, v], spec)?; // [rows, heads * head_dim]
        b.kv_append(0, k, v)?;
        let y = b.matmul(y, wo)?; // [rows, n]
        let h = b.add(h, y)?;
        let x = b.rms_norm(h, None, 1e-6, n)?;
        let logits = b.matmul(x, router)?; // [rows, n_experts]
        let (_, ids_v, w_v) = b.moe_route(logits, Routing::softmax(2, true))?;
        let y = b.moe_experts(x, (ids_v, w_v), gate_up, down, Activation::GeluTanh)?;
        let h = b.add(h, y)?;
        let x = b.rms_norm(h, Some(norm), 1e-6, n)?;
        let logits = b.matmul(x, table)?; // [rows, vocab]
        let logits = b.softcap(logits, 30.0)?;
        let logits = b.logits(logits, None, 1.25);
        let (of, argmax) = b.token_stats(logits)?;
        let sample = b.token_sample(of, u)?;
        let soft = b.soft_embed(of, table, 2.0)?;
        [of.stats, argmax, sample, soft].into_iter().for_each(|v| b.output(v));
        let u = (0..rows).map(|_| noise.unit().abs()).collect();
        steps.push((b.finish(), vec![Data::Int(noise.ids(rows, vocab)), Data::Real(u)]));
    }
    Ok(Setup { weights, layout: KvLayout { widths: vec![kv] }, kv_type: KvType::F32, steps })
}
