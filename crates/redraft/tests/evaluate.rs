//! How far a model is from another one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use common::{exact, oracle_model, testdata};
use redraft::chat::{BuiltinTemplate, ChatTemplate, Message, RenderOptions};
use redraft::convert::{QuantizePlan, Recipe};
use redraft::engine::{BlockCache, Philox, Request, generate};
use redraft::evaluate::Evaluation;
use redraft::gguf::{Gguf, codec};
use redraft::importance::Importance;
use redraft::{LoadOptions, Model};

fn draws(model: &Model, seed: u64) -> Philox {
    Philox { seed, vocab_len: model.shape().vocab_len as u32 }
}

fn block(file: &str) -> PathBuf {
    testdata().join("block-diffusion/models").join(file)
}

/// The distance of a model from itself: the second computes the steps of the first from what it is told of them, so that
/// anything that it is not told shows.
#[test]
fn a_model_is_at_no_distance_from_itself() {
    for (path, max_tokens, overrides) in [
        (oracle_model("dg-tiny.Q4_K_M.gguf"), 70, vec![("steps", 4.0)]),
        (oracle_model("dg-mini.F32.gguf"), 20, vec![("steps", 3.0)]),
        (oracle_model("llada-tiny.BF16.gguf"), 24, vec![("steps", 6.0)]),
        (oracle_model("llada-tiny.BF16.gguf"), 24, vec![("steps", 6.0), ("cfg_scale", 1.5)]),
        (oracle_model("dream-tiny.F16.gguf"), 20, vec![("steps", 5.0), ("temperature", 0.7)]),
        (oracle_model("rnd1-tiny.BF16.gguf"), 20, vec![("steps", 5.0)]),
        (oracle_model("llada2-tiny.BF16.gguf"), 40, vec![]),
        (oracle_model("llada2.2-tiny.BF16.gguf"), 40, vec![]),
        (block("sdar-tiny.BF16.gguf"), 19, vec![]),
        (block("fast-dllm-tiny.BF16.gguf"), 19, vec![]),
        (block("a2d-qwen3-tiny.BF16.gguf"), 19, vec![]),
    ] {
        let name = path.display().to_string();
        let load = |threads| {
            Model::open(&path, &LoadOptions { threads: Some(threads), ..LoadOptions::default() }).unwrap()
        };
        let (mut a, mut b) = (load(1), load(2));
        let sampler = a.sampler().unwrap();
        let overrides: Vec<(String, f64)> = overrides.into_iter().map(|(n, x)| (n.to_string(), x)).collect();
        let prompt: Vec<u32> = (0..11).map(|i| 20 + i * 7).collect();
        let mut request = Request::new(&a, prompt, max_tokens).unwrap();
        request.params = a.params(sampler, &overrides).unwrap();
        let draws = draws(&a, 3);
        let mut evaluation = Evaluation::default();
        let [x, y] = evaluation.ask([&mut a, &mut b], &request, &draws).unwrap();
        assert_eq!(x.ids, y.ids, "{name}");
        let d = evaluation.distance();
        assert_eq!((d.kl_max, d.disagree, d.swaps), (0.0, 0, 0), "{name}");
        let shares = [
            d.argmax_agree_percent,
            d.accepted_agree_percent,
            d.equal_answers_percent,
            d.equal_positions_percent,
        ];
        assert_eq!(shares, [100.0; 4], "{name}");
        assert_eq!(d.steps_per_canvas[0], d.steps_per_canvas[1], "{name}");
        // As many rows as positions were predicted, step by step.
        let mut predicted = BTreeMap::<usize, usize>::new();
        let mut session = a.session().unwrap();
        let alone = generate(&mut a, &mut session, &request, &draws, &mut |event| {
            if let redraft::engine::Event::Step(s) = event {
                *predicted.entry(s.step).or_default() += s.predicted.iter().filter(|&&p| p).count();
            }
            ControlFlow::Continue(())
        });
        assert_eq!(alone.unwrap().ids, x.ids, "{name}: looking changes nothing");
        let rows: BTreeMap<usize, usize> = d.by_step.iter().map(|s| (s.step, s.rows)).collect();
        assert_eq!(rows, predicted, "{name}");
        assert_eq!(rows.values().sum::<usize>(), d.rows, "{name}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let open = |file: &str| Model::open(&oracle_model(file), &exact()).unwrap();
    let mut dg = open("dg-mini.F32.gguf");
    let mut llada = [open("llada-tiny.BF16.gguf"), open("llada-tiny.BF16.gguf")];
    let request = Request::new(&dg, vec![20, 21], 8).unwrap();
    let d = draws(&dg, 0);
    let e = Evaluation::default().ask([&mut dg, &mut llada[0]], &request, &d).unwrap_err().to_string();
    assert!(e.contains("the same architecture, vocabulary"), "{e}");
    let banned = Request { ban: vec![30], ..request };
    let mut other = open("dg-mini.F32.gguf");
    let e = Evaluation::default().ask([&mut dg, &mut other], &banned, &d).unwrap_err().to_string();
    assert!(e.contains("told its previous prediction"), "{e}");
    let d = draws(&llada[0], 0);
    let cached = Request { cache: BlockCache::Prefix, ..Request::new(&llada[0], vec![20, 21], 8).unwrap() };
    let [a, b] = &mut llada;
    let e = Evaluation::default().ask([a, b], &cached, &d).unwrap_err().to_string();
    assert!(e.contains("no shared keys"), "{e}");
}

/// Questions to redraft-tiny, as users ask them.
fn questions(model: &Model) -> Vec<Vec<u32>> {
    let text = std::fs::read_to_string(testdata().join("redraft-tiny/questions.json")).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all: Vec<serde_json::Value> = serde_json::from_value(file["questions"].take()).unwrap();
    let tokenizer = model.tokenizer();
    let builtin = BuiltinTemplate::fitting(tokenizer).source;
    let template = ChatTemplate::from_source(tokenizer.chat_template().unwrap_or(builtin)).unwrap();
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::for_tokenizer(tokenizer) };
    let ids = |q: &serde_json::Value| {
        let messages: Vec<Message> = serde_json::from_value(q["messages"].clone()).unwrap();
        tokenizer.encode_prompt(&template.render(&messages, &options).unwrap()).unwrap()
    };
    all.iter().map(ids).collect()
}

/// Importance data of answers to prompts.
fn collected(model: &mut Model, prompts: &[&Vec<u32>]) -> Gguf {
    model.collect_importance();
    for (i, prompt) in prompts.iter().enumerate() {
        let request = Request::new(model, prompt.to_vec(), 96).unwrap();
        let mut session = model.session().unwrap();
        let draws = draws(model, i as u64);
        generate(model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(())).unwrap();
        model.close(session);
    }
    let file = model.take_importance().unwrap().to_gguf(&[], 32, &BTreeMap::new()).unwrap();
    Gguf::from_bytes(file.into()).unwrap()
}

fn decoded(gguf: &Gguf, name: &str) -> Vec<f32> {
    let t = gguf.tensor(name).unwrap();
    let mut x = vec![0.0; t.n_elements() as usize];
    codec(t.dtype).unwrap().dequantize(&gguf.tensor_bytes(t), &mut x);
    x
}

/// What importance data are for: with those of some questions to a trained model, the products of its matrices with what
/// they are multiplied by in answers to other questions have smaller errors (inputs taken as independent of each other).
#[test]
fn importance_data_make_the_errors_of_products_smaller() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/redraft-tiny/redraft-tiny-bf16.gguf");
    let source = Gguf::open(&path, &Default::default()).unwrap();
    let mut model = Model::from_gguf(source.clone(), &LoadOptions::default()).unwrap();
    let questions = questions(&model);
    let every = |first: usize| questions.iter().skip(first).step_by(20).collect::<Vec<_>>();
    let (calibration, others) = (collected(&mut model, &every(0)), collected(&mut model, &every(10)));
    let importance = Importance::from_gguf(&calibration).unwrap();
    for (name, most) in [("q2_k_s", 0.8), ("q3_k_s", 0.85), ("q4_k_s", 0.8)] {
        let recipe = Recipe::from_name(name).unwrap();
        let quantized = |importance: Option<&Importance>| {
            let mut file = Vec::new();
            let plan = QuantizePlan::new(&source, &recipe, importance).unwrap();
            plan.write(&mut file, 2, &mut |_, _| true).unwrap();
            Gguf::from_bytes(file.into()).unwrap()
        };
        let files = [quantized(None), quantized(Some(&importance))];
        let mut ratios = Vec::new();
        for t in source.tensors() {
            if files[0].tensor(&t.name).unwrap().dtype == t.dtype {
                continue;
            }
            let sums = decoded(&others, &format!("{}.in_sum2", t.name));
            let (inputs, rows) = (t.dims[0] as usize, t.dims[1] as usize);
            let truth = decoded(&source, &t.name);
            let error = |file: &Gguf| -> f64 {
                let found = decoded(file, &t.name);
                let square = |(i, (a, b)): (usize, (&f32, &f32))| {
                    let weight = sums[i / (inputs * rows) * inputs + i % inputs];
                    f64::from(weight) * f64::from(a - b).powi(2)
                };
                truth.iter().zip(&found).enumerate().map(square).sum()
            };
            ratios.push((error(&files[1]) / error(&files[0]), t.name.clone()));
        }
        let mean = (ratios.iter().map(|(r, _)| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        println!("{name}: {mean:.3} of the errors without; best {:?}, worst {:?}", ratios[0], ratios.last());
        assert!(mean < most && ratios.len() == 39, "{name}: {ratios:?}");
        assert!(ratios.iter().all(|(r, _)| *r < 1.0), "{name}: {ratios:?}");
    }
}
