//! How far answers with a cache of blocks are those without, and what steps take:
//! `cargo run --release --example cache_match -- MODEL.gguf [--questions FILE.json] [--prompts 40] [--prompt-len 32]
//! [--tokens 48] [--block 8] [--steps 0] [--sampler NAME] [--threads N]`.
//!
//! Questions have a `prompt` and an `answer` of one token a character, of which as many are asked as there are, `--every` so
//! many; without a file prompts are random tokens. Each is answered with each cache by turns. The tables of `docs/caches.md`
//! are made with it.

#![allow(clippy::print_stdout, reason = "a program that reports on the terminal")]

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use redraft::compute::rng;
use redraft::engine::{BlockCache, Event, Given, Philox, Request, generate};
use redraft::sampler::{PROFILES, sampler};
use redraft::{LoadOptions, Model};

/// What is asked, and the right answer where there is one. `task` is the first character of a question.
struct Question {
    task: char,
    prompt: Vec<u32>,
    answer: Vec<u32>,
}

/// What came out with one cache.
#[derive(Default)]
struct Row {
    answers: usize,
    tokens: usize,
    same_answers: usize,
    same_tokens: usize,
    right: BTreeMap<char, usize>,
    /// Seconds of the first steps of blocks, and of the others.
    seconds: [Vec<f64>; 2],
}

fn median(x: &mut [f64]) -> f64 {
    x.sort_by(f64::total_cmp);
    x.get(x.len() / 2).copied().unwrap_or(f64::NAN)
}

fn questions(model: &Model, path: &str, every: usize) -> Result<Vec<Question>, Box<dyn Error>> {
    let ids = |text: &str| -> Result<Vec<u32>, Box<dyn Error>> {
        let id = |c: char| model.tokenizer().token_id(&c.to_string()).ok_or_else(|| format!("no token {c}"));
        Ok(text.chars().map(id).collect::<Result<_, _>>()?)
    };
    let file: Vec<BTreeMap<String, String>> = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let question = |q: &BTreeMap<String, String>| {
        let task = q["prompt"].chars().next().unwrap_or('-');
        Ok(Question { task, prompt: ids(&q["prompt"])?, answer: ids(&q["answer"])? })
    };
    file.iter().step_by(every).map(question).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let number = |name: &str, default: usize| value(name).map_or(Ok(default), |s| s.parse::<usize>());
    let path = args.first().ok_or("expected a model file")?;
    let options =
        LoadOptions { threads: value("--threads").map(|s| s.parse()).transpose()?, ..LoadOptions::default() };
    let mut model = Model::open(Path::new(path), &options)?;
    let vocab_len = model.shape().vocab_len as u32;
    let prompt_len = number("--prompt-len", 32)?;
    let all = match value("--questions") {
        Some(path) => questions(&model, path, number("--every", 1)?)?,
        None => (0..number("--prompts", 40)? as u32)
            .map(|i| Question {
                task: '-',
                prompt: (0..prompt_len as u32).map(|p| rng::initial_id(1, i, p, vocab_len)).collect(),
                answer: Vec::new(),
            })
            .collect(),
    };
    let spec = match value("--sampler") {
        Some(name) => sampler(name)?,
        None => model.sampler()?,
    };
    let mut parameters = vec![("steps".to_string(), number("--steps", 0)? as f64)];
    if spec.params.iter().any(|p| p.name == "block_length") {
        parameters.push(("block_length".into(), number("--block", 8)? as f64));
    }
    let tokens = number("--tokens", 48)?;
    let mut rows: [Row; 3] = Default::default();
    let mut session = model.session()?;
    for (i, q) in all.iter().enumerate() {
        let mut plain = Vec::new();
        for (row, &cache) in rows.iter_mut().zip(BlockCache::ALL) {
            let request = Request {
                prompt: q.prompt.clone(),
                max_tokens: if q.answer.is_empty() { tokens } else { q.answer.len() },
                context_len: model.shape().context_len,
                sampler: spec,
                params: model.params(spec, &parameters)?,
                profile: &PROFILES[0],
                end_ids: Vec::new(),
                ban: Vec::new(),
                bias: Vec::new(),
                logprobs: None,
                self_conditioning: false,
                given: Given::default(),
                constraint: None,
                cache,
                full_logits: false,
                interrupt: None,
            };
            let block = request.params.get("block_length");
            let mut last = None;
            let mut at = Instant::now();
            let draws = Philox { seed: i as u64, vocab_len };
            let done = generate(&mut model, &mut session, &request, &draws, &mut |event| {
                if let Event::Step(s) = event {
                    let open = s.open.and_then(|open| open.iter().position(|&o| o)).unwrap_or(0);
                    let here = if block > 0.0 { open / block as usize } else { 0 };
                    row.seconds[usize::from(last == Some(here))].push(at.elapsed().as_secs_f64());
                    last = Some(here);
                }
                at = Instant::now();
                ControlFlow::Continue(())
            })?;
            if cache == BlockCache::None {
                plain = done.ids.clone();
            }
            row.answers += 1;
            row.tokens += plain.len();
            row.same_answers += usize::from(done.ids == plain);
            row.same_tokens += done.ids.iter().zip(&plain).filter(|(a, b)| a == b).count();
            *row.right.entry(q.task).or_default() += usize::from(done.ids == q.answer);
        }
    }
    println!(
        "| cache | same answers | same tokens | right | by task | steps an answer | first step, ms | later step, ms | answer, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (row, cache) in rows.iter_mut().zip(BlockCache::ALL) {
        let percent = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
        let steps: usize = row.seconds.iter().map(Vec::len).sum();
        let seconds: f64 = row.seconds.iter().flatten().sum();
        let by_task: Vec<String> = row.right.iter().map(|(task, n)| format!("{task} {n}")).collect();
        println!(
            "| {} | {:.1} % | {:.1} % | {} of {} | {} | {:.1} | {:.2} | {:.2} | {:.1} |",
            cache.name(),
            percent(row.same_answers, row.answers),
            percent(row.same_tokens, row.tokens),
            row.right.values().sum::<usize>(),
            row.answers,
            by_task.join(", "),
            steps as f64 / row.answers as f64,
            1e3 * median(&mut row.seconds[0]),
            1e3 * median(&mut row.seconds[1]),
            1e3 * seconds / row.answers as f64,
        );
    }
    Ok(())
}
