//! `redraft bench kernels`: products with each block type.

use redraft::bench::{KERNEL_TOKENS, KERNEL_TYPES, Kernel, kernel};
use redraft::compute::Numerics;
use redraft::compute::cpu::CpuLevel;
use redraft::compute::cpu::peak::peak;
use redraft::gguf::DType;
use serde::Serialize;

use super::Machine;
use super::peak::Figures;
use crate::exit::Exit;
use crate::out::Out;
use crate::ui::table::table;

/// Measure the products of each block type: GMAC/s of one thread.
///
/// Activations of 1, 16 and 256 tokens with 2112 outputs of 2816 inputs, the best of some runs, in time that the
/// thread computed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft bench kernels\n  \
    redraft bench kernels --types q4_k,q6_k --levels avx2 --json")]
pub(super) struct Args {
    /// Block types; without it all that published files carry.
    #[arg(long, value_name = "T,..", value_delimiter = ',', value_parser = dtype)]
    types: Vec<DType>,

    /// Instruction sets; without it the best of this machine.
    #[arg(long, value_name = "L,..", value_delimiter = ',', value_parser = level)]
    levels: Vec<CpuLevel>,

    /// Number of tokens.
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = tokens,
        default_values_t = KERNEL_TOKENS)]
    tokens: Vec<usize>,
}

fn dtype(text: &str) -> Result<DType, String> {
    let found = KERNEL_TYPES.iter().copied().find(|t| t.name().eq_ignore_ascii_case(text));
    let names: Vec<_> = KERNEL_TYPES.iter().map(|t| t.name()).collect();
    found.ok_or_else(|| format!("expected one of {}", names.join(", ").to_lowercase()))
}

/// More than any canvas or part of a prompt has; the activations still fit into memory.
const MAX_TOKENS: usize = 65536;

fn tokens(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=MAX_TOKENS) => Ok(n),
        _ => Err(format!("expected a whole number in 1..={MAX_TOKENS}")),
    }
}

fn level(text: &str) -> Result<CpuLevel, String> {
    CpuLevel::from_name(text).map_err(|e| e.to_string())
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    /// Output and input features.
    shape: [usize; 2],
    levels: Vec<Level>,
}

#[derive(Debug, Serialize)]
struct Level {
    level: &'static str,
    peak: Figures,
    kernels: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    #[serde(rename = "type")]
    dtype: String,
    numerics: &'static str,
    tokens: usize,
    gmac_s: f64,
}

/// The dense feed-forward of DiffusionGemma 26B-A4B.
const SHAPE: [usize; 2] = [2112, 2816];

/// Runs the command.
pub(super) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let stop = crate::interrupt::flag()?;
    let types = if args.types.is_empty() { KERNEL_TYPES } else { &args.types };
    let best = [CpuLevel::best()];
    let levels = if args.levels.is_empty() { &best[..] } else { &args.levels };
    let mut report = Report { machine: Machine::new(), shape: SHAPE, levels: Vec::new() };
    for &level in levels {
        let mut kernels = Vec::new();
        for &dtype in types {
            for &numerics in Numerics::ALL {
                for &tokens in &args.tokens {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        return Err(redraft::Error::Interrupted.into());
                    }
                    let [rows, cols] = SHAPE;
                    let k = Kernel { dtype, numerics, tokens, rows, cols, level };
                    let gmac_s = kernel(&k)?;
                    kernels.push(Line {
                        dtype: dtype.name().into_owned(),
                        numerics: numerics.name(),
                        tokens,
                        gmac_s,
                    });
                }
            }
        }
        report.levels.push(Level { level: level.name(), peak: peak(level, 1).into(), kernels });
    }
    if out.json {
        out.object(&report)?;
        return Ok(Exit::Done);
    }
    let mut text = format!("{}\n", report.machine.line());
    let tokens: Vec<String> =
        Numerics::ALL.iter().flat_map(|n| args.tokens.iter().map(|t| format!("{} {t}", n.name()))).collect();
    let head: Vec<&str> = std::iter::once("type").chain(tokens.iter().map(String::as_str)).collect();
    let right: Vec<usize> = (1..head.len()).collect();
    for l in &report.levels {
        let rows: Vec<Vec<String>> = l
            .kernels
            .chunks(tokens.len().max(1))
            .map(|c| {
                let rates = c.iter().map(|k| format!("{:.1}", k.gmac_s));
                std::iter::once(c[0].dtype.clone()).chain(rates).collect()
            })
            .collect();
        text.push_str(&format!(
            "{}, one thread, GMAC/s by mode and tokens; at most {:.1} in f32, {:.1} in int8\n{}",
            l.level,
            l.peak.f32_gmac_s,
            l.peak.int8_gmac_s,
            table(&head, &right, &rows)
        ));
    }
    out.text(&text)?;
    Ok(Exit::Done)
}
