//! `redraft --version`, with `-v` the facts about this build.

use redraft::arch::ARCHS;
use redraft::compute::BACKENDS;
use redraft::gguf::CODECS;
use redraft::sampler::SAMPLERS;
use serde::Serialize;

use crate::exit::Exit;
use crate::out::Out;

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What this program can do.
#[derive(Debug, Serialize)]
struct Build {
    version: &'static str,
    os: &'static str,
    arch: &'static str,
    optimized: bool,
    architectures: Vec<&'static str>,
    backends: Vec<&'static str>,
    samplers: Vec<&'static str>,
    block_types: Vec<String>,
}

impl Build {
    fn new() -> Build {
        Build {
            version: VERSION,
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            optimized: !cfg!(debug_assertions),
            architectures: ARCHS.iter().map(|a| a.name).collect(),
            backends: BACKENDS.iter().map(|b| b.name).collect(),
            samplers: SAMPLERS.iter().map(|s| s.name).collect(),
            block_types: CODECS.iter().map(|c| c.dtype().to_string()).collect(),
        }
    }
}

/// Prints it.
pub(crate) fn print(out: Out) -> anyhow::Result<Exit> {
    let b = Build::new();
    if out.json {
        out.object(&b)?;
        return Ok(Exit::Done);
    }
    let mut text = format!("redraft {}\n", b.version);
    if out.verbose > 0 {
        let rows = [
            ("target", format!("{} {}{}", b.arch, b.os, if b.optimized { "" } else { ", debug build" })),
            ("architectures", b.architectures.join(", ")),
            ("backends", b.backends.join(", ")),
            ("samplers", b.samplers.join(", ")),
            ("block types", b.block_types.join(", ")),
        ];
        rows.iter().for_each(|(name, value)| text.push_str(&format!("{name:<14} {value}\n")));
    }
    out.text(&text)?;
    Ok(Exit::Done)
}
