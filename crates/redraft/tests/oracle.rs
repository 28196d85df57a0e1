//! Every DiffusionGemma golden of the oracle, judged with `compare` at the oracle's own limits.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;

use common::{exact, expand, f32_limits, judge, open, oracle_cases};
use redraft::compute::Precision;
use redraft::gguf::DType;
use redraft::trace::{Bounds, Limits, compare, like};
use redraft::{LoadOptions, Model};

#[test]
fn every_case_of_every_stored_file_passes_in_f32() {
    let cases = oracle_cases();
    let mut files: Vec<&String> = cases.iter().map(|(_, g)| &g.metadata["model"]).collect();
    files.sort();
    files.dedup();
    assert_eq!(files.len(), 5, "{files:?}");
    let run = |f: &&String| judge(&mut open(f, &exact()), f, &cases, &f32_limits());
    assert_eq!(files.iter().map(run).sum::<usize>(), 27);
}

/// Matrices of the oracle are exact in bf16 and in f16, so every float form has the goldens of the stored one.
#[test]
fn float_forms_pass_with_the_goldens_of_the_stored_file() {
    let cases = oracle_cases();
    for (file, forms) in
        [("dg-mini.F32.gguf", [DType::F16, DType::BF16]), ("dg-tiny.BF16.gguf", [DType::F32, DType::F16])]
    {
        for form in forms {
            let mut model = Model::from_gguf(expand(file, form), &exact()).unwrap();
            judge(&mut model, file, &cases, &f32_limits());
        }
    }
}

#[test]
fn the_f64_truth_passes_at_one_in_a_trillion() {
    let cases = oracle_cases();
    let limits = Limits { bounds: Bounds::relative(1e-12), ..f32_limits() };
    let options = LoadOptions { precision: Precision::F64, ..LoadOptions::default() };
    for file in [
        "dg-mini.F32.gguf",
        "dg-mini.Q8_0.gguf",
        "dg-tiny.BF16.gguf",
        "dg-tiny.Q4_K_M.gguf",
        "dg-k256.Q4_K_M.gguf",
    ] {
        judge(&mut open(file, &options), file, &cases, &limits);
    }
}

/// The oracle's list of mistakes that the logits hide: each needs a tap that is really in the goldens.
#[test]
fn taps_pin_the_mistakes_that_logits_cannot_show() {
    let cases: BTreeMap<_, _> = oracle_cases().into_iter().collect();
    let golden = &cases["dg-mini.F32.decode-sc"];
    let mut model = open("dg-mini.F32.gguf", &exact());
    let candidate = like(&mut model, golden, None).unwrap();
    let report = compare(golden, &candidate, &f32_limits());
    // Top-k not renormalised or renormalised after the per-expert scale; soft embedding without sqrt(n);
    // eps ignored; a wrong window on either kind of layer.
    for tap in
        ["ffn_moe_weights_scaled-0", "ffn_moe_out-1", "sc_soft", "sc_normed", "attn_norm-0", "kq_visible-0"]
    {
        let name = format!("dec/{tap}");
        assert!(report.rows.iter().any(|r| r.name == name && r.ok), "{name} was not compared");
    }
    // A prompt pass with the canvas scalar shows in the keys of the second layer of the deep model.
    assert!(cases["dg-tiny.BF16.prefill"].tensors.contains_key("enc/l_out-1"));
}

/// What bfloat16 costs: our bf16 forward and the stored bf16 logits of the reference, both against f64.
#[test]
fn bf16_error_is_of_the_size_of_the_references_own() {
    let (mut ours, mut theirs, mut norm) = (0.0, 0.0, 0.0);
    let mut n = 0;
    for (name, golden) in oracle_cases().iter().filter(|(_, g)| g.tensors.contains_key("logits_bf16")) {
        let options = LoadOptions { precision: Precision::Bf16, ..LoadOptions::default() };
        let candidate = like(&mut open(&golden.metadata["model"], &options), golden, None).unwrap();
        let truth = golden.tensors["logits"].data.to_f64();
        let squared = |x: &[f64]| x.iter().zip(&truth).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let (a, b) = (
            squared(&candidate.tensors["logits"].data.to_f64()),
            squared(&golden.tensors["logits_bf16"].data.to_f64()),
        );
        println!(
            "{name}: nmse of ours {:.2e}, of theirs {:.2e}",
            a / squared(&vec![0.0; truth.len()]),
            b / squared(&vec![0.0; truth.len()])
        );
        ours += a;
        theirs += b;
        norm += squared(&vec![0.0; truth.len()]);
        n += 1;
    }
    println!("pooled over {n}: ours {:.3e}, theirs {:.3e}", ours / norm, theirs / norm);
    assert_eq!(n, 10);
    // Both are dominated by the same roundings and by flipped experts; a missing rounding would make ours
    // much better, a doubled one much worse.
    let ratio = ours / theirs;
    assert!((0.25..4.0).contains(&ratio), "{ratio}");
}
