//! `redraft bench peak`: the clock, and the most that each level can do.

use redraft::compute::cpu::CpuLevel;
use redraft::compute::cpu::peak::{Peak, clock_ghz, peak};
use serde::Serialize;

use super::Machine;
use crate::exit::Exit;
use crate::out::Out;
use crate::ui::table::table;

/// Measure the clock and the most multiply-accumulate operations that each instruction set can do.
///
/// In registers alone: products and sums in f32, each rounded (the contract forbids fusing them), and products of
/// bytes; a second is one that the thread computed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  redraft bench peak\n  redraft bench peak -t 8 --json")]
pub(super) struct Args {
    /// Threads of the second measurement; without it as many as the machine has.
    #[arg(short, long, value_name = "N", value_parser = crate::args::model::threads)]
    threads: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    clock_ghz: Option<f64>,
    levels: Vec<Level>,
}

/// One level, with one thread and with all.
#[derive(Debug, Serialize)]
struct Level {
    level: &'static str,
    runs: Vec<Figures>,
}

/// A [`Peak`] in JSON.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Figures {
    pub(super) threads: usize,
    pub(super) f32_gmac_s: f64,
    pub(super) int8_gmac_s: f64,
}

impl From<Peak> for Figures {
    fn from(p: Peak) -> Figures {
        Figures { threads: p.threads, f32_gmac_s: p.f32_gmacs, int8_gmac_s: p.int8_gmacs }
    }
}

/// Runs the command.
pub(super) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let machine = Machine::new();
    let all = args.threads.unwrap_or(machine.cores);
    let threads: Vec<usize> = if all == 1 { vec![1] } else { vec![1, all] };
    let level = |&level: &CpuLevel| Level {
        level: level.name(),
        runs: threads.iter().map(|&t| peak(level, t).into()).collect(),
    };
    let clock = clock_ghz();
    let levels = CpuLevel::available().iter().map(level).collect();
    let report = Report { machine, clock_ghz: clock, levels };
    if out.json {
        out.object(&report)?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = report
        .levels
        .iter()
        .flat_map(|l| l.runs.iter().map(move |r| (l.level, r)))
        .map(|(level, r)| {
            vec![
                level.into(),
                r.threads.to_string(),
                format!("{:.1}", r.f32_gmac_s),
                format!("{:.1}", r.int8_gmac_s),
            ]
        })
        .collect();
    let clock = clock.map_or("unknown".into(), |c| format!("{c:.2} GHz"));
    let head = ["level", "threads", "f32 GMAC/s", "int8 GMAC/s"];
    out.text(&format!("{}\nclock {clock}\n{}", report.machine.line(), table(&head, &[1, 2, 3], &rows)))?;
    Ok(Exit::Done)
}
