//! A micro-benchmark as an ignored test: `cargo test --release -p redraft-gguf --test speed -- --ignored --nocapture`.

#![allow(clippy::unwrap_used)] // a test

use std::hint::black_box;
use std::time::Instant;

use redraft_gguf::{CODECS, Unpacked};

/// Nanoseconds per weight of one thread: the shortest of some runs.
fn fastest(n_weights: usize, mut run: impl FnMut()) -> f64 {
    let seconds = (0..15).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    seconds.fold(f64::INFINITY, f64::min) * 1e9 / n_weights as f64
}

#[test]
#[ignore = "a measurement"]
fn codec_speed() {
    const WEIGHTS: usize = 1 << 16;
    println!("type     unpack  dequantize  encode   ns per weight");
    for c in CODECS {
        let mut word = 1u64;
        let mut next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word >> 33
        };
        let bytes: Vec<u8> =
            (0..WEIGHTS / c.block_len() * c.block_bytes()).map(|_| (next() & 0x3F) as u8).collect();
        let mut x = vec![0.0f32; WEIGHTS];
        let mut block = Unpacked::new();
        let unpack = fastest(WEIGHTS, || {
            for b in black_box(&bytes).chunks_exact(c.block_bytes()) {
                if !c.unpack(b, black_box(&mut block)) {
                    break;
                }
            }
        });
        let unpack = if c.block_len() > 1 { format!("{unpack:6.3}") } else { format!("{:>6}", "-") };
        let dequantize = fastest(WEIGHTS, || c.dequantize(black_box(&bytes), black_box(&mut x)));
        let values: Vec<f32> = (0..WEIGHTS).map(|_| next() as f32 / (1u64 << 31) as f32 - 0.5).collect();
        let encode = c.encoder().map_or_else(String::new, |e| {
            let mut out = vec![0; bytes.len()];
            format!("{:8.2}", fastest(WEIGHTS, || e.quantize(black_box(&values), None, &mut out)))
        });
        println!("{:8} {unpack}    {dequantize:6.3}  {encode}", c.dtype().name());
    }
}
