//! A sequence has the bits that it has alone, whatever sequences share its passes.
#![allow(clippy::unwrap_used)] // a test, with helpers

use std::sync::Arc;

use proptest::prelude::*;
use redraft_compute::cpu::CpuLevel;
use redraft_compute::op::{Activation, GateUp, Mask, RopeStyle, Routing, RoutingBlock, Segment};
use redraft_compute::{
    AttentionSpec, Backend, BackendOptions, InputData, Kind, KvLayout, KvType, Numerics, Observer, Precision,
    Program, ProgramBuilder, SeqId, TapData, Val, Weight, WeightId, WeightTable, backend, math,
};
use redraft_gguf::{Bytes, DType, codec};

const WIDTH: usize = 256;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 20;
const EXPERTS: usize = 5;

/// Numbers between -1 and 1 that depend on where they stand.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut z = seed;
    let mut next = || {
        z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (z >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// A layer with attention and routed experts.
struct Layer {
    weights: Arc<WeightTable>,
    q: WeightId,
    k: WeightId,
    v: WeightId,
    o: WeightId,
    router: WeightId,
    gate: WeightId,
    up: WeightId,
    down: WeightId,
}

impl Layer {
    fn new() -> Layer {
        let mut table = WeightTable::default();
        let mut add = |name: &str, dtype: DType, experts: usize, rows: usize, cols: usize| {
            let encoder = codec(dtype).and_then(|c| c.encoder()).unwrap();
            let values = numbers(name.len() as u64 + 31 * name.as_bytes()[0] as u64, experts * rows * cols);
            let mut bytes = vec![0; experts * rows * dtype.row_bytes(cols as u64).unwrap() as usize];
            encoder.quantize(&values, None, &mut bytes);
            let bytes = Bytes::from(bytes);
            table.add(Weight { name: name.into(), dtype, experts, rows, cols, bytes }).unwrap()
        };
        let q = add("q", DType::Q4_K, 1, HEADS * HEAD_DIM, WIDTH);
        let k = add("key", DType::Q8_0, 1, KV_HEADS * HEAD_DIM, WIDTH);
        let v = add("value", DType::Q6_K, 1, KV_HEADS * HEAD_DIM, WIDTH);
        let o = add("out", DType::F32, 1, WIDTH, HEADS * HEAD_DIM);
        let router = add("router", DType::F32, 1, EXPERTS, WIDTH);
        let gate = add("gate", DType::Q4_K, EXPERTS, 64, WIDTH);
        let up = add("up", DType::Q4_K, EXPERTS, 64, WIDTH);
        let down = add("down", DType::Q5_0, EXPERTS, WIDTH, 64);
        Layer { weights: Arc::new(table), q, k, v, o, router, gate, up, down }
    }

    /// The layer over rows of several sequences, whose keys and values extend the caches.
    fn pass(&self, parts: &[Segment], mask: Mask, numerics: Numerics) -> Program {
        let mut b = ProgramBuilder::batch(&self.weights, parts);
        b.set_numerics(numerics);
        let x = b.input("x", WIDTH, Kind::Real).unwrap();
        let table = b.input("rope", HEAD_DIM, Kind::Real).unwrap();
        let h = b.rms_norm(x, None, 1e-6, WIDTH).unwrap();
        let [q, k, v] = [self.q, self.k, self.v].map(|w| b.matmul(h, w).unwrap());
        let [q, k] = [q, k].map(|x| b.rope(x, table, HEAD_DIM, RopeStyle::Neox).unwrap());
        let spec = AttentionSpec {
            cache_layer: Some(0),
            n_heads: HEADS,
            n_kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
            scale: 0.25,
            mask,
        };
        let a = b.attention([q, k, v], spec).unwrap();
        b.kv_append(0, k, v).unwrap();
        let a = b.matmul(a, self.o).unwrap();
        let x = b.add(x, a).unwrap();
        let h = b.rms_norm(x, None, 1e-6, WIDTH).unwrap();
        let logits = b.matmul(h, self.router).unwrap();
        // Where all passes begin with a whole block, experts are chosen for blocks, too.
        let block = match mask {
            Mask::Blocks { len } if parts.iter().all(|p| p.n_past.is_multiple_of(len)) => {
                Some(RoutingBlock { len, capacity: 3 })
            }
            _ => None,
        };
        let routing = Routing { block, ..Routing::softmax(2, true) };
        let (_, ids, weights) = b.moe_route(logits, routing).unwrap();
        let gate_up = GateUp::Split { gate: self.gate, up: self.up };
        let f = b.moe_experts(h, (ids, weights), gate_up, self.down, Activation::Silu).unwrap();
        let y = b.add(x, f).unwrap();
        b.output(y);
        b.finish()
    }

    fn backend(&self, name: &str, options: &BackendOptions) -> Box<dyn Backend> {
        (backend(name).unwrap().create)(options, Arc::clone(&self.weights)).unwrap()
    }
}

/// Keeps the bits of the only output.
struct Keep(Vec<u64>);

impl Observer for Keep {
    fn output(&mut self, _: usize, _: Val, data: TapData<'_>) {
        self.0 = match data {
            TapData::F32(x) => x.iter().map(|x| u64::from(x.to_bits())).collect(),
            TapData::F64(x) => x.iter().map(|x| x.to_bits()).collect(),
            TapData::I32(_) => unreachable!("the output is real"),
        };
    }
}

/// What a sequence is read in: rows of each pass. Its numbers follow from its number.
fn input(sequence: usize, part: Segment) -> (Vec<f32>, Vec<f64>) {
    let x = numbers(7 + sequence as u64, (part.n_past + part.rows) * WIDTH).split_off(part.n_past * WIDTH);
    let table = math::rope_table(part.n_past, part.rows, HEAD_DIM, 10_000.0, HEAD_DIM, None);
    (x, table)
}

/// Outputs of each sequence in each of its passes; pass `n` is over the `n`-th rows of all sequences that have so many.
fn run(
    b: &mut dyn Backend,
    layer: &Layer,
    lengths: &[Vec<usize>],
    (mask, kv_type, numerics): (Mask, KvType, Numerics),
) -> Vec<Vec<Vec<u64>>> {
    let layout = KvLayout { widths: vec![KV_HEADS * HEAD_DIM] };
    let seqs: Vec<SeqId> = lengths.iter().map(|_| b.seq_create(&layout, kv_type).unwrap()).collect();
    let mut outputs = vec![Vec::new(); lengths.len()];
    for pass in 0..lengths.iter().map(Vec::len).max().unwrap_or(0) {
        let here: Vec<usize> = (0..lengths.len()).filter(|&s| pass < lengths[s].len()).collect();
        let part = |&s: &usize| Segment { n_past: lengths[s][..pass].iter().sum(), rows: lengths[s][pass] };
        let parts: Vec<Segment> = here.iter().map(part).collect();
        let inputs: Vec<_> = here.iter().zip(&parts).map(|(&s, &part)| input(s, part)).collect();
        let x: Vec<f32> = inputs.iter().flat_map(|(x, _)| x).copied().collect();
        let table: Vec<f64> = inputs.iter().flat_map(|(_, table)| table).copied().collect();
        let seqs: Vec<SeqId> = here.iter().map(|&s| seqs[s]).collect();
        let mut keep = Keep(Vec::new());
        let program = layer.pass(&parts, mask, numerics);
        b.run(&program, &seqs, &[InputData::F32(&x), InputData::F64(&table)], &mut keep).unwrap();
        let mut rest = &keep.0[..];
        for (s, part) in here.into_iter().zip(parts) {
            let (own, others) = rest.split_at(part.rows * WIDTH);
            outputs[s].push(own.to_vec());
            rest = others;
        }
    }
    outputs
}

/// Each sequence alone.
fn alone(
    b: &mut dyn Backend,
    layer: &Layer,
    lengths: &[Vec<usize>],
    how: (Mask, KvType, Numerics),
) -> Vec<Vec<Vec<u64>>> {
    let one = |s: usize| {
        // The others have no passes, so that this one keeps its number and with it its numbers.
        let only: Vec<Vec<usize>> =
            (0..lengths.len()).map(|i| if i == s { lengths[s].clone() } else { Vec::new() }).collect();
        run(b, layer, &only, how).swap_remove(s)
    };
    (0..lengths.len()).map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sequences_have_the_bits_that_they_have_alone(
        lengths in prop::collection::vec(prop::collection::vec(1usize..40, 1..4), 1..5),
        mask in prop::sample::select(vec![
            Mask::Causal { window: None },
            Mask::Causal { window: Some(9) },
            Mask::Canvas { prefix: None },
            Mask::Canvas { prefix: Some(5) },
            Mask::Blocks { len: 8 },
        ]),
        kv_type in prop::sample::select(KvType::ALL.to_vec()),
        numerics in prop::sample::select(Numerics::ALL),
        threads in 1usize..4,
    ) {
        let layer = Layer::new();
        // Whole blocks before each last pass, so that routers choose for blocks.
        let mut lengths: Vec<Vec<usize>> = lengths;
        if let Mask::Blocks { len } = mask {
            for n in lengths.iter_mut().flat_map(|l| l.split_last_mut()).flat_map(|(_, before)| before) {
                *n = n.next_multiple_of(len);
            }
        }
        let how = (mask, kv_type, numerics);
        let expected = alone(&mut *layer.backend("reference", &BackendOptions::default()), &layer, &lengths, how);
        let together = run(&mut *layer.backend("reference", &BackendOptions::default()), &layer, &lengths, how);
        prop_assert!(together == expected, "reference");
        for level in CpuLevel::available() {
            let options =
                BackendOptions { level: Some(level.name().into()), threads: Some(threads), ..Default::default() };
            let found = run(&mut *layer.backend("cpu", &options), &layer, &lengths, how);
            prop_assert!(found == expected, "{options:?}");
        }
        if (kv_type, numerics) == (KvType::F32, Numerics::Exact) {
            for precision in [Precision::F64, Precision::Bf16] {
                let options = BackendOptions { precision, ..Default::default() };
                let expected = alone(&mut *layer.backend("reference", &options), &layer, &lengths, how);
                let together = run(&mut *layer.backend("reference", &options), &layer, &lengths, how);
                prop_assert!(together == expected, "{precision:?}");
            }
        }
    }
}
