//! `redraft diagnose`: whether somebody else's numbers are rounded differently or wrong.

use std::path::PathBuf;

use clap::ValueEnum;
use redraft::compute::Precision;
use redraft::diagnose::{Diagnosis, LIMIT, Rounding, Running, Settings, Verdict, diagnose};
use redraft::gguf::Shown;
use redraft::trace::TraceFile;
use redraft::{LoadOptions, Model};
use serde::Serialize;

use crate::args::model::threads;
use crate::exit::Exit;
use crate::files::{about_file, refuse_special};
use crate::interrupt;
use crate::out::Out;
use crate::ui::progress::Count;
use crate::ui::table::table;

/// Decide whether somebody else's numbers are rounded differently or wrong.
///
/// Runs the passes of a golden in f64 (the truth), and in f32, as llama.cpp rounds and as PyTorch rounds with
/// bfloat16 (the noise floor of each). Numbers that are nowhere further from the truth than a few times a floor
/// are rounding; for others the usual mistakes of ports are tried until one explains them. Exit code 0: rounding,
/// 1: not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft diagnose -m model.gguf theirs.safetensors\n  \
    redraft diagnose -m model.gguf --json theirs.safetensors | jq .verdict\n\n\
    docs/diagnose.md says how to make such a file and how far the answer can be trusted.")]
pub(crate) struct Args {
    /// Taps or logits of a pass with its inputs (safetensors), in the names of llama.cpp.
    #[arg(value_name = "GOLD")]
    golden: PathBuf,

    /// Model file (GGUF); without it the demo model inside this program.
    #[arg(short, long, value_name = "FILE", env = "REDRAFT_MODEL")]
    model: Option<PathBuf>,

    /// Number type of the truth. f64 runs on one thread and is slow for large models; f32 is a truth for numbers that
    /// were computed with 16 or 8 bits.
    #[arg(long, value_name = "TYPE", default_value = "f64")]
    truth: Truth,

    /// How many times the noise floor is still rounding.
    #[arg(long, value_name = "X", default_value_t = LIMIT, value_parser = factor)]
    limit: f64,

    /// How theirs was computed, where you know it: numbers that were computed in f32 throughout and are as far away as
    /// bf16 would be are wrong, which logits alone do not tell.
    #[arg(long, value_name = "TYPE", value_parser = rounding)]
    computed_in: Option<Rounding>,

    /// List all mistakes that were tried, not only the best.
    #[arg(long)]
    all: bool,

    /// Threads; without it as many as the machine has. Results do not depend on it.
    #[arg(short, long, value_name = "N", value_parser = threads, allow_negative_numbers = true, env = "REDRAFT_THREADS")]
    threads: Option<usize>,

    /// Read the whole file into memory instead of mapping it.
    #[arg(long, env = "REDRAFT_NO_MMAP", value_parser = clap::builder::FalseyValueParser::new())]
    no_mmap: bool,
}

fn factor(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x| (1.0..=1e6).contains(x))
        .ok_or_else(|| "expected a number in 1..=1000000".into())
}

fn rounding(text: &str) -> Result<Rounding, String> {
    let names = || Rounding::ALL.map(|r| r.name()).join(", ");
    Rounding::ALL.into_iter().find(|r| r.name() == text).ok_or_else(|| format!("expected one of {}", names()))
}

/// `--truth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Truth {
    /// All in f64.
    F64,
    /// The canonical f32, on all threads.
    F32,
}

#[derive(Debug, Serialize)]
struct Judged<'a> {
    golden: String,
    model: &'a str,
    truth: &'static str,
    limit: f64,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    /// The verdict in words.
    sentence: &'a str,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    refuse_special(&args.golden, "a safetensors file")?;
    let golden = TraceFile::open(&args.golden)?;
    let stop = interrupt::flag()?;
    let options = LoadOptions { threads: args.threads, mmap: !args.no_mmap, ..LoadOptions::default() };
    let opened = match &args.model {
        None => Model::embedded(&options)?,
        Some(path) => {
            refuse_special(path, "a GGUF file")?;
            Model::open(path, &options).map_err(|e| about_file(e, path))?
        }
    };
    opened.notes().iter().for_each(|note| out.warn(note));
    let name = opened.name().to_string();
    let gguf = opened.gguf().clone();
    drop(opened);
    let truth = match args.truth {
        Truth::F64 => Precision::F64,
        Truth::F32 => Precision::F32,
    };
    let settings =
        Settings { options, truth, limit: args.limit, rounding: args.computed_in, interrupt: Some(stop) };
    let bar = Count::new("runs", !out.quiet && out.err_terminal && out.verbose == 0);
    let mut runs = 0;
    let diagnosis = diagnose(&gguf, &golden, &settings, &mut |running| {
        runs += 1;
        bar.set(runs, runs);
        out.note(&match running {
            Running::Truth => format!("the truth, in {}", truth.name()),
            Running::Floor(r) => format!("the noise floor of {}", r.name()),
            Running::Fault(fault, r) => format!("a model with this mistake, in {}: {fault}", r.name()),
            Running::FaultTruth(fault) => format!("a model with this mistake, in {}: {fault}", truth.name()),
        });
    });
    bar.finish();
    let diagnosis = diagnosis?;
    let sentence = sentence(&diagnosis, args.limit);
    if out.json {
        out.object(&Judged {
            golden: args.golden.display().to_string(),
            model: &name,
            truth: truth.name(),
            limit: args.limit,
            diagnosis: &diagnosis,
            sentence: &sentence,
        })?;
    } else {
        out.text(&text(&diagnosis, args, &sentence))?;
    }
    Ok(if matches!(diagnosis.verdict, Verdict::Rounding { .. }) { Exit::Done } else { Exit::No })
}

/// The verdict in words.
fn sentence(d: &Diagnosis, limit: f64) -> String {
    let by = d.rounding.name();
    match &d.verdict {
        Verdict::Rounding { worst, at } => {
            format!(
                "theirs is rounding: within {worst:.2}x of the {by} floor at every tap (most at {})",
                Shown(at)
            )
        }
        Verdict::Fault(t) => {
            let first = d.taps.iter().find(|tap| tap.leaves(limit));
            let left = first.map_or(String::new(), |tap| {
                format!("theirs leaves the {by} floor at {} ({:.0}x): ", Shown(&tap.name), tap.ratio)
            });
            let rest =
                format!("a model with that mistake is within {:.2}x of the floor at every tap", t.worst);
            format!("{left}{} explains it ({rest})", t.about)
        }
        Verdict::Unexplained { first, ratio, look_at } => {
            let (first, ratio) = (Shown(first), number(*ratio));
            format!(
                "theirs leaves the {by} floor at {first} ({ratio}x), and no usual mistake explains it: look at {look_at}"
            )
        }
    }
}

/// With three digits that count.
fn number(x: f64) -> String {
    match x.abs() {
        a if !a.is_finite() => x.to_string(),
        a if a >= 1e4 => format!("{x:.1e}"),
        a if a >= 100.0 => format!("{x:.0}"),
        _ => format!("{x:.2}"),
    }
}

/// Mistakes that are listed where not all are wanted.
const FEW: usize = 3;

fn text(d: &Diagnosis, args: &Args, sentence: &str) -> String {
    let error = |x: f64| if x == 0.0 { "0".into() } else { format!("{x:.2e}") };
    let rows: Vec<Vec<String>> = d
        .taps
        .iter()
        .map(|tap| {
            let mut row = vec![Shown(&tap.name).to_string(), error(tap.theirs)];
            row.extend(tap.floors.iter().map(|&f| error(f)));
            row.push(number(tap.ratio));
            row.push(if tap.leaves(args.limit) { "<-".into() } else { String::new() });
            row
        })
        .collect();
    let mut heading = vec!["tap", "theirs"];
    heading.extend(Rounding::ALL.map(Rounding::name));
    heading.extend(["ratio", ""]);
    let mut s = table(&heading, &[1, 2, 3, 4, 5], &rows);
    s.push_str(&format!(
        "ratio: theirs over the floor of {}; distances are relative to the truth\n",
        d.rounding.name()
    ));
    for line in &d.skipped {
        s.push_str(&format!("not compared: {}\n", Shown(line)));
    }
    if !d.tried.is_empty() {
        let shown = if args.all { d.tried.len() } else { FEW.min(d.tried.len()) };
        let rows: Vec<Vec<String>> = d.tried[..shown]
            .iter()
            .map(|t| vec![number(t.worst), Shown(&t.at).to_string(), t.fault.clone(), t.about.clone()])
            .collect();
        s.push('\n');
        s.push_str(&table(&["away", "at", "mistake", ""], &[0], &rows));
        if shown < d.tried.len() {
            s.push_str(&format!("and {} further away (--all lists them)\n", d.tried.len() - shown));
        }
    }
    format!("{s}\n{sentence}\n")
}
