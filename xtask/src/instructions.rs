//! `cargo xtask instructions`: how many instructions fixed small workloads take, against stored numbers.
//!
//! Instruction counts do not depend on what else the machine does, so they show a regression that no clock in CI
//! could. valgrind counts them. It knows no AVX-512, and the count depends on the instruction set, so every workload
//! fixes the level; one thread, or the threads' waiting would be counted.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Numbers that were counted before, `NAME COUNT` a line.
const STORED: &str = "xtask/instructions.txt";

/// What a count may differ from the stored one: the hash seeds of the standard library and the C library of the
/// machine move it by less than a hundredth.
const TOLERANCE: f64 = 0.03;

/// A workload: its name, the level, arguments.
struct Workload {
    name: &'static str,
    level: &'static str,
    args: &'static [&'static str],
}

/// Each on the embedded model with one thread: starting, and steps in both modes.
const WORKLOADS: &[Workload] = &[
    Workload { name: "start", level: "avx2", args: &["tokenize", "What is the capital of France?"] },
    Workload {
        name: "exact-avx2",
        level: "avx2",
        args: &["run", "--threads=1", "--numerics=exact", "--steps=2", "What is the capital of France?"],
    },
    Workload {
        name: "fast-avx2",
        level: "avx2",
        args: &["run", "--threads=1", "--numerics=fast", "--steps=2", "What is the capital of France?"],
    },
];

/// Why the counts cannot be made here.
pub(crate) fn missing() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the stored numbers are those of x86-64");
    }
    #[cfg(target_arch = "x86_64")]
    if !std::arch::is_x86_feature_detected!("avx2") {
        return Some("the processor lacks AVX2");
    }
    let answers = Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success());
    (!answers).then_some("install valgrind")
}

/// Counts the workloads of the built `program` and compares; with `store` writes the numbers instead.
///
/// # Errors
/// A workload that fails, or takes more or fewer instructions than stored.
pub(crate) fn check(program: &str, store: bool) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the workspace")?;
    let path = root.join(STORED);
    let mut counted = Vec::new();
    for w in WORKLOADS {
        counted.push((w.name, count(program, w).with_context(|| w.name)?));
    }
    if store {
        let lines: String = counted.iter().map(|(name, n)| format!("{name} {n}\n")).collect();
        return std::fs::write(&path, lines).context(STORED);
    }
    let text = std::fs::read_to_string(&path).context(STORED)?;
    let mut problems = Vec::new();
    for (name, n) in counted {
        let stored = stored(&text, name).with_context(|| format!("{STORED} has no number for {name}"))?;
        let change = n as f64 / stored as f64 - 1.0;
        println!("{name:<12} {n:>13} instructions, {:+.2} % of the stored {stored}", 100.0 * change);
        if change.abs() > TOLERANCE {
            problems.push(format!("{name}: {n} instructions, {:+.1} %", 100.0 * change));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\nmore than {} % from {STORED}: if that is meant, `cargo xtask instructions --store` and say why in the commit",
        problems.join("\n"),
        100.0 * TOLERANCE
    )
}

/// Instructions of one workload.
fn count(program: &str, w: &Workload) -> Result<u64> {
    let done = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", program])
        .args(["--quiet", "--json"])
        .args(w.args)
        .env("REDRAFT_CPU", w.level)
        .output()
        .context("valgrind cannot be started")?;
    let text = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        bail!("ended with {}: {text}", done.status);
    }
    refs(&text).with_context(|| format!("valgrind printed no count: {text}"))
}

/// The number in `==12== I   refs:      1,234`; newer versions write `I refs:`.
fn refs(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.contains("refs:") && l.contains("== I"))?;
    let (_, number) = line.split_once("refs:")?;
    number.trim().replace(',', "").parse().ok()
}

/// The stored number of a workload.
fn stored(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.split_once(' ').filter(|(n, _)| *n == name))?;
    line.1.trim().parse().ok().filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        assert_eq!(refs("==7== \n==7== I   refs:      1,234,567\n"), Some(1_234_567));
        assert_eq!(refs("==7== I refs:        89"), Some(89));
        assert_eq!(refs("==7== D refs: 5"), None);
        assert_eq!(stored("a 5\nab 6\n", "ab"), Some(6));
        assert_eq!(stored("a 0\n", "a"), None);
    }
}
