//! Importance data that a model collects while it runs, against sums made from its taps.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use common::{exact, open, testdata};
use redraft::arch::Reading;
use redraft::compute::{Numerics, TapData, TapKey, Val};
use redraft::convert::{QuantizePlan, Recipe};
use redraft::engine::{CanvasPass, Philox, Request, Sampling, TapSink, canvas_pass, generate};
use redraft::gguf::{Gguf, codec};
use redraft::importance::{Importance, ImportanceCollector};
use redraft::{LoadOptions, Model};

/// Every tap of every pass: rows, one after the other, and their length.
#[derive(Default)]
struct Taps(BTreeMap<String, (Vec<f64>, usize)>);

impl TapSink for Taps {
    fn wants(&self, _: TapKey) -> bool {
        true
    }

    fn tap(&mut self, key: TapKey, val: Val, data: TapData<'_>) {
        let x: Vec<f64> = match data {
            TapData::F32(x) => x.iter().map(|&x| f64::from(x)).collect(),
            TapData::F64(x) => x.to_vec(),
            TapData::I32(x) => x.iter().map(|&x| f64::from(x)).collect(),
        };
        let (rows, cols) = self.0.entry(key.to_string()).or_default();
        rows.extend(x);
        *cols = val.cols();
    }
}

impl Taps {
    fn rows(&self, name: &str) -> Vec<&[f64]> {
        let (x, cols) = self.0.get(name).unwrap_or_else(|| panic!("no tap {name}"));
        x.chunks(*cols).collect()
    }
}

/// Sums `[matrices][inputs]` and counts of a tensor.
fn sums(file: &Gguf, name: &str) -> (Vec<f64>, Vec<f64>) {
    let floats = |suffix: &str| {
        let t = file.tensor(&format!("{name}.{suffix}")).unwrap_or_else(|| panic!("no {name}.{suffix}"));
        file.tensor_bytes(t).as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
    };
    (floats("in_sum2"), floats("counts"))
}

fn file(collector: &ImportanceCollector) -> Vec<u8> {
    collector.to_gguf(&["test".into()], 32, &BTreeMap::new()).unwrap()
}

fn squares(rows: &[&[f64]], inputs: usize) -> Vec<f64> {
    rows.iter().fold(vec![0.0; inputs], |mut sums, row| {
        sums.iter_mut().zip(*row).for_each(|(s, x)| *s += x * x);
        sums
    })
}

#[track_caller]
fn expect(what: &str, found: &[f64], want: &[f64], within: f64) {
    assert_eq!(found.len(), want.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(want).enumerate() {
        assert!((a - b).abs() <= within * b.abs(), "{what} {i}: {a} instead of {b}");
    }
}

/// A pass over a prompt where the model has one, and one over a canvas.
fn passes(model: &mut Model) -> (Taps, Gguf) {
    let (len, cached) =
        (16, if model.shape().reading == Reading::Whole { 0 } else { model.shape().canvas_len });
    let id = |i: usize| 20 + (i as u32 * 37) % 200;
    let prompt: Vec<u32> = (0..cached).map(id).collect();
    let canvas: Vec<u32> = (0..len).map(|i| id(i + 500)).collect();
    let mut taps = Taps::default();
    model.collect_importance();
    let mut session = model.session().unwrap();
    if cached > 0 {
        session.extend(model, &prompt, &mut taps).unwrap();
    }
    let sampling = Some(Sampling::at(1.0, &[0.5; 16]));
    canvas_pass(model, &session, CanvasPass { sampling, ..CanvasPass::new(&canvas) }, &mut taps).unwrap();
    let collected = Gguf::from_bytes(file(&model.take_importance().unwrap()).into()).unwrap();
    (taps, collected)
}

fn block_model(file: &str) -> Model {
    Model::open(&testdata().join("block-diffusion/models").join(file), &exact()).unwrap()
}

#[test]
fn sums_are_those_of_the_taps_before_a_matrix() {
    // DiffusionGemma calls its norms otherwise, and a fused matrix of queries, keys and values is one tensor.
    let split = ["attn_q", "attn_k", "attn_v"].as_slice();
    let cases = [
        (open("dg-mini.F32.gguf", &exact()), split, "ffn_norm_1", true),
        (open("llada-tiny.BF16.gguf", &exact()), split, "ffn_norm", false),
        (open("llada-moe-tiny.BF16.gguf", &exact()), split, "", false),
        (open("llada2-tiny.BF16.gguf", &exact()), &["attn_qkv"], "", false),
        (block_model("sdar-tiny.BF16.gguf"), split, "ffn_norm", false),
    ];
    for (mut model, qkv, ffn, tied) in cases {
        let arch = model.arch().name;
        let (taps, file) = passes(&mut model);
        let check = |tensor: &str, tap: &str| {
            let rows = taps.rows(tap);
            let (found, counts) = sums(&file, tensor);
            assert_eq!(counts, [rows.len() as f64], "{arch} {tensor}");
            expect(&format!("{arch} {tensor}"), &found, &squares(&rows, rows[0].len()), 1e-6);
        };
        for layer in 0..model.shape().n_layers {
            for part in qkv {
                // Layers of DiffusionGemma that see everything use keys as values.
                let tensor = format!("blk.{layer}.{part}.weight");
                if model.gguf().tensor(&tensor).is_some() {
                    check(&tensor, &format!("attn_norm-{layer}"));
                }
            }
            check(&format!("blk.{layer}.attn_output.weight"), &format!("kqv_out-{layer}"));
            for part in ["gate", "up"].iter().filter(|_| !ffn.is_empty()) {
                check(&format!("blk.{layer}.ffn_{part}.weight"), &format!("{ffn}-{layer}"));
            }
        }
        // Only a pass that is sampled from has logits, of a canvas.
        let head =
            if tied || model.gguf().tensor("output.weight").is_none() { "token_embd" } else { "output" };
        let (found, counts) = sums(&file, &format!("{head}.weight"));
        let rows = taps.rows("result_norm");
        let canvas = &rows[rows.len() - 16..];
        assert_eq!(counts, [16.0], "{arch}");
        // Shifted models take the row before a position, and the first one twice.
        let shifted = [&canvas[..1], &canvas[..15]].concat();
        let canvas = if model.shape().shifted { &shifted } else { canvas };
        expect(&format!("{arch} head"), &found, &squares(canvas, canvas[0].len()), 1e-6);
    }
}

/// The matrix `[rows, cols]` number `i` of a tensor.
fn matrix(gguf: &Gguf, name: &str, i: usize) -> Vec<f64> {
    let t = gguf.tensor(name).unwrap();
    let mut x = vec![0.0; t.n_elements() as usize];
    codec(t.dtype).unwrap().dequantize(&gguf.tensor_bytes(t), &mut x);
    let n = x.len() / t.dims[2] as usize;
    x[i * n..(i + 1) * n].iter().map(|&x| f64::from(x)).collect()
}

fn product(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

/// An activation.
type Act = fn(f64) -> f64;

#[test]
fn each_expert_has_the_rows_that_are_routed_to_it() {
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh());
    let cases: [(Model, &str, Act); 3] = [
        (open("dg-mini.F32.gguf", &exact()), "ffn_norm_2", gelu),
        (open("llada-moe-tiny.BF16.gguf", &exact()), "ffn_norm", silu),
        (block_model("sdar-moe-tiny.BF16.gguf"), "ffn_norm", silu),
    ];
    for (mut model, norm, act) in cases {
        let arch = model.arch().name;
        let (taps, file) = passes(&mut model);
        let (x, ids) = (taps.rows(&format!("{norm}-1")), taps.rows("ffn_moe_topk-1"));
        let fused = model.gguf().tensor("blk.1.ffn_gate_up_exps.weight").is_some();
        let first = if fused { "ffn_gate_up_exps" } else { "ffn_gate_exps" };
        let (found, counts) = sums(&file, &format!("blk.1.{first}.weight"));
        let (down, down_counts) = sums(&file, "blk.1.ffn_down_exps.weight");
        if !fused {
            assert_eq!(sums(&file, "blk.1.ffn_up_exps.weight"), (found.clone(), counts.clone()), "{arch}");
        }
        assert_eq!(counts, down_counts, "{arch}");
        assert_eq!(counts.iter().sum::<f64>(), (x.len() * ids[0].len()) as f64, "{arch}");
        let (n, ff) = (x[0].len(), down.len() / counts.len());
        let mut different = 0;
        for (e, &count) in counts.iter().enumerate() {
            let mine: Vec<&[f64]> =
                x.iter().zip(&ids).filter(|(_, ids)| ids.contains(&(e as f64))).map(|(x, _)| *x).collect();
            assert_eq!(count, mine.len() as f64, "{arch} {e}");
            different += usize::from(count != counts[0]);
            expect(&format!("{arch} {e}"), &found[e * n..(e + 1) * n], &squares(&mine, n), 1e-6);
            let gate_up = matrix(model.gguf(), &format!("blk.1.{first}.weight"), e);
            let (gate, up) = match fused {
                true => (gate_up[..ff * n].to_vec(), gate_up[ff * n..].to_vec()),
                false => (gate_up, matrix(model.gguf(), "blk.1.ffn_up_exps.weight", e)),
            };
            let hidden: Vec<Vec<f64>> = mine
                .iter()
                .map(|x| product(&gate, x).iter().zip(product(&up, x)).map(|(&g, u)| act(g) * u).collect())
                .collect();
            let hidden: Vec<&[f64]> = hidden.iter().map(Vec::as_slice).collect();
            expect(&format!("{arch} {e} down"), &down[e * ff..(e + 1) * ff], &squares(&hidden, ff), 1e-4);
        }
        assert!(different > 0, "{arch}: experts have different numbers of rows");
    }
}

/// Importance data of a whole answer.
fn answer(name: &str, options: &LoadOptions) -> Vec<u8> {
    let mut model = open(name, options);
    let sampler = model.sampler().unwrap();
    let prompt = (0..9).map(|i| 20 + i * 7).collect();
    let mut request = Request::new(&model, prompt, 20).unwrap();
    request.params = model.params(sampler, &[("steps".into(), 3.0)]).unwrap();
    let draws = Philox { seed: 7, vocab_len: model.shape().vocab_len as u32 };
    model.collect_importance();
    let mut session = model.session().unwrap();
    let done =
        generate(&mut model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(())).unwrap();
    let mut collector = model.take_importance().unwrap();
    collector.answered(done.canvases.iter().map(|c| c.steps));
    assert_eq!(model.take_importance(), None);
    let bytes = file(&collector);
    let g = Gguf::from_bytes(bytes.clone().into()).unwrap();
    let steps: usize = done.canvases.iter().map(|c| c.steps).sum();
    assert_eq!(g.metadata().u32("imatrix.chunk_count").unwrap() as usize, steps);
    // Everything that a mix would change has data.
    let importance = Importance::from_gguf(&g).unwrap();
    let recipe = Recipe::from_name("q4_0").unwrap();
    let plan = QuantizePlan::new(model.gguf(), &recipe, Some(&importance)).unwrap();
    let without: Vec<&str> = plan
        .tensors()
        .iter()
        .filter(|t| t.from != t.to && !t.has_importance)
        .map(|t| t.name.as_str())
        .collect();
    let embedding: &[&str] =
        if model.gguf().tensor("output.weight").is_some() { &["token_embd.weight"] } else { &[] };
    assert_eq!(without, embedding, "{name}");
    bytes
}

#[test]
fn threads_and_backends_give_the_same_bits() {
    for (name, numerics) in [
        ("dg-tiny.BF16.gguf", Numerics::Fast),
        ("dg-mini.F32.gguf", Numerics::Exact),
        ("llada-moe-tiny.BF16.gguf", Numerics::Fast),
    ] {
        let with = |backend: &str, threads: usize| {
            let backend = backend.to_string();
            let numerics = Some(numerics);
            answer(name, &LoadOptions { backend, numerics, threads: Some(threads), ..LoadOptions::default() })
        };
        let want = with("cpu", 1);
        for (backend, threads) in [("cpu", 2), ("cpu", 4), ("reference", 1)] {
            assert!(with(backend, threads) == want, "{name} {backend} {threads}");
        }
    }
}
