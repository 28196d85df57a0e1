//! Exact match of a model on the question set of `testdata/redraft-tiny/questions.json`:
//! `cargo run --release --example exact_match -- MODEL.gguf|embedded [--seeds 5] [--steps 48] [--no-sc] [--numerics exact]
//! [--json OUT]`.
//!
//! Scoring is equality after trimming, with at most 96 tokens. Sampling uses our own random numbers, so rates
//! agree with another implementation's within the sampling error, not question by question.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports on the terminal")]

#[path = "questions/mod.rs"]
mod questions;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use questions::{Asker, Question, draws};
use redraft::compute::Numerics;
use redraft::engine::generate;
use redraft::{LoadOptions, Model};

#[derive(Default, serde::Serialize)]
struct Row {
    n: usize,
    /// Right answers, by seed.
    correct: Vec<usize>,
    steps: usize,
    tokens: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let seeds: u64 = value("--seeds").map_or(Ok(5), |s| s.parse())?;
    let steps: f64 = value("--steps").map_or(Ok(48.0), |s| s.parse())?;
    let questions = Question::all()?;
    let numerics = value("--numerics").map(|name| {
        Numerics::from_name(name).ok_or_else(|| format!("--numerics: expected exact or fast, found {name}"))
    });
    let numerics = numerics.transpose()?;
    let options = LoadOptions { numerics, ..LoadOptions::default() };
    let mut model = match args.first().map(String::as_str) {
        Some("embedded") => Model::embedded(&options)?,
        Some(path) => Model::open(Path::new(path), &options)?,
        None => return Err("usage: exact_match MODEL.gguf|embedded [options]".into()),
    };
    let tokenizer = model.tokenizer().clone();
    let asker = Asker::new(&model, Some(steps), !args.iter().any(|a| a == "--no-sc"))?;
    let mut session = model.session()?;
    let mut table: BTreeMap<String, Row> = BTreeMap::new();
    for seed in 0..seeds {
        for (i, q) in questions.iter().enumerate() {
            let request = asker.request(&model, q)?;
            let draws = draws(&model, seed, i);
            let g = generate(&mut model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(()))?;
            let right = q.is_right(&g.ids, &tokenizer);
            for name in [q.task.as_str(), "ALL"] {
                let row = table.entry(name.into()).or_default();
                row.correct.resize(seed as usize + 1, 0);
                row.correct[seed as usize] += usize::from(right);
                row.n += usize::from(seed == 0);
                row.steps += g.canvases.iter().map(|c| c.steps).sum::<usize>();
                row.tokens += g.ids.len() + 1;
            }
        }
        let all = &table["ALL"];
        eprintln!("seed {seed}: {} of {}", all.correct[seed as usize], all.n);
    }
    for (name, row) in &table {
        let total: usize = row.correct.iter().sum();
        let runs = (row.n * row.correct.len()) as f64;
        println!(
            "{name:<10} {:>6.2} %  of {} x {}  steps {:.2}  tokens/forward {:.2}",
            100.0 * total as f64 / runs,
            row.n,
            row.correct.len(),
            row.steps as f64 / runs,
            row.tokens as f64 / row.steps as f64,
        );
    }
    if let Some(out) = value("--json") {
        std::fs::write(out, serde_json::to_string_pretty(&table)?)?;
    }
    Ok(())
}
