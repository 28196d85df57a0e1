//! A recorded generation as steps that can be looked at again.

use super::TraceFile;
use super::like::{Config, profile_of};
use crate::Error;
use crate::engine::{CanvasResult, StepEvent};
use crate::sampler::{Commit, Decision, Profile, Stop, sampler};

/// A recorded generation.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Its steps in order, over all canvases. There is at least one.
    pub steps: Vec<RecordedStep>,
    /// Ids that end the answer, in ascending order; empty where they were not recorded.
    pub end_ids: Vec<u32>,
    /// Tokens of the answer at most; none where that was not recorded.
    max_tokens: Option<usize>,
    /// What reached the user: without the end token, and nothing of a canvas that was not done.
    answer: Vec<u32>,
}

/// A denoising step as it was recorded. What a recording lacks is empty.
#[derive(Debug, Clone)]
pub struct RecordedStep {
    /// Canvas, counted from 0.
    pub canvas: usize,
    /// Step in the canvas, counted from 0.
    pub step: usize,
    /// Steps of the canvas at most.
    pub steps_max: usize,
    /// Tokens of the answer before this canvas.
    answered: usize,
    temperature: f64,
    canvas_in: Vec<u32>,
    open: Option<Vec<bool>>,
    result: CanvasResult,
    decision: Decision,
}

impl RecordedStep {
    /// The step as the engine reported it, without its draws and the model's numbers but argmax and entropy.
    pub fn event(&self) -> StepEvent<'_> {
        StepEvent {
            canvas: self.canvas,
            step: self.step,
            steps_max: self.steps_max,
            n_prefix: 0,
            temperature: self.temperature,
            canvas_in: &self.canvas_in,
            predicted: &[],
            uniform: &[],
            renoise: &[],
            open: self.open.as_deref(),
            fixed: &[],
            choice: &[],
            result: &self.result,
            decision: &self.decision,
            logits: None,
        }
    }

    /// Whether the canvas was done after this step.
    fn is_last(&self) -> bool {
        self.decision.stop.is_some() || self.step + 1 >= self.steps_max
    }
}

/// The profile of a recording, and what its answer is made of: samplers of masks commit the canvas in any.
fn commit_of(file: &TraceFile) -> Result<(&'static Profile, Commit), Error> {
    let profile = profile_of(file)?;
    let masks = file.metadata.get("sampler").map(|name| sampler(name)).transpose()?.is_some_and(|s| s.masks);
    Ok((profile, if masks { Commit::Canvas } else { profile.commit }))
}

impl Recording {
    /// The steps of a trace that `run --trace` or `trace --generation` wrote, or of a golden trajectory, for a
    /// vocabulary of `vocab_len` tokens.
    ///
    /// # Errors
    /// [`Error::Golden`] naming the tensor that is missing or does not fit the others.
    pub fn read(file: &TraceFile, vocab_len: usize) -> Result<Recording, Error> {
        if !file.tensors.contains_key("canvas_index") {
            return Err(file.wrong(
                "tensor canvas_index is missing: expected a recorded generation, from `run --trace` or `trace \
                 --generation`"
                    .into(),
            ));
        }
        let index = file.ints("canvas_index")?;
        let n = index.len();
        let counts = index.first() == Some(&0) && index.windows(2).all(|w| w[1] == w[0] || w[1] == w[0] + 1);
        if !counts {
            return Err(file.wrong("canvas_index must count canvases from 0 in order".into()));
        }
        let ids = |name: &str| -> Result<Vec<u32>, Error> {
            let ids = file.ids(name)?;
            match ids.iter().find(|&&id| id as usize >= vocab_len) {
                None => Ok(ids),
                Some(id) => Err(file.wrong(format!(
                    "tensor {name}: expected ids of a vocabulary of {vocab_len} tokens, found {id}: give the \
                     model of the recording"
                ))),
            }
        };
        let floats = |name: &str| -> Result<Vec<f64>, Error> { Ok(file.need(name)?.data.to_f64()) };
        let (canvas_in, canvas_out, argmax) = (ids("canvas_in")?, ids("canvas_out")?, ids("argmax")?);
        let (accepted, entropy) = (file.ints("accepted")?, floats("entropy")?);
        let (mean_entropy, temperature) = (floats("mean_entropy")?, floats("temperature")?);
        let (step_left, stop) = (floats("step_left")?, floats("stop")?);
        let len = canvas_in.len() / n;
        let open = match file.tensors.contains_key("open") {
            true => Some(file.ints("open")?),
            false => None,
        };
        if let Some(open) = &open {
            file.check_rows("open", open.len(), n, len)?;
        }
        for (name, found, len) in [
            ("canvas_in", canvas_in.len(), len),
            ("canvas_out", canvas_out.len(), len),
            ("argmax", argmax.len(), len),
            ("accepted", accepted.len(), len),
            ("entropy", entropy.len(), len),
            ("mean_entropy", mean_entropy.len(), 1),
            ("temperature", temperature.len(), 1),
            ("step_left", step_left.len(), 1),
            ("stop", stop.len(), 1),
        ] {
            file.check_rows(name, found, n, len)?;
        }

        let lead = file.lead(len)?;
        let mut steps: Vec<RecordedStep> = Vec::with_capacity(n);
        for (i, &canvas) in index.iter().enumerate() {
            let row = i * len + if canvas == 0 { lead } else { 0 }..(i + 1) * len;
            let before = steps.last().filter(|s| s.canvas as i64 == canvas);
            steps.push(RecordedStep {
                canvas: usize::try_from(canvas).unwrap_or(usize::MAX),
                step: before.map_or(0, |s| s.step + 1),
                steps_max: before.map_or(step_left[i].max(1.0) as usize, |s| s.steps_max),
                answered: 0,
                temperature: temperature[i],
                canvas_in: canvas_in[row.clone()].to_vec(),
                open: open.as_ref().map(|open| open[row.clone()].iter().map(|&o| o != 0).collect()),
                result: CanvasResult {
                    argmax: argmax[row.clone()].to_vec(),
                    entropy: entropy[row.clone()].iter().map(|&x| x as f32).collect(),
                    ..CanvasResult::default()
                },
                decision: Decision {
                    accepted: accepted[row.clone()].iter().map(|&a| a != 0).collect(),
                    canvas: canvas_out[row].to_vec(),
                    confidence: Vec::new(),
                    mean_entropy: mean_entropy[i] as f32,
                    stop: match stop[i] as i64 {
                        0 => None,
                        2 => Some(Stop::Complete),
                        3 => Some(Stop::MaxSteps),
                        _ => Some(Stop::Converged),
                    },
                },
            });
        }
        // Other programs need not say how an answer ends, nor in our words.
        let config = Config::of(file).ok();
        let mut end_ids = config.as_ref().and_then(|c| c.ends().ok()).unwrap_or_default();
        let least = config.as_ref().and_then(|c| c.get("min_tokens")?.as_f64()).unwrap_or(0.0);
        end_ids.sort_unstable();
        end_ids.dedup();
        let max_tokens = file.metadata.get("max_tokens").and_then(|n| n.parse().ok());
        let mut recording = Recording { steps, end_ids, max_tokens, answer: Vec::new() };
        recording.commit(commit_of(file)?, least as usize);
        Ok(recording)
    }

    /// Puts the answer together, as the engine did. It has `least` tokens at least.
    fn commit(&mut self, (profile, commit): (&Profile, Commit), least: usize) {
        let mut ended = false;
        let mut answered = 0;
        for i in 0..self.steps.len() {
            self.steps[i].answered = answered;
            let step = &self.steps[i];
            let last = self.steps.get(i + 1).map_or(step.is_last(), |next| next.canvas != step.canvas);
            if !last || ended {
                continue;
            }
            let ids = match commit {
                Commit::Argmax => &step.result.argmax,
                Commit::Canvas => &step.decision.canvas,
            };
            let end = profile.end_of(ids, &self.end_ids, least.saturating_sub(answered)).map(|(at, _)| at);
            ended = end.is_some();
            let room = self.max_tokens.unwrap_or(usize::MAX) - answered;
            self.answer.extend(&ids[..end.unwrap_or(ids.len()).min(room)]);
            answered = self.answer.len();
        }
    }

    /// The answer so far: what reached the user before the canvas of step `at`, or all of it where there is no such
    /// step.
    pub fn answer(&self, at: usize) -> &[u32] {
        self.steps.get(at).map_or(&self.answer, |s| &self.answer[..s.answered])
    }

    /// How many tokens of the canvas of `step` can reach the user.
    pub fn room(&self, step: &RecordedStep) -> usize {
        self.max_tokens.map_or(usize::MAX, |n| n.saturating_sub(step.answered))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Elements;
    use super::*;

    /// Three steps over two canvases of two positions.
    fn file() -> TraceFile {
        let mut f = TraceFile { name: "t".into(), ..TraceFile::default() };
        let i = |x: &[i32]| Elements::I32(x.to_vec());
        f.insert("canvas_index", vec![3], i(&[0, 0, 1]));
        f.insert("step_left", vec![3], i(&[4, 3, 4]));
        f.insert("canvas_in", vec![3, 2], i(&[1, 2, 3, 4, 5, 6]));
        f.insert("canvas_out", vec![3, 2], i(&[3, 4, 7, 8, 9, 10]));
        f.insert("argmax", vec![3, 2], i(&[11, 12, 13, 14, 15, 16]));
        f.insert("accepted", vec![3, 2], Elements::U8(vec![0, 1, 1, 1, 0, 0]));
        f.insert("entropy", vec![3, 2], Elements::F32(vec![1.0, 0.5, 0.25, 0.0, 2.0, 3.0]));
        f.insert("mean_entropy", vec![3], Elements::F32(vec![0.75, 0.125, 2.5]));
        f.insert("temperature", vec![3], Elements::F32(vec![0.8, 0.7, 0.8]));
        f.insert("stop", vec![3], i(&[0, 1, 0]));
        f.metadata.insert("config".into(), r#"{"eos": [1, 14]}"#.into());
        f
    }

    #[test]
    fn steps_come_back_as_they_were() {
        let r = Recording::read(&file(), 20).unwrap();
        let at: Vec<_> = r.steps.iter().map(|s| (s.canvas, s.step, s.steps_max)).collect();
        assert_eq!(at, [(0, 0, 4), (0, 1, 4), (1, 0, 4)]);
        let event = r.steps[1].event();
        assert_eq!((event.canvas_in, &event.decision.canvas[..]), (&[3, 4][..], &[7, 8][..]));
        assert_eq!(
            (&event.decision.accepted[..], event.decision.stop),
            (&[true, true][..], Some(Stop::Converged))
        );
        assert_eq!(event.result.entropy, [0.25, 0.0]);
        let mut f = file();
        f.insert("stop", vec![3], Elements::I32(vec![0, 2, 0]));
        let filled = Recording::read(&f, 20).unwrap();
        assert_eq!(filled.steps[1].event().decision.stop, Some(Stop::Complete));
        assert_eq!(r.end_ids, [1, 14]);
        assert_eq!((r.answer(1), r.answer(2)), (&[][..], &[13][..]), "14 ends it");
    }

    /// The first of the two positions of the first canvas's rows is the end of the prompt.
    #[test]
    fn the_end_of_a_prompt_is_no_part_of_a_canvas() {
        let mut f = file();
        f.insert("n_lead", vec![1], Elements::I32(vec![1]));
        let r = Recording::read(&f, 20).unwrap();
        let canvases: Vec<_> = r.steps.iter().map(|s| s.event().canvas_in.to_vec()).collect();
        assert_eq!(canvases, [vec![2], vec![4], vec![5, 6]]);
        assert_eq!(r.steps[1].event().result.entropy, [0.0]);
        assert!(r.answer(9).is_empty(), "its argmax is an end");
        f.metadata.clear();
        assert_eq!(Recording::read(&f, 20).unwrap().answer(9), [14]);
    }

    #[test]
    fn the_answer_is_what_the_user_got() {
        let answer = |facts: &[(&str, &str)], change: &dyn Fn(&mut TraceFile)| {
            let mut f = file();
            f.metadata.clear();
            f.metadata.extend(facts.iter().map(|(k, v)| (k.to_string(), v.to_string())));
            change(&mut f);
            Recording::read(&f, 20).map(|r| (r.answer(9).to_vec(), r.room(&r.steps[2])))
        };
        let same = |_: &mut TraceFile| {};
        assert_eq!(answer(&[], &same).unwrap(), (vec![13, 14], usize::MAX), "the second canvas was not done");
        let done = |f: &mut TraceFile| f.insert("stop", vec![3], Elements::I32(vec![0, 1, 1]));
        assert_eq!(answer(&[], &done).unwrap().0, [13, 14, 15, 16]);
        assert_eq!(answer(&[("max_tokens", "3")], &done).unwrap(), (vec![13, 14, 15], 1));
        assert_eq!(answer(&[("max_tokens", "1")], &done).unwrap(), (vec![13], 0));
        let config = |config| answer(&[("config", config)], &done).unwrap().0;
        assert_eq!(config(r#"{"eos": 14}"#), [13]);
        assert_eq!(
            config(r#"{"eos": 14, "min_tokens": 2}"#),
            [13, 14, 15, 16],
            "an end that comes too early is none"
        );
        assert_eq!(answer(&[("profile", "jax")], &done).unwrap().0, [7, 8, 9, 10], "the canvas is committed");
        assert!(answer(&[("profile", "odd")], &same).unwrap_err().to_string().contains("hf, jax, llamacpp"));
    }

    #[test]
    fn recordings_that_do_not_fit_are_named() {
        let problem = |change: &dyn Fn(&mut TraceFile), vocab_len| {
            let mut f = file();
            change(&mut f);
            Recording::read(&f, vocab_len).unwrap_err().to_string()
        };
        assert!(problem(&|_| {}, 16).contains("found 16: give the model"));
        assert!(problem(&|f| _ = f.tensors.remove("canvas_index"), 20).contains("run --trace"));
        assert!(problem(&|f| _ = f.tensors.remove("entropy"), 20).contains("tensor entropy is missing"));
        let i = |x: &[i32]| Elements::I32(x.to_vec());
        assert!(
            problem(&|f| f.insert("n_lead", vec![1], i(&[2])), 20)
                .contains("n_lead: expected one number below 2")
        );
        assert!(problem(&|f| f.insert("argmax", vec![5], i(&[1; 5])), 20).contains("3 rows of 2"));
        assert!(problem(&|f| f.insert("stop", vec![2], i(&[0; 2])), 20).contains("3 rows of 1"));
        assert!(problem(&|f| f.insert("canvas_index", vec![0], i(&[])), 20).contains("from 0 in order"));
        assert!(problem(&|f| f.insert("canvas_index", vec![3], i(&[0, 2, 2])), 20).contains("in order"));
        assert!(problem(&|f| f.insert("canvas_index", vec![3], i(&[0, 1, 0])), 20).contains("in order"));
    }
}
