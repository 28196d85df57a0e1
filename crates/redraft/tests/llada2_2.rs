//! LLaDA2.2, whose experts a block of tokens chooses together: goldens of a tiny model at the limits of the oracle, the same
//! bits however a sequence is read, and what its file may say otherwise.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use common::{
    LogitsSink, cases, changed, exact, expand, f32_limits, judge, open, oracle_model, with_metadata,
};
use redraft::arch::Reading;
use redraft::compute::{KvType, Numerics, Precision};
use redraft::engine::{CanvasPass, Given, Philox, Request, canvas_pass, generate};
use redraft::gguf::{DType, Metadata};
use redraft::sampler::{PROFILES, sampler};
use redraft::trace::{Bounds, Limits, TraceFile};
use redraft::{LoadOptions, Model};

const FILE: &str = "llada2.2-tiny.BF16.gguf";
/// Those of the file, which writes them down for the case that has everything.
const CAPACITY: usize = 7;
const BLOCK: usize = 8;

fn goldens() -> Vec<(String, TraceFile)> {
    cases("llada2", |name| name.starts_with("llada2.2-"))
}

#[test]
fn every_case_passes_in_f32() {
    assert_eq!(judge(&mut open(FILE, &exact()), FILE, &goldens(), &f32_limits()), 6);
}

#[test]
fn the_f64_truth_passes_at_one_in_a_trillion() {
    let limits = Limits { bounds: Bounds::relative(1e-12), ..f32_limits() };
    let options = LoadOptions { precision: Precision::F64, ..LoadOptions::default() };
    judge(&mut open(FILE, &options), FILE, &goldens(), &limits);
}

/// Matrices of the file are exact in bf16 and in f16.
#[test]
fn float_forms_pass_with_the_goldens_of_the_stored_file() {
    for form in [DType::F16, DType::F32] {
        let mut model = Model::from_gguf(expand(FILE, form), &exact()).unwrap();
        judge(&mut model, FILE, &goldens(), &f32_limits());
    }
}

/// What the goldens must hold: blocks that use no more experts than they can, which they would exceed token by token.
#[test]
fn goldens_hold_what_matters() {
    let cases: std::collections::BTreeMap<_, _> = goldens().into_iter().collect();
    let case = |name: &str| &cases[&format!("llada2.2-tiny.BF16.{name}")];
    let forward = case("forward");
    for layer in [1, 2] {
        let topk = forward.ints(&format!("ffn_moe_topk-{layer}")).unwrap();
        let used: Vec<usize> =
            topk.chunks(BLOCK * 4).map(|ids| ids.iter().collect::<BTreeSet<_>>().len()).collect();
        assert!(used.len() == 3 && used.iter().all(|n| (5..=CAPACITY).contains(n)), "{used:?}");
    }
    assert_eq!(case("long").ints("ids").unwrap().len() % BLOCK, 5, "a block that the sequence ends in");
    let cached = case("cached");
    assert_eq!(cached.ints("prompt_ids").unwrap().len() % BLOCK, 5, "a block that the prompt begins");
    assert_eq!(cached.ints("chunk_lengths").unwrap(), [16, 8]);
}

#[test]
fn the_file_says_what_the_model_is() {
    let model = open(FILE, &exact());
    assert_eq!((model.shape().reading, model.shape().canvas_len), (Reading::Blocks, BLOCK));
    assert!(model.notes().is_empty() && model.unused_tensors().is_empty(), "{:?}", model.notes());
    // The file names the tokens that delete and insert.
    let spec = model.sampler().unwrap();
    let params = model.params(spec, &[]).unwrap();
    assert_eq!(
        (spec.name, params.get("threshold"), params.get("edit_threshold"), params.get("post_steps")),
        ("edit", 0.5, 0.0, 16.0)
    );
    let command = |key: &str| f64::from(model.gguf().metadata().opt_u32(key).unwrap().unwrap());
    assert_eq!(params.get("delete_token"), command("diffusion.delete_token_id"));
    assert_eq!(params.get("split_token"), command("diffusion.split_token_id"));
    // With one of them it does not.
    let one = with_metadata(FILE, |m| _ = m.remove("diffusion.split_token_id")).unwrap();
    assert_eq!(one.sampler().unwrap().name, "threshold");
    let params = one.params(one.sampler().unwrap(), &[]).unwrap();
    assert_eq!(params.get("threshold"), 0.95);
}

/// With prompts that end inside a block and at its end: the same answer for any number of threads and every backend.
#[test]
fn answers_have_the_same_bits_everywhere() {
    let run = |backend: &str, threads, numerics, name: &str, prompt_len| {
        let (backend, threads, numerics) = (backend.into(), Some(threads), Some(numerics));
        let mut model = open(FILE, &LoadOptions { backend, threads, numerics, ..LoadOptions::default() });
        let spec = sampler(name).unwrap();
        let request = Request {
            prompt: (0..prompt_len).map(|i| 20 + i * 37 % 480).collect(),
            max_tokens: 20,
            context_len: 256,
            sampler: spec,
            params: model.params(spec, &[("threshold".into(), 0.3)]).unwrap(),
            profile: &PROFILES[0],
            end_ids: Vec::new(),
            ban: Vec::new(),
            bias: Vec::new(),
            logprobs: None,
            self_conditioning: true,
            given: Given::default(),
            constraint: None,
            cache: Default::default(),
            full_logits: true,
            interrupt: None,
        };
        let draws = Philox { seed: 1, vocab_len: 512 };
        let mut session = model.session().unwrap();
        let g = generate(&mut model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(()));
        let g = g.unwrap();
        (g.ids, g.digests, g.canvases)
    };
    for &numerics in Numerics::ALL {
        for (name, prompt_len) in [("threshold", 11), ("joint-threshold", 16), ("edit", 11), ("edit", 16)] {
            let first = run("cpu", 1, numerics, name, prompt_len);
            assert_eq!(run("cpu", 3, numerics, name, prompt_len), first, "{name}, {numerics:?}");
            assert_eq!(run("reference", 1, numerics, name, prompt_len), first, "{name}, {numerics:?}");
        }
    }
}

/// A block is never read in parts, so that a prompt in the cache, in pieces of one block or more, changes no bit. Blocks
/// that choose experts may be parts of those that are denoised.
#[test]
fn a_cached_prompt_gives_the_bits_of_an_uncached_one() {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let mut different = BTreeSet::new();
    for (canvas_len, expert_block) in [(8, 8), (16, 8), (16, 4), (8, 1)] {
        let file = changed(&oracle_model(FILE), |m| {
            m.set("diffusion.canvas_length", canvas_len as u32);
            m.set("llada2.expert_block_length", expert_block as u32);
        });
        for &kv_type in KvType::ALL {
            let options = LoadOptions { kv_type, threads: Some(1), ..LoadOptions::default() };
            let mut model = Model::from_gguf(file.clone(), &options).unwrap();
            for n in [3, 16, 37, 47] {
                let prompt: Vec<u32> = (0..n).map(|i| 20 + i * 37 % 480).collect();
                let canvas = vec![511; canvas_len - n as usize % canvas_len];
                let mut whole = LogitsSink::default();
                let session = model.session().unwrap();
                let ids = [&prompt[..], &canvas].concat();
                canvas_pass(&mut model, &session, CanvasPass::new(&ids), &mut whole).unwrap();
                model.close(session);
                let whole = whole.0.split_off(n as usize * 512);
                let (cached, lead) = prompt.split_at(model.shape().cached(n as usize));
                for blocks in [1, 2, 100] {
                    let mut session = model.session().unwrap();
                    for chunk in cached.chunks(blocks * canvas_len) {
                        session.extend(&mut model, chunk, &mut ()).unwrap();
                    }
                    let mut sink = LogitsSink::default();
                    let pass = CanvasPass { lead, ..CanvasPass::new(&canvas) };
                    canvas_pass(&mut model, &session, pass, &mut sink).unwrap();
                    model.close(session);
                    let of = format!("{canvas_len} {expert_block} {kv_type:?} {n} {blocks}");
                    assert_eq!(bits(&sink.0), bits(&whole), "{of}");
                }
                if (n, kv_type) == (37, KvType::F32) {
                    different.insert(bits(&whole[whole.len() - 512..]));
                }
            }
        }
    }
    assert_eq!(different.len(), 4, "every length counts");
}

#[test]
fn keys_that_are_missing_or_odd_have_a_meaning() {
    let set = |change: &dyn Fn(&mut Metadata)| with_metadata(FILE, |m| change(m));
    let key = |name: &str| format!("llada2.{name}");
    // The canvas says how long a block is where nothing else does, and groups say nothing.
    let fewer = set(&|m| {
        for name in ["expert_block_length", "expert_group_count", "expert_group_used_count"] {
            m.remove(&key(name)).unwrap();
        }
    });
    let logits = |mut model: Model| {
        let ids: Vec<u32> = (0..20).map(|i| 20 + i * 7).collect();
        let (session, mut sink) = (model.session().unwrap(), LogitsSink::default());
        canvas_pass(&mut model, &session, CanvasPass::new(&ids), &mut sink).unwrap();
        assert!(model.notes().is_empty(), "{:?}", model.notes());
        sink.0.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    let all = logits(set(&|_| ()).unwrap());
    assert_eq!(logits(fewer.unwrap()), all);
    assert_ne!(logits(set(&|m| m.set(key("expert_capacity"), 8u32)).unwrap()), all);

    // Without the key it is a model of 2.1, and something else in the file says that it is none.
    let notes = |change: &dyn Fn(&mut Metadata)| {
        let model = set(&|m| {
            m.remove(&key("expert_capacity")).unwrap();
            m.remove(&key("expert_block_length")).unwrap();
            change(m);
        });
        model.unwrap().notes().join("; ")
    };
    assert_eq!(
        notes(&|_| ()),
        "the file looks like LLaDA2.2 (llada2.rope.freq_base 3000000), but has no llada2.expert_capacity; taking it for \
         2.1, whose experts are chosen otherwise"
    );
    let base = |m: &mut Metadata| m.set(key("rope.freq_base"), redraft::gguf::Value::F32(6e5));
    assert!(
        notes(&base).starts_with("the file looks like LLaDA2.2 (tokens that delete and insert), but has no")
    );
    assert_eq!(notes(&|m| (base(m), m.remove("diffusion.delete_token_id")).0), "");

    for (name, value, expected) in [
        ("expert_capacity", Some(0), "llada2.expert_capacity: expected 1..=32, found 0"),
        ("expert_capacity", Some(33), "llada2.expert_capacity: expected 1..=32, found 33"),
        ("expert_capacity", Some(3), "llada2.expert_used_count: expected 1..=3, found 4"),
        ("expert_capacity", None, "llada2.expert_capacity"),
        ("expert_block_length", Some(0), "llada2.expert_block_length: expected 1..=8, found 0"),
        ("expert_block_length", Some(16), "llada2.expert_block_length: expected 1..=8, found 16"),
        (
            "expert_block_length",
            Some(3),
            "llada2.expert_block_length: expected a divisor of 8, diffusion.canvas_length, found 3",
        ),
    ] {
        let e = set(&|m| match value {
            Some(x) => m.set(key(name), x as u32),
            None => _ = m.remove(&key(name)),
        });
        let e = e.map(|_| ()).unwrap_err().to_string();
        assert!(e.contains(expected), "{name} {value:?}: {e}");
    }
}
