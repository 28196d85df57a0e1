//! How far one way to compute is from another, in numbers and in answers:
//! `cargo run --release --example divergence -- MODEL [MODEL] [--seeds 5] [--questions 815] [--threads N]
//! [--json OUT]`.
//!
//! A MODEL is `MODE:FILE`, `MODE:FILE@TYPE` for the file quantized to a type (`q4_k`, `q4_k_m`), with `embedded` for the
//! file in the program; MODE is `exact` or `fast`. One model without a mode is compared in `fast` with itself in `exact`.
//! The tables of `docs/fast.md` are made with it.
//!
//! *Same inputs*: the first model answers every question; each of its steps is computed by the second one, too, from the
//! same prompt, canvas and previous prediction. *On its own*: both answer with the same draws.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports on the terminal")]

#[path = "questions/mod.rs"]
mod questions;

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use questions::{Asker, Question, draws};
use redraft::compute::{Numerics, TapData, TapKey, Val};
use redraft::convert::{Plan, Recipe};
use redraft::engine::{
    CanvasPass, Event, Generation, Previous, Request, Session, TapSink, canvas_pass, generate,
};
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
    let mut rows = Rows::default();
    let mut answers = Answers { right: vec![[0; 2]; questions.len()], ..Answers::default() };
    for seed in 0..seeds {
        for (i, q) in questions.iter().enumerate() {
            pair.ask(q, i, seed, &mut rows, &mut answers)?;
        }
        eprintln!("seed {seed}: {:?} right of {}", answers.by_seed.last(), questions.len());
    }
    let summary = Summary::new(&first, &second, seeds, &mut rows, &answers);
    println!("{}", serde_json::to_string_pretty(&summary)?);
    if let Some(out) = value("--json") {
        std::fs::write(out, serde_json::to_string_pretty(&summary)? + "\n")?;
    }
    Ok(())
}

/// A loaded model.
struct Side {
    model: Model,
    session: Session,
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
            Plan::new(model.gguf(), &Recipe::from_name(name)?, None)?.write(
                &mut bytes,
                threads,
                &mut |_, _| true,
            )?;
            model = Model::from_gguf(Gguf::from_bytes(bytes.into())?, &options)?;
        }
        let session = model.session()?;
        let asker = Asker::new(&model, None, true)?;
        Ok(Side { model, session, asker })
    }

    fn answer(
        &mut self,
        request: &Request,
        seed: u64,
        i: usize,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) -> Done<Generation> {
        let draws = draws(&self.model, seed, i);
        Ok(generate(&mut self.model, &mut self.session, request, &draws, &mut |event| {
            on_event(event);
            ControlFlow::Continue(())
        })?)
    }
}

/// A step of the first model.
struct Step {
    canvas: usize,
    ids: Vec<u32>,
    temperature: f64,
    accepted: Vec<bool>,
    logits: Vec<f64>,
}

/// Keeps the logits of a pass.
struct Logits(Vec<f64>);

impl TapSink for Logits {
    fn wants(&self, key: TapKey) -> bool {
        key.name == "logits"
    }

    fn tap(&mut self, _key: TapKey, _val: Val, data: TapData<'_>) {
        if let TapData::F32(x) = data {
            self.0 = x.iter().map(|&x| f64::from(x)).collect();
        }
    }
}

struct Pair {
    first: Side,
    second: Side,
}

impl Pair {
    fn ask(&mut self, q: &Question, i: usize, seed: u64, rows: &mut Rows, answers: &mut Answers) -> Done<()> {
        let mut request = self.first.asker.request(&self.first.model, q)?;
        request.full_logits = true;
        let mut steps = Vec::new();
        let a = self.first.answer(&request, seed, i, &mut |event| {
            if let Event::Step(s) = event {
                steps.push(Step {
                    canvas: s.canvas,
                    ids: s.canvas_in.to_vec(),
                    temperature: s.temperature,
                    accepted: s.decision.accepted.clone(),
                    logits: s.logits.unwrap_or_default().to_vec(),
                });
            }
        })?;
        self.same_inputs(&request.prompt, &a.committed, &steps, rows)?;
        let request = self.second.asker.request(&self.second.model, q)?;
        let b = self.second.answer(&request, seed, i, &mut |_| {})?;
        let len = self.first.model.shape().canvas_len;
        let right = [(&a, &self.first), (&b, &self.second)]
            .map(|(g, side)| q.is_right(&g.ids, side.model.tokenizer()));
        answers.add(seed, i, right, [&a, &b], len);
        let task = answers.by_task.entry(q.task.clone()).or_default();
        for side in 0..2 {
            task[side] += usize::from(right[side]);
        }
        Ok(())
    }

    /// The steps of the first model, computed by the second.
    fn same_inputs(
        &mut self,
        prompt: &[u32],
        committed: &[u32],
        steps: &[Step],
        rows: &mut Rows,
    ) -> Done<()> {
        let Side { model, session, .. } = &mut self.second;
        let (len, vocab_len) = (model.shape().canvas_len, model.shape().vocab_len);
        session.set_prompt(model, prompt, &mut (), &mut |_, _| ControlFlow::Continue(()))?;
        let mut before: Option<&Step> = None;
        for step in steps {
            let new_canvas = before.is_some_and(|b| b.canvas != step.canvas);
            if new_canvas {
                session.extend(model, &committed[(step.canvas - 1) * len..step.canvas * len], &mut ())?;
            }
            let processed: Option<Vec<f64>> = before.filter(|_| !new_canvas).map(|b| {
                let factor = (1.0 / b.temperature) as f32;
                b.logits.iter().map(|&x| f64::from(x as f32 * factor)).collect()
            });
            let previous = processed.as_deref().map_or(Previous::None, Previous::Given);
            let mut theirs = Logits(Vec::new());
            let pass = CanvasPass { previous, ..CanvasPass::new(&step.ids) };
            canvas_pass(model, session, pass, &mut theirs)?;
            let pairs = step.logits.chunks(vocab_len).zip(theirs.0.chunks(vocab_len));
            for ((p, q), &accepted) in pairs.zip(&step.accepted) {
                rows.add(p, q, accepted);
            }
            before = Some(step);
        }
        Ok(())
    }
}

/// Rows of logits: one for each step and position.
#[derive(Default)]
struct Rows {
    /// Of the first model's distribution from the second's, in nats, at temperature 1.
    divergence: Vec<f64>,
    agree: usize,
    accepted: usize,
    accepted_agree: usize,
    /// Rows where each one's best is the other's second.
    swaps: usize,
}

impl Rows {
    fn add(&mut self, p: &[f64], q: &[f64], accepted: bool) {
        self.divergence.push(kl(p, q));
        let (p, q) = (best_two(p), best_two(q));
        self.agree += usize::from(p[0] == q[0]);
        self.accepted += usize::from(accepted);
        self.accepted_agree += usize::from(accepted && p[0] == q[0]);
        self.swaps += usize::from(p[0] == q[1] && p[1] == q[0]);
    }
}

fn kl(p: &[f64], q: &[f64]) -> f64 {
    let lse = |x: &[f64]| {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + x.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
    };
    let (zp, zq) = (lse(p), lse(q));
    p.iter().zip(q).map(|(p, q)| (p - zp).exp() * ((p - zp) - (q - zq))).sum()
}

/// Ids of the largest and the second largest; the lower one of equals comes first.
fn best_two(x: &[f64]) -> [usize; 2] {
    let better = |a: usize, b: usize| x[a] > x[b] || (x[a] == x[b] && a < b);
    let mut best = [0, 1];
    if better(1, 0) {
        best = [1, 0];
    }
    for i in 2..x.len() {
        if better(i, best[0]) {
            best = [i, best[0]];
        } else if better(i, best[1]) {
            best[1] = i;
        }
    }
    best
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
    /// Rows of logits.
    rows: usize,
    kl_mean: f64,
    kl_median: f64,
    kl_99: f64,
    kl_max: f64,
    argmax_agree_percent: f64,
    /// Of the positions that the sampler accepted.
    accepted_agree_percent: f64,
    /// Rows where the two best ids changed places.
    swaps: usize,
    disagree: usize,
    answers: usize,
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
    fn new(first: &str, second: &str, seeds: u64, rows: &mut Rows, a: &Answers) -> Summary {
        let percent = |n: usize, of: usize| 100.0 * n as f64 / of as f64;
        rows.divergence.sort_by(f64::total_cmp);
        let n = rows.divergence.len();
        let at = |share: f64| rows.divergence[((n - 1) as f64 * share) as usize];
        let ([gain_points, gain_standard_error], (better_first, better_second, p)) =
            (a.gain(seeds), a.signs());
        Summary {
            models: [first.into(), second.into()],
            questions: a.right.len(),
            seeds,
            rows: n,
            kl_mean: rows.divergence.iter().sum::<f64>() / n as f64,
            kl_median: at(0.5),
            kl_99: at(0.99),
            kl_max: at(1.0),
            argmax_agree_percent: percent(rows.agree, n),
            accepted_agree_percent: percent(rows.accepted_agree, rows.accepted),
            swaps: rows.swaps,
            disagree: n - rows.agree,
            answers: a.n,
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
