//! Mistakes that another program made: an independent one, with one mistake edited into its text at a time, of which only the
//! logits are given (`testdata/diagnose/README.md`).
#![allow(clippy::unwrap_used)] // a test, with helpers

mod common;

use std::path::{Path, PathBuf};

use redraft::diagnose::{Rounding, Settings, Verdict, diagnose};
use redraft::gguf::{DType, Gguf};
use redraft::trace::{Elements, TraceFile, like};
use redraft::{LoadOptions, Model};

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

#[test]
fn mistakes_of_another_program_are_named_from_its_logits() {
    let mut told = 0;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(testdata("diagnose")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|p| p.extension().is_some_and(|e| e == "safetensors")) {
        let mut theirs = TraceFile::open(path).unwrap();
        let (model, expected) = (theirs.metadata["model"].clone(), theirs.metadata["told"].clone());
        let stem = model.trim_end_matches(".gguf");
        let case = |kind: &str| testdata(&format!("oracle/cases/{stem}.{kind}.safetensors"));
        let golden = [case("decode-sc"), case("forward")].into_iter().find(|p| p.exists()).unwrap();
        // The inputs are those of the golden.
        for (name, tensor) in TraceFile::open(&golden).unwrap().tensors {
            if ["prompt_ids", "canvas_ids", "chunk_lengths", "sc_logits", "ids"].contains(&&*name) {
                theirs.tensors.insert(name, tensor);
            }
        }
        let gguf = Gguf::open(&testdata(&format!("oracle/models/{model}")), &Default::default()).unwrap();
        let settings = Settings { rounding: Some(Rounding::F32), ..Settings::default() };
        let found = diagnose(&gguf, &theirs, &settings, &mut |_| {}).unwrap();
        let name = match &found.verdict {
            Verdict::Rounding { .. } => "rounding".to_string(),
            Verdict::Fault(mistake) => mistake.fault.clone(),
            Verdict::Unexplained { .. } => "unexplained".to_string(),
            Verdict::Undecided { .. } => "undecided".to_string(),
        };
        assert_eq!(
            name,
            expected,
            "{} ({}): {:?}",
            path.display(),
            theirs.metadata["mistake"],
            found.verdict
        );
        told += 1;
    }
    assert_eq!(told, 38);
}

#[test]
fn files_that_cannot_be_judged_say_why() {
    let gguf = Gguf::open(&testdata("oracle/models/dream-tiny.F16.gguf"), &Default::default()).unwrap();
    let judged = |file: &TraceFile| diagnose(&gguf, file, &Settings::default(), &mut |_| {});
    let golden = TraceFile::open(&testdata("oracle/cases/dream-tiny.F16.forward.safetensors")).unwrap();
    let error = |file: &TraceFile| judged(file).unwrap_err().to_string();
    let only = |names: &[&str]| {
        let mut file = golden.clone();
        file.tensors.retain(|name, _| names.contains(&name.as_str()));
        file
    };
    assert!(error(&only(&["logits"])).contains("neither prompt_ids or ids"));
    assert!(error(&only(&["ids"])).contains("no result of a pass"));
    let trajectory = testdata("oracle/cases/dream-tiny.F16.sampler-origin.safetensors");
    assert!(error(&TraceFile::open(&trajectory).unwrap()).contains("a whole generation"));
    // A tap of another size is left out and said; numbers that are none leave the floor.
    let mut file = only(&["ids", "logits", "l_out-1"]);
    let tap = file.tensors.get_mut("l_out-1").unwrap();
    tap.shape = vec![1, 3];
    tap.data = redraft::trace::Elements::F32(vec![1.0, 2.0, 3.0]);
    let found = judged(&file).unwrap();
    assert!(
        found.skipped.iter().any(|line| line.starts_with("l_out-1: shape [1, 3]")),
        "{:?}",
        found.skipped
    );
    assert!(matches!(found.verdict, Verdict::Rounding { .. }));
    let logits = file.tensors.get_mut("logits").unwrap();
    logits.data = redraft::trace::Elements::F32(vec![f32::NAN; logits.data.len()]);
    assert!(matches!(judged(&file).unwrap().verdict, Verdict::Unexplained { .. }));
}

/// Without the norm before the feed-forward blocks large embeddings are squared in each layer, which f32 cannot hold: that
/// mistake is not theirs, and the others are tried all the same.
#[test]
fn a_mistake_whose_numbers_overflow_is_not_theirs() {
    let whole = common::expand("dream-tiny.F16.gguf", DType::F32);
    let table = whole.tensors().iter().find(|t| t.name == "token_embd.weight").unwrap();
    let start = whole.files()[0].data_offset as usize + table.offset as usize;
    let mut bytes = whole.bytes().to_vec();
    for x in bytes[start..start + 4 * table.n_elements() as usize].as_chunks_mut::<4>().0 {
        *x = (f32::from_le_bytes(*x) * 1e9).to_le_bytes();
    }
    let gguf = Gguf::from_bytes(bytes.into()).unwrap();
    let golden = TraceFile::open(&testdata("oracle/cases/dream-tiny.F16.forward.safetensors")).unwrap();
    let mut model = Model::from_gguf(gguf.clone(), &LoadOptions::default()).unwrap();
    let mut theirs = like(&mut model, &golden, None).unwrap();
    theirs.tensors.retain(|name, _| name == "logits");
    theirs.tensors.insert("ids".into(), golden.tensors["ids"].clone());
    let logits = theirs.tensors.get_mut("logits").unwrap();
    let mut x = logits.data.to_f64();
    x.rotate_right(model.shape().vocab_len);
    logits.data = Elements::F64(x);
    let found = diagnose(&gguf, &theirs, &Settings::default(), &mut |_| {}).unwrap();
    let Verdict::Fault(mistake) = &found.verdict else { panic!("{:?}", found.verdict) };
    assert_eq!(mistake.fault, "logits-shifted-right");
    let tried: Vec<&str> = found.tried.iter().map(|t| t.fault.as_str()).collect();
    assert!(tried.contains(&"norm-missing:attn_norm.weight"), "{tried:?}");
    assert!(!tried.contains(&"norm-missing:ffn_norm.weight"), "{tried:?}");
}

/// A factor that is wrong after the first layer's attention, in f32: a cache of 8 bits would have moved that attention.
#[test]
fn what_a_cache_rounds_does_not_excuse_what_comes_after_exact_attention() {
    let whole = common::expand("dg-tiny.BF16.gguf", DType::F32);
    let name = "blk.0.ffn_norm.weight";
    let norm = whole.tensors().iter().find(|t| t.name == name).unwrap();
    let start = whole.files()[0].data_offset as usize + norm.offset as usize;
    let mut bytes = whole.bytes().to_vec();
    for x in bytes[start..start + 4 * norm.n_elements() as usize].as_chunks_mut::<4>().0 {
        *x = (f32::from_le_bytes(*x) * 1.003).to_le_bytes();
    }
    let wrong = Gguf::from_bytes(bytes.into()).unwrap();
    let mut golden = TraceFile::open(&testdata("oracle/cases/dg-tiny.BF16.decode-sc.safetensors")).unwrap();
    golden.tensors.retain(|name, _| !name.starts_with("logits_"));
    let mut theirs =
        like(&mut Model::from_gguf(wrong, &LoadOptions::default()).unwrap(), &golden, None).unwrap();
    for name in ["prompt_ids", "canvas_ids", "chunk_lengths", "sc_logits"] {
        theirs.tensors.extend(golden.tensors.get_key_value(name).map(|(k, t)| (k.clone(), t.clone())));
    }
    let found = diagnose(&whole, &theirs, &Settings::default(), &mut |_| {}).unwrap();
    let Verdict::Unexplained { first, .. } = &found.verdict else { panic!("{:?}", found.verdict) };
    // Exact attention is that of a finer kind.
    assert_eq!((first.as_str(), found.rounding), ("dec/l_out-0", Rounding::F32));
}

/// A token alone, which another expert may take: an honest program is so far from the truth that zeros are no further.
#[test]
fn what_no_honest_program_can_tell_is_not_called_rounding() {
    let gguf = Gguf::open(&testdata("llada2/models/llada2-tiny.BF16.gguf"), &Default::default()).unwrap();
    let vocab_len = Model::from_gguf(gguf.clone(), &LoadOptions::default()).unwrap().shape().vocab_len;
    let judged = |ids: &[i64], logits: Elements| {
        let mut theirs = TraceFile::default();
        theirs.insert("ids", vec![ids.len()], Elements::I64(ids.to_vec()));
        theirs.insert("logits", vec![ids.len(), vocab_len], logits);
        diagnose(&gguf, &theirs, &Settings::default(), &mut |_| {})
    };
    for ids in [&[495][..], &[430], &[193, 18, 337]] {
        let zeros = Elements::F32(vec![0.0; ids.len() * vocab_len]);
        let found = judged(ids, zeros).unwrap();
        assert!(
            !matches!(found.verdict, Verdict::Rounding { .. } | Verdict::Fault(_)),
            "{ids:?}: {:?}",
            found.verdict
        );
    }
    let zeros = judged(&[495], Elements::F32(vec![0.0; vocab_len])).unwrap();
    let Verdict::Undecided { at, theirs, honest } = &zeros.verdict else { panic!("{:?}", zeros.verdict) };
    assert!(at == "logits" && *theirs == 1.0 && *honest > 0.3, "{at} {theirs} {honest}");
    let integers = judged(&[495], Elements::I32(vec![0; vocab_len])).unwrap_err().to_string();
    assert!(integers.contains("tensor logits: expected numbers, found integers"), "{integers}");
}

#[test]
fn kinds_that_a_model_cannot_have_and_passes_that_do_not_fit_are_said() {
    let gguf = Gguf::open(&testdata("oracle/models/dream-tiny.F16.gguf"), &Default::default()).unwrap();
    let golden = TraceFile::open(&testdata("oracle/cases/dream-tiny.F16.forward.safetensors")).unwrap();
    let settings = Settings { rounding: Some(Rounding::LlamaCppKvI8), ..Settings::default() };
    let error = diagnose(&gguf, &golden, &settings, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("not computed in llamacpp-kv-i8"), "{error}");
    let mut long = TraceFile::default();
    let context = Model::from_gguf(gguf.clone(), &LoadOptions::default()).unwrap().shape().context_len;
    long.insert("ids", vec![context + 1], Elements::I64(vec![20; context + 1]));
    long.insert("logits", vec![1, 1], Elements::F32(vec![0.0]));
    let error = diagnose(&gguf, &long, &Settings::default(), &mut |_| {}).unwrap_err().to_string();
    assert!(
        error.contains(&format!("its passes have {} tokens, and the model's context {context}", context + 1)),
        "{error}"
    );
}
