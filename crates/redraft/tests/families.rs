//! Every golden of the models of masks (forward passes, taps, trajectories of samplers), at the oracle's own limits.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{commands, config, exact, expand, f32_limits, family_cases, judge, open, run, with_metadata};
use redraft::arch::Noise;
use redraft::compute::Precision;
use redraft::engine::{
    BlockCache, CanvasPass, Event, Given, MemoryEstimate, Request, Sampling, canvas_pass, default_max_tokens,
};
use redraft::gguf::DType;
use redraft::receipt::{Check, ModelDigests, Receipt, StepRecorder};
use redraft::sampler::{Ask, PROFILES, SAMPLERS, profile, sampler};
use redraft::trace::{Bounds, GenerationRecorder, Limits, Recording, compare, like};
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
        assert_eq!(judge(&mut open(file, &exact()), file, &cases, &f32_limits()), n, "{file}");
    }
    assert_eq!(cases.len(), FILES.iter().map(|(_, n)| n).sum::<usize>());
}

#[test]
fn the_f64_truth_passes_at_one_in_a_trillion() {
    let limits = Limits { bounds: Bounds::relative(1e-12), ..f32_limits() };
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
        let mut model = Model::from_gguf(expand(file, form), &exact()).unwrap();
        judge(&mut model, file, &cases, &f32_limits());
    }
}

const ALL: [&str; 4] =
    ["dream-tiny.F16.gguf", "llada-tiny.BF16.gguf", "llada-moe-tiny.BF16.gguf", "rnd1-tiny.BF16.gguf"];

fn request(model: &Model, name: &str, parameters: &[(&str, f64)], max_tokens: usize) -> Request {
    let spec = sampler(name).unwrap();
    let parameters: Vec<_> = parameters.iter().map(|(n, x)| (n.to_string(), *x)).collect();
    Request {
        prompt: vec![20, 31, 57, 300, 41],
        max_tokens,
        context_len: model.shape().context_len,
        sampler: spec,
        params: model.params(spec, &parameters).unwrap(),
        profile: &PROFILES[0],
        end_ids: Vec::new(),
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        self_conditioning: true,
        given: Given::default(),
        constraint: None,
        cache: BlockCache::None,
        full_logits: false,
        interrupt: None,
    }
}

/// Every sampler of masks with every family: positions are revealed once each (and changed again only by one that edits), no
/// mask is left, and neither threads nor instruction sets change a bit. With temperature, filters and guidance.
#[test]
fn every_sampler_fills_every_family_with_the_same_bits_everywhere() {
    let options = |backend: &str, threads| LoadOptions {
        backend: backend.into(),
        threads: Some(threads),
        ..LoadOptions::default()
    };
    for (i, file) in ALL.iter().enumerate() {
        let models = [options("cpu", 1), options("cpu", 3), options("reference", 1)];
        let mut models = models.map(|o| open(file, &o));
        let Noise::Mask(mask) = models[0].shape().noise else { panic!("{file} has masks") };
        for (j, spec) in SAMPLERS.iter().filter(|s| s.masks).enumerate() {
            // Half of the combinations greedy, half with everything that can be drawn.
            let mut parameters = vec![("steps", 3.0), ("temperature", 0.0), ("top_p", 1.0)];
            if (i + j) % 2 == 0 {
                parameters = vec![
                    ("steps", 3.0),
                    ("temperature", 0.7),
                    ("top_p", 0.9),
                    ("top_k", 40.0),
                    ("cfg_scale", 0.5),
                ];
                if spec.params.iter().any(|p| p.name == "alg_temp") {
                    parameters.push(("alg_temp", 0.3));
                }
            }
            let edits = spec.params.iter().any(|p| p.name == "edit_threshold");
            parameters.extend(commands(spec));
            if edits {
                // Random weights are never sure.
                parameters.extend([("edit_threshold", 0.0), ("post_steps", 3.0)]);
            }
            let mut answers = models.iter_mut().map(|model| {
                let request = request(model, spec.name, &parameters, 9);
                let (mut revealed, mut edited) = ([0; 9], false);
                let g = run(model, &request, &mut |e| {
                    if let Event::Step(s) = e {
                        let (open, d) = (s.open.unwrap(), s.decision);
                        for p in 0..9 {
                            revealed[p] += usize::from(d.accepted[p] && open[p]);
                            edited |= d.accepted[p] && !open[p];
                            assert_eq!(open[p], s.canvas_in[p] == mask);
                            assert!(d.accepted[p] || d.canvas[p] == s.canvas_in[p]);
                        }
                    }
                });
                // Where positions are deleted and inserted, what was revealed can be masked again.
                let once = revealed == [1; 9] || !commands(spec).is_empty() && !revealed.contains(&0);
                assert!(once && edited == edits, "{file} {} {revealed:?}", spec.name);
                g.unwrap()
            });
            let first = answers.next().unwrap();
            assert!(
                first.ids.len() == 9 && !first.ids.contains(&mask),
                "{file} {}: {:?}",
                spec.name,
                first.ids
            );
            for other in answers {
                assert_eq!(
                    (&other.ids, &other.digests),
                    (&first.ids, &first.digests),
                    "{file} {}",
                    spec.name
                );
            }
        }
    }
}

/// The answer ends where it ends, whatever would have followed; and the steps that would have followed are not taken.
#[test]
fn an_end_with_everything_before_it_decided_ends_the_canvas() {
    let mut model = open(ALL[1], &LoadOptions::default());
    let mut request = request(&model, "low-confidence", &[("block_length", 4.0)], 16);
    let whole = run(&mut model, &request, &mut |_| ()).unwrap();
    assert_eq!(whole.canvases[0].steps, 16);
    let end = whole.ids[5];
    let at = whole.ids.iter().position(|&id| id == end).unwrap();
    request.end_ids = vec![end];
    let cut = run(&mut model, &request, &mut |_| ()).unwrap();
    assert_eq!(cut.ids, whole.ids[..at]);
    assert!(cut.canvases[0].steps < 16 && cut.canvases[0].stop.name() == "converged", "{:?}", cut.canvases);
    assert_eq!(cut.finish.name(), "stop");
}

/// An end that is revealed can be edited away, so a sampler that edits goes on.
#[test]
fn an_end_that_may_change_ends_nothing() {
    let mut model = open(ALL[1], &LoadOptions::default());
    let all_at_once = [("threshold", 0.0), ("edit_threshold", 0.0), ("post_steps", 4.0)];
    let mut request = request(&model, "joint-threshold", &all_at_once, 16);
    let mut first = Vec::new();
    let whole = run(&mut model, &request, &mut |e| match e {
        Event::Step(s) if s.step == 0 => first = s.decision.canvas.clone(),
        _ => (),
    });
    let whole = whole.unwrap();
    let gone = *first.iter().find(|id| !whole.ids.contains(id)).unwrap();
    request.end_ids = vec![gone];
    let again = run(&mut model, &request, &mut |_| ()).unwrap();
    assert_eq!((&again.ids, &again.canvases), (&whole.ids, &whole.canvases));
    assert!(whole.canvases[0].steps > 1);
}

#[test]
fn what_does_not_apply_is_an_error() {
    let mut dream = open(ALL[0], &LoadOptions::default());
    let problem = |model: &mut Model, r: &Request| run(model, r, &mut |_| ()).unwrap_err().to_string();
    let r = request(&dream, "entropy-bound", &[], 8);
    let e = problem(&mut dream, &r);
    assert!(
        e.contains("begins as mask tokens: expected origin, maskgit-plus") && e.ends_with("entropy-bound"),
        "{e}"
    );
    let mut r = request(&dream, "entropy", &[], 8);
    r.profile = profile("jax").unwrap();
    assert!(problem(&mut dream, &r).contains("profile of a model whose canvas begins as mask tokens"));
    let mut r = request(&dream, "entropy", &[], 8);
    r.context_len = 12;
    assert!(problem(&mut dream, &r).contains("together more than the context of 12"));
    r.context_len = 13;
    assert_eq!(run(&mut dream, &r, &mut |_| ()).unwrap().ids.len(), 8, "an answer of any length");
    let mut rnd1 = open(ALL[3], &LoadOptions::default());
    let mut r = request(&rnd1, "entropy-bound-monotone", &[], 8);
    r.context_len = 13;
    assert!(problem(&mut rnd1, &r).contains("the answer up to 9"), "its sampler reserves a position");
    let shape = rnd1.shape();
    assert_eq!(default_max_tokens(shape, rnd1.sampler().unwrap(), 100, 20), 79);
    assert_eq!(default_max_tokens(shape, rnd1.sampler().unwrap(), 4096, 20), 256);
    let mut gemma = open("dg-mini.F32.gguf", &LoadOptions::default());
    let r = request(&gemma, "low-confidence", &[], 8);
    assert!(problem(&mut gemma, &r).contains("random tokens: expected entropy-bound, found low-confidence"));
    let ids = vec![0; gemma.shape().canvas_len];
    let uniform = vec![0.5; ids.len()];
    let session = gemma.session().unwrap();
    for ask in [Ask { top_k: 5, ..Ask::default() }, Ask { worth: true, ..Ask::default() }] {
        let sampling = Some(Sampling { ask, uniform: &uniform });
        let pass = CanvasPass { sampling, ..CanvasPass::new(&ids) };
        let e = canvas_pass(&mut gemma, &session, pass, &mut ()).unwrap_err().to_string();
        assert!(e.contains("no mask token: expected a temperature and logits alone"), "{e}");
    }
}

/// There is no cache, and the logits of all open positions are alive in at least two forms at once.
#[test]
fn the_memory_of_an_answer_is_known_before() {
    let mut dream = open(ALL[0], &LoadOptions::default());
    let ask = Ask { top_p: 0.9, ..Ask::default() };
    let [short, long] = [8, 40].map(|n| MemoryEstimate::of(&mut dream, 5, n, ask, BlockCache::None).unwrap());
    assert_eq!((short.kv_bytes, long.kv_bytes), (0, 0));
    let logits = (4 * 32 * dream.shape().vocab_len) as u64;
    assert!(long.buffer_bytes - short.buffer_bytes >= 2 * logits, "{short:?} {long:?}");
}

/// Sequences that are read whole have no prompt pass of their own.
#[test]
fn there_is_no_cache_to_extend() {
    let mut model = open(ALL[2], &LoadOptions::default());
    let mut session = model.session().unwrap();
    let e = session.extend(&mut model, &[20, 21], &mut ()).unwrap_err().to_string();
    assert!(e.contains("prompt") && e.contains("canvas, with the prompt before it"), "{e}");
}

#[test]
fn missing_and_odd_keys_have_a_meaning() {
    let shift = "diffusion.shift_logits";
    assert!(with_metadata(ALL[0], |m| drop(m.remove(shift))).unwrap().shape().shifted, "as the family does");
    assert!(!with_metadata(ALL[0], |m| m.set(shift, false)).unwrap().shape().shifted, "the file says it");
    let llada = with_metadata(ALL[1], |m| drop(m.remove(shift))).unwrap();
    assert!(!llada.shape().shifted);
    assert!(
        llada.notes().iter().any(|n| n.contains("no diffusion.shift_logits; taking false")),
        "{:?}",
        llada.notes()
    );

    let mask = "tokenizer.ggml.mask_token_id";
    let stated = open(ALL[0], &LoadOptions::default()).shape().noise;
    let silent = with_metadata(ALL[0], |m| drop(m.remove(mask)));
    match silent {
        Ok(model) => {
            assert_eq!(model.shape().noise, stated);
            assert!(model.notes().iter().any(|n| n.contains("no tokenizer.ggml.mask_token_id; taking")));
        }
        Err(e) => panic!("the mask token is found by its text: {e}"),
    }
    let e = with_metadata(ALL[0], |m| m.set(mask, 512u32)).err().unwrap().to_string();
    assert!(e.contains(mask) && e.contains("0..512"), "{e}");
    let e = with_metadata(ALL[0], |m| m.set("dream.rope.scaling.type", "yarn")).err().unwrap().to_string();
    assert!(e.contains("dream.rope.scaling.type: expected none"), "{e}");
    let causal = with_metadata(ALL[1], |m| m.set("llada.attention.causal", true)).unwrap();
    assert!(causal.notes().iter().any(|n| n.contains("read both ways")));
    let e = with_metadata(ALL[3], |m| m.set("rnd1.attention.head_count_kv", 3u32)).err().unwrap().to_string();
    assert!(e.contains("rnd1.attention.head_count_kv"), "{e}");
}

/// A run, its recording and its receipt agree, with everything drawn at random.
#[test]
fn recordings_and_receipts_repeat() {
    for (file, name, more) in [
        (ALL[0], "maskgit-plus", &[][..]),
        (ALL[1], "random", &[]),
        (ALL[3], "entropy-bound-monotone", &[]),
        // Ends with its only step of edits, before the steps that were planned.
        (ALL[1], "joint-threshold", &[("threshold", 0.01), ("edit_threshold", 0.0), ("post_steps", 1.0)]),
    ] {
        let mut model = open(file, &LoadOptions::default());
        let parameters = [&[("temperature", 0.8), ("top_p", 0.9), ("steps", 4.0)][..], more].concat();
        let request = request(&model, name, &parameters, 12);
        let (mut recorder, mut steps) = (GenerationRecorder::default(), StepRecorder::default());
        let done = run(&mut model, &request, &mut |e| {
            recorder.event(e);
            steps.event(e);
        })
        .unwrap();
        let mut file = recorder.finish(&request.prompt, &done.committed);
        file.metadata.insert("config".into(), config(&request));
        file.metadata.insert("sampler".into(), name.into());
        let repeated = like(&mut model, &file, None).unwrap();
        let report = compare(&file, &repeated, &Limits { all: true, ..f32_limits() });
        assert!(report.ok, "{name}: {report:#?}");
        let recording = Recording::read(&file, 512).unwrap();
        assert_eq!(recording.answer(usize::MAX), done.ids);
        assert_eq!(
            recording.steps[1].event().open.unwrap().iter().filter(|&&o| o).count(),
            12 - done.canvases[0].accepted_per_step[0]
        );

        let digests = ModelDigests::of(&model, &mut |_, _| true).unwrap();
        let receipt = Receipt::new(&model, digests, &request, 3, &done, steps);
        let again = receipt.request(&model).unwrap();
        let mut check = Check::new(&receipt);
        let g = run(&mut model, &again, &mut |e| assert!(check.event(e).is_continue())).unwrap();
        assert_eq!(check.finish(Some(&g), model.tokenizer()), None);
    }
}
