//! The steps of `ci`, in order, with their times.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::budget;

/// The emulated platform whose bits must be equal to this one's.
const AARCH64: &str = "aarch64-unknown-linux-gnu";

struct Summary {
    lines: Vec<String>,
    skipped: Vec<String>,
}

impl Summary {
    fn step(&mut self, name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("== {name}");
        let start = Instant::now();
        run().with_context(|| format!("step `{name}` failed"))?;
        self.lines.push(format!("{:>6.1} s  {name}", start.elapsed().as_secs_f64()));
        Ok(())
    }

    fn skip(&mut self, name: &str, why: &str) -> Result<()> {
        if std::env::var_os("REDRAFT_CI").is_some() {
            bail!("step `{name}` cannot run here: {why}");
        }
        self.skipped.push(format!("{name}: {why}"));
        Ok(())
    }
}

/// Runs a command and fails with its own words.
fn run(program: &str, args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    println!("$ {program} {}", args.join(" "));
    let status = Command::new(program)
        .args(args)
        .envs(env.iter().copied())
        .status()
        .with_context(|| format!("{program} cannot be started"))?;
    if status.success() { Ok(()) } else { bail!("{program} {} ended with {status}", args.join(" ")) }
}

/// Whether a command answers.
fn answers(program: &str, args: &[&str]) -> bool {
    let quiet = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|s| s.success())
}

pub(crate) fn ci() -> Result<()> {
    let mut s = Summary { lines: Vec::new(), skipped: Vec::new() };
    let deny = [("RUSTDOCFLAGS", "-D warnings")];
    s.step("format", || run("cargo", &["fmt", "--all", "--check"], &[]))?;
    s.step("budgets", budget::check)?;
    s.step("lints", || {
        run("cargo", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"], &[])
    })?;
    s.step("tests", || {
        run("cargo", &["test", "--workspace", "--locked", "--", "--nocapture", "--test-threads=2"], &[])
    })?;
    s.step("docs", || run("cargo", &["doc", "--workspace", "--no-deps", "--locked"], &deny))?;
    if answers("python3", &["-c", "import numpy"]) {
        s.step("goldens, judged by the oracle's own script", || {
            run("cargo", &["build", "--package", "redraft-cli", "--locked"], &[])?;
            run("python3", &["scripts/judge_goldens.py"], &[])
        })?;
    } else {
        s.skip("goldens, judged by the oracle's own script", "python3 with numpy is missing")?;
    }
    if !answers("qemu-aarch64", &["--version"]) || !answers("aarch64-linux-gnu-gcc", &["--version"]) {
        let why = "install gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user";
        s.skip("equal bits on emulated aarch64", why)?;
    } else {
        s.step("equal bits on emulated aarch64", || {
            run("rustup", &["target", "add", AARCH64], &[])
                .context("the aarch64 standard library cannot be installed")?;
            let common = ["test", "--locked", "--target", AARCH64];
            let mut compute = common.to_vec();
            compute.extend(["--package", "redraft-compute"]);
            run("cargo", &compute, &[])?;
            let mut model = common.to_vec();
            model.extend(["--package", "redraft", "--test", "invariance", "the_digest_is_the_same"]);
            run("cargo", &model, &[])
        })?;
    }
    println!("\n{}", s.lines.join("\n"));
    println!("skipped: {}", s.skipped.len());
    s.skipped.iter().for_each(|line| println!("  {line}"));
    Ok(())
}
