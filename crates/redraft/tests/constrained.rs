//! Answers that are held to a language, with every family and every sampler: each reply is in the language, whatever the
//! model thinks, and has the same bits everywhere.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{commands, open, run, testdata};
use redraft::arch::{Noise, Reading};
use redraft::compute::cpu::CpuLevel;
use redraft::constrain::{Constraint, Language, Vocabulary};
use redraft::engine::{BlockCache, Event, Finish, Generation, Given, Request, Slot, default_max_tokens};
use redraft::sampler::{PROFILES, SAMPLERS, SamplerSpec, profile, sampler};
use redraft::{LoadOptions, Model};
use serde_json::{Value, json};

/// One file of each family, those that read block by block in a folder of their own.
const FILES: [&str; 10] = [
    "dream-tiny.F16.gguf",
    "llada-tiny.BF16.gguf",
    "llada-moe-tiny.BF16.gguf",
    "rnd1-tiny.BF16.gguf",
    "llada2-tiny.BF16.gguf",
    "sdar-tiny.BF16.gguf",
    "sdar-moe-tiny.BF16.gguf",
    "fast-dllm-tiny.BF16.gguf",
    "a2d-qwen3-tiny.BF16.gguf",
    "dg-mini.F32.gguf",
];

/// The token that ends an answer, and padding.
const END: u32 = 9;
const PAD: u32 = 8;

fn load(file: &str, options: &LoadOptions) -> Model {
    let blocks = testdata().join("block-diffusion/models").join(file);
    if blocks.exists() { Model::open(&blocks, options).unwrap() } else { open(file, options) }
}

fn threads(n: usize) -> LoadOptions {
    LoadOptions { threads: Some(n), ..LoadOptions::default() }
}

/// Texts for the ids of a model whose own are of no use: printable ASCII, some longer pieces of JSON, and the two bytes of é.
fn texts(model: &Model) -> Vec<(u32, Vec<u8>)> {
    let mask = if let Noise::Mask(mask) = model.shape().noise { mask } else { u32::MAX };
    let mut texts: Vec<Vec<u8>> = (b' '..=b'~').map(|b| vec![b]).collect();
    let longer = [
        "{\"", "\": ", "\":", ", \"", "\"}", "[]", "name", "na", "ag", "true", "10", " a", "x\"}", "\\n",
        "é", "\",\"",
    ];
    texts.extend(longer.map(|t| t.as_bytes().to_vec()));
    texts.extend([vec![0xc3], vec![0xa9]]);
    let ids = (0..model.shape().vocab_len as u32).filter(|&id| id != mask && id != END && id != PAD);
    ids.zip(texts).collect()
}

fn vocabulary(model: &Model) -> Vocabulary {
    Vocabulary {
        len: model.shape().vocab_len,
        texts: texts(model),
        end_ids: vec![END],
        pad: Some(PAD),
        strips_space: false,
    }
}

fn reply(model: &Model, done: &Generation) -> String {
    let texts = texts(model);
    let text = |id: &u32| texts.iter().find(|(other, _)| other == id).unwrap().1.clone();
    String::from_utf8(done.ids.iter().flat_map(text).collect()).unwrap()
}

fn compiled(model: &Model, language: &Language) -> Arc<Constraint> {
    Arc::new(Constraint::new(language.clone(), &vocabulary(model)).unwrap())
}

fn schema() -> Language {
    Language::JsonSchema(json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["x", "y"]}},
        },
        "required": ["name", "age"],
        "additionalProperties": false,
    }))
}

/// What the schema says, said again.
fn is_valid(reply: &str) -> bool {
    let Ok(Value::Object(o)) = serde_json::from_str(reply) else { return false };
    let tags =
        o.get("tags").is_none_or(|t| t.as_array().is_some_and(|t| t.iter().all(|t| *t == "x" || *t == "y")));
    o["name"].is_string()
        && o["age"].as_u64().is_some_and(|age| age <= 150)
        && tags
        && o.keys().all(|k| ["name", "age", "tags"].contains(&k.as_str()))
}

fn request(
    model: &Model,
    spec: &'static SamplerSpec,
    parameters: &[(&str, f64)],
    max_tokens: usize,
    constraint: Arc<Constraint>,
) -> Request {
    let all: Vec<_> = parameters.iter().map(|(n, x)| (n.to_string(), *x)).collect();
    Request {
        // Whole blocks of the models that have them: their first canvas begins with a token that the prompt predicts.
        prompt: (0..16).map(|i| 20 + (i * 37) % 480).collect(),
        max_tokens,
        context_len: model.shape().context_len,
        sampler: spec,
        params: model.params(spec, &all).unwrap(),
        profile: &PROFILES[0],
        end_ids: vec![END],
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        self_conditioning: true,
        given: Given::default(),
        constraint: Some(constraint),
        cache: BlockCache::None,
        full_logits: false,
        interrupt: None,
    }
}

/// Samplers that fit a model and leave tokens at their places.
fn samplers(model: &Model) -> impl Iterator<Item = &'static SamplerSpec> + use<> {
    let masks = matches!(model.shape().noise, Noise::Mask(_));
    SAMPLERS.iter().copied().filter(move |s| s.masks == masks && !s.moves())
}

/// Few steps, greedy or drawn with top-k and top-p.
fn parameters(spec: &SamplerSpec, drawn: bool) -> Vec<(&'static str, f64)> {
    let has = |name: &str| spec.params.iter().any(|p| p.name == name);
    let mut all = vec![("steps", 5.0)];
    if has("temperature") {
        all.extend(if drawn {
            [("temperature", 0.8), ("top_p", 0.95), ("top_k", 12.0)]
        } else {
            [("temperature", 0.0), ("top_p", 1.0), ("top_k", 0.0)]
        });
    }
    if has("edit_threshold") {
        all.extend([("edit_threshold", 0.0), ("post_steps", 2.0)]);
    }
    all
}

/// What is decided in a canvas of masks can always be completed, so each canvas of the events is looked at, too.
#[test]
fn every_reply_of_every_sampler_and_family_is_in_the_language() {
    for (i, file) in FILES.iter().enumerate() {
        let mut models = vec![load(file, &threads(1)), load(file, &threads(3))];
        models.push(load(file, &LoadOptions { backend: "reference".into(), ..threads(1) }));
        if let Some(level) = CpuLevel::available().into_iter().next() {
            models.push(load(file, &LoadOptions { cpu_level: Some(level.name().into()), ..threads(2) }));
        }
        let constraint = compiled(&models[0], &schema());
        for (j, spec) in samplers(&models[0]).enumerate() {
            for drawn in [false, true] {
                let name = format!("{file} {} {drawn}", spec.name);
                let r = request(&models[0], spec, &parameters(spec, drawn), 45, Arc::clone(&constraint));
                let n = if (i + j) % 3 == 0 { models.len() } else { 1 };
                let answers: Vec<Generation> = models[..n]
                    .iter_mut()
                    .map(|model| run(model, &r, &mut |_| ()).unwrap_or_else(|e| panic!("{name}: {e}")))
                    .collect();
                let text = reply(&models[0], &answers[0]);
                assert!(is_valid(&text), "{name}: {text:?}");
                assert_eq!(answers[0].finish, Finish::Stop, "{name}");
                assert!(answers[0].ids.len() <= 45);
                for other in &answers[1..] {
                    assert_eq!(
                        (&other.committed, &other.digests),
                        (&answers[0].committed, &answers[0].digests),
                        "{name}"
                    );
                }
            }
        }
    }
}

/// With penalties, guidance, caches of blocks, and without self-conditioning.
#[test]
fn other_settings_change_nothing_about_it() {
    for file in ["llada-tiny.BF16.gguf", "dream-tiny.F16.gguf", "dg-mini.F32.gguf"] {
        let mut model = load(file, &threads(2));
        let constraint = compiled(&model, &schema());
        let spec = model.sampler().unwrap();
        let weights = [("repetition_penalty", 1.3), ("presence_penalty", 2.0)];
        let all = [parameters(spec, true), weights.to_vec()].concat();
        let mut r = request(&model, spec, &all, 40, constraint);
        r.self_conditioning = false;
        r.full_logits = true;
        let mut requests = vec![r.clone()];
        if model.shape().reading == Reading::Whole {
            let guided = [all, vec![("cfg_scale", 1.5)]].concat();
            requests.push(request(&model, spec, &guided, 40, Arc::clone(r.constraint.as_ref().unwrap())));
            for cache in [BlockCache::Prefix, BlockCache::Dual] {
                let low = sampler("low-confidence").unwrap();
                let p = [parameters(low, false), vec![("block_length", 9.0)]].concat();
                let plain = request(&model, low, &p, 40, Arc::clone(r.constraint.as_ref().unwrap()));
                requests.push(Request { cache, ..plain });
            }
        }
        for r in requests {
            let done = run(&mut model, &r, &mut |_| ()).unwrap();
            let text = reply(&model, &done);
            assert!(is_valid(&text), "{file}: {text:?}");
        }
    }
}

/// Expressions and choices, and replies that have exactly the tokens that there are.
#[test]
fn other_languages_and_the_fewest_tokens() {
    for file in FILES {
        let mut model = load(file, &threads(2));
        // llada2.2's own sampler moves tokens; none of these does.
        let spec = model.sampler().unwrap();
        let digits = Language::Regex(r"\d{3}-\d{4}".into());
        let choices = Language::Choices(vec!["nothing at all".into(), "true name".into(), "éé".into()]);
        let object = Language::JsonObject;
        for (language, fits) in [
            (digits, (|t: &str| t.len() == 8 && t.as_bytes()[3] == b'-') as fn(&str) -> bool),
            (choices, |t| ["nothing at all", "true name", "éé"].contains(&t)),
            (object, |t| serde_json::from_str::<Value>(t).unwrap().is_object()),
        ] {
            let constraint = compiled(&model, &language);
            let needed = constraint.needed();
            for max_tokens in [needed, needed + 1, 33] {
                let r = request(&model, spec, &parameters(spec, false), max_tokens, Arc::clone(&constraint));
                let done =
                    run(&mut model, &r, &mut |_| ()).unwrap_or_else(|e| panic!("{file} {max_tokens}: {e}"));
                let text = reply(&model, &done);
                assert!(fits(&text), "{file} {max_tokens}: {text:?}");
                assert!(done.ids.len() <= max_tokens && done.finish == Finish::Stop);
            }
            let r = request(&model, spec, &parameters(spec, false), needed - 1, constraint);
            if needed > 1 {
                let e = run(&mut model, &r, &mut |_| panic!("nothing is computed")).unwrap_err().to_string();
                assert!(
                    e.contains(&format!("has {needed} tokens"))
                        && e.contains(&format!("have {}", needed - 1)),
                    "{e}"
                );
            }
        }
    }
}

/// Languages whose replies are longer than a canvas, canvas after canvas.
#[test]
fn a_reply_goes_on_over_canvases() {
    let long: String = (0..60).map(|i| char::from(b'a' + i % 26)).collect();
    for file in
        ["dg-mini.F32.gguf", "sdar-tiny.BF16.gguf", "fast-dllm-tiny.BF16.gguf", "llada2-tiny.BF16.gguf"]
    {
        let mut model = load(file, &threads(2));
        let spec = model.sampler().unwrap();
        // 60 letters, of which the model chooses half, and a number of others.
        let language = Language::Regex(format!("({long}|[a-z]{{60}})x{{2,5}}"));
        let constraint = compiled(&model, &language);
        for max_tokens in [constraint.needed(), 90] {
            let r = request(&model, spec, &parameters(spec, false), max_tokens, Arc::clone(&constraint));
            let mut canvases = 0;
            let done =
                run(&mut model, &r, &mut |e| canvases += usize::from(matches!(e, Event::Commit { .. })))
                    .unwrap();
            let text = reply(&model, &done);
            let letters = text.trim_end_matches('x').len().min(60);
            assert!(letters <= 60 && (62..=65).contains(&text.len()), "{file}: {text:?}");
            assert!(canvases > 1, "{file}");
            assert!(constraint.accepts(&done.ids));
        }
    }
}

/// A reply that can only end takes no canvas more for its end.
#[test]
fn what_can_only_end_has_ended() {
    let mut model = load("dg-mini.F32.gguf", &threads(2));
    let spec = model.sampler().unwrap();
    // As many tokens as a canvas, each of one letter: no longer token is made of them.
    let text = "zq".repeat(model.shape().canvas_len / 2);
    let constraint = compiled(&model, &Language::Choices(vec![text.clone()]));
    assert_eq!(constraint.needed(), model.shape().canvas_len);
    let r = request(&model, spec, &parameters(spec, false), 100, constraint);
    let done = run(&mut model, &r, &mut |_| ()).unwrap();
    assert_eq!((reply(&model, &done), done.canvases.len(), done.finish), (text, 1, Finish::Stop));
    assert_eq!(done.canvases[0].steps, 2, "of one canvas alone everything is sure");
}

/// The committed canvas is the best of all canvases of the language under the last step's logits.
#[test]
fn the_canvas_is_the_most_likely_one() {
    let mut model = load("dg-mini.F32.gguf", &threads(1));
    let spec = model.sampler().unwrap();
    let words = ["name", "nag", "10a", "true", "x", "é", "[]"];
    let constraint = compiled(&model, &Language::Choices(words.map(String::from).to_vec()));
    let vocab_len = model.shape().vocab_len;
    let mut r = request(&model, spec, &parameters(spec, false), 8, Arc::clone(&constraint));
    r.full_logits = true;
    let (mut logits, mut temperature) = (Vec::new(), 1.0);
    let mut best = Vec::new();
    run(&mut model, &r, &mut |e| match e {
        Event::Step(s) => {
            logits = s.logits.unwrap().to_vec();
            temperature = s.temperature;
            best = s.result.argmax.clone();
        }
        Event::Commit { ids, .. } => {
            let text = ids.iter().position(|&id| id == END).unwrap();
            assert_eq!(ids[..=text], best[..=text]);
        }
        Event::Prompt { .. } => {}
    })
    .unwrap();
    let n = best.len();
    let score = |canvas: &[u32]| -> f64 {
        (0..n).map(|i| logits[i * vocab_len + canvas[i] as usize] / temperature).sum()
    };
    // All ways to write the words, with each way to fill the rest.
    let texts = texts(&model);
    let mut most = f64::NEG_INFINITY;
    for word in words {
        let mut open = vec![(Vec::new(), word.as_bytes())];
        while let Some((ids, rest)) = open.pop() {
            if rest.is_empty() && ids.len() <= n {
                let mut canvas: Vec<u32> = ids.clone();
                for at in ids.len()..n {
                    let row = &logits[at * vocab_len..][..vocab_len];
                    let pads = at > ids.len() && row[PAD as usize] > row[END as usize];
                    canvas.push(if pads { PAD } else { END });
                }
                most = most.max(score(&canvas));
            }
            for (id, text) in &texts {
                if let Some(rest) = rest.strip_prefix(&text[..]) {
                    open.push(([&ids[..], &[*id]].concat(), rest));
                }
            }
        }
    }
    assert!((score(&best) - most).abs() < 1e-3, "{} {most}", score(&best));
}

/// Files name ends that their models have no rows for.
#[test]
fn ends_that_the_model_cannot_write_do_not_matter() {
    let mut model = load("dream-tiny.F16.gguf", &threads(1));
    let Noise::Mask(mask) = model.shape().noise else { panic!("a model of masks") };
    let beyond = model.shape().vocab_len as u32 + 7;
    let choice = Language::Choices(vec!["a".into(), "name".into()]);
    let spec = model.sampler().unwrap();
    let ends = vec![END, beyond, mask];
    let known = Vocabulary::of(&model, &ends);
    assert_eq!(known.end_ids, [END]);
    let c = Arc::new(Constraint::new(choice, &Vocabulary { texts: texts(&model), ..known }).unwrap());
    let r = Request { end_ids: ends, ..request(&model, spec, &[], 6, c) };
    let done = run(&mut model, &r, &mut |_| ()).unwrap();
    assert!(["a", "name"].contains(&reply(&model, &done).as_str()));
    let none =
        Constraint::new(Language::Regex("a*".into()), &Vocabulary { end_ids: vec![], ..vocabulary(&model) });
    let r = Request { end_ids: vec![beyond], constraint: Some(Arc::new(none.unwrap())), ..r };
    let e = run(&mut model, &r, &mut |_| ()).unwrap_err().to_string();
    assert!(e.contains("ends of an answer") && e.contains("found none"), "{e}");
}

#[test]
fn what_cannot_be_done_together_is_an_error() {
    let mut model = load("dg-mini.F32.gguf", &threads(1));
    let spec = model.sampler().unwrap();
    let good = request(&model, spec, &[], 40, compiled(&model, &schema()));
    let mut refused = |r: &Request, what: &str| {
        let e = run(&mut model, r, &mut |_| panic!("nothing is computed")).unwrap_err().to_string();
        assert!(e.contains(what), "{e}");
    };
    refused(&Request { profile: profile("jax").unwrap(), ..good.clone() }, "profile");
    refused(&Request { ban: vec![3], ..good.clone() }, "bans");
    refused(&Request { end_ids: vec![END, PAD], ..good.clone() }, "compiled for");
    refused(&Request { given: Given { slots: vec![Slot::Gap], end: None }, ..good.clone() }, "given text");
    let mut other = load("llada2.2-tiny.BF16.gguf", &threads(1));
    let edit = sampler("edit").unwrap();
    let r = request(&other, edit, &commands(edit), 20, compiled(&other, &schema()));
    let e = run(&mut other, &r, &mut |_| ()).unwrap_err().to_string();
    assert!(e.contains("leaves tokens at their places"), "{e}");
    let shape = other.shape();
    assert!(default_max_tokens(shape, edit, shape.context_len, 16) > 0);
}
