//! `redraft bench --compare`: this program and another one by turns.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail, ensure};
use redraft::Error;
use redraft::bench::median;
use regex_automata::meta::Regex;
use serde::Serialize;
use serde_json::Value;

use super::report::Page;
use super::step::StepArgs;
use super::{Machine, Spread, seconds};
use crate::exit::Exit;
use crate::out::Out;
use crate::ui::page::Table;
use crate::ui::progress::counted;
use crate::ui::table::table;

/// Finds JSON fields such as `"wall_s_median": 1.25`.
pub(super) const PATTERN: &str =
    r#""wall_s_median": *(?<seconds>[0-9.eE+-]+)(?:.*"cpu_s_median": *(?<cpu>[0-9.eE+-]+))?"#;

/// The object of `bench --compare --json`.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rows: usize,
    /// What `bench --json` said in the last round.
    ours: Value,
    command: String,
    ours_s: Spread,
    theirs_s: Spread,
    ours_cpu_s: Option<Spread>,
    theirs_cpu_s: Option<Spread>,
    /// Their median by ours.
    ratio: f64,
    /// The same of CPU seconds.
    cpu_ratio: Option<f64>,
}

/// Seconds of a step, by the clock and of computing.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    wall_s: f64,
    cpu_s: Option<f64>,
}

/// Runs the command.
pub(super) fn main(args: &StepArgs, out: Out) -> anyhow::Result<Exit> {
    let command = args.compare.as_deref().unwrap_or_default();
    ensure!(
        args.rows.len() <= 1 && args.prompt.len() == 1,
        "--compare measures one configuration: expected one number of --rows and of --prompt"
    );
    let pattern = Pattern::new(&args.pattern)?;
    let stop = crate::interrupt::flag()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut last = (Value::Null, 0);
    for round in 0..args.rounds {
        // Who begins changes, so that neither always runs after the other.
        for ours_now in [round % 2 == 0, round % 2 != 0] {
            if ours_now {
                let (sample, report, rows) = run_ours(args, &stop)?;
                ours.push(sample);
                last = (report, rows);
            } else {
                theirs.push(run_theirs(command, &pattern, last.1, &stop)?);
            }
        }
        if let (Some(a), Some(b)) = (ours.last(), theirs.last()) {
            out.note(&format!(
                "round {}: {} s, theirs {} s",
                round + 1,
                seconds(a.wall_s),
                seconds(b.wall_s)
            ));
        }
    }
    let wall = |s: &[Sample]| Spread::of(s.iter().map(|s| s.wall_s).collect());
    let cpu = |s: &[Sample]| s.iter().map(|s| s.cpu_s).collect::<Option<Vec<f64>>>().and_then(Spread::of);
    let (ours_s, theirs_s) = wall(&ours).zip(wall(&theirs)).context("no round was run")?;
    let (ours_cpu_s, theirs_cpu_s) = (cpu(&ours), cpu(&theirs));
    let report = Report {
        machine: Machine::new(),
        rows: last.1,
        ours: last.0,
        command: command.to_owned(),
        ratio: theirs_s.median / ours_s.median,
        cpu_ratio: ours_cpu_s.as_ref().zip(theirs_cpu_s.as_ref()).map(|(a, b)| b.median / a.median),
        ours_s,
        theirs_s,
        ours_cpu_s,
        theirs_cpu_s,
    };
    args.report.write(&report, &report.page())?;
    if out.json {
        out.object(&report)?
    } else {
        out.text(&report.text())?
    }
    Ok(Exit::Done)
}

const HEAD: [&str; 3] = ["", "step s, median (range)", "CPU s"];

impl Report {
    fn rows(&self) -> Vec<Vec<String>> {
        let cpu_s = |s: &Option<Spread>| s.as_ref().map_or("unknown".into(), Spread::text);
        vec![
            vec!["redraft".into(), self.ours_s.text(), cpu_s(&self.ours_cpu_s)],
            vec!["other".into(), self.theirs_s.text(), cpu_s(&self.theirs_cpu_s)],
        ]
    }

    /// What was measured, and how the two compare.
    fn facts(&self) -> [String; 2] {
        let cpu = self.cpu_ratio.map_or(String::new(), |r| format!(", {r:.2} in CPU seconds"));
        [
            format!("{}, {} rows, {} rounds", self.machine.line(), self.rows, self.ours_s.all.len()),
            format!("ratio of medians, theirs by ours: {:.2}{cpu}", self.ratio),
        ]
    }

    fn page(&self) -> Page {
        let of = |key: &str| self.ours[key].as_str().unwrap_or_default();
        let ours = format!(
            "redraft {}: {}, {}, {}, level {}",
            of("version"),
            self.ours["model"]["name"].as_str().unwrap_or_default(),
            counted(self.ours["threads"].as_u64().unwrap_or(0) as usize, "thread"),
            of("numerics"),
            of("level")
        );
        Page {
            facts: self.facts().into_iter().chain([ours, format!("other: {}", self.command)]).collect(),
            bars: vec![("redraft".into(), self.ours_s.clone()), ("other".into(), self.theirs_s.clone())],
            tables: vec![Table {
                caption: "Steps by turns".into(),
                head: HEAD.to_vec(),
                words: &[0],
                rows: self.rows(),
            }],
        }
    }

    fn text(&self) -> String {
        let [first, last] = self.facts();
        format!("{first}\n{}{last}\n", table(&HEAD, &[], &self.rows()))
    }
}

/// A process of this program, with its own memory and its own warm-up.
fn run_ours(args: &StepArgs, stop: &AtomicBool) -> anyhow::Result<(Sample, Value, usize)> {
    let exe = std::env::current_exe().context("this program cannot find itself")?;
    let text = output(Command::new(exe).args(own_args(args)), stop).context("redraft bench")?;
    let report: Value = serde_json::from_str(&text).context("redraft bench --json")?;
    let step = &report["steps"][0];
    let wall_s = step["wall_s"]["median"].as_f64().context("redraft bench --json has no time")?;
    let rows = step["rows"].as_u64().and_then(|n| usize::try_from(n).ok());
    let rows = rows.context("redraft bench --json has no rows")?;
    let sample = Sample { wall_s, cpu_s: step["cpu_s"]["median"].as_f64() };
    Ok((sample, report, rows))
}

/// The arguments that make this program measure itself once.
fn own_args(args: &StepArgs) -> Vec<String> {
    let mut own: Vec<String> = ["bench", "--json", "--quiet"].map(String::from).into();
    let mut option = |name: &str, value: String| own.push(format!("--{name}={value}"));
    if let Some(path) = &args.model.model {
        option("model", path.display().to_string());
    }
    option("backend", args.model.backend.clone());
    if let Some(n) = args.model.threads {
        option("threads", n.to_string());
    }
    // What the environment says it says to the other process, too.
    let flag = |id: &str| !args.model.given.by_environment(id);
    if let Some(n) = args.model.numerics.filter(|_| flag("numerics")) {
        option("numerics", n.name().into());
    }
    if let Some(t) = args.model.kv_type.filter(|_| flag("kv_type")) {
        option("kv-type", t.name().into());
    }
    if let Some(n) = args.rows.first() {
        option("rows", n.to_string());
    }
    if let Some(n) = args.prompt.first() {
        option("prompt", n.to_string());
    }
    if let Some(o) = args.outputs {
        option("outputs", o.name().into());
    }
    option("repeats", args.repeats.to_string());
    if let Some(t) = args.temperature {
        option("temperature", t.to_string());
    }
    own.extend(args.self_conditioning.then(|| "--self-conditioning".into()));
    own.extend(args.model.no_mmap.then(|| "--no-mmap".into()));
    own
}

/// The other program.
fn run_theirs(command: &str, pattern: &Pattern, rows: usize, stop: &AtomicBool) -> anyhow::Result<Sample> {
    let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let text = output(Command::new(shell).args([flag, command]), stop).with_context(|| command.to_owned())?;
    pattern.read(&text, rows).with_context(|| format!("what `{command}` printed"))
}

/// What a program that must succeed prints.
fn output(command: &mut Command, stop: &AtomicBool) -> anyhow::Result<String> {
    let done = command.stdin(Stdio::null()).output().context("cannot be started")?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted.into());
    }
    let (text, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    ensure!(done.status.success(), "it ended with {}: {}", done.status, errors.trim());
    Ok(text.into_owned())
}

/// A unit of times: the name of its group, and what turns a number of it and the rows of a step into seconds.
type Unit = (&'static str, fn(f64, f64) -> f64);

/// How times are written in what a program prints.
#[derive(Debug)]
struct Pattern {
    regex: Regex,
    /// The one that it has a group of.
    time: Unit,
}

/// The units of which a pattern has one.
const UNITS: [Unit; 3] = [("seconds", |x, _| x), ("ms", |x, _| x / 1000.0), ("rate", |x, rows| rows / x)];

impl Pattern {
    fn new(text: &str) -> anyhow::Result<Pattern> {
        let regex = Regex::new(text).map_err(|e| anyhow::anyhow!("--pattern: {e}: {}", causes(&e)))?;
        let has = |name: &str| regex.group_info().to_index(regex_automata::PatternID::ZERO, name).is_some();
        let found: Vec<_> = UNITS.into_iter().filter(|(name, _)| has(name)).collect();
        let [time] = found[..] else {
            let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
            let found = if names.is_empty() { "none".into() } else { names.join(", ") };
            bail!(
                "--pattern: expected one of the groups (?<seconds>…), (?<ms>…) and (?<rate>…), found {found}"
            );
        };
        Ok(Pattern { regex, time })
    }

    /// The median of all matches.
    fn read(&self, text: &str, rows: usize) -> anyhow::Result<Sample> {
        let (mut walls, mut cpus) = (Vec::new(), Vec::new());
        let (name, seconds) = self.time;
        for m in self.regex.captures_iter(text) {
            let number = |group: &str| m.get_group_by_name(group).map(|span| &text[span.range()]);
            if let Some(x) = number(name) {
                walls.push(seconds(positive(x)?, rows as f64));
            }
            if let Some(x) = number("cpu") {
                cpus.push(positive(x)?);
            }
        }
        let wall_s = median(&walls).context("--pattern: it matches nothing")?;
        Ok(Sample { wall_s, cpu_s: median(&cpus) })
    }
}

/// The causes of an error.
fn causes(e: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(e.source(), |e| e.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn positive(text: &str) -> anyhow::Result<f64> {
    let x = text.parse().ok().filter(|x: &f64| *x > 0.0 && x.is_finite());
    x.with_context(|| format!("--pattern: expected a positive number, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn read(pattern: &str, text: &str) -> Result<Sample, String> {
        let read = || Pattern::new(pattern)?.read(text, 256);
        read().map_err(|e: anyhow::Error| format!("{e:#}"))
    }

    #[test]
    fn times_are_read_in_each_unit_and_the_median_counts() {
        let sample = |wall_s, cpu_s| Ok(Sample { wall_s, cpu_s });
        let json = "{\"run\": 0}\n{\"wall_s_median\": 11.5, \"wall_s_min\": 11.2, \"cpu_s_median\": 2.2e1}\n";
        assert_eq!(read(PATTERN, json), sample(11.5, Some(22.0)));
        assert_eq!(read(r"took (?<ms>\d+) ms", "took 9 ms\ntook 500 ms\ntook 1000 ms"), sample(0.5, None));
        assert_eq!(read(r"(?<rate>[\d.]+) t/s", "pp256: 64.0 t/s"), sample(4.0, None));
        let both = r"(?<seconds>[\d.]+) s, cpu (?<cpu>[\d.]+)";
        assert_eq!(read(both, "1 s, cpu 2\n3 s, cpu 5"), sample(2.0, Some(3.5)));
    }

    #[test]
    fn patterns_and_outputs_that_say_nothing_are_errors() {
        let error = |pattern, text| read(pattern, text).unwrap_err();
        assert!(error("(", "").starts_with("--pattern: "), "{}", error("(", ""));
        assert!(error("x", "").ends_with("found none"), "{}", error("x", ""));
        assert!(error("(?<ms>1)(?<rate>2)", "").ends_with("found ms, rate"));
        assert_eq!(error(r"(?<ms>\d+)", "nothing"), "--pattern: it matches nothing");
        assert!(error(r"(?<ms>\d+)", "0").ends_with("found `0`"));
        assert!(error(r"(?<seconds>.+)", "1e999").contains("expected a positive number"));
    }

    #[test]
    fn this_program_is_asked_for_the_same_step() {
        let line = "redraft bench -m a.gguf -t 2 --numerics fast --kv-type i8 --rows 64 --prompt 7 -r 3 \
            --outputs draws --self-conditioning --temperature 0.5 --no-mmap --backend cpu --compare x";
        let parse = |args: Vec<String>| match Cli::try_parse_from(args).unwrap().command {
            Some(Command::Bench(a)) => a.into_step(),
            other => panic!("{other:?}"),
        };
        let mut args = parse(line.split_whitespace().map(String::from).collect());
        let mut own = vec!["redraft".to_string()];
        own.extend(own_args(&args));
        let again = parse(own);
        let mut same = StepArgs { compare: args.compare.clone(), ..again };
        // In which order they stand is all the same.
        (args.model.given, same.model.given) = Default::default();
        assert_eq!(format!("{args:?}"), format!("{same:?}"));
    }
}
