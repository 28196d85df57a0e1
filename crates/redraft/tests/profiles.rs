//! What the profiles of the reference implementations change in a whole generation, and answers that are
//! empty.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;

use common::open;
use redraft::engine::{BlockCache, Event, Finish, Generation, Given, Philox, Request, generate};
use redraft::sampler::{profile, sampler};
use redraft::{LoadOptions, Model};

/// Window 16, canvas 32.
const FILE: &str = "dg-tiny.Q4_K_M.gguf";

/// What a run showed: the canvas that each canvas started with, what its last step's argmax and canvas were,
/// and the entropy of the very first position.
#[derive(Default)]
struct Seen {
    started: Vec<Vec<u32>>,
    argmax: Vec<u32>,
    canvas: Vec<u32>,
    committed: Vec<Vec<u32>>,
    first_entropy: f32,
}

fn run(model: &mut Model, name: &str, prompt_len: u32, end_ids: Vec<u32>) -> (Generation, Seen) {
    let spec = sampler("entropy-bound").unwrap();
    let request = Request {
        prompt: (0..prompt_len).map(|i| 20 + (i * 37) % 480).collect(),
        max_tokens: 40,
        context_len: model.shape().context_len,
        sampler: spec,
        params: spec.params(model.gguf().metadata(), &[("steps".into(), 3.0)]).unwrap(),
        profile: profile(name).unwrap(),
        end_ids,
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        self_conditioning: true,
        given: Given::default(),
        constraint: None,
        cache: BlockCache::None,
        full_logits: false,
        interrupt: None,
    };
    let draws = Philox { seed: 7, vocab_len: model.shape().vocab_len as u32 };
    let mut session = model.session().unwrap();
    let mut seen = Seen::default();
    let done = generate(model, &mut session, &request, &draws, &mut |event| {
        match event {
            Event::Step(s) => {
                if s.step == 0 {
                    seen.started.push(s.canvas_in.to_vec());
                }
                if s.canvas == 0 && s.step == 0 {
                    seen.first_entropy = s.result.entropy[0];
                }
                seen.argmax.clone_from(&s.result.argmax);
                seen.canvas.clone_from(&s.decision.canvas);
            }
            Event::Commit { ids, .. } => seen.committed.push(ids.to_vec()),
            Event::Prompt { .. } => {}
        }
        ControlFlow::Continue(())
    });
    model.close(session);
    (done.unwrap(), seen)
}

#[test]
fn profiles_differ_where_their_implementations_do() {
    let mut model = open(FILE, &LoadOptions::default());
    let (_, hf) = run(&mut model, "hf", 61, Vec::new());
    let (_, jax) = run(&mut model, "jax", 61, Vec::new());
    let (_, cpp) = run(&mut model, "llamacpp", 61, Vec::new());
    let (_, again) = run(&mut model, "hf", 61, Vec::new());

    assert_ne!(hf.argmax, hf.canvas, "three steps leave noise");
    assert_eq!(hf.committed[1], hf.argmax);
    assert_eq!(cpp.committed[1], cpp.argmax);
    assert_eq!(jax.committed[1], jax.canvas);

    // The same noise for every canvas, or other noise.
    assert_eq!((&hf.started[0], &hf.started[0]), (&jax.started[0], &cpp.started[0]));
    assert_ne!(hf.started[0], hf.started[1]);
    assert_ne!(jax.started[0], jax.started[1]);
    assert_eq!(cpp.started[0], cpp.started[1]);

    // One more key in sliding layers, for one generation.
    assert_ne!(hf.first_entropy, jax.first_entropy);
    assert_eq!(hf.first_entropy, cpp.first_entropy);
    assert_eq!((hf.first_entropy, hf.committed), (again.first_entropy, again.committed));

    // A prompt of W - 1 tokens is seen whole either way, one of W is not.
    let first = |model: &mut Model, name, n| run(model, name, n, Vec::new()).1.first_entropy;
    assert_eq!(first(&mut model, "hf", 15), first(&mut model, "jax", 15));
    assert_ne!(first(&mut model, "hf", 16), first(&mut model, "jax", 16));
}

/// A first canvas that starts with an end token: the answer is empty, and says that it stopped.
#[test]
fn an_answer_that_ends_at_once_is_empty_and_stops() {
    let mut model = open(FILE, &LoadOptions::default());
    let (free, _) = run(&mut model, "hf", 20, Vec::new());
    assert_eq!((free.finish, free.ids.len(), free.canvases.len()), (Finish::Length, 40, 2));
    let end = free.ids[0];
    for name in ["hf", "llamacpp"] {
        let (empty, seen) = run(&mut model, name, 20, vec![end]);
        assert_eq!((empty.finish, empty.ids.len(), empty.canvases.len()), (Finish::Stop, 0, 1));
        assert!(!empty.repetition);
        let pad = model.tokenizer().pad().unwrap_or(0);
        assert_eq!(seen.committed[0][0], end);
        assert!(seen.committed[0][1..].iter().all(|&id| id == pad), "all after the end token is padding");
        assert_eq!(empty.committed, seen.committed[0]);
    }
}
