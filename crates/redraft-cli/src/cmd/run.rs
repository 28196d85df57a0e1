//! `redraft run`: one answer.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use redraft::Model;
use redraft::compute::Precision;
use redraft::constrain::Language;
use redraft::engine::{Event, Request};
use redraft::receipt::{Receipt, StepRecorder};
use redraft::trace::GenerationRecorder;

use crate::answer::{Report, View, show, show_beside, warnings};
use crate::args::constrain::{self, ConstrainArgs};
use crate::args::generate::{GenerateArgs, Task};
use crate::args::live::LiveArgs;
use crate::args::model::ModelArgs;
use crate::args::prompt::PromptArgs;
use crate::exit::Exit;
use crate::files::{self, Kind};
use crate::model::Loaded;
use crate::out::Out;
use crate::ui::progress::counted;
use crate::{interrupt, model, trace_metadata};

/// Answer one prompt.
///
/// On a terminal the canvas is shown while it is refined: noise dim, drafts in italics, accepted tokens bold,
/// final text plain. Into a pipe goes the plain text, canvas by canvas. Ctrl-C stops, twice at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft run \"What is the capital of France?\"\n  \
    echo \"Sort 14, 3, 27, 9 in ascending order.\" | redraft run\n  \
    redraft run -m model.gguf -n 100 --seed random -v \"Tell me a story\"\n  \
    redraft run --choices yes,no \"Is Paris a city in France?\"\n  \
    redraft run --json --steps 16 \"What is 7 + 8?\"\n  \
    printf '<|turn>user\\nHi<turn|>\\n<|turn>model\\n' | redraft run --raw -")]
pub(crate) struct Args {
    #[command(flatten)]
    prompt: PromptArgs,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    generate: GenerateArgs,

    #[command(flatten)]
    constrain: ConstrainArgs,

    #[command(flatten)]
    live: LiveArgs,

    /// Record every step into this file (safetensors), for `trace --like` and `compare`.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    trace: Option<PathBuf>,

    /// Write a receipt of the answer into this file (JSON): digests of the model and of every step, the prompt's
    /// ids, settings and seed; `verify` runs it again.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    receipt: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let inputs = [
        args.model.model.as_deref(),
        args.prompt.template.chat_template.as_ref().map(Path::new),
        args.constrain.json_schema.as_deref(),
    ];
    if let Some(path) = &args.trace {
        files::check_result(path, Kind::Recording, &inputs)?;
    }
    if let Some(path) = &args.receipt {
        files::check_result(path, Kind::Receipt, &[&inputs[..], &[args.trace.as_deref()]].concat())?;
    }
    args.constrain.check(args.prompt.template.think, args.trace.is_some())?;
    args.generate.warn_of_hidden_digests(args.receipt.is_some(), out);
    args.generate.refuse_slide("`run` has no earlier turns")?;
    let language = args.constrain.language()?;
    let text = args.prompt.text()?;
    let view = args.live.view(out)?;
    let stop = interrupt::flag()?;
    let loaded = model::open(&args.model, Precision::F32, &stop, out)?;
    let report = answer(args, &text, language, loaded, stop, view, out)?;
    if out.json {
        out.object(&report)?;
    } else if out.verbose > 0 {
        report.lines().iter().for_each(|l| out.note(l));
    } else if view.live && !out.quiet && std::io::stderr().is_terminal() {
        out.err(&report.summary());
    }
    Ok(Exit::Done)
}

/// Generates the answer and shows it as it comes about.
fn answer(
    args: &Args,
    text: &str,
    language: Option<Language>,
    loaded: Loaded,
    stop: Arc<AtomicBool>,
    view: View<'static>,
    out: Out,
) -> anyhow::Result<Report> {
    let Loaded { mut model, load } = loaded;
    let generate = args.constrain.sampling(&args.generate, &model);
    generate.left_out(&model, Task::Answer).iter().for_each(|note| out.note(note));
    let parse = generate.explicit_profile(&model).is_some();
    let prompt = args.prompt.ids(text, &model, parse)?;
    let (mut request, notes) = generate.request(&model, Task::Answer, prompt.ids)?;
    prompt.warnings.iter().chain(&notes).for_each(|w| out.warn(w));
    if let Some(language) = language {
        request.constraint = Some(constrain::compiled(language, &model, &request.end_ids, out)?);
    }
    request.interrupt = Some(Arc::clone(&stop));
    let seed = generate.seed.number();
    out.note(&format!("seed {seed}, {}", counted(request.prompt.len(), "prompt token")));
    let mut recording = args.trace.as_ref().map(|_| Recording::default());
    let mut steps = args.receipt.as_ref().map(|_| StepRecorder::default());
    let mut session = model.session()?;
    let shown = show(&mut model, &mut session, &request, seed, view, out, &mut |event| {
        if let Some(r) = &mut recording {
            r.event(event);
        }
        if let Some(s) = &mut steps {
            s.event(event);
        }
    });
    model.close(session);
    if let (Some(path), Some(r)) = (&args.trace, recording) {
        r.save(path, &model, &request, seed, out)?;
    }
    let (answer, done) = shown?;
    let done = done?;
    show_beside(args.prompt.template.think, &answer, out);
    warnings(&done, &answer).iter().for_each(|w| out.warn(&w.message));
    if let (Some(path), Some(steps)) = (&args.receipt, steps) {
        let digests = model::digests(&model, &stop, out)?;
        let receipt = Receipt::new(&model, digests, &request, seed, &done, steps);
        files::write_result(path, Kind::Receipt, receipt.to_json()?.as_bytes()).context("the receipt")?;
        out.note(&format!("receipt written to {}", path.display()));
    }
    Ok(Report::new(&model, &request, &done, &answer, seed, load))
}

/// The steps so far, for `--trace`.
#[derive(Default)]
struct Recording {
    recorder: GenerationRecorder,
    committed: Vec<u32>,
    steps: usize,
}

impl Recording {
    fn event(&mut self, event: &Event<'_>) {
        self.recorder.event(event);
        match event {
            Event::Step(_) => self.steps += 1,
            Event::Commit { ids, .. } => self.committed.extend_from_slice(ids),
            Event::Prompt { .. } => {}
        }
    }

    /// Writes what there is, which is less than all after an interruption.
    fn save(
        self,
        path: &std::path::Path,
        model: &Model,
        request: &Request,
        seed: u64,
        out: Out,
    ) -> anyhow::Result<()> {
        if self.steps == 0 {
            return Ok(());
        }
        let mut file = self.recorder.finish(&request.prompt, &self.committed);
        file.metadata = trace_metadata::generation(model, request, seed);
        files::write_result(path, Kind::Recording, &file.to_bytes())?;
        out.note(&format!("{} steps recorded in {}", self.steps, path.display()));
        Ok(())
    }
}
