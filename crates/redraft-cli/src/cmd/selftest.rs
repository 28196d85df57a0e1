//! `redraft selftest`: the conformance suite on this machine.

use redraft::compute::conformance::{Class, Failure, Probe, Report, Suite};
use redraft::compute::{BACKENDS, BackendOptions, BackendSpec};
use serde::Serialize;

use crate::args::model::{backends, threads};
use crate::exit::Exit;
use crate::out::Out;
use crate::ui::table::table;

/// Run the conformance suite on this machine: every op, bit for bit against the definition.
///
/// Without --backend all backends that this machine has are tested. Two machines with the same digests have the same bits in
/// every case. The exit code is 1 where anything differs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  redraft selftest\n  redraft selftest --backend wgpu --device 0\n  redraft selftest --quick"
)]
pub(crate) struct Args {
    /// Only this backend.
    #[arg(long, value_name = "NAME", value_parser = backends())]
    backend: Option<String>,

    /// Device of the backend, by the number that `redraft devices` gives it.
    #[arg(long, value_name = "N", requires = "backend")]
    device: Option<String>,

    /// Threads of the processor.
    #[arg(short, long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,

    /// A few cases of each op, and of a device its operations: what is done the first time that a device is used.
    #[arg(long)]
    quick: bool,
}

/// Differences that are shown without -v.
const SHOWN: usize = 20;

#[derive(Debug, Serialize)]
struct Tested {
    backend: &'static str,
    level: String,
    cases: usize,
    equal: usize,
    digest: String,
    fast_digest: String,
    class: &'static str,
    differences: Vec<String>,
    seconds: f64,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let mut list = Vec::new();
    let suite = if args.quick { None } else { Some(Suite::new()?) };
    let wanted = |b: &&BackendSpec| match args.backend.as_deref() {
        None => !(b.devices)().is_empty(),
        Some("auto") => !b.on_device,
        Some(name) => b.name == name,
    };
    for spec in BACKENDS.iter().filter(wanted) {
        let options =
            BackendOptions { device: args.device.clone(), threads: args.threads, ..Default::default() };
        let start = std::time::Instant::now();
        let mut tested = match &suite {
            Some(suite) => full(&suite.check(spec, &options)?),
            None => quick(spec, &options)?,
        };
        tested.seconds = start.elapsed().as_secs_f64();
        list.push(tested);
    }
    let wrong = list.iter().any(|t| !t.differences.is_empty());
    if out.json {
        out.object(&serde_json::json!({ "tested": list, "equal": !wrong }))?;
    } else {
        print(&list, out)?;
    }
    Ok(if wrong { Exit::No } else { Exit::Done })
}

fn full(report: &Report) -> Tested {
    Tested {
        backend: report.capabilities.backend,
        level: report.capabilities.level.clone(),
        cases: report.passed + report.failures.len(),
        equal: report.passed,
        digest: format!("{:016x}", report.digest),
        fast_digest: format!("{:016x}", report.fast_digest),
        class: if report.failures.is_empty() { Class::Exact.name() } else { Class::Approx.name() },
        differences: report.failures.iter().map(Failure::to_string).collect(),
        seconds: 0.0,
    }
}

fn quick(spec: &BackendSpec, options: &BackendOptions) -> anyhow::Result<Tested> {
    let probe = Probe::new(spec, options)?;
    let wrong = probe.checks.iter().filter(|c| !c.passed).map(|c| format!("{}: {}", c.name, c.said));
    let differences: Vec<String> = wrong.chain(probe.failures.iter().map(Failure::to_string)).collect();
    let cases = probe.checks.len() + probe.cases;
    Ok(Tested {
        backend: probe.capabilities.backend,
        level: probe.capabilities.level,
        cases,
        equal: cases - differences.len(),
        digest: format!("{:016x}", probe.digest),
        fast_digest: format!("{:016x}", probe.fast_digest),
        class: probe.class.name(),
        differences,
        seconds: 0.0,
    })
}

fn print(list: &[Tested], out: Out) -> anyhow::Result<()> {
    let rows: Vec<Vec<String>> = list
        .iter()
        .map(|t| {
            vec![
                t.backend.into(),
                t.class.into(),
                format!("{} of {}", t.equal, t.cases),
                t.digest.clone(),
                t.fast_digest.clone(),
                format!("{:.1}", t.seconds),
                t.level.clone(),
            ]
        })
        .collect();
    let heading = ["backend", "class", "equal", "digest (exact)", "digest (fast)", "seconds", "computes by"];
    out.text(&table(&heading, &[2, 5], &rows))?;
    for t in list {
        let shown = if out.verbose > 0 { t.differences.len() } else { SHOWN.min(t.differences.len()) };
        for difference in &t.differences[..shown] {
            out.text(&format!("{}: {difference}\n", t.backend))?;
        }
        if shown < t.differences.len() {
            out.text(&format!("{}: and {} more (-v)\n", t.backend, t.differences.len() - shown))?;
        }
    }
    Ok(())
}
