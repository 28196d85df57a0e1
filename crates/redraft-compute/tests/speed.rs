//! Micro-benchmarks as ignored tests: `cargo test --release -p redraft-compute --test speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used)] // a test, with helpers

use std::sync::Arc;
use std::time::Instant;

use redraft_compute::cpu::CpuLevel;
use redraft_compute::{
    BackendOptions, Blind, InputData, Kind, KvLayout, Numerics, Program, ProgramBuilder, Weight, WeightId,
    WeightTable, backend,
    op::{Activation, GateUp},
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

/// Seconds that all threads of this process have computed, where the system tells: on a machine shared with
/// other work it says more than the clock.
fn busy_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = |t: std::fs::DirEntry| -> Option<f64> {
        std::fs::read_to_string(t.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    tasks.filter_map(nanoseconds).sum::<f64>() / 1e9
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

/// Multiplications of `[tokens, k] x [n, k]` in 10^9 per second, and per second of computing of one thread;
/// best of some runs.
fn matmul(
    dtype: DType,
    numerics: Numerics,
    [tokens, k, n]: [usize; 3],
    level: CpuLevel,
    threads: usize,
) -> [f64; 2] {
    let mut weights = WeightTable::default();
    let w = add(&mut weights, dtype, [1, n, k]);
    let weights = Arc::new(weights);
    let mut b = ProgramBuilder::new(&weights, 0, tokens);
    b.set_numerics(numerics);
    let x = b.input("x", k, Kind::Real).unwrap();
    let y = b.matmul(x, w).unwrap();
    b.output(y);
    let x = Noise(2).take(tokens * k);
    let seconds = best(b.finish(), weights, &[InputData::F32(&x)], level, threads);
    seconds.map(|seconds| (tokens * k * n) as f64 / seconds / 1e9)
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
    let seq = cpu.seq_create(&KvLayout::default()).unwrap();
    let mut run = |runs: usize| {
        let (start, busy) = (Instant::now(), busy_seconds());
        for _ in 0..runs {
            cpu.run(&program, seq, inputs, &mut Blind).unwrap();
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

#[test]
#[ignore = "a measurement"]
fn exact_speed() {
    for level in CpuLevel::available() {
        for (tokens, dtype) in [
            (256, DType::F32),
            (256, DType::Q4_K),
            (256, DType::BF16),
            (256, DType::Q8_0),
            (16, DType::Q4_K),
            (16, DType::F32),
            (1, DType::Q4_K),
        ] {
            let [one, two] = [1, 2].map(|t| matmul(dtype, Numerics::Exact, [tokens, 2816, 2112], level, t));
            println!(
                "{:>10} {tokens:4} tokens, 2816 -> 2112, {:5}: GMAC/s {:5.1} with 1 thread, {:5.1} with 2; \
                 per busy second of a core {:5.1} and {:5.1}",
                level.name(),
                dtype.name(),
                one[0],
                two[0],
                one[1],
                two[1]
            );
        }
    }
}

/// One thread, 2816 -> 2112: GMAC/s of each type that published files carry, per second of computing, best of
/// eight batches of runs. `SPEED_LEVEL`
/// and `SPEED_TYPES` choose levels and types.
#[test]
#[ignore = "a measurement"]
fn fast_speed() {
    let types = [
        DType::Q4_K,
        DType::Q6_K,
        DType::Q8_0,
        DType::Q5_0,
        DType::Q5_K,
        DType::Q4_0,
        DType::IQ4_NL,
        DType::IQ4_XS,
        DType::Q5_1,
        DType::Q3_K,
        DType::Q2_K,
        DType::MXFP4,
        DType::F16,
        DType::BF16,
    ];
    for level in CpuLevel::available().into_iter().filter(|l| wanted("SPEED_LEVEL", l.name())) {
        println!(
            "{:>10}  fast: 1, 16 and 256 tokens   exact: 256 tokens    GMAC/s of one thread",
            level.name()
        );
        for dtype in types.into_iter().filter(|t| wanted("SPEED_TYPES", &t.name())) {
            let fast = [1, 16, 256].map(|t| matmul(dtype, Numerics::Fast, [t, 2816, 2112], level, 1)[1]);
            let exact = matmul(dtype, Numerics::Exact, [256, 2816, 2112], level, 1)[1];
            println!("{:>10}  {:6.1} {:6.1} {:6.1}   {exact:6.1}", dtype.name(), fast[0], fast[1], fast[2]);
        }
    }
}
