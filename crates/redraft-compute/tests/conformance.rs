//! Every level of this machine gives the bits of the reference, for several numbers of threads.
#![allow(clippy::unwrap_used)] // a test, with helpers

use std::sync::Arc;

use proptest::prelude::*;
use redraft_compute::cpu::CpuLevel;
use redraft_compute::op::{ExpertGroups, RouterScore, Routing};
use redraft_compute::{
    BackendOptions, ComputeError, InputData, Kind, KvLayout, KvType, Numerics, Observer, Precision,
    ProgramBuilder, TapData, Val, Weight, WeightTable, backend, conformance::Suite,
};
use redraft_gguf::{Bytes, CODECS, DType, Encoder, codec};

/// The digest of all outputs of the suite in `exact`. It is the same on every platform; it changes only when the
/// contract, the reference or the cases change, and then the new value is printed by the failing test.
const DIGEST: u64 = 0xb832_4aa6_2e74_1f54;

/// The same of the cases in `fast`.
const FAST_DIGEST: u64 = 0x7caa_45d1_cd7d_80e4;

#[test]
fn all_levels_and_thread_counts_give_the_bits_of_the_reference() {
    let suite = Suite::new().unwrap();
    println!("{} cases ({} end in an error): {:?}", suite.len(), suite.errors(), suite.counts());
    let mut wrong = Vec::new();
    let mut run = |name: &str, options: BackendOptions| {
        let report = suite.check(backend(name).unwrap(), &options).unwrap();
        println!("{report}");
        if !report.failures.is_empty() {
            wrong.push(report.to_string());
        } else if (report.digest, report.fast_digest) != (DIGEST, FAST_DIGEST) {
            wrong.push(format!("{report}; those of the contract are {DIGEST:016x} and {FAST_DIGEST:016x}"));
        }
        assert_eq!(report.passed + report.failures.len(), suite.len());
    };
    run("reference", BackendOptions::default());
    for level in CpuLevel::available() {
        for threads in [1, 2, 3] {
            let level = Some(level.name().into());
            run("cpu", BackendOptions { level, threads: Some(threads), ..Default::default() });
        }
    }
    let missing: Vec<&str> = CpuLevel::ALL.iter().filter(|l| !l.is_available()).map(|l| l.name()).collect();
    println!("skipped: {} ({})", missing.len(), missing.join(", "));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The suite finds what it is there to find: arithmetic that rounds elsewhere fails in every op that
/// calculates.
#[test]
fn another_arithmetic_is_found_out() {
    let suite = Suite::new().unwrap();
    let options = BackendOptions { precision: Precision::Bf16, ..Default::default() };
    let report = suite.check(backend("reference").unwrap(), &options).unwrap();
    for (op, _) in suite.counts() {
        // KvAppend has no result of its own; its case is found by the attention in it.
        assert!(report.failures.iter().any(|f| f.op == op), "{op}: not one difference");
    }
}

/// Keeps the bits of the only output.
struct Keep(Vec<u32>);

impl Observer for Keep {
    fn output(&mut self, _: usize, _: Val, data: TapData<'_>) {
        if let TapData::F32(x) = data {
            self.0 = x.iter().map(|x| x.to_bits()).collect();
        }
    }
}

/// Of all types that can be written.
fn encoders() -> Vec<Encoder> {
    CODECS.iter().filter_map(|c| c.encoder()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A matrix product of any shape, type and mode has the reference's bits on every level.
    #[test]
    fn matmul_of_any_shape(
        encoder in prop::sample::select(encoders()),
        (t, blocks, n) in (1usize..60, 1usize..40, 1usize..70),
        threads in 1usize..4,
        numerics in prop::sample::select(Numerics::ALL),
        bits in prop::collection::vec(any::<u16>(), 64..128),
    ) {
        let codec = codec(encoder.dtype()).unwrap();
        // Enough blocks to cross the chunks of the inner dimension, few enough for the reference.
        let blocks = if codec.block_len() == 256 { blocks % 3 + 1 } else { blocks };
        let k = codec.block_len() * blocks * if codec.block_len() == 1 { 7 } else { 1 };
        // Numbers of 16 bits with exponents from -24 to 7.
        let number = |i: usize| {
            let b = u32::from(bits[i % bits.len()].rotate_left((i / bits.len()) as u32));
            f32::from_bits((b & 0x8000) << 16 | ((b >> 10 & 31) + 127 - 24) << 23 | (b & 0x3FF) << 13)
        };
        let values: Vec<f32> = (0..n * k).map(number).collect();
        let mut bytes = vec![0; n * k / codec.block_len() * codec.block_bytes()];
        encoder.quantize(&values, None, &mut bytes);
        let mut weights = WeightTable::default();
        let name = "w".to_string();
        let w = Weight { name, dtype: codec.dtype(), experts: 1, rows: n, cols: k, bytes: Bytes::from(bytes) };
        let w = weights.add(w).unwrap();
        let weights = Arc::new(weights);
        let mut b = ProgramBuilder::new(&weights, 0, t);
        let x = b.input("x", k, Kind::Real).unwrap();
        b.set_numerics(numerics);
        let y = b.matmul(x, w).unwrap();
        b.output(y);
        let program = b.finish();
        let x: Vec<f32> = (0..t * k).map(|i| number(i + 5)).collect();
        let run = |name: &str, options: &BackendOptions| {
            let mut b = (backend(name).unwrap().create)(options, Arc::clone(&weights)).unwrap();
            let seq = b.seq_create(&KvLayout::default(), KvType::F32).unwrap();
            let mut keep = Keep(Vec::new());
            b.run(&program, &[seq], &[InputData::F32(&x)], &mut keep).unwrap();
            keep.0
        };
        let expected = run("reference", &BackendOptions::default());
        prop_assert_eq!(expected.len(), t * n);
        for level in CpuLevel::available() {
            let level = Some(level.name().to_string());
            let options = BackendOptions { level, threads: Some(threads), ..Default::default() };
            let found = run("cpu", &options);
            prop_assert!(found == expected, "{} {numerics:?} [{t}, {k}] x [{n}, {k}] on {options:?}", codec.dtype());
        }
    }
}

/// A product of bfloat16 numbers may be too large for f32, where a fused multiply-add would find a finite sum.
#[test]
fn products_of_sixteen_bits_that_overflow_are_errors_on_every_level() {
    let power = |n: i32| 2f32.powi(n);
    let encoder = codec(redraft_gguf::DType::BF16).and_then(|c| c.encoder()).unwrap();
    let mut bytes = [0; 4];
    encoder.quantize(&[-power(63), power(64)], None, &mut bytes);
    let mut weights = WeightTable::default();
    let bytes = Bytes::from(bytes.to_vec());
    let w = Weight { name: "w".into(), dtype: encoder.dtype(), experts: 1, rows: 1, cols: 2, bytes };
    let w = weights.add(w).unwrap();
    let weights = Arc::new(weights);
    let tokens = 24;
    let mut b = ProgramBuilder::new(&weights, 0, tokens);
    let x = b.input("x", 2, Kind::Real).unwrap();
    b.set_numerics(Numerics::Fast);
    let y = b.matmul(x, w).unwrap();
    b.output(y);
    let program = b.finish();
    // The sum is 2^128 - 2^127, or 2^127 - 2^126 where all products fit.
    for (size, expected) in [(64, None), (63, Some(power(126))), (62, Some(power(125)))] {
        let x = vec![power(size); 2 * tokens];
        let run = |name: &str, options: &BackendOptions| {
            let mut b = (backend(name).unwrap().create)(options, Arc::clone(&weights)).unwrap();
            let seq = b.seq_create(&KvLayout::default(), KvType::F32).unwrap();
            let mut keep = Keep(Vec::new());
            let result = b.run(&program, &[seq], &[InputData::F32(&x)], &mut keep);
            match expected {
                Some(sum) => {
                    result.unwrap();
                    assert_eq!(keep.0, vec![sum.to_bits(); tokens], "{name}, {options:?}");
                }
                None => {
                    let e = result.unwrap_err();
                    assert!(
                        matches!(e, ComputeError::NotFinite { op: "MatMul", .. }),
                        "{name}, {options:?}: {e}"
                    );
                }
            }
        };
        run("reference", &BackendOptions::default());
        for level in CpuLevel::available() {
            let level = Some(level.name().to_string());
            run("cpu", &BackendOptions { level, threads: Some(1), ..Default::default() });
        }
    }
}

/// Groups whose worth is below what f32 holds are chosen like others that are equal, and no expert is chosen twice.
#[test]
fn groups_that_are_worth_minus_infinity_are_chosen_in_order() {
    let bias: Vec<u8> = [-3e38f32; 8].iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut weights = WeightTable::default();
    let name = "bias".to_string();
    let w = Weight { name, dtype: DType::F32, experts: 1, rows: 1, cols: 8, bytes: Bytes::from(bias) };
    let bias = Some(weights.add(w).unwrap());
    let weights = Arc::new(weights);
    let mut b = ProgramBuilder::new(&weights, 0, 1);
    let logits = b.input("logits", 8, Kind::Real).unwrap();
    let groups = Some(ExpertGroups { n: 4, used: 2 });
    let routing = Routing { score: RouterScore::Sigmoid, bias, groups, ..Routing::softmax(4, false) };
    let (_, _, chosen) = b.moe_route(logits, routing).unwrap();
    b.output(chosen);
    let program = b.finish();
    let logits: Vec<f32> = (0..8).map(|i| i as f32).collect();
    let run = |name: &str, level: Option<String>| {
        let options = BackendOptions { level, ..Default::default() };
        let mut b = (backend(name).unwrap().create)(&options, Arc::clone(&weights)).unwrap();
        let seq = b.seq_create(&KvLayout::default(), KvType::F32).unwrap();
        let mut keep = Keep(Vec::new());
        b.run(&program, &[seq], &[InputData::F32(&logits)], &mut keep).unwrap();
        keep.0.into_iter().map(f32::from_bits).collect::<Vec<_>>()
    };
    let expected = run("reference", None);
    // The bias swallows the probabilities, so all experts are equal and go by number: those of the logits 0, 1, 2, 3.
    let sigmoids = [0.5, 0.731_058_6, 0.880_797, 0.952_574_1];
    assert!(expected.iter().zip(sigmoids).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-6), "{expected:?}");
    for level in CpuLevel::available() {
        assert_eq!(run("cpu", Some(level.name().into())), expected, "{}", level.name());
    }
}
