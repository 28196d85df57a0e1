//! `redraft bench`: steps of a model.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use redraft::bench::{Outputs, Parts, StepBench, StepOptions, StepTime};
use redraft::compute::Precision;
use redraft::compute::cpu::CpuLevel;
use redraft::compute::cpu::peak::peak;
use serde::Serialize;

use super::peak::Figures;
use super::report::{Page, ReportArgs};
use super::{Machine, Spread, seconds};
use crate::answer::peak_rss_bytes;
use crate::args::model::{ModelArgs, at_least_one};
use crate::exit::Exit;
use crate::model::{ModelReport, open_any};
use crate::out::Out;
use crate::ui::page::Table;
use crate::ui::progress::{counted, human_bytes};
use crate::ui::table::table;
use crate::version::VERSION;

/// What is measured.
#[derive(Debug, clap::Args)]
pub(super) struct StepArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Positions of the canvas; without it the model's own. Several are measured by turns.
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = at_least_one)]
    pub(super) rows: Vec<usize>,

    /// Tokens of prompt before the canvas. Several are measured by turns.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "0")]
    pub(super) prompt: Vec<usize>,

    /// Steps that count.
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    pub(super) repeats: usize,

    /// What each step computes: the logits of all rows, or what a sampler needs of them; without it logits for
    /// autoregressive models and draws for others.
    #[arg(long, value_name = "WHAT")]
    pub(super) outputs: Option<OutputsName>,

    /// Tell each step what the one before predicted.
    #[arg(long)]
    pub(super) self_conditioning: bool,

    /// Temperature of the draws; a low one concentrates what the next step is told [default: 0.8].
    #[arg(long, value_name = "T", value_parser = temperature)]
    pub(super) temperature: Option<f64>,

    /// Show where the time goes.
    #[arg(long)]
    pub(super) parts: bool,

    /// Alternate with another program: a command for the shell, which prints its seconds or its rate.
    #[arg(long, value_name = "COMMAND", help_heading = "Comparison", conflicts_with = "parts")]
    pub(super) compare: Option<String>,

    /// Finds the times in what COMMAND prints. A regular expression with one of the named groups `seconds`, `ms` (of a
    /// step) and `rate` (rows a second), and possibly `cpu` (CPU seconds of a step). Of several matches the median
    /// counts.
    #[arg(long, value_name = "REGEX", help_heading = "Comparison", requires = "compare",
        default_value = super::compare::PATTERN)]
    pub(super) pattern: String,

    /// How often both run.
    #[arg(long, value_name = "N", help_heading = "Comparison", requires = "compare", default_value_t = 5,
        value_parser = at_least_one)]
    pub(super) rounds: usize,

    #[command(flatten)]
    pub(super) report: ReportArgs,
}

/// `--outputs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OutputsName {
    /// The logits of all rows.
    Logits,
    /// Statistics and draws.
    Draws,
}

impl OutputsName {
    pub(super) fn name(self) -> &'static str {
        match self {
            OutputsName::Logits => "logits",
            OutputsName::Draws => "draws",
        }
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    let ok = |t: &f64| *t > 0.0 && *t <= 100.0;
    text.parse().ok().filter(ok).ok_or_else(|| "expected a number above 0 and up to 100".into())
}

/// The object of `bench --json`.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    model: ModelReport,
    backend: &'static str,
    level: String,
    threads: usize,
    numerics: &'static str,
    kv_type: &'static str,
    load_s: f64,
    /// From the start of loading to the end of the first step, for the first configuration.
    first_step_s: f64,
    peak: Option<Figures>,
    steps: Vec<Step>,
    peak_rss_bytes: Option<u64>,
    version: &'static str,
}

/// The steps of one configuration.
#[derive(Debug, Serialize)]
struct Step {
    rows: usize,
    prompt: usize,
    outputs: &'static str,
    self_conditioning: bool,
    temperature: Option<f64>,
    prompt_s: f64,
    wall_s: Spread,
    cpu_s: Option<Spread>,
    /// Rows a second: not a throughput, since an answer takes several steps.
    in_step_tok_s: f64,
    parts: Option<Vec<PartReport>>,
}

/// A part of the step whose time is the median.
#[derive(Debug, Serialize)]
struct PartReport {
    part: &'static str,
    seconds: f64,
    /// Of all threads together.
    cpu_seconds: f64,
    gmac: f64,
    gmac_s: Option<f64>,
    /// Part of the machine's peak, by the clock.
    of_peak: Option<f64>,
    /// The same by the time that the threads computed.
    of_peak_cpu: Option<f64>,
}

/// One configuration while it is measured.
struct Run {
    bench: StepBench,
    times: Vec<StepTime>,
}

/// Runs the command.
pub(super) fn main(args: &StepArgs, out: Out) -> anyhow::Result<Exit> {
    let stop = crate::interrupt::flag()?;
    let start = Instant::now();
    let mut runs: Vec<Run> = Vec::new();
    let mut load_s = None;
    let mut first_step_s = None;
    let configurations =
        if args.rows.is_empty() { vec![None] } else { args.rows.iter().copied().map(Some).collect() };
    for rows in configurations {
        for &prompt in &args.prompt {
            let (bench, load) = args.bench(rows, prompt, &stop, out)?;
            load_s.get_or_insert(load);
            let mut run = Run { bench, times: Vec::new() };
            out.note(&format!("warming up: {} rows after {prompt} tokens", run.bench.options().rows));
            run.bench.step()?;
            first_step_s.get_or_insert(start.elapsed().as_secs_f64());
            runs.push(run);
        }
    }
    for _ in 0..args.repeats {
        // By turns: what disturbs the machine for a while disturbs all alike.
        for run in &mut runs {
            run.times.push(run.bench.step()?);
        }
    }
    let model = runs[0].bench.model();
    let c = model.backend().capabilities();
    let level = CpuLevel::ALL.iter().find(|l| l.name() == c.level).filter(|_| args.parts);
    let report = Report {
        machine: Machine::new(),
        model: ModelReport::of(model),
        backend: c.backend,
        level: c.level,
        threads: c.threads,
        numerics: model.numerics().name(),
        kv_type: model.kv_type().name(),
        load_s: load_s.unwrap_or_default(),
        first_step_s: first_step_s.unwrap_or_default(),
        peak: level.map(|&l| peak(l, c.threads).into()),
        steps: Vec::new(),
        peak_rss_bytes: peak_rss_bytes(),
        version: VERSION,
    };
    let steps = runs.into_iter().filter_map(|r| r.report(report.peak.as_ref())).collect();
    let report = Report { steps, ..report };
    args.report.write(&report, &report.page())?;
    if out.json {
        out.object(&report)?
    } else {
        out.text(&report.text())?
    }
    Ok(Exit::Done)
}

impl StepArgs {
    /// A model with its prompt, and the seconds that loading took.
    fn bench(
        &self,
        rows: Option<usize>,
        prompt: usize,
        stop: &Arc<AtomicBool>,
        out: Out,
    ) -> anyhow::Result<(StepBench, f64)> {
        let loaded = open_any(&self.model, Precision::F32, stop, out)?;
        let model = loaded.model;
        let default = if model.arch().sampler.is_none() { OutputsName::Logits } else { OutputsName::Draws };
        let options = StepOptions {
            rows: rows.unwrap_or(model.shape().canvas_len),
            prompt,
            outputs: match self.outputs.unwrap_or(default) {
                OutputsName::Logits => Outputs::Logits,
                OutputsName::Draws => Outputs::Draws,
            },
            self_conditioning: self.self_conditioning,
            temperature: self.temperature,
            parts: self.parts,
        };
        Ok((StepBench::new(model, options, Arc::clone(stop))?, loaded.load.as_secs_f64()))
    }
}

impl Run {
    fn report(self, peak: Option<&Figures>) -> Option<Step> {
        let o = *self.bench.options();
        let wall_s = Spread::of(self.times.iter().map(|t| t.wall_s).collect())?;
        let cpu_s = self.times.iter().map(|t| t.cpu_s).collect::<Option<Vec<f64>>>().and_then(Spread::of);
        let parts: Vec<Parts> = self.times.into_iter().filter_map(|t| t.parts).collect();
        Some(Step {
            rows: o.rows,
            prompt: o.prompt,
            outputs: match o.outputs {
                Outputs::Logits => OutputsName::Logits,
                Outputs::Draws => OutputsName::Draws,
            }
            .name(),
            self_conditioning: o.self_conditioning,
            temperature: o.temperature,
            prompt_s: self.bench.prompt_s,
            in_step_tok_s: o.rows as f64 / wall_s.median,
            wall_s,
            cpu_s,
            parts: Parts::middle(parts).map(|p| part_reports(&p, peak)),
        })
    }
}

fn part_reports(parts: &Parts, peak: Option<&Figures>) -> Vec<PartReport> {
    let line = |part: &'static str, w: redraft::bench::Work| {
        let computes = w.macs() > 0 && w.seconds > 0.0;
        // The time that the machine needs at least, for both kinds of products.
        let least =
            |p: &Figures| (w.int8_macs as f64 / p.int8_gmac_s + w.f32_macs as f64 / p.f32_gmac_s) / 1e9;
        PartReport {
            part,
            seconds: w.seconds,
            cpu_seconds: w.cpu_seconds,
            gmac: w.macs() as f64 / 1e9,
            gmac_s: computes.then(|| w.macs() as f64 / 1e9 / w.seconds),
            of_peak: peak.filter(|_| computes).map(|p| least(p) / w.seconds),
            of_peak_cpu: peak
                .filter(|_| computes && w.cpu_seconds > 0.0)
                .map(|p| least(p) * p.threads as f64 / w.cpu_seconds),
        }
    };
    parts.iter().map(|(part, w)| line(part.name(), w)).chain([line("step", parts.whole())]).collect()
}

/// Heads of the tables of steps and of parts.
const STEPS: [&str; 6] =
    ["rows", "prompt", "outputs", "step s, median (range)", "CPU s", "rows/s, not a throughput"];
const PARTS: [&str; 8] = ["part", "s", "%", "CPU s", "GMAC", "GMAC/s", "% of peak", "of CPU time"];

impl Report {
    /// What was measured, where and how.
    fn facts(&self) -> String {
        format!(
            "{} ({}, {}), {}\n{} ({}, {}), {}, KV cache {}\nloaded in {} s, first step done after {} s{}\n",
            self.model.name,
            self.model.architecture,
            self.model.file_type,
            self.machine.line(),
            self.backend,
            self.level,
            counted(self.threads, "thread"),
            self.numerics,
            self.kv_type,
            seconds(self.load_s),
            seconds(self.first_step_s),
            self.peak_rss_bytes.map_or(String::new(), |b| format!(", peak RSS {}", human_bytes(b))),
        )
    }

    fn page(&self) -> Page {
        let table = |caption: String, head: &[&'static str], rows| Table {
            caption,
            head: head.to_vec(),
            words: &[0],
            rows,
        };
        let parts = self.steps.iter().filter_map(|s| {
            let parts = s.parts.as_ref()?;
            Some(table(s.caption(), &PARTS, part_rows(parts)))
        });
        let steps = table("Steps".into(), &STEPS, self.steps.iter().map(Step::row).collect());
        Page {
            facts: self
                .facts()
                .lines()
                .map(String::from)
                .chain([format!("redraft {}", self.version)])
                .collect(),
            bars: self.steps.iter().map(|s| (s.label(), s.wall_s.clone())).collect(),
            tables: [steps].into_iter().chain(parts).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = self.facts();
        let rows: Vec<Vec<String>> = self.steps.iter().map(Step::row).collect();
        text.push_str(&table(&STEPS, &[0, 1, 5], &rows));
        for s in &self.steps {
            let Some(parts) = &s.parts else { continue };
            text.push_str(&format!("{}:\n", s.caption()));
            text.push_str(&table(&PARTS, &[1, 2, 3, 4, 5, 6, 7], &part_rows(parts)));
        }
        if let Some(p) = &self.peak {
            text.push_str(&format!(
                "peak: {:.1} GMAC/s in int8, {:.1} in f32\n",
                p.int8_gmac_s, p.f32_gmac_s
            ));
        }
        text
    }
}

fn part_rows(parts: &[PartReport]) -> Vec<Vec<String>> {
    let whole = parts.last().map_or(0.0, |p| p.seconds);
    parts.iter().map(|p| p.row(whole)).collect()
}

impl Step {
    fn label(&self) -> String {
        format!("{} rows after {} tokens", self.rows, self.prompt)
    }

    /// Of its parts.
    fn caption(&self) -> String {
        format!("{}, the step in the middle", self.label())
    }

    fn row(&self) -> Vec<String> {
        let told = if self.self_conditioning { ", self-conditioning" } else { "" };
        let at = self.temperature.map_or(String::new(), |t| format!(" at {t}"));
        vec![
            self.rows.to_string(),
            self.prompt.to_string(),
            format!("{}{at}{told}", self.outputs),
            self.wall_s.text(),
            self.cpu_s.as_ref().map_or("unknown".into(), |c| seconds(c.median)),
            format!("{:.1}", self.in_step_tok_s),
        ]
    }
}

impl PartReport {
    fn row(&self, whole: f64) -> Vec<String> {
        let number = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.1}"));
        vec![
            self.part.into(),
            seconds(self.seconds),
            format!("{:.1}", 100.0 * self.seconds / whole),
            seconds(self.cpu_seconds),
            number((self.gmac > 0.0).then_some(self.gmac)),
            number(self.gmac_s),
            number(self.of_peak.map(|x| 100.0 * x)),
            number(self.of_peak_cpu.map(|x| 100.0 * x)),
        ]
    }
}
