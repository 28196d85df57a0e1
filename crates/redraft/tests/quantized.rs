//! Models in every type that can be written: that each of them runs, and what the types cost in logits.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;
use std::path::Path;

use common::{LogitsSink, exact, oracle_cases, oracle_model, testdata};
use redraft::Model;
use redraft::convert::{MIXES, QuantizePlan, Recipe};
use redraft::engine::{CanvasPass, canvas_pass};
use redraft::gguf::{CODECS, DType, Gguf};
use redraft::trace::{TraceFile, like};

/// All pure types that can be written, in upper case, and all mixes, in lower case.
fn recipes() -> Vec<(String, Recipe)> {
    let writable = CODECS.iter().filter(|c| c.encoder().is_some()).map(|c| c.dtype());
    let pure = writable.map(|d| (d.to_string(), Recipe::pure(d).unwrap()));
    pure.chain(MIXES.iter().map(|m| (m.name.to_string(), Recipe::from_name(m.name).unwrap()))).collect()
}

/// The model, the bytes of its file, and its tensors by type.
fn quantized(source: &Gguf, recipe: &Recipe) -> (Model, u64, Vec<(DType, usize)>) {
    let mut file = Vec::new();
    let plan = QuantizePlan::new(source, recipe, None).unwrap();
    plan.write(&mut file, 2, &mut |_, _| true).unwrap();
    let gguf = Gguf::from_bytes(file.into()).unwrap();
    (Model::from_gguf(gguf, &exact()).unwrap(), plan.bytes(), plan.types())
}

/// Mean squared error relative to the mean square of the truth: 1 for logits of zero, which know nothing, and
/// about 2 for those of an unrelated model.
fn nmse(x: &[f64], truth: &[f64]) -> f64 {
    assert_eq!(x.len(), truth.len());
    let error: f64 = x.iter().zip(truth).map(|(a, b)| (a - b) * (a - b)).sum();
    error / truth.iter().map(|x| x * x).sum::<f64>()
}

fn argmax(row: &[f64]) -> usize {
    (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

/// Logits `[32, 1536]` of the first canvas of the recorded generations of redraft-tiny, one after the other.
fn first_steps(model: &mut Model, goldens: &[TraceFile]) -> Vec<f64> {
    let mut all = Vec::new();
    for golden in goldens {
        let mut session = model.session().unwrap();
        let prompt = golden.ids("prompt_ids").unwrap();
        session.set_prompt(model, &prompt, &mut (), &mut |_, _| ControlFlow::Continue(())).unwrap();
        let mut sink = LogitsSink::default();
        let canvas = golden.ids("canvas_in").unwrap();
        let pass = CanvasPass::new(&canvas[..32]);
        canvas_pass(model, &session, pass, &mut sink).unwrap();
        all.extend(sink.0.into_iter().map(f64::from));
    }
    all
}

/// A trained model, redraft-tiny. What is asserted is that the logits know something; the table is printed.
#[test]
fn a_trained_model_runs_in_every_type_that_can_be_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/redraft-tiny/redraft-tiny-bf16.gguf");
    let source = Gguf::open(&path, &Default::default()).unwrap();
    let golden = |n| TraceFile::open(&testdata().join(format!("redraft-tiny/traj-{n}.safetensors"))).unwrap();
    let goldens: Vec<TraceFile> = (0..5).map(golden).collect();
    let truth = first_steps(&mut quantized(&source, &Recipe::pure(DType::F32).unwrap()).0, &goldens);
    let mut bad = Vec::new();
    println!("type       nmse       same argmax  bytes");
    for (name, recipe) in recipes() {
        let (mut model, bytes, _) = quantized(&source, &recipe);
        let logits = first_steps(&mut model, &goldens);
        let (rows, vocab_len) = (5 * 32, truth.len() / (5 * 32));
        let same =
            logits.chunks(vocab_len).zip(truth.chunks(vocab_len)).filter(|(a, b)| argmax(a) == argmax(b));
        let (error, same) = (nmse(&logits, &truth), same.count() as f64 / rows as f64);
        println!("{name:10} {error:9.2e}  {:6.1} %    {:8}", 100.0 * same, bytes);
        if error.is_nan() || error >= 1.0 {
            bad.push(format!("{name}: {error}"));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

/// Random weights, against the float64 reference. Rows of experts are no super-blocks here, so that types of mixes meet
/// their substitutes; and experts are chosen by next to nothing, so that few bits mean other experts.
#[test]
#[ignore = "a measurement"]
fn logits_of_a_random_model_in_every_type() {
    let (_, golden) = oracle_cases().into_iter().find(|(name, _)| name == "dg-tiny.BF16.decode").unwrap();
    let truth = golden.tensors["logits"].data.to_f64();
    let source = Gguf::open(&oracle_model("dg-tiny.BF16.gguf"), &Default::default()).unwrap();
    for (name, recipe) in recipes().into_iter().filter(|(name, _)| MIXES.iter().any(|m| m.name == name)) {
        let (mut model, bytes, types) = quantized(&source, &recipe);
        let logits = like(&mut model, &golden, None).unwrap().tensors["logits"].data.to_f64();
        let types: Vec<String> = types.iter().map(|(d, n)| format!("{d} x{n}")).collect();
        println!("{name:10} {:9.2e} {:8} bytes  {}", nmse(&logits, &truth), bytes, types.join(", "));
    }
}
