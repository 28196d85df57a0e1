//! `redraft synth`: a file with the shapes of a known model and random weights.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::builder::{PossibleValue, PossibleValuesParser};
use redraft::arch::{ARCHS, Preset};
use redraft::synth::{FILE_TYPES, FileType, write};
use serde::Serialize;

use crate::exit::Exit;
use crate::files::check_model;
use crate::interrupt;
use crate::out::Out;
use crate::ui::progress::{Bytes, human_bytes, human_time};

/// Write a model file with the shapes of a known model and random, well-scaled weights.
///
/// For work on speed and memory without the real weights: it loads and runs like the real file and answers
/// nonsense. The same preset, type and seed give the same bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft synth tiny tiny.gguf --type q8_0\n  \
    redraft synth diffusion-gemma-26b-a4b big.gguf --type q4_k_m")]
pub(crate) struct Args {
    /// Which model's shapes.
    #[arg(value_name = "PRESET", value_parser = presets())]
    preset: String,

    /// The file to write.
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// How weights are stored.
    #[arg(long = "type", value_name = "T", ignore_case = true, value_parser = types())]
    file_type: String,

    /// Decides the weights.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Replace a file that is there.
    #[arg(long)]
    force: bool,
}

fn presets() -> PossibleValuesParser {
    PossibleValuesParser::new(all_presets().map(|p| PossibleValue::new(p.name).help(p.about)))
}

/// The presets of all architectures, the small ones first: a file to try things with is what most want.
fn all_presets() -> impl Iterator<Item = &'static Preset> {
    let mut all: Vec<&Preset> = ARCHS.iter().flat_map(|a| a.presets).collect();
    // `tiny` before the tiny ones of other architectures, and those before the rest.
    all.sort_by_key(|p| if p.name == "tiny" { 0 } else { 1 + u8::from(!p.name.ends_with("-tiny")) });
    all.into_iter()
}

fn types() -> PossibleValuesParser {
    PossibleValuesParser::new(FILE_TYPES.iter().map(|t| PossibleValue::new(t.name)))
}

/// What was written.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    preset: String,
    #[serde(rename = "type")]
    file_type: &'static str,
    seed: u64,
    bytes: u64,
    parameters: u64,
    /// Number of tensors by block type.
    tensors: BTreeMap<String, usize>,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    check_model(&args.output, args.force, &[])?;
    let preset = all_presets()
        .find(|p| p.name == args.preset)
        .ok_or_else(|| anyhow::anyhow!("there is no preset {}", args.preset))?;
    let file_type = FileType::from_name(&args.file_type)?;
    let plan = (preset.build)();
    let stop = interrupt::flag()?;
    let bytes = plan.file_bytes(file_type)?;
    let bar = Bytes::new("writing", bytes, !out.quiet && out.err_terminal);
    let written = write(&plan, file_type, args.seed, &args.output, args.force, &mut |done, total| {
        bar.set(done, total);
        !stop.load(Ordering::Relaxed)
    });
    let took = bar.finish();
    let summary = written?;
    let rate = human_bytes((summary.n_bytes as f64 / took.as_secs_f64().max(1e-9)) as u64);
    out.note(&format!("written in {}, {rate}/s", human_time(took)));
    let report = Report {
        file: args.output.display().to_string(),
        preset: args.preset.clone(),
        file_type: file_type.name,
        seed: args.seed,
        bytes: summary.n_bytes,
        parameters: summary.n_weights,
        tensors: summary.dtypes.iter().map(|(t, n)| (t.to_string(), *n)).collect(),
    };
    if out.json {
        out.object(&report)?;
    } else {
        let tensors: Vec<String> = summary.dtypes.iter().map(|(t, n)| format!("{n} {t}")).collect();
        out.text(&format!(
            "{}: {}, {} parameters, tensors: {}\n",
            report.file,
            human_bytes(report.bytes),
            report.parameters,
            tensors.join(", ")
        ))?;
    }
    Ok(Exit::Done)
}
