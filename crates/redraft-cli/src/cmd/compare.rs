//! `redraft compare`: two files of taps, tensor by tensor.

use std::path::PathBuf;

use anyhow::bail;
use clap::ValueEnum;
use redraft::gguf::Shown;
use redraft::trace::{Given, Limits, Preset, Report, Row, Tokens, TraceFile, compare, glob, split_layer};
use serde::Serialize;

use crate::exit::Exit;
use crate::files::{name_map, open_taps};
use crate::out::Out;
use crate::ui::table::table;

/// Compare a trace with a golden, tensor by tensor in execution order.
///
/// Every tensor of the golden that the candidate has is compared; the first one that is out of its limits
/// is named. Beside safetensors files it reads those of NumPy, texts of llama-eval-callback, and folders of such.
/// Exit code 0: all within the limits, 1: not, 2: nothing to compare.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft compare mine.safetensors golden.safetensors\n  \
    redraft compare mine.safetensors eval-callback.txt --preset half\n  \
    redraft compare --preset half --only \"l_out*\" theirs.safetensors golden.safetensors\n  \
    redraft compare --json mine.safetensors golden.safetensors | jq .first")]
pub(crate) struct Args {
    /// The file to judge.
    #[arg(value_name = "CAND")]
    candidate: PathBuf,

    /// The file to judge it by.
    #[arg(value_name = "GOLD")]
    golden: PathBuf,

    /// How exact the candidate means to be: 1e-9 for f32 (with the same argmax in each row of logits), 1e-3 for
    /// half, 3e-2 for quant.
    #[arg(long, value_name = "NAME", default_value = "f32")]
    preset: PresetName,

    /// Largest 1 - cosine, instead of the preset's.
    #[arg(long, value_name = "X", value_parser = limit, allow_negative_numbers = true)]
    cos: Option<f64>,

    /// Largest normalised mean squared error, instead of the preset's.
    #[arg(long, value_name = "X", value_parser = limit, allow_negative_numbers = true)]
    nmse: Option<f64>,

    /// Largest difference of two elements.
    #[arg(long, value_name = "X", value_parser = limit, allow_negative_numbers = true)]
    maxabs: Option<f64>,

    /// Names of other programs in either file, and ours: a file of JSON (docs/diagnose.md).
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,

    /// Tensors that the candidate lacks are failures.
    #[arg(long)]
    all: bool,

    /// Compare only tensors of this name, with * for any run of characters; the name with or without the pass
    /// (dec/) and the layer (-3).
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
}

/// `--preset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PresetName {
    /// f32 throughout.
    F32,
    /// Activations in 16 bits.
    Half,
    /// Activations in 8 bits.
    Quant,
}

fn limit(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x| *x >= 0.0).ok_or_else(|| "expected a number of at least 0".into())
}

impl Args {
    fn limits(&self) -> Limits {
        let mut limits = Limits::from(match self.preset {
            PresetName::F32 => Preset::F32,
            PresetName::Half => Preset::Half,
            PresetName::Quant => Preset::Quant,
        });
        limits.one_minus_cos = self.cos.unwrap_or(limits.one_minus_cos);
        limits.nmse = self.nmse.unwrap_or(limits.nmse);
        limits.max_abs = self.maxabs;
        limits.all = self.all;
        limits
    }
}

/// How the numbers of a file were computed, as far as it says so.
#[derive(Debug, PartialEq, Serialize)]
struct Computed {
    numerics: Option<String>,
    precision: Option<String>,
    kv_type: Option<String>,
}

impl Computed {
    fn of(file: &TraceFile) -> Computed {
        let of = |key: &str| file.metadata.get(key).map(|text| Shown(text).to_string());
        Computed { numerics: of("numerics"), precision: of("precision"), kv_type: of("kv_type") }
    }

    /// In words; a file of another program says how in its own words.
    fn text(&self, file: &TraceFile) -> String {
        let said =
            [("numerics", &self.numerics), ("precision", &self.precision), ("KV cache", &self.kv_type)];
        let said: Vec<String> =
            said.iter().filter_map(|(name, x)| Some(format!("{name} {}", x.as_ref()?))).collect();
        match file.metadata.get("reference").filter(|_| said.is_empty()) {
            Some(other) => Shown(other).to_string(),
            None if said.is_empty() => "unknown".into(),
            None => said.join(", "),
        }
    }

    /// What was computed with less than f32 throughout, and the presets for it.
    fn rounded(&self) -> Option<&'static str> {
        match (self.numerics.as_deref(), self.precision.as_deref(), self.kv_type.as_deref()) {
            (Some("fast"), ..) => Some(
                "numerics fast round activations to the type of the weights: --preset half suits files of 16-bit weights, \
                 --preset quant quantized ones; for the f32 preset trace with --numerics exact",
            ),
            (_, Some("bf16"), _) => Some("--preset half suits precision bf16"),
            (.., Some("f16")) => Some("--preset half suits a KV cache of f16"),
            (.., Some("i8")) => Some("--preset quant suits a KV cache of i8"),
            _ => None,
        }
    }
}

/// Said where a file has decimals.
const PRINTED: &str =
    "a text shows few decimals: --preset half suits it, and redraft diagnose takes its rounding into account";

#[derive(Debug, Serialize)]
struct Judged<'a> {
    candidate: String,
    golden: String,
    /// Of the candidate and of the golden.
    computed: [&'a Computed; 2],
    /// What may make them differ.
    hint: Option<&'static str>,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let map = name_map(args.map.as_deref())?;
    let candidate = open_taps(&args.candidate, &map)?;
    let mut golden = open_taps(&args.golden, &map)?;
    for file in [&candidate, &golden] {
        file.notes.iter().for_each(|note| out.warn(&format!("{}: {note}", file.name)));
    }
    if let Some(pattern) = &args.only {
        golden.tensors.retain(|name, _| matches(pattern, name));
        if golden.tensors.is_empty() {
            bail!("{}: no tensor is called {pattern}", args.golden.display());
        }
    }
    let report = compare(&golden, &candidate, &args.limits());
    let (theirs, ours) = (Computed::of(&golden), Computed::of(&candidate));
    let strict = args.preset == PresetName::F32 && !report.ok;
    let printed = [&candidate, &golden]
        .iter()
        .any(|file| file.given.values().any(|given| matches!(given, Given::Printed(_))));
    let hint = ours.rounded().or(theirs.rounded()).or(printed.then_some(PRINTED)).filter(|_| strict);
    let exit = match (report.rows.is_empty(), report.ok) {
        (true, _) => Exit::Usage,
        (false, true) => Exit::Done,
        (false, false) => Exit::No,
    };
    if out.json {
        let file = |p: &PathBuf| p.display().to_string();
        out.object(&Judged {
            candidate: file(&args.candidate),
            golden: file(&args.golden),
            computed: [&ours, &theirs],
            hint,
            report: &report,
        })?;
    } else {
        let mut s = text(&report, args.all, out.verbose > 0);
        if hint.is_some() || (ours != theirs && !report.ok) {
            let (ours, theirs) = (ours.text(&candidate), theirs.text(&golden));
            s.push_str(&format!("computed: candidate with {ours}; golden with {theirs}\n"));
        }
        s.extend(hint.map(|hint| format!("{hint}\n")));
        out.text(&s)?;
    }
    if report.rows.is_empty() {
        bail!("the files have no tensor in common: nothing to compare");
    }
    Ok(exit)
}

/// Whether a name, its part after the pass, or that part without the layer fits a pattern.
fn matches(pattern: &str, name: &str) -> bool {
    let base = name.rsplit('/').next().unwrap_or(name);
    let (_, bare, _) = split_layer(name);
    [name, base, bare].iter().any(|text| glob(pattern, text))
}

fn said_of_tokens(t: &Tokens) -> String {
    format!("KL {:.1e} (largest {:.1e}), top 5 {:.1} %", t.kl_mean, t.kl_max, 100.0 * t.top5)
}

/// Names that are listed where not all are wanted.
const FEW: usize = 8;

fn text(report: &Report, all: bool, every_name: bool) -> String {
    let number = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.3e}"));
    let of = |x: Option<(usize, usize)>| x.map_or(String::new(), |(n, all)| format!("{n}/{all}"));
    let row = |r: &Row| {
        vec![
            if r.ok { "ok" } else { "DIFFERS" }.to_string(),
            r.name.clone(),
            number(r.one_minus_cos),
            number(r.nmse),
            number(r.max_abs),
            r.max_ulp.map_or(String::new(), |u| if u == u64::MAX { "NaN".into() } else { u.to_string() }),
            of(r.argmax),
            of(r.different),
            r.note.clone().or_else(|| r.tokens.map(|t| said_of_tokens(&t))).unwrap_or_default(),
        ]
    };
    let heading = ["", "tensor", "1-cos", "nmse", "max abs", "max ulp", "argmax", "differ", "note"];
    let rows: Vec<Vec<String>> = report.rows.iter().map(row).collect();
    let mut s = if rows.is_empty() { String::new() } else { table(&heading, &[2, 3, 4, 5, 6, 7], &rows) };
    if !report.missing.is_empty() {
        let weight = if all { "missing" } else { "not in the candidate" };
        let n = report.missing.len();
        let shown = if every_name || n <= FEW { n } else { FEW };
        let more = if shown < n { format!(" and {} more (-v names them)", n - shown) } else { String::new() };
        s.push_str(&format!("{weight} ({n}): {}{more}\n", report.missing[..shown].join(", ")));
    }
    let failed = report.rows.iter().filter(|r| !r.ok).count();
    s.push_str(&match &report.first {
        _ if report.rows.is_empty() => String::new(),
        Some(name) => format!("{failed} of {} tensors differ, first {name}\n", report.rows.len()),
        None if report.ok => format!("{} tensors, all within the limits\n", report.rows.len()),
        None => format!("{} tensors within the limits, others are missing\n", report.rows.len()),
    });
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_with_and_without_pass_and_layer() {
        for pattern in ["dec/l_out-3", "l_out-3", "l_out", "l_*", "*", "*out*", "dec/*"] {
            assert!(matches(pattern, "dec/l_out-3"), "{pattern}");
        }
        for pattern in ["out", "enc/*", "l_out-*4", ""] {
            assert!(!matches(pattern, "dec/l_out-3"), "{pattern}");
        }
    }
}
