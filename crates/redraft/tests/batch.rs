//! Answers that are made together have the bits that they have alone.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redraft::arch::Noise;
use redraft::engine::{
    Batch, BlockCache, Event, Finished, Generation, Given, JobId, Philox, Request, Slot, default_max_tokens,
    generate,
};
use redraft::sampler::{PROFILES, SAMPLERS};
use redraft::{Error, LoadOptions, Model};

/// Requests that differ in whatever they can: prompt, length, sampler, steps, guidance, penalties, gaps, profile.
fn requests(model: &Model) -> Vec<(Request, Philox)> {
    let shape = model.shape();
    let masks = matches!(shape.noise, Noise::Mask(_));
    let samplers: Vec<_> = SAMPLERS.iter().filter(|s| s.masks == masks).collect();
    let vocab_len = shape.vocab_len as u32;
    let request = |i: usize| {
        let spec = samplers[i % samplers.len()];
        let has = |name: &str| spec.params.iter().any(|p| p.name == name);
        let mut params = vec![("steps".to_string(), 2.0 + i as f64)];
        if masks && i == 1 && shape.can_be_guided() {
            params.push(("cfg_scale".into(), 0.7));
        }
        if i == 2 {
            params.push(("repetition_penalty".into(), 1.4));
        }
        params.retain(|(name, _)| has(name));
        let prompt: Vec<u32> =
            (0..5 + 13 * i as u32).map(|n| (20 + n * 37 + i as u32) % (vocab_len - 40)).collect();
        let given = match i == 3 && !spec.moves() {
            true => Given { slots: vec![Slot::Fixed(25), Slot::Open, Slot::Fixed(26)], end: None },
            false => Given::default(),
        };
        let profile = if masks { &PROFILES[0] } else { &PROFILES[i % PROFILES.len()] };
        let room = default_max_tokens(shape, spec, shape.context_len, prompt.len());
        let request = Request {
            prompt,
            max_tokens: room.min(8 + 30 * (i % 3)),
            context_len: shape.context_len,
            sampler: spec,
            params: model.params(spec, &params).unwrap(),
            profile,
            end_ids: vec![3],
            ban: Vec::new(),
            bias: Vec::new(),
            logprobs: None,
            self_conditioning: i != 4,
            given,
            constraint: None,
            cache: BlockCache::None,
            full_logits: i == 5,
            interrupt: None,
        };
        (request, Philox { seed: 11 + i as u64, vocab_len })
    };
    (0..7).map(request).collect()
}

fn alone(model: &mut Model, (request, draws): &(Request, Philox)) -> Generation {
    let mut session = model.session().unwrap();
    let done = generate(model, &mut session, request, draws, &mut |_| ControlFlow::Continue(()));
    model.close(session);
    done.unwrap()
}

fn models() -> Vec<PathBuf> {
    let testdata = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let list = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> = list(testdata).flat_map(|folder| list(folder.join("models"))).collect();
    files.sort();
    files
}

/// Every model of the testdata: seven answers, of which one joins each round, or all join the first and share prompt passes;
/// passes hold few or many of them.
#[test]
fn an_answer_does_not_depend_on_who_else_is_there() {
    let mut steps = 0;
    for file in models() {
        for (most_rows, at_once) in [(64, 1), (4096, 1), (4096, 7)] {
            let mut model = Model::open(&file, &LoadOptions::default()).unwrap();
            let requests = requests(&model);
            let mut batch = Batch::new(most_rows, None);
            let mut waiting: Vec<_> = requests.iter().cloned().rev().collect();
            let mut done: Vec<Finished> = Vec::new();
            while !batch.is_empty() || !waiting.is_empty() {
                for (request, draws) in
                    waiting.split_off(waiting.len().saturating_sub(at_once)).into_iter().rev()
                {
                    let session = model.session().unwrap();
                    batch.join(&mut model, session, request, draws).map_err(|(_, e)| e).unwrap();
                }
                let mut count = |_: JobId, event: &Event<'_>| {
                    steps += usize::from(matches!(event, Event::Step(_)));
                    ControlFlow::Continue(())
                };
                done.extend(batch.round(&mut model, &mut count));
            }
            done.sort_by_key(|d| d.id);
            assert_eq!(done.len(), requests.len());
            for (i, (finished, one)) in done.into_iter().zip(&requests).enumerate() {
                let (mut found, mut expected) = (finished.result.unwrap(), alone(&mut model, one));
                (found.timings, expected.timings) = Default::default();
                assert_eq!(found, expected, "{}, answer {i}", file.display());
            }
        }
    }
    assert!(steps > 1000, "{steps}");
}

/// Those that stop, fail or are stopped leave the others alone, and their session can be used again.
#[test]
fn who_leaves_changes_nothing_for_the_others() {
    let mut model = Model::embedded(&LoadOptions::default()).unwrap();
    let requests = requests(&model);
    let mut batch = Batch::new(4096, None);
    for (request, draws) in &requests[..3] {
        let session = model.session().unwrap();
        batch.join(&mut model, session, request.clone(), *draws).map_err(|(_, e)| e).unwrap();
    }
    let session = model.session().unwrap();
    let too_long = Request { context_len: 4, ..requests[0].0.clone() };
    let (session, e) = batch.join(&mut model, session, too_long, requests[0].1).unwrap_err();
    assert!(matches!(e, Error::ContextOverflow { .. }), "{e}");
    model.close(session);

    let mut done: Vec<Finished> = Vec::new();
    let mut round = 0;
    while !batch.is_empty() {
        round += 1;
        if round == 3 {
            batch.stop(JobId(0));
        }
        // The second one ends itself.
        let mut leave = |id: JobId, event: &Event<'_>| match event {
            Event::Step(s) if id == JobId(1) && s.step == 1 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        done.extend(batch.round(&mut model, &mut leave));
    }
    done.sort_by_key(|d| d.id);
    assert!(done[..2].iter().all(|d| matches!(d.result, Err(Error::Interrupted))));
    let digests = |g: &Generation| g.digests.clone();
    let third = done.pop().unwrap();
    assert_eq!(digests(third.result.as_ref().unwrap()), digests(&alone(&mut model, &requests[2])));
    // The session of one that left.
    let mut session = done.remove(0).session;
    let (request, draws) = &requests[0];
    let again =
        generate(&mut model, &mut session, request, draws, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(digests(&again), digests(&alone(&mut model, &requests[0])));
}

/// The flag of the batch ends all answers, also while they share a pass.
#[test]
fn everything_can_be_stopped() {
    let mut model = Model::embedded(&LoadOptions::default()).unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    let mut batch = Batch::new(4096, Some(Arc::clone(&flag)));
    for (request, draws) in &requests(&model)[4..] {
        let session = model.session().unwrap();
        batch.join(&mut model, session, request.clone(), *draws).map_err(|(_, e)| e).unwrap();
    }
    // Set within the second round, before the pass of the one whose logits are watched.
    let mut steps = 0;
    let mut done = Vec::new();
    while !batch.is_empty() {
        done.extend(batch.round(&mut model, &mut |_, event| {
            steps += usize::from(matches!(event, Event::Step(_)));
            flag.store(steps > 3, Ordering::Relaxed);
            ControlFlow::Continue(())
        }));
    }
    assert!(done.len() == 3 && steps < 6, "{steps}");
    assert!(done.iter().all(|d| matches!(d.result, Err(Error::Interrupted))));
}
