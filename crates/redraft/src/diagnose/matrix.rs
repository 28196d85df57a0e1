//! The proof: each mistake in a small model of each architecture, computed with each kind of rounding, is named; honest
//! runs are rounding.

use std::path::{Path, PathBuf};

use super::error::distance;
use super::judge::{normed_last, shifted_logits};
use super::*;
use crate::trace::is_input;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

/// A model, and a golden of its passes, of which the inputs and the names count here: all tiny models in 16 bits that
/// have one.
fn cases() -> Vec<(PathBuf, PathBuf)> {
    let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().map(|e| e.unwrap().path());
    let mut found = Vec::new();
    for folder in list(&testdata()) {
        for model in list(&folder.join("models")) {
            let stem = model.file_stem().unwrap().to_string_lossy().into_owned();
            let case = |kind: &str| folder.join("cases").join(format!("{stem}.{kind}.safetensors"));
            let golden = [case("decode-sc"), case("forward")].into_iter().find(|c| c.exists());
            if let Some(golden) = golden.filter(|_| stem.ends_with("F16") && stem.contains("-tiny")) {
                found.push((model, golden));
            }
        }
    }
    found.sort();
    found
}

fn open((model, golden): &(PathBuf, PathBuf)) -> (Gguf, TraceFile) {
    (Gguf::open(model, &Default::default()).unwrap(), TraceFile::open(golden).unwrap())
}

fn name(case: &(PathBuf, PathBuf)) -> String {
    let file = case.0.file_name().unwrap().to_string_lossy();
    file.split("-tiny").next().unwrap().to_string()
}

/// All runs of a case, each made once.
struct Runs {
    gguf: Gguf,
    wanted: TraceFile,
    has_cache: bool,
    made: Vec<(String, Option<TraceFile>)>,
}

impl Runs {
    fn get(&mut self, what: Running<'_>) -> Option<TraceFile> {
        let key = format!("{what:?}");
        if let Some((_, made)) = self.made.iter().find(|(k, _)| *k == key) {
            return made.clone();
        }
        let options = LoadOptions::default();
        let (mut model, applied) = what.open(&self.gguf, &options, Precision::F64, self.has_cache).unwrap();
        let out = like(&mut model, &self.wanted, None).unwrap();
        let made = applied.is_none_or(|applied| applied.changed()).then_some(out);
        self.made.push((key, made.clone()));
        made
    }
}

/// The kinds of rounding that mistakes are computed with.
const KINDS: [Rounding; 3] = [Rounding::F32, Rounding::LlamaCpp, Rounding::Bf16];

/// What came of a mistake with a kind of rounding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// It was named.
    Rightly,
    /// It was called rounding, and it moves nothing by more than that.
    Hidden,
    /// Honest programs are as far away.
    Border,
}

/// Mistakes by name.
type Table = Vec<(String, [Option<Told>; KINDS.len()])>;

/// Results of passes with the inputs of `golden`, as somebody's file.
fn as_file(golden: &TraceFile, results: TraceFile) -> TraceFile {
    let mut file = golden.clone();
    file.tensors.retain(|name, t| is_input(name) || t.data.is_int());
    let wanted = |(name, _): &(String, _)| golden.tensors.contains_key(name);
    file.tensors.extend(results.tensors.into_iter().filter(wanted));
    file
}

/// All mistakes of a case with all kinds of rounding: the name of each, and what came of it; and the number of honest runs.
fn tell(case: &(PathBuf, PathBuf)) -> (Table, usize) {
    let (gguf, golden) = open(case);
    let plain = Model::from_gguf(gguf.clone(), &LoadOptions::default()).unwrap();
    let subject = Subject::of(&plain, &Settings::default());
    let (has_cache, n_layers) = (subject.has_cache, subject.n_layers);
    let faults = Mistake::all(&plain);
    let mut runs = Runs { gguf, wanted: with_normed(&golden), has_cache, made: Vec::new() };
    let judged = |file: &TraceFile, runs: &mut Runs| {
        judge(file, &faults, &subject, &mut |what| Ok(runs.get(what))).unwrap()
    };
    let mut table = Table::new();
    let mut seen: Vec<TraceFile> = Vec::new();
    for fault in &faults {
        let result = |rounding: Rounding, runs: &mut Runs| match &fault.fault {
            Fault::LogitsShifted(by) => {
                runs.get(Running::Floor(rounding)).map(|honest| shifted_logits(&honest, *by))
            }
            Fault::LastLayerNormed => {
                runs.get(Running::Floor(rounding)).map(|honest| normed_last(&honest, n_layers))
            }
            _ => runs.get(Running::Fault(fault, rounding)),
        };
        // What does nothing, or the same as another mistake, is no case.
        let Some(found) = result(Rounding::F32, &mut runs).filter(|found| !seen.contains(found)) else {
            continue;
        };
        seen.push(found);
        let mut row = [None; KINDS.len()];
        for (cell, rounding) in row.iter_mut().zip(KINDS) {
            // Of mistakes in passes of one kind, one rounding is enough.
            if rounding != Rounding::F32 && fault.only.is_some() {
                continue;
            }
            let honest = runs.get(Running::Floor(rounding)).unwrap();
            let file = as_file(&golden, result(rounding, &mut runs).unwrap());
            let d = judged(&file, &mut runs);
            let hidden = || {
                d.taps.iter().all(|t| {
                    let moved = distance(file.tensors.get(&t.name), honest.tensors.get(&t.name));
                    moved.ratio(t.floors[&d.rounding], t.rows_count) <= LIMIT
                })
            };
            *cell = Some(match &d.verdict {
                Verdict::Fault(t) if t.fault == fault.name() => Told::Rightly,
                Verdict::Rounding { .. } if hidden() => Told::Hidden,
                Verdict::Undecided { .. } => Told::Border,
                other => panic!("{} {} {}: {other:?}", name(case), fault.name(), rounding.name()),
            });
        }
        table.push((fault.name(), row));
    }
    for rounding in subject.kinds() {
        let file = as_file(&golden, runs.get(Running::Floor(rounding)).unwrap());
        let d = judged(&file, &mut runs);
        assert!(matches!(d.verdict, Verdict::Rounding { .. }), "{} {}: {d:?}", name(case), rounding.name());
    }
    // Logits of PyTorch, which is another program; a golden's f32 are of a finer kind than bf16's.
    for (which, kinds) in [("logits_f32", &[Rounding::F32][..]), ("logits_bf16", &KINDS[1..])] {
        if let Some(logits) = golden.tensors.get(which).cloned() {
            let mut file = as_file(&golden, TraceFile::default());
            file.insert("logits", logits.shape, logits.data);
            let d = judged(&file, &mut runs);
            let Verdict::Rounding { worst, .. } = d.verdict else { panic!("{} {which}: {d:?}", name(case)) };
            assert!(kinds.contains(&d.rounding) && worst < LIMIT, "{} {which}: {d:?}", name(case));
        }
    }
    (table, subject.kinds().len())
}

/// The table of `docs/diagnose.md`; with `REDRAFT_BLESS` in the environment it is written there.
#[test]
fn every_mistake_is_named_and_honest_runs_are_rounding() {
    let cases = cases();
    let (tables, honest): (Vec<Table>, Vec<usize>) = cases.iter().map(tell).unzip();
    // Mistakes of a kind (of each norm, of each base, in passes of one kind) stand in one line.
    let kind = |name: &str| match name.split_once('/') {
        Some((pass, _)) => format!("{pass}/…"),
        None => name.split_once(':').map_or(name.to_string(), |(kind, _)| format!("{kind}:…")),
    };
    let mut kinds: Vec<String> = Vec::new();
    for name in tables.iter().flatten().map(|(name, _)| kind(name)) {
        if !kinds.contains(&name) {
            kinds.push(name);
        }
    }
    let models: Vec<String> = cases.iter().map(name).collect();
    let mut lines =
        vec![format!("| | {} |", models.join(" | ")), format!("|---{}|", "|---".repeat(models.len()))];
    let count = |table: &Table, wanted: &str, told: Told| {
        let rows = table.iter().filter(|(name, _)| wanted.is_empty() || kind(name) == wanted);
        rows.flat_map(|(_, row)| row).filter(|t| **t == Some(told)).count()
    };
    for name in kinds {
        let cell =
            |table: &Table| match (count(table, &name, Told::Rightly), count(table, &name, Told::Hidden)) {
                (0, 0) => String::new(),
                (n, 0) => n.to_string(),
                (0, k) => format!("({k})"),
                (n, k) => format!("{n} ({k})"),
            };
        let cells: Vec<String> = tables.iter().map(cell).collect();
        lines.push(format!("| `{name}` | {} |", cells.join(" | ")));
    }
    let all: Table = tables.concat();
    let [right, hidden, border] =
        [Told::Rightly, Told::Hidden, Told::Border].map(|told| count(&all, "", told));
    lines.push(format!(
        "\n{right} named, {hidden} hidden, {border} undecided, {} honest runs called rounding.",
        honest.iter().sum::<usize>()
    ));
    let table = lines.join("\n");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/diagnose.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- table -->\n").unwrap();
    let (found, after) = rest.split_once("\n<!-- end -->").unwrap();
    if std::env::var_os("REDRAFT_BLESS").is_some() {
        std::fs::write(&page, format!("{before}<!-- table -->\n{table}\n<!-- end -->{after}")).unwrap();
    } else {
        assert_eq!(found, table, "docs/diagnose.md shows another table");
    }
}
