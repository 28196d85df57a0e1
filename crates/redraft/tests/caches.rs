//! Caches of models that read whole sequences: goldens of an independent program, where they equal passes without a cache,
//! and what they must not change.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use common::{
    LogitsSink, cases, changed, commands, config, exact, f32_limits, judge, open, oracle_model, testdata,
    with_metadata,
};
use redraft::arch::Noise;
use redraft::compute::cpu::CpuLevel;
use redraft::compute::{KvType, Numerics, Precision, Program};
use redraft::engine::{
    BlockCache, BlockStep, CanvasPass, CanvasReport, CanvasResult, Digests, Event, Generation, Given,
    MemoryEstimate, Philox, Request, Sampling, Session, Slot, TapSink, canvas_pass, generate,
};
use redraft::receipt::{Check, ModelDigests, Receipt, StepRecorder};
use redraft::sampler::{Ask, PROFILES, SAMPLERS, sampler};
use redraft::trace::{Bounds, GenerationRecorder, Limits, TraceFile, compare, like};
use redraft::{Error, LoadOptions, Model};

/// A trained model, and the same before it had learned all that it can.
const TRAINED: [&str; 2] = ["digits.BF16.gguf", "digits-early.BF16.gguf"];
const DREAM: &str = "dream-tiny.F16.gguf";
const LLADA: &str = "llada-tiny.BF16.gguf";
const FILES: [&str; 4] = [DREAM, LLADA, "llada-moe-tiny.BF16.gguf", "rnd1-tiny.BF16.gguf"];
const CACHES: [BlockCache; 2] = [BlockCache::Prefix, BlockCache::Dual];

fn request(model: &Model, name: &str, parameters: &[(&str, f64)], max_tokens: usize) -> Request {
    let spec = sampler(name).unwrap();
    let parameters: Vec<_> = parameters.iter().map(|(n, x)| (n.to_string(), *x)).collect();
    Request {
        prompt: vec![20, 31, 57, 300, 41, 77, 128],
        max_tokens,
        context_len: model.shape().context_len,
        sampler: spec,
        params: model.params(spec, &parameters).unwrap(),
        profile: &PROFILES[0],
        end_ids: Vec::new(),
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        self_conditioning: false,
        given: Given::default(),
        constraint: None,
        cache: BlockCache::None,
        full_logits: true,
        interrupt: None,
    }
}

fn draws(model: &Model) -> Philox {
    Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 }
}

fn run_in(
    model: &mut Model,
    session: &mut Session,
    request: &Request,
    on_event: &mut dyn FnMut(&Event<'_>) -> ControlFlow<()>,
) -> Result<Generation, Error> {
    let draws = draws(model);
    generate(model, session, request, &draws, on_event)
}

fn run(model: &mut Model, request: &Request) -> Generation {
    let mut session = model.session().unwrap();
    let done = run_in(model, &mut session, request, &mut |_| ControlFlow::Continue(()));
    model.close(session);
    done.unwrap()
}

/// What makes an answer, its steps and its logits.
fn outcome(g: &Generation) -> (Vec<u32>, Digests, Vec<CanvasReport>) {
    (g.ids.clone(), g.digests.clone(), g.canvases.clone())
}

fn goldens() -> Vec<(String, TraceFile)> {
    cases("caches", |_| true)
}

#[test]
fn every_golden_passes_in_f32_and_f64() {
    let cases = goldens();
    let limits = Limits { bounds: Bounds::relative(1e-12), ..f32_limits() };
    let truth = LoadOptions { precision: Precision::F64, ..LoadOptions::default() };
    for (file, n) in [(LLADA, 4), (DREAM, 4)] {
        assert_eq!(judge(&mut open(file, &exact()), file, &cases, &f32_limits()), n, "{file}");
        assert_eq!(judge(&mut open(file, &truth), file, &cases, &limits), n, "{file}");
    }
    assert_eq!(cases.len(), 8);
}

/// Without the cache that it was made with a golden comes out otherwise.
#[test]
fn goldens_depend_on_the_cache() {
    for (name, golden) in goldens() {
        let mut model = open(&golden.metadata["model"], &exact());
        let mut other = golden.clone();
        other.metadata.remove("cache");
        let candidate = like(&mut model, &other, None).unwrap();
        assert!(!compare(&golden, &candidate, &f32_limits()).ok, "{name}");
        other.metadata.insert("cache".into(), "odd".into());
        let e = like(&mut model, &other, None).unwrap_err().to_string();
        assert!(e.contains("`cache`: expected none, prefix or dual, found odd"), "{e}");
    }
}

/// All steps of blocks that take one each are first steps, and those read everything.
#[test]
fn blocks_of_one_step_are_not_approximated() {
    for file in FILES {
        let mut model = open(file, &LoadOptions::default());
        for name in ["low-confidence", "random"] {
            let parameters = [("block_length", 4.0), ("steps", 4.0), ("temperature", 0.7)];
            let mut request = request(&model, name, &parameters, 15);
            let plain = run(&mut model, &request);
            assert_eq!(plain.canvases[0].steps, 4);
            for cache in CACHES {
                request.cache = cache;
                assert_eq!(outcome(&run(&mut model, &request)), outcome(&plain), "{file} {name} {cache:?}");
            }
        }
    }
}

/// A block that is the whole sequence leaves nothing outside; one that is the canvas has nothing after it.
#[test]
fn a_block_that_is_everything_is_not_approximated() {
    for file in FILES {
        let mut model = open(file, &LoadOptions::default());
        let mut request = request(&model, "low-confidence", &[("block_length", 0.0)], 12);
        let answers = |model: &mut Model, request: &mut Request| {
            [BlockCache::None, BlockCache::Prefix, BlockCache::Dual].map(|cache| {
                request.cache = cache;
                outcome(&run(model, request))
            })
        };
        let [none, prefix, dual] = answers(&mut model, &mut request);
        assert!(none != prefix && prefix == dual, "{file}");
        request.prompt.clear();
        request.given = Given { slots: vec![Slot::Gap, Slot::Fixed(40)], end: None };
        let [none, prefix, dual] = answers(&mut model, &mut request);
        assert!(none == prefix && prefix == dual, "{file}");
    }
}

/// The first layer's keys and values depend on their own tokens alone, so with one layer nothing is approximated. What is
/// read after the block comes in another order of sums.
#[test]
fn one_layer_is_not_approximated() {
    for (file, arch) in [(DREAM, "dream"), (LLADA, "llada")] {
        let one = |options: &LoadOptions| {
            let gguf = changed(&oracle_model(file), |m| m.set(format!("{arch}.block_count"), 1u32));
            Model::from_gguf(gguf, options).unwrap()
        };
        let f64 = LoadOptions { precision: Precision::F64, ..LoadOptions::default() };
        for options in [LoadOptions::default(), f64] {
            let mut model = one(&options);
            let mut request = request(&model, "low-confidence", &[("block_length", 5.0)], 18);
            let plain = run(&mut model, &request);
            request.cache = BlockCache::Prefix;
            assert_eq!(outcome(&run(&mut model, &request)), outcome(&plain), "{file}");
            request.cache = BlockCache::Dual;
            let dual = run(&mut model, &request);
            assert_eq!((&dual.ids, &dual.canvases), (&plain.ids, &plain.canvases), "{file}");
        }
    }
}

/// The rows that a pass reads.
#[derive(Default)]
struct Rows(Vec<(usize, usize)>);

impl TapSink for Rows {
    fn begin(&mut self, program: &Program) {
        self.0.push((program.segments().iter().map(|s| s.n_past).sum::<usize>(), program.rows()));
    }
}

/// What a pass over a canvas gives with these settings.
fn pass(
    model: &mut Model,
    session: &Session,
    (lead, ids): (&[u32], &[u32]),
    open: &[bool],
    block: Option<BlockStep>,
    rows: &mut Rows,
) -> Result<CanvasResult, Error> {
    let uniform = vec![0.5; ids.len()];
    let sampling = Some(Sampling::at(1.0, &uniform));
    let pass = CanvasPass { lead, open: Some(open), sampling, block, ..CanvasPass::new(ids) };
    canvas_pass(model, session, pass, rows)
}

/// The first step of each block is the pass without a cache, to the bit, whatever the type of keys and values; the later
/// ones are not, and read what they should.
#[test]
fn first_steps_are_whole_and_later_ones_read_less() {
    for (file, shifted) in [(LLADA, 0), (DREAM, 1)] {
        for &kv_type in KvType::ALL {
            let mut plain = open(file, &LoadOptions::default());
            let mut model = open(file, &LoadOptions { kv_type, ..LoadOptions::default() });
            let Noise::Mask(mask) = model.shape().noise else { panic!("{file} has masks") };
            let lead = [20, 31, 57, 300, 41];
            let mut ids = vec![mask; 12];
            ids[..3].copy_from_slice(&[60, 61, 62]);
            let (session, own) = (model.session().unwrap(), plain.session().unwrap());
            for cache in CACHES {
                for (begin, end) in [(3, 6), (6, 9), (9, 12)] {
                    let at = |ids: &[u32]| -> Vec<bool> { ids.iter().map(|&id| id == mask).collect() };
                    let step = |first| Some(BlockStep { cache, begin, end, first });
                    let mut rows = Rows::default();
                    let mut here = ids.clone();
                    let first = pass(&mut model, &session, (&lead, &here), &at(&here), step(true), &mut rows)
                        .unwrap();
                    let whole = pass(&mut plain, &own, (&lead, &here), &at(&here), None, &mut rows).unwrap();
                    assert_eq!(first, whole, "{file} {cache:?} {kv_type:?} {begin}");
                    here[begin + 1] = first.argmax[begin + 1];
                    let open: Vec<bool> =
                        (0..12).map(|i| here[i] == mask && (begin..end).contains(&i)).collect();
                    let later = pass(&mut model, &session, (&lead, &here), &open, step(false), &mut rows);
                    let later = later.unwrap();
                    let whole = pass(&mut plain, &own, (&lead, &here), &open, None, &mut rows).unwrap();
                    assert_eq!(later.max.iter().filter(|&&x| x != 0.0).count(), end - begin - 1);
                    assert_ne!(later.lse, whole.lse, "{file} {cache:?}: an approximation");
                    let before = lead.len() + begin - shifted;
                    let read = match cache {
                        BlockCache::Dual => lead.len() + end - before,
                        _ => lead.len() + 12 - before,
                    };
                    assert_eq!(rows.0, [(0, 17), (0, 17), (17 - read, read), (0, 17)]);
                    // As often as one likes.
                    let again = pass(&mut model, &session, (&lead, &here), &open, step(false), &mut rows);
                    assert_eq!(again.unwrap(), later);
                }
            }
        }
    }
}

#[test]
fn steps_that_cannot_be_are_errors() {
    let mut model = open(LLADA, &LoadOptions::default());
    let session = model.session().unwrap();
    let (lead, ids) = ([20, 31], [511; 6]);
    let mut problem = |begin, end, first, open: [bool; 6]| {
        let step = Some(BlockStep { cache: BlockCache::Dual, begin, end, first });
        pass(&mut model, &session, (&lead, &ids), &open, step, &mut Rows::default()).unwrap_err().to_string()
    };
    for (begin, end) in [(3, 3), (4, 2), (5, 7), (0, usize::MAX)] {
        let e = problem(begin, end, true, [true; 6]);
        assert!(e.starts_with("block: expected positions of a canvas of 6"), "{e}");
    }
    let e = problem(1, 4, false, [false, true, false, false, true, false]);
    assert!(e.contains("open positions of a later step: expected some of 1..4, found 4"), "{e}");
    let e = problem(1, 4, false, [false, true, true, true, false, false]);
    assert!(e.contains("5") && e.contains("cache"), "a first step is missing: {e}");
    let step = Some(BlockStep { cache: BlockCache::Dual, begin: 0, end: 6, first: true });
    let ask = Ask { cfg_scale: 1.0, ..Ask::default() };
    let sampling = Some(Sampling { ask, uniform: &[0.5; 6] });
    let guided = CanvasPass { sampling, block: step, ..CanvasPass::new(&ids) };
    let e = canvas_pass(&mut model, &session, guided, &mut ()).unwrap_err().to_string();
    assert!(e.contains("cfg_scale with a cache: expected 0, found 1"), "{e}");
    let mut gemma = open("dg-mini.F32.gguf", &LoadOptions::default());
    let session = gemma.session().unwrap();
    let ids = vec![0; gemma.shape().canvas_len];
    let of_another = CanvasPass { block: step, ..CanvasPass::new(&ids) };
    let e = canvas_pass(&mut gemma, &session, of_another, &mut ()).unwrap_err().to_string();
    assert!(e.contains("block with a cache: expected a model that reads prompt and answer whole"), "{e}");
}

#[test]
fn what_does_not_apply_is_an_error() {
    let problem = |model: &mut Model, request: &Request| {
        let mut session = model.session().unwrap();
        run_in(model, &mut session, request, &mut |_| panic!("nothing is computed")).unwrap_err().to_string()
    };
    let mut gemma = open("dg-mini.F32.gguf", &LoadOptions::default());
    let name = gemma.sampler().unwrap().name;
    let r = Request { cache: BlockCache::Prefix, ..request(&gemma, name, &[], 8) };
    let e = problem(&mut gemma, &r);
    assert!(e.contains("cache: expected none, since diffusion-gemma has a cache of its own"), "{e}");
    assert!(e.ends_with("found prefix"), "{e}");
    let mut llada = open(LLADA, &LoadOptions { kv_type: KvType::I8, ..LoadOptions::default() });
    let mut r = request(&llada, "low-confidence", &[("cfg_scale", 0.5)], 8);
    r.cache = BlockCache::Dual;
    let e = problem(&mut llada, &r);
    assert!(e.contains("cfg_scale with the cache dual: expected 0") && e.ends_with("found 0.5"), "{e}");
    let r = request(&llada, "low-confidence", &[], 8);
    let e = problem(&mut llada, &r);
    assert!(e.contains("type of the KV cache: expected f32") && e.ends_with("found i8"), "{e}");
    let mut r = Request { cache: BlockCache::Dual, ..r };
    r.context_len = 14;
    assert!(problem(&mut llada, &r).contains("together more than the context of 14"));
    r.context_len = 15;
    assert_eq!(run(&mut llada, &r).ids.len(), 8);
}

/// Every sampler of masks with every family: no mask is left, what is revealed stays unless a sampler edits, and neither
/// threads nor instruction sets nor the backend change a bit.
#[test]
fn every_sampler_fills_every_family_with_the_same_bits_everywhere() {
    let options = |backend: &str, threads| LoadOptions {
        backend: backend.into(),
        threads: Some(threads),
        ..LoadOptions::default()
    };
    for (i, file) in FILES.iter().enumerate() {
        let models = [options("cpu", 1), options("cpu", 3), options("reference", 1)];
        let mut models = models.map(|o| open(file, &o));
        let Noise::Mask(mask) = models[0].shape().noise else { panic!("{file} has masks") };
        for (j, spec) in SAMPLERS.iter().filter(|s| s.masks).enumerate() {
            let cache = CACHES[(i + j) % 2];
            let mut parameters = vec![("steps", 7.0), ("temperature", 0.7), ("top_p", 0.9)];
            parameters.extend(commands(spec));
            if spec.params.iter().any(|p| p.name == "block_length") {
                parameters.push(("block_length", 4.0));
            }
            let mut answers = models.iter_mut().map(|model| {
                let request = Request { cache, ..request(model, spec.name, &parameters, 11) };
                let mut session = model.session().unwrap();
                let mut canvas_in: Vec<u32> = Vec::new();
                let done = run_in(model, &mut session, &request, &mut |e| {
                    if let Event::Step(s) = e {
                        let edits = spec.params.iter().any(|p| p.name == "edit_threshold");
                        let kept = canvas_in.iter().zip(s.canvas_in).all(|(&a, &b)| a == mask || a == b);
                        assert!(kept || edits, "{file} {}", spec.name);
                        canvas_in = s.canvas_in.to_vec();
                    }
                    ControlFlow::Continue(())
                });
                model.close(session);
                done.unwrap()
            });
            let first = answers.next().unwrap();
            assert!(first.ids.len() == 11 && !first.ids.contains(&mask), "{file} {}", spec.name);
            for other in answers {
                assert_eq!(outcome(&other), outcome(&first), "{file} {}", spec.name);
            }
        }
    }
}

#[test]
fn levels_and_types_change_no_bit() {
    let answer = |options: &LoadOptions| {
        let mut model = open(DREAM, options);
        let mut request = request(&model, "threshold", &[("block_length", 16.0), ("threshold", 0.3)], 70);
        request.prompt = (0..61).map(|i| 20 + (i * 37) % 480).collect();
        CACHES.map(|cache| outcome(&run(&mut model, &Request { cache, ..request.clone() })))
    };
    let modes = [Numerics::Exact, Numerics::Fast];
    let kinds = modes.into_iter().flat_map(|n| KvType::ALL.iter().map(move |&kv_type| (n, kv_type)));
    let mut all = Vec::new();
    for (numerics, kv_type) in kinds {
        let base = LoadOptions { numerics: Some(numerics), kv_type, ..LoadOptions::default() };
        let want = answer(&LoadOptions { threads: Some(1), ..base.clone() });
        assert_eq!(answer(&LoadOptions { threads: Some(5), ..base.clone() }), want);
        for level in CpuLevel::available() {
            let options = LoadOptions { cpu_level: Some(level.name().into()), ..base.clone() };
            assert_eq!(answer(&options), want, "level {}", level.name());
        }
        assert_eq!(answer(&LoadOptions { backend: "reference".into(), ..base }), want);
        all.push(want);
    }
    assert!(all.iter().enumerate().all(|(i, a)| all[..i].iter().all(|b| a != b)), "each rounds otherwise");
}

/// A run, its recording and its receipt agree, and neither can be taken for one without a cache.
#[test]
fn recordings_and_receipts_repeat() {
    for (file, cache) in [(DREAM, BlockCache::Prefix), (LLADA, BlockCache::Dual)] {
        let mut model = open(file, &LoadOptions::default());
        let parameters = [("temperature", 0.8), ("top_p", 0.9), ("block_length", 5.0)];
        let request = Request { cache, ..request(&model, "low-confidence", &parameters, 13) };
        let (mut recorder, mut steps) = (GenerationRecorder::default(), StepRecorder::default());
        let mut session = model.session().unwrap();
        let done = run_in(&mut model, &mut session, &request, &mut |e| {
            recorder.event(e);
            steps.event(e);
            ControlFlow::Continue(())
        })
        .unwrap();
        let mut file = recorder.finish(&request.prompt, &done.committed);
        file.metadata.insert("config".into(), config(&request));
        file.metadata.insert("sampler".into(), request.sampler.name.into());
        file.metadata.insert("cache".into(), cache.name().into());
        let limits = Limits { all: true, ..f32_limits() };
        let repeated = like(&mut model, &file, None).unwrap();
        let report = compare(&file, &repeated, &limits);
        assert!(report.ok, "{report:#?}");
        file.metadata.remove("cache");
        assert!(!compare(&file, &like(&mut model, &file, None).unwrap(), &limits).ok);

        let digests = ModelDigests::of(&model, &mut |_, _| true).unwrap();
        let receipt = Receipt::new(&model, digests, &request, 3, &done, steps);
        let receipt = Receipt::parse(receipt.to_json().unwrap().as_bytes()).unwrap();
        assert_eq!(receipt.cache.as_deref(), Some(cache.name()));
        let mut verified = |receipt: &Receipt| {
            let again = receipt.request(&model).unwrap();
            let mut check = Check::new(receipt);
            let mut session = model.session().unwrap();
            let done = run_in(&mut model, &mut session, &again, &mut |e| check.event(e));
            check.finish(done.ok().as_ref(), model.tokenizer())
        };
        assert_eq!(verified(&receipt), None);
        let other = verified(&Receipt { cache: None, ..receipt.clone() }).unwrap();
        assert!(other.what.ends_with("step 2: logits"), "{other:?}");
        let odd = Receipt { cache: Some("odd".into()), ..receipt };
        let e = odd.request(&model).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains("cache: expected none, prefix or dual, found odd"), "{e}");
    }
}

/// Keys and values of prompt and answer count, in their type; without a cache there are none.
#[test]
fn the_memory_of_a_cache_is_known_before() {
    let mut model = open(DREAM, &LoadOptions::default());
    let row: u64 = model.shape().kv.widths.iter().map(|&w| 2 * 4 * w as u64).sum();
    assert_eq!(model.shape().kv.widths.len(), model.shape().n_layers);
    let of = |model: &mut Model, cache| MemoryEstimate::of(model, 50, 40, Ask::default(), cache).unwrap();
    let none = of(&mut model, BlockCache::None);
    for cache in CACHES {
        let with = of(&mut model, cache);
        assert_eq!((none.kv_bytes, with.kv_bytes), (0, 90 * row));
        assert!(with.buffer_bytes >= none.buffer_bytes);
    }
    model.set_kv_type(KvType::F16).unwrap();
    assert_eq!(of(&mut model, BlockCache::Dual).kv_bytes, 45 * row);
    let mut request = request(&model, "low-confidence", &[("block_length", 8.0), ("steps", 8.0)], 40);
    request.cache = BlockCache::Dual;
    let held = run(&mut model, &request).kv_bytes as u64;
    // Whole pages.
    assert!(held >= 47 * row / 2 && held <= 256 * row, "{held}");
    model.set_kv_type(KvType::F32).unwrap();
    request.cache = BlockCache::None;
    assert_eq!(run(&mut model, &request).kv_bytes, 0);
}

/// What steps shared is gone after the answer, however it ends.
#[test]
fn a_session_keeps_nothing() {
    for cache in CACHES {
        let mut model = open(DREAM, &LoadOptions::default());
        let parameters = [("block_length", 5.0)];
        let plain = request(&model, "low-confidence", &parameters, 13);
        let request = Request { cache, ..plain.clone() };
        let fresh = [&plain, &request].map(|r| outcome(&run(&mut model, r)));
        let mut session = model.session().unwrap();
        for _ in 0..2 {
            let mut steps = 0;
            let broken = run_in(&mut model, &mut session, &request, &mut |e| match e {
                Event::Step(_) if steps == 7 => ControlFlow::Break(()),
                Event::Step(_) => {
                    steps += 1;
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Continue(()),
            });
            assert!(matches!(broken, Err(Error::Interrupted)));
            let mut sink = LogitsSink::default();
            canvas_pass(&mut model, &session, CanvasPass::new(&[20, 511, 30]), &mut sink).unwrap();
            for (r, want) in [&plain, &request].into_iter().zip(&fresh) {
                let done = run_in(&mut model, &mut session, r, &mut |_| ControlFlow::Continue(())).unwrap();
                assert_eq!(&outcome(&done), want, "{cache:?}");
            }
            canvas_pass(&mut model, &session, CanvasPass::new(&[20, 511, 30]), &mut sink).unwrap();
        }
    }
}

/// Given text stays, blocks of nothing else are passed over, and the end of the answer ends it.
#[test]
fn given_text_penalties_and_ends_are_as_without_a_cache() {
    for file in FILES {
        for cache in CACHES {
            let mut model = open(file, &LoadOptions::default());
            let parameters = [
                ("block_length", 4.0),
                ("repetition_penalty", 1.3),
                ("presence_penalty", 0.4),
                ("min_tokens", 3.0),
            ];
            let mut r = Request { cache, ..request(&model, "low-confidence", &parameters, 17) };
            let mut slots = vec![Slot::Gap; 17];
            for at in [1, 4, 5, 6, 7, 9, 16] {
                slots[at] = Slot::Fixed(100 + at as u32);
            }
            r.given = Given { slots: slots.clone(), end: None };
            let done = run(&mut model, &r);
            assert_eq!((done.ids.len(), done.canvases[0].steps), (17, 10), "{file}");
            for (id, slot) in done.ids.iter().zip(&slots) {
                assert!(slot.is_open() || *slot == Slot::Fixed(*id));
            }
            r.given = Given::default();
            let whole = run(&mut model, &r);
            let end = whole.ids[9];
            let at = whole.ids.iter().position(|&id| id == end).unwrap();
            r.end_ids = vec![end];
            let cut = run(&mut model, &r);
            if at >= 3 {
                assert_eq!(cut.ids, whole.ids[..at], "{file} {cache:?}");
                assert!(cut.canvases[0].steps < whole.canvases[0].steps);
            }
            r.ban = vec![whole.ids[0]];
            assert!(!run(&mut model, &r).ids.contains(&whole.ids[0]));
        }
    }
}

/// The row before the first position of a sequence does not exist, and a file can say that nothing is shifted.
#[test]
fn shifted_predictions_at_the_start_of_a_sequence() {
    let shift = "diffusion.shift_logits";
    let models = [
        open(DREAM, &LoadOptions::default()),
        with_metadata(DREAM, |m| m.set(shift, false)).unwrap(),
        with_metadata(LLADA, |m| m.set(shift, true)).unwrap(),
    ];
    for mut model in models {
        for cache in CACHES {
            let parameters = [("block_length", 3.0), ("steps", 4.0)];
            let mut r = request(&model, "low-confidence", &parameters, 12);
            r.prompt.clear();
            r.given = Given { slots: vec![Slot::Gap, Slot::Gap, Slot::Fixed(40)], end: None };
            let plain = outcome(&run(&mut model, &r));
            r.cache = cache;
            assert_eq!(outcome(&run(&mut model, &r)), plain, "one step a block");
            r.params = model.params(r.sampler, &[("block_length".into(), 3.0)]).unwrap();
            let done = run(&mut model, &r);
            assert_eq!((done.ids.len(), done.ids[2], done.canvases[0].steps), (12, 40, 11));
        }
    }
}

/// Answers to a part of the questions of a trained model: how many are right, and how many of the tokens are those without a
/// cache.
#[test]
fn what_a_cache_changes_in_answers_of_a_trained_model() {
    let file = std::fs::read_to_string(testdata().join("caches/questions.json")).unwrap();
    let questions: Vec<BTreeMap<String, String>> = serde_json::from_str(&file).unwrap();
    let runs = [(TRAINED[0], 8.0), (TRAINED[1], 8.0), (TRAINED[1], 0.0)];
    let found = runs.map(|(file, block)| {
        let mut model = Model::open(&testdata().join("caches").join(file), &LoadOptions::default()).unwrap();
        let mut found = [[0; 2]; 3];
        for q in questions.iter().step_by(7) {
            let ids = |text: &str| -> Vec<u32> {
                text.chars().map(|c| model.tokenizer().token_id(&c.to_string()).unwrap()).collect()
            };
            let (prompt, answer) = (ids(&q["prompt"]), ids(&q["answer"]));
            let mut r = request(&model, "threshold", &[("block_length", block)], answer.len());
            (r.prompt, r.full_logits) = (prompt, false);
            let answers = [BlockCache::None, BlockCache::Prefix, BlockCache::Dual].map(|cache| {
                r.cache = cache;
                run(&mut model, &r).ids
            });
            for (found, ids) in found.iter_mut().zip(&answers) {
                found[0] += usize::from(*ids == answer);
                found[1] += ids.iter().zip(&answers[0]).filter(|(a, b)| a == b).count();
            }
        }
        found
    });
    assert_eq!(
        found,
        [
            [[43, 1728], [43, 1656], [43, 1662]],
            [[28, 1728], [29, 1662], [29, 1658]],
            [[27, 1728], [26, 1579], [26, 1579]],
        ]
    );
}
