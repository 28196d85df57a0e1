//! Developer tasks: `cargo xtask ci` is what people and machines run before a change lands.

#![allow(clippy::print_stdout, reason = "a developer tool that reports on the terminal")]

mod budget;
mod cuda;
mod digests;
mod emulate;
mod fuzz;
mod hip;
mod instructions;
mod modules;
mod proofs;
mod steps;
mod wgsl;

use anyhow::{Result, bail};

const HELP: &str = "usage: cargo xtask TASK

  ci       all checks: format, lints, budgets, tests, docs, goldens, emulated aarch64
  budget   line budgets of source files, and names that must not leave their files
  instructions [--store]: instruction counts of fixed small workloads against stored numbers (valgrind)
  wgsl [--check]: kernels of GPUs from their texts; with --check compares those that are there
  cuda [--check]: modules of NVIDIA's GPUs, and what their assembler says of them; fetches the compiler from PyPI
  digests  answers on everything that this machine can compute with, side by side
  hip [--check]: modules of AMD's GPUs, by clang-19 with lld-19 and llvm-19
  emulate  the backends of CUDA and HIP over drivers of ours that run the kernels on the host
  page     the page of the server in a real browser: against a mock, and against the built program
  clients  [ARGUMENT]...: other people's clients of the API against the built program, see scripts/clients/run.py
  schema   [CASES]: schemathesis generates requests from openapi.json; no answer may be an error of the server
  load     [ARGUMENT]...: many clients at once, see scripts/load.py
  fuzz     TARGET [LIBFUZZER-ARGUMENT]...: builds and runs a fuzz target, see fuzz/README.md

REDRAFT_CI=1 makes a step that cannot run here a failure instead of a line in the summary.";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(2).collect();
    match std::env::args().nth(1).as_deref() {
        Some("ci") => steps::ci(),
        Some("budget") => budget::check(),
        Some("instructions") => steps::instructions(args.iter().any(|a| a == "--store")),
        Some("wgsl") => wgsl::wgsl(args.iter().any(|a| a == "--check")),
        Some("cuda") => cuda::cuda(args.iter().any(|a| a == "--check")),
        Some("digests") => digests::compare(),
        Some("hip") => hip::hip(args.iter().any(|a| a == "--check")),
        Some("emulate") => emulate::emulate(),
        Some("page") => proofs::page(),
        Some("clients") => proofs::clients(&args),
        Some("schema") => proofs::schema(args.first().map_or("10000", String::as_str)),
        Some("load") => proofs::load(&args),
        Some("fuzz") => fuzz::fuzz(&args),
        _ => bail!("{HELP}"),
    }
}
