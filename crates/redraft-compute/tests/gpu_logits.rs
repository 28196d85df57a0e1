//! Logits of so many ids and rows that a GPU makes them in chunks and adds soft embeddings in ranges, neither of which begins
//! where a view may. The suite has no vocabulary of this size.
#![cfg(feature = "wgpu")]
#![allow(clippy::unwrap_used)] // a test, with helpers

use std::sync::Arc;

use redraft_compute::op::Head;
use redraft_compute::{
    BackendOptions, InputData, Kind, KvLayout, KvType, Numerics, Observer, Program, ProgramBuilder, TapData,
    Val, Weight, WeightId, WeightTable, backend,
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

fn run(name: &str, weights: &Arc<WeightTable>, program: &Program, inputs: [&[f32]; 2]) -> Vec<Vec<u32>> {
    let mut b = (backend(name).unwrap().create)(&BackendOptions::default(), Arc::clone(weights)).unwrap();
    let seq = b.seq_create(&KvLayout::default(), KvType::F32).unwrap();
    let mut outputs = Outputs::default();
    b.run(program, &[seq], &inputs.map(InputData::F32), &mut outputs).unwrap();
    outputs.0
}

/// A head and a table.
fn weights() -> (Arc<WeightTable>, [WeightId; 2]) {
    let mut table = WeightTable::default();
    let ids = [("head", DType::F16), ("table", DType::Q8_0)].map(|(name, dtype)| {
        let values = numbers(name.len() as u64, VOCAB * WIDTH);
        let mut bytes = vec![0; VOCAB * dtype.row_bytes(WIDTH as u64).unwrap() as usize];
        codec(dtype).and_then(|c| c.encoder()).unwrap().quantize(&values, None, &mut bytes);
        let bytes = Bytes::from(bytes);
        table.add(Weight { name: name.into(), dtype, experts: 1, rows: VOCAB, cols: WIDTH, bytes }).unwrap()
    });
    (Arc::new(table), ids)
}

#[test]
fn many_rows_and_ids_have_the_bits_of_the_reference() {
    if (backend("wgpu").unwrap().devices)().is_empty() {
        assert!(std::env::var_os("REDRAFT_CI").is_none(), "no device for wgpu");
        println!("skipped: 1 (no device for wgpu)");
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
        let [expected, found] = ["reference", "wgpu"].map(|name| run(name, &table, &program, [&x, &u]));
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
    if (backend("wgpu").unwrap().devices)().is_empty() {
        // The other test says what that means.
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
        let run = |name: &str| {
            let mut b =
                (backend(name).unwrap().create)(&BackendOptions::default(), Arc::clone(&table)).unwrap();
            let seq = b.seq_create(&KvLayout::default(), KvType::F32).unwrap();
            let mut outputs = Outputs::default();
            b.run(&program, &[seq], &[InputData::F32(&x)], &mut outputs).unwrap();
            outputs.0.remove(0)
        };
        let (expected, found) = (run("reference"), run("wgpu"));
        let kept = expected.iter().filter(|&&x| f32::from_bits(x) > -1e29).count();
        assert!((3000..rows * ids - 100).contains(&kept), "{kept}");
        let different = expected.iter().zip(&found).filter(|(e, f)| e != f).count();
        assert_eq!(different, 0, "top_k {top_k}, top_p {top_p}, few {few}");
    }
}
