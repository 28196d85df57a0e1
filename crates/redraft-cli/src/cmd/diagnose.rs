//! `redraft diagnose`: whether somebody else's numbers are rounded differently or wrong.

use std::path::PathBuf;

use anyhow::ensure;
use clap::ValueEnum;
use redraft::compute::Precision;
use redraft::diagnose::{Diagnosis, LIMIT, Rounding, Running, Settings, Verdict, diagnose};
use redraft::gguf::Shown;
use redraft::trace::Elements;
use redraft::{LoadOptions, Model};
use serde::Serialize;

use crate::args::model::threads;
use crate::args::prompt::token_id;
use crate::exit::Exit;
use crate::files::{about_file, name_map, open_taps, refuse_special};
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
    redraft diagnose -m model.gguf --ids 9707,11,1879 eval-callback.txt\n  \
    redraft diagnose -m model.gguf --ids 9707,11,1879 --map names.json theirs.npz\n  \
    redraft diagnose -m model.gguf --json theirs.safetensors | jq .verdict\n\n\
    docs/diagnose.md says how to make such a file and how far the answer can be trusted.")]
pub(crate) struct Args {
    /// Taps or logits of a pass: safetensors, NumPy's npz or npy, the text of llama-eval-callback, or a folder of such
    /// files. Names are those of llama.cpp, or what --map says.
    #[arg(value_name = "GOLD")]
    golden: PathBuf,

    /// Model file (GGUF); without it the demo model inside this program.
    #[arg(short, long, value_name = "FILE", env = "REDRAFT_MODEL")]
    model: Option<PathBuf>,

    /// Their names and ours: a file of JSON. It also says what files of raw f32 numbers hold.
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,

    /// Token ids of the pass, where the file has none: for models that read prompt and answer at once or block by block.
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = token_id, conflicts_with_all = ["prompt_ids", "canvas_ids"])]
    ids: Option<Vec<u32>>,

    /// Token ids of the prompt, for models with a cache.
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = token_id)]
    prompt_ids: Option<Vec<u32>>,

    /// Token ids of the canvas after --prompt-ids.
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = token_id)]
    canvas_ids: Option<Vec<u32>>,

    /// Number type of the truth. f64 runs on one thread and is slow for large models; f32 is a truth for numbers that
    /// were computed with 16 or 8 bits.
    #[arg(long, value_name = "TYPE", default_value = "f64")]
    truth: Truth,

    /// How many times the noise floor is still rounding.
    #[arg(long, value_name = "X", default_value_t = LIMIT, value_parser = factor, allow_negative_numbers = true)]
    limit: f64,

    /// How theirs was computed, where you know it: numbers that were computed in f32 throughout and are as far away as
    /// bf16 would be are wrong, which logits alone do not tell.
    #[arg(long, value_name = "TYPE", value_parser = rounding)]
    computed_in: Option<Rounding>,

    /// List all mistakes that were tried, not only the best, all tensors that were not compared, and all sums.
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
    let mut golden = open_taps(&args.golden, &name_map(args.map.as_deref())?)?;
    golden.notes.iter().for_each(|note| out.warn(note));
    for (name, ids) in
        [("ids", &args.ids), ("prompt_ids", &args.prompt_ids), ("canvas_ids", &args.canvas_ids)]
    {
        let Some(ids) = ids else { continue };
        ensure!(
            !golden.tensors.contains_key(name),
            "{}: it has {name}: leave out --{}",
            golden.name,
            name.replace('_', "-")
        );
        golden.insert(name, vec![ids.len()], Elements::I64(ids.iter().map(|&id| id.into()).collect()));
    }
    let inputs = ["ids", "prompt_ids", "canvas_ids", "step_left", "x_in"];
    ensure!(
        inputs.iter().any(|name| golden.tensors.contains_key(*name)),
        "{}: it has no token ids: say what was read with --ids, or --prompt-ids and --canvas-ids",
        golden.name
    );
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
    let header = opened.sha256_header();
    if golden.metadata.get("model_sha256_header").is_some_and(|theirs| *theirs != header) {
        let theirs = golden.metadata.get("model").map_or("another", String::as_str);
        out.warn(&format!(
            "{}: it says that it was computed from another model file ({})",
            golden.name,
            Shown(theirs)
        ));
    }
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
            Running::Fault(fault, r) => format!("a model with this, in {}: {fault}", r.name()),
            Running::FaultTruth(fault) => format!("a model with this, in {}: {fault}", truth.name()),
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
    Ok(match diagnosis.verdict {
        Verdict::Rounding { .. } => Exit::Done,
        Verdict::Fault(_) | Verdict::Unexplained { .. } => Exit::No,
        Verdict::Undecided { .. } => Exit::Usage,
    })
}

/// The verdict in words.
fn sentence(d: &Diagnosis, limit: f64) -> String {
    let by = d.rounding.name();
    match &d.verdict {
        Verdict::Rounding { worst, at } => {
            let far = d.taps.iter().find(|tap| tap.far_rows > 0).map_or(String::new(), |tap| {
                format!(
                    "; {} of {} rows of {} are far away: tokens that go to other experts, or a mistake in these alone \
                     (compare --rows worst shows them)",
                    tap.far_rows,
                    tap.rows,
                    Shown(&tap.name)
                )
            });
            format!(
                "theirs is rounding: within {worst:.2}x of the {by} floor at every tap (most at {}){far}",
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
        Verdict::Undecided { at, theirs, honest } => format!(
            "it cannot be told: at {} theirs is {theirs:.2} from the truth, and an honest program {honest:.2}, since tokens are \
             near the border between two experts or numbers near zero: give a pass over more tokens, or over others",
            Shown(at)
        ),
        Verdict::Unexplained { first, ratio, look_at } if ratio.is_nan() => {
            format!("theirs is no rounding at {}: look at {look_at}", Shown(first))
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
/// Tensors that are listed as not compared: a text of another program has hundreds of nodes that are no taps.
const FEW_SKIPPED: usize = 8;

fn text(d: &Diagnosis, args: &Args, sentence: &str) -> String {
    let kinds: Vec<Rounding> = d.taps.first().map_or(Vec::new(), |t| t.floors.keys().copied().collect());
    let error = |x: f64| if x == 0.0 { "0".into() } else { format!("{x:.2e}") };
    let rows: Vec<Vec<String>> = d
        .taps
        .iter()
        .map(|tap| {
            let mut row = vec![Shown(&tap.name).to_string(), error(tap.theirs.median)];
            row.extend(tap.floors.values().map(|floor| error(floor.median)));
            row.push(number(tap.ratio));
            row.push(if tap.leaves(args.limit) { "<-".into() } else { String::new() });
            row
        })
        .collect();
    let mut heading = vec!["tap", "theirs"];
    heading.extend(kinds.iter().map(|r| r.name()));
    heading.extend(["ratio", ""]);
    let mut s = table(&heading, &(1..kinds.len() + 3).collect::<Vec<_>>(), &rows);
    s.push_str(&format!(
        "ratio: theirs over the floor of {}; distances are relative to the truth, the median over the rows\n",
        d.rounding.name()
    ));
    for tap in &d.taps {
        if let Some(sum) = tap.sum.filter(|_| args.all || tap.sum_leaves(args.limit)) {
            let (name, by) = (Shown(&tap.name), number(sum.ratio()));
            s.push_str(&format!("sum of {name}: theirs {}, the truth's {} ({by}x)\n", sum.theirs, sum.truth));
        }
    }
    let few = if args.all { d.skipped.len() } else { FEW_SKIPPED };
    for line in d.skipped.iter().take(few) {
        s.push_str(&format!("not compared: {}\n", Shown(line)));
    }
    if d.skipped.len() > few {
        s.push_str(&format!("not compared: {} more (--all lists them)\n", d.skipped.len() - few));
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
