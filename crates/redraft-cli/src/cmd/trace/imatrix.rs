//! `redraft trace --imatrix`: importance data of the answers that a model makes.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redraft::Model;
use redraft::engine::{Philox, generate};
use serde::Serialize;

use super::Args;
use crate::args::generate::Task;
use crate::exit::Exit;
use crate::out::Out;
use crate::ui::progress::{Count, counted};
use crate::{files, trace_metadata};

/// What was written.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    bytes: u64,
    kind: &'static str,
    prompts: usize,
    /// Canvases times their steps.
    steps: usize,
    tensors: usize,
    /// Matrices, each expert for itself.
    matrices: usize,
    /// Those of them that nothing was multiplied by.
    unused_matrices: usize,
}

/// Writes importance data of answers to prompts.
pub(super) fn main(
    args: &Args,
    output: &Path,
    model: &mut Model,
    prompts: Vec<Vec<u32>>,
    stop: &Arc<AtomicBool>,
    out: Out,
) -> anyhow::Result<Exit> {
    let (seed, vocab_len) = (args.generate.seed.number(), model.shape().vocab_len as u32);
    let (n, mut facts, mut steps) = (prompts.len(), None, 0);
    let bar = Count::new("prompts", !out.quiet && out.err_terminal);
    model.collect_importance();
    let mut session = model.session()?;
    for (i, prompt) in prompts.into_iter().enumerate() {
        bar.set(i, n);
        let (mut request, notes) = args.generate.request(model, Task::Answer, prompt)?;
        request.interrupt = Some(Arc::clone(stop));
        if i == 0 {
            notes.iter().for_each(|w| out.warn(w));
            facts = Some(trace_metadata::generation(model, &request, seed));
        }
        // A stream of noise for each prompt.
        let draws = Philox { seed: seed.wrapping_add(i as u64), vocab_len };
        let answer = generate(model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(()))?;
        let of_canvases = || answer.canvases.iter().map(|c| c.steps);
        steps += of_canvases().sum::<usize>();
        if let Some(collector) = model.importance() {
            collector.answered(of_canvases());
        }
    }
    bar.finish();
    let collector = model.take_importance().unwrap_or_default();
    let name = |path: &PathBuf| path.display().to_string();
    let datasets = vec![args.prompts.as_ref().map_or_else(|| "prompt".into(), name)];
    let canvas_len = model.shape().canvas_len;
    let bytes = collector.to_gguf(&datasets, canvas_len, &facts.unwrap_or_default())?;
    files::write_result(output, files::Kind::Imatrix, &bytes)?;
    let (tensors, matrices, unused_matrices) = collector.matrices();
    let report = Report {
        file: name(&output.into()),
        bytes: bytes.len() as u64,
        kind: "imatrix",
        prompts: n,
        steps,
        tensors,
        matrices,
        unused_matrices,
    };
    if unused_matrices > 0 {
        out.warn(&format!(
            "nothing was multiplied by {unused_matrices} of {matrices} matrices: more prompts may use them"
        ));
    }
    if out.json {
        out.object(&report)?;
    } else {
        let (prompts, steps) = (counted(n, "prompt"), counted(steps, "step"));
        out.text(&format!("{}: {tensors} tensors from {prompts} in {steps}\n", report.file))?;
    }
    Ok(Exit::Done)
}
