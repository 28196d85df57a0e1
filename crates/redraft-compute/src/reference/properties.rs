//! What holds for any shape and any numbers.

use proptest::prelude::*;

use super::stats::{place, search};
use super::testing::{Data, W, distance, noise, noise32, run};
use crate::backend::Precision;
use crate::op::{Activation, Mask, RopeStyle, TILE};
use crate::program::{AttentionSpec, ProgramBuilder};
use crate::{ComputeError, Val, WeightId};

type Build<'a> = &'a dyn Fn(&mut ProgramBuilder, &[Val], &[WeightId]) -> Result<Vec<Val>, ComputeError>;

/// Runs in f32 and f64; every real output of f32 must be within `bound` of f64, and obey the flush rule.
fn close(weights: &[W<'_>], rows: usize, inputs: &[Data], bound: f64, build: Build<'_>) -> Vec<Data> {
    let go = |p| run(p, weights, rows, inputs, build).unwrap();
    let (a, b) = (go(Precision::F32), go(Precision::F64));
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        if let (Data::Real(a), Data::Real(b)) = (a, b) {
            let d = distance(a, b);
            assert!(d < bound || a == b, "output {i}: {d:e}");
            assert!(a.iter().all(|x| x.to_bits() == 0 || x.abs() >= 2f64.powi(-50)), "output {i}: {a:?}");
        }
    }
    a
}

/// Row `row` of a matrix with `rows` rows.
fn row_of(x: &Data, rows: usize, row: usize) -> Data {
    match x {
        Data::Real(x) => Data::Real(x[x.len() / rows * row..][..x.len() / rows].to_vec()),
        Data::Int(x) => Data::Int(x[x.len() / rows * row..][..x.len() / rows].to_vec()),
    }
}

fn scaled(seed: u32, n: usize, size: f64) -> Data {
    Data::Real(noise(seed, n).iter().map(|x| x * size).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn row_ops_are_close_to_f64_and_independent_of_the_batch(
        seed in 0u32..1000, rows in 1usize..5, n in 1usize..70, m in 1usize..40, size in -8i32..4,
    ) {
        let (w, g) = (noise32(seed + 1, m * n), noise32(seed + 2, n));
        let weights: [W<'_>; 2] = [("w", [1, m, n], &w), ("g", [1, 1, n], &g)];
        let inputs = [scaled(seed, rows * n, 2f64.powi(size))];
        let build: Build<'_> = &|b, v, w| {
            let norm = b.rms_norm(v[0], Some(w[1]), 1e-6, n)?;
            let act = b.glu(v[0], norm, Activation::GeluTanh)?;
            let cap = b.softcap(v[0], 3.0)?;
            Ok(vec![norm, act, cap, b.matmul(v[0], w[0])?, b.add(v[0], norm)?])
        };
        // A sum of n terms is n half ulps off at most, here relative to the largest of the results.
        let bound = 1e-5 * (1.0 + n as f64).sqrt();
        let all = close(&weights, rows, &inputs, bound, build);
        for row in 0..rows {
            let one = run(Precision::F32, &weights, 1, &[row_of(&inputs[0], rows, row)], build).unwrap();
            for (all, one) in all.iter().zip(one) {
                prop_assert_eq!(row_of(all, rows, row), one);
            }
        }
    }

    #[test]
    fn attention_is_close_to_f64(
        seed in 0u32..1000, rows in 1usize..20, kv in 1usize..3, group in 1usize..3, half in 1usize..9,
        window in proptest::option::of(1usize..20), kind in 0..3, len in 1usize..24,
    ) {
        let (heads, d) = (kv * group, 2 * half);
        let masks = [Mask::Causal { window }, Mask::Canvas { prefix: window }, Mask::Blocks { len }];
        let mask = masks[kind as usize];
        let table = crate::math::rope_table(seed as usize, rows, d, 1e4, d, None);
        let inputs = [
            scaled(seed, rows * heads * d, 2.0),
            scaled(seed + 1, rows * kv * d, 2.0),
            scaled(seed + 2, rows * kv * d, 1.0),
            Data::Real(table),
        ];
        let out = close(&[], rows, &inputs, 1e-5, &|b, x, _| {
            let q = b.rope(x[0], x[3], d, RopeStyle::Neox)?;
            let k = b.rope(x[1], x[3], d, RopeStyle::Neox)?;
            let (n_heads, n_kv_heads, scale) = (heads, kv, (d as f64).powf(-0.5));
            let s = AttentionSpec { cache_layer: None, n_heads, n_kv_heads, head_dim: d, scale, mask };
            Ok(vec![b.attention([q, k, x[2]], s)?])
        });
        // Means of values in -1 .. 1 stay there.
        prop_assert!(out[0].real().iter().all(|x| x.abs() <= 1.0 + 1e-6));
    }

    #[test]
    fn stats_are_close_to_f64_and_samples_are_possible(
        seed in 0u32..1000, n in 1usize..2500, size in 0.01f64..60.0, u in 0.0001f64..1.0, scale in 0.5f64..3.0,
    ) {
        let inputs = [scaled(seed, n, size), Data::Real(vec![u])];
        let ones = vec![1.0f32; n];
        let weights: [W<'_>; 1] = [("ones", [1, n, 1], &ones)];
        let out = close(&weights, 1, &inputs, 1e-5, &|b, v, w| {
            let (of, argmax) = b.token_stats(b.logits(v[0], None, scale))?;
            let sample = b.token_sample(of, v[1])?;
            Ok(vec![of.stats, argmax, sample, of.tiles, b.soft_embed(of, w[0], 1.0)?])
        });
        // Against the plain definition, in f64.
        let x: Vec<f64> = inputs[0].real().iter().map(|x| x * scale).collect();
        let m = x.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(x));
        let sum: f64 = x.iter().map(|x| (x - m).exp()).sum();
        let p: Vec<f64> = x.iter().map(|x| (x - m).exp() / sum).collect();
        let entropy: f64 = -p.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>();
        let stats = out[0].real();
        for (have, want) in stats.iter().zip([m, m + sum.ln(), entropy, sum]) {
            // The logits are rounded twice, each time by 2^-24 of their size, and so is each factor of a probability.
            let rounding = size * scale * 2f64.powi(-23);
            prop_assert!((have - want).abs() <= (1e-5 + rounding) * want.abs().max(1.0), "{have} {want}");
        }
        prop_assert!(stats[2] >= 0.0 && stats[2] <= (n as f64).ln() + 1e-5);
        let (argmax, sample) = (out[1].int()[0] as usize, out[2].int()[0] as usize);
        // Exactly, on the logits as they are rounded: the lowest id of the largest, and an id that has a probability.
        let flushed = |x: f32| crate::math::flush(x);
        let logit = |x: &f64| flushed(flushed(*x as f32) * scale as f32);
        let logits: Vec<f32> = inputs[0].real().iter().map(logit).collect();
        let m = crate::math::reduce::max(logits.iter().copied());
        prop_assert_eq!(Some(argmax), logits.iter().position(|&x| x == m));
        // In two factors, each of them above 0 although their product may be less than the smallest of `exp`.
        let m_t = out[3].real()[sample / TILE] as f32;
        prop_assert!(crate::math::exp(logits[sample] - m_t) > 0.0 && crate::math::exp(m_t - m) > 0.0);
        // The cumulative probability around the sample encloses u, up to the rounding of 2,500 additions.
        let before: f64 = p[..sample].iter().sum();
        prop_assert!(before <= u + 1e-4 && u <= before + p[sample] + 1e-4);
        // The probabilities add up to 1.
        prop_assert!((out[4].real()[0] - 1.0).abs() < 1e-5, "{:?}", out[4]);
    }

    #[test]
    fn samples_grow_with_u(
        seed in 0u32..1000, n in 1usize..5000, tile in 1usize..1000, a in 0.001f32..1.0, b in 0.001f32..1.0,
    ) {
        let e: Vec<f32> = noise32(seed, n).iter().map(|x| x.max(0.0) + 1e-6).collect();
        let shares: Vec<f32> = e.chunks(tile).map(crate::math::reduce::sum).collect();
        let sample = |u| {
            let at = place(&shares, u);
            at.tile * tile + search(e.chunks(tile).nth(at.tile).unwrap().iter().copied(), at)
        };
        prop_assert!(sample(a.min(b)) <= sample(a.max(b)));
        prop_assert!(sample(b) < n);
    }
}
