//! Text around gaps, in every family: what is given stays, gaps have their lengths and hold text, and neither threads nor
//! instruction sets nor caches change a bit.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;
use std::path::PathBuf;

use common::{LogitsSink, changed, testdata};
use redraft::arch::{Noise, Reading};
use redraft::compute::cpu::CpuLevel;
use redraft::engine::{
    BlockCache, CanvasPass, Event, Finish, Generation, Given, Philox, Request, Session, Slot, canvas_pass,
    generate,
};
use redraft::fill::{Fill, Filled, Lengths, Template, fill, find_lengths, parse};
use redraft::gguf::Gguf;
use redraft::receipt::{Check, ModelDigests, Receipt, StepRecorder};
use redraft::sampler::{PROFILES, SAMPLERS, SamplerSpec, profile, sampler};
use redraft::tokenizer::Specials;
use redraft::{Error, LoadOptions, Model};

/// The tiny models, with the length of a block where it is not the file's own.
const ALL: [(&str, Option<u32>); 11] = [
    ("oracle/models/dg-mini.F32.gguf", None),
    ("oracle/models/dream-tiny.F16.gguf", None),
    ("oracle/models/llada-tiny.BF16.gguf", None),
    ("oracle/models/llada-moe-tiny.BF16.gguf", None),
    ("oracle/models/rnd1-tiny.BF16.gguf", None),
    ("block-diffusion/models/a2d-qwen3-tiny.BF16.gguf", None),
    ("block-diffusion/models/a2d-qwen3-tiny.BF16.gguf", Some(4)),
    ("block-diffusion/models/sdar-tiny.BF16.gguf", None),
    ("block-diffusion/models/sdar-moe-tiny.BF16.gguf", None),
    ("block-diffusion/models/fast-dllm-tiny.BF16.gguf", Some(4)),
    ("llada2/models/llada2-tiny.BF16.gguf", None),
];

fn path(file: &str) -> PathBuf {
    testdata().join(file)
}

fn open_with((file, block): (&str, Option<u32>), options: &LoadOptions) -> Model {
    let gguf = match block {
        Some(len) => changed(&path(file), |m| m.set("diffusion.canvas_length", len)),
        None => Gguf::open(&path(file), &Default::default()).unwrap(),
    };
    Model::from_gguf(gguf, options).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn open(of: (&str, Option<u32>)) -> Model {
    open_with(of, &LoadOptions { threads: Some(1), ..LoadOptions::default() })
}

fn request(model: &Model, spec: &'static SamplerSpec, parameters: &[(&str, f64)], given: Given) -> Request {
    let known = |n: &str| spec.params.iter().any(|p| p.name == n);
    let parameters: Vec<_> =
        parameters.iter().filter(|(n, _)| known(n)).map(|(n, x)| (n.to_string(), *x)).collect();
    Request {
        prompt: vec![20, 31, 57, 300, 41],
        max_tokens: given.slots.len().max(1),
        context_len: model.shape().context_len,
        sampler: spec,
        params: model.params(spec, &parameters).unwrap(),
        profile: &PROFILES[0],
        end_ids: model.tokenizer().end_ids(),
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        given,
        constraint: None,
        self_conditioning: true,
        cache: BlockCache::None,
        full_logits: true,
        interrupt: None,
    }
}

fn own(model: &Model, given: Given) -> Request {
    request(model, model.sampler().unwrap(), &[("steps", 3.0)], given)
}

fn run_in(
    model: &mut Model,
    session: &mut Session,
    request: &Request,
    on_event: &mut dyn FnMut(&Event<'_>),
) -> Result<Generation, Error> {
    let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
    generate(model, session, request, &draws, &mut |e| {
        on_event(e);
        ControlFlow::Continue(())
    })
}

fn run(model: &mut Model, request: &Request, on_event: &mut dyn FnMut(&Event<'_>)) -> Generation {
    let mut session = model.session().unwrap();
    let done = run_in(model, &mut session, request, on_event);
    model.close(session);
    done.unwrap()
}

/// Digits are gaps, `.` is given text, `_` is a gap that begins with a space.
fn slots(pattern: &str) -> Vec<Slot> {
    let slot = |(i, c)| match c {
        '.' => Slot::Fixed(290 + (i as u32 * 37) % 90),
        '_' => Slot::SpacedGap,
        _ => Slot::Gap,
    };
    pattern.chars().enumerate().map(slot).collect()
}

/// Gaps at the start and the end, next to each other, longer than a block and than a canvas, given text longer than both.
const PATTERNS: [&str; 6] = [
    "111..",
    "..1.._2",
    "1..................................22.3",
    "_1111111111111111111111111111111111111.",
    ".....................................1",
    "1...1...1...1...1...1...1...1...1",
];

/// What every step must leave alone; the answer.
fn filled(model: &mut Model, request: &Request, name: &str) -> Generation {
    let given = request.given.clone();
    let windows = given.windows(model.shape(), request.prompt.len(), request.max_tokens);
    let pad = model.tokenizer().pad().unwrap_or(0);
    let (mut steps, mut prefix) = (0, Vec::new());
    let (n_prompt, v) = (request.prompt.len(), model.shape().vocab_len);
    let done = run(model, request, &mut |e| match e {
        Event::Step(s) => {
            steps += 1;
            let w = windows[s.canvas];
            assert_eq!((s.canvas_in.len(), s.n_prefix), (w.len, n_prompt + w.start), "{name}");
            assert_eq!(prefix.len(), w.start, "{name}: everything before the canvas is there");
            if s.open.is_none() {
                let n_open = (0..w.len).filter(|&i| !s.fixed.get(i).is_some_and(|&f| f)).count();
                assert_eq!(s.logits.map(<[f64]>::len), Some(n_open * v), "{name}: logits of open positions");
            }
            for i in 0..w.len {
                let Slot::Fixed(id) = given.slot(w.start + i, pad) else {
                    assert!(!s.fixed.get(i).is_some_and(|&f| f), "{name}");
                    continue;
                };
                let seen = [s.canvas_in[i], s.decision.canvas[i], s.result.argmax[i], s.result.sample[i]];
                assert_eq!(seen, [id; 4], "{name}: position {i} of canvas {}", s.canvas);
                assert!(s.fixed[i] && !s.decision.accepted[i] && s.result.entropy[i] == 0.0, "{name}");
                assert!(s.open.is_none_or(|open| !open[i]), "{name}");
            }
        }
        Event::Commit { ids, emitted, canvas, .. } => {
            assert_eq!(ids.len(), windows[*canvas].keep, "{name}");
            assert!(prefix.is_empty() || prefix.len() == windows[*canvas].start, "{name}");
            if prefix.is_empty() {
                prefix.extend(given.slots[..windows[0].start].iter().map(|s| match s {
                    Slot::Fixed(id) => *id,
                    _ => panic!("{name}"),
                }));
            }
            prefix.extend_from_slice(emitted);
        }
        Event::Prompt { .. } => {
            let first = windows.first().map_or(0, |w| w.start);
            prefix = given.slots[..first]
                .iter()
                .filter_map(|s| if let Slot::Fixed(id) = s { Some(*id) } else { None })
                .collect();
        }
    });
    assert_eq!(done.canvases.iter().map(|c| c.steps).sum::<usize>(), steps, "{name}");
    assert_eq!(done.ids, prefix, "{name}: what was emitted is the answer");
    assert_eq!(done.ids.len(), given.slots.len(), "{name}");
    let tokenizer = model.tokenizer();
    for (&id, slot) in done.ids.iter().zip(&given.slots) {
        match *slot {
            Slot::Fixed(fixed) => assert_eq!(id, fixed, "{name}"),
            slot => {
                assert!(!tokenizer.is_marker(id) && !request.end_ids.contains(&id), "{name}: {id}");
                let space = tokenizer.decode_inside(&[id], false).starts_with(' ');
                assert!(space || slot != Slot::SpacedGap, "{name}: {id}");
            }
        }
    }
    done
}

#[test]
fn what_is_given_stays_in_every_family_and_sampler() {
    for of in ALL {
        let mut model = open(of);
        let masks = matches!(model.shape().noise, Noise::Mask(_));
        for (i, spec) in SAMPLERS.iter().filter(|s| s.masks == masks).enumerate() {
            // Random weights are never sure: edits happen at a threshold of 0.
            let edits = [("edit_threshold", 0.0), ("post_steps", 2.0), ("steps", 3.0), ("min_tokens", 60.0)];
            let drawn = [("steps", 4.0), ("temperature", 0.8), ("top_p", 0.9), ("repetition_penalty", 1.3)];
            for (j, pattern) in PATTERNS.iter().enumerate() {
                let parameters = if (i + j) % 2 == 0 { &edits[..] } else { &drawn };
                let end = [None, model.tokenizer().eos()][j / 2 % 2];
                let commands = [("delete_token", 3.0), ("split_token", 4.0)];
                let commands = if spec.moves() { &commands[..] } else { &[] };
                let r = request(
                    &model,
                    spec,
                    &[parameters, commands].concat(),
                    Given { slots: slots(pattern), end },
                );
                if spec.moves() {
                    let mut session = model.session().unwrap();
                    let e = run_in(&mut model, &mut session, &r, &mut |_| ()).unwrap_err();
                    assert!(e.to_string().contains("leaves tokens at their places"), "{e}");
                    model.close(session);
                    continue;
                }
                filled(&mut model, &r, &format!("{} {} {pattern}", of.0, spec.name));
            }
        }
    }
}

/// The end of a text is given like the text.
#[test]
fn steps_are_those_of_the_gaps() {
    let mut llada = open(ALL[2]);
    let spec = sampler("low-confidence").unwrap();
    let given = || Given { slots: slots("..11....1....."), end: Some(508) };
    let r = request(&llada, spec, &[("block_length", 8.0)], given());
    assert_eq!(filled(&mut llada, &r, "one token a step").canvases[0].accepted_per_step, [1, 1, 1]);
    let r = request(&llada, spec, &[("block_length", 8.0), ("steps", 2.0)], given());
    assert_eq!(filled(&mut llada, &r, "a step a block").canvases[0].accepted_per_step, [2, 1]);
    let r = request(&llada, sampler("maskgit-plus").unwrap(), &[("steps", 64.0)], given());
    assert_eq!(filled(&mut llada, &r, "by time").canvases[0].accepted_per_step.iter().sum::<usize>(), 3);
}

#[test]
fn threads_levels_and_backends_change_no_bit() {
    for of in ALL {
        let options = |backend: &str, threads, level: Option<&str>| LoadOptions {
            backend: backend.into(),
            threads: Some(threads),
            cpu_level: level.map(String::from),
            ..LoadOptions::default()
        };
        let answer = |o: LoadOptions| {
            let mut model = open_with(of, &o);
            let template = template(&model, "The cat[[3]] is 12, [[]] ok. [[2]]");
            let base = own(&model, Given::default());
            let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
            let mut session = model.session().unwrap();
            let what = Fill { template: &template, base: &base, gap_max: 5, end: model.tokenizer().eos() };
            let go_on = &mut |_: &Event<'_>| ControlFlow::Continue(());
            let tries = &mut |_, _| ControlFlow::Continue(());
            let (filled, done) = fill(&mut model, &mut session, what, &draws, tries, go_on).unwrap();
            (filled, done.ids, done.digests)
        };
        let want = answer(options("cpu", 1, None));
        assert_eq!(want.0.gaps[1].tried.len(), 5, "{}", of.0);
        for threads in [2, 3] {
            assert_eq!(answer(options("cpu", threads, None)), want, "{} {threads}", of.0);
        }
        for level in CpuLevel::available() {
            assert_eq!(answer(options("cpu", 1, Some(level.name()))), want, "{} {}", of.0, level.name());
        }
        assert_eq!(answer(options("reference", 1, None)), want, "{}", of.0);
    }
}

fn template(model: &Model, text: &str) -> Template {
    Template::new(model.tokenizer(), Vec::new(), &parse(text).unwrap(), Specials::Text).unwrap()
}

#[test]
fn a_cached_prompt_gives_the_bits_of_a_fresh_one() {
    for of in ALL {
        let mut model = open(of);
        let mut fresh = own(&model, Given { slots: slots(PATTERNS[2]), end: None });
        fresh.prompt = (0..40).map(|i| 20 + (i * 37) % 480).collect();
        let want = filled(&mut model, &fresh, of.0);
        let mut session = model.session().unwrap();
        let mut other = own(&model, Given { slots: slots("11.1"), end: None });
        other.prompt = fresh.prompt[..32].to_vec();
        run_in(&mut model, &mut session, &other, &mut |_| ()).unwrap();
        for _ in 0..2 {
            let done = run_in(&mut model, &mut session, &fresh, &mut |_| ()).unwrap();
            assert_eq!((&done.ids, &done.digests), (&want.ids, &want.digests), "{}", of.0);
            assert_eq!(done.reused > 0, model.shape().reading != Reading::Whole, "{}", of.0);
        }
    }
}

/// Blocks of given text that are only read, and given text inside blocks.
#[test]
fn every_step_has_the_logits_of_the_whole_sequence() {
    for of in [ALL[6], ALL[8], ALL[9], ALL[10]] {
        let mut model = open(of);
        let r = own(&model, Given { slots: slots("..1....................11..2.............3"), end: None });
        let (mut steps, mut before) = (Vec::new(), r.prompt.clone());
        run(&mut model, &r, &mut |e| match e {
            Event::Step(s) => {
                assert_eq!(before.len(), s.n_prefix);
                steps.push((
                    before.clone(),
                    s.canvas_in.to_vec(),
                    s.open.unwrap().to_vec(),
                    s.logits.unwrap().to_vec(),
                ));
            }
            Event::Commit { emitted, ids, .. } => {
                before.extend_from_slice(if emitted.len() > ids.len() { emitted } else { ids });
            }
            Event::Prompt { .. } => {}
        });
        assert!(steps.len() > 3);
        let (v, shifted) = (model.shape().vocab_len, model.shape().shifted);
        for (before, canvas, open, logits) in steps {
            let session = model.session().unwrap();
            let mut sink = LogitsSink::default();
            let all = [&before[..], &canvas].concat();
            canvas_pass(&mut model, &session, CanvasPass::new(&all), &mut sink).unwrap();
            model.close(session);
            let rows =
                (0..canvas.len()).filter(|&i| open[i]).map(|i| before.len() + i - usize::from(shifted));
            let want: Vec<f64> = rows.flat_map(|row| &sink.0[row * v..][..v]).map(|&x| x.into()).collect();
            assert!(logits == want, "{}", of.0);
        }
    }
}

#[test]
fn open_positions_alone_are_an_answer() {
    for of in ALL {
        let mut model = open(of);
        let n = 2 * model.shape().canvas_len.min(16) - 1;
        let mut r = own(&model, Given::default());
        r.max_tokens = n;
        let want = run(&mut model, &r, &mut |_| ());
        r.given.slots = vec![Slot::Open; n];
        let got = run(&mut model, &r, &mut |_| ());
        assert_eq!(
            (&got.ids, &got.digests, &got.canvases),
            (&want.ids, &want.digests, &want.canvases),
            "{}",
            of.0
        );
        assert_eq!((got.finish, &got.committed), (want.finish, &want.committed), "{}", of.0);
        // The same from a text with a gap of free length alone.
        let alone =
            Template::new(model.tokenizer(), r.prompt.clone(), &parse("[[]]").unwrap(), Specials::Text)
                .unwrap();
        r.given = Given::default();
        let asked = alone.request(&r, &[None], Some(1));
        assert_eq!(run(&mut model, &asked, &mut |_| ()).digests, want.digests, "{}", of.0);
        // A gap of a given length is the same answer where that has no token that is no text.
        let mut plain = r.clone();
        plain.end_ids = Vec::new();
        let want = run(&mut model, &plain, &mut |_| ());
        plain.given.slots = vec![Slot::Gap; n];
        let got = run(&mut model, &plain, &mut |_| ());
        let text = |ids: &[u32]| ids.iter().all(|&id| !model.tokenizer().is_marker(id));
        assert!(text(&got.ids), "{}", of.0);
        assert!(got.ids == want.ids || !text(&want.committed), "{}", of.0);
    }
}

#[test]
fn an_end_in_the_text_ends_nothing_and_gaps_hold_none() {
    for of in ALL {
        let mut model = open(of);
        let mut r = own(&model, Given { slots: slots("11..111..11"), end: None });
        let first = filled(&mut model, &r, of.0);
        let Slot::Fixed(end) = r.given.slots[3] else { panic!() };
        // What the model would write is an end now, and so is a token of the text.
        r.end_ids = vec![end, first.ids[0], first.ids[5], first.ids[10]];
        let again = filled(&mut model, &r, of.0);
        assert_eq!(again.finish, Finish::Length, "{}: the text goes on", of.0);
        r.given.end = model.tokenizer().eos();
        assert_eq!(filled(&mut model, &r, of.0).finish, Finish::Stop);
        r.max_tokens = 4;
        r.given = Given { slots: slots("11.."), end: None };
        assert_eq!(filled(&mut model, &r, of.0).finish, Finish::Stop, "the text is complete");
    }
}

/// The token that comes with the pass before a block of Fast-dLLM, where it must not be.
#[test]
fn the_first_token_of_a_block_is_text_too() {
    let mut model = open(ALL[9]);
    let mut r = own(&model, Given { slots: slots("1111111111111"), end: None });
    r.prompt = vec![20, 31, 57, 300];
    let first = filled(&mut model, &r, "first");
    r.end_ids = vec![first.ids[0], first.ids[4]];
    let mut session = model.session().unwrap();
    let again = run_in(&mut model, &mut session, &r, &mut |_| ()).unwrap();
    assert!(again.ids.iter().all(|id| !r.end_ids.contains(id)), "{:?}", again.ids);
    // The session does not remember it for an answer that may begin so.
    let mut plain = r.clone();
    plain.given = Given::default();
    plain.end_ids = Vec::new();
    let want = run(&mut model, &plain, &mut |_| ());
    assert_eq!(run_in(&mut model, &mut session, &plain, &mut |_| ()).unwrap().digests, want.digests);
}

#[test]
fn a_text_with_gaps_is_tokenized_as_it_would_be_without() {
    let model = open(ALL[0]);
    let t = model.tokenizer();
    let ids = |s: &str| t.encode(s, Specials::Text).unwrap();
    let made = template(&model, "The cat[[3]] is 12, [[2]]ok. [[]]<eos>");
    assert_eq!(made.prompt(), [&[2][..], &ids("The cat")].concat(), "a begin of sequence");
    assert_eq!((made.head(), template(&model, "cat [[1]]").head()), ("The cat", "cat"));
    assert_eq!(template(&model, "cat  [[1]]").head(), "cat  ");
    let gaps: Vec<_> = made.gaps().map(|g| (g.len, g.spaced)).collect();
    assert_eq!(gaps, [(Some(3), false), (Some(2), true), (None, true)]);
    let r = made.request(&own(&model, Given::default()), &[Some(3), Some(2), Some(1)], Some(1));
    let fixed = |s: &str| ids(s).into_iter().map(Slot::Fixed).collect::<Vec<_>>();
    let want = [
        &[Slot::Gap; 3][..],
        &fixed(" is 12,"),
        &[Slot::SpacedGap, Slot::Gap],
        &fixed("ok."),
        &[Slot::SpacedGap],
        &fixed("<eos>"),
    ];
    assert_eq!(r.given, Given { slots: want.concat(), end: Some(1) });
    assert!(fixed("<eos>").len() > 1, "control tokens in the text are text");
    assert_eq!((r.max_tokens, made.n_fixed()), (want.concat().len(), want.concat().len() - 6));
    // Two spaces are not the gap's; neither is a text of its own a prompt's business.
    let made = Template::new(t, vec![7], &parse("a  [[3]]").unwrap(), Specials::Parse).unwrap();
    assert_eq!(made.prompt(), [&[7][..], &ids("a  ")].concat());
    assert!(!made.gaps().next().unwrap().spaced && !made.ends_free());
    assert!(template(&model, "[[]]").ends_free());
    assert_eq!(template(&model, "[[]]").prompt(), [2]);
    assert_eq!(template(&open(ALL[1]), "[[1]]").prompt(), [0; 0], "no vocabulary of Qwen begins a sequence");
}

/// Given text comes out as it went in, whatever the gaps hold.
#[test]
fn the_whole_text_is_the_text() {
    for of in ALL {
        let mut model = open(of);
        let made = template(&model, "The cat [[3]] is 12, [[2]]\nok.[[1]]");
        let lengths = Lengths([3, 2, 1].map(|n| (Some(n), Vec::new())).to_vec());
        let r = made.request(&own(&model, Given::default()), &lengths.of_gaps(), model.tokenizer().eos());
        let done = filled(&mut model, &r, of.0);
        let Filled { text, gaps } = made.filled(&model, &r, &lengths, &done);
        let [a, b, c] = [0, 1, 2].map(|i| gaps[i].text.as_str());
        assert_eq!(text, format!("The cat {a} is 12, {b}\nok.{c}"), "{}", of.0);
        assert_eq!(gaps.iter().map(|g| g.ids.len()).collect::<Vec<_>>(), [3, 2, 1]);
        let starts: Vec<usize> = gaps.iter().map(|g| g.start - r.prompt.len()).collect();
        assert_eq!(starts, [0, 3 + gaps[0].n_after, 5 + gaps[0].n_after + gaps[1].n_after]);
        assert!(gaps.iter().all(|g| g.n_seen <= g.n_after && g.tried.is_empty()));
        let sees_all = gaps.iter().all(|g| g.n_seen == g.n_after);
        assert_eq!(sees_all, model.shape().reading != Reading::Blocks, "{}", of.0);
    }
}

#[test]
fn a_free_gap_at_the_end_ends_where_the_model_ends_it() {
    let mut model = open(ALL[2]);
    let made = template(&model, "The cat[[2]] is [[]]");
    let mut base = own(&model, Given::default());
    base.max_tokens = 9;
    let r = made.request(&base, &[Some(2), None], Some(508));
    assert_eq!((r.max_tokens, r.given.end), (r.given.slots.len() - 1 + 9, None));
    let whole = run(&mut model, &r, &mut |_| ());
    assert_eq!((whole.ids.len(), whole.finish), (r.max_tokens, Finish::Length));
    base.end_ids = vec![*whole.ids.last().unwrap()];
    let r = made.request(&base, &[Some(2), None], Some(508));
    let cut = run(&mut model, &r, &mut |_| ());
    assert_eq!(cut.finish, Finish::Stop);
    assert!(cut.ids.len() < whole.ids.len() && cut.ids.len() >= r.given.slots.len());
    let lengths = Lengths(vec![(Some(2), Vec::new()), (None, Vec::new())]);
    let filled = made.filled(&model, &r, &lengths, &cut);
    assert_eq!(filled.gaps[1].ids, cut.ids[r.given.slots.len() - 1..]);
    assert!(filled.text.starts_with("The cat"));
}

#[test]
fn what_does_not_fit_is_an_error_with_numbers() {
    for of in ALL {
        let mut model = open(of);
        let mut r = own(&model, Given { slots: slots("11.."), end: None });
        r.context_len = 8;
        let mut session = model.session().unwrap();
        let e = run_in(&mut model, &mut session, &r, &mut |_| ()).unwrap_err().to_string();
        assert!(e.contains("the prompt has 5 tokens and the answer up to"), "{e}");
        assert!(e.contains("context of 8"), "{e}");
        r.context_len = usize::MAX;
        r.given = Given::default();
        r.given.slots = vec![Slot::Fixed(u32::MAX), Slot::Gap];
        let e = run_in(&mut model, &mut session, &r, &mut |_| ()).unwrap_err().to_string();
        assert!(e.contains("token id in the") && e.contains("4294967295"), "{e}");
        // Lengths that do not fit are not tried.
        let made = template(&model, "The cat[[]] is");
        let mut base = own(&model, Given::default());
        base.context_len = made.prompt().len() + made.n_fixed() + 1 + 3 + model.shape().canvas_len.min(16);
        let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
        let what = Fill { template: &made, base: &base, gap_max: 64, end: None };
        let tried =
            find_lengths(&mut model, &mut session, what, &draws, &mut |_, _| ControlFlow::Continue(()));
        let tried = tried.unwrap().0.remove(0).1;
        assert!((1..40).contains(&tried.len()), "{} {}", of.0, tried.len());
    }
}

/// Interruptions, and repetitions that end answers in a profile: given text is never cut by them.
#[test]
fn tries_stop_and_text_is_no_repetition() {
    let mut model = open(ALL[0]);
    let made = template(&model, "The cat[[]] is");
    let base = own(&model, Given::default());
    let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
    let mut session = model.session().unwrap();
    let what = Fill { template: &made, base: &base, gap_max: 9, end: None };
    let done = find_lengths(&mut model, &mut session, what, &draws, &mut |n, _| match n {
        2 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert!(matches!(done, Err(Error::Interrupted)));
    let mut r = own(
        &model,
        Given { slots: [vec![Slot::Gap], vec![Slot::Fixed(300); 9], vec![Slot::Gap]].concat(), end: None },
    );
    r.profile = profile("jax").unwrap();
    r.given.slots.extend([Slot::Gap; 400]);
    let noise = filled(&mut model, &r, "the canvas is committed, noise and all").ids;
    assert_eq!(noise.len(), 411);
    r.given.slots.truncate(11);
    r.profile = profile("llamacpp").unwrap();
    assert!(!filled(&mut model, &r, "repeats").repetition);
}

#[test]
fn a_receipt_repeats() {
    for of in [ALL[0], ALL[4], ALL[8]] {
        let mut model = open(of);
        let r = own(&model, Given { slots: slots("11..1._2.."), end: model.tokenizer().eos() });
        let mut steps = StepRecorder::default();
        let done = run(&mut model, &r, &mut |e| steps.event(e));
        let digests = ModelDigests::of(&model, &mut |_, _| true).unwrap();
        let receipt = Receipt::new(&model, digests, &r, 3, &done, steps);
        let text = receipt.to_json().unwrap();
        let receipt = Receipt::parse(text.as_bytes()).unwrap();
        let again = receipt.request(&model).unwrap();
        assert_eq!(again.given, r.given);
        let mut check = Check::new(&receipt);
        let g = run(&mut model, &again, &mut |e| assert!(check.event(e).is_continue()));
        assert_eq!(check.finish(Some(&g), model.tokenizer()), None);
    }
}
