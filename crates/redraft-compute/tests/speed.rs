//! Micro-benchmarks as ignored tests: `cargo test --release -p redraft-compute --test speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used)] // a test, with helpers

use std::sync::Arc;
use std::time::Instant;

use redraft_compute::cpu::CpuLevel;
use redraft_compute::{
    BackendOptions, Blind, InputData, Kind, KvLayout, ProgramBuilder, Weight, WeightTable, backend,
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

/// Multiplications of `[tokens, k] x [n, k]` in 10^9 per second, and per second of computing of one thread;
/// best of some runs.
fn matmul(dtype: DType, [tokens, k, n]: [usize; 3], level: CpuLevel, threads: usize) -> [f64; 2] {
    let mut noise = Noise(1);
    let row = noise.take(k);
    let codec = codec(dtype).unwrap();
    let mut bytes = vec![0; dtype.row_bytes(k as u64).unwrap() as usize];
    codec.encoder().unwrap().quantize(&row, None, &mut bytes);
    let mut weights = WeightTable::default();
    let w = weights
        .add(Weight {
            name: "w".into(),
            dtype,
            experts: 1,
            rows: n,
            cols: k,
            bytes: Bytes::from(bytes.repeat(n)),
        })
        .unwrap();
    let weights = Arc::new(weights);
    let mut b = ProgramBuilder::new(&weights, 0, tokens);
    let x = b.input("x", k, Kind::Real).unwrap();
    let y = b.matmul(x, w).unwrap();
    b.output(y);
    let program = b.finish();
    let options =
        BackendOptions { threads: Some(threads), level: Some(level.name().into()), ..Default::default() };
    let mut cpu = (backend("cpu").unwrap().create)(&options, weights).unwrap();
    let seq = cpu.seq_create(&KvLayout::default()).unwrap();
    let x = noise.take(tokens * k);
    let mut best = [f64::INFINITY; 2];
    for _ in 0..10 {
        let (start, busy) = (Instant::now(), busy_seconds());
        cpu.run(&program, seq, &[InputData::F32(&x)], &mut Blind).unwrap();
        let seconds = [start.elapsed().as_secs_f64(), busy_seconds() - busy];
        best = [best[0].min(seconds[0]), best[1].min(seconds[1])];
    }
    best.map(|seconds| (tokens * k * n) as f64 / seconds / 1e9)
}

#[test]
#[ignore = "a measurement"]
fn matmul_speed() {
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
            let [one, two] = [1, 2].map(|t| matmul(dtype, [tokens, 2816, 2112], level, t));
            println!(
                "{:>7} {tokens:4} tokens, 2816 -> 2112, {:5}: GMAC/s {:5.1} with 1 thread, {:5.1} with 2; \
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
