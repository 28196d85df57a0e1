//! The steps of `ci`, in order, with their times.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::digests::{self, AARCH64};
use crate::{budget, cuda, emulate, hip, instructions, proofs, wgsl};

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

    /// What is left out wherever somebody did not install it, on the machines of CI, too.
    fn note(&mut self, line: &str) {
        self.skipped.push(line.into());
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
pub(crate) fn run(program: &str, args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    println!("$ {program} {}", args.join(" "));
    let status = Command::new(program)
        .args(args)
        .envs(env.iter().copied())
        .status()
        .with_context(|| format!("{program} cannot be started"))?;
    if status.success() { Ok(()) } else { bail!("{program} {} ended with {status}", args.join(" ")) }
}

/// Whether a command answers.
pub(crate) fn answers(program: &str, args: &[&str]) -> bool {
    let quiet = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|s| s.success())
}

/// Path of the built program.
pub(crate) fn program(target: Option<&str>) -> String {
    built(target, "debug")
}

/// The same for another profile.
pub(crate) fn built(target: Option<&str>, profile: &str) -> String {
    let folder = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    let target = target.map_or(String::new(), |t| format!("{t}/"));
    format!("{folder}/{target}{profile}/redraft")
}

/// Builds the program and counts its instructions.
pub(crate) fn instructions(store: bool) -> Result<()> {
    if let Some(why) = instructions::missing() {
        bail!("instruction counts cannot be made here: {why}");
    }
    run("cargo", &["build", "--package", "redraft-cli", "--locked"], &[])?;
    instructions::check(&program(None), store)
}

pub(crate) fn ci() -> Result<()> {
    let mut s = Summary { lines: Vec::new(), skipped: Vec::new() };
    let deny = [("RUSTDOCFLAGS", "-D warnings")];
    s.step("format", || run("cargo", &["fmt", "--all", "--check"], &[]))?;
    s.step("budgets", budget::check)?;
    s.step("kernels of GPUs", || wgsl::wgsl(true))?;
    match cuda::missing() {
        Some(why) => s.skip("modules of CUDA", why)?,
        None => s.step("modules of CUDA", || cuda::cuda(true))?,
    }
    match hip::missing() {
        Some(why) => s.skip("modules of HIP", why)?,
        None => s.step("modules of HIP", || hip::hip(true))?,
    }
    s.step("lints", || {
        run("cargo", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"], &[])
    })?;
    s.step("tests", || {
        run("cargo", &["test", "--workspace", "--locked", "--", "--nocapture", "--test-threads=2"], &[])
    })?;
    match emulate::missing() {
        Some(why) => s.skip("CUDA and HIP over drivers of ours", why)?,
        None => s.step("CUDA and HIP over drivers of ours", emulate::emulate)?,
    }
    s.step("docs", || run("cargo", &["doc", "--workspace", "--no-deps", "--locked"], &deny))?;
    if answers("python3", &["-c", "import numpy"]) {
        s.step("goldens, judged by the oracle's own script", || {
            run("cargo", &["build", "--package", "redraft-cli", "--locked"], &[])?;
            run("python3", &["scripts/judge_goldens.py", &program(None)], &[])
        })?;
    } else {
        s.skip("goldens, judged by the oracle's own script", "python3 with numpy is missing")?;
    }
    let python = std::env::var("REDRAFT_PYTHON").unwrap_or_else(|_| "python3".into());
    if answers(&python, &["-c", "import llama_cpp"]) {
        s.step("converted files, loaded by llama.cpp", || {
            let test =
                ["--package", "redraft", "--test", "convert", "--locked", "--", "--ignored", "llama_cpp"];
            run("cargo", &[&["test"][..], &test].concat(), &[])
        })?;
    } else {
        s.note(&format!("converted files, loaded by llama.cpp: {python} has no llama-cpp-python"));
    }
    match proofs::page_missing() {
        Some(why) => s.skip("the page in a browser", why)?,
        None => s.step("the page in a browser", proofs::page)?,
    }
    match instructions::missing() {
        Some(why) => s.skip("instruction counts", why)?,
        None => s.step("instruction counts", || instructions(false))?,
    }
    if !answers("qemu-aarch64", &["--version"]) || !answers("aarch64-linux-gnu-gcc", &["--version"]) {
        let why = "install gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user";
        s.skip("equal bits on emulated aarch64", why)?;
    } else {
        s.step("equal bits on emulated aarch64", || {
            run("rustup", &["target", "add", AARCH64], &[])
                .context("the aarch64 standard library cannot be installed")?;
            run("cargo", &["test", "--locked", "--target", AARCH64, "--package", "redraft-compute"], &[])?;
            let cli = [
                "build",
                "--locked",
                "--target",
                AARCH64,
                "--package",
                "redraft-cli",
                "--no-default-features",
            ];
            run("cargo", &cli, &[])
        })?;
    }
    s.step("equal digests of answers everywhere", || {
        run("cargo", &["build", "--locked", "--package", "redraft-cli"], &[])?;
        digests::compare()
    })?;
    println!("\n{}", s.lines.join("\n"));
    println!("skipped: {}", s.skipped.len());
    s.skipped.iter().for_each(|line| println!("  {line}"));
    Ok(())
}
