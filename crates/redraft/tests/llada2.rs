//! LLaDA2: goldens of a tiny model (forward passes, taps, trajectories), at the limits of the oracle; and what its file may
//! say otherwise.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;

use common::{
    LogitsSink, cases, changed, exact, expand, f32_limits, judge, open, oracle_model, with_metadata,
};
use redraft::arch::{Noise, Reading};
use redraft::compute::{Numerics, Precision};
use redraft::engine::{BlockCache, CanvasPass, Event, Given, Philox, Request, canvas_pass, generate};
use redraft::gguf::{Bytes, DType, Gguf, GgufWriter, Metadata};
use redraft::sampler::{PROFILES, sampler};
use redraft::trace::{Bounds, Limits, TraceFile};
use redraft::{Error, LoadOptions, Model};

const FILE: &str = "llada2-tiny.BF16.gguf";

/// Tokens that the model likes, as commands of the sampler that deletes and inserts.
const DELETE: f64 = 78.0;
const SPLIT: f64 = 239.0;

fn goldens() -> Vec<(String, TraceFile)> {
    cases("llada2", |_| true)
}

#[test]
fn every_case_passes_in_f32() {
    assert_eq!(judge(&mut open(FILE, &exact()), FILE, &goldens(), &f32_limits()), 9);
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

#[test]
fn the_file_says_what_the_model_is() {
    let model = open(FILE, &exact());
    let shape = model.shape();
    assert_eq!((shape.reading, shape.noise, shape.canvas_len), (Reading::Blocks, Noise::Mask(511), 8));
    assert!(!shape.shifted && model.notes().is_empty() && model.unused_tensors().is_empty());
    let (sampler, params) = (model.sampler().unwrap(), model.params(model.sampler().unwrap(), &[]).unwrap());
    assert_eq!((sampler.name, params.get("threshold"), params.get("block_length")), ("threshold", 0.95, 0.0));
}

/// With prompts that end inside a block and at its end: the same answer for any number of threads and every backend.
#[test]
fn answers_have_the_same_bits_everywhere() {
    let run = |backend: &str, threads, numerics, name: &str, prompt_len| {
        let (backend, threads, numerics) = (backend.into(), Some(threads), Some(numerics));
        let mut model = open(FILE, &LoadOptions { backend, threads, numerics, ..LoadOptions::default() });
        let spec = sampler(name).unwrap();
        let given = [
            ("threshold", 0.3),
            ("edit_threshold", 0.2),
            ("post_steps", 5.0),
            ("delete_token", DELETE),
            ("split_token", SPLIT),
        ];
        let known = |(n, _): &&(&str, f64)| spec.params.iter().any(|p| p.name == *n);
        let given: Vec<_> = given.iter().filter(known).map(|(n, x)| (n.to_string(), *x)).collect();
        let request = Request {
            prompt: (0..prompt_len).map(|i| 20 + i * 37 % 480).collect(),
            max_tokens: 20,
            context_len: 256,
            sampler: spec,
            params: model.params(spec, &given).unwrap(),
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
        };
        let draws = Philox { seed: 1, vocab_len: 512 };
        let mut session = model.session().unwrap();
        let mut edits = 0;
        let g = generate(&mut model, &mut session, &request, &draws, &mut |e| {
            if let Event::Step(s) = e {
                edits +=
                    (0..s.canvas_in.len()).filter(|&i| s.decision.accepted[i] && !s.open.unwrap()[i]).count();
            }
            ControlFlow::Continue(())
        });
        let g = g.unwrap();
        assert_eq!((g.ids.len(), g.ids.contains(&511)), (20, false));
        assert_eq!(edits > 0, name != "threshold");
        (g.ids, g.digests, g.canvases)
    };
    for &numerics in Numerics::ALL {
        for (name, prompt_len) in
            [("threshold", 11), ("joint-threshold", 11), ("joint-threshold", 16), ("edit", 11), ("edit", 16)]
        {
            let first = run("cpu", 1, numerics, name, prompt_len);
            assert_eq!(run("cpu", 3, numerics, name, prompt_len), first, "{name}, {numerics:?}");
            assert_eq!(run("reference", 1, numerics, name, prompt_len), first, "{name}, {numerics:?}");
        }
    }
}

/// The commands are given, or in the file; without them nothing deletes.
#[test]
fn commands_are_two_tokens_of_the_vocabulary() {
    let spec = sampler("edit").unwrap();
    let run = |model: &mut Model, given: &[(&str, f64)]| {
        let given: Vec<_> = given.iter().map(|(n, x)| (n.to_string(), *x)).collect();
        let request = Request {
            prompt: vec![20, 31],
            max_tokens: 4,
            context_len: 256,
            sampler: spec,
            params: model.params(spec, &given)?,
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
        };
        let mut session = model.session()?;
        let draws = Philox { seed: 1, vocab_len: 512 };
        generate(model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(()))
    };
    let mut model = open(FILE, &exact());
    let both = |delete, split| [("delete_token", delete), ("split_token", split)];
    for (given, name) in [
        (&both(0.0, 0.0), "delete_token"),
        (&both(512.0, SPLIT), "delete_token"),
        (&both(511.0, SPLIT), "delete_token"),
        (&both(DELETE, DELETE), "split_token"),
    ] {
        let e = run(&mut model, given).unwrap_err().to_string();
        assert!(e.starts_with(&format!("{name}: expected the id in 1..512 that does so")), "{e}");
    }
    let ids = run(&mut model, &both(DELETE, SPLIT)).unwrap().ids;
    let named = changed(&oracle_model(FILE), |m| {
        m.set("diffusion.delete_token_id", DELETE as u32);
        m.set("diffusion.split_token_id", SPLIT as u32);
    });
    let mut named = Model::from_gguf(named, &exact()).unwrap();
    assert_eq!(run(&mut named, &[]).unwrap().ids, ids);
}

/// The file with tensors made from its own by `change`: name, shape, type, bytes.
fn rewritten(
    change: impl Fn(&str, &[u64], DType, Bytes) -> Vec<(String, Vec<u64>, DType, Bytes)>,
) -> Result<Model, Error> {
    let g = Gguf::open(&oracle_model(FILE), &Default::default()).unwrap();
    let tensors = g.tensors().iter().flat_map(|t| change(&t.name, &t.dims, t.dtype, g.tensor_bytes(t)));
    let tensors: Vec<_> = tensors.collect();
    let mut w = GgufWriter::with_metadata(g.metadata().clone());
    for (name, dims, dtype, _) in &tensors {
        w.add_tensor(name, dims, *dtype).unwrap();
    }
    let mut out = w.begin(Vec::new()).unwrap();
    for (name, _, _, bytes) in &tensors {
        out.write_tensor(name, bytes).unwrap();
    }
    Model::from_gguf(Gguf::from_bytes(out.finish().unwrap().into()).unwrap(), &exact())
}

/// One matrix, as converters write it, or three: the same bits.
#[test]
fn queries_keys_and_values_may_be_apart() {
    let apart = |name: &str, dims: &[u64], dtype, bytes: Bytes| {
        let Some(layer) = name.strip_suffix("attn_qkv.weight") else {
            return vec![(name.to_owned(), dims.to_vec(), dtype, bytes)];
        };
        let row = bytes.len() / 256;
        let part = |n: &str, from: usize, to: usize| {
            let bytes = bytes.slice(from * row..to * row).unwrap();
            (format!("{layer}attn_{n}.weight"), vec![64, (to - from) as u64], dtype, bytes)
        };
        vec![part("q", 0, 128), part("k", 128, 192), part("v", 192, 256)]
    };
    let mut logits = [open(FILE, &exact()), rewritten(apart).unwrap()].map(|mut model| {
        let ids: Vec<u32> = (0..20).map(|i| 20 + i * 7).collect();
        let (session, mut sink) = (model.session().unwrap(), LogitsSink::default());
        canvas_pass(&mut model, &session, CanvasPass::new(&ids), &mut sink).unwrap();
        assert!(model.unused_tensors().is_empty());
        sink.0.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    });
    assert_eq!(logits[0].len(), 20 * 512);
    assert_eq!(std::mem::take(&mut logits[0]), logits[1]);
}

#[test]
fn a_damaged_bias_is_found_before_it_chooses() {
    let damaged = |name: &str, dims: &[u64], dtype, bytes: Bytes| {
        let mut bytes = bytes.to_vec();
        if name == "blk.2.exp_probs_b.bias" {
            bytes[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        vec![(name.to_owned(), dims.to_vec(), dtype, bytes.into())]
    };
    let e = rewritten(damaged).map(|_| ()).unwrap_err().to_string();
    assert!(e.contains("blk.2.exp_probs_b.bias: expected finite numbers, found NaN at 2"), "{e}");
}

#[test]
fn keys_that_are_missing_or_odd_have_a_meaning() {
    let set = |change: &dyn Fn(&mut Metadata)| with_metadata(FILE, |m| change(m));
    let notes = |change: &dyn Fn(&mut Metadata)| set(change).unwrap().notes().join("; ");
    let error = |change: &dyn Fn(&mut Metadata)| set(change).map(|_| ()).unwrap_err().to_string();
    let remove = |m: &mut Metadata, name: &str| _ = m.remove(&format!("llada2.{name}"));

    let said = notes(&|m| {
        for name in
            ["expert_group_count", "expert_group_used_count", "expert_weights_norm", "expert_shared_count"]
        {
            remove(m, name);
        }
        remove(m, "leading_dense_block_count");
        remove(m, "expert_gating_func");
        remove(m, "expert_shared_feed_forward_length");
    });
    assert_eq!(
        said,
        "the file does not say everything of its experts; taking llada2.expert_group_count 8, \
         llada2.expert_group_used_count 4, llada2.leading_dense_block_count 1, llada2.expert_shared_count 1, \
         llada2.expert_weights_norm true, llada2.expert_shared_feed_forward_length 16"
    );
    let said = notes(&|m| _ = m.remove("diffusion.canvas_length"));
    assert!(said.contains("diffusion.canvas_length; taking 32"), "{said}");

    for (name, value, expected) in [
        ("rope.dimension_count", None, "llada2.rope.dimension_count"),
        ("expert_weights_scale", None, "llada2.expert_weights_scale"),
        ("expert_gating_func", Some(1), "llada2.expert_gating_func: expected 2, found 1"),
        ("expert_group_count", Some(5), "a divisor of the 32 experts that leaves two a group, found 5"),
        ("expert_group_count", Some(32), "a divisor of the 32 experts that leaves two a group, found 32"),
        ("expert_group_used_count", Some(9), "llada2.expert_group_used_count: expected 1..=8, found 9"),
        ("expert_group_used_count", Some(0), "llada2.expert_group_used_count: expected 1..=8, found 0"),
        ("expert_used_count", Some(17), "llada2.expert_used_count: expected 1..=16, found 17"),
        ("leading_dense_block_count", Some(2), "blk.1.ffn_gate.weight: missing"),
        ("expert_shared_count", Some(2), "blk.1.ffn_gate_shexp.weight: expected the shape [64, 32]"),
    ] {
        let e = error(&|m| match value {
            Some(x) => m.set(format!("llada2.{name}"), x as u32),
            None => remove(m, name),
        });
        assert!(e.contains(expected), "{name} {value:?}: {e}");
    }
}
