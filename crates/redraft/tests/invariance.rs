//! What must not change a bit: threads, instruction sets, chunks, caches.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{LogitsSink, exact, open, oracle_cases};
use redraft::compute::{KvType, Numerics, Precision};
use redraft::engine::{
    BlockCache, CanvasPass, Event, Generation, Given, Philox, Previous, Request, Sampling, Session,
    canvas_pass, generate,
};
use redraft::sampler::{PROFILES, sampler};
use redraft::{Error, LoadOptions, Model};

const FILE: &str = "dg-tiny.Q4_K_M.gguf";

fn request(model: &Model, prompt: &[u32], max_tokens: usize) -> Request {
    let spec = sampler("entropy-bound").unwrap();
    Request {
        prompt: prompt.to_vec(),
        max_tokens,
        context_len: model.shape().context_len,
        sampler: spec,
        params: spec.params(model.gguf().metadata(), &[("steps".into(), 5.0)]).unwrap(),
        profile: &PROFILES[0],
        end_ids: Vec::new(),
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        self_conditioning: true,
        given: Given::default(),
        constraint: None,
        cache: BlockCache::None,
        full_logits: true,
        interrupt: None,
    }
}

fn run(model: &mut Model, session: &mut Session, request: &Request) -> Generation {
    let draws = Philox { seed: 7, vocab_len: model.shape().vocab_len as u32 };
    generate(model, session, request, &draws, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn prompt() -> Vec<u32> {
    (0..61).map(|i| 20 + (i * 37) % 480).collect()
}

/// Digests of two canvases in a fresh session.
fn fresh(options: &LoadOptions) -> Generation {
    let mut model = open(FILE, options);
    let mut session = model.session().unwrap();
    let request = request(&model, &prompt(), 50);
    run(&mut model, &mut session, &request)
}

/// The digest that every platform must reproduce: x86-64 scalar, AVX2, AVX-512, AArch64 NEON.
#[test]
fn the_digest_is_the_same_on_every_platform() {
    let g = fresh(&exact());
    assert_eq!(g.ids.len(), 50);
    assert_eq!(
        (g.digests.ids.as_str(), g.digests.logits.as_str()),
        (
            "61cfc4aecbb9b366f2f7df8a995fd301a407efcfea18ac16418fab0a44e5ca1c",
            "85fbb139d76dee556885746d68e4ba1a8bea48f311e88e98856334ad283f6eeb"
        )
    );
}

/// The same in `fast`, which is what quantized files are computed in unless told otherwise; other bits than those of
/// `exact`.
#[test]
fn the_fast_digest_is_the_same_on_every_platform() {
    let g = fresh(&LoadOptions { numerics: Some(Numerics::Fast), ..LoadOptions::default() });
    assert_eq!(g.digests, fresh(&LoadOptions::default()).digests);
    assert_eq!(
        (g.digests.ids.as_str(), g.digests.logits.as_str()),
        (
            "afac2f4589116c6f7668e67ed5ff324369589afd0f234f99c01ddf6164b7ab78",
            "7bfb9a418d5aedfc3b609b41925f6a7024a567772d89fbd43d59748b7a1514bd"
        )
    );
}

/// The mode that is taken where none is asked for follows from the weights and the number type.
#[test]
fn the_default_mode_is_that_of_the_file() {
    let mode = |file: &str, options: &LoadOptions| open(file, options).numerics();
    let default = LoadOptions::default();
    for (file, expected) in [
        ("dg-mini.F32.gguf", Numerics::Exact),
        ("dg-mini.Q8_0.gguf", Numerics::Fast),
        ("dg-tiny.BF16.gguf", Numerics::Fast),
        (FILE, Numerics::Fast),
    ] {
        assert_eq!(mode(file, &default), expected, "{file}");
        for precision in [Precision::F64, Precision::Bf16] {
            assert_eq!(mode(file, &LoadOptions { precision, ..default.clone() }), Numerics::Exact, "{file}");
        }
        assert_eq!(mode(file, &exact()), Numerics::Exact, "{file}");
    }
    // Asked for in vain, it says so.
    let asked = LoadOptions { numerics: Some(Numerics::Fast), ..default };
    let notes = |file: &str| open(file, &asked).notes().join("\n");
    assert!(notes("dg-mini.F32.gguf").contains("no weight is quantized or of 16 bits"));
    assert!(!notes("dg-mini.Q8_0.gguf").contains("`fast`"));
}

#[test]
fn threads_levels_and_backends_change_no_bit() {
    let modes = [
        (Numerics::Exact, KvType::F32),
        (Numerics::Fast, KvType::F32),
        (Numerics::Exact, KvType::F16),
        (Numerics::Exact, KvType::I8),
    ];
    for (numerics, kv_type) in modes {
        let base = LoadOptions { numerics: Some(numerics), kv_type, ..LoadOptions::default() };
        let want = fresh(&LoadOptions { threads: Some(1), ..base.clone() }).digests;
        for threads in [2, 3, 7] {
            let have = fresh(&LoadOptions { threads: Some(threads), ..base.clone() }).digests;
            assert_eq!(have, want, "{threads} threads");
        }
        for level in redraft::compute::cpu::CpuLevel::available() {
            let options = LoadOptions { cpu_level: Some(level.name().into()), ..base.clone() };
            assert_eq!(fresh(&options).digests, want, "level {}", level.name());
        }
        assert_eq!(fresh(&LoadOptions { backend: "reference".into(), ..base.clone() }).digests, want);
        assert_eq!(fresh(&LoadOptions { mmap: false, ..base }).digests, want);
    }
}

#[test]
fn a_cached_prompt_gives_the_bits_of_a_fresh_one() {
    for &kv_type in KvType::ALL {
        let options = LoadOptions { kv_type, ..LoadOptions::default() };
        let want = fresh(&options).digests;
        let mut model = open(FILE, &options);
        let mut session = model.session().unwrap();
        // Another prompt that shares 40 tokens, then ours, then ours again.
        let mut other = prompt();
        other.truncate(40);
        other.extend([1, 2, 3, 4]);
        let r = request(&model, &other, 40);
        run(&mut model, &mut session, &r);
        for reused in [40, 61] {
            let r = request(&model, &prompt(), 50);
            let g = run(&mut model, &mut session, &r);
            assert_eq!((g.digests, g.reused), (want.clone(), reused), "{kv_type:?}");
        }
    }
}

/// Sliding layers may lose what no later token sees; what goes back further is computed anew, with the same bits.
#[test]
fn an_evicted_window_changes_no_bit() {
    let want = fresh(&LoadOptions::default());
    assert!(!want.kv_windowed);
    let long: Vec<u32> = (0..1500).map(|i| 20 + (i * 37) % 480).collect();
    let answer = |model: &mut Model, session: &mut Session, prompt: &[u32]| {
        let mut r = request(model, prompt, 40);
        r.context_len = 4096;
        run(model, session, &r)
    };
    let mut whole = open(FILE, &LoadOptions::default());
    let mut session = whole.session().unwrap();
    let of_long = answer(&mut whole, &mut session, &long);

    let mut model = open(FILE, &LoadOptions { kv_budget: 0, ..LoadOptions::default() });
    let mut session = model.session().unwrap();
    let g = answer(&mut model, &mut session, &long);
    assert_eq!((&g.digests, g.kv_windowed), (&of_long.digests, true));
    assert!(g.kv_bytes < of_long.kv_bytes, "{} {}", g.kv_bytes, of_long.kv_bytes);
    // The same again goes back by one canvas, which is within half a window or not; then far back.
    assert_eq!(answer(&mut model, &mut session, &long).digests, of_long.digests);
    let r = request(&model, &prompt(), 50);
    let g = run(&mut model, &mut session, &r);
    assert_eq!((g.digests, g.reused), (want.digests, 0));
}

#[test]
fn a_chunked_prompt_gives_the_bits_of_a_whole_one() {
    let logits = |chunks: &[usize], kv_type: KvType| {
        let mut model = open(FILE, &LoadOptions { kv_type, ..LoadOptions::default() });
        let mut session = model.session().unwrap();
        let prompt = prompt();
        let mut at = 0;
        for &n in chunks {
            session.extend(&mut model, &prompt[at..at + n], &mut ()).unwrap();
            at += n;
        }
        assert_eq!(at, prompt.len());
        canvas_logits(&mut model, &session, Previous::None)
    };
    for &kv_type in KvType::ALL {
        let whole = logits(&[61], kv_type);
        for chunks in [&[1, 60][..], &[16, 16, 29], &[17, 15, 1, 28]] {
            assert_eq!(logits(chunks, kv_type), whole, "{chunks:?} {kv_type:?}");
        }
    }
}

/// Bits of the logits of one canvas pass.
fn canvas_logits(model: &mut Model, session: &Session, previous: Previous<'_>) -> Vec<u32> {
    let ids: Vec<u32> = (0..32).map(|i| (i * 53) % 500).collect();
    let mut sink = LogitsSink::default();
    canvas_pass(model, session, CanvasPass { previous, ..CanvasPass::new(&ids) }, &mut sink).unwrap();
    sink.0.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn self_conditioning_off_is_the_plain_forward() {
    let mut model = open(FILE, &LoadOptions::default());
    let mut session = model.session().unwrap();
    let mut r = request(&model, &prompt(), 32);
    r.self_conditioning = false;
    let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
    let mut steps: Vec<(Vec<u32>, Vec<f64>)> = Vec::new();
    generate(&mut model, &mut session, &r, &draws, &mut |e| {
        if let Event::Step(s) = e {
            steps.push((s.canvas_in.to_vec(), s.logits.unwrap().to_vec()));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(steps.len() > 1);
    for (ids, want) in &steps {
        let mut sink = LogitsSink::default();
        let pass = CanvasPass::new(ids);
        canvas_pass(&mut model, &session, pass, &mut sink).unwrap();
        let have: Vec<f64> = sink.0.iter().map(|&x| x.into()).collect();
        assert_eq!(&have, want);
    }
}

/// Without self-conditioning given positions need no logits: only open ones are predicted, with the same bits.
#[test]
fn given_positions_are_not_predicted_for_nobody() {
    let mut model = open(FILE, &LoadOptions::default());
    let session = model.session().unwrap();
    let ids: Vec<u32> = (0..32).map(|i| (i * 53) % 500).collect();
    let open: Vec<bool> = (0..32).map(|i| i % 5 == 2).collect();
    let uniform = [0.5; 32];
    let mut pass = |keep| {
        let sampling = Some(Sampling::at(0.8, &uniform));
        let pass = CanvasPass { keep, open: Some(&open), sampling, ..CanvasPass::new(&ids) };
        let mut sink = LogitsSink::default();
        let result = canvas_pass(&mut model, &session, pass, &mut sink).unwrap();
        (result, sink.0.len())
    };
    let ((all, all_logits), (few, few_logits)) = (pass(true), pass(false));
    assert_eq!(all, few);
    assert_eq!((32 * few_logits, few_logits > 0), (6 * all_logits, true));
}

/// Logits that nobody sees are never there as a whole. Statistics, samples and the feedback are those of logits that
/// somebody looks at, and of logits that come from outside.
#[test]
fn unseen_seen_and_given_logits_have_the_same_bits() {
    for numerics in [Numerics::Exact, Numerics::Fast] {
        let mut model = open(FILE, &LoadOptions { numerics: Some(numerics), ..LoadOptions::default() });
        let mut session = model.session().unwrap();
        session.extend(&mut model, &prompt(), &mut ()).unwrap();
        let ids: Vec<u32> = (0..32).collect();
        let u: Vec<f64> = (0..32).map(|i| (f64::from(i) + 0.5) / 32.0).collect();
        let mut sink = LogitsSink::default();
        // A temperature of one half: the factor 2 is exact, so the test can repeat it.
        let temperature = 0.5;
        let pass = CanvasPass { sampling: Some(Sampling::at(temperature, &u)), ..CanvasPass::new(&ids) };
        let seen = canvas_pass(&mut model, &session, pass, &mut sink).unwrap();
        let feedback = canvas_logits(&mut model, &session, Previous::Kept { temperature });
        let unseen = canvas_pass(&mut model, &session, pass, &mut ()).unwrap();
        assert_eq!(seen, unseen, "{numerics:?}");
        assert_eq!(
            feedback,
            canvas_logits(&mut model, &session, Previous::Kept { temperature }),
            "{numerics:?}"
        );
        let processed: Vec<f64> = sink.0.iter().map(|&x| f64::from(x) * 2.0).collect();
        let given = canvas_logits(&mut model, &session, Previous::Given(&processed));
        assert_eq!(feedback, given, "{numerics:?}");
        assert_ne!(feedback, canvas_logits(&mut model, &session, Previous::None), "{numerics:?}");
    }
}

#[test]
fn output_is_cut_at_exactly_max_tokens() {
    let whole = fresh(&LoadOptions::default());
    for n in [1, 31, 32, 33, 50] {
        let mut model = open(FILE, &LoadOptions::default());
        let mut session = model.session().unwrap();
        let r = request(&model, &prompt(), n);
        assert_eq!(run(&mut model, &mut session, &r).ids, whole.ids[..n]);
    }
}

#[test]
fn an_end_token_beyond_the_cut_is_not_a_stop() {
    use redraft::engine::Finish;
    let whole = fresh(&LoadOptions::default());
    let at = 20;
    let end = whole.ids[at];
    let first = whole.ids.iter().position(|&id| id == end).unwrap();
    for (n, finish, len) in [
        (first + 1, Finish::Stop, first),
        (first, Finish::Stop, first),
        (first.max(1) - 1, Finish::Length, first - 1),
    ] {
        let mut model = open(FILE, &LoadOptions::default());
        let mut session = model.session().unwrap();
        let mut r = request(&model, &prompt(), n);
        r.end_ids = vec![end];
        let g = run(&mut model, &mut session, &r);
        assert_eq!((g.finish, g.ids.len()), (finish, len), "max_tokens {n}");
    }
}

#[test]
fn requests_that_cannot_be_served_say_why() {
    let mut model = open(FILE, &LoadOptions::default());
    let mut session = model.session().unwrap();
    let draws = Philox { seed: 0, vocab_len: 500 };
    let mut fail = |change: &dyn Fn(&mut Request)| {
        let mut r = request(&model, &prompt(), 32);
        change(&mut r);
        generate(&mut model, &mut session, &r, &draws, &mut |_| ControlFlow::Continue(()))
            .unwrap_err()
            .to_string()
    };
    assert!(fail(&|r| r.prompt.clear()).contains("prompt: expected at least one token"));
    assert!(fail(&|r| r.max_tokens = 0).contains("max_tokens: expected at least 1"));
    assert!(fail(&|r| r.context_len = 92).contains("more than the context of 92"));
    assert!(fail(&|r| r.prompt[3] = 528).contains("token id in the prompt: expected 0..528, found 528"));
    let mut r = request(&model, &prompt(), 32);
    r.interrupt = Some(Arc::new(true.into()));
    let e = generate(&mut model, &mut session, &r, &draws, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(e, Error::Interrupted));
}

/// Weights that are no numbers, in every kind of op that reads one: the error names the tensor and the place, at
/// the first pass, and nothing is committed.
#[test]
fn a_damaged_weight_is_named() {
    use redraft::gguf::{DType, Gguf};
    let nan = f32::NAN.to_le_bytes();
    let f16_inf = [0x00, 0x7c];
    // File, tensor, byte offset in it, bytes, and what the error says of it.
    let cases: &[(&str, &str, usize, &[u8], &str)] = &[
        ("F32", "token_embd.weight", 4 * (288 * 30 + 5), &nan, "NaN at [matrix, row, column] = [0, 30, 5]"),
        (
            "F32",
            "token_embd.weight",
            4 * (288 * 530 + 287),
            &nan,
            "NaN at [matrix, row, column] = [0, 530, 287]",
        ),
        ("F32", "blk.0.attn_norm.weight", 4, &nan, "NaN at [matrix, row, column] = [0, 0, 1]"),
        ("F32", "output_norm.weight", 0, &nan, "NaN at [matrix, row, column] = [0, 0, 0]"),
        ("F32", "blk.1.attn_output.weight", 4 * 77, &nan, "NaN at [matrix, row, column] = [0, 0, 77]"),
        ("F32", "blk.1.layer_output_scale.weight", 0, &nan, "NaN at [matrix, row, column] = [0, 0, 0]"),
        ("F32", "blk.0.ffn_gate_inp.weight", 0, &nan, "NaN at [matrix, row, column] = [0, 0, 0]"),
        ("F32", "blk.0.ffn_down_exps.scale", 4 * 3, &nan, "NaN at [matrix, row, column] = [0, 0, 3]"),
        ("Q8_0", "token_embd.weight", 0, &f16_inf, "at [matrix, row, column] = [0, 0, "),
        ("Q8_0", "blk.0.attn_q.weight", 34 * 9 * 2, &f16_inf, "at [matrix, row, column] = [0, 2, "),
    ];
    for (file, tensor, at, bytes, place) in cases {
        let g =
            Gguf::open(&common::oracle_model(&format!("dg-mini.{file}.gguf")), &Default::default()).unwrap();
        let t = g.tensor(tensor).unwrap();
        let mut damaged = g.bytes().to_vec();
        let at = t.offset as usize + at;
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        let damaged = Gguf::from_bytes(damaged.into()).unwrap();
        let mut model = Model::from_gguf(damaged, &LoadOptions::default()).unwrap();
        let mut session = model.session().unwrap();
        let r = request(&model, &[2, 30, 17, 5], 16);
        let draws = Philox { seed: 0, vocab_len: 531 };
        let e =
            generate(&mut model, &mut session, &r, &draws, &mut |_| ControlFlow::Continue(())).unwrap_err();
        let e = e.to_string();
        assert!(
            e.starts_with(&format!("tensor {tensor} is damaged: ")) && e.contains(place),
            "{tensor}: {e}"
        );
    }
    // And in a trace.
    let g = common::expand("dg-mini.F32.gguf", DType::F32);
    let t = g.tensor("blk.1.attn_output.weight").unwrap();
    let mut bytes = g.bytes().to_vec();
    let at = t.offset as usize + 4 * 77;
    bytes[at..at + 4].copy_from_slice(&nan);
    let mut model =
        Model::from_gguf(Gguf::from_bytes(bytes.into()).unwrap(), &LoadOptions::default()).unwrap();
    let (_, golden) = oracle_cases().into_iter().find(|(n, _)| n == "dg-mini.F32.decode").unwrap();
    let e = redraft::trace::like(&mut model, &golden, None).unwrap_err().to_string();
    assert!(e.contains("met in what leads to attn_post_norm-1"), "{e}");
}

/// Stopped wherever another thread happens to ask for it, inside an op as a rule, a session goes on as if nothing had been.
#[test]
fn a_session_that_was_stopped_goes_on_with_the_same_bits() {
    let mut model = open(FILE, &LoadOptions { threads: Some(3), ..LoadOptions::default() });
    let plain = request(&model, &prompt(), 32);
    let mut session = model.session().unwrap();
    let whole = run(&mut model, &mut session, &plain);
    model.close(session);
    let mut session = model.session().unwrap();
    let draws = Philox { seed: 7, vocab_len: model.shape().vocab_len as u32 };
    let mut stopped = 0;
    for round in 0..24u32 {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Request { interrupt: Some(Arc::clone(&stop)), ..plain.clone() };
        let done = std::thread::scope(|threads| {
            threads.spawn(|| {
                (0..round * 400).for_each(|_| std::hint::spin_loop());
                stop.store(true, Ordering::Relaxed);
            });
            generate(&mut model, &mut session, &asked, &draws, &mut |_| ControlFlow::Continue(()))
        });
        stopped += u32::from(matches!(done, Err(Error::Interrupted)));
    }
    assert!(stopped > 0, "the first rounds are shorter than a pass");
    assert_eq!(run(&mut model, &mut session, &plain).digests, whole.digests);
}
