//! Line budgets, and names that must stay in their files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Lines of a source file without its tests.
const LIMIT: usize = 700;
/// Lines of an architecture file without its tests.
const ARCH_LIMIT: usize = 300;
/// A name, and the files in which library code may say it: a model, sampler or backend is one file and one
/// line in a registry.
const NAMES: &[(&str, &[&str])] = &[
    ("diffusion-gemma", &["arch/diffusion_gemma.rs", "synth/"]),
    ("dream", &["arch/dream.rs", "chat/builtin.rs", "synth/"]),
    ("llada", &["arch/llada.rs", "arch/llada2.rs", "arch/llada_moe.rs", "synth/", "tokenizer/"]),
    ("rnd1", &["arch/rnd1.rs", "synth/"]),
    ("sdar", &["arch/sdar.rs", "arch/sdar_moe.rs", "synth/"]),
    ("a2d-qwen", &["arch/a2d_qwen2.rs", "arch/a2d_qwen3.rs", "synth/"]),
    ("fast-dllm", &["arch/fast_dllm.rs", "synth/"]),
    ("entropy-bound", &["sampler/entropy_bound.rs", "sampler/entropy_bound_monotone.rs"]),
    ("low-confidence", &["sampler/low_confidence.rs"]),
    ("maskgit-plus", &["sampler/maskgit_plus.rs"]),
    ("dynamic-threshold", &["sampler/dynamic_threshold.rs"]),
    ("joint-threshold", &["sampler/joint_threshold.rs"]),
    ("edit\"", &["sampler/edit.rs"]),
    ("topk-margin", &["sampler/topk_margin.rs"]),
];

fn source_files(dir: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            source_files(&path, out)?;
        } else if path.extension().is_some_and(|e| ["rs", "html", "css", "js"].iter().any(|kind| e == *kind))
        {
            out.push(path);
        }
    }
    Ok(())
}

/// The part of a source file before its unit tests.
fn without_tests(text: &str) -> &str {
    let starts = ["#[cfg(test)]\nmod ", "#[cfg(test)]\npub(super) mod "];
    starts.iter().filter_map(|start| text.find(start)).min().map_or(text, |at| &text[..at])
}

pub(crate) fn check() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the workspace")?;
    let mut files = Vec::new();
    for dir in ["crates", "xtask", "fuzz/src", "fuzz/fuzz_targets"] {
        source_files(&root.join(dir), &mut files)?;
    }
    files.sort();
    let mut problems = Vec::new();
    for file in files {
        let name = file.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&file)?;
        let code = without_tests(&text);
        let lines = code.lines().count();
        let arch = name.contains("/src/arch/") && !name.ends_with("/mod.rs");
        let limit = if arch { ARCH_LIMIT } else { LIMIT };
        if lines > limit {
            problems.push(format!("{name}: {lines} lines, the limit is {limit}"));
        }
        if !name.starts_with("crates/redraft/src/") {
            continue;
        }
        for (word, allowed) in NAMES {
            let here = allowed.iter().any(|a| name.contains(a));
            let spoken =
                code.lines().any(|l| !l.trim_start().starts_with("//") && l.contains(&format!("\"{word}")));
            if spoken && !here {
                problems.push(format!("{name}: says `{word}`, which belongs to {}", allowed.join(", ")));
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n")) }
}
