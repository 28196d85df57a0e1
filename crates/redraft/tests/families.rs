//! Every golden of the models of masks (forward passes, taps, trajectories of samplers), at the oracle's own limits.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{expand, f32_limits, family_cases, judge, open};
use redraft::compute::Precision;
use redraft::gguf::DType;
use redraft::trace::Limits;
use redraft::{LoadOptions, Model};

/// The files, and how many goldens each has.
const FILES: [(&str, usize); 6] = [
    ("dream-tiny.F16.gguf", 7),
    ("dream-tiny.Q4_K_M-llamacpp.gguf", 1),
    ("llada-tiny.BF16.gguf", 6),
    ("llada-moe-tiny.BF16.gguf", 4),
    ("rnd1-tiny.BF16.gguf", 4),
    ("rnd1-tiny.Q4_K_M.gguf", 1),
];

#[test]
fn every_case_passes_in_f32() {
    let cases = family_cases();
    for (file, n) in FILES {
        assert_eq!(judge(&mut open(file, &LoadOptions::default()), file, &cases, &f32_limits()), n, "{file}");
    }
    assert_eq!(cases.len(), FILES.iter().map(|(_, n)| n).sum::<usize>());
}

#[test]
fn the_f64_truth_passes_at_one_in_a_trillion() {
    let limits = Limits { one_minus_cos: 1e-12, nmse: 1e-12, ..f32_limits() };
    let options = LoadOptions { precision: Precision::F64, ..LoadOptions::default() };
    let cases = family_cases();
    for (file, _) in FILES {
        judge(&mut open(file, &options), file, &cases, &limits);
    }
}

/// Matrices of the oracle are exact in bf16 and in f16.
#[test]
fn float_forms_pass_with_the_goldens_of_the_stored_file() {
    let cases = family_cases();
    for (file, form) in [
        ("dream-tiny.F16.gguf", DType::BF16),
        ("llada-tiny.BF16.gguf", DType::F32),
        ("llada-moe-tiny.BF16.gguf", DType::F16),
        ("rnd1-tiny.BF16.gguf", DType::F32),
    ] {
        let mut model = Model::from_gguf(expand(file, form), &LoadOptions::default()).unwrap();
        judge(&mut model, file, &cases, &f32_limits());
    }
}
