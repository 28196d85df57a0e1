//! Shows an answer while it comes about: as a live canvas, as plain text, or not at all.

use std::sync::Arc;
use std::time::Instant;

use redraft::arch::{Canvases, Noise};
use redraft::chat::{Answer, AnswerParser, Delta};
use redraft::engine::{Event, Given, Philox, Picture, Slot, StepEvent, Window, first_canvas};
use redraft::sampler::Profile;
use redraft::tokenizer::Tokenizer;

use crate::out::{Out, stdout_error};
use crate::ui::canvas::{Status, entropy_bars};
use crate::ui::hold::Hold;
use crate::ui::live::{Live, Screen, terminal_size};
use crate::ui::picture::{cells, noise};
use crate::ui::theme::{Theme, no_color};

/// What the watcher needs to know of the generation.
pub(super) struct Watched {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) end_ids: Vec<u32>,
    pub(super) max_tokens: usize,
    pub(super) canvases: Canvases,
    /// What of the answer is given, and the canvases around it.
    pub(super) given: Given,
    pub(super) windows: Vec<Window>,
    /// Where gaps are filled, the text before the first.
    pub(super) head: Option<String>,
    pub(super) noise: Noise,
    pub(super) draws: Philox,
    pub(super) profile: &'static Profile,
    /// Show the entropy of each part of a canvas.
    pub(super) entropy: bool,
}

/// Shows events.
pub(super) struct Watch {
    of: Watched,
    /// Takes markers and thoughts out of what is shown.
    parser: AnswerParser,
    shown: Shown,
    /// Tokens that the user has got.
    emitted: usize,
    began: Instant,
    /// When the prompt or the last canvas was done.
    mark: Instant,
}

enum Shown {
    Nothing,
    /// The second says of printed text whether it ends with a newline.
    Text(Out, Option<bool>),
    /// The picture goes first, then the hold on the terminal.
    Canvas(Live<Screen>, Hold),
}

impl Watch {
    /// Shows events on stdout: in place when `live`, else as text, and with `--json` not at all.
    pub(super) fn new(of: Watched, prompt: &[u32], live: bool, out: Out) -> anyhow::Result<Watch> {
        let now = Instant::now();
        let shown = match live {
            true => {
                let hold = Hold::new();
                let mut live = Live::new(Screen::new(), Theme { color: !no_color() }, terminal_size);
                live.frame(&[], &["reading the prompt".into()], now).map_err(stdout_error)?;
                Shown::Canvas(live, hold)
            }
            false if out.json || of.head.is_some() => Shown::Nothing,
            false => Shown::Text(out, None),
        };
        let mut parser = AnswerParser::for_tokenizer(&of.tokenizer);
        parser.after_prompt(prompt);
        let mut watch = Watch { of, parser, shown, emitted: 0, began: now, mark: now };
        let head = watch.of.head.clone().unwrap_or_default();
        watch.text(&head)?;
        Ok(watch)
    }

    /// Shows one event.
    ///
    /// # Errors
    /// stdout cannot be written to.
    pub(super) fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        match event {
            Event::Prompt { done, total } => {
                self.mark = Instant::now();
                let status = [format!("prompt {done}/{total}")];
                match &mut self.shown {
                    Shown::Canvas(..) if done == total => self.noise(0),
                    Shown::Canvas(live, _) => live.frame(&[], &status, self.mark).map_err(stdout_error),
                    _ => Ok(()),
                }
            }
            Event::Step(step) => self.step(step),
            Event::Commit { canvas, ids, emitted, .. } => {
                self.mark = Instant::now();
                self.emitted += emitted.len();
                if self.of.head.is_some() {
                    self.text(&self.of.tokenizer.decode_inside(emitted, false))?;
                    return if canvas + 1 < self.of.windows.len() { self.noise(canvas + 1) } else { Ok(()) };
                }
                let deltas: Vec<Delta> = emitted.iter().flat_map(|&id| self.parser.push(id)).collect();
                self.text(&said(&deltas))?;
                let ended = ids.iter().any(|id| self.of.end_ids.contains(id));
                if ended || self.emitted >= self.of.max_tokens { Ok(()) } else { self.noise(canvas + 1) }
            }
        }
    }

    /// The answer is complete, or will never be. A complete answer ends with a newline, even an empty one.
    ///
    /// # Errors
    /// stdout cannot be written to.
    pub(super) fn finish(mut self, complete: bool) -> anyhow::Result<Answer> {
        let nothing = AnswerParser::for_tokenizer(&self.of.tokenizer);
        let (deltas, answer) = std::mem::replace(&mut self.parser, nothing).finish();
        self.text(&said(&deltas))?;
        match &mut self.shown {
            Shown::Canvas(live, _) => live.finish().map_err(stdout_error)?,
            Shown::Text(out, Some(false)) => out.text("\n")?,
            Shown::Text(out, None) if complete => out.text("\n")?,
            _ => {}
        }
        Ok(answer)
    }

    /// Final text.
    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        match &mut self.shown {
            Shown::Canvas(live, _) if !text.is_empty() => live.commit(text).map_err(stdout_error),
            Shown::Text(out, ended) if !text.is_empty() => {
                *ended = Some(text.ends_with('\n'));
                out.text(text)
            }
            _ => Ok(()),
        }
    }

    /// The canvas before its first step, which can take seconds in a large model.
    fn noise(&mut self, canvas: usize) -> anyhow::Result<()> {
        let Shown::Canvas(live, _) = &mut self.shown else { return Ok(()) };
        let drawn = self.of.profile.draws_of(canvas);
        let window = self.of.windows.get(canvas);
        let len = window.map_or(self.of.canvases.len_of(canvas), |w| w.len);
        let mut ids = first_canvas(self.of.noise, &self.of.draws, drawn, len);
        ids.truncate(self.of.max_tokens - self.emitted);
        let mut fixed = vec![false; ids.len()];
        for (i, id) in ids.iter_mut().enumerate() {
            if let Slot::Fixed(given) = self.of.given.slot(window.map_or(0, |w| w.start) + i, 0) {
                (*id, fixed[i]) = (given, true);
            }
        }
        let cells = noise(&self.of.tokenizer, self.of.noise != Noise::Uniform, &ids, &fixed);
        let status = [format!("canvas {} · noise", canvas + 1)];
        live.frame(&cells, &status, Instant::now()).map_err(stdout_error)
    }

    fn step(&mut self, step: &StepEvent<'_>) -> anyhow::Result<()> {
        let Shown::Canvas(live, _) = &mut self.shown else { return Ok(()) };
        let now = Instant::now();
        // The last picture of a canvas is always shown.
        if !live.due(now) && step.decision.stop.is_none() {
            return Ok(());
        }
        let left = self.of.max_tokens - self.emitted;
        let cells = cells(&Picture::from(step), &self.of.tokenizer, &self.of.end_ids, left);
        let status = Status {
            canvas: step.canvas + 1,
            step: step.step + 1,
            steps_max: step.steps_max,
            accepted: step.decision.n_accepted(),
            canvas_len: step.canvas_in.len(),
            mean_entropy: step.decision.mean_entropy,
            ms_per_step: (now - self.mark).as_secs_f64() * 1e3 / (step.step + 1) as f64,
            tok_s: (self.emitted > 0).then(|| self.emitted as f64 / (now - self.began).as_secs_f64()),
        };
        let mut lines = vec![status.line()];
        if self.of.entropy {
            lines.push(entropy_bars(&step.result.entropy, terminal_size().0));
        }
        live.frame(&cells, &lines, now).map_err(stdout_error)
    }
}

/// What of an answer is its text.
fn said(deltas: &[Delta]) -> String {
    let text = |d: &Delta| if let Delta::Text(text) = d { text.clone() } else { String::new() };
    deltas.iter().map(text).collect()
}
