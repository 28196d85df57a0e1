//! Answers whose digests must be equal on everything that this machine can compute with.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::steps::program;

/// The emulated platform.
pub(crate) const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Prompts whose digests everything must agree on: a tiny model with random weights over two canvases, a
/// tiny model of masks with everything drawn, two that read block by block, and the embedded model in both modes.
const RUNS: &[&[&str]] = &[
    &[
        "-m",
        "testdata/oracle/models/dg-tiny.Q4_K_M.gguf",
        "--tokens",
        "2,31,87,400,5,66",
        "-n",
        "50",
        "--steps",
        "5",
    ],
    &[
        "-m",
        "testdata/oracle/models/dream-tiny.F16.gguf",
        "--tokens",
        "20,31,57",
        "-n",
        "12",
        "--sampler",
        "maskgit-plus",
        "--temperature",
        "0.8",
        "--top-p",
        "0.9",
        "--top-k",
        "40",
        "--cfg-scale",
        "0.5",
        "--alg-temp",
        "0.3",
    ],
    &["-m", "testdata/block-diffusion/models/fast-dllm-tiny.BF16.gguf", "--tokens", "20,31,57", "-n", "20"],
    &["-m", "testdata/llada2/models/llada2-tiny.BF16.gguf", "--tokens", "20,31,57", "-n", "20"],
    &["List the numbers from 19 to 31."],
    &["--numerics", "exact", "List the numbers from 19 to 31."],
];

/// One way to compute: its name, the command, and the environment.
struct Way {
    name: String,
    command: Vec<String>,
    level: Option<String>,
}

/// What this machine has: levels of the processor, devices, and the emulated platform where it is built.
fn ways() -> Result<Vec<Way>> {
    let here = program(None);
    let list = Command::new(&here).args(["devices", "--json"]).output().with_context(|| here.clone())?;
    let devices = String::from_utf8_lossy(&list.stdout).into_owned();
    let mut ways = Vec::new();
    for level in
        ["scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "neon", "neondot", "neoni8mm"]
    {
        // A level that the processor lacks is an error of its own.
        let has = Command::new(&here)
            .args(["run", "--json", "--quiet", "-n", "1", "--steps", "1", "a"])
            .env("REDRAFT_CPU", level)
            .output()
            .is_ok_and(|o| o.status.success());
        if has {
            ways.push(Way { name: level.into(), command: vec![here.clone()], level: Some(level.into()) });
        }
    }
    if devices.replace(' ', "").contains("\"backend\":\"wgpu\"") {
        let command = [here.as_str(), "--backend", "wgpu"].map(String::from).to_vec();
        ways.push(Way { name: "wgpu".into(), command, level: None });
    } else if std::env::var_os("REDRAFT_CI").is_some() {
        bail!("no device for wgpu: install mesa-vulkan-drivers");
    }
    let emulated = program(Some(AARCH64));
    if Path::new(&emulated).exists() {
        let command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", "max", &emulated];
        ways.push(Way { name: "aarch64".into(), command: command.map(String::from).to_vec(), level: None });
    }
    Ok(ways)
}

/// The `digest` object that `run --json` gives.
fn digest(way: &Way, args: &[&str]) -> Result<String> {
    let mut command = Command::new(&way.command[0]);
    // Options of the model stand behind the command of the program.
    let split = way.command.iter().position(|a| a == "--backend").unwrap_or(way.command.len());
    command
        .args(&way.command[1..split])
        .args(["run", "--json", "--quiet"])
        .args(&way.command[split..])
        .args(args);
    if let Some(level) = &way.level {
        command.env("REDRAFT_CPU", level);
    }
    let out = command.output().with_context(|| format!("{} cannot be started", way.command[0]))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let Some((_, digest)) = text.split_once("\"digest\":") else {
        bail!("{} {args:?} gave no digest: {text}{}", way.name, String::from_utf8_lossy(&out.stderr));
    };
    Ok(digest.split_once('}').map_or(digest, |(d, _)| d).replace([' ', '\n', '"', '{'], ""))
}

/// Runs all prompts in all ways, prints the table, and fails where two differ.
pub(crate) fn compare() -> Result<()> {
    let ways = ways()?;
    let mut different = Vec::new();
    for args in RUNS {
        let mut seen: Vec<(String, Vec<&str>)> = Vec::new();
        for way in &ways {
            let digest = digest(way, args)?;
            match seen.iter_mut().find(|(d, _)| *d == digest) {
                Some((_, names)) => names.push(&way.name),
                None => seen.push((digest, vec![&way.name])),
            }
        }
        println!("{}", args.join(" "));
        for (digest, names) in &seen {
            println!("  {digest}  {}", names.join(" "));
        }
        if seen.len() != 1 {
            different.push(args.join(" "));
        }
    }
    if different.is_empty() { Ok(()) } else { bail!("digests differ: {}", different.join("; ")) }
}
