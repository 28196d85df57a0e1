//! How far one way to compute is from another, in numbers and in answers:
//! `cargo run --release --example divergence -- MODEL [MODEL] [--seeds 5] [--questions 815] [--threads N]
//! [--json OUT]`.
//!
//! A MODEL is `MODE:FILE`, `MODE:FILE@TYPE` for the file quantized to a type (`q4_k`, `q4_k_m`), with `embedded` for the
//! file in the program; MODE is `exact` or `fast`. One model without a mode is compared in `fast` with itself in `exact`.
//! The tables of `docs/fast.md` are made with it.
//!
//! What is compared is that of [`redraft::evaluate`]; here are the questions, and which answers are right.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports on the terminal")]

#[path = "questions/mod.rs"]
mod questions;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use questions::{Asker, Question, draws};
use redraft::compute::Numerics;
use redraft::convert::{QuantizePlan, Recipe};
use redraft::engine::Generation;
use redraft::evaluate::{Distance, Evaluation};
use redraft::gguf::Gguf;
use redraft::{LoadOptions, Model};

type Done<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: divergence [MODE:]FILE[@TYPE]|[MODE:]embedded [MODE:FILE] [--seeds N] [--questions N] \
    [--threads N] [--json OUT]";

fn main() -> Done<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let seeds: u64 = value("--seeds").map_or(Ok(5), |s| s.parse())?;
    let mut questions = Question::all()?;
    questions.truncate(value("--questions").map_or(Ok(usize::MAX), |s| s.parse())?);
    let names: Vec<&String> = args.iter().take_while(|a| !a.starts_with("--")).collect();
    let (first, second) = match names[..] {
        [both] => (format!("exact:{both}"), format!("fast:{both}")),
        [a, b] => (a.clone(), b.clone()),
        _ => return Err(USAGE.into()),
    };
    let threads = value("--threads").map(|n| n.parse()).transpose()?;
    let mut pair = Pair { first: Side::open(&first, threads)?, second: Side::open(&second, threads)? };
    let mut evaluation = Evaluation::default();
    let mut answers = Answers { right: vec![[0; 2]; questions.len()], ..Answers::default() };
    for seed in 0..seeds {
        for (i, q) in questions.iter().enumerate() {
            pair.ask(q, i, seed, &mut evaluation, &mut answers)?;
        }
        eprintln!("seed {seed}: {:?} right of {}", answers.by_seed.last(), questions.len());
    }
    let summary = Summary::new(&first, &second, seeds, evaluation.distance(), &answers);
    println!("{}", serde_json::to_string_pretty(&summary)?);
    if let Some(out) = value("--json") {
        std::fs::write(out, serde_json::to_string_pretty(&summary)? + "\n")?;
    }
    Ok(())
}

/// A loaded model.
struct Side {
    model: Model,
    asker: Asker,
}

impl Side {
    fn open(name: &str, threads: Option<usize>) -> Done<Side> {
        let (mode, file) = name.split_once(':').ok_or(USAGE)?;
        let numerics = Numerics::from_name(mode).ok_or_else(|| format!("{mode}: expected exact or fast"))?;
        let options = LoadOptions { numerics: Some(numerics), threads, ..LoadOptions::default() };
        let (path, dtype) = file.split_once('@').map_or((file, None), |(p, t)| (p, Some(t)));
        let mut model = match path {
            "embedded" => Model::embedded(&options)?,
            path => Model::open(Path::new(path), &options)?,
        };
        if let Some(name) = dtype {
            let mut bytes = Vec::new();
            let threads = std::thread::available_parallelism()?.get();
            QuantizePlan::new(model.gguf(), &Recipe::from_name(name)?, None)?.write(
                &mut bytes,
                threads,
                &mut |_, _| true,
            )?;
            model = Model::from_gguf(Gguf::from_bytes(bytes.into())?, &options)?;
        }
        let asker = Asker::new(&model, None, true)?;
        Ok(Side { model, asker })
    }
}

struct Pair {
    first: Side,
    second: Side,
}

impl Pair {
    fn ask(
        &mut self,
        q: &Question,
        i: usize,
        seed: u64,
        evaluation: &mut Evaluation,
        answers: &mut Answers,
    ) -> Done<()> {
        let Pair { first, second } = self;
        let request = first.asker.request(&first.model, q)?;
        let draws = draws(&first.model, seed, i);
        let [a, b] = evaluation.ask([&mut first.model, &mut second.model], &request, &draws)?;
        let right = [(&a, first.model.tokenizer()), (&b, second.model.tokenizer())]
            .map(|(g, tokenizer)| q.is_right(&g.ids, tokenizer));
        answers.add(seed, i, right, [&a, &b], first.model.shape().canvas_len);
        let task = answers.by_task.entry(q.task.clone()).or_default();
        for side in 0..2 {
            task[side] += usize::from(right[side]);
        }
        Ok(())
    }
}

#[derive(Default)]
struct Answers {
    n: usize,
    changed: usize,
    canvases: usize,
    changed_canvases: usize,
    steps: [usize; 2],
    /// Right answers of both, by seed.
    by_seed: Vec<[usize; 2]>,
    /// Right answers of both, by question.
    right: Vec<[usize; 2]>,
    only_one: [usize; 2],
    /// Right answers of both, by kind of question.
    by_task: BTreeMap<String, [usize; 2]>,
}

impl Answers {
    fn add(&mut self, seed: u64, i: usize, right: [bool; 2], [a, b]: [&Generation; 2], len: usize) {
        self.n += 1;
        self.changed += usize::from(a.ids != b.ids);
        // A canvas that only one of them has is a changed one.
        let (mut x, mut y) = (a.committed.chunks(len), b.committed.chunks(len));
        for _ in 0..a.canvases.len().max(b.canvases.len()) {
            self.canvases += 1;
            self.changed_canvases += usize::from(x.next() != y.next());
        }
        self.by_seed.resize(seed as usize + 1, [0; 2]);
        for (side, g) in [a, b].into_iter().enumerate() {
            self.steps[side] += g.canvases.iter().map(|c| c.steps).sum::<usize>();
            self.by_seed[seed as usize][side] += usize::from(right[side]);
            self.right[i][side] += usize::from(right[side]);
            self.only_one[side] += usize::from(right[side] && !right[1 - side]);
        }
    }

    /// Points of exact match that the second has more, and the standard error of that over questions.
    fn gain(&self, seeds: u64) -> [f64; 2] {
        let n = self.right.len() as f64;
        let gains: Vec<f64> =
            self.right.iter().map(|r| 100.0 * (r[1] as f64 - r[0] as f64) / seeds as f64).collect();
        let mean = gains.iter().sum::<f64>() / n;
        let variance = gains.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / (n - 1.0);
        [mean, (variance / n).sqrt()]
    }

    /// Sign test over questions, whose answers are independent: those where the first is right more often, those where the
    /// second is, and how often chance alone gives a split as uneven as that.
    fn signs(&self) -> (usize, usize, f64) {
        let count = |better: usize| self.right.iter().filter(|r| r[better] > r[1 - better]).count();
        let (a, b) = (count(0), count(1));
        let n = a + b;
        // Terms of the binomial distribution, from the outside.
        let (mut term, mut sum) = (0.5f64.powi(n as i32), 0.0);
        for k in 0..=a.min(b) {
            sum += term;
            term *= (n - k) as f64 / (k + 1) as f64;
        }
        (a, b, (2.0 * sum).min(1.0))
    }
}

#[derive(serde::Serialize)]
struct Summary {
    models: [String; 2],
    questions: usize,
    seeds: u64,
    #[serde(flatten)]
    distance: Distance,
    changed_answers_percent: f64,
    changed_canvases_percent: f64,
    steps_per_answer: [f64; 2],
    right_by_seed: Vec<[usize; 2]>,
    only_first_right: usize,
    only_second_right: usize,
    gain_points: f64,
    gain_standard_error: f64,
    questions_better_first: usize,
    questions_better_second: usize,
    sign_test_p: f64,
    /// Right answers, where the two have not as many.
    right_by_task: BTreeMap<String, [usize; 2]>,
}

impl Summary {
    fn new(first: &str, second: &str, seeds: u64, distance: Distance, a: &Answers) -> Summary {
        let percent = |n: usize, of: usize| 100.0 * n as f64 / of as f64;
        let ([gain_points, gain_standard_error], (better_first, better_second, p)) =
            (a.gain(seeds), a.signs());
        Summary {
            models: [first.into(), second.into()],
            questions: a.right.len(),
            seeds,
            distance,
            changed_answers_percent: percent(a.changed, a.n),
            changed_canvases_percent: percent(a.changed_canvases, a.canvases),
            steps_per_answer: a.steps.map(|s| s as f64 / a.n as f64),
            right_by_seed: a.by_seed.clone(),
            only_first_right: a.only_one[0],
            only_second_right: a.only_one[1],
            gain_points,
            gain_standard_error,
            questions_better_first: better_first,
            questions_better_second: better_second,
            sign_test_p: p,
            right_by_task: a.by_task.clone().into_iter().filter(|(_, [a, b])| a != b).collect(),
        }
    }
}
