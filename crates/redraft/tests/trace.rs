//! Goldens and recordings that do not fit the model, or say how they were made.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;

use common::{config, open, testdata, with_metadata};
use redraft::engine::{BlockCache, Given, Philox, Request, generate};
use redraft::gguf::Metadata;
use redraft::sampler::PROFILES;
use redraft::trace::{Elements, GenerationRecorder, TraceFile, like};
use redraft::{Error, LoadOptions, Model};

fn golden(name: &str) -> TraceFile {
    TraceFile::open(&testdata().join(format!("oracle/cases/{name}.safetensors"))).unwrap()
}

/// A recording of an answer of `max_tokens`, with what `like` needs to repeat it.
fn recording(model: &mut Model, max_tokens: usize, self_conditioning: bool) -> TraceFile {
    let sampler = model.sampler().unwrap();
    let request = Request {
        prompt: vec![20, 31, 57],
        max_tokens,
        context_len: model.shape().context_len,
        sampler,
        params: model.params(sampler, &[("steps".into(), 3.0)]).unwrap(),
        profile: &PROFILES[0],
        end_ids: Vec::new(),
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        self_conditioning,
        given: Given::default(),
        constraint: None,
        cache: BlockCache::None,
        full_logits: false,
        interrupt: None,
    };
    let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
    let mut recorder = GenerationRecorder::default();
    let mut session = model.session().unwrap();
    let done = generate(model, &mut session, &request, &draws, &mut |e| {
        recorder.event(e);
        ControlFlow::Continue(())
    });
    model.close(session);
    let mut file = recorder.finish(&request.prompt, &done.unwrap().committed);
    file.metadata.insert("config".into(), config(&request));
    file
}

#[test]
fn a_golden_longer_than_the_context_is_refused() {
    let golden = golden("dream-tiny.F16.forward");
    assert_eq!(golden.tensors["ids"].shape, [16]);
    let like = |context: u32| {
        let set = |m: &mut Metadata| m.set("dream.context_length", context);
        like(&mut with_metadata("dream-tiny.F16.gguf", set).unwrap(), &golden, None)
    };
    let e = like(15).unwrap_err();
    assert!(matches!(e, Error::ContextOverflow { prompt: 16, answer: 0, context: 15 }), "{e}");
    assert!(like(16).unwrap().tensors.contains_key("logits"), "as many as there is room for");
}

#[test]
fn raw_logits_of_steps_of_masks_are_refused() {
    let mut model = open("llada-tiny.BF16.gguf", &LoadOptions::default());
    let mut file = recording(&mut model, 6, true);
    assert!(like(&mut model, &file, None).is_ok());
    file.insert("raw_logits_step", vec![1], Elements::I32(vec![1]));
    let e = like(&mut model, &file, None).unwrap_err().to_string();
    assert!(e.contains("raw_logits_step: a step of llada predicts only the positions"), "{e}");
}

#[test]
fn a_recording_says_whether_there_was_self_conditioning() {
    let mut model = open("dg-mini.F32.gguf", &LoadOptions::default());
    let mut repeated = |file: &TraceFile, said: Option<&str>| {
        let mut file = file.clone();
        file.metadata.extend(said.map(|s| ("self_conditioning".to_string(), s.to_string())));
        like(&mut model, &file, None).map(|f| f.tensors["entropy"].data == file.tensors["entropy"].data)
    };
    let [with, without] =
        [true, false].map(|s| recording(&mut open("dg-mini.F32.gguf", &LoadOptions::default()), 16, s));
    for (file, said, equal) in [
        (&with, None, true),
        (&with, Some("true"), true),
        (&with, Some("false"), false),
        (&without, None, false),
        (&without, Some("false"), true),
    ] {
        assert_eq!(repeated(file, said).unwrap(), equal, "{said:?}");
    }
    let e = repeated(&with, Some("maybe")).unwrap_err().to_string();
    assert!(e.contains("`self_conditioning`: expected true or false, found maybe"), "{e}");
}

/// What `k` counts and whether the first position stays is of the format, not of the sampler: Dream's reserves nothing.
#[test]
fn the_format_of_rnd1_counts_what_stays_masked() {
    let mut file = golden("dream-tiny.F16.sampler-entropy");
    let mut model = open("dream-tiny.F16.gguf", &LoadOptions::default());
    let mut run = |config: &str| {
        file.metadata.insert("config".into(), config.into());
        let f = like(&mut model, &file, None).unwrap();
        let ints = |name: &str| f.ints(name).unwrap();
        let masks = |x: Vec<i64>| -> Vec<i64> {
            x.chunks(35).map(|row| row.iter().filter(|&&id| id == 511).count() as i64).collect()
        };
        let (before, after) = (masks(ints("x_in")), masks(ints("x_out")));
        let revealed = before.iter().zip(&after).map(|(a, b)| a - b).collect::<Vec<_>>();
        let first = |name: &str| ints(name).chunks(35).map(|row| row[0]).collect::<Vec<_>>();
        (ints("k"), after, revealed, first("argmax") == first("x_in"))
    };
    let (k, after, revealed, stays) = run(r#"{"seq_len": 35, "steps": 5}"#);
    assert_ne!(after, revealed);
    assert_eq!((k, stays), (after, true));
    let (k, _, revealed, stays) = run(r#"{"alg": "entropy", "max_length": 35, "steps": 5, "eps": 0.001}"#);
    assert_eq!((k, stays), (revealed, false));
}
