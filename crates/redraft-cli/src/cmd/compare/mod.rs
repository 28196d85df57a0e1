//! `redraft compare`: two files of taps, tensor by tensor.

mod pictures;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use redraft::gguf::Shown;
use redraft::trace::{
    Bounds, Given, Limits, Preset, Report, Row, Tokens, TraceFile, compare, compare_rows, name_fits,
};
use serde::Serialize;

use crate::exit::Exit;
use crate::files::{self, Kind, name_map, open_taps, refuse_special};
use crate::out::Out;
use crate::ui::page::{Page, Table};
use crate::ui::progress::counted;
use crate::ui::table::table;
use crate::ui::text::printable;

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
    redraft compare --rows worst --only logits mine.safetensors golden.safetensors\n  \
    redraft compare --limits mine.json --html report.html mine.safetensors golden.safetensors\n  \
    redraft compare --json mine.safetensors golden.safetensors | jq .first\n\n\
    A file of --limits: {\"l_out\": {\"nmse\": 1e-6}, \"logits\": {\"one_minus_cos\": 1e-4, \"max_abs\": 0.5}}")]
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

    /// Limits of some tensors, instead of those above: a JSON object that has for each name or pattern (as of --only) an
    /// object of one_minus_cos, nmse and max_abs, or some of them. Where several patterns fit the last one counts.
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,

    /// Names of other programs in either file, and ours: a file of JSON (docs/diagnose.md).
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,

    /// Tensors that the candidate lacks are failures.
    #[arg(long)]
    all: bool,

    /// Show the figures of each row too (a position of a pass, a step of a generation): those furthest from the golden
    /// first, or all in order. The verdict is that of the tensors.
    #[arg(long, value_name = "ORDER")]
    rows: Option<Order>,

    /// Write a page for a browser, which needs no other file: errors by layer and by position as pictures, all figures as
    /// tables.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

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

/// `--rows`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// The largest errors first.
    Worst,
    /// In execution order.
    Order,
}

fn limit(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x| *x >= 0.0).ok_or_else(|| "expected a number of at least 0".into())
}

impl Args {
    /// # Errors
    /// A file of limits that is none.
    fn limits(&self) -> anyhow::Result<Limits> {
        let mut limits = Limits::from(match self.preset {
            PresetName::F32 => Preset::F32,
            PresetName::Half => Preset::Half,
            PresetName::Quant => Preset::Quant,
        });
        let bounds = &mut limits.bounds;
        bounds.one_minus_cos = self.cos.unwrap_or(bounds.one_minus_cos);
        bounds.nmse = self.nmse.unwrap_or(bounds.nmse);
        bounds.max_abs = self.maxabs;
        limits.all = self.all;
        if let Some(path) = &self.limits {
            refuse_special(path, "a file of limits")?;
            let json = files::read(path, files::MAX_BYTES)?;
            limits.by_name = Limits::parse(&json).map_err(|e| anyhow!("--limits {}: {e}", path.display()))?;
        }
        Ok(limits)
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
    /// With --rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_row: Option<&'a [Row]>,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let map = name_map(args.map.as_deref())?;
    let limits = args.limits()?;
    if let Some(html) = &args.html {
        let inputs = [Some(&args.candidate), Some(&args.golden), args.limits.as_ref()];
        files::check_result(html, Kind::Page, &inputs.map(|p| p.map(PathBuf::as_path)))?;
    }
    let candidate = open_taps(&args.candidate, &map)?;
    let mut golden = open_taps(&args.golden, &map)?;
    for file in [&candidate, &golden] {
        file.notes.iter().for_each(|note| out.warn(&format!("{}: {note}", file.name)));
    }
    if let Some(pattern) = &args.only {
        golden.tensors.retain(|name, _| name_fits(pattern, name));
        if golden.tensors.is_empty() {
            bail!("{}: no tensor is called {pattern}", args.golden.display());
        }
    }
    for (pattern, _) in &limits.by_name {
        if !golden.tensors.keys().any(|name| name_fits(pattern, name)) {
            out.warn(&format!("--limits: {} fits the name of no tensor of the golden", Shown(pattern)));
        }
    }
    let report = compare(&golden, &candidate, &limits);
    let mut rows = match args.rows.is_some() || args.html.is_some() {
        true => compare_rows(&golden, &candidate, &limits),
        false => Vec::new(),
    };
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
    let mut said = summary(&report);
    if hint.is_some() || (ours != theirs && !report.ok) {
        let (ours, theirs) = (ours.text(&candidate), theirs.text(&golden));
        said.push_str(&format!("computed: candidate with {ours}; golden with {theirs}\n"));
    }
    said.extend(hint.map(|hint| format!("{hint}\n")));
    if let Some(html) = args.html.as_ref().filter(|_| !report.rows.is_empty()) {
        let page = page(args, (&candidate, &golden), &limits, &report, &rows, &said)?;
        files::write_result(html, Kind::Page, page.html().as_bytes())?;
    }
    if args.rows == Some(Order::Worst) {
        worst_first(&mut rows);
    }
    if out.json {
        let file = |p: &PathBuf| p.display().to_string();
        out.object(&Judged {
            candidate: file(&args.candidate),
            golden: file(&args.golden),
            computed: [&ours, &theirs],
            hint,
            report: &report,
            by_row: args.rows.is_some().then_some(&rows),
        })?;
    } else {
        let mut s = text(&report, args.all, out.verbose > 0);
        if args.rows.is_some() {
            s.push_str(&text_of_rows(&rows, out.verbose > 0));
        }
        out.text(&(s + &said))?;
    }
    if report.rows.is_empty() {
        bail!("the files have no tensor in common: nothing to compare");
    }
    Ok(exit)
}

/// The largest errors first, equal ones in execution order.
fn worst_first(rows: &mut [Row]) {
    rows.sort_by(|a, b| b.relative_error().total_cmp(&a.relative_error()));
}

fn said_of_tokens(t: &Tokens) -> String {
    format!("KL {:.1e} (largest {:.1e}), top 5 {:.1} %", t.kl_mean, t.kl_max, 100.0 * t.top5)
}

/// Names that are listed where not all are wanted.
const FEW: usize = 8;

/// Rows that are listed where not all are wanted.
const FEW_ROWS: usize = 20;

/// Columns of a table of figures.
const HEADING: [&str; 9] = ["", "tensor", "1-cos", "nmse", "max abs", "max ulp", "argmax", "differ", "note"];
const TO_THE_RIGHT: [usize; 6] = [2, 3, 4, 5, 6, 7];

/// The cells of a tensor or a row.
fn cells(r: &Row) -> Vec<String> {
    let number = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.3e}"));
    let of = |x: Option<(usize, usize)>| x.map_or(String::new(), |(n, all)| format!("{n}/{all}"));
    vec![
        if r.ok { "ok" } else { "DIFFERS" }.to_string(),
        r.row.map_or_else(|| r.name.clone(), |row| format!("{}[{row}]", r.name)),
        number(r.one_minus_cos),
        number(r.nmse),
        number(r.max_abs),
        r.max_ulp.map_or(String::new(), |u| if u == u64::MAX { "NaN".into() } else { u.to_string() }),
        of(r.argmax),
        of(r.different),
        r.note.clone().or_else(|| r.tokens.map(|t| said_of_tokens(&t))).unwrap_or_default(),
    ]
}

fn text(report: &Report, all: bool, every_name: bool) -> String {
    let rows: Vec<Vec<String>> = report.rows.iter().map(cells).collect();
    let mut s = if rows.is_empty() { String::new() } else { table(&HEADING, &TO_THE_RIGHT, &rows) };
    if !report.missing.is_empty() {
        let weight = if all { "missing" } else { "not in the candidate" };
        let n = report.missing.len();
        let shown = if every_name || n <= FEW { n } else { FEW };
        let more = if shown < n { format!(" and {} more (-v names them)", n - shown) } else { String::new() };
        s.push_str(&format!("{weight} ({n}): {}{more}\n", report.missing[..shown].join(", ")));
    }
    s
}

fn text_of_rows(rows: &[Row], every_row: bool) -> String {
    let shown = if every_row { rows.len() } else { rows.len().min(FEW_ROWS) };
    let listed: Vec<Vec<String>> = rows[..shown].iter().map(cells).collect();
    let mut s = format!("\n{}", table(&HEADING, &TO_THE_RIGHT, &listed));
    if shown < rows.len() {
        s.push_str(&format!("and {} rows more (-v shows them)\n", rows.len() - shown));
    }
    s
}

/// The verdict, a line; nothing where nothing was compared.
fn summary(report: &Report) -> String {
    let failed = report.rows.iter().filter(|r| !r.ok).count();
    let all = counted(report.rows.len(), "tensor");
    match &report.first {
        _ if report.rows.is_empty() => String::new(),
        Some(name) => format!("{failed} of {all} differ, first {name}\n"),
        None if report.ok => format!("{all}, all within the limits\n"),
        None => format!("{all} within the limits, others are missing\n"),
    }
}

/// The report as a page.
fn page(
    args: &Args,
    (candidate, golden): (&TraceFile, &TraceFile),
    limits: &Limits,
    report: &Report,
    rows: &[Row],
    said: &str,
) -> anyhow::Result<Page> {
    let trajectory = golden.tensors.contains_key("step_left");
    let mut facts: Vec<String> = said.lines().map(|line| printable(line).into_owned()).collect();
    facts.push(format!("candidate: {}", Shown(&args.candidate.display().to_string())));
    facts.push(format!("golden: {}", Shown(&args.golden.display().to_string())));
    let preset = args.preset.to_possible_value().map_or(String::new(), |p| p.get_name().to_string());
    let Bounds { one_minus_cos: cos, nmse, max_abs } = limits.bounds;
    let max_abs = max_abs.map_or(String::new(), |x| format!(", max abs {x:e}"));
    let own = args.limits.as_ref().map(|p| format!("; by name as {} says", Shown(&p.display().to_string())));
    facts.push(format!(
        "limits of preset {preset}: 1-cos {cos:e}, nmse {nmse:e}{max_abs}{}",
        own.unwrap_or_default()
    ));
    if !report.missing.is_empty() {
        let names: Vec<String> = report.missing.iter().map(|n| Shown(n).to_string()).collect();
        facts.push(format!("not in the candidate ({}): {}", names.len(), names.join(", ")));
    }
    let of_tensors = pictures::by_tensor(report, |name| limits.of(name, trajectory))?;
    let pictures = of_tensors.into_iter().chain(pictures::by_row(rows)?).collect();
    let shown = |r: &Row| cells(r).iter().map(|cell| Shown(cell).to_string()).collect();
    let figures = |caption: String, rows: &[Row]| Table {
        caption,
        head: HEADING.to_vec(),
        words: &[0, 1, 8],
        rows: rows.iter().map(shown).collect(),
    };
    let mut worst = rows.to_vec();
    worst_first(&mut worst);
    worst.truncate(FEW_ROWS);
    let value = |file: &TraceFile, key: &str| {
        file.metadata.get(key).map_or(String::new(), |text| Shown(text).to_string())
    };
    let keys: BTreeSet<&String> = candidate.metadata.keys().chain(golden.metadata.keys()).collect();
    let metadata = Table {
        caption: "Metadata".into(),
        head: vec!["", "candidate", "golden"],
        words: &[0, 1, 2],
        rows: keys
            .into_iter()
            .map(|key| vec![Shown(key).to_string(), value(candidate, key), value(golden, key)])
            .collect(),
    };
    let tables = vec![
        figures("Tensors in execution order".into(), &report.rows),
        figures("Rows furthest from the golden, as tensor[row]".into(), &worst),
        metadata,
    ];
    Ok(Page { title: "redraft compare", facts, pictures, tables })
}
