//! Models that read block by block: what is in the cache, where canvases begin and end, and that none of it changes a
//! bit.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use common::{
    LogitsSink, block_cases, changed, commands, config, exact, f32_limits, family_cases, judge, oracle_model,
    testdata,
};
use redraft::arch::{Canvases, Noise, Reading};
use redraft::compute::cpu::CpuLevel;
use redraft::compute::{KvType, Precision, TapKey};
use redraft::engine::{
    BlockCache, CanvasPass, Event, Finish, Generation, Given, MemoryEstimate, Philox, Request, Session,
    TapSink, canvas_pass, default_max_tokens, generate,
};
use redraft::gguf::Metadata;
use redraft::receipt::{Check, ModelDigests, Receipt, StepRecorder};
use redraft::sampler::{Ask, PROFILES, SAMPLERS, sampler};
use redraft::trace::{Bounds, GenerationRecorder, Limits, Recording, compare, like};
use redraft::{Error, LoadOptions, Model};

/// The tiny model of a family.
struct Family {
    file: &'static str,
    /// How many goldens it has.
    cases: usize,
    shifted: bool,
}

const SDAR: Family = Family { file: "sdar-tiny.BF16.gguf", cases: 5, shifted: false };
const SDAR_MOE: Family = Family { file: "sdar-moe-tiny.BF16.gguf", cases: 3, shifted: false };
const FAST_DLLM: Family = Family { file: "fast-dllm-tiny.BF16.gguf", cases: 6, shifted: true };

/// Without blocks: it reads everything both ways.
const A2D: Family = Family { file: "a2d-qwen3-tiny.BF16.gguf", cases: 5, shifted: false };

const ALL: [Family; 4] = [SDAR, SDAR_MOE, FAST_DLLM, A2D];
/// One of each kind, for what takes longer.
const TWO: [Family; 2] = [SDAR_MOE, FAST_DLLM];

impl Family {
    fn path(&self) -> PathBuf {
        testdata().join("block-diffusion/models").join(self.file)
    }

    /// The model with blocks of `len`, and other metadata.
    fn try_open(
        &self,
        len: usize,
        options: &LoadOptions,
        change: impl FnOnce(&mut Metadata),
    ) -> Result<Model, Error> {
        let g = changed(&self.path(), |m| {
            m.set("diffusion.canvas_length", len as u32);
            change(m);
        });
        Model::from_gguf(g, options)
    }

    fn open(&self, len: usize, options: &LoadOptions) -> Model {
        self.try_open(len, options, |_| ()).unwrap()
    }
}

#[test]
fn every_golden_passes_in_f32() {
    let cases = block_cases();
    for family in &ALL {
        let mut model = Model::open(&family.path(), &exact()).unwrap();
        assert!(model.notes().is_empty() && model.unused_tensors().is_empty(), "{:?}", model.notes());
        assert_eq!(judge(&mut model, family.file, &cases, &f32_limits()), family.cases, "{}", family.file);
    }
    assert_eq!(cases.len(), ALL.iter().map(|f| f.cases).sum::<usize>());
}

#[test]
fn the_f64_truth_passes_at_one_in_a_trillion() {
    let limits = Limits { bounds: Bounds::relative(1e-12), ..f32_limits() };
    let options = LoadOptions { precision: Precision::F64, ..LoadOptions::default() };
    let cases = block_cases();
    for family in &ALL {
        judge(&mut Model::open(&family.path(), &options).unwrap(), family.file, &cases, &limits);
    }
}

/// The same tensors under the name of another architecture, and what its goldens say then.
#[test]
fn families_that_can_do_both_do_what_the_file_says() {
    let renamed = |path: &Path, from: &str, to: &str, change: &dyn Fn(&mut Metadata)| {
        let g = changed(path, |m| {
            let keys: Vec<_> = m.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
            for (key, value) in keys {
                if let Some(rest) = key.strip_prefix(from) {
                    m.set(format!("{to}{rest}"), value);
                }
            }
            m.set("general.architecture", to);
            change(m);
        });
        Model::from_gguf(g, &exact()).unwrap()
    };
    // With blocks Qwen 3 is SDAR, and Qwen 2.5 with shifted logits is Fast-dLLM v2.
    let cases = block_cases();
    for (family, from, to) in [(&SDAR, "sdar", "a2d-qwen3"), (&FAST_DLLM, "fast-dllm", "a2d-qwen2")] {
        let mut model = renamed(&family.path(), from, to, &|_| ());
        assert_eq!(model.shape().reading, Reading::Blocks);
        assert_eq!(judge(&mut model, family.file, &cases, &f32_limits()), family.cases, "{to}");
    }
    // Without blocks Qwen 2 with shifted logits is Dream.
    let file = "dream-tiny.F16.gguf";
    let mut model = renamed(&oracle_model(file), "dream", "a2d-qwen2", &|m| {
        m.set("diffusion.shift_logits", true);
    });
    assert_eq!(model.shape().reading, Reading::Whole);
    assert_eq!(judge(&mut model, file, &family_cases(), &f32_limits()), 7);
    let silent =
        renamed(&oracle_model(file), "dream", "a2d-qwen2", &|m| drop(m.remove("diffusion.shift_logits")));
    assert!(!silent.shape().shifted, "the makers' programs shift nothing unless asked to");
}

/// What the goldens must hold for the two tests above to mean anything: a tail that shares a block, who sees whom,
/// chunks, steps that reveal more than one token by a threshold, a given first token.
#[test]
fn goldens_hold_what_matters() {
    let cases: BTreeMap<_, _> = block_cases().into_iter().collect();
    for (name, tensors) in [
        (
            "sdar-tiny.BF16.cached",
            &["enc2/l_out-1", "enc2/kq_visible-0", "dec/kq_visible-0", "dec/l_out-1"][..],
        ),
        ("sdar-tiny.BF16.forward", &["Qcur-0", "Kcur-0", "ffn_out-0", "result_norm", "logits"]),
        ("sdar-moe-tiny.BF16.forward", &["ffn_moe_topk-0", "ffn_moe_weights-1", "ffn_moe_out-0"]),
        (
            "fast-dllm-tiny.BF16.sampler-threshold",
            &["x_in", "x_out", "confidence", "argmax", "revealed", "final"],
        ),
    ] {
        tensors.iter().for_each(|t| assert!(cases[name].tensors.contains_key(*t), "{name} {t}"));
    }
    let ints = |name: &str, tensor: &str| cases[name].ints(tensor).unwrap();
    assert_eq!(ints("sdar-tiny.BF16.cached", "prompt_ids").len() % 4, 1);
    for name in ["sdar-tiny.BF16.sampler-threshold", "fast-dllm-tiny.BF16.sampler-dynamic-threshold"] {
        let k = ints(name, "k");
        assert!(k.iter().any(|&k| k > 1) && k.contains(&1), "{name} {k:?}");
    }
    // 32 positions in two blocks, each of which begins with a token that no step reveals.
    assert_eq!(ints("fast-dllm-tiny.BF16.sampler-threshold", "k").iter().sum::<i64>(), 30);
}

fn options() -> LoadOptions {
    LoadOptions { threads: Some(1), ..LoadOptions::default() }
}

fn prompt(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| 20 + (i * 37) % 480).collect()
}

fn request(model: &Model, name: &str, parameters: &[(&str, f64)], prompt: &[u32], n: usize) -> Request {
    let spec = sampler(name).unwrap();
    let parameters: Vec<_> = parameters.iter().map(|(n, x)| (n.to_string(), *x)).collect();
    Request {
        prompt: prompt.to_vec(),
        max_tokens: n,
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

fn run_in(
    model: &mut Model,
    session: &mut Session,
    request: &Request,
    on_event: &mut dyn FnMut(&Event<'_>),
) -> Result<Generation, Error> {
    let draws = Philox { seed: 5, vocab_len: model.shape().vocab_len as u32 };
    generate(model, session, request, &draws, &mut |e| {
        on_event(e);
        ControlFlow::Continue(())
    })
}

fn run(
    model: &mut Model,
    request: &Request,
    on_event: &mut dyn FnMut(&Event<'_>),
) -> Result<Generation, Error> {
    let mut session = model.session().unwrap();
    let done = run_in(model, &mut session, request, on_event);
    model.close(session);
    done
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Logits of the last rows of a pass over `ids` at once, nothing cached.
fn uncached(model: &mut Model, ids: &[u32], rows: usize) -> Vec<f32> {
    let session = model.session().unwrap();
    let mut sink = LogitsSink::default();
    canvas_pass(model, &session, CanvasPass::new(ids), &mut sink).unwrap();
    model.close(session);
    sink.0.split_off(sink.0.len() - rows * model.shape().vocab_len)
}

/// Prompts that end inside a block, at its end, or before the first is full, cached in pieces of one block or more.
#[test]
fn a_cached_prompt_gives_the_bits_of_an_uncached_one() {
    for family in &TWO {
        for &kv_type in KvType::ALL {
            for len in [3, 8, 32] {
                let mut model = family.open(len, &LoadOptions { kv_type, ..options() });
                for n in [1, 7, 24, 47, 96] {
                    let prompt = prompt(n);
                    let canvas: Vec<u32> = (0..(len - n % len) as u32).map(|i| (i * 53) % 511).collect();
                    let want = uncached(&mut model, &[&prompt[..], &canvas].concat(), canvas.len());
                    let (cached, lead) = prompt.split_at(model.shape().cached(n));
                    assert_eq!(lead.len(), n % len);
                    for blocks in [1, 2, 100] {
                        let mut session = model.session().unwrap();
                        for chunk in cached.chunks(blocks * len) {
                            session.extend(&mut model, chunk, &mut ()).unwrap();
                        }
                        let mut sink = LogitsSink::default();
                        let pass = CanvasPass { lead, ..CanvasPass::new(&canvas) };
                        canvas_pass(&mut model, &session, pass, &mut sink).unwrap();
                        model.close(session);
                        assert_eq!(
                            bits(&sink.0),
                            bits(&want),
                            "{} {kv_type:?} {len} {n} {blocks}",
                            family.file
                        );
                    }
                }
            }
        }
    }
}

/// A token sees its whole block and nothing after it.
#[test]
fn blocks_are_bidirectional_and_causal_among_each_other() {
    let mut model = SDAR_MOE.open(4, &options());
    let mut ids = prompt(12);
    let rows = |model: &mut Model, ids: &[u32]| uncached(model, ids, 12);
    let before = rows(&mut model, &ids);
    // The last token of the second block.
    ids[7] += 1;
    let after = rows(&mut model, &ids);
    let v = model.shape().vocab_len;
    let changed: Vec<bool> = (0..12).map(|i| before[i * v..][..v] != after[i * v..][..v]).collect();
    assert_eq!(changed, [[false; 4], [true; 4], [true; 4]].concat());
}

/// Each step of an answer, against a pass over everything before it and the canvas at once. Canvases are whole blocks
/// but for the first, which is what the prompt leaves of one.
#[test]
fn every_step_has_the_logits_of_the_whole_sequence() {
    for family in &TWO {
        for (len, n, tokens, lens) in
            [(4, 6, 9, vec![2, 4, 4]), (8, 3, 12, vec![5, 8]), (8, 16, 16, vec![8, 8]), (32, 20, 5, vec![12])]
        {
            let mut model = family.open(len, &options());
            let Noise::Mask(mask) = model.shape().noise else { panic!("masks") };
            let division = model.shape().canvases(n, tokens);
            assert_eq!((0..division.count).map(|c| division.len_of(c)).collect::<Vec<_>>(), lens);
            let request = request(&model, "threshold", &[("threshold", 0.02)], &prompt(n), tokens);
            let (mut steps, mut before) = (Vec::new(), request.prompt.clone());
            let done = run(&mut model, &request, &mut |e| match e {
                Event::Step(s) => {
                    assert_eq!((s.canvas_in.len(), s.n_prefix), (lens[s.canvas], before.len()));
                    steps.push((
                        before.clone(),
                        s.canvas_in.to_vec(),
                        s.open.unwrap().to_vec(),
                        s.logits.unwrap().to_vec(),
                    ));
                }
                Event::Commit { ids, .. } => before.extend_from_slice(ids),
                Event::Prompt { .. } => {}
            })
            .unwrap();
            assert_eq!((done.ids.len(), done.committed.len()), (tokens, lens.iter().sum()));
            assert!(!done.committed.contains(&mask));
            let v = model.shape().vocab_len;
            for (before, canvas, open, logits) in steps {
                let ids = [&before[..], &canvas].concat();
                let all = uncached(&mut model, &ids, ids.len());
                let row = |i: usize| before.len() + i - usize::from(family.shifted);
                let want: Vec<f32> = (0..canvas.len())
                    .filter(|&i| open[i])
                    .flat_map(|i| all[row(i) * v..][..v].to_vec())
                    .collect();
                let have: Vec<f32> = logits.iter().map(|&x| x as f32).collect();
                assert_eq!(bits(&have), bits(&want), "{} {len} {n}", family.file);
                // A shifted model has no row for the first token of a block but in the block before: it is there
                // already.
                let given = family.shifted && before.len().is_multiple_of(len);
                if given {
                    let last = &all[(before.len() - 1) * v..][..v];
                    let best =
                        (0..v).filter(|&id| id != mask as usize).max_by(|&a, &b| last[a].total_cmp(&last[b]));
                    assert_eq!((canvas[0] as usize, open[0]), (best.unwrap(), false));
                } else if open.iter().all(|&o| o) {
                    assert!(canvas.iter().all(|&id| id == mask));
                }
            }
        }
    }
}

#[test]
fn output_is_cut_at_exactly_max_tokens() {
    for family in &TWO {
        let mut model = family.open(8, &options());
        let mut answer = |n| {
            let request = request(&model, "threshold", &[], &prompt(13), n);
            run(&mut model, &request, &mut |_| ()).unwrap()
        };
        let whole = answer(19);
        assert_eq!(whole.committed.len(), 19, "3 + 8 + 8");
        for (n, canvases) in [(1, 1), (3, 1), (4, 2), (11, 2), (12, 3), (18, 3)] {
            let g = answer(n);
            assert_eq!((&g.ids[..], g.canvases.len()), (&whole.ids[..n], canvases));
            assert_eq!(g.finish, Finish::Length);
        }
    }
}

/// An end in the first canvas, in a later one, beyond the cut, and, in shifted models, as the given token of a block.
#[test]
fn answers_end_where_they_end() {
    for family in &TWO {
        let mut model = family.open(4, &options());
        let mut request = request(&model, "threshold", &[], &prompt(6), 14);
        let whole = run(&mut model, &request, &mut |_| ()).unwrap();
        for at in 0..14 {
            request.end_ids = vec![whole.ids[at]];
            let first = whole.ids.iter().position(|&id| id == whole.ids[at]).unwrap();
            let g = run(&mut model, &request, &mut |_| ()).unwrap();
            assert_eq!((&g.ids[..], g.finish), (&whole.ids[..first], Finish::Stop), "{} {at}", family.file);
            assert_eq!(g.canvases.len(), if first < 2 { 1 } else { 2 + (first - 2) / 4 });
        }
    }
}

/// The cache goes back to the beginning of the first block that differs, and its bits are those of a fresh one.
#[test]
fn a_conversation_goes_back_to_whole_blocks() {
    for family in &TWO {
        let fresh = |prompt: &[u32]| {
            let mut model = family.open(8, &options());
            let request = request(&model, "threshold", &[], prompt, 12);
            run(&mut model, &request, &mut |_| ()).unwrap()
        };
        let mut model = family.open(8, &options());
        let mut session = model.session().unwrap();
        let mut turn = |prompt: &[u32], reused: usize| {
            let request = request(&model, "threshold", &[], prompt, 12);
            let g = run_in(&mut model, &mut session, &request, &mut |_| ()).unwrap();
            let want = fresh(prompt);
            assert_eq!((&g.ids, &g.digests), (&want.ids, &want.digests));
            assert_eq!(g.reused, reused, "{} {}", family.file, prompt.len());
            g
        };
        let first = turn(&prompt(21), 0);
        // The whole conversation, of which the last canvas was never read: 21 + 3 + 8 are cached.
        let next = [&prompt(21)[..], &first.ids, &[30, 31, 32]].concat();
        turn(&next, 32);
        // It shares 29 tokens, which end inside a block.
        let mut other = next.clone();
        other[29] += 1;
        turn(&other, 24);
        // The same again; then whole blocks of it, after which a shifted model must predict anew.
        turn(&other, 32);
        let known = if family.shifted { 16 } else { 24 };
        turn(&other[..24], known);
        turn(&other[..24], known);
        // A prompt that is no block.
        turn(&other[..5], 0);
    }
}

#[test]
fn threads_levels_and_backends_change_no_bit() {
    for family in &TWO {
        let answer = |o: &LoadOptions| {
            let mut model = family.open(8, o);
            let p = [("temperature", 0.8), ("top_p", 0.9), ("threshold", 0.05)];
            let request = request(&model, "threshold", &p, &prompt(37), 20);
            run(&mut model, &request, &mut |_| ()).unwrap().digests
        };
        for kv_type in [KvType::F32, KvType::I8] {
            let base = LoadOptions { kv_type, ..options() };
            let want = answer(&base);
            for threads in [2, 3, 7] {
                assert_eq!(
                    answer(&LoadOptions { threads: Some(threads), ..base.clone() }),
                    want,
                    "{threads}"
                );
            }
            for level in CpuLevel::available() {
                let cpu_level = Some(level.name().into());
                assert_eq!(answer(&LoadOptions { cpu_level, ..base.clone() }), want, "{}", level.name());
            }
            assert_eq!(answer(&LoadOptions { backend: "reference".into(), ..base }), want);
        }
    }
}

/// Every sampler of masks reveals each position once, but for the one that a shifted model has given.
#[test]
fn every_sampler_fills_blocks() {
    for family in &TWO {
        let mut model = family.open(8, &options());
        let Noise::Mask(mask) = model.shape().noise else { panic!("masks") };
        for spec in SAMPLERS.iter().filter(|s| s.masks) {
            for steps in [0.0, 3.0] {
                let edits = spec.params.iter().any(|p| p.name == "edit_threshold");
                // Random weights are never sure.
                let p = [("steps", steps), ("edit_threshold", 0.0)];
                let p = [&p[..if edits { 2 } else { 1 }], &commands(spec)].concat();
                let mut request = request(&model, spec.name, &p, &prompt(11), 21);
                request.full_logits = false;
                let (mut revealed, mut edited) = (vec![0; 21], vec![false; 21]);
                let done = run(&mut model, &request, &mut |e| {
                    if let Event::Step(s) = e {
                        let at = s.n_prefix - 11;
                        assert!(s.step < s.steps_max, "{} {} of {}", spec.name, s.step, s.steps_max);
                        let (accepted, open) = (&s.decision.accepted, s.open.unwrap());
                        for (i, (&a, &open)) in accepted.iter().zip(open).enumerate() {
                            revealed[at + i] += usize::from(a && open);
                            edited[at + i] |= a && !open;
                        }
                    }
                })
                .unwrap();
                let given = |i: &usize| family.shifted && (11 + i).is_multiple_of(8);
                let want: Vec<usize> = (0..21).map(|i| usize::from(!given(&i))).collect();
                // Where positions are deleted and inserted, what was revealed can be masked again.
                let more = !commands(spec).is_empty() && revealed.iter().zip(&want).all(|(a, b)| a >= b);
                assert!(more || revealed == want, "{} {} {revealed:?}", family.file, spec.name);
                // What the pass before a block predicts is not edited: nothing else predicts it.
                let kept = (0..21).filter(given).all(|i| !edited[i]);
                assert!(kept && edited.contains(&true) == edits, "{} {}", family.file, spec.name);
                assert!(!done.committed.contains(&mask));
            }
        }
    }
}

/// Top-p says what can be drawn: where nothing is, it makes no token more likely than the model does.
#[test]
fn a_threshold_is_one_of_the_models_probabilities_where_nothing_is_drawn() {
    let mut model = FAST_DLLM.open(8, &options());
    let mut answer = |temperature, top_p| {
        let p = [("temperature", temperature), ("top_p", top_p), ("threshold", 0.4)];
        let request = request(&model, "threshold", &p, &prompt(11), 21);
        let g = run(&mut model, &request, &mut |_| ()).unwrap();
        (g.ids, g.canvases)
    };
    assert_eq!(answer(0.0, 0.6), answer(0.0, 1.0));
    assert_ne!(answer(0.5, 0.6), answer(0.5, 1.0));
}

/// The smaller blocks of a sampler are counted from the start of the model's block: of a canvas of 13 after three
/// tokens of its block the first smaller block of 8 is 5 long.
#[test]
fn smaller_blocks_lie_on_the_grid_of_the_blocks() {
    let mut model = SDAR_MOE.open(16, &options());
    let p = [("block_length", 8.0), ("threshold", 1.0)];
    let request = request(&model, "threshold", &p, &prompt(3), 13);
    let mut left = Vec::new();
    run(&mut model, &request, &mut |e| {
        if let Event::Step(s) = e {
            left.push(s.open.unwrap()[..5].iter().filter(|&&o| o).count());
        }
    })
    .unwrap();
    assert_eq!(left, [5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut model = SDAR_MOE.open(8, &options());
    let problem = |model: &mut Model, r: &Request| run(model, r, &mut |_| ()).unwrap_err().to_string();
    let mut r = request(&model, "threshold", &[], &prompt(30), 4);
    // 30 and the rest of its block, 2, and one block more.
    r.context_len = 39;
    let e = problem(&mut model, &r);
    assert!(e.contains("prompt has 30") && e.contains("up to 10") && e.contains("context of 39"), "{e}");
    r.context_len = 40;
    assert_eq!(run(&mut model, &r, &mut |_| ()).unwrap().ids.len(), 4);
    r.context_len = 29;
    assert!(problem(&mut model, &r).contains("context of 29"), "a prompt that is too long alone");
    let r = request(&model, "threshold", &[("cfg_scale", 1.0)], &prompt(30), 4);
    assert!(problem(&mut model, &r).contains("cfg_scale"), "guidance takes the prompt out");
    let mut session = model.session().unwrap();
    let e = session.extend(&mut model, &prompt(12), &mut ()).unwrap_err().to_string();
    assert!(e.contains("whole blocks of 8, found 12"), "{e}");

    let spec = model.sampler().unwrap();
    let most = |context, prompt| default_max_tokens(model.shape(), spec, context, prompt);
    assert_eq!([most(4096, 30), most(100, 30), most(100, 95), most(100, 96)], [512, 66, 1, 1]);
    assert_eq!(model.shape().canvases(30, 66).total(), 66, "up to the last whole block");
    // A length that nothing can hold is no overflow.
    let huge = model.shape().canvases(30, usize::MAX);
    assert_eq!(huge.total(), usize::MAX);
    assert_eq!(Canvases { count: 0, first: 3, len: 3 }.total(), 0);
}

#[test]
fn keys_have_a_meaning() {
    let [sdar, fast] = &TWO;
    let key = "diffusion.canvas_length";
    let silent = sdar.try_open(8, &options(), |m| drop(m.remove(key))).unwrap();
    assert_eq!(silent.shape().canvas_len, 4);
    assert!(silent.notes().iter().any(|n| n.contains("no diffusion.canvas_length; taking 4")));
    let silent = fast.try_open(8, &options(), |m| drop(m.remove(key))).unwrap();
    assert_eq!(silent.shape().canvas_len, 32);
    for (family, len) in [(sdar, 0), (sdar, 1 << 17), (fast, 0), (fast, 1)] {
        let e = family.try_open(len, &options(), |_| ()).err().unwrap().to_string();
        assert!(e.contains(key), "{e}");
    }
    // One token a block: an autoregressive model.
    let mut model = sdar.open(1, &options());
    let request = request(&model, "threshold", &[], &prompt(3), 4);
    assert_eq!(run(&mut model, &request, &mut |_| ()).unwrap().canvases.len(), 4);
    // A file that says so is read as it says.
    let shifted = sdar.try_open(8, &options(), |m| m.set("diffusion.shift_logits", true)).unwrap();
    assert!(shifted.shape().predicts_next() && !model.shape().predicts_next());
}

/// Keys and values of the whole sequence, and a pass over a chunk of it that is whole blocks.
#[test]
fn the_memory_of_an_answer_is_known_before() {
    let mut model = FAST_DLLM.open(48, &options());
    let shape = model.shape().clone();
    let of = |model: &mut Model, n, answer| {
        MemoryEstimate::of(model, n, answer, Ask::default(), BlockCache::None).unwrap()
    };
    let long = of(&mut model, 2000, 112);
    let row: usize = shape.kv.widths.iter().map(|w| 2 * 4 * w).sum();
    assert_eq!(long.kv_bytes, (2112 * row) as u64);
    assert!(long.buffer_bytes > of(&mut model, 20, 28).buffer_bytes);
    assert!(
        of(&mut model, 20, 76).buffer_bytes > of(&mut model, 20, 28).buffer_bytes,
        "a second canvas is longer"
    );
    // Chunks of a prompt are at most 480 rows: ten blocks.
    struct Rows(Vec<usize>);
    impl TapSink for Rows {
        fn begin(&mut self, program: &redraft::compute::Program) {
            self.0.push(program.rows());
        }
        fn wants(&self, _: TapKey) -> bool {
            false
        }
    }
    let mut rows = Rows(Vec::new());
    let mut session = model.session().unwrap();
    session.set_prompt(&mut model, &prompt(1008), &mut rows, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(rows.0, [480, 480, 48]);
    assert!(session.next().is_some());
}

/// A run, its recording and its receipt agree, with everything drawn at random, though the canvases differ in length.
#[test]
fn recordings_and_receipts_repeat() {
    for (family, name) in [(&SDAR_MOE, "random"), (&FAST_DLLM, "maskgit-plus"), (&SDAR_MOE, "threshold")] {
        for (n, tokens) in [(11, 9), (8, 9), (11, 3)] {
            let mut model = family.open(8, &options());
            let p = [("temperature", 0.8), ("top_p", 0.9), ("steps", 4.0)];
            let mut request = request(&model, name, &p, &prompt(n), tokens);
            request.full_logits = false;
            let (mut recorder, mut steps) = (GenerationRecorder::default(), StepRecorder::default());
            let mut canvases = Vec::new();
            let done = run(&mut model, &request, &mut |e| {
                recorder.event(e);
                steps.event(e);
                if let Event::Step(s) = e {
                    canvases.push((s.canvas_in.to_vec(), s.open.unwrap().to_vec()));
                }
            })
            .unwrap();
            let mut file = recorder.finish(&request.prompt, &done.committed);
            assert_eq!(file.tensors.contains_key("n_lead"), (n, tokens) == (11, 9));
            file.metadata.insert("config".into(), config(&request));
            file.metadata.insert("sampler".into(), name.into());
            file.metadata.insert("max_tokens".into(), tokens.to_string());
            let repeated = like(&mut model, &file, None).unwrap();
            let report = compare(&file, &repeated, &Limits { all: true, ..f32_limits() });
            assert!(report.ok, "{name}: {report:#?}");
            if file.tensors.contains_key("n_lead") {
                let mut other = file.clone();
                other.tensors.remove("n_lead");
                let e = like(&mut model, &other, None).unwrap_err().to_string();
                assert!(e.contains("init_canvas: expected canvases as the prompt makes them"), "{e}");
            }
            let recording = Recording::read(&file, 512).unwrap();
            assert_eq!(recording.answer(usize::MAX), done.ids);
            let shown: Vec<_> = recording
                .steps
                .iter()
                .map(|s| (s.event().canvas_in.to_vec(), s.event().open.unwrap().to_vec()))
                .collect();
            assert_eq!(shown, canvases);

            let digests = ModelDigests::of(&model, &mut |_, _| true).unwrap();
            let receipt = Receipt::new(&model, digests, &request, 5, &done, steps);
            let again = receipt.request(&model).unwrap();
            let mut check = Check::new(&receipt);
            let g = run(&mut model, &again, &mut |e| assert!(check.event(e).is_continue())).unwrap();
            assert_eq!(check.finish(Some(&g), model.tokenizer()), None);
        }
    }
}
