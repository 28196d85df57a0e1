//! `cargo xtask fuzz`: builds a fuzz target with the pinned stable compiler and runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::steps::run;

/// What libFuzzer needs of the compiler: counters, comparisons and addresses of the code. These are the flags of
/// cargo-fuzz without a sanitizer, which would need a nightly compiler.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Arguments of every run: an input that takes much longer or more memory than is promised is a find. The memory
/// is that of the whole process, with libFuzzer's own.
const LIMITS: [&str; 3] = ["-timeout=2", "-rss_limit_mb=512", "-max_len=1048576"];

/// The machine's own platform. With it named, the flags do not apply to build scripts and macros.
fn host() -> Result<String> {
    let out = Command::new("rustc").arg("-vV").output().context("rustc cannot be started")?;
    let text = String::from_utf8(out.stdout)?;
    let line = text.lines().find_map(|l| l.strip_prefix("host: "));
    Ok(line.context("`rustc -vV` names no host")?.to_string())
}

/// Builds and runs a target with libFuzzer's arguments.
///
/// # Errors
/// No such target, no C++ compiler, or a find.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the workspace")?;
    let fuzz = root.join("fuzz");
    let text = |p: PathBuf| p.display().to_string();
    let Some((target, args)) = args.split_first() else {
        bail!("usage: cargo xtask fuzz TARGET [LIBFUZZER-ARGUMENT]...")
    };
    if !fuzz.join(format!("fuzz_targets/{target}.rs")).is_file() {
        bail!("there is no fuzz target {target}: fuzz/fuzz_targets/ has them");
    }
    let host = host()?;
    let manifest = text(fuzz.join("Cargo.toml"));
    let build = ["build", "--release", "--manifest-path", &manifest, "--target", &host, "--bin", target];
    let folder = text(fuzz.join("target"));
    run("cargo", &build, &[("RUSTFLAGS", COVERAGE), ("CARGO_TARGET_DIR", &folder)])?;

    // What a run finds goes to the first folder; `-merge=1` moves what is worth keeping to the corpus.
    let (found, artifacts) = (fuzz.join("target/corpus").join(target), fuzz.join("artifacts").join(target));
    std::fs::create_dir_all(&found)?;
    std::fs::create_dir_all(&artifacts)?;
    let mut all: Vec<String> = LIMITS.map(String::from).into();
    all.push(format!("-artifact_prefix={}/", artifacts.display()));
    all.extend_from_slice(args);
    if !args.iter().any(|a| !a.starts_with('-')) {
        all.push(text(found.clone()));
        all.extend(Some(fuzz.join("corpus").join(target)).filter(|p| p.is_dir()).map(text));
        let seeds = std::fs::read_to_string(fuzz.join("seeds.txt"))?;
        let of_target = |l: &str| l.split_once(' ').filter(|s| s.0 == target).map(|s| root.join(s.1));
        for seed in seeds.lines().filter_map(of_target) {
            // libFuzzer takes folders only.
            match seed.file_name().filter(|_| seed.is_file()) {
                Some(name) => drop(std::fs::copy(&seed, found.join(name))?),
                None => all.push(text(seed)),
            }
        }
    }
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    run(&text(fuzz.join("target").join(host).join("release").join(target)), &all, &[])
}
