//! `redraft quantize`: a model file with its matrices in another block type.

mod answers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use redraft::convert::{Errors, MIXES, Planned, QuantizePlan, Recipe};
use redraft::gguf::{DType, Gguf};
use redraft::importance::Importance;
use serde::Serialize;

use crate::args::model::at_least_one;
use crate::exit::Exit;
use crate::model::open_file;
use crate::out::Out;
use crate::ui::progress::{Bytes, counted, human_bytes, human_time};
use crate::ui::table::table;
use crate::{files, interrupt};

use answers::{Answers, Judge};

/// Write a model file with its matrices in a smaller block type.
///
/// Vectors and routers stay as they are. A split model is read as one and becomes one file. The same input and options
/// give the same bytes, on every machine and for any number of threads.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// The file to read, best with F32, F16 or BF16.
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// The file to write.
    #[arg(value_name = "OUT", required_unless_present_any = ["dry_run", "report"])]
    output: Option<PathBuf>,

    /// A mix of block types by its name in llama.cpp, or a block type, whose blocks must hold the rows. Without OUT several,
    /// separated by commas, to compare them.
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', required = true)]
    types: Vec<String>,

    /// The block type for all matrices, where a mix has its name too, and for the head.
    #[arg(long)]
    pure: bool,

    /// Another block type for the matrices whose names fit a pattern with *, as in "blk.0.*=q8_0". The last one that
    /// fits wins. May be given several times.
    #[arg(long = "tensor", value_name = "PATTERN=TYPE", value_parser = tensor)]
    tensors: Vec<(String, DType)>,

    /// Another block type for the token embedding.
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    token_embd: Option<DType>,

    /// How much each input of a matrix matters: a GGUF file as `redraft trace --imatrix` and `llama-imatrix` write it.
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,

    /// Show every tensor with its error, and how far answers to --prompts are from those of the input. Without OUT the
    /// files are made in memory.
    #[arg(long, conflicts_with = "dry_run")]
    report: bool,

    /// Prompts of --report [default: some short questions]. A line is a prompt, or where it begins with { a JSON object
    /// with `prompt` or `messages`.
    #[arg(long, value_name = "FILE", requires = "report", conflicts_with = "dry_run")]
    prompts: Option<PathBuf>,

    /// Tokens of an answer of --report at most.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value = "96",
        value_parser = at_least_one,
        requires = "report",
        conflicts_with = "dry_run",
        allow_negative_numbers = true
    )]
    max_tokens: usize,

    /// Show every tensor with its type and the size of the file, and write nothing.
    #[arg(long)]
    dry_run: bool,

    /// Replace a file that is there.
    #[arg(long, conflicts_with = "dry_run", requires = "output")]
    force: bool,

    /// Threads; as many as there are cores by default.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

fn after_help() -> String {
    let mut text = String::from(
        "Examples:\n  \
        redraft quantize model-bf16.gguf model.gguf --type q4_k_m\n  \
        redraft quantize in.gguf out.gguf --type q4_k_m --tensor \"*ffn_down*=q6_k\" --report\n  \
        redraft quantize in.gguf --type iq4_xs --dry-run\n  \
        redraft quantize in.gguf --type q8_0,q4_k_m,q2_k --report --prompts prompts.txt\n\nMixes:\n",
    );
    for mix in MIXES {
        text += &format!("  {:10} {}\n", mix.name, mix.about);
    }
    text
}

fn dtype(name: &str) -> Result<DType, String> {
    let found = DType::from_name(name).ok_or_else(|| format!("there is no block type {name}"))?;
    Recipe::pure(found).map_err(|e| e.to_string())?;
    Ok(found)
}

fn tensor(text: &str) -> Result<(String, DType), String> {
    let (pattern, name) = text.rsplit_once('=').ok_or("expected PATTERN=TYPE, as in \"blk.0.*=q8_0\"")?;
    Ok((pattern.into(), dtype(name)?))
}

/// What was written, or would be.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(rename = "type")]
    recipe: String,
    bytes_before: u64,
    bytes: u64,
    bits_per_weight: f64,
    /// Number of tensors by block type.
    types: BTreeMap<String, usize>,
    tensors: Vec<Tensor>,
    /// How far answers are from those of the input, where they were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<Answers>,
}

/// Several types beside each other.
#[derive(Debug, Serialize)]
struct Reports {
    reports: Vec<Report>,
}

#[derive(Debug, Serialize)]
struct Tensor {
    name: String,
    from: String,
    to: String,
    bytes_before: u64,
    bytes: u64,
    /// Whether importance data decided about its encoding.
    importance: bool,
    /// Absent where nothing was encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    rmse: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    relative_error: Option<f64>,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    if let Some(output) = &args.output {
        let inputs = [Some(&args.input), args.imatrix.as_ref(), args.prompts.as_ref()];
        let inputs = inputs.map(|path| path.map(PathBuf::as_path));
        files::check_model(output, args.force || args.dry_run, &inputs)?;
        anyhow::ensure!(args.types.len() == 1, "--type: OUT has one type: leave OUT out to compare several");
    }
    let recipes = args.types.iter().map(|name| recipe(args, name)).collect::<anyhow::Result<Vec<_>>>()?;
    let gguf = open_file(&args.input, out)?;
    if let Some(output) = &args.output {
        let parts: Vec<Option<&Path>> = gguf.files().iter().map(|f| f.path.as_deref()).collect();
        files::refuse_overwriting(output, &parts)?;
    }
    let importance = args.imatrix.as_deref().map(|path| importance(path, out)).transpose()?;
    let stop = interrupt::flag()?;
    let mut judge = if args.report { Judge::new(args, &gguf, &stop, out)? } else { None };
    let mut reports = Vec::new();
    for (name, recipe) in args.types.iter().zip(&recipes) {
        let plan =
            QuantizePlan::new(&gguf, recipe, importance.as_ref()).with_context(|| name.to_lowercase())?;
        if reports.is_empty() {
            warn(&plan, importance.is_some(), out);
        }
        let mut answers = None;
        let mut errors = vec![None; plan.tensors().len()];
        if !args.dry_run {
            let (found, made) = write(args, &plan, &stop, out)?;
            errors = found;
            if let (Some(judge), Some(made)) = (&mut judge, made) {
                answers = Some(judge.judge(name, made, out)?);
            }
        }
        reports.push(report(args, name, &gguf, &plan, &errors, answers));
    }
    match &reports[..] {
        [one] if out.json => out.object(one)?,
        _ if out.json => out.object(&Reports { reports })?,
        _ => out.text(&text(args, &gguf, &reports))?,
    }
    Ok(Exit::Done)
}

fn recipe(args: &Args, name: &str) -> anyhow::Result<Recipe> {
    let mut recipe = match args.pure {
        true => match DType::from_name(name) {
            Some(dtype) => Recipe::pure(dtype)?,
            None => bail!("--pure: expected a block type such as q4_k, found {name}"),
        },
        false => Recipe::from_name(name)?,
    };
    if let Some(dtype) = args.token_embd {
        recipe = recipe.with_token_embd(dtype)?;
    }
    for (pattern, dtype) in &args.tensors {
        recipe = recipe.with_tensors(pattern, *dtype)?;
    }
    Ok(recipe)
}

fn importance(path: &Path, out: Out) -> anyhow::Result<Importance> {
    let gguf = open_file(path, out)?;
    Importance::from_gguf(&gguf).with_context(|| path.display().to_string())
}

/// Warns of what makes a file worse than it could be.
fn warn(plan: &QuantizePlan<'_>, has_importance: bool, out: Out) {
    let block_len = |d: DType| d.info().map_or(1, |i| i.block_len);
    let changed = || plan.tensors().iter().filter(|t| t.from != t.to);
    let twice = changed().filter(|t| block_len(t.from) > 1).count();
    if twice > 0 {
        let n = counted(twice, "tensor");
        out.warn(&format!(
            "quantized already: {n} of the input: start from the F16 or BF16 file if there is one"
        ));
    }
    let without =
        changed().filter(|t| !t.has_importance && block_len(t.to) > 1 && t.name.starts_with("blk.")).count();
    if has_importance && without > 0 {
        out.warn(&format!("without importance data: {}", counted(without, "tensor")));
    }
}

/// Errors by tensor.
type Found = Vec<Option<Errors>>;

/// Writes the file, or makes it in memory. Returns the errors of its tensors, and the file where it is in memory or will be
/// looked at.
fn write(
    args: &Args,
    plan: &QuantizePlan<'_>,
    stop: &AtomicBool,
    out: Out,
) -> anyhow::Result<(Found, Option<Gguf>)> {
    let threads = threads(args);
    let total = plan.tensors().iter().map(|t| t.bytes_before).sum();
    let bar = Bytes::new("quantizing", total, !out.quiet && out.err_terminal);
    let mut progress = |done, total| {
        bar.set(done, total);
        !stop.load(Ordering::Relaxed)
    };
    let mut memory = Vec::new();
    let errors = match &args.output {
        Some(output) => plan.write_file(output, args.force, threads, &mut progress),
        None => {
            let room = memory.try_reserve_exact(usize::try_from(plan.bytes()).unwrap_or(usize::MAX));
            room.map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))
                .with_context(|| format!("no memory for a file of {}", human_bytes(plan.bytes())))?;
            plan.write(&mut memory, threads, &mut progress)
        }
    };
    let took = bar.finish();
    let errors = errors?;
    out.note(&format!("written in {} on {}", human_time(took), counted(threads, "thread")));
    for (t, e) in plan.tensors().iter().zip(&errors) {
        if e.is_some_and(|e| !e.rmse.is_finite()) {
            out.warn(&format!("{}: has numbers that are not finite, which {} cannot hold", t.name, t.to));
        }
    }
    let made = match &args.output {
        Some(output) if args.report => Some(open_file(output, out)?),
        Some(_) => None,
        None => Some(Gguf::from_bytes(memory.into())?),
    };
    Ok((errors, made))
}

fn threads(args: &Args) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.map_or(cores, usize::from)
}

/// Bits of a tensor's element on average, where so many bytes hold so many.
fn bits_per_weight(gguf: &Gguf, bytes: u64) -> f64 {
    let weights = gguf.tensors().iter().fold(0u64, |n, t| n.saturating_add(t.n_elements()));
    bytes as f64 * 8.0 / weights.max(1) as f64
}

fn report(
    args: &Args,
    name: &str,
    gguf: &Gguf,
    plan: &QuantizePlan<'_>,
    errors: &[Option<Errors>],
    answers: Option<Answers>,
) -> Report {
    let bytes: u64 = plan.tensors().iter().map(|t| t.bytes).sum();
    let tensor = |(t, e): (&Planned, &Option<Errors>)| Tensor {
        name: t.name.clone(),
        from: t.from.to_string(),
        to: t.to.to_string(),
        bytes_before: t.bytes_before,
        bytes: t.bytes,
        importance: t.has_importance,
        rmse: e.map(|e| e.rmse),
        relative_error: e.map(|e| e.relative),
    };
    Report {
        file: args.output.as_ref().filter(|_| !args.dry_run).map(|p| p.display().to_string()),
        recipe: name.to_lowercase(),
        bytes_before: gguf.files().iter().map(|f| f.bytes.len() as u64).sum(),
        bytes: plan.bytes(),
        bits_per_weight: bits_per_weight(gguf, bytes),
        types: plan.types().iter().map(|(t, n)| (t.to_string(), *n)).collect(),
        tensors: plan.tensors().iter().zip(errors).map(tensor).collect(),
        answers,
    }
}

/// Every tensor where there is one type, a line for each type, and a table of answers.
fn text(args: &Args, gguf: &Gguf, reports: &[Report]) -> String {
    let mut text = String::new();
    if let ([report], true) = (reports, args.report || args.dry_run) {
        let row = |t: &Tensor| {
            let mut row = vec![t.name.clone(), t.from.clone(), t.to.clone(), human_bytes(t.bytes)];
            if args.report {
                let number = |x: Option<f64>| x.map_or_else(|| "-".into(), |x| format!("{x:.3e}"));
                let percent = t.relative_error.map_or_else(|| "-".into(), |x| format!("{:.3} %", x * 100.0));
                row.extend([number(t.rmse), percent]);
            }
            row
        };
        let heading = ["tensor", "from", "to", "size", "rmse", "relative"];
        let heading = &heading[..if args.report { 6 } else { 4 }];
        text = table(heading, &[3, 4, 5], &report.tensors.iter().map(row).collect::<Vec<_>>());
    }
    for report in reports {
        let types: Vec<String> = report.types.iter().map(|(t, n)| format!("{n} {t}")).collect();
        let what = match &report.file {
            Some(file) => format!("{file}:"),
            None if reports.len() > 1 => format!("{}:", report.recipe),
            None => "the file would have".into(),
        };
        text += &format!(
            "{what} {} ({} before), {:.2} bits per weight, tensors: {}\n",
            human_bytes(report.bytes),
            human_bytes(report.bytes_before),
            report.bits_per_weight,
            types.join(", ")
        );
    }
    text + &answers::text(gguf, reports)
}
