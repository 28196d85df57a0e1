//! Micro-benchmarks of ops at the shapes of a model, as ignored tests (`redraft bench kernels` measures single
//! products): `cargo test --release -p redraft-compute --test speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used)] // a test, with helpers

use std::sync::Arc;
use std::time::Instant;

use redraft_compute::cpu::CpuLevel;
use redraft_compute::cpu::peak::process_cpu_seconds;
use redraft_compute::op::{Activation, GateUp, Head, Mask, Segment};
use redraft_compute::{
    AttentionSpec, BackendOptions, Blind, InputData, Kind, KvLayout, KvType, Numerics, Program,
    ProgramBuilder, Weight, WeightId, WeightTable, backend,
};
use redraft_gguf::{Bytes, DType, codec};

/// A repeatable stream of numbers in (-1, 1).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 + 0.5) / (1 << 23) as f32 - 1.0
    }
    fn take(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// Adds weights `[experts, n, k]` of a type: one row of random numbers again and again.
fn add(weights: &mut WeightTable, dtype: DType, [experts, n, k]: [usize; 3]) -> WeightId {
    let codec = codec(dtype).unwrap();
    let mut noise = Noise(1);
    let mut row = vec![0; dtype.row_bytes(k as u64).unwrap() as usize];
    if let Some(encoder) = codec.encoder() {
        encoder.quantize(&noise.take(k), None, &mut row);
    }
    let bytes = Bytes::from(row.repeat(experts * n));
    let name = format!("w{}", weights.iter().count());
    weights.add(Weight { name, dtype, experts, rows: n, cols: k, bytes }).unwrap()
}

/// Seconds that all threads of this process have computed.
fn busy_seconds() -> f64 {
    process_cpu_seconds().unwrap()
}

/// Seconds of a program by the clock, and of computing of all threads; best of some runs.
fn best(
    program: Program,
    weights: Arc<WeightTable>,
    inputs: &[InputData<'_>],
    level: CpuLevel,
    threads: usize,
) -> [f64; 2] {
    let options =
        BackendOptions { threads: Some(threads), level: Some(level.name().into()), ..Default::default() };
    let mut cpu = (backend("cpu").unwrap().create)(&options, weights).unwrap();
    let seq = cpu.seq_create(&KvLayout::default(), KvType::F32).unwrap();
    let mut run = |runs: usize| {
        let (start, busy) = (Instant::now(), busy_seconds());
        for _ in 0..runs {
            cpu.run(&program, &[seq], inputs, &mut Blind).unwrap();
        }
        [start.elapsed().as_secs_f64(), busy_seconds() - busy].map(|seconds| seconds / runs as f64)
    };
    // The system counts the seconds of computing in ticks of some milliseconds: many runs at a time.
    let runs = (0.1 / run(1)[0].min(run(1)[0])).ceil() as usize;
    let mut best = [f64::INFINITY; 2];
    for _ in 0..8 {
        let seconds = run(runs);
        best = [best[0].min(seconds[0]), best[1].min(seconds[1])];
    }
    best
}

/// The top 8 of 128 experts for each of 256 tokens, some experts more likely than others, as trained routers have it.
fn routing() -> (Vec<i32>, Vec<f32>) {
    let mut noise = Noise(3);
    let liking = noise.take(128);
    let mut ids = Vec::new();
    for _ in 0..256 {
        let score: Vec<f32> = liking.iter().map(|l| 0.15 * l + 1.5 * noise.next()).collect();
        let mut order: Vec<i32> = (0..128).collect();
        order.sort_by(|&a, &b| score[b as usize].total_cmp(&score[a as usize]));
        ids.extend(&order[..8]);
    }
    let weights = noise.take(ids.len());
    (ids, weights)
}

/// The routed experts of one layer of DiffusionGemma-26B over a canvas: 128 experts, gate and up [1408, 2816], down
/// [2816, 704], top 8 of 256 tokens. `SPEED_LEVEL` chooses levels.
#[test]
#[ignore = "a measurement"]
fn experts_speed() {
    let (ids, slots) = routing();
    let mut counts = [0; 128];
    ids.iter().for_each(|&id| counts[id as usize] += 1);
    counts.sort_unstable();
    println!("pairs of an expert: {} to {}, half have at most {}", counts[0], counts[127], counts[63]);
    let x = Noise(4).take(256 * 2816);
    for level in CpuLevel::available().into_iter().filter(|l| wanted("SPEED_LEVEL", l.name())) {
        for down in [DType::Q5_0, DType::Q8_0] {
            let seconds = [1, 2].map(|threads| {
                let mut weights = WeightTable::default();
                let gate_up = GateUp::Fused(add(&mut weights, DType::Q4_K, [128, 1408, 2816]));
                let down = add(&mut weights, down, [128, 2816, 704]);
                let weights = Arc::new(weights);
                let mut b = ProgramBuilder::new(&weights, 0, 256);
                b.set_numerics(Numerics::Fast);
                let v = b.input("x", 2816, Kind::Real).unwrap();
                let of = (b.input("ids", 8, Kind::Int).unwrap(), b.input("w", 8, Kind::Real).unwrap());
                let y = b.moe_experts(v, of, gate_up, down, Activation::GeluTanh).unwrap();
                b.output(y);
                let inputs = [InputData::F32(&x), InputData::Int(&ids), InputData::F32(&slots)];
                best(b.finish(), weights, &inputs, level, threads)
            });
            let rate = |seconds: f64| (256 * 8 * 3 * 704 * 2816u64) as f64 / seconds / 1e9;
            println!(
                "{:>10}  Q4_K, down {:4}: GMAC/s {:5.1} with 1 thread, {:5.1} with 2; per second of computing {:5.1} and \
                 {:5.1}",
                level.name(),
                down.name(),
                rate(seconds[0][0]),
                rate(seconds[1][0]),
                rate(seconds[0][1]),
                rate(seconds[1][1])
            );
        }
    }
}

/// Whether a comma-separated variable of the environment, if it is set, has a name.
fn wanted(variable: &str, name: &str) -> bool {
    std::env::var(variable).map_or(true, |list| list.split(',').any(|x| x.eq_ignore_ascii_case(name)))
}

/// Attention of a canvas of 256 tokens over prompts of several lengths, in layers like those of DiffusionGemma-26B:
/// 10^9 multiplications of q·k and P·V per second of computing, best of some runs. `SPEED_LEVEL` chooses a level,
/// `SPEED_KV` a type of the cache.
#[test]
#[ignore = "a measurement"]
fn attention_speed() {
    const CANVAS: usize = 256;
    let window = Mask::Canvas { prefix: Some(1023) };
    let whole = Mask::Canvas { prefix: None };
    let layers = [("sliding", 16, 8, 256, window), ("full", 16, 2, 512, whole), ("small", 16, 8, 128, whole)];
    let level = std::env::var("SPEED_LEVEL").ok();
    let kv_type = std::env::var("SPEED_KV").map_or(KvType::F32, |name| KvType::from_name(&name).unwrap());
    for (name, n_heads, n_kv_heads, head_dim, mask) in layers {
        for n_past in [64, 1024, 4096, 16384] {
            let weights = Arc::new(WeightTable::default());
            let width = n_kv_heads * head_dim;
            let options = BackendOptions { threads: Some(1), level: level.clone(), ..Default::default() };
            let mut cpu = (backend("cpu").unwrap().create)(&options, Arc::clone(&weights)).unwrap();
            let seq = cpu.seq_create(&KvLayout { widths: vec![width] }, kv_type).unwrap();
            let mut b = ProgramBuilder::new(&weights, 0, n_past);
            let [k, v] = ["k", "v"].map(|name| b.input(name, width, Kind::Real).unwrap());
            b.kv_append(0, k, v).unwrap();
            let x = Noise(3).take(n_past * width);
            cpu.run(&b.finish(), &[seq], &[InputData::F32(&x); 2], &mut Blind).unwrap();

            let mut b = ProgramBuilder::new(&weights, n_past, CANVAS);
            let q = b.input("q", n_heads * head_dim, Kind::Real).unwrap();
            let [k, v] = ["k", "v"].map(|name| b.input(name, width, Kind::Real).unwrap());
            let spec =
                AttentionSpec { cache_layer: Some(0), n_heads, n_kv_heads, head_dim, scale: 1.0, mask };
            let y = b.attention([q, k, v], spec).unwrap();
            b.output(y);
            let program = b.finish();
            let q = Noise(4).take(CANVAS * n_heads * head_dim);
            let x = Noise(5).take(CANVAS * width);
            let inputs = [&q, &x, &x].map(|x| InputData::F32(x));
            let mut best = f64::INFINITY;
            for _ in 0..7 {
                let busy = busy_seconds();
                cpu.run(&program, &[seq], &inputs, &mut Blind).unwrap();
                best = best.min(busy_seconds() - busy);
            }
            let keys = mask.visible(Segment { n_past, rows: CANVAS }, 0).len();
            let products = (2 * CANVAS * n_heads * head_dim * keys) as f64;
            println!(
                "{name:>8} {n_heads}/{n_kv_heads} heads of {head_dim}, prompt {n_past:5}: {:8.1} ms, {:5.1} GMAC/s",
                best * 1e3,
                products / best / 1e9
            );
        }
    }
}

/// Weights `[n, k]` whose rows differ: each block is one of 4,096.
fn mixed_weights(dtype: DType, [k, n]: [usize; 2]) -> WeightTable {
    let codec = codec(dtype).unwrap();
    let mut noise = Noise(1);
    let mut blocks = vec![0; 4096 * codec.block_bytes()];
    codec.encoder().unwrap().quantize(&noise.take(4096 * codec.block_len()), None, &mut blocks);
    let blocks: Vec<&[u8]> = blocks.chunks(codec.block_bytes()).collect();
    let bytes: Vec<u8> = (0..n * k / codec.block_len())
        .flat_map(|_| blocks[(noise.next().abs() * 4096.0) as usize % 4096])
        .copied()
        .collect();
    let mut weights = WeightTable::default();
    let (name, bytes) = ("w".into(), Bytes::from(bytes));
    weights.add(Weight { name, dtype, experts: 1, rows: n, cols: k, bytes }).unwrap();
    weights
}

/// The head, its statistics and samples, and the soft embedding: 256 rows, 2816 -> an eighth of 262,144 ids.
#[test]
#[ignore = "a measurement"]
fn head_speed() {
    let (rows, k, n) = (256, 2816, 262_144 / 8);
    let dtype = DType::Q6_K;
    let weights = Arc::new(mixed_weights(dtype, [k, n]));
    let head = Head { w: WeightId(0), softcap: Some(30.0) };
    let x = Noise(2).take(rows * k);
    let u = Noise(3).take(rows);
    let macs = (rows * k * n) as f64 / 1e9;
    let flat = Noise(4).take(rows * n);
    let mut noise = Noise(5);
    let concentrated: Vec<f32> = (0..rows * n)
        .map(|_| if noise.next() > 0.9999 { noise.next() } else { noise.next() * 3.0 - 60.0 })
        .collect();
    let level = CpuLevel::choose(None).unwrap();
    let time = |b: ProgramBuilder, inputs: &[&[f32]]| {
        let inputs: Vec<InputData<'_>> = inputs.iter().map(|&x| InputData::F32(x)).collect();
        best(b.finish(), Arc::clone(&weights), &inputs, level, 2)
    };
    let print = |what: &str, [wall, cpu]: [f64; 2]| {
        println!("{what:52} {cpu:7.3} CPU s  {:6.1} GMAC/s  {wall:7.3} s", macs / cpu);
    };
    let wanted = std::env::var("SPEED_NUMERICS").ok();
    for numerics in Numerics::ALL.iter().copied().filter(|n| wanted.as_deref().is_none_or(|w| w == n.name()))
    {
        println!("{}: {} rows x {k} x {n}, {}, 2 threads", numerics.name(), rows, dtype.name());
        let build = || {
            let mut b = ProgramBuilder::new(&weights, 0, rows);
            b.set_numerics(numerics);
            b
        };
        let mut b = build();
        let v = b.input("x", k, Kind::Real).unwrap();
        let y = b.head(v, head).unwrap();
        let (of, _) = b.token_stats(b.logits(y, None, 1.25)).unwrap();
        b.output(of.stats);
        print("product, cap, statistics of logits in memory", time(b, &[&x]));
        for sample in [false, true] {
            let mut b = build();
            let v = b.input("x", k, Kind::Real).unwrap();
            let (of, _) = b.token_stats(b.logits(v, Some(head), 1.25)).unwrap();
            b.output(of.stats);
            if sample {
                let w = b.input("u", 1, Kind::Real).unwrap();
                let ids = b.token_sample(of, w).unwrap();
                b.output(ids);
                print("head with statistics and samples", time(b, &[&x, &u]));
            } else {
                print("head with statistics", time(b, &[&x]));
            }
        }
        for (what, x, scale) in [("flat", &flat, 1.0), ("concentrated", &concentrated, 1.0)] {
            let mut b = build();
            let v = b.input("logits", n, Kind::Real).unwrap();
            let (of, _) = b.token_stats(b.logits(v, None, scale)).unwrap();
            let y = b.soft_embed(of, WeightId(0), 1.0).unwrap();
            b.output(y);
            print(&format!("statistics, soft embedding of {what} given logits"), time(b, &[x]));
        }
        // The capped products are spread over -30 .. 30: a scale makes them flat or concentrated.
        for (what, scale) in [("flat", 0.01), ("concentrated", 30.0)] {
            let mut b = build();
            let v = b.input("x", k, Kind::Real).unwrap();
            let (of, _) = b.token_stats(b.logits(v, Some(head), scale)).unwrap();
            let y = b.soft_embed(of, WeightId(0), 1.0).unwrap();
            b.output(y);
            print(&format!("head with statistics, soft embedding, {what}"), time(b, &[&x]));
        }
    }
}
