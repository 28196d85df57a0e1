//! Micro-benchmarks as ignored tests: `cargo test --release -p redraft-compute --test speed -- --ignored --nocapture`.

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

/// Multiplications per second of `[tokens, k] x [n, k]`, best of some runs, in 10^9.
fn matmul(dtype: DType, [tokens, k, n]: [usize; 3], level: CpuLevel, threads: usize) -> f64 {
    let mut noise = Noise(1);
    let row = noise.take(k);
    let codec = codec(dtype).unwrap();
    let mut bytes = vec![0; dtype.row_bytes(k as u64).unwrap() as usize];
    codec.quantize(&row, None, &mut bytes);
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
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let start = Instant::now();
        cpu.run(&program, seq, &[InputData::F32(&x)], &mut Blind).unwrap();
        best = best.min(start.elapsed().as_secs_f64());
    }
    (tokens * k * n) as f64 / best / 1e9
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
            let speed = [1, 2].map(|t| matmul(dtype, [tokens, 2816, 2112], level, t));
            println!(
                "{:>7} {tokens:4} tokens, 2816 -> 2112, {:5}: {:6.1} GMAC/s with 1 thread, {:6.1} with 2",
                level.name(),
                dtype.name(),
                speed[0],
                speed[1]
            );
        }
    }
}
