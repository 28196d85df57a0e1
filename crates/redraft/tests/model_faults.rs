//! Faults of model files that loading repairs, with one note each.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

mod common;

use redraft::Model;
use redraft::gguf::Metadata;
use redraft::sampler::sampler;

/// The smallest golden model with other metadata.
fn model(change: impl FnOnce(&mut Metadata)) -> Model {
    common::with_metadata("dg-mini.Q8_0.gguf", change).unwrap()
}

#[test]
fn missing_diffusion_keys_have_the_model_cards_values() {
    let stated = model(|meta| meta.set("diffusion.eb_max_steps", 7u32));
    let silent = model(|meta| {
        let keys: Vec<String> =
            meta.iter().map(|(k, _)| k.to_owned()).filter(|k| k.starts_with("diffusion.")).collect();
        assert_eq!(keys, ["diffusion.canvas_length"]);
        keys.iter().for_each(|k| drop(meta.remove(k)));
    });
    let new: Vec<&String> = silent.notes().iter().filter(|n| !stated.notes().contains(n)).collect();
    assert_eq!(new, ["the file has no diffusion.canvas_length; taking 256"]);
    assert_eq!(silent.shape().canvas_len, 256);
    let spec = sampler("entropy-bound").unwrap();
    let steps = |m: &Model| spec.params(m.gguf().metadata(), &[]).unwrap().get("steps");
    assert_eq!((steps(&stated), steps(&silent)), (7.0, 48.0));
    let params = spec.params(silent.gguf().metadata(), &[]).unwrap();
    for (name, value) in
        [("t_min", 0.4), ("t_max", 0.8), ("entropy_bound", 0.1), ("stability", 1.0), ("confidence", 0.005)]
    {
        assert_eq!(params.get(name), value, "{name}");
    }
}

#[test]
fn faults_of_the_vocabulary_are_notes_of_the_model() {
    let notes = |m: &Model| m.notes().iter().filter(|n| n.contains("markers of the chat")).count();
    let stated = model(|_| ());
    assert_eq!(notes(&stated), 1, "{:?}", stated.notes());
    let padded = model(|meta| meta.set("tokenizer.ggml.eos_token_id", 0u32));
    let new: Vec<&String> = padded.notes().iter().filter(|n| !stated.notes().contains(n)).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    assert!(new[0].starts_with("\"tokenizer.ggml.eos_token_id\" is 0 (\"<pad>\"); not taken"), "{new:?}");
    assert_eq!(padded.tokenizer().end_ids(), stated.tokenizer().end_ids());
}
