//! How far one model is from another one that should do the same: from a file in another block type, or in another mode.
//!
//! *At the same inputs*: the first model makes an answer; each of its steps is computed by the second one, too, from the
//! same prompt, canvas and previous prediction. *On its own*: both make an answer from the same noise.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::distribution::{divergence, largest};
use crate::engine::{
    BlockCache, CanvasPass, Draws, Event, Generation, Penalties, Previous, Request, Sampling, Session,
    StepEvent, canvas_pass, generate,
};
use crate::{Error, Model};

/// What two models did with prompts.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// Of the first model's distribution from the second's, by row: a position that was predicted in a step.
    divergence: Vec<f64>,
    agree: usize,
    accepted: usize,
    accepted_agree: usize,
    swaps: usize,
    /// By the number of the step in its canvas.
    steps: Vec<Sums>,
    /// The step that a canvas was done after.
    last: Sums,
    answers: usize,
    equal_answers: usize,
    positions: usize,
    equal_positions: usize,
    canvases_of: [usize; 2],
    steps_of: [usize; 2],
}

/// Of the rows of some steps.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    rows: usize,
    divergence: f64,
    agree: usize,
}

/// How far the second model is from the first one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distance {
    /// Positions that were predicted in steps of the first model.
    pub rows: usize,
    /// Kullback-Leibler divergence of the first model's distribution from the second's, of raw logits, in nats: the mean
    /// over rows.
    pub kl_mean: f64,
    /// Half of the rows have less.
    pub kl_median: f64,
    /// One row in a hundred has more.
    pub kl_99: f64,
    /// The largest.
    pub kl_max: f64,
    /// The mean over first steps of canvases: all is noise or masks.
    pub kl_first_step: f64,
    /// The mean over last steps of canvases: all is decided, or as good as.
    pub kl_last_step: f64,
    /// Rows whose most likely ids are the same.
    pub argmax_agree_percent: f64,
    /// The same of the positions that the sampler accepted in the step.
    pub accepted_agree_percent: f64,
    /// Rows whose most likely ids are not the same.
    pub disagree: usize,
    /// Those of them whose two most likely ids changed places.
    pub swaps: usize,
    /// By the number of the step in its canvas, from 0.
    pub by_step: Vec<AtStep>,
    /// Answers that both made on their own.
    pub answers: usize,
    /// Those whose texts are the same.
    pub equal_answers_percent: f64,
    /// Tokens that are the same, of the longer of two answers.
    pub equal_positions_percent: f64,
    /// Steps until a canvas was done, of both.
    pub steps_per_canvas: [f64; 2],
}

/// The distance at the same inputs in steps of one number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AtStep {
    /// Step in its canvas, from 0.
    pub step: usize,
    /// As [`Distance::rows`].
    pub rows: usize,
    /// As [`Distance::kl_mean`].
    pub kl_mean: f64,
    /// As [`Distance::argmax_agree_percent`].
    pub argmax_agree_percent: f64,
}

impl Evaluation {
    /// Asks both models, and looks how far the second one is from the first. Returns their answers.
    ///
    /// # Errors
    /// [`Error::Request`] for models of other shapes, for given text, and where keys and values are shared by steps or
    /// penalties change what a model is told of its previous prediction; those of [`generate`].
    pub fn ask(
        &mut self,
        [first, second]: [&mut Model; 2],
        request: &Request,
        draws: &dyn Draws,
    ) -> Result<[Generation; 2], Error> {
        check([first, second], request)?;
        let mut sessions = [first.session()?, second.session()?];
        let done = self.ask_in([first, second], &mut sessions, request, draws);
        let [a, b] = sessions;
        first.close(a);
        second.close(b);
        done
    }

    fn ask_in(
        &mut self,
        [first, second]: [&mut Model; 2],
        [a, b]: &mut [Session; 2],
        request: &Request,
        draws: &dyn Draws,
    ) -> Result<[Generation; 2], Error> {
        let theirs = generate(second, b, request, draws, &mut |_| ControlFlow::Continue(()))?;
        let shown = Request { full_logits: true, ..request.clone() };
        let mut follower = Follower {
            model: second,
            session: b,
            request,
            tokens: request.prompt.clone(),
            told: Vec::new(),
            into: self,
        };
        let mut failed = None;
        let ours = generate(first, a, &shown, draws, &mut |event| match follower.event(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        });
        if let Some(e) = failed {
            return Err(e);
        }
        let pair = [ours?, theirs];
        self.answered(&pair, first);
        Ok(pair)
    }

    fn answered(&mut self, pair: &[Generation; 2], model: &Model) {
        let [a, b] = pair;
        let text = |g: &Generation| model.tokenizer().decode(&g.ids, false);
        self.answers += 1;
        self.equal_answers += usize::from(text(a) == text(b));
        self.positions += a.ids.len().max(b.ids.len());
        self.equal_positions += a.ids.iter().zip(&b.ids).filter(|(a, b)| a == b).count();
        for (side, g) in pair.iter().enumerate() {
            self.canvases_of[side] += g.canvases.len();
            self.steps_of[side] += g.canvases.iter().map(|c| c.steps).sum::<usize>();
        }
    }

    /// Rows of logits of one step, `[rows, vocab_len]`, and which of them the sampler accepted.
    fn step(&mut self, s: &StepEvent<'_>, [p, q]: [&[f64]; 2], vocab_len: usize) {
        let positions = (0..s.predicted.len()).filter(|&i| s.predicted[i]);
        let mut sums = Sums::default();
        for ((p, q), i) in p.chunks(vocab_len).zip(q.chunks(vocab_len)).zip(positions) {
            let divergence = divergence(p, q);
            let (p, q) = (largest(p, 2), largest(q, 2));
            let agree = p.first() == q.first();
            let accepted = s.decision.accepted[i];
            self.divergence.push(divergence);
            self.agree += usize::from(agree);
            self.accepted += usize::from(accepted);
            self.accepted_agree += usize::from(accepted && agree);
            self.swaps += usize::from(!agree && p.iter().eq(q.iter().rev()));
            sums.add(Sums { rows: 1, divergence, agree: usize::from(agree) });
        }
        self.steps.resize(self.steps.len().max(s.step + 1), Sums::default());
        self.steps[s.step].add(sums);
        if s.decision.stop.is_some() {
            self.last.add(sums);
        }
    }

    /// The distance over everything that was asked; numbers are 0 where there is nothing.
    pub fn distance(&self) -> Distance {
        let percent = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
        let mut sorted = self.divergence.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let at =
            |share: f64| sorted.get((n.saturating_sub(1) as f64 * share) as usize).copied().unwrap_or(0.0);
        let by_step = self.steps.iter().enumerate().map(|(step, s)| AtStep {
            step,
            rows: s.rows,
            kl_mean: s.mean(),
            argmax_agree_percent: percent(s.agree, s.rows),
        });
        let per_canvas = |side: usize| self.steps_of[side] as f64 / self.canvases_of[side].max(1) as f64;
        Distance {
            rows: n,
            kl_mean: sorted.iter().sum::<f64>() / n.max(1) as f64,
            kl_median: at(0.5),
            kl_99: at(0.99),
            kl_max: at(1.0),
            kl_first_step: self.steps.first().map_or(0.0, Sums::mean),
            kl_last_step: self.last.mean(),
            argmax_agree_percent: percent(self.agree, n),
            accepted_agree_percent: percent(self.accepted_agree, self.accepted),
            disagree: n - self.agree,
            swaps: self.swaps,
            by_step: by_step.collect(),
            answers: self.answers,
            equal_answers_percent: percent(self.equal_answers, self.answers),
            equal_positions_percent: percent(self.equal_positions, self.positions),
            steps_per_canvas: [per_canvas(0), per_canvas(1)],
        }
    }
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.rows += other.rows;
        self.divergence += other.divergence;
        self.agree += other.agree;
    }

    fn mean(&self) -> f64 {
        self.divergence / self.rows.max(1) as f64
    }
}

fn check([first, second]: [&Model; 2], request: &Request) -> Result<(), Error> {
    let wrong = |what: &str, expected: &str, found: String| {
        Err(Error::Request { what: what.into(), expected: expected.into(), found })
    };
    let of = |m: &Model| (m.arch().name, m.shape().vocab_len, m.shape().canvas_len, m.shape().noise);
    if of(first) != of(second) {
        let found = format!("{:?} and {:?}", of(first), of(second));
        return wrong("two models to compare", "the same architecture, vocabulary, canvas and noise", found);
    }
    if !request.given.is_empty() || request.cache != BlockCache::None {
        return wrong(
            "a request to compare answers of",
            "no given text and no shared keys",
            "one of them".into(),
        );
    }
    let told = request.self_conditioning && first.shape().self_conditioning;
    if told && !Penalties::of(first, request)?.is_none(request.prompt.len()) {
        let expected = "none: the model is told its previous prediction without them";
        return wrong("penalties in a request to compare answers of", expected, "some".into());
    }
    Ok(())
}

/// The second model, which follows the steps of the first.
struct Follower<'a> {
    model: &'a mut Model,
    session: &'a mut Session,
    request: &'a Request,
    /// Prompt and committed canvases.
    tokens: Vec<u32>,
    /// What the first model is told in its next step: the processed logits of the one before.
    told: Vec<f64>,
    into: &'a mut Evaluation,
}

impl Follower<'_> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), Error> {
        match event {
            Event::Prompt { .. } => Ok(()),
            Event::Step(s) => self.step(s),
            Event::Commit { ids, .. } => {
                self.tokens.extend_from_slice(ids);
                Ok(())
            }
        }
    }

    fn step(&mut self, s: &StepEvent<'_>) -> Result<(), Error> {
        let (model, request) = (&mut *self.model, self.request);
        let shape = model.shape();
        let (cached, lead) = self.tokens.split_at(shape.cached(self.tokens.len()));
        let tail = vec![model.tokenizer().pad().unwrap_or(0); shape.reserved(request.sampler)];
        let is_told = request.self_conditioning && shape.self_conditioning;
        let vocab_len = shape.vocab_len;
        let mut sink = request.logits_sink(true);
        if s.step == 0 {
            self.session.set_prompt(model, cached, &mut sink, &mut |_, _| ControlFlow::Continue(()))?;
        }
        let pass = CanvasPass {
            lead,
            tail: &tail,
            open: s.open.map(|_| s.predicted),
            previous: if is_told && s.step > 0 { Previous::Given(&self.told) } else { Previous::None },
            keep: false,
            sampling: Some(Sampling::at(s.temperature, s.uniform)),
            ..CanvasPass::new(s.canvas_in)
        };
        canvas_pass(model, self.session, pass, &mut sink)?;
        let logits = s.logits.unwrap_or_default();
        self.into.step(s, [logits, &sink.logits], vocab_len);
        if is_told {
            let factor = (1.0 / s.temperature) as f32;
            self.told = logits.iter().map(|&x| f64::from(x as f32 * factor)).collect();
        }
        Ok(())
    }
}
