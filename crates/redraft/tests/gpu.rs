//! Whole models on a GPU: the bits of the processor, in every tap of every golden and in answers. Where there is no device the
//! tests say so; on a machine that has to have one (`REDRAFT_CI`) they fail.
#![cfg(feature = "wgpu")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests, one of which says what it leaves out")]

mod common;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use common::{block_cases, cases, family_cases, oracle_cases, testdata};
use redraft::compute::{KvType, Numerics, backend};
use redraft::engine::{BlockCache, Generation, Given, Philox, Request, generate};
use redraft::placement::Wanted;
use redraft::sampler::{PROFILES, sampler};
use redraft::trace::{TraceFile, like};
use redraft::{LoadOptions, Model};
use tempfile::TempDir;

fn no_device() -> bool {
    if !(backend("wgpu").unwrap().devices)().is_empty() {
        return false;
    }
    assert!(std::env::var_os("REDRAFT_CI").is_none(), "no device for wgpu");
    println!("skipped: 1 (no device for wgpu)");
    true
}

/// What the device was found to be is kept for all tests.
fn options(backend: &str, numerics: Numerics) -> LoadOptions {
    static CACHE: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
    let cache = Some(CACHE.path().to_path_buf());
    LoadOptions { backend: backend.into(), numerics: Some(numerics), cache, ..LoadOptions::default() }
}

fn open(file: &str, options: &LoadOptions) -> Model {
    let folders = ["oracle/models", "block-diffusion/models", "llada2/models"];
    let path = folders.iter().map(|f| testdata().join(f).join(file)).find(|p| p.exists()).unwrap();
    Model::open(&path, options).unwrap()
}

/// Every result that a golden has names for, of its passes and its answers. Of each model so many goldens, spread over all.
fn compare_taps(each: usize) -> usize {
    let goldens: Vec<(String, TraceFile)> =
        [oracle_cases(), family_cases(), block_cases(), cases("llada2", |_| true)].concat();
    let files: BTreeSet<&String> = goldens.iter().map(|(_, g)| &g.metadata["model"]).collect();
    let mut compared = 0;
    for file in files {
        let mine: Vec<_> = goldens.iter().filter(|(_, g)| g.metadata["model"] == *file).collect();
        for &numerics in Numerics::ALL {
            let [mut cpu, mut gpu] = ["cpu", "wgpu"].map(|b| open(file, &options(b, numerics)));
            for (name, golden) in mine.iter().step_by(mine.len().div_ceil(each).max(1)) {
                let (expected, found) = (like(&mut cpu, golden, None), like(&mut gpu, golden, None));
                let (expected, found) = (expected.unwrap(), found.unwrap());
                for (tap, tensor) in &expected.tensors {
                    assert!(found.tensors.get(tap) == Some(tensor), "{name} {tap} in {}", numerics.name());
                    compared += 1;
                }
                assert_eq!(expected.tensors.len(), found.tensors.len(), "{name}");
            }
        }
    }
    compared
}

#[test]
fn taps_of_goldens_have_the_bits_of_the_processor() {
    if no_device() {
        return;
    }
    let compared = compare_taps(1);
    assert!(compared > 400, "{compared}");
}

#[test]
#[ignore = "minutes on a software device"]
fn every_tap_of_every_golden_has_the_bits_of_the_processor() {
    if no_device() {
        return;
    }
    let compared = compare_taps(usize::MAX);
    println!("{compared} tensors");
    assert!(compared > 5000, "{compared}");
}

fn answer(file: &str, options: &LoadOptions) -> Generation {
    let mut model = open(file, options);
    let spec = sampler("entropy-bound").unwrap();
    let request = Request {
        prompt: (0..61).map(|i| 20 + (i * 37) % 480).collect(),
        max_tokens: 50,
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
    };
    let draws = Philox { seed: 7, vocab_len: model.shape().vocab_len as u32 };
    let mut session = model.session().unwrap();
    generate(&mut model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Two canvases, with caches of every type, all on the device and shared with the processor in several ways.
#[test]
fn answers_have_the_same_bits_wherever_layers_are() {
    if no_device() {
        return;
    }
    let file = "dg-tiny.Q4_K_M.gguf";
    let wanted = |device_layers, host_experts| Wanted { device_layers, host_experts };
    for &numerics in Numerics::ALL {
        for &kv_type in KvType::ALL {
            let on = |backend: &str, placement| {
                let options = LoadOptions { kv_type, placement, ..options(backend, numerics) };
                answer(file, &options).digests
            };
            let expected = on("cpu", Wanted::default());
            let mut ways = vec![wanted(None, None)];
            if kv_type == KvType::F32 {
                ways.extend([wanted(Some(1), Some(0)), wanted(Some(3), Some(5)), wanted(None, Some(3))]);
            }
            for way in ways {
                assert_eq!(on("wgpu", way), expected, "{numerics:?} {kv_type:?} {way:?}");
            }
        }
    }
}

/// What has no room is not tried: a plan that leaves out experts and layers, and an error where nothing is left.
#[test]
fn a_small_device_gets_what_has_room() {
    if no_device() {
        return;
    }
    let file = "dg-tiny.Q4_K_M.gguf";
    let with = |bytes| LoadOptions { device_memory: Some(bytes), ..options("wgpu", Numerics::Fast) };
    let expected = answer(file, &options("cpu", Numerics::Fast)).digests;
    let model = open(file, &with(4 << 20));
    let notes = model.notes().join("\n");
    assert!(notes.contains("of 6 layers") && notes.contains("stay with the processor"), "{notes}");
    assert_eq!(answer(file, &with(4 << 20)).digests, expected);
    let path = testdata().join("oracle/models").join(file);
    let e = Model::open(&path, &with(1 << 10)).err().unwrap().to_string();
    assert!(e.contains("one layer"), "{e}");
}
