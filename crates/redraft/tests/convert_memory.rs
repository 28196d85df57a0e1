//! Conversion takes as much memory whatever the model's size: shards are mapped, and tensors pass in pieces.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "convert/checkpoint.rs"]
#[allow(dead_code, reason = "helpers of another suite")]
mod checkpoint;

use std::path::Path;

use checkpoint::{Files, Style};
use peak_alloc::PeakAlloc;
use redraft::convert::{ConvertOptions, convert};
use redraft::gguf::{DType, Gguf};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A model as wide as it is shallow: two matrices of 32 MiB, and three of experts with 16 MiB each.
fn wide() -> Files {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/block-diffusion/models/sdar-moe-tiny.BF16.gguf");
    let mut files = Files::new(&Gguf::open(&path, &Default::default()).unwrap(), Style::default());
    let width = 1u64 << 15;
    files.config["hidden_size"] = width.into();
    for (_, shape, dtype, bytes) in &mut files.tensors {
        // Of the sizes of the small model only the width is 64.
        shape.iter_mut().filter(|n| **n == 64).for_each(|n| *n = width);
        let n = shape.iter().product::<u64>() as usize;
        *bytes = vec![0; n * dtype.info().unwrap().block_bytes];
    }
    files
}

#[test]
fn memory_does_not_grow_with_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("in");
    std::fs::create_dir(&folder).unwrap();
    wide().save(&folder, 3);
    let mut peaks = Vec::new();
    for dtype in [None, Some(DType::F16)] {
        let options = ConvertOptions { dtype, overwrite: true, ..ConvertOptions::default() };
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let done = convert(&folder, &dir.path().join("out.gguf"), &options, &mut |_, _| true).unwrap();
        let peak = MEMORY.peak_usage() - before;
        println!("{dtype:?}: {} bytes written, {peak} bytes of memory", done.n_bytes);
        assert!(done.n_bytes > 160 << 20, "{}", done.n_bytes);
        peaks.push(peak);
    }
    // A tenth of the largest tensor; most of it are buffers, the vocabulary, and the widest row.
    assert!(peaks.iter().all(|&peak| peak < 4 << 20), "{peaks:?}");
}
