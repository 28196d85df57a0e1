//! What weighs on logits before a sampler sees them: penalties on tokens that were seen, and bans. Trajectories with penalties
//! are goldens of `blocks.rs` and `llada2.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use common::{commands, config, f32_limits, open, run, testdata};
use redraft::arch::Noise;
use redraft::compute::Numerics;
use redraft::compute::cpu::CpuLevel;
use redraft::engine::{BlockCache, Event, Finish, Philox, Request, StepEvent, generate};
use redraft::receipt::{Check, ModelDigests, Receipt, StepRecorder};
use redraft::sampler::{PROFILES, SAMPLERS, SamplerSpec, sampler};
use redraft::trace::{GenerationRecorder, Limits, compare, like};
use redraft::{LoadOptions, Model};

/// One file of each family, those that read block by block in a folder of their own.
const FILES: [&str; 10] = [
    "dream-tiny.F16.gguf",
    "llada-tiny.BF16.gguf",
    "llada-moe-tiny.BF16.gguf",
    "rnd1-tiny.BF16.gguf",
    "llada2-tiny.BF16.gguf",
    "sdar-tiny.BF16.gguf",
    "sdar-moe-tiny.BF16.gguf",
    "fast-dllm-tiny.BF16.gguf",
    "a2d-qwen3-tiny.BF16.gguf",
    "dg-mini.F32.gguf",
];

fn load(file: &str, options: &LoadOptions) -> Model {
    let blocks = testdata().join("block-diffusion/models").join(file);
    if blocks.exists() { Model::open(&blocks, options).unwrap() } else { open(file, options) }
}

fn threads(n: usize) -> LoadOptions {
    LoadOptions { threads: Some(n), ..LoadOptions::default() }
}

/// Few steps, greedy or with everything drawn, and edits where a sampler edits.
fn request(model: &Model, spec: &'static SamplerSpec, drawn: bool, parameters: &[(&str, f64)]) -> Request {
    let has = |name: &str| spec.params.iter().any(|p| p.name == name);
    let mut all = vec![("steps", 4.0)];
    if has("temperature") {
        all.extend(if drawn {
            [("temperature", 0.8), ("top_p", 0.95)]
        } else {
            [("temperature", 0.0), ("top_p", 1.0)]
        });
    }
    if has("edit_threshold") {
        all.extend([("edit_threshold", 0.0), ("post_steps", 2.0)]);
    }
    all.extend(commands(spec));
    all.extend_from_slice(parameters);
    let all: Vec<_> = all.iter().map(|(n, x)| (n.to_string(), *x)).collect();
    Request {
        // Whole blocks of the models that have them: their first canvas begins with a token that the prompt predicts.
        prompt: (0..16).map(|i| 20 + (i * 37) % 480).collect(),
        max_tokens: 20,
        context_len: model.shape().context_len,
        sampler: spec,
        params: model.params(spec, &all).unwrap(),
        profile: &PROFILES[0],
        end_ids: Vec::new(),
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        self_conditioning: true,
        given: redraft::engine::Given::default(),
        constraint: None,
        cache: BlockCache::None,
        full_logits: false,
        interrupt: None,
    }
}

/// Samplers that fit a model.
fn samplers(model: &Model) -> impl Iterator<Item = &'static SamplerSpec> + use<> {
    let masks = matches!(model.shape().noise, Noise::Mask(_));
    SAMPLERS.iter().copied().filter(move |s| s.masks == masks)
}

/// In no step of any sampler and family, and in no committed canvas; with the same bits on any number of threads, every level
/// and the reference.
#[test]
fn what_is_banned_is_never_drawn() {
    for (i, file) in FILES.iter().enumerate() {
        let mut models = vec![load(file, &threads(1)), load(file, &threads(2))];
        models.push(load(file, &LoadOptions { backend: "reference".into(), ..threads(1) }));
        for level in CpuLevel::available() {
            models.push(load(file, &LoadOptions { cpu_level: Some(level.name().into()), ..threads(3) }));
        }
        for (j, spec) in samplers(&models[0]).enumerate() {
            let drawn = (i + j) % 2 == 0;
            let weights = [("repetition_penalty", 1.2), ("presence_penalty", 0.3)];
            let mut r = request(&models[0], spec, drawn, &weights);
            // All that comes without bans, of which much would come again.
            r.ban = run(&mut models[0], &r, &mut |_| ()).unwrap().committed;
            let banned: BTreeSet<u32> = r.ban.iter().copied().collect();
            let mut answers = Vec::new();
            for model in &mut models {
                let done = run(model, &r, &mut |e| match e {
                    Event::Step(s) => {
                        for p in (0..s.canvas_in.len()).filter(|&p| s.decision.accepted[p]) {
                            assert!(!banned.contains(&s.decision.canvas[p]), "{file} {}", spec.name);
                        }
                    }
                    Event::Commit { ids, .. } => {
                        assert!(!ids.iter().any(|id| banned.contains(id)), "{file} {}", spec.name);
                    }
                    Event::Prompt { .. } => {}
                });
                answers.push(done.unwrap());
            }
            for other in &answers {
                assert_eq!(
                    (&other.committed, &other.digests),
                    (&answers[0].committed, &answers[0].digests),
                    "{file} {}",
                    spec.name
                );
            }
        }
    }
}

/// With a bias of 100 one token is all that comes, with one of -100 a token is as good as banned; with the same bits
/// everywhere.
#[test]
fn a_bias_bans_and_forces() {
    for (i, file) in FILES.iter().enumerate() {
        let mut models = vec![load(file, &threads(1))];
        models.push(load(file, &LoadOptions { backend: "reference".into(), ..threads(1) }));
        for level in CpuLevel::available() {
            models.push(load(file, &LoadOptions { cpu_level: Some(level.name().into()), ..threads(3) }));
        }
        for (j, spec) in samplers(&models[0]).enumerate() {
            let mut r = request(&models[0], spec, (i + j) % 2 == 0, &[]);
            let before = run(&mut models[0], &r, &mut |_| ()).unwrap().ids;
            let often: BTreeSet<u32> = before.iter().copied().collect();
            let bans: Vec<(u32, f64)> = often.iter().map(|&id| (id, -100.0)).collect();
            for bias in [bans, vec![(33, 100.0)], vec![(40, 0.7), (33, 1.3), (21, -0.4)]] {
                r.bias = bias;
                let answers: Vec<_> = models.iter_mut().map(|m| run(m, &r, &mut |_| ()).unwrap()).collect();
                let ids = &answers[0].ids;
                match r.bias[0].1 {
                    -100.0 => assert!(!ids.iter().any(|id| often.contains(id)), "{file} {}", spec.name),
                    100.0 if !spec.moves() => {
                        assert!(ids.iter().all(|&id| id == 33), "{file} {}: {ids:?}", spec.name);
                    }
                    _ => {}
                }
                for other in &answers {
                    assert_eq!(other.digests, answers[0].digests, "{file} {}", spec.name);
                }
            }
        }
    }
    let mut model = load(FILES[0], &threads(1));
    let spec = samplers(&model).next().unwrap();
    for bias in [vec![(1 << 20, 1.0)], vec![(3, 1.0), (3, 2.0)], vec![(3, 101.0)], vec![(3, f64::NAN)]] {
        let r = Request { bias, ..request(&model, spec, false, &[]) };
        let e = run(&mut model, &r, &mut |_| ()).unwrap_err().to_string();
        assert!(e.contains("logit_bias"), "{e}");
    }
}

/// A presence penalty that is lost in rounding goes all the way that a larger one goes and ends at the bits of a run that has
/// none, whose logits of a random canvas are never there as a whole; with self-conditioning, over several canvases.
#[test]
fn what_weighs_nothing_changes_no_bit() {
    for file in FILES {
        for numerics in [Numerics::Exact, Numerics::Fast] {
            let mut model = load(file, &LoadOptions { numerics: Some(numerics), ..threads(2) });
            for spec in samplers(&model) {
                let mut steps = [Vec::new(), Vec::new()];
                let answers = [0.0, 1e-30].map(|presence| {
                    let r = request(&model, spec, true, &[("presence_penalty", presence)]);
                    let steps = &mut steps[usize::from(presence > 0.0)];
                    run(&mut model, &r, &mut |e| {
                        if let Event::Step(s) = e {
                            steps.push((s.result.clone(), s.decision.clone()));
                        }
                    })
                    .unwrap()
                });
                assert_eq!(answers[0].digests, answers[1].digests, "{file} {} {numerics:?}", spec.name);
                assert_eq!(steps[0], steps[1], "{file} {} {numerics:?}", spec.name);
            }
        }
    }
}

/// The statistics of each step of a random canvas, from its raw logits in f64: the prompt, the canvases before and what the
/// step before accepted count as seen, but for the place itself.
#[test]
fn accepted_tokens_of_a_random_canvas_count_as_seen() {
    for (repetition, presence) in [(1.5, 0.0), (1.0, 0.7), (0.8, -0.4)] {
        let mut model = load("dg-mini.F32.gguf", &threads(1));
        let vocab_len = model.shape().vocab_len;
        let spec = sampler("entropy-bound").unwrap();
        let weights =
            [("repetition_penalty", repetition), ("presence_penalty", presence), ("entropy_bound", 8.0)];
        let mut r = request(&model, spec, true, &weights);
        r.full_logits = true;
        r.ban = vec![3, 40, 41];
        let (mut before, mut accepted) = (r.prompt.clone(), Vec::new());
        let (mut own, mut largest) = (0, 0.0f64);
        let mut step = |s: &StepEvent<'_>, before: &[u32]| {
            if s.step == 0 {
                accepted = vec![false; s.canvas_in.len()];
            }
            for (p, raw) in s.logits.unwrap().chunks(vocab_len).enumerate() {
                let others = (0..accepted.len()).filter(|&q| q != p && accepted[q]).map(|q| s.canvas_in[q]);
                let seen: BTreeSet<u32> = before.iter().copied().chain(others).collect();
                own += usize::from(accepted[p] && !seen.contains(&s.canvas_in[p]));
                let mut x = raw.to_vec();
                for &id in &seen {
                    let x = &mut x[id as usize];
                    *x = if *x < 0.0 { *x * repetition } else { *x / repetition } - presence;
                }
                r.ban.iter().for_each(|&id| x[id as usize] = f64::NEG_INFINITY);
                x.iter_mut().for_each(|x| *x /= s.temperature);
                let m = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = x.iter().map(|x| (x - m).exp()).sum();
                let entropy = sum.ln()
                    - x.iter().filter(|x| x.is_finite()).map(|x| (x - m).exp() * (x - m)).sum::<f64>() / sum;
                let r = s.result;
                for (have, want) in [(r.max[p], m), (r.lse[p], m + sum.ln()), (r.entropy[p], entropy)] {
                    largest = largest.max((f64::from(have) - want).abs());
                }
                assert!(m - x[r.argmax[p] as usize] < 1e-4, "step {} position {p}", s.step);
            }
            accepted.clone_from(&s.decision.accepted);
        };
        let done = run(&mut model, &r, &mut |e| match e {
            Event::Step(s) => step(s, &before),
            Event::Commit { ids, .. } => before.extend_from_slice(ids),
            Event::Prompt { .. } => {}
        })
        .unwrap();
        assert!(done.canvases.len() > 1 && own > 5, "{own} tokens that stood only where they were predicted");
        // Logits up to 60, in f32.
        assert!(largest < 1e-4, "{largest}");
    }
}

/// The canvas that a profile commits has noise where nothing was accepted; what is banned is not in it.
#[test]
fn noise_that_is_banned_is_not_committed() {
    let mut model = load("dg-mini.F32.gguf", &threads(1));
    let mut r = request(&model, sampler("entropy-bound").unwrap(), true, &[("entropy_bound", 0.0)]);
    r.profile = &PROFILES[1];
    let free = run(&mut model, &r, &mut |_| ()).unwrap();
    r.ban = free.committed[..12].to_vec();
    let (mut noise, mut argmax, mut canvas) = (Vec::new(), Vec::new(), Vec::new());
    let done = run(&mut model, &r, &mut |e| match e {
        Event::Step(s) => {
            canvas.clone_from(&s.decision.canvas);
            argmax.clone_from(&s.result.argmax);
        }
        Event::Commit { ids, .. } => {
            for p in 0..ids.len() {
                let banned = r.ban.contains(&canvas[p]);
                assert_eq!(ids[p], if banned { argmax[p] } else { canvas[p] });
                noise.push(banned);
            }
        }
        Event::Prompt { .. } => {}
    })
    .unwrap();
    assert!(noise.contains(&true) && !done.committed.iter().any(|id| r.ban.contains(id)));
}

/// With ends of the answer that would come at once: none before so many tokens of the answer, in any step of any sampler and
/// family, and one later on.
#[test]
fn an_answer_does_not_end_too_early() {
    for (i, file) in FILES.iter().enumerate() {
        let mut models = [
            load(file, &threads(1)),
            load(file, &threads(2)),
            load(file, &threads(3)),
            load(file, &LoadOptions { backend: "reference".into(), ..threads(1) }),
        ];
        let mut ended = 0;
        for (j, spec) in samplers(&models[0]).enumerate() {
            let drawn = (i + j) % 2 == 0;
            let mut r = request(&models[0], spec, drawn, &[]);
            let free = run(&mut models[0], &r, &mut |_| ()).unwrap();
            let ends: BTreeSet<u32> = free.committed.iter().copied().collect();
            for min in [0, 3, 7, 18] {
                r = request(&models[0], spec, drawn, &[("min_tokens", min as f64)]);
                r.end_ids = ends.iter().copied().collect();
                let mut answers = Vec::new();
                for model in &mut models {
                    let done = run(model, &r, &mut |e| {
                        let Event::Step(s) = e else { return };
                        for p in (0..s.canvas_in.len()).filter(|&p| s.decision.accepted[p]) {
                            let (place, id) = (s.n_prefix - r.prompt.len() + p, s.decision.canvas[p]);
                            assert!(
                                place >= min || !ends.contains(&id),
                                "{file} {}: {id} at {place}",
                                spec.name
                            );
                        }
                    });
                    answers.push(done.unwrap());
                }
                let first = &answers[0];
                assert!(first.ids.len() >= min, "{file} {} {min}: {:?}", spec.name, first.ids);
                ended += usize::from(min > 0 && first.finish == Finish::Stop);
                for other in &answers {
                    assert_eq!(
                        (&other.ids, &other.digests),
                        (&first.ids, &first.digests),
                        "{file} {}",
                        spec.name
                    );
                }
            }
            // Without ends there is nothing to ban.
            r.end_ids.clear();
            assert_eq!(
                run(&mut models[0], &r, &mut |_| ()).unwrap().digests,
                free.digests,
                "{file} {}",
                spec.name
            );
        }
        assert!(ended > 0, "{file}: no answer ends");
    }
}

/// Deletions move ends to the left, where they may not be.
#[test]
fn an_end_that_moves_does_not_end_an_answer_too_early() {
    let mut model = load("llada2-tiny.BF16.gguf", &threads(1));
    let spec = sampler("edit").unwrap();
    let settings = [("edit_threshold", 0.4), ("steps", 2.0)];
    for first in 20..320 {
        let mut r = request(&model, spec, false, &settings);
        r.prompt[15] = first;
        // Tokens that the model likes: one deletes, half of the others are ends.
        let liked = run(&mut model, &r, &mut |_| ()).unwrap().ids;
        let delete = [("delete_token", f64::from(liked[1])), ("min_tokens", 6.0)];
        r.params = request(&model, spec, false, &[&settings[..], &delete].concat()).params;
        r.end_ids = (0..511).filter(|id| id % 2 == liked[6] % 2 && *id != liked[1]).collect();
        let done = run(&mut model, &r, &mut |_| ()).unwrap();
        assert!(done.ids.len() >= 6 && !done.committed.contains(&511), "{first}: {:?}", done.ids);
    }
}

/// A first token that a prompt pass predicted under other bans is predicted again.
#[test]
fn a_session_forgets_what_it_predicted_under_other_bans() {
    let mut model = load("fast-dllm-tiny.BF16.gguf", &threads(1));
    let draws = Philox { seed: 3, vocab_len: 512 };
    let mut session = model.session().unwrap();
    let mut r = request(&model, sampler("threshold").unwrap(), false, &[]);
    let mut answer = |r: &Request| {
        generate(&mut model, &mut session, r, &draws, &mut |_| ControlFlow::Continue(())).unwrap().ids
    };
    let free = answer(&r);
    r.ban = vec![free[0]];
    let banned = answer(&r);
    assert!(!banned.contains(&free[0]));
    r.ban.clear();
    assert_eq!(answer(&r), free);
}

#[test]
fn what_is_impossible_is_an_error() {
    for file in ["llada-tiny.BF16.gguf", "dg-mini.F32.gguf"] {
        let mut model = load(file, &threads(1));
        let spec = model.sampler().unwrap();
        let n = model.shape().vocab_len as u32;
        let mut with = |ban: Vec<u32>| {
            let r = Request { ban, ..request(&model, spec, false, &[]) };
            run(&mut model, &r, &mut |_| ()).map(|g| g.committed).map_err(|e| e.to_string())
        };
        let e = with((0..n).collect()).unwrap_err();
        assert!(
            e.starts_with("banned tokens: expected one of the") && e.ends_with(&format!("{n} of them")),
            "{e}"
        );
        let e = with(vec![n]).unwrap_err();
        assert!(e.contains("banned token id") && e.contains(&format!("0..{n}")), "{e}");
        // One that is left is all that comes; said twice is said once.
        let left = 77;
        let all_but_one = (0..n).chain(0..5).filter(|&id| id != left).collect();
        assert!(with(all_but_one).unwrap().iter().all(|&id| id == left), "{file}");
    }
    let mut model = load("dg-mini.F32.gguf", &threads(1));
    let n = model.shape().vocab_len as u32;
    let mut r = request(&model, model.sampler().unwrap(), false, &[("min_tokens", 1.0)]);
    (r.ban, r.end_ids) = ((0..n - 3).collect(), (n - 3..n).collect());
    let e = run(&mut model, &r, &mut |_| ()).unwrap_err().to_string();
    assert!(e.ends_with(&format!("{} of them and 3 that cannot stand there", n - 3)), "{e}");
    // The mask token cannot be drawn anyway.
    let mut model = load("llada-tiny.BF16.gguf", &threads(1));
    let Noise::Mask(mask) = model.shape().noise else { panic!("masks") };
    let mut r = request(&model, model.sampler().unwrap(), false, &[]);
    r.ban = (0..512).filter(|&id| id != mask).collect();
    let e = run(&mut model, &r, &mut |_| ()).unwrap_err().to_string();
    assert!(e.contains("that is left, found 511"), "{e}");
}

/// Recordings and receipts say what weighed, and those that do not say had nothing.
#[test]
fn recordings_and_receipts_carry_penalties() {
    for (file, name) in [
        ("llada-tiny.BF16.gguf", "low-confidence"),
        ("fast-dllm-tiny.BF16.gguf", "threshold"),
        ("dg-mini.F32.gguf", "entropy-bound"),
    ] {
        let mut model = load(file, &threads(1));
        let weights = [("repetition_penalty", 1.3), ("presence_penalty", 0.2)];
        let mut r = request(&model, sampler(name).unwrap(), true, &weights);
        r.ban = run(&mut model, &r, &mut |_| ()).unwrap().ids[..4].to_vec();
        let (mut recorder, mut steps) = (GenerationRecorder::default(), StepRecorder::default());
        let done = run(&mut model, &r, &mut |e| {
            recorder.event(e);
            steps.event(e);
        })
        .unwrap();
        let mut recording = recorder.finish(&r.prompt, &done.committed);
        recording.metadata.insert("config".into(), config(&r));
        recording.metadata.insert("sampler".into(), name.into());
        let repeated = like(&mut model, &recording, None).unwrap();
        let report = compare(&recording, &repeated, &Limits { all: true, ..f32_limits() });
        assert!(report.ok, "{name}: {report:#?}");

        let digests = ModelDigests::of(&model, &mut |_, _| true).unwrap();
        let receipt = Receipt::new(&model, digests, &r, 3, &done, steps);
        let text = receipt.to_json().unwrap();
        let receipt = Receipt::parse(text.as_bytes()).unwrap();
        let again = receipt.request(&model).unwrap();
        assert_eq!((&again.ban, &again.params), (&r.ban, &r.params));
        let mut check = Check::new(&receipt);
        let g = run(&mut model, &again, &mut |e| assert!(check.event(e).is_continue())).unwrap();
        assert_eq!(check.finish(Some(&g), model.tokenizer()), None);

        // As a program writes it that knows neither.
        let mut old: serde_json::Value = serde_json::from_str(&text).unwrap();
        old.as_object_mut().unwrap().remove("ban");
        for name in ["repetition_penalty", "presence_penalty", "min_tokens"] {
            old["parameters"].as_object_mut().unwrap().remove(name);
        }
        let old = Receipt::parse(old.to_string().as_bytes()).unwrap().request(&model).unwrap();
        let neutral =
            ["repetition_penalty", "presence_penalty", "min_tokens"].map(|name| old.params.get(name));
        assert_eq!((neutral, old.ban), ([1.0, 0.0, 0.0], Vec::new()));
    }
}
