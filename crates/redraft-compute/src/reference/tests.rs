//! Each op on values that can be computed by hand, and all of them in f32 against f64.

use std::sync::Arc;

use redraft_gguf::{Bytes, DType};

use super::stats::{Place, place, search};
use super::testing::{Data, Outputs, W, backend, distance, noise, noise32, run, table};
use crate::backend::{InputData, KvLayout, Precision};
use crate::op::{Activation, Factor, GateUp, Head, Mask, RopeStyle, Routing};
use crate::program::{AttentionSpec, Blind, ProgramBuilder};
use crate::{ComputeError, Kind, KvType, Numerics, Val, Weight, WeightId, WeightTable};

const EXACT: [Precision; 2] = [Precision::F32, Precision::F64];

fn real(x: &[f64]) -> Data {
    Data::Real(x.to_vec())
}

/// The soft embedding of given logits.
fn soft_embed(b: &mut ProgramBuilder, x: Val, table: WeightId, scale: f64) -> Result<Val, ComputeError> {
    let (of, _) = b.token_stats(b.logits(x, None, 1.0))?;
    b.soft_embed(of, table, scale)
}

fn identity(n: usize) -> Vec<f32> {
    (0..n * n).map(|i| f32::from(i.is_multiple_of(n + 1))).collect()
}

/// Runs an op in f32 and f64 and compares its first output with `expected`.
fn check(
    weights: &[W<'_>],
    rows: usize,
    inputs: &[Data],
    build: impl Fn(&mut ProgramBuilder, &[Val], &[WeightId]) -> Result<Vec<Val>, ComputeError>,
    expected: &[f64],
) {
    for p in EXACT {
        let out = run(p, weights, rows, inputs, &build).unwrap();
        let d = distance(out[0].real(), expected);
        assert!(d < 3e-7, "{p:?}: {:?} instead of {expected:?}", out[0]);
    }
}

#[test]
fn embed_takes_scaled_rows_and_refuses_foreign_ids() {
    let w: [W<'_>; 1] = [("e", [1, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 1e-20])];
    let build = |b: &mut ProgramBuilder, v: &[Val], w: &[WeightId]| Ok(vec![b.embed(v[0], w[0], 2.0)?]);
    check(&w, 2, &[Data::Int(vec![2, 0])], build, &[10.0, 0.0, 2.0, 4.0]);
    for id in [3, -1, i32::MAX, i32::MIN] {
        let e = run(Precision::F32, &w, 2, &[Data::Int(vec![0, id])], build).unwrap_err();
        assert!(
            matches!(e, ComputeError::IdOutOfRange { op: "Embed", row: 1, limit: 3, id: i } if i == i64::from(id)),
            "{e}"
        );
    }
}

#[test]
fn soft_embed_mixes_rows() {
    let w: [W<'_>; 1] = [("e", [1, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 8.0])];
    // The probabilities 1/2, 1/2, 0 and 0, 1/4, 3/4.
    let x = real(&[7.0, 7.0, -200.0, -200.0, 0.0, 3f64.ln()]);
    check(&w, 2, &[x], |b, v, w| Ok(vec![soft_embed(b, v[0], w[0], 2.0)?]), &[4.0, 6.0, 9.0, 14.0]);
}

#[test]
fn matmul_adds_the_bias_after_a_sequential_sum() {
    let w: [W<'_>; 2] = [("w", [1, 2, 3], &[1.0, 2.0, 3.0, -1.0, 0.5, 0.0]), ("b", [1, 1, 2], &[10.0, 20.0])];
    let x = real(&[1.0, 1.0, 1.0, 2.0, 4.0, 0.0]);
    check(&w, 2, &[x], |b, v, w| Ok(vec![b.matmul_bias(v[0], w[0], Some(w[1]))?]), &[16.0, 19.5, 20.0, 20.0]);
    // 2^24 + 1 + 1 stays 2^24 when added in order; 1 + 1 + 2^24 does not.
    let big = 16_777_216.0;
    let w: [W<'_>; 1] = [("w", [1, 1, 3], &[1.0, 1.0, 1.0])];
    let build = |b: &mut ProgramBuilder, v: &[Val], w: &[WeightId]| Ok(vec![b.matmul(v[0], w[0])?]);
    let out = run(Precision::F32, &w, 2, &[real(&[big, 1.0, 1.0, 1.0, 1.0, big])], build).unwrap();
    assert_eq!(out[0], real(&[big, big + 2.0]));
}

#[test]
fn products_are_rounded_before_they_are_added() {
    // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 when fused and 0 when rounded in between.
    let a = 1.0 + 2f64.powi(-12);
    let w: [W<'_>; 1] = [("w", [1, 1, 2], &[1.0, a as f32])];
    let x = real(&[-(1.0 + 2f64.powi(-11)), a]);
    let build = |b: &mut ProgramBuilder, v: &[Val], w: &[WeightId]| Ok(vec![b.matmul(v[0], w[0])?]);
    assert_eq!(run(Precision::F32, &w, 1, std::slice::from_ref(&x), build).unwrap()[0], real(&[0.0]));
    assert_eq!(run(Precision::F64, &w, 1, &[x], build).unwrap()[0], real(&[2f64.powi(-24)]));
}

#[test]
fn rms_norm_over_rows_and_heads() {
    let w: [W<'_>; 1] = [("w", [1, 1, 2], &[1.0, 2.0])];
    // Mean of squares of (3, 4) plus eps: 12.5 + 3.5 = 16.
    let x = real(&[3.0, 4.0, 4.0, 3.0]);
    check(
        &w,
        1,
        std::slice::from_ref(&x),
        |b, v, w| Ok(vec![b.rms_norm(v[0], Some(w[0]), 3.5, 2)?]),
        &[0.75, 2.0, 1.0, 1.5],
    );
    check(
        &[],
        1,
        std::slice::from_ref(&x),
        |b, v, _| Ok(vec![b.rms_norm(v[0], None, 3.5, 4)?]),
        &[0.75, 1.0, 1.0, 0.75],
    );
    let zero =
        run(Precision::F32, &[], 1, &[real(&[0.0; 4])], |b, v, _| Ok(vec![b.rms_norm(v[0], None, 1e-6, 4)?]));
    assert_eq!(zero.unwrap()[0], real(&[0.0; 4]));
}

#[test]
fn elementwise_ops() {
    let w: [W<'_>; 1] = [("s", [1, 1, 1], &[0.5])];
    let (a, b2) = (real(&[1.0, -2.0]), real(&[0.25, 2.0]));
    check(
        &w,
        1,
        std::slice::from_ref(&a),
        |b, v, _| Ok(vec![b.scale(v[0], Factor::Const(3.0))?]),
        &[3.0, -6.0],
    );
    check(
        &w,
        1,
        std::slice::from_ref(&a),
        |b, v, w| Ok(vec![b.scale(v[0], Factor::Scalar(w[0]))?]),
        &[0.5, -1.0],
    );
    check(&w, 1, &[a.clone(), b2.clone()], |b, v, _| Ok(vec![b.add(v[0], v[1])?]), &[1.25, 0.0001 - 0.0001]);
    // silu(1) and silu(-2); gelu_tanh(1) and gelu_tanh(-2) from the published formula.
    let silu = [0.731_058_578_63, -0.238_405_844_04];
    let gelu = [0.841_191_990_6, -0.045_402_305_9];
    for (act, y) in [(Activation::Silu, silu), (Activation::GeluTanh, gelu)] {
        check(
            &w,
            1,
            &[a.clone(), b2.clone()],
            |b, v, _| Ok(vec![b.glu(v[0], v[1], act)?]),
            &[0.25 * y[0], 2.0 * y[1]],
        );
    }
    check(
        &w,
        1,
        &[real(&[15.0, -300.0])],
        |b, v, _| Ok(vec![b.softcap(v[0], 30.0)?]),
        &[30.0 * 0.5f64.tanh(), -30.0],
    );
}

#[test]
fn every_stored_number_is_zero_or_at_least_two_to_the_minus_fifty() {
    let tiny = 2f64.powi(-30);
    let x = real(&[tiny, 1.0]);
    let out = run(Precision::F32, &[], 1, std::slice::from_ref(&x), |b, v, _| {
        let scaled = b.scale(v[0], Factor::Const(tiny))?;
        let sum = b.add(v[0], v[0])?;
        Ok(vec![scaled, sum])
    });
    let out = out.unwrap();
    assert_eq!(out[0], real(&[0.0, tiny]), "2^-60 is flushed");
    assert_eq!(out[1], real(&[2.0 * tiny, 2.0]));
    let out = run(Precision::F32, &[], 1, &[real(&[-1e-30, 1e-3])], |_, v, _| Ok(vec![v[0]])).unwrap();
    assert_eq!(out[0].real()[0].to_bits(), 0, "inputs, too, and to +0");
}

#[test]
fn rope_turns_pairs_and_copies_the_rest() {
    // A quarter turn for pair 0 and none for pair 1.
    let t = real(&[0.0, 1.0, 1.0, 0.0]);
    let x = real(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
    let neox = [-3.0, 2.0, 1.0, 4.0, 5.0, -8.0, 7.0, 6.0, 9.0, 10.0];
    let interleaved = [-2.0, 1.0, 3.0, 4.0, 5.0, -7.0, 6.0, 8.0, 9.0, 10.0];
    for (style, expected) in [(RopeStyle::Neox, neox), (RopeStyle::Interleaved, interleaved)] {
        check(&[], 1, &[x.clone(), t.clone()], |b, v, _| Ok(vec![b.rope(v[0], v[1], 5, style)?]), &expected);
    }
}

fn spec(n_heads: usize, n_kv_heads: usize, head_dim: usize, mask: Mask) -> AttentionSpec {
    AttentionSpec { cache_layer: None, n_heads, n_kv_heads, head_dim, scale: 1.0, mask }
}

#[test]
fn attention_weighs_visible_values() {
    // Scores ln 3 and 0: weights 3/4 and 1/4. Row 0 sees itself only.
    let q = real(&[9.0, 1.0]);
    let k = real(&[3f64.ln(), 0.0]);
    let v = real(&[4.0, 8.0]);
    let mask = Mask::Causal { window: None };
    let build = move |b: &mut ProgramBuilder, x: &[Val], _: &[WeightId]| {
        Ok(vec![b.attention([x[0], x[1], x[2]], spec(1, 1, 1, mask))?])
    };
    check(&[], 2, &[q.clone(), k.clone(), v.clone()], build, &[4.0, 5.0]);
    // The canvas sees everything; a window of one sees only itself.
    let q = real(&[1.0, 1.0]);
    for (mask, expected) in
        [(Mask::Canvas { prefix: Some(0) }, [5.0, 5.0]), (Mask::Causal { window: Some(1) }, [4.0, 8.0])]
    {
        let build = move |b: &mut ProgramBuilder, x: &[Val], _: &[WeightId]| {
            Ok(vec![b.attention([x[0], x[1], x[2]], spec(1, 1, 1, mask))?])
        };
        check(&[], 2, &[q.clone(), k.clone(), v.clone()], build, &expected);
    }
}

#[test]
fn attention_scales_scores_and_shares_kv_heads() {
    // Two query heads on one KV head of two channels; scale 1/2.
    let q = real(&[2.0 * 3f64.ln(), 0.0, 0.0, 2.0 * 3f64.ln()]);
    let q = real(&[q.real(), q.real()].concat());
    let k = real(&[1.0, 0.0, 0.0, 1.0]);
    let v = real(&[4.0, 0.0, 0.0, 8.0]);
    let build = |b: &mut ProgramBuilder, x: &[Val], _: &[WeightId]| {
        let s = AttentionSpec { scale: 0.5, ..spec(2, 1, 2, Mask::Canvas { prefix: None }) };
        Ok(vec![b.attention([x[0], x[1], x[2]], s)?])
    };
    let row = [3.0, 2.0, 1.0, 6.0];
    check(&[], 2, &[q, k, v], build, &[row, row].concat());
}

/// A prompt of four positions, whole or in two chunks, then a canvas of two: the results are the same bits.
#[test]
fn cached_keys_are_keys() {
    let d = 4;
    let (weights, _) = table(&[]);
    let layout = KvLayout { widths: vec![d] };
    let x = noise(1, 6 * d);
    let mut results = Vec::new();
    for chunks in [vec![4], vec![3, 1]] {
        let mut be = backend(Precision::F32, &weights);
        let seq = be.seq_create(&layout, KvType::F32).unwrap();
        let mut n_past = 0;
        let mut pass = |n_past: usize, rows: usize, append: bool, window| {
            let mut b = ProgramBuilder::new(&weights, n_past, rows);
            let v = b.input("x", d, Kind::Real).unwrap();
            let mask = if append { Mask::Causal { window } } else { Mask::Canvas { prefix: window } };
            let s = AttentionSpec { cache_layer: Some(0), ..spec(1, 1, d, mask) };
            let y = b.attention([v, v, v], s).unwrap();
            if append {
                b.kv_append(0, v, v).unwrap();
            }
            b.output(y);
            let mut out = super::testing::Outputs::default();
            be.run(&b.finish(), &[seq], &[InputData::F64(&x[n_past * d..][..rows * d])], &mut out).unwrap();
            out.0.remove(0)
        };
        let mut prompt = Vec::new();
        for rows in chunks {
            prompt.extend_from_slice(pass(n_past, rows, true, Some(3)).real());
            n_past += rows;
        }
        let canvas = [pass(n_past, 2, false, None), pass(n_past, 2, false, Some(2))];
        assert_ne!(canvas[0], canvas[1], "the prefix is cut");
        assert_eq!(be.seq_len(seq).unwrap(), 4);
        results.push((prompt, canvas));
    }
    assert_eq!(results[0], results[1]);
}

#[test]
fn router_prefers_the_lower_id_and_scales_last() {
    // Probabilities 1/8, 3/8, 3/8, 1/8.
    let l3 = 3f64.ln();
    let x = real(&[0.0, l3, l3, 0.0]);
    let w: [W<'_>; 1] = [("s", [1, 1, 4], &[1.0, 2.0, 3.0, 4.0])];
    for p in EXACT {
        let out = run(p, &w, 1, std::slice::from_ref(&x), |b, v, w| {
            let (probs, ids, plain) = b.moe_route(v[0], Routing::softmax(3, false))?;
            let (_, _, scaled) =
                b.moe_route(v[0], Routing { expert_scale: Some(w[0]), ..Routing::softmax(2, true) })?;
            Ok(vec![probs, ids, plain, scaled])
        });
        let out = out.unwrap();
        assert!(distance(out[0].real(), &[0.125, 0.375, 0.375, 0.125]) < 3e-7);
        assert_eq!(out[1].int(), [1, 2, 0]);
        assert!(distance(out[2].real(), &[0.375, 0.375, 0.125]) < 3e-7);
        assert!(distance(out[3].real(), &[0.5 * 2.0, 0.5 * 3.0]) < 3e-7);
    }
}

#[test]
fn experts_are_gated_blocks_summed_by_slot() {
    // Two experts, one input, one hidden channel: down * (silu(gate x) * (up x)).
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let fused: W<'_> = ("gu", [2, 2, 1], &[1.0, 2.0, -1.0, 3.0]);
    let down: W<'_> = ("d", [2, 1, 1], &[10.0, 100.0]);
    let split: [W<'_>; 3] = [("g", [2, 1, 1], &[1.0, -1.0]), ("u", [2, 1, 1], &[2.0, 3.0]), down];
    let x = real(&[1.0, 2.0]);
    let ids = Data::Int(vec![0, 1, 1, 0]);
    let weights = real(&[0.75, 0.25, 0.5, 0.125]);
    let expert = |e: usize, x: f64| [10.0 * silu(x) * 2.0 * x, 100.0 * silu(-x) * 3.0 * x][e];
    let expected =
        [0.75 * expert(0, 1.0) + 0.25 * expert(1, 1.0), 0.5 * expert(1, 2.0) + 0.125 * expert(0, 2.0)];
    let inputs = [x, ids, weights];
    let act = Activation::Silu;
    check(
        &[fused, down],
        2,
        &inputs,
        |b, v, w| Ok(vec![b.moe_experts(v[0], (v[1], v[2]), GateUp::Fused(w[0]), w[1], act)?]),
        &expected,
    );
    check(
        &split,
        2,
        &inputs,
        |b, v, w| {
            let gu = GateUp::Split { gate: w[0], up: w[1] };
            Ok(vec![b.moe_experts(v[0], (v[1], v[2]), gu, w[2], act)?])
        },
        &expected,
    );
    for id in [2, -1] {
        let mut inputs = inputs.clone();
        inputs[1] = Data::Int(vec![0, 1, id, 0]);
        let e = run(Precision::F32, &[fused, down], 2, &inputs, |b, v, w| {
            Ok(vec![b.moe_experts(v[0], (v[1], v[2]), GateUp::Fused(w[0]), w[1], act)?])
        });
        assert!(matches!(e, Err(ComputeError::IdOutOfRange { op: "MoeExperts", row: 1, limit: 2, .. })));
    }
}

#[test]
fn an_expert_is_the_same_bits_as_its_matmuls() {
    let (n, ff, rows) = (40, 24, 3);
    let gate_up = noise32(1, 2 * 2 * ff * n);
    let down = noise32(2, 2 * n * ff);
    let second = |x: &[f32], from: usize, len: usize| x[x.len() / 2..][from..from + len].to_vec();
    let (g, u, d) = (second(&gate_up, 0, ff * n), second(&gate_up, ff * n, ff * n), second(&down, 0, n * ff));
    let w: [W<'_>; 5] = [
        ("gu", [2, 2 * ff, n], &gate_up),
        ("d", [2, n, ff], &down),
        ("g1", [1, ff, n], &g),
        ("u1", [1, ff, n], &u),
        ("d1", [1, n, ff], &d),
    ];
    let inputs = [Data::Real(noise(3, rows * n)), Data::Int(vec![1; rows]), real(&[1.0; 3])];
    let out = run(Precision::F32, &w, rows, &inputs, |b, v, w| {
        let act = Activation::GeluTanh;
        let experts = b.moe_experts(v[0], (v[1], v[2]), GateUp::Fused(w[0]), w[1], act)?;
        let (gate, up) = (b.matmul(v[0], w[2])?, b.matmul(v[0], w[3])?);
        let h = b.glu(gate, up, act)?;
        Ok(vec![experts, b.matmul(h, w[4])?])
    });
    let out = out.unwrap();
    assert_eq!(out[0], out[1]);
}

#[test]
fn statistics_samples_and_soft_embeddings() {
    let l3 = 3f64.ln();
    let x = real(&[0.0, l3, 0.0, l3]);
    let p = [0.125, 0.375, 0.125, 0.375];
    let w: [W<'_>; 1] = [("identity", [1, 4, 4], &identity(4))];
    check(&w, 1, std::slice::from_ref(&x), |b, v, w| Ok(vec![soft_embed(b, v[0], w[0], 1.0)?]), &p);
    let entropy: f64 = -p.iter().map(|p| p * p.ln()).sum::<f64>();
    // Running sums 1/8, 4/8, 5/8, 1.
    for (u, id) in [(0.1, 0), (0.2, 1), (0.49, 1), (0.55, 2), (0.7, 3), (0.999_999, 3), (1.0, 3)] {
        for precision in EXACT {
            let out = run(precision, &[], 1, &[x.clone(), real(&[u])], |b, v, _| {
                let (of, argmax) = b.token_stats(b.logits(v[0], None, 1.0))?;
                Ok(vec![of.stats, argmax, b.token_sample(of, v[1])?, of.tiles])
            });
            let out = out.unwrap();
            assert!(distance(out[0].real(), &[l3, 8f64.ln(), entropy, 8.0 / 3.0]) < 2e-7, "{:?}", out[0]);
            assert_eq!(out[1].int(), [1], "the lower of two equal ids is the argmax");
            assert_eq!(out[2].int(), [id], "u = {u}");
            assert!(distance(out[3].real(), &[l3, 8.0 / 3.0]) < 2e-7, "{:?}", out[3]);
        }
    }
}

#[test]
fn restricted_ids_have_no_probability() {
    const X: f64 = crate::op::RESTRICTED;
    // Probabilities 1/8, 3/8, 1/8, 3/8.
    let l3 = 3f64.ln();
    let cases: [(&[u32], usize, f64, [f64; 4]); 8] = [
        (&[], 0, 1.0, [0.0, l3, 0.0, l3]),
        (&[1], 0, 1.0, [0.0, X, 0.0, l3]),
        (&[], 1, 1.0, [X, l3, X, l3]),
        (&[1], 1, 1.0, [X, X, X, l3]),
        (&[], 0, 0.3, [X, l3, X, X]),
        (&[], 0, 0.4, [X, l3, X, l3]),
        (&[], 0, 0.8, [0.0, l3, X, l3]),
        // Of what top_k leaves, the first has half.
        (&[], 2, 0.45, [X, l3, X, X]),
    ];
    for (ban, top_k, top_p, want) in cases {
        for p in EXACT {
            let build = |b: &mut ProgramBuilder, v: &[Val], _: &[WeightId]| {
                Ok(vec![b.restrict(v[0], ban, top_k, top_p)?])
            };
            let out = run(p, &[], 1, &[real(&[0.0, l3, 0.0, l3])], build).unwrap();
            let same = out[0].real().iter().zip(want).all(|(a, b)| *a as f32 == b as f32);
            assert!(same, "{p:?}, ban {ban:?}, top_k {top_k}, top_p {top_p}: {:?}", out[0]);
        }
    }
    let e = run(Precision::F32, &[], 1, &[real(&[0.0, 1.0])], |b, v, _| {
        Ok(vec![b.restrict(v[0], &[0, 1], 0, 1.0)?])
    });
    assert!(matches!(e, Err(ComputeError::Shape { op: "Restrict", .. })), "something must be left");
    let out = run(Precision::F32, &[], 1, &[real(&[0.0, l3, 0.0, l3]), real(&[0.9])], |b, v, _| {
        let x = b.restrict(v[0], &[], 1, 1.0)?;
        let (of, argmax) = b.token_stats(b.logits(x, None, 1.0))?;
        let sample = b.token_sample(of, v[1])?;
        let worth = b.pick_stats(v[0], argmax, sample)?;
        Ok(vec![of.stats, argmax, sample, worth])
    })
    .unwrap();
    assert!((out[0].real()[2] - 2f64.ln()).abs() < 1e-6, "{:?}", out[0]);
    assert_eq!((out[1].int(), out[2].int()), (&[1][..], &[3][..]));
    assert_eq!(out[3].real(), [f64::from(l3 as f32); 3]);
}

#[test]
fn a_scale_of_logits_is_a_normal_number() {
    for (scale, fits) in
        [(1e-30, true), (1e30, true), (1e-31, false), (1e31, false), (-1.0, false), (f64::NAN, false)]
    {
        let e = run(Precision::F32, &[], 1, &[real(&[1e-10, 1.0])], |b, v, _| {
            let (of, _) = b.token_stats(b.logits(v[0], None, scale))?;
            Ok(vec![of.stats])
        });
        let refused = matches!(e, Err(ComputeError::Shape { op: "TokenStats", .. }));
        assert_eq!((e.is_ok(), refused), (fits, !fits), "{scale}");
    }
}

#[test]
fn rows_are_taken_in_any_order() {
    let x = real(&[1.0, 2.0, 3.0, 4.0]);
    check(
        &[],
        2,
        std::slice::from_ref(&x),
        |b, v, _| Ok(vec![b.take_rows(v[0], vec![1, 0, 1])?]),
        &[3.0, 4.0, 1.0, 2.0, 3.0, 4.0],
    );
    let e = run(Precision::F32, &[], 2, &[x], |b, v, _| Ok(vec![b.take_rows(v[0], vec![2])?]));
    assert!(matches!(e, Err(ComputeError::Shape { op: "TakeRows", .. })));
}

#[test]
fn a_certain_row_has_no_entropy() {
    let w: [W<'_>; 1] = [("identity", [1, 3, 3], &identity(3))];
    let out = run(Precision::F32, &w, 1, &[real(&[0.0, 200.0, 0.0]), real(&[0.5])], |b, v, w| {
        let (of, argmax) = b.token_stats(b.logits(v[0], None, 1.0))?;
        Ok(vec![of.stats, argmax, b.token_sample(of, v[1])?, b.soft_embed(of, w[0], 1.0)?])
    });
    let out = out.unwrap();
    assert_eq!(out[0], real(&[200.0, 200.0, 0.0, 1.0]));
    assert_eq!((out[1].int(), out[2].int()), (&[1][..], &[1][..]));
    assert_eq!(out[3], real(&[0.0, 1.0, 0.0]), "the reciprocal of 1 is 1");
}

#[test]
fn sampling_finds_the_tile_and_the_id_in_it() {
    // Shares of three tiles, and the weights in the second.
    let shares = [1.0f32, 2.0, 0.0, 1.0, 0.0];
    let at = |tile, before, target| Place { tile, before, target };
    for (u, expected) in [
        (1e-8, at(0, 0.0, 4e-8)),
        (0.25, at(0, 0.0, 1.0)),
        (0.26, at(1, 1.0, 1.04)),
        (0.75, at(1, 1.0, 3.0)),
        (0.76, at(3, 3.0, 3.04)),
        (1.0, at(3, 3.0, 4.0)),
        // Out of (0, 1): the last tile with a share.
        (2.0, at(3, 3.0, 8.0)),
    ] {
        assert_eq!(place(&shares, u), expected, "u = {u}");
    }
    assert_eq!(place(&shares, f32::NAN).tile, 3);
    let weights = [0.0f32, 0.5, 0.0, 1.5, 0.0];
    for (target, id) in [(1.04, 1), (1.5, 1), (1.51, 3), (3.0, 3), (3.5, 3)] {
        assert_eq!(search(weights.into_iter(), at(1, 1.0, target)), id, "target {target}");
    }
    assert_eq!(search([0.0f32; 4].into_iter(), at(0, 0.0, 0.5)), 0);
    // In one tile, 2^24 in order swallows the ones after it; 16 accumulators do not. The target between the
    // two sums is reached by no id, and the last with a weight is taken.
    let mut e = vec![0.0f32; 1024];
    (e[0], e[1], e[2], e[3]) = (16_777_216.0, 1.0, 1.0, 1.0);
    let share = crate::math::reduce::sum(&e);
    assert_eq!(share, 16_777_218.0);
    assert_eq!(search(e.into_iter(), place(&[share], 1.0)), 3);
}

#[test]
fn a_head_gives_the_bits_of_its_ops() {
    let (rows, n, vocab) = (3, 20, 1100);
    let w = noise32(1, vocab * n);
    let weights: [W<'_>; 1] = [("w", [1, vocab, n], &w)];
    let inputs =
        [Data::Real(noise(2, rows * n)), Data::Real(noise(3, rows).iter().map(|x| x.abs()).collect())];
    for precision in [Precision::F32, Precision::F64, Precision::Bf16] {
        for softcap in [None, Some(3.0)] {
            let out = run(precision, &weights, rows, &inputs, |b, v, w| {
                let head = Head { w: w[0], softcap };
                let given = b.head(v[0], head)?;
                let mut all = Vec::new();
                for logits in [b.logits(v[0], Some(head), 1.6), b.logits(given, None, 1.6)] {
                    let (of, argmax) = b.token_stats(logits)?;
                    let sample = b.token_sample(of, v[1])?;
                    all.extend([of.stats, of.tiles, argmax, sample, b.soft_embed(of, w[0], 0.5)?]);
                }
                Ok(all)
            });
            let out = out.unwrap();
            assert_eq!(out[..5], out[5..], "{precision:?} {softcap:?}");
        }
    }
}

#[test]
fn fast_leaves_out_what_exact_can_hardly_see() {
    // With 1,100 ids the cut of fast is 2^-35: of three ids below the first, e^-24, e^-25 and e^-35 of its size, the
    // first takes part in both modes, the second (2^-36.1) in exact only, the third (2^-50.5) in neither.
    let mut x = vec![-1000.0; 1100];
    (x[5], x[6], x[1030], x[1099]) = (0.0, -24.0, -25.0, -35.0);
    let mut table = vec![0.0f32; 1100 * 3];
    (table[6 * 3], table[1030 * 3 + 1], table[1099 * 3 + 2]) = (1.0, 1.0, 1.0);
    let weights: [W<'_>; 1] = [("w", [1, 1100, 3], &table)];
    let go = |numerics| {
        let out = run(Precision::F32, &weights, 1, &[real(&x)], |b, v, w| {
            b.set_numerics(numerics);
            Ok(vec![soft_embed(b, v[0], w[0], 1.0)?])
        });
        out.unwrap()[0].real().to_vec()
    };
    let (exact, fast) = (go(Numerics::Exact), go(Numerics::Fast));
    let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
    assert!(close(exact[0], (-24f64).exp()) && close(exact[1], (-25f64).exp()), "{exact:?}");
    assert_eq!((exact[2], &fast[..]), (0.0, &[exact[0], 0.0, 0.0][..]));
}

#[test]
fn a_cap_does_not_hide_an_infinite_product() {
    let weights: [W<'_>; 1] = [("w", [1, 3, 2], &[1.0, 1.0, 3e38, 3e38, 1.0, 1.0])];
    let e = run(Precision::F32, &weights, 1, &[real(&[1.0, 1.0])], |b, v, w| {
        let logits = b.logits(v[0], Some(Head { w: w[0], softcap: Some(30.0) }), 1.0);
        Ok(vec![b.token_stats(logits)?.1])
    });
    assert!(matches!(e, Err(ComputeError::NotFinite { op: "TokenStats", row: 0, .. })), "{e:?}");
}

#[test]
fn nan_and_infinity_are_errors_that_name_the_place() {
    let huge = real(&[1.0, 3e38]);
    let e = run(Precision::F32, &[], 1, &[huge], |b, v, _| Ok(vec![b.scale(v[0], Factor::Const(10.0))?]));
    assert!(matches!(e, Err(ComputeError::NotFinite { op: "Scale", col: 1, value: "infinity", .. })));
    for w in [f32::NAN, f32::INFINITY] {
        let w: [W<'_>; 1] = [("w", [1, 1, 2], &[1.0, w])];
        let e = run(Precision::F32, &w, 1, &[real(&[1.0, 0.0])], |b, v, w| Ok(vec![b.matmul(v[0], w[0])?]));
        let e = e.unwrap_err();
        assert!(
            matches!(&e, ComputeError::DamagedWeight { weight, at: [0, 0, 1], .. } if weight == "w"),
            "{e}"
        );
    }
}

#[test]
fn f32_is_close_to_f64_for_every_op() {
    let (t, n, heads, d, vocab, experts, ff) = (5, 48, 4, 12, 3000, 6, 20);
    let (emb, wq, wr) = (noise32(1, vocab * n), noise32(2, n * n), noise32(3, experts * n));
    let (gu, dn) = (noise32(4, experts * 2 * ff * n), noise32(5, experts * n * ff));
    let (norm, bias) = (noise32(6, n), noise32(7, n));
    let weights: [W<'_>; 7] = [
        ("emb", [1, vocab, n], &emb),
        ("wq", [1, n, n], &wq),
        ("wr", [1, experts, n], &wr),
        ("gu", [experts, 2 * ff, n], &gu),
        ("dn", [experts, n, ff], &dn),
        ("norm", [1, 1, n], &norm),
        ("bias", [1, 1, n], &bias),
    ];
    let rope = crate::math::rope_table(1000, t, d, 10_000.0, d, None);
    let inputs = [
        Data::Int(vec![0, 7, 99, 2999, 1]),
        Data::Real(rope),
        Data::Real(noise(8, t).iter().map(|u| u / 2.0 + 0.5).collect()),
    ];
    let go = |precision| {
        run(precision, &weights, t, &inputs, |b, v, w| {
            let x = b.embed(v[0], w[0], 48f64.sqrt())?;
            let h = b.rms_norm(x, Some(w[5]), 1e-6, n)?;
            let q = b.matmul_bias(h, w[1], Some(w[6]))?;
            let q = b.rope(q, v[1], d, RopeStyle::Neox)?;
            let s = AttentionSpec { scale: 0.3, ..spec(heads, heads, d, Mask::Canvas { prefix: None }) };
            let a = b.attention([q, q, h], s)?;
            let a = b.add(x, a)?;
            let r = b.rms_norm(a, None, 1e-6, n)?;
            let r2 = b.scale(r, Factor::Const(0.5))?;
            let logits = b.matmul(r2, w[2])?;
            let (probs, ids, ws) = b.moe_route(logits, Routing::softmax(2, true))?;
            let m = b.moe_experts(r, (ids, ws), GateUp::Fused(w[3]), w[4], Activation::GeluTanh)?;
            let g = b.glu(m, r, Activation::Silu)?;
            let y = b.rms_norm(g, Some(w[5]), 1e-6, n)?;
            let z = b.matmul(y, w[0])?;
            let z = b.softcap(z, 30.0)?;
            let (of, argmax) = b.token_stats(b.logits(z, None, 1.25))?;
            let se = b.soft_embed(of, w[0], 7.0)?;
            let sample = b.token_sample(of, v[2])?;
            Ok(vec![x, h, q, a, r2, probs, ws, m, g, z, of.tiles, se, of.stats, ids, argmax, sample])
        })
        .unwrap()
    };
    let (f32s, f64s, bf16s) = (go(Precision::F32), go(Precision::F64), go(Precision::Bf16));
    for (i, (a, b)) in f32s.iter().zip(&f64s).enumerate() {
        match (a, b) {
            (Data::Real(a), Data::Real(b)) => {
                let d = distance(a, b);
                assert!(d < 5e-6, "output {i}: {d:e}");
                if i < 5 {
                    let d = distance(bf16s[i].real(), b);
                    assert!((1e-4..0.05).contains(&d), "bf16, output {i}: {d:e}");
                }
            }
            _ => assert_eq!(a, b, "output {i}"),
        }
    }
    for (i, x) in bf16s.iter().enumerate().filter(|(i, _)| ![5, 6, 9, 10, 12, 13, 14, 15].contains(i)) {
        assert!(x.real().iter().all(|&x| (x as f32).to_bits() & 0xFFFF == 0), "output {i} is not in bf16");
    }
}

#[test]
fn other_levels_and_missing_caches_are_refused() {
    let (weights, _) = table(&[]);
    let options = crate::BackendOptions { level: Some("avx2".into()), ..Default::default() };
    assert!(matches!((super::SPEC.create)(&options, weights.clone()), Err(ComputeError::Unavailable { .. })));
    let mut b = ProgramBuilder::new(&weights, 3, 1);
    let v = b.input("x", 2, Kind::Real).unwrap();
    let e = b.attention([v, v, v], spec(1, 1, 2, Mask::Causal { window: None })).unwrap_err();
    assert!(matches!(e, ComputeError::Shape { op: "Attention", .. }), "{e}");
    let mut be = backend(Precision::F32, &weights);
    let seq = be.seq_create(&KvLayout::default(), KvType::F32).unwrap();
    let e = be.run(&b.finish(), &[seq], &[], &mut Blind).unwrap_err();
    assert!(matches!(e, ComputeError::CacheLength { expected: 3, found: 0 }), "{e}");
}

/// Two blocks of Q8_0 by hand: codes of the activations 127 and -64 (63.5 is a tie, -63.5 too), then 2 of 127.
#[test]
fn fast_products_are_integers_inside_a_block() {
    let mut weights = WeightTable::default();
    let mut bytes = Vec::new();
    for codes in [[3i8, -5], [100, 7]] {
        bytes.extend(redraft_gguf::f32_to_f16(0.5).to_le_bytes());
        bytes.extend((0..32).map(|i| if i < 2 { codes[i] as u8 } else { 0 }));
    }
    let (dtype, bytes) = (DType::Q8_0, Bytes::from(bytes));
    let w = weights.add(Weight { name: "w".into(), dtype, experts: 1, rows: 1, cols: 64, bytes }).unwrap();
    let weights = Arc::new(weights);
    let mut x = vec![0.0; 64];
    (x[0], x[1], x[32], x[33]) = (127.0, -63.5, 0.25 * 127.0, 0.5);
    let run = |numerics| {
        let mut b = ProgramBuilder::new(&weights, 0, 1);
        b.set_numerics(numerics);
        let v = b.input("x", 64, Kind::Real).unwrap();
        let y = b.matmul(v, w).unwrap();
        b.output(y);
        let mut out = Outputs::default();
        let mut backend = backend(Precision::F32, &weights);
        let seq = backend.seq_create(&KvLayout::default(), KvType::F32).unwrap();
        backend.run(&b.finish(), &[seq], &[InputData::F32(&x)], &mut out).unwrap();
        out.0.remove(0)
    };
    // 0.5 * (3 * 127 + 5 * 64) + 0.125 * (100 * 127 + 7 * 2)
    assert!(distance(run(Numerics::Fast).real(), &[350.5 + 1589.25]) < 3e-7);
    assert!(distance(run(Numerics::Exact).real(), &[349.25 + 1589.25]) < 3e-7);
}

#[test]
fn fast_is_for_canonical_f32_only() {
    let w: [W<'_>; 1] = [("w", [1, 1, 1], &[1.0])];
    for p in [Precision::F64, Precision::Bf16] {
        let e = run(p, &w, 1, &[real(&[1.0])], |b, v, w| {
            b.set_numerics(Numerics::Fast);
            Ok(vec![b.matmul(v[0], w[0])?])
        });
        assert!(matches!(e, Err(ComputeError::Unavailable { what: "numerics", .. })), "{e:?}");
    }
}
