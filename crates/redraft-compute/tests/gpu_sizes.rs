//! Sizes that the suite has not: logits of so many ids and rows that a GPU makes them in chunks and adds soft embeddings in ranges,
//! neither of which begins where a view may; sums over so many columns and keys that a software device might leave them early.
#![cfg(feature = "wgpu")]
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test, with helpers

mod devices;

use std::sync::Arc;

use redraft_compute::op::{Head, Mask};
use redraft_compute::{
    AttentionSpec, BackendOptions, InputData, Kind, KvLayout, KvType, Numerics, Observer, Program,
    ProgramBuilder, TapData, Val, Weight, WeightId, WeightTable, backend,
};
use redraft_gguf::{Bytes, DType, codec};

/// Ids: more than a kernel of llvmpipe may visit in one dispatch, and odd.
const VOCAB: usize = 70_001;
/// Rows: two more than a chunk has where a kernel sees 128 MiB.
const ROWS: usize = 241;
const WIDTH: usize = 32;

/// Numbers between -1 and 1 that depend on where they stand.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut z = seed;
    let mut next = || {
        z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (z >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Keeps the bits of all outputs.
#[derive(Default)]
struct Outputs(Vec<Vec<u32>>);

impl Observer for Outputs {
    fn output(&mut self, _: usize, _: Val, data: TapData<'_>) {
        self.0.push(match data {
            TapData::F32(x) => x.iter().map(|x| x.to_bits()).collect(),
            TapData::I32(x) => x.iter().map(|&x| x as u32).collect(),
            TapData::F64(_) => panic!("f64"),
        });
    }
}

fn no_device() -> bool {
    devices::present().iter().all(|spec| spec.name != "wgpu")
}

/// Outputs of the last of some programs that run one after the other on one sequence with a cache of `widths`.
fn run(
    name: &str,
    weights: &Arc<WeightTable>,
    widths: &[usize],
    programs: &[(&Program, &[&[f32]])],
) -> Vec<Vec<u32>> {
    let mut b = (backend(name).unwrap().create)(&BackendOptions::default(), Arc::clone(weights)).unwrap();
    let seq = b.seq_create(&KvLayout { widths: widths.to_vec() }, KvType::F32).unwrap();
    let mut outputs = Outputs::default();
    for (program, inputs) in programs {
        outputs.0.clear();
        let inputs: Vec<InputData<'_>> = inputs.iter().map(|x| InputData::F32(x)).collect();
        b.run(program, &[seq], &inputs, &mut outputs).unwrap();
    }
    outputs.0
}

/// A matrix of a type.
fn matrix(name: &str, dtype: DType, rows: usize, cols: usize) -> Weight {
    let values = numbers(name.len() as u64, rows * cols);
    let mut bytes = vec![0; rows * dtype.row_bytes(cols as u64).unwrap() as usize];
    codec(dtype).and_then(|c| c.encoder()).unwrap().quantize(&values, None, &mut bytes);
    Weight { name: name.into(), dtype, experts: 1, rows, cols, bytes: Bytes::from(bytes) }
}

/// A head and a table.
fn weights() -> (Arc<WeightTable>, [WeightId; 2]) {
    let mut table = WeightTable::default();
    let ids = [("head", DType::F16), ("table", DType::Q8_0)]
        .map(|(name, dtype)| table.add(matrix(name, dtype, VOCAB, WIDTH)).unwrap());
    (Arc::new(table), ids)
}

#[test]
fn many_rows_and_ids_have_the_bits_of_the_reference() {
    if no_device() {
        return;
    }
    let (table, [w, matrix]) = weights();
    for (head, numerics) in [(None, Numerics::Exact), (Some(Head { w, softcap: Some(30.0) }), Numerics::Fast)]
    {
        let cols = if head.is_some() { WIDTH } else { VOCAB };
        let mut b = ProgramBuilder::new(&table, 0, ROWS);
        b.set_numerics(numerics);
        let x = b.input("x", cols, Kind::Real).unwrap();
        let u = b.input("u", 1, Kind::Real).unwrap();
        let logits = b.logits(x, head, 1.0 / 0.7);
        let (of, argmax) = b.token_stats(logits).unwrap();
        let sample = b.token_sample(of, u).unwrap();
        let soft = b.soft_embed(of, matrix, 5.5).unwrap();
        [of.stats, of.tiles, argmax, sample, soft].into_iter().for_each(|v| b.output(v));
        let program = b.finish();
        // Rows from flat ones, of which all ids count, to concentrated ones.
        let spread = |i: usize| if head.is_some() { 1.0 } else { (i / cols) as f32 * 0.2 };
        let x: Vec<f32> =
            numbers(3, ROWS * cols).into_iter().enumerate().map(|(i, x)| x * spread(i)).collect();
        let u: Vec<f32> = numbers(4, ROWS).into_iter().map(|u| 0.5 + 0.499 * u).collect();
        let [expected, found] =
            ["reference", "wgpu"].map(|name| run(name, &table, &[], &[(&program, &[&x, &u])]));
        for (e, f, what) in [
            (&expected[0], &found[0], "stats"),
            (&expected[1], &found[1], "tiles"),
            (&expected[2], &found[2], "argmax"),
            (&expected[3], &found[3], "samples"),
            (&expected[4], &found[4], "soft embeddings"),
        ] {
            let different = e.iter().zip(f).position(|(e, f)| e != f);
            assert_eq!((different, e.len()), (None, f.len()), "{what}, {head:?}, {}", numerics.name());
        }
    }
}

/// So many ids that restricting takes several pieces, with few different logits and with many.
#[test]
fn long_rows_are_restricted_as_by_the_processor() {
    if no_device() {
        return;
    }
    let table = Arc::new(WeightTable::default());
    let (rows, ids) = (3, 20_011);
    let coarse = |x: f32| (x * 4.0).floor() * 0.25;
    for (top_k, top_p, few) in [(0, 0.97, true), (0, 0.9, false), (7000, 0.99, true), (5000, 1.0, false)] {
        let mut b = ProgramBuilder::new(&table, 0, rows);
        let x = b.input("x", ids, Kind::Real).unwrap();
        let out = b.restrict(x, &[17, 4000], top_k, top_p).unwrap();
        b.output(out);
        let program = b.finish();
        let x: Vec<f32> =
            numbers(9, rows * ids).into_iter().map(|x| if few { coarse(x) } else { x }).collect();
        let run = |name: &str| run(name, &table, &[], &[(&program, &[&x])]).remove(0);
        let (expected, found) = (run("reference"), run("wgpu"));
        let kept = expected.iter().filter(|&&x| f32::from_bits(x) > -1e29).count();
        assert!((3000..rows * ids - 100).contains(&kept), "{kept}");
        let different = expected.iter().zip(&found).filter(|(e, f)| e != f).count();
        assert_eq!(different, 0, "top_k {top_k}, top_p {top_p}, few {few}");
    }
}

#[test]
fn long_sums_have_the_bits_of_the_processor() {
    if no_device() {
        return;
    }
    let (rows, cols) = (3, 20_480);
    let x = numbers(11, rows * cols);
    for (dtype, numerics) in [
        (DType::F32, Numerics::Exact),
        (DType::BF16, Numerics::Fast),
        (DType::Q4_K, Numerics::Exact),
        (DType::Q4_K, Numerics::Fast),
    ] {
        let mut table = WeightTable::default();
        let w = table.add(matrix("w", dtype, 5, cols)).unwrap();
        let table = Arc::new(table);
        let mut b = ProgramBuilder::new(&table, 0, rows);
        b.set_numerics(numerics);
        let v = b.input("x", cols, Kind::Real).unwrap();
        let y = b.matmul(v, w).unwrap();
        let y = b.rms_norm(y, None, 1e-6, 5).unwrap();
        b.output(y);
        let z = b.rms_norm(v, None, 1e-6, cols).unwrap();
        b.output(z);
        let program = b.finish();
        let [expected, found] = ["reference", "wgpu"].map(|n| run(n, &table, &[], &[(&program, &[&x])]));
        assert_eq!(expected, found, "{dtype} {}", numerics.name());
    }
}

/// More keys than a dispatch adds values of, and more than it could.
#[test]
fn many_keys_have_the_bits_of_the_processor() {
    if no_device() {
        return;
    }
    let (d, past, rows) = (16, 70_001, 3);
    let table = Arc::new(WeightTable::default());
    let mut b = ProgramBuilder::new(&table, 0, past);
    let [k, v] = ["k", "v"].map(|name| b.input(name, d, Kind::Real).unwrap());
    b.kv_append(0, k, v).unwrap();
    let first = b.finish();
    let mut b = ProgramBuilder::new(&table, past, rows);
    let qkv = ["q", "k", "v"].map(|name| b.input(name, d, Kind::Real).unwrap());
    let mask = Mask::Canvas { prefix: None };
    let spec =
        AttentionSpec { cache_layer: Some(0), n_heads: 1, n_kv_heads: 1, head_dim: d, scale: 0.25, mask };
    let out = b.attention(qkv, spec).unwrap();
    b.output(out);
    let second = b.finish();
    let (k, v) = (numbers(1, past * d), numbers(2, past * d));
    let new: [Vec<f32>; 3] = std::array::from_fn(|i| numbers(3 + i as u64, rows * d));
    let [expected, found] = ["reference", "wgpu"].map(|name| {
        let inputs: [&[f32]; 3] = [&new[0], &new[1], &new[2]];
        run(name, &table, &[d], &[(&first, &[&k, &v]), (&second, &inputs)])
    });
    assert_eq!(expected, found);
}
