//! How likely the tokens of an answer were, against what the recorded logits of the same run say.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;

use common::{commands, open, run, testdata};
use redraft::arch::{Noise, Reading};
use redraft::compute::{Numerics, TapData, TapKey, Val};
use redraft::engine::{
    Batch, BlockCache, CanvasPass, Event, Generation, Philox, Request, TapSink, TokenProbability, canvas_pass,
};
use redraft::sampler::{SAMPLERS, SamplerSpec, sampler};
use redraft::{LoadOptions, Model};

const FILES: [&str; 6] = [
    "dg-mini.F32.gguf",
    "dream-tiny.F16.gguf",
    "llada-tiny.BF16.gguf",
    "llada2-tiny.BF16.gguf",
    "sdar-tiny.BF16.gguf",
    "fast-dllm-tiny.BF16.gguf",
];

fn load(file: &str, numerics: Numerics) -> Model {
    let options = LoadOptions { threads: Some(2), numerics: Some(numerics), ..LoadOptions::default() };
    let blocks = testdata().join("block-diffusion/models").join(file);
    if blocks.exists() { Model::open(&blocks, &options).unwrap() } else { open(file, &options) }
}

fn request(model: &Model, spec: &'static SamplerSpec, drawn: bool) -> Request {
    let mut all = vec![("steps", 4.0)];
    if spec.params.iter().any(|p| p.name == "temperature") {
        all.push(("temperature", if drawn { 0.7 } else { 0.0 }));
    }
    all.extend(commands(spec));
    let all: Vec<_> = all.iter().map(|(n, x)| (n.to_string(), *x)).collect();
    let prompt = (0..17).map(|i| 20 + (i * 37) % 480).collect();
    Request {
        sampler: spec,
        params: model.params(spec, &all).unwrap(),
        end_ids: Vec::new(),
        bias: if drawn { vec![(30, 1.5), (41, 2.25), (77, -2.0)] } else { Vec::new() },
        ..Request::new(model, prompt, 40).unwrap()
    }
}

fn samplers(model: &Model) -> impl Iterator<Item = &'static SamplerSpec> + use<> {
    let masks = matches!(model.shape().noise, Noise::Mask(_));
    SAMPLERS.iter().copied().filter(move |s| s.masks == masks && !s.moves())
}

/// A step as it was recorded.
struct Step {
    temperature: f64,
    after: Vec<u32>,
    decided: Vec<bool>,
    /// By position.
    rows: Vec<Option<Vec<f64>>>,
}

#[derive(Default)]
struct Record {
    steps: Vec<Vec<Step>>,
    committed: Vec<Vec<u32>>,
    told: Vec<Vec<TokenProbability>>,
}

fn record(model: &mut Model, request: &Request) -> (Record, Generation) {
    let noise = model.shape().noise;
    let mut record = Record::default();
    let done = run(model, request, &mut |e| match e {
        Event::Step(s) => {
            if s.step == 0 {
                record.steps.push(Vec::new());
            }
            let decided = match noise {
                Noise::Uniform => s.decision.accepted.clone(),
                Noise::Mask(mask) => s.decision.canvas.iter().map(|&id| id != mask).collect(),
            };
            let mut rows = s.logits.unwrap_or(&[]).chunks(model_width(s.logits, s.predicted));
            let rows = s.predicted.iter().map(|&p| if p { rows.next().map(<[f64]>::to_vec) } else { None });
            record.steps.last_mut().unwrap().push(Step {
                temperature: s.temperature,
                after: s.decision.canvas.clone(),
                decided,
                rows: rows.collect(),
            });
        }
        Event::Commit { ids, probabilities, emitted, .. } => {
            assert!(
                probabilities.is_empty() || probabilities.iter().map(|p| p.id).eq(emitted.iter().copied())
            );
            record.committed.push(ids.to_vec());
            record.told.push(probabilities.to_vec());
        }
        Event::Prompt { .. } => {}
    });
    (record, done.unwrap())
}

fn model_width(logits: Option<&[f64]>, predicted: &[bool]) -> usize {
    (logits.map_or(0, <[f64]>::len) / predicted.iter().filter(|p| **p).count().max(1)).max(1)
}

/// Logarithms of the probabilities of a row, without the mask token.
fn log_softmax(row: &[f64], bias: &[(u32, f64)], temperature: f64, mask: Option<u32>) -> Vec<f64> {
    let mut row = row.to_vec();
    bias.iter().for_each(|&(id, x)| row[id as usize] += x);
    row.iter_mut().for_each(|x| *x /= temperature);
    mask.into_iter().for_each(|mask| row[mask as usize] = f64::NEG_INFINITY);
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    row.iter().map(|x| x - max - sum.ln()).collect()
}

struct Logits(Vec<f64>);

impl TapSink for Logits {
    fn wants(&self, key: TapKey) -> bool {
        key.name == "logits"
    }

    fn tap(&mut self, _key: TapKey, _val: Val, data: TapData<'_>) {
        if let TapData::F32(x) = data {
            self.0.extend(x.iter().map(|&x| f64::from(x)));
        }
    }
}

/// The logits of a final canvas after what comes before it, as the model gives them, row by row.
fn of_final(model: &mut Model, request: &Request, before: &[u32], ids: &[u32]) -> Vec<Vec<f64>> {
    let shape = model.shape().clone();
    let cached = shape.cached(before.len());
    let mut session = model.session().unwrap();
    if cached > 0 {
        session.extend(model, &before[..cached], &mut ()).unwrap();
    }
    let tail = vec![model.tokenizer().pad().unwrap_or(0); shape.reserved(request.sampler)];
    let pass = CanvasPass { lead: &before[cached..], tail: &tail, ..CanvasPass::new(ids) };
    let mut logits = Logits(Vec::new());
    canvas_pass(model, &session, pass, &mut logits).unwrap();
    model.close(session);
    logits.0.chunks(shape.vocab_len).map(<[f64]>::to_vec).collect()
}

/// Every family and sampler: no bit changes, and the numbers are those of the recorded logits.
#[test]
fn probabilities_are_those_of_the_recorded_logits() {
    let (mut seen, mut later) = (0, 0);
    for (i, file) in FILES.iter().enumerate() {
        let mut model = load(file, [Numerics::Exact, Numerics::Fast][i % 2]);
        let (shape, specs) = (model.shape().clone(), samplers(&model).enumerate());
        let mask = if let Noise::Mask(mask) = shape.noise { Some(mask) } else { None };
        for (j, spec) in specs {
            let plain = request(&model, spec, j % 2 == 0);
            let (_, without) = record(&mut model, &plain);
            let (_, only) = record(&mut model, &Request { logprobs: Some(0), ..plain.clone() });
            let asked = Request { logprobs: Some(3), full_logits: true, ..plain.clone() };
            let (record, with) = record(&mut model, &asked);
            assert_eq!(without.committed, with.committed, "{file} {}", spec.name);
            assert_eq!(without.digests, only.digests, "{file} {}", spec.name);
            assert_eq!(without.digests.logits, with.digests.logits, "{file} {}", spec.name);
            let mut before = plain.prompt.clone();
            for ((steps, ids), told) in record.steps.iter().zip(&record.committed).zip(&record.told) {
                let last = of_final(&mut model, &asked, &before, ids);
                for (p, t) in told.iter().enumerate() {
                    let same = |s: &Step| s.decided[p] && s.after[p] == t.id;
                    let at = steps[..steps.len() - 1].iter().rposition(|s| !same(s)).map_or(0, |at| at + 1);
                    let of = |row, bias, temperature| log_softmax(row, bias, temperature, mask);
                    let Some(row) = &steps[at].rows[p] else {
                        assert_eq!(t.revealed, None, "{file} {}", spec.name);
                        continue;
                    };
                    let r = t.revealed.as_ref().unwrap();
                    assert_eq!(r.step, at, "{file} {} {p}", spec.name);
                    // Samplers that divide by nothing have the temperature 1.
                    let all = of(row, &plain.bias, steps[at].temperature);
                    let near =
                        |a: f64, b: f64| assert!((a - b).abs() < 2e-4, "{file} {}: {a} {b}", spec.name);
                    near(r.logprob, all[t.id as usize]);
                    let mut order: Vec<f64> = all.clone();
                    order.sort_by(|a, b| b.total_cmp(a));
                    assert_eq!(r.top.len(), 3);
                    for (&(id, x), best) in r.top.iter().zip(order) {
                        near(x, all[id as usize]);
                        near(x, best);
                    }
                    if !shape.shifted || p > 0 {
                        let row = &last[p - usize::from(shape.shifted)];
                        near(t.rescored.unwrap(), of(row, &[], 1.0)[t.id as usize]);
                    }
                    seen += 1;
                    later += usize::from(at > 0);
                }
                before.extend_from_slice(ids);
            }
        }
    }
    assert!(seen > 1000 && later > 300, "{seen} {later}");
}

/// In a batch the numbers are those of an answer alone.
#[test]
fn a_batch_has_the_same_numbers() {
    for file in FILES {
        let mut model = load(file, Numerics::Exact);
        let specs: Vec<_> = samplers(&model).take(3).collect();
        let asked: Vec<Request> = (0..3)
            .map(|i| Request { logprobs: Some(2), ..request(&model, specs[i % specs.len()], i == 1) })
            .collect();
        let alone: Vec<_> = asked.iter().map(|r| record(&mut model, r).0.told.concat()).collect();
        let mut batch = Batch::new(4096, None);
        for r in asked {
            let session = model.session().unwrap();
            let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
            batch.join(&mut model, session, r, draws).map_err(|(_, e)| e).unwrap();
        }
        let mut told = vec![Vec::new(); 3];
        while !batch.is_empty() {
            batch.round(&mut model, &mut |id, event| {
                if let Event::Commit { probabilities, .. } = event {
                    told[id.0 as usize].extend_from_slice(probabilities);
                }
                ControlFlow::Continue(())
            });
        }
        assert!(told == alone, "{file}");
    }
}

#[test]
fn what_has_no_such_numbers_is_refused() {
    let mut model = load("llada-tiny.BF16.gguf", Numerics::Exact);
    assert_eq!(model.shape().reading, Reading::Whole);
    let plain = request(&model, sampler("low-confidence").unwrap(), false);
    let refused = |model: &mut Model, r: Request| {
        let e = run(model, &r, &mut |_| ()).unwrap_err().to_string();
        assert!(e.contains("logprobs"), "{e}");
    };
    refused(&mut model, Request { logprobs: Some(0), cache: BlockCache::Prefix, ..plain });
    let mut model = load("llada2-tiny.BF16.gguf", Numerics::Exact);
    let moving = request(&model, sampler("edit").unwrap(), false);
    refused(&mut model, Request { logprobs: Some(0), ..moving });
}
