//! `redraft replay`: a recorded generation, step by step.

mod keys;
mod player;

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::bail;
use redraft::sampler::Stop;
use redraft::sha256_header;
use redraft::tokenizer::Tokenizer;
use redraft::trace::{RecordedStep, Recording, TraceFile};
use serde::Serialize;

use self::player::Player;
use crate::exit::Exit;
use crate::out::Out;
use crate::ui::canvas::{Cell, State};
use crate::ui::picture::cells;
use crate::{files, interrupt, model};
use redraft::engine::Picture;

/// Look at a recorded generation again, step by step.
///
/// The recording comes from `run --trace` or `trace --generation`, or is a golden trajectory. On a terminal:
/// right and left for the next and the previous step, up and down (or Page Up and Page Down) for the previous and the
/// next canvas, Home and End, space to play and pause, + and - for the speed, q to leave. Elsewhere every step is
/// printed as text.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft run --trace steps.safetensors \"Count from 21 to 30.\" && redraft replay steps.safetensors\n  \
    redraft replay -m model.gguf --play --fps 4 steps.safetensors\n  \
    redraft replay --json steps.safetensors | jq -r '.steps[].text'")]
pub(crate) struct Args {
    /// The recording (safetensors).
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// Model file (GGUF) whose vocabulary the ids are of; without it the demo model inside this program.
    #[arg(short, long, value_name = "FILE", env = "REDRAFT_MODEL")]
    model: Option<PathBuf>,

    /// Play from the start instead of waiting for a key; leave at the end.
    #[arg(long)]
    play: bool,

    /// Steps a second while playing.
    #[arg(long, value_name = "N", default_value_t = 4.0, value_parser = rate)]
    fps: f64,
}

fn rate(text: &str) -> Result<f64, String> {
    let ok = |x: &f64| (player::SLOWEST..=player::FASTEST).contains(x);
    text.parse()
        .ok()
        .filter(ok)
        .ok_or_else(|| format!("expected a number in {}..={}", player::SLOWEST, player::FASTEST))
}

/// A recording and what is needed to show it.
struct Shown {
    recording: Recording,
    tokenizer: Tokenizer,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    canvases: usize,
    steps: Vec<Step>,
}

/// A step in words.
#[derive(Debug, Serialize)]
struct Step {
    canvas: usize,
    step: usize,
    steps_max: usize,
    accepted: usize,
    mean_entropy: f32,
    /// Why the canvas was done, as far as the recording says so: `converged` or `complete`.
    stop: Option<&'static str>,
    /// What the user would have seen of the canvas; noise and markers are left out.
    text: String,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    files::refuse_special(&args.trace, "a recording (safetensors)")?;
    let file = TraceFile::open(&args.trace)?;
    let tokenizer = tokenizer(args, &file, out)?;
    let recording = Recording::read(&file, tokenizer.vocab_len())?;
    let shown = Shown { recording, tokenizer };
    if out.json {
        out.object(&shown.report())?;
    } else if out.terminal && std::io::stdin().is_terminal() && crate::ui::theme::obeys_escape_sequences() {
        let stop = interrupt::flag()?;
        Player::new(&shown, args.fps, args.play).run(&stop)?;
    } else {
        if args.play {
            bail!("--play needs a terminal; without it every step is printed as text");
        }
        for recorded in &shown.recording.steps {
            let Step { canvas, step, steps_max, accepted, mean_entropy, .. } = shown.step(recorded);
            let text = shown.text(recorded, true);
            out.text(&format!(
                "canvas {canvas} step {step}/{steps_max} · accepted {accepted} · entropy {mean_entropy:.3}\n{}\n",
                text.trim_end()
            ))?;
        }
    }
    Ok(Exit::Done)
}

/// The vocabulary of the recording.
fn tokenizer(args: &Args, file: &TraceFile, out: Out) -> anyhow::Result<Tokenizer> {
    let (gguf, tokenizer) = model::open_vocabulary(args.model.as_deref(), out)?;
    if let Some(recorded) = file.metadata.get("model_sha256_header")
        && *recorded != sha256_header(&gguf)
    {
        let with = file
            .metadata
            .get("model")
            .map_or_else(|| "another model".into(), |m| redraft::gguf::Shown(m).to_string());
        let name = args.trace.display();
        match &args.model {
            None => bail!(
                "{name}: recorded with {with}, not with the demo model inside this program: give the file with -m"
            ),
            Some(path) => out.warn(&format!("{name} was recorded with {with}, not with {}", path.display())),
        }
    }
    Ok(tokenizer)
}

impl Shown {
    fn report(&self) -> Report {
        let steps: Vec<Step> = self.recording.steps.iter().map(|s| self.step(s)).collect();
        Report { canvases: steps.last().map_or(0, |s| s.canvas), steps }
    }

    fn step(&self, step: &RecordedStep) -> Step {
        let event = step.event();
        Step {
            canvas: step.canvas + 1,
            step: step.step + 1,
            steps_max: step.steps_max,
            accepted: event.decision.n_accepted(),
            mean_entropy: event.decision.mean_entropy,
            stop: event.decision.stop.map(Stop::name),
            text: self.text(step, false),
        }
    }

    /// What the user would have seen of a canvas without markers and noise; masks have a sign where they are wanted.
    fn text(&self, step: &RecordedStep, masks: bool) -> String {
        let event = step.event();
        let room = self.recording.room(step);
        let cells = cells(&Picture::from(&event), &self.tokenizer, &self.recording.end_ids, room);
        let said = |c: &Cell| match c.state {
            State::Marker => false,
            State::Noise => masks && event.open.is_some(),
            _ => true,
        };
        cells.into_iter().filter(said).map(|c| c.text).collect()
    }
}
