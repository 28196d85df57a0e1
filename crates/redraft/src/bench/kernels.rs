//! Products of one weight, by block type, mode and number of tokens.

use std::sync::Arc;
use std::time::Instant;

use redraft_compute::cpu::CpuLevel;
use redraft_compute::cpu::peak::process_cpu_seconds;
use redraft_compute::{
    BackendOptions, Blind, InputData, Kind, KvLayout, KvType, Numerics, ProgramBuilder, Weight, WeightTable,
    backend, rng,
};
use redraft_gguf::{Bytes, DType, codec};

use crate::Error;

/// The block types that published files carry.
pub const KERNEL_TYPES: &[DType] = &[
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
    DType::F32,
];

/// Numbers of tokens that tell kernels apart: one, a small group of an expert, a canvas.
pub const KERNEL_TOKENS: [usize; 3] = [1, 16, 256];

/// Batches of runs, of which the best counts.
const BATCHES: usize = 5;

/// About how long a batch runs, in seconds: the system counts CPU time in ticks of some milliseconds.
const BATCH_S: f64 = 0.06;

/// A product of `[tokens, cols]` with weights `[rows, cols]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel {
    /// Block type of the weights.
    pub dtype: DType,
    /// Exact or fast.
    pub numerics: Numerics,
    /// Rows of the activations.
    pub tokens: usize,
    /// Output features.
    pub rows: usize,
    /// Input features; a multiple of 256.
    pub cols: usize,
    /// Instruction set.
    pub level: CpuLevel,
}

/// Measures a product on one thread. Returns multiply-accumulate operations in 10^9 a second of the time that the
/// thread computed; where the system does not tell that, of the time by the clock.
///
/// # Errors
/// Those of the backend; [`Error::Request`] for a type that cannot be written.
pub fn kernel(k: &Kernel) -> Result<f64, Error> {
    let mut table = WeightTable::default();
    let weight = table.add(weight(k)?)?;
    let weights = Arc::new(table);
    let mut b = ProgramBuilder::new(&weights, 0, k.tokens);
    b.set_numerics(k.numerics);
    let x = b.input("x", k.cols, Kind::Real)?;
    let y = b.matmul(x, weight)?;
    b.output(y);
    let program = b.finish();
    let options =
        BackendOptions { threads: Some(1), level: Some(k.level.name().into()), ..Default::default() };
    let mut cpu = (backend("cpu")?.create)(&options, weights)?;
    let seq = cpu.seq_create(&KvLayout::default(), KvType::F32)?;
    let x = noise(k.tokens * k.cols);
    let mut batch = |runs: usize| -> Result<f64, Error> {
        let (start, busy) = (Instant::now(), process_cpu_seconds());
        for _ in 0..runs {
            cpu.run(&program, &[seq], &[InputData::F32(&x)], &mut Blind)?;
        }
        let busy = process_cpu_seconds().zip(busy).map(|(after, before)| after - before);
        Ok(busy.filter(|&s| s > 0.0).unwrap_or_else(|| start.elapsed().as_secs_f64()) / runs as f64)
    };
    batch(1)?;
    let start = Instant::now();
    batch(1)?;
    let runs = (BATCH_S / start.elapsed().as_secs_f64().max(1e-7)).ceil().max(1.0) as usize;
    let mut best = f64::INFINITY;
    for _ in 0..BATCHES {
        best = best.min(batch(runs)?);
    }
    Ok((k.tokens * k.rows * k.cols) as f64 / best / 1e9)
}

/// One row of quantized noise, again and again.
fn weight(k: &Kernel) -> Result<Weight, Error> {
    let request = |expected: &str| Error::Request {
        what: "the weights of a kernel".into(),
        expected: expected.into(),
        found: format!("{} columns of {}", k.cols, k.dtype.name()),
    };
    let encoder = codec(k.dtype).and_then(|c| c.encoder());
    let encoder = encoder.ok_or_else(|| request("a block type that can be written"))?;
    let bytes = k.dtype.row_bytes(k.cols as u64).and_then(|n| usize::try_from(n).ok());
    let mut row = vec![0; bytes.ok_or_else(|| request("whole blocks"))?];
    encoder.quantize(&noise(k.cols), None, &mut row);
    let bytes = Bytes::from(row.repeat(k.rows));
    Ok(Weight { name: "w".into(), dtype: k.dtype, experts: 1, rows: k.rows, cols: k.cols, bytes })
}

/// Numbers in (-1, 1), the same every time.
fn noise(n: usize) -> Vec<f32> {
    (0..n).map(|i| (rng::uniform(0, 0, (i >> 16) as u32, (i & 0xffff) as u32) * 2.0 - 1.0) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_type_can_be_measured() {
        for &dtype in KERNEL_TYPES {
            let k = Kernel {
                dtype,
                numerics: Numerics::Fast,
                tokens: 1,
                rows: 16,
                cols: 256,
                level: CpuLevel::best(),
            };
            let w = weight(&k).unwrap();
            w.check().unwrap();
            assert!(w.first_not_finite().is_none(), "{}", dtype.name());
        }
        let odd = Kernel {
            dtype: DType::Q4_K,
            numerics: Numerics::Exact,
            tokens: 1,
            rows: 1,
            cols: 100,
            level: CpuLevel::best(),
        };
        let e = kernel(&odd).unwrap_err().to_string();
        assert!(e.contains("expected whole blocks, found 100 columns of Q4_K"), "{e}");
    }
}
