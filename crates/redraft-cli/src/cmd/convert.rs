//! `redraft convert`: from a folder of Hugging Face's to a model file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use clap::builder::{PossibleValue, PossibleValuesParser};
use redraft::arch::ARCHS;
use redraft::convert::{ConvertOptions, convert};
use redraft::gguf::DType;
use serde::Serialize;

use crate::exit::Exit;
use crate::files::check_model;
use crate::interrupt;
use crate::out::Out;
use crate::ui::progress::{Bytes, human_bytes, human_time};

/// Convert a Hugging Face folder (safetensors) to a GGUF file.
///
/// The folder is as `transformers` saves a model: config.json, tokenizer.json, model.safetensors or its shards with
/// their index. The file holds everything: weights, settings of the model and of its sampler, tokenizer, chat
/// template. Memory does not grow with the model. What is wrong with a folder is said at once, before the matrices
/// are written.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft convert Dream-v0-Instruct-7B dream.gguf\n  \
    redraft convert SDAR-8B-Chat-b16 sdar.gguf --block-length 16 --type f16")]
pub(crate) struct Args {
    /// The folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// The file to write.
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// How matrices are stored; `auto` keeps what each has. Vectors and routers are f32 in any case.
    #[arg(long = "type", value_name = "T", ignore_case = true, default_value = "auto",
          value_parser = ["auto", "f32", "f16", "bf16"])]
    file_type: String,

    /// Take the folder for this architecture, whatever config.json says.
    #[arg(long, value_name = "NAME", value_parser = archs())]
    arch: Option<String>,

    /// Tokens of a block, for models that read block by block, where config.json does not say it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    block_length: Option<u32>,

    /// Name of the pre-tokenizer (`tokenizer.ggml.pre`), where it is not recognised.
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,

    /// Name of the model in the file; without it the folder's.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Replace a file that is there.
    #[arg(long)]
    force: bool,
}

fn archs() -> PossibleValuesParser {
    let all = ARCHS.iter().filter(|a| a.hf.is_some());
    PossibleValuesParser::new(all.map(|a| PossibleValue::new(a.name).help(a.about)))
}

/// What was written.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    architecture: &'static str,
    bytes: u64,
    parameters: u64,
    /// Number of tensors by block type.
    tensors: BTreeMap<String, usize>,
    /// Tensors of the folder that are left out.
    left_out: usize,
    notes: Vec<String>,
}

/// The files of the folder that are read, or may be: with --force one of them would be lost.
fn inputs(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let about = || format!("cannot read {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(about)? {
        let path = entry.with_context(about)?.path();
        if path.is_file() && path.extension().is_none_or(|e| !e.eq_ignore_ascii_case("gguf")) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let name = args.folder.display();
    anyhow::ensure!(
        args.folder.is_dir(),
        "{name} is no folder: expected one as `transformers` saves a model"
    );
    let inputs = inputs(&args.folder)?;
    check_model(&args.output, args.force, &inputs.iter().map(|f| Some(f.as_path())).collect::<Vec<_>>())?;
    let options = ConvertOptions {
        dtype: DType::from_name(&args.file_type),
        arch: args.arch.clone(),
        block_len: args.block_length,
        pre: args.pre.clone(),
        name: args.name.clone(),
        overwrite: args.force,
    };
    let stop = interrupt::flag()?;
    let bar = Bytes::new("writing", 0, !out.quiet && out.err_terminal);
    let written = convert(&args.folder, &args.output, &options, &mut |done, total| {
        bar.set(done, total);
        !stop.load(Ordering::Relaxed)
    });
    let took = bar.finish();
    let done = written?;
    done.notes.iter().for_each(|n| out.warn(n));
    let rate = human_bytes((done.n_bytes as f64 / took.as_secs_f64().max(1e-9)) as u64);
    out.note(&format!("written in {}, {rate}/s", human_time(took)));
    let report = Report {
        file: args.output.display().to_string(),
        architecture: done.arch,
        bytes: done.n_bytes,
        parameters: done.n_weights,
        tensors: done.types.iter().map(|(t, n)| (t.to_string(), *n)).collect(),
        left_out: done.left_out,
        notes: done.notes,
    };
    if out.json {
        out.object(&report)?;
    } else {
        let tensors: Vec<String> = done.types.iter().map(|(t, n)| format!("{n} {t}")).collect();
        let left_out = match report.left_out {
            0 => String::new(),
            n => format!(", {n} left out"),
        };
        out.text(&format!(
            "{}: {}, {}, {} parameters, tensors: {}{left_out}\n",
            report.file,
            report.architecture,
            human_bytes(report.bytes),
            report.parameters,
            tensors.join(", ")
        ))?;
    }
    Ok(Exit::Done)
}
