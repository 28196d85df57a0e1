//! `docs/parity.md`: how far from every reference in `testdata` each way of computing is, with the command behind each
//! figure. With `REDRAFT_BLESS` in the environment the tables of the page are written.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use common::testdata;
use redraft::arch::Reading;
use redraft::compute::{Numerics, Precision};
use redraft::diagnose::Rounding;
use redraft::tokenizer::Specials;
use redraft::trace::{Limits, Preset, Report, Row, TraceFile, compare, like};
use redraft::{LoadOptions, Model};

/// A way of computing: its name, and what `redraft trace` is told for it.
const WAYS: [(&str, &str); 5] = [
    ("f64", "--precision f64"),
    ("f32", "--numerics exact"),
    ("fast", "--numerics fast"),
    ("llamacpp", "--precision llamacpp"),
    ("bf16", "--precision bf16"),
];

fn options(way: &str, has_cache: bool) -> LoadOptions {
    let base = LoadOptions::default();
    let exact = Rounding::F32.options(&base, has_cache);
    match way {
        "f64" => LoadOptions { precision: Precision::F64, ..exact },
        "f32" => exact,
        "fast" => LoadOptions { numerics: Some(Numerics::Fast), ..exact },
        "llamacpp" => Rounding::LlamaCpp.options(&base, has_cache),
        "bf16" => Rounding::Bf16.options(&base, has_cache),
        other => panic!("{other}"),
    }
}

/// A golden.
struct Golden {
    /// Its folder in `testdata`.
    folder: &'static str,
    /// The name of its model's file, without the extension.
    model: String,
    /// What is added to that in its own name.
    case: String,
    file: TraceFile,
}

impl Golden {
    fn open_model(&self, way: &str) -> Model {
        // Goldens of caches are of the oracle's models.
        let folder = if self.folder == "caches" { "oracle" } else { self.folder };
        let path = testdata().join(folder).join("models").join(format!("{}.gguf", self.model));
        let plain = Model::open(&path, &LoadOptions::default()).unwrap();
        let has_cache = plain.shape().reading != Reading::Whole;
        Model::open(&path, &options(way, has_cache)).unwrap()
    }

    fn run(&self, way: &str) -> TraceFile {
        like(&mut self.open_model(way), &self.file, None)
            .unwrap_or_else(|e| panic!("{} {way}: {e}", self.file.name))
    }
}

/// All goldens of tiny models, sorted by path.
fn goldens() -> Vec<Golden> {
    let mut all = Vec::new();
    for folder in ["block-diffusion", "caches", "llada2", "oracle"] {
        let dir = testdata().join(folder).join("cases");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let file = TraceFile::open(&path).unwrap();
            let model = file.metadata["model"].trim_end_matches(".gguf").to_string();
            let stem = path.file_stem().unwrap().to_string_lossy();
            let case = stem.strip_prefix(&model).unwrap().trim_start_matches('.').to_string();
            all.push(Golden { folder, model, case, file });
        }
    }
    all
}

/// Of each model the golden that says most of one pass.
fn passes() -> Vec<Golden> {
    let wanted = |g: &Golden| ["decode-sc", "forward"].contains(&g.case.as_str());
    let mut found: Vec<Golden> = goldens().into_iter().filter(wanted).collect();
    found.sort_by(|a, b| a.model.cmp(&b.model));
    found
}

fn limits() -> Limits {
    Limits { all: true, ..Preset::F32.into() }
}

/// Two digits; of what is so small that libraries of other systems may give other digits only that.
fn figure(x: f64, least: f64) -> String {
    if x < least { format!("< {least:.0e}") } else { format!("{x:.1e}") }
}

fn one_minus_cos(row: &Row) -> String {
    figure(row.one_minus_cos.unwrap(), 1e-14)
}

fn nmse(row: &Row) -> String {
    figure(row.nmse.unwrap(), 1e-20)
}

fn max_abs(row: &Row) -> String {
    figure(row.max_abs.unwrap(), 1e-9)
}

fn argmax(row: &Row) -> String {
    let (same, all) = row.argmax.unwrap();
    format!("{same}/{all}")
}

fn logits(report: &Report) -> &Row {
    report.rows.iter().find(|r| r.name == "logits").unwrap()
}

/// The tap that is furthest from the golden, and its error.
fn worst_tap(report: &Report) -> String {
    let taps = report.rows.iter().filter(|r| r.name != "logits" && r.nmse.is_some());
    let worst = taps.fold(None, |worst: Option<&Row>, r| match worst {
        Some(w) if w.nmse >= r.nmse => Some(w),
        _ => Some(r),
    });
    match worst {
        None => "none".into(),
        // Which one is furthest is chance then.
        Some(w) if w.nmse.unwrap() < 1e-20 => "all < 1e-20".into(),
        Some(w) => format!("`{}` {}", w.name, nmse(w)),
    }
}

/// Integers that differ, and integers.
fn integers(report: &Report) -> (usize, usize) {
    let counts = report.rows.iter().filter_map(|r| r.different);
    counts.fold((0, 0), |(n, all), (n2, all2)| (n + n2, all + all2))
}

fn table_of_models(passes: &[Golden]) -> String {
    let mut s = "| architecture | FOLDER | MODEL | CASE | reference |\n|---|---|---|---|---|\n".to_string();
    for Golden { folder, model, case, file } in passes {
        let path = testdata().join(folder).join("models").join(format!("{model}.gguf"));
        let arch = Model::open(&path, &LoadOptions::default()).unwrap().arch().name;
        let _ = writeln!(s, "| {arch} | {folder} | {model} | {case} | {} |", file.metadata["reference"]);
    }
    s
}

fn table_of_passes(passes: &[Golden]) -> String {
    let mut s = "| model | precision | 1 - cos | NMSE | max abs | argmax | worst tap, its NMSE | integers that differ |\n\
                 |---|---|---|---|---|---|---|---|\n"
        .to_string();
    for g in passes {
        for (way, _) in WAYS {
            let report = compare(&g.file, &g.run(way), &limits());
            assert!(report.missing.is_empty(), "{} {way}: {:?}", g.file.name, report.missing);
            assert!(report.ok || !["f64", "f32"].contains(&way), "{} {way}: {:?}", g.file.name, report.first);
            let (row, (n, all)) = (logits(&report), integers(&report));
            let integers = if all == 0 { "none".into() } else { format!("{n}/{all}") };
            let (cos, nmse, abs) = (one_minus_cos(row), nmse(row), max_abs(row));
            let (argmax, worst) = (argmax(row), worst_tap(&report));
            let stem = &g.model;
            let _ =
                writeln!(s, "| {stem} | {way} | {cos} | {nmse} | {abs} | {argmax} | {worst} | {integers} |");
        }
    }
    s
}

/// Logits of PyTorch beside ours of the same number type.
fn table_of_pytorch(passes: &[Golden]) -> String {
    let mut s =
        "| model | type | PyTorch's NMSE | ours | ours to PyTorch's | argmax of ours and PyTorch's |\n\
                 |---|---|---|---|---|---|\n"
            .to_string();
    for g in passes {
        for (way, theirs) in [("f32", "logits_f32"), ("bf16", "logits_bf16")] {
            let Some(theirs) = g.file.tensors.get(theirs) else { continue };
            let file = |t: &redraft::trace::Tensor| {
                let mut f = TraceFile::default();
                f.insert("logits", t.shape.clone(), t.data.clone());
                f
            };
            let (truth, theirs) = (file(&g.file.tensors["logits"]), file(theirs));
            let ours = file(&g.run(way).tensors["logits"]);
            let row = |golden: &TraceFile, c: &TraceFile| compare(golden, c, &limits()).rows.remove(0);
            let direct = row(&theirs, &ours);
            let (pytorch, own) = (nmse(&row(&truth, &theirs)), nmse(&row(&truth, &ours)));
            let (stem, between, argmax) = (&g.model, nmse(&direct), argmax(&direct));
            let _ = writeln!(s, "| {stem} | {way} | {pytorch} | {own} | {between} | {argmax} |");
        }
    }
    s
}

fn table_of_trajectories() -> String {
    let mut s =
        "| FOLDER | MODEL | CASE | steps | integers that differ | furthest of the numbers, its NMSE |\n|---|---|---|---|---|---|\n"
            .to_string();
    let recorded = |g: &Golden| ["step_left", "x_in"].iter().any(|n| g.file.tensors.contains_key(*n));
    let (mut all_steps, mut all_integers) = (0, 0);
    for g in goldens().iter().filter(|g| recorded(g)) {
        let report = compare(&g.file, &g.run("f32"), &limits());
        assert!(report.ok, "{}: {:?} {:?}", g.file.name, report.first, report.missing);
        let rows = ["step_left", "x_in"].iter().find_map(|n| g.file.tensors.get(*n));
        let Golden { folder, model, case, .. } = g;
        let (steps, (n, all)) = (rows.unwrap().shape[0], integers(&report));
        (all_steps, all_integers) = (all_steps + steps, all_integers + all);
        let _ = writeln!(s, "| {folder} | {model} | {case} | {steps} | {n}/{all} | {} |", worst_tap(&report));
    }
    let _ = writeln!(s, "\n{all_steps} steps, {all_integers} integers, all equal.");
    s
}

fn table_of_tokenizers() -> String {
    let mut s = "| model | texts | checks that differ |\n|---|---|---|\n".to_string();
    for (model, cases) in
        [("dg-mini.F32", "dg-mini"), ("dream-tiny.F16", "dream-tiny"), ("llada-tiny.BF16", "llada-tiny")]
    {
        let path = testdata().join(format!("oracle/models/{model}.gguf"));
        let tokenizer = Model::open(&path, &LoadOptions::default()).unwrap().tokenizer().clone();
        let text = std::fs::read_to_string(testdata().join(format!("tokenizer/{cases}.cases.json"))).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ids = |v: &serde_json::Value| serde_json::from_value::<Vec<u32>>(v.clone()).unwrap();
        let (mut checks, mut differ) = (1, usize::from(tokenizer.end_ids() != ids(&json["eog_token_ids"])));
        let texts = json["cases"].as_array().unwrap();
        for case in texts {
            let text = case["text"].as_str().unwrap();
            let parsed = ids(&case["ids_parse_special"]);
            let same = [
                tokenizer.encode(text, Specials::Parse).unwrap() == parsed,
                tokenizer.encode(text, Specials::Text).unwrap() == ids(&case["ids_no_special"]),
                tokenizer.decode(&parsed, true) == case["decoded"].as_str().unwrap(),
            ];
            checks += same.len();
            differ += same.iter().filter(|same| !**same).count();
        }
        let _ = writeln!(s, "| {model} | {} | {differ}/{checks} |", texts.len());
    }
    s
}

fn table_of_ways() -> String {
    let rows = WAYS.map(|(way, flags)| format!("| {way} | `{flags}` |\n"));
    format!("| precision | FLAGS |\n|---|---|\n{}", rows.concat())
}

#[test]
fn the_page_shows_what_the_code_gives() {
    let passes = passes();
    let tables = [
        ("ways", table_of_ways()),
        ("models", table_of_models(&passes)),
        ("passes", table_of_passes(&passes)),
        ("pytorch", table_of_pytorch(&passes)),
        ("trajectories", table_of_trajectories()),
        ("tokenizers", table_of_tokenizers()),
    ];
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/parity.md");
    let mut text = std::fs::read_to_string(&page).unwrap();
    let bless = std::env::var_os("REDRAFT_BLESS").is_some();
    for (name, table) in &tables {
        let begin = format!("<!-- {name} -->\n");
        let (before, rest) = text.split_once(&begin).unwrap();
        let (found, after) = rest.split_once("<!-- end -->").unwrap();
        if !bless {
            assert_eq!(found, table, "docs/parity.md shows another table of {name}");
        }
        text = format!("{before}{begin}{table}<!-- end -->{after}");
    }
    if bless {
        std::fs::write(&page, text).unwrap();
    }
}
