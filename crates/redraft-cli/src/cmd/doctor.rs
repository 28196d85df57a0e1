//! `redraft doctor`: a verdict on a model file, what is wrong with it, and a corrected copy.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use redraft::doctor::{Figures, Finding, Options, Report, Severity, Verdict, examine};
use redraft::gguf::Shown;
use serde::Serialize;

use crate::exit::Exit;
use crate::files::{about_file, check_model, refuse_special};
use crate::interrupt;
use crate::out::Out;
use crate::ui::progress::{Bytes, human_bytes};
use crate::ui::text::shortened;

/// Say whether a model file can be run, what is wrong with it and how to put it right.
///
/// The verdict is one of SUPPORTED, SUPPORTED_WITH_FIXES, LOADS_BUT_DECODE_UNSUPPORTED, BACKEND_KERNEL_GAP,
/// NEEDS_ARCH_SUPPORT, NOT_A_DIFFUSION_MODEL and DAMAGED. The exit code is 0 for the first two and 1 for the others.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft doctor model.gguf\n  \
    redraft doctor model.gguf --fix fixed.gguf\n  \
    redraft doctor --json model.gguf | jq .verdict")]
pub(crate) struct Args {
    /// The file; of a split model one of its files.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Write a copy with corrected metadata. Tensors are copied as they are; the input is not touched.
    #[arg(long, value_name = "OUT")]
    fix: Option<PathBuf>,

    /// Replace the file of --fix when it exists.
    #[arg(long, requires = "fix")]
    force: bool,

    /// Look for NaN and infinity in all weights, not only in norms, biases and other small tensors.
    #[arg(long)]
    deep: bool,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    file: String,
    #[serde(flatten)]
    report: &'a Report,
    /// The copy that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed: Option<Fixed>,
}

#[derive(Debug, Serialize)]
struct Fixed {
    file: String,
    verdict: Verdict,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let path = &args.file;
    refuse_special(path, "a GGUF file")?;
    if let Some(copy) = &args.fix {
        check_model(copy, args.force, &[Some(path)])?;
    }
    let options = Options { deep: args.deep, roofline: true };
    let report = examine(path, options).map_err(|e| about_file(e, path))?;
    let fixed = match (&args.fix, &report.repair) {
        (Some(copy), Some(repair)) => {
            let stop = interrupt::flag()?;
            let bar = Bytes::new("writing", 0, !out.quiet && out.err_terminal);
            let written = repair.write(copy, args.force, &mut |done, total| {
                bar.set(done, total);
                !stop.load(Ordering::Relaxed)
            });
            bar.finish();
            written?;
            let again = examine(copy, Options::default()).map_err(|e| about_file(e, copy))?;
            Some(Fixed { file: copy.display().to_string(), verdict: again.verdict })
        }
        (Some(copy), None) => {
            let why = match report.verdict.is_supported() {
                true => "there is nothing to fix",
                false => "no change of metadata makes this file run",
            };
            out.warn(&format!("{} is not written: {why}", copy.display()));
            None
        }
        (None, _) => None,
    };
    let printed = Printed { file: path.display().to_string(), report: &report, fixed };
    if out.json {
        out.object(&printed)?;
    } else {
        out.text(&text(path, &printed, args.fix.is_some()))?;
    }
    Ok(if report.verdict.is_supported() { Exit::Done } else { Exit::No })
}

/// Characters of a finding that are shown; what it quotes may be as long as the file.
const LONGEST: usize = 2000;

fn text(path: &Path, printed: &Printed<'_>, asked: bool) -> String {
    let report = printed.report;
    let mut s = format!("{}: {}\n", path.display(), report.verdict.name());
    if let Some(arch) = &report.architecture {
        s.push_str(&format!("architecture {}\n", Shown(arch)));
    }
    for f in &report.findings {
        s.push_str(&finding(f));
    }
    if let Some(figures) = &report.figures {
        s.push_str(&figures_text(figures));
    }
    match &printed.fixed {
        Some(fixed) => s.push_str(&format!("\nwrote {}: {}\n", fixed.file, fixed.verdict.name())),
        None if report.repair.is_some() && !asked => {
            s.push_str("\n--fix OUT.gguf writes a copy with these fixes\n");
        }
        None => {}
    }
    s
}

fn finding(f: &Finding) -> String {
    let level = match f.severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let place = if f.place.is_empty() { String::new() } else { format!(" {}", Shown(&f.place)) };
    let mut s =
        format!("\n{level} [{}]{place}\n  {}\n", f.id, shortened(&f.what, LONGEST).replace('\n', "\n  "));
    if let Some(fix) = &f.fix {
        s.push_str(&format!("  fix: {}\n", fix.what));
    }
    s
}

fn figures_text(f: &Figures) -> String {
    let free = f.available_bytes.map_or_else(|| "unknown".into(), human_bytes);
    let mut s = format!(
        "\nmemory for {} tokens of prompt and an answer of {}: weights {} (mapped), KV cache {}, buffers {}; \
         free here: {free}\n",
        f.prompt_tokens,
        f.answer_tokens,
        human_bytes(f.weights_bytes),
        human_bytes(f.kv_bytes),
        human_bytes(f.buffer_bytes)
    );
    if let Some(r) = &f.roofline {
        s.push_str(&format!(
            "step: at least {:.3} ms by the roofline, an estimate: a canvas of {} tokens without a prompt takes \
             {:.3} Gmac in int8 and {:.3} in f32, and this machine does {:.1} and {:.1} Gmac/s at most \
             ({} threads, measured now)\n",
            r.ms_per_step, r.rows, r.int8_gmac, r.f32_gmac, r.int8_gmac_s, r.f32_gmac_s, r.threads
        ));
    }
    s
}
