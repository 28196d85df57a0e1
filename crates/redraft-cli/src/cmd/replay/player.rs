//! The player: which moment is shown, and the loop that waits for keys.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use redraft::Error;

use super::Shown;
use super::keys::Action;
use crate::out::stdout_error;
use crate::ui::canvas::{Area, Cell, State, lines};
use crate::ui::hold::{self, Hold};
use crate::ui::live::{Live, Screen, terminal_size};
use crate::ui::picture::{cells, noise};
use crate::ui::theme::{Theme, no_color};
use redraft::engine::Picture;

/// Fewest and most steps a second.
pub(super) const SLOWEST: f64 = 0.1;
pub(super) const FASTEST: f64 = 30.0;

/// How long to wait for a key before looking at the time and at signals.
const PATIENCE: Duration = Duration::from_millis(100);

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The canvas before this step, which is the first of its canvas.
    Noise(usize),
    /// The canvas after this step.
    Step(usize),
    /// The answer.
    Done,
}

/// Shows one moment after the other.
pub(super) struct Player<'a> {
    of: &'a Shown,
    moments: Vec<Moment>,
    at: usize,
    playing: bool,
    /// Leave at the end.
    leave: bool,
    fps: f64,
}

impl<'a> Player<'a> {
    /// At the first moment; `play` goes on by itself and leaves at the end.
    pub(super) fn new(of: &'a Shown, fps: f64, play: bool) -> Player<'a> {
        let mut moments = Vec::new();
        for (i, step) in of.recording.steps.iter().enumerate() {
            if step.step == 0 {
                moments.push(Moment::Noise(i));
            }
            moments.push(Moment::Step(i));
        }
        moments.push(Moment::Done);
        Player { of, moments, at: 0, playing: play, leave: play, fps }
    }

    /// Waits for keys until somebody leaves.
    ///
    /// # Errors
    /// [`Error::Interrupted`] for Ctrl-C and where `stop` is set; the terminal cannot be read or written.
    pub(super) fn run(mut self, stop: &AtomicBool) -> anyhow::Result<()> {
        let hold = Hold::new();
        let mut live = Live::new(Screen::new(), Theme { color: !no_color() }, terminal_size);
        enable_raw_mode()?;
        let done = self.watch(&mut live, stop);
        let finished = if self.moments[self.at] == Moment::Done && done.is_ok() {
            let text: String = self.committed(usize::MAX).into_iter().map(|c| c.text).collect();
            live.commit(&text).and_then(|()| live.finish())
        } else {
            live.finish()
        };
        disable_raw_mode()?;
        drop(live);
        drop(hold);
        done?;
        finished.map_err(stdout_error)
    }

    fn watch(&mut self, live: &mut Live<Screen>, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut epoch = hold::epoch();
        let mut shown = Instant::now();
        self.draw(live)?;
        loop {
            let step = Duration::from_secs_f64(1.0 / self.fps);
            let wait = if self.playing { step.saturating_sub(shown.elapsed()) } else { PATIENCE };
            let event = if event::poll(wait.min(PATIENCE))? { Some(event::read()?) } else { None };
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted.into());
            }
            let before = self.at;
            let mut redraw = false;
            match event {
                Some(Event::Key(key)) => match Action::of(key) {
                    Some(Action::Leave) => return Ok(()),
                    Some(Action::Interrupt) => return Err(Error::Interrupted.into()),
                    Some(Action::Suspend) => crate::interrupt::suspend_group(),
                    Some(action) => {
                        self.act(action);
                        redraw = true;
                    }
                    None => {}
                },
                Some(Event::Resize(..)) => redraw = true,
                Some(_) => {}
                None if self.playing && shown.elapsed() >= step => {
                    self.act(Action::Next);
                    if self.leave && self.moments[self.at] == Moment::Done {
                        return Ok(());
                    }
                    redraw = true;
                }
                None => {}
            }
            if epoch != hold::epoch() {
                // The program was suspended, and the shell has changed the terminal's modes.
                epoch = hold::epoch();
                disable_raw_mode()?;
                enable_raw_mode()?;
                redraw = true;
            }
            if redraw {
                self.draw(live)?;
            }
            if before != self.at {
                shown = Instant::now();
            }
        }
    }

    /// Does what a key asks for.
    fn act(&mut self, action: Action) {
        let last = self.moments.len() - 1;
        let starts = |m: &Moment| matches!(m, Moment::Noise(_) | Moment::Done);
        match action {
            Action::Next => self.at = (self.at + 1).min(last),
            Action::Previous => self.at = self.at.saturating_sub(1),
            Action::NextCanvas => {
                let next = self.moments[self.at..].iter().skip(1).position(starts);
                self.at = next.map_or(last, |n| self.at + 1 + n);
            }
            Action::PreviousCanvas => {
                self.at = self.moments[..self.at].iter().rposition(starts).unwrap_or(0);
            }
            Action::First => self.at = 0,
            Action::Last => self.at = last,
            Action::PlayOrPause => self.playing = !self.playing,
            Action::Faster => self.fps = (self.fps * 1.5).min(FASTEST),
            Action::Slower => self.fps = (self.fps / 1.5).max(SLOWEST),
            Action::Suspend | Action::Interrupt | Action::Leave => {}
        }
        // Whoever goes by hand wants to look; and at the end there is nothing more to play.
        let by_hand = !matches!(action, Action::Next | Action::PlayOrPause | Action::Faster | Action::Slower);
        if by_hand || self.at == last {
            self.playing = false;
        }
    }

    /// The answer before step `at`.
    fn committed(&self, at: usize) -> Vec<Cell> {
        let text = self.of.tokenizer.decode(self.of.recording.answer(at), false);
        vec![Cell { text, state: State::Committed }]
    }

    /// The picture of this moment: cells and status.
    fn picture(&self) -> (Vec<Cell>, String) {
        let Shown { recording, tokenizer } = self.of;
        let keys = "← → step · ↑ ↓ canvas · space play · q leave";
        let (before, mut canvas, what) = match self.moments[self.at] {
            Moment::Noise(i) => {
                let s = &recording.steps[i];
                let ids = s.event().canvas_in;
                let ids = &ids[..ids.len().min(recording.room(s))];
                (
                    i,
                    noise(tokenizer, s.event().open.is_some(), ids, &vec![false; ids.len()]),
                    format!("canvas {} · noise", s.canvas + 1),
                )
            }
            Moment::Step(i) => {
                let s = &recording.steps[i];
                let event = s.event();
                let d = event.decision;
                let accepted = d.n_accepted();
                let what = format!(
                    "canvas {} step {}/{} · accepted {accepted}/{} · entropy {:.3}",
                    s.canvas + 1,
                    s.step + 1,
                    s.steps_max,
                    d.accepted.len(),
                    d.mean_entropy
                );
                let room = recording.room(s);
                (i, cells(&Picture::from(&event), tokenizer, &recording.end_ids, room), what)
            }
            Moment::Done => (usize::MAX, Vec::new(), "done".to_string()),
        };
        let mut cells = self.committed(before);
        cells.append(&mut canvas);
        let play = if self.playing { format!(" · playing {:.1}/s", self.fps) } else { String::new() };
        (cells, format!("[{}/{}] {what}{play} · {keys}", self.at + 1, self.moments.len()))
    }

    fn draw(&self, live: &mut Live<Screen>) -> anyhow::Result<()> {
        let (mut cells, status) = self.picture();
        let (columns, rows) = terminal_size();
        let status = [status];
        let area = Area { start: 0, columns, rows: usize::MAX, color: true };
        if lines(&cells, &status, area).len() > rows && cells.len() > 1 {
            // Of what does not fit the canvas matters most.
            cells[0].text = "…\n".to_string();
        }
        live.frame(&cells, &status, Instant::now()).map_err(stdout_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded demo answer: one canvas, or two with a second one appended.
    fn shown() -> Shown {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = path.join("../../testdata/oracle/cases/dg-mini.F32.traj-default.safetensors");
        let model = path.join("../../testdata/oracle/models/dg-mini.F32.gguf");
        let gguf = redraft::gguf::Gguf::open(&model, &redraft::gguf::OpenOptions::default()).unwrap();
        let tokenizer = redraft::tokenizer::Tokenizer::from_gguf(gguf.metadata()).unwrap();
        let trace = redraft::trace::TraceFile::open(&file).unwrap();
        let recording = redraft::trace::Recording::read(&trace, tokenizer.vocab_len()).unwrap();
        Shown { recording, tokenizer }
    }

    #[test]
    fn keys_move_through_steps_and_canvases() {
        let shown = shown();
        let first_of_second = shown.recording.steps.iter().position(|s| s.canvas == 1).unwrap();
        let mut p = Player::new(&shown, 4.0, false);
        let last = p.moments.len() - 1;
        assert_eq!(last, shown.recording.steps.len() + 2, "two noises, all steps, the end");
        assert_eq!(p.moments[0], Moment::Noise(0));
        p.act(Action::Previous);
        assert_eq!(p.at, 0);
        p.act(Action::Next);
        assert_eq!(p.moments[p.at], Moment::Step(0));
        p.act(Action::NextCanvas);
        assert_eq!(p.moments[p.at], Moment::Noise(first_of_second));
        p.act(Action::PreviousCanvas);
        assert_eq!(p.at, 0);
        p.act(Action::Last);
        assert_eq!((p.at, p.moments[p.at]), (last, Moment::Done));
        p.act(Action::Next);
        assert_eq!(p.at, last);
        p.act(Action::PreviousCanvas);
        assert_eq!(p.moments[p.at], Moment::Noise(first_of_second));
    }

    #[test]
    fn playing_ends_at_the_end_and_by_hand() {
        let shown = shown();
        let mut p = Player::new(&shown, 20.0, true);
        p.act(Action::Faster);
        p.act(Action::Faster);
        assert_eq!((p.playing, p.fps), (true, FASTEST));
        p.act(Action::Previous);
        assert!(!p.playing);
        p.act(Action::PlayOrPause);
        assert!(p.playing);
        p.act(Action::Last);
        assert!(!p.playing);
    }

    #[test]
    fn the_picture_continues_the_answer() {
        let shown = shown();
        let mut p = Player::new(&shown, 4.0, false);
        let (cells, status) = p.picture();
        assert!(cells[0].text.is_empty() && cells[1..].iter().all(|c| c.state == State::Noise));
        assert!(status.contains("canvas 1 · noise"), "{status}");
        p.act(Action::NextCanvas);
        let (cells, _) = p.picture();
        assert!(cells[0].state == State::Committed && !cells[0].text.is_empty());
        p.act(Action::Next);
        let (_, status) = p.picture();
        assert!(status.contains("canvas 2 step 1/48"), "{status}");
        p.act(Action::Last);
        let (done, status) = p.picture();
        assert!(done.len() == 1 && done[0].text.starts_with(&cells[0].text) && status.contains("done"));
    }
}
