//! Experts that a block of tokens chooses together: what they are, and the same bits however a sequence is read.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use redraft_compute::cpu::CpuLevel;
use redraft_compute::op::{RouterScore, Routing, RoutingBlock};
use redraft_compute::{
    BackendOptions, InputData, Kind, KvLayout, KvType, Observer, ProgramBuilder, TapData, Val, Weight,
    WeightId, WeightTable, backend,
};
use redraft_gguf::{Bytes, DType};

/// What a router gives out: probabilities, ids and weights of all rows, floats by their bits.
#[derive(Debug, Default, PartialEq)]
struct Routed {
    probs: Vec<f32>,
    ids: Vec<i32>,
    weights: Vec<u32>,
}

impl Observer for Routed {
    fn output(&mut self, index: usize, _: Val, data: TapData<'_>) {
        match (index, data) {
            (0, TapData::F32(x)) => self.probs.extend(x),
            (1, TapData::I32(x)) => self.ids.extend(x),
            (2, TapData::F32(x)) => self.weights.extend(x.iter().map(|x| x.to_bits())),
            _ => unreachable!("probabilities and weights are real, ids are not"),
        }
    }
}

fn bias(values: &[f32]) -> (Arc<WeightTable>, WeightId) {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut weights = WeightTable::default();
    let (name, bytes) = ("bias".to_string(), Bytes::from(bytes));
    let w = Weight { name, dtype: DType::F32, experts: 1, rows: 1, cols: values.len(), bytes };
    let w = weights.add(w).unwrap();
    (Arc::new(weights), w)
}

/// The logits `[rows, n]` in passes of so many rows, one after the other.
fn run(
    (name, options): (&str, &BackendOptions),
    weights: &Arc<WeightTable>,
    routing: Routing,
    logits: &[f32],
    (n, passes): (usize, &[usize]),
) -> Routed {
    let mut b = (backend(name).unwrap().create)(options, Arc::clone(weights)).unwrap();
    let seq = b.seq_create(&KvLayout { widths: vec![1] }, KvType::F32).unwrap();
    let (mut out, mut past) = (Routed::default(), 0);
    for &rows in passes {
        let mut p = ProgramBuilder::new(weights, past, rows);
        let x = p.input("logits", n, Kind::Real).unwrap();
        // The cache counts what was read.
        let k = p.input("key", 1, Kind::Real).unwrap();
        p.kv_append(0, k, k).unwrap();
        let (probs, ids, weights) = p.moe_route(x, routing).unwrap();
        [probs, ids, weights].into_iter().for_each(|v| p.output(v));
        let inputs = [InputData::F32(&logits[past * n..][..rows * n]), InputData::F32(&logits[..rows])];
        b.run(&p.finish(), &[seq], &inputs, &mut out).unwrap();
        past += rows;
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn blocks_choose_the_same_in_one_pass_and_in_many(
        (rows, len, top_k) in (1usize..50, 1usize..12, 1usize..6),
        (more, others) in (0usize..6, 0usize..20),
        cuts in prop::collection::vec(1usize..4, 1..5),
        threads in 1usize..4,
        // Few values, so that many experts are equal.
        values in prop::collection::vec(-6i8..6, 64..128),
        score in prop::sample::select(vec![RouterScore::Sigmoid, RouterScore::Softmax]),
    ) {
        let (capacity, n) = (top_k + more, top_k + more + others);
        let value = |i: usize| f32::from(values[(i * 7 + i / values.len()) % values.len()]);
        let logits: Vec<f32> = (0..rows * n).map(|i| value(i) / 2.0).collect();
        let of_bias: Vec<f32> = (0..n).map(|i| value(i + 3) / 16.0).collect();
        let (weights, w) = bias(&of_bias);
        let block = Some(RoutingBlock { len, capacity });
        let routing = Routing { score, bias: Some(w), block, ..Routing::softmax(top_k, true) };
        let reference = ("reference", &BackendOptions::default());
        let whole = run(reference, &weights, routing, &logits, (n, &[rows]));

        // The rule, by sorting.
        let choice: Vec<f32> = whole.probs.iter().zip(of_bias.iter().cycle()).map(|(p, b)| p + b).collect();
        for (ids, choice) in whole.ids.chunks(len * top_k).zip(choice.chunks(len * n)) {
            let worth = |e: usize| choice.iter().skip(e).step_by(n).copied().fold(f32::MIN, f32::max);
            let mut open: Vec<usize> = (0..n).collect();
            open.sort_by(|&a, &b| worth(b).total_cmp(&worth(a)));
            open.truncate(capacity);
            open.sort_unstable();
            for (ids, choice) in ids.chunks(top_k).zip(choice.chunks(n)) {
                let mut best = open.clone();
                best.sort_by(|&a, &b| choice[b].total_cmp(&choice[a]));
                prop_assert!(best.iter().map(|&e| e as i32).take(top_k).eq(ids.iter().copied()));
            }
            prop_assert!(ids.iter().collect::<BTreeSet<_>>().len() <= capacity);
        }

        // Passes of whole blocks, the last one with the rest.
        let mut passes: Vec<usize> = cuts.iter().map(|blocks| blocks * len).collect();
        while passes.iter().sum::<usize>() > rows {
            passes.pop();
        }
        passes.push(rows - passes.iter().sum::<usize>());
        passes.retain(|&rows| rows > 0);
        prop_assert_eq!(&run(reference, &weights, routing, &logits, (n, &passes)), &whole);
        for level in CpuLevel::available() {
            let level = Some(level.name().to_string());
            let cpu = &BackendOptions { level, threads: Some(threads), ..Default::default() };
            for passes in [&passes, &vec![rows]] {
                let found = run(("cpu", cpu), &weights, routing, &logits, (n, passes));
                prop_assert_eq!(&found, &whole, "{:?} in passes of {:?}", cpu, passes);
            }
        }
    }
}

/// What is in the cache of a block is not in the pass, so nobody knows what its tokens wanted.
#[test]
fn a_pass_begins_with_a_block() {
    let (weights, _) = bias(&[0.0; 8]);
    let routing =
        |len| Routing { block: Some(RoutingBlock { len, capacity: 4 }), ..Routing::softmax(2, true) };
    for (past, len, fits) in
        [(0, 4, true), (8, 4, true), (4, 4, true), (6, 4, false), (1, 4, false), (1, 1, true)]
    {
        let mut b = ProgramBuilder::new(&weights, past, 3);
        let x = b.input("logits", 8, Kind::Real).unwrap();
        match b.moe_route(x, routing(len)) {
            Ok(_) => assert!(fits, "{past} {len}"),
            Err(e) => {
                let e = e.to_string();
                assert!(
                    !fits && e == format!("MoeRoute: n_past must be whole blocks of 4, found {past}"),
                    "{e}"
                );
            }
        }
    }
}
