//! `redraft bench`: how fast this machine is, and where the time goes.

mod compare;
mod kernels;
mod peak;
mod report;
mod step;

use serde::Serialize;

use crate::exit::Exit;
use crate::out::Out;

/// Measure denoising steps, the kernels in them, and what the machine can do at most.
///
/// A step is one pass over a canvas after a cached prompt. Without a subcommand steps of a model are timed: one to
/// warm up, then some that count, in seconds by the clock and in CPU seconds of all threads; where other programs run
/// at the same time the latter say more. With --parts a table says where the time goes; it adds up to the step. With
/// --compare steps alternate with another program's.
///
/// A step is no throughput: an answer takes several steps for each canvas (`run --json` has `wall_tok_s`).
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        redraft bench -m model.gguf -t 2 --numerics fast --parts\n  \
        redraft bench -m model.gguf --rows 32,64,128,256 --prompt 64,1024 --html steps.html\n  \
        redraft bench -m model.gguf --self-conditioning --temperature 0.05\n  \
        redraft bench -m twin.gguf --compare \"python step.py twin.gguf\" --pattern '\"wall_s\": (?<seconds>[0-9.]+)'\n  \
        redraft bench peak\n  \
        redraft bench kernels --types q4_k,q8_0"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    step: step::StepArgs,
}

#[cfg(test)]
impl Args {
    fn into_step(self) -> step::StepArgs {
        self.step
    }
}

/// What else can be measured.
#[derive(Debug, clap::Subcommand)]
enum What {
    Peak(peak::Args),
    Kernels(kernels::Args),
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    args.step.report.check(args.step.model.model.as_deref())?;
    match &args.what {
        Some(What::Peak(a)) => peak::main(a, out),
        Some(What::Kernels(a)) => kernels::main(a, out),
        None if args.step.compare.is_some() => compare::main(&args.step, out),
        None => step::main(&args.step, out),
    }
}

/// The machine, for reports.
#[derive(Debug, Clone, Serialize)]
struct Machine {
    /// As the processor calls itself, where the system tells.
    processor: Option<String>,
    /// Cores that this process may use.
    cores: usize,
    os: &'static str,
    arch: &'static str,
}

impl Machine {
    fn new() -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
        Machine {
            processor: name.map(|(_, name)| name.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
        }
    }

    fn line(&self) -> String {
        let processor = self.processor.as_deref().unwrap_or(self.arch);
        format!("{processor}, {} cores, {} {}", self.cores, self.arch, self.os)
    }
}

/// Some values of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
    all: Vec<f64>,
}

impl Spread {
    /// None of nothing.
    fn of(all: Vec<f64>) -> Option<Spread> {
        let median = redraft::bench::median(&all)?;
        let min = all.iter().copied().fold(f64::INFINITY, f64::min);
        let max = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Spread { median, min, max, all })
    }

    /// `1.234 (1.200 .. 1.300)`.
    fn text(&self) -> String {
        let n = decimals(self.min);
        format!("{:.n$} ({:.n$} .. {:.n$})", self.median, self.min, self.max)
    }
}

/// Digits after the point that seconds need: three, or as many as show three digits, down to microseconds.
fn decimals(seconds: f64) -> usize {
    (3..6).find(|&n| seconds * 10f64.powi(n) >= 100.0).unwrap_or(6) as usize
}

/// Seconds with these digits.
fn seconds(x: f64) -> String {
    format!("{x:.0$}", decimals(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_value_in_the_middle() {
        assert_eq!(Spread::of(vec![]), None);
        let s = Spread::of(vec![3.0, 1.0, 2.5]).unwrap();
        assert_eq!((s.median, s.min, s.max), (2.5, 1.0, 3.0));
        assert_eq!(s.text(), "2.500 (1.000 .. 3.000)");
        let s = Spread::of(vec![0.000_987, 0.001_234, 0.0015]).unwrap();
        assert_eq!(s.text(), "0.001234 (0.000987 .. 0.001500)");
        assert_eq!(
            (seconds(0.0123), seconds(0.25), seconds(0.0)),
            ("0.0123".into(), "0.250".into(), "0.000000".into())
        );
    }
}
