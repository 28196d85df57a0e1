//! `redraft run`: one answer.

mod report;
mod watch;

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::ValueEnum;
use redraft::chat::Answer;
use redraft::compute::Precision;
use redraft::engine::{Event, Philox, generate};
use redraft::trace::GenerationRecorder;
use redraft::{Error, Model};

use self::report::Report;
pub(crate) use self::report::number;
use self::watch::{Watch, Watched};
use crate::args::generate::GenerateArgs;
use crate::args::model::ModelArgs;
use crate::args::prompt::{PromptArgs, Think};
use crate::cmd::trace::metadata;
use crate::exit::Exit;
use crate::model::Loaded;
use crate::out::Out;
use crate::ui::theme::{dumb_terminal, no_color};
use crate::{interrupt, model};

/// Answer one prompt.
///
/// On a terminal the canvas is shown while it is refined: noise dim, drafts normal, accepted tokens bright.
/// Into a pipe goes the plain text, canvas by canvas.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft run \"What is the capital of France?\"\n  \
    echo \"Sort: 4 1 3\" | redraft run\n  \
    redraft run -m model.gguf -n 100 --seed random -v \"Tell me a story\"\n  \
    redraft run --json --steps 16 \"What is 7 + 8?\"\n  \
    printf '<|turn>user\\nHi<turn|>\\n<|turn>model\\n' | redraft run --raw -")]
pub(crate) struct Args {
    #[command(flatten)]
    prompt: PromptArgs,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    generate: GenerateArgs,

    /// When to show the canvas while it is refined. auto: on a terminal, unless NO_COLOR is set; always: even
    /// where stdout does not look like a terminal.
    #[arg(long, value_name = "WHEN", default_value = "auto", env = "REDRAFT_LIVE", help_heading = "Output")]
    live: When,

    /// Record every step into this file (safetensors), for `trace --like` and `compare`.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    trace: Option<PathBuf>,
}

/// `--live`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// On a terminal.
    Auto,
    /// Anywhere.
    Always,
    /// Nowhere.
    Never,
}

impl When {
    fn shows(self, out: Out) -> bool {
        match self {
            _ if out.json => false,
            When::Auto => out.terminal && !no_color() && !dumb_terminal(),
            When::Always => true,
            When::Never => false,
        }
    }
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    if let Some(path) = &args.trace {
        model::refuse_overwriting(
            path,
            &[args.model.model.as_deref(), args.prompt.chat_template.as_deref()],
        )?;
    }
    let text = args.prompt.text()?;
    let stop = interrupt::flag()?;
    let loaded = model::open(&args.model, Precision::F32, &stop, out)?;
    let live = args.live.shows(out);
    let report = answer(args, &text, loaded, stop, live, out)?;
    if out.json {
        out.object(&report)?;
    } else if out.verbose > 0 {
        report.lines().iter().for_each(|l| out.note(l));
    } else if live && !out.quiet && std::io::stderr().is_terminal() {
        out.err(&report.summary());
    }
    Ok(Exit::Done)
}

/// Generates the answer and shows it as it comes about.
fn answer(
    args: &Args,
    text: &str,
    loaded: Loaded,
    stop: Arc<AtomicBool>,
    live: bool,
    out: Out,
) -> anyhow::Result<Report> {
    let Loaded { mut model, load } = loaded;
    let prompt = args.prompt.ids(text, &model, args.generate.profile.is_some())?;
    let (mut request, warning) = args.generate.request(&model, prompt.ids)?;
    prompt.warning.iter().chain(&warning).for_each(|w| out.warn(w));
    request.interrupt = Some(stop);
    let seed = args.generate.seed.number();
    out.note(&format!("seed {seed}, {} prompt tokens", request.prompt.len()));
    let draws = Philox { seed, vocab_len: model.shape().vocab_len as u32 };
    let mut watch = Watch::new(
        Watched {
            tokenizer: Arc::clone(model.tokenizer()),
            end_ids: request.end_ids.clone(),
            max_tokens: request.max_tokens,
            canvas_len: model.shape().canvas_len,
            draws,
            profile: request.profile,
        },
        &request.prompt,
        live,
        out,
    )?;
    let mut recording = args.trace.as_ref().map(|_| Recording::default());
    let mut failed = None;
    let mut session = model.session()?;
    let done = generate(&mut model, &mut session, &request, &draws, &mut |event| {
        if let Some(r) = &mut recording {
            r.event(event);
        }
        match watch.event(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        }
    });
    model.close(session);
    let finished = watch.finish(done.is_ok());
    if let (Some(path), Some(r)) = (&args.trace, recording) {
        r.save(path, &model, &request, seed, out)?;
    }
    if let Some(e) = failed {
        return Err(e);
    }
    let done = done?;
    let answer = finished?;
    show_beside(&args.prompt, &answer, out);
    report::warnings(&done, &answer).iter().for_each(|w| out.warn(&w.message));
    Ok(Report::new(&model, &request, &done, &answer, seed, load))
}

/// What belongs to an answer and is no text of it, for people: on stderr, so that stdout is the answer alone.
fn show_beside(prompt: &PromptArgs, answer: &Answer, out: Out) {
    if out.json || out.quiet {
        return;
    }
    if !answer.reasoning.is_empty() && (prompt.think == Think::On || out.verbose > 0) {
        out.err(&format!("thought: {}", answer.reasoning));
    }
    for call in &answer.tool_calls {
        let arguments = serde_json::Value::Object(call.arguments.clone());
        out.err(&format!("tool call: {} {arguments}", call.name));
    }
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
        request: &redraft::engine::Request,
        seed: u64,
        out: Out,
    ) -> anyhow::Result<()> {
        if self.steps == 0 {
            return Ok(());
        }
        let mut file = self.recorder.finish(&request.prompt, &self.committed);
        file.metadata = metadata::generation(model, request, seed);
        file.save(path).map_err(|e: Error| anyhow::Error::new(e)).context("cannot write the trace")?;
        out.note(&format!("{} steps recorded in {}", self.steps, path.display()));
        Ok(())
    }
}
