//! An answer in the making: which passes it wants, one after another, and what it does with their results.
//!
//! Who makes several at once can let their canvas passes share a program ([`canvas_passes`](super::canvas_passes)).

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::canvas::canvas_pass;
use super::constrained::{Constrained, Positions};
use super::denoise::{Asked, Canvas, fixed_id, free_from};
use super::generate::LogitsSink;
use super::pass::{CanvasPass, Previous, Sampling};
use super::probabilities::{Probabilities, Said};
use super::{
    BlockCache, BlockStep, CanvasReport, CanvasResult, Digests, Draws, Event, Finish, Generation,
    MemoryEstimate, Penalties, Request, Session, Slot, StepEvent, Timings, TokenProbability, Window, check,
    first_canvas, memory, probabilities,
};
use crate::arch::{Noise, Reading};
use crate::model::hex;
use crate::sampler::{Ask, Commit, Sampler, StepView, Stop};
use crate::{Error, Model};

/// What an answer wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// To [advance](Run::advance) once more.
    Again,
    /// A prompt pass over [what it reads](Run::reads).
    Read,
    /// The result of its canvas [pass](Run::pass).
    Canvas,
    /// Nothing.
    Done,
}

type OnEvent<'a> = dyn FnMut(&Event<'_>) -> ControlFlow<()> + 'a;

/// An answer in the making. The session that it was made for and the model go along with each call.
pub(super) struct Run {
    request: Arc<Request>,
    start: Instant,
    stage: Stage,
    /// Memory that it takes; zero where that is not worth asking about.
    need: MemoryEstimate,
    penalties: Penalties,
    constrained: Option<Constrained>,
    sampler: Box<dyn Sampler>,
    windows: Vec<Window>,
    /// Tokens of the answer at most.
    tokens: usize,
    pad: u32,
    /// What follows each canvas.
    tail: Vec<u32>,
    noise: Noise,
    /// The model is told of its previous prediction.
    feedback: bool,
    /// How likely the tokens of the canvas were that is being committed.
    probabilities: Vec<TokenProbability>,
    /// Tokens of the prompt that are cached.
    cached: usize,
    /// What comes before the next canvas and is not in the cache.
    lead: Vec<u32>,
    committed: Vec<u32>,
    canvases: Vec<CanvasReport>,
    /// Where the answer has ended.
    end: Option<usize>,
    repetition: bool,
    reused: usize,
    /// Tokens of the prompt that were said to be done.
    told: usize,
    reads: Vec<u32>,
    block_bytes: usize,
    hashes: Hashes,
    timings: Timings,
}

#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each answer, and most of its time it is the large one"
)]
enum Stage {
    Start,
    Prompt,
    /// Before a canvas.
    Between,
    Canvas(Canvas),
    Done,
}

impl Run {
    /// Begins an answer. `promised`: bytes that others will take of the memory that is free now.
    ///
    /// # Errors
    /// [`Error::ContextOverflow`], [`Error::Memory`], and what else is wrong with the request.
    pub(super) fn new(
        model: &mut Model,
        session: &Session,
        request: Request,
        promised: u64,
    ) -> Result<Run, Error> {
        let start = Instant::now();
        model.sampler()?;
        let given = &request.given;
        let tokens = given.tokens(request.max_tokens);
        let answer = match given.is_empty() {
            true => model.shape().canvases(request.prompt.len(), tokens).total(),
            false => tokens,
        };
        check::request(model, &request, answer)?;
        probabilities::check(&request)?;
        let constrained = Constrained::of(model, &request)?;
        let penalties = Penalties::of(model, &request)?;
        let need = memory::check(model, session, &request, &penalties, (answer, promised))?;
        let shape = model.shape();
        let windows = given.windows(shape, request.prompt.len(), request.max_tokens);
        if let Some(last) = windows.last() {
            check::context(model, &request, last.start.saturating_add(last.len))?;
        }
        let pad = model.tokenizer().pad().unwrap_or(0);
        let cached = shape.cached(request.prompt.len());
        let mut run = Run {
            start,
            stage: Stage::Start,
            need,
            penalties,
            constrained,
            sampler: (request.sampler.create)(&request.params, request.profile),
            tokens,
            pad,
            tail: vec![pad; shape.reserved(request.sampler)],
            noise: shape.noise,
            probabilities: Vec::new(),
            feedback: request.self_conditioning && shape.self_conditioning,
            cached,
            lead: request.prompt[cached..].to_vec(),
            committed: Vec::new(),
            canvases: Vec::new(),
            end: None,
            repetition: false,
            reused: 0,
            told: 0,
            reads: Vec::new(),
            block_bytes: 0,
            hashes: Hashes { logits: Sha256::new(), full: request.full_logits.then(Sha256::new) },
            timings: Timings::default(),
            windows,
            request: Arc::new(request),
        };
        let before = run.fixed(0..run.windows.first().map_or(tokens, |w| w.start));
        run.lead.extend_from_slice(&before);
        run.committed = before;
        Ok(run)
    }

    /// What is asked.
    pub(super) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// Whether its canvas passes can share a program with those of others: nobody looks at its raw logits, and it does not
    /// write keys and values of its own.
    pub(super) fn shares(&self) -> bool {
        !self.request.full_logits && self.request.cache == BlockCache::None
    }

    /// Bytes that it will take beside those that its session holds.
    pub(super) fn will_take(&self, model: &Model, session: &Session) -> u64 {
        let held = model.backend.seq_bytes(session.seq()).unwrap_or(0);
        self.need.total().saturating_sub(held as u64)
    }

    /// Whether it has ended.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    fn slot(&self, at: usize) -> Slot {
        self.request.given.slot(at, self.pad)
    }

    /// Given tokens of the answer, up to the first position that is to be decided.
    fn fixed(&self, range: Range<usize>) -> Vec<u32> {
        range.map_while(|at| fixed_id(self.slot(at))).collect()
    }

    /// What weighs on the first token of the next canvas, where a pass over what comes before it predicts that.
    fn penalties_before(&self, model: &Model) -> Penalties {
        match &self.constrained {
            Some(c) if model.shape().predicts_next() => {
                c.first_token(&self.penalties, self.request.prompt.len())
            }
            _ => self.penalties.clone(),
        }
    }

    /// What the prompt pass is over that is wanted after [`Next::Read`]: a part of the prompt, or of what was committed.
    pub(super) fn reads(&self) -> &[u32] {
        &self.reads
    }

    /// Says what comes next.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when `on_event` breaks; those of the passes.
    pub(super) fn advance(
        &mut self,
        model: &mut Model,
        session: &mut Session,
        draws: &dyn Draws,
        sink: &mut LogitsSink<'_>,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Next, Error> {
        self.reads.clear();
        model.arch.set_prompt_window(self.request.profile.window);
        let total = self.cached;
        match &self.stage {
            Stage::Start => {
                session.set_penalties(&self.penalties_before(model));
                self.reused = session.keep(model, &self.request.prompt[..total])?;
                self.told = self.reused;
                send(on_event, &Event::Prompt { done: self.reused, total })?;
                self.stage = Stage::Prompt;
                Ok(Next::Again)
            }
            Stage::Prompt => {
                let done = session.tokens().len();
                if done > self.told {
                    self.told = done;
                    send(on_event, &Event::Prompt { done, total })?;
                }
                self.reads.extend_from_slice(session.next_part(model.shape(), &self.request.prompt[..total]));
                if !self.reads.is_empty() {
                    return Ok(Next::Read);
                }
                if total == self.request.prompt.len() {
                    // The first canvas begins with a token that only the pass over what comes before it predicts.
                    self.reused -= session.predict_next(model, sink)?.min(self.reused);
                }
                self.timings.prompt = self.start.elapsed();
                self.stage = Stage::Between;
                Ok(Next::Again)
            }
            Stage::Between => match self.windows.get(self.canvases.len()).copied() {
                Some(window) if self.end.is_none() => {
                    session.set_penalties(&self.penalties_before(model));
                    let n = session.readable(model.shape(), &self.lead);
                    if n > 0 {
                        self.reads.extend(self.lead.drain(..n));
                        return Ok(Next::Read);
                    }
                    self.stage = Stage::Canvas(self.canvas(model, session, draws, window));
                    Ok(Next::Again)
                }
                _ => {
                    self.stage = Stage::Done;
                    Ok(Next::Done)
                }
            },
            Stage::Canvas(canvas) if canvas.asked.is_some() => Ok(Next::Canvas),
            Stage::Canvas(_) => {
                if let Stage::Canvas(canvas) = std::mem::replace(&mut self.stage, Stage::Between) {
                    let report =
                        CanvasReport { steps: 0, stop: Stop::Converged, accepted_per_step: Vec::new() };
                    let (ids, first) = (canvas.ids, self.start.elapsed());
                    self.commit(model, session, (ids, &canvas.slots), (report, first), on_event)?;
                }
                Ok(Next::Again)
            }
            Stage::Done => Ok(Next::Done),
        }
    }

    /// Begins a canvas.
    fn canvas(&mut self, model: &Model, session: &Session, draws: &dyn Draws, window: Window) -> Canvas {
        let number = self.canvases.len();
        let slots: Vec<Slot> = (window.start..window.start + window.len).map(|at| self.slot(at)).collect();
        let len = slots.len();
        let drawn = match draws.recorded() {
            true => number,
            false => self.request.profile.draws_of(number),
        };
        let mut ids = first_canvas(self.noise, draws, drawn, len);
        // The first token of a block that comes with the pass before it, which alone can predict it.
        let first = slots.first().is_some_and(|s| s.is_open());
        let next = session.next().filter(|_| self.lead.is_empty() && first);
        if let Some(next) = next {
            ids[0] = next;
        }
        for (id, &slot) in ids.iter_mut().zip(&slots) {
            *id = fixed_id(slot).unwrap_or(*id);
        }
        let mut canvas = Canvas {
            fixed: slots.iter().map(|s| !s.is_open()).collect(),
            slots,
            drawn,
            n_prefix: session.tokens().len() + self.lead.len(),
            predicted_first: next.is_some(),
            ids,
            accepted: vec![false; len],
            step: 0,
            block: None,
            accepted_per_step: Vec::new(),
            first_draft: Duration::ZERO,
            probabilities: self.request.logprobs.map(|top| Probabilities::new(top, len)),
            asked: None,
        };
        if canvas.open(self.noise, &canvas.ids).contains(&true) {
            let undecided: Vec<bool> = canvas.fixed.iter().map(|fixed| !fixed).collect();
            // Positions of the canvas's block before it.
            let before = if model.shape().reading == Reading::Blocks { self.lead.len() } else { 0 };
            self.sampler.begin(&undecided, before);
            self.ask(&mut canvas, draws);
        }
        canvas
    }

    /// Prepares the next step of a canvas.
    fn ask(&self, canvas: &mut Canvas, draws: &dyn Draws) {
        let (step, len) = (canvas.step, canvas.ids.len());
        let ask = self.sampler.ask(step);
        let ask = Ask { logits: ask.logits || self.request.wants_logits(), ..ask };
        let open = canvas.open(self.noise, &canvas.ids);
        let fixed = &canvas.fixed;
        let edited = |i: usize| ask.edit && !fixed[i] && (i > 0 || !canvas.predicted_first);
        let mut predicted: Vec<bool> = (0..len).map(|i| open[i] || edited(i)).collect();
        let block = (self.request.cache != BlockCache::None).then(|| self.sampler.block(&open));
        let block_step = block.as_ref().map(|block| {
            let first = canvas.block.as_ref() != Some(block);
            if !first {
                (0..len).filter(|i| !block.contains(i)).for_each(|i| predicted[i] = false);
            }
            BlockStep { cache: self.request.cache, begin: block.start, end: block.end, first }
        });
        let decided = match self.noise {
            Noise::Mask(_) => open.iter().map(|open| !open).collect(),
            Noise::Uniform => canvas.accepted.iter().zip(fixed).map(|(&a, &fixed)| a || fixed).collect(),
        };
        let previous = match step {
            1.. if self.feedback && !self.penalties.is_none(canvas.n_prefix) => Previous::KeptLogits,
            1.. if self.feedback => Previous::Kept { temperature: self.sampler.ask(step - 1).temperature },
            _ => Previous::None,
        };
        let uniform = draws.uniform(canvas.drawn, step, len);
        canvas.block = block;
        canvas.asked = Some(Asked { ask, uniform, open, predicted, decided, block: block_step, previous });
    }

    /// The pass that is wanted after [`Next::Canvas`]; one over nothing at any other time.
    pub(super) fn pass(&self) -> CanvasPass<'_> {
        let Stage::Canvas(canvas @ Canvas { asked: Some(asked), .. }) = &self.stage else {
            return CanvasPass::new(&[]);
        };
        let some_closed = matches!(self.noise, Noise::Mask(_)) || canvas.any_fixed();
        CanvasPass {
            lead: &self.lead,
            ids: &canvas.ids,
            tail: &self.tail,
            open: some_closed.then_some(&asked.predicted[..]),
            previous: asked.previous,
            keep: self.feedback,
            sampling: Some(Sampling { ask: asked.ask, uniform: &asked.uniform }),
            penalties: Some(&self.penalties),
            decided: &asked.decided,
            block: asked.block,
        }
    }

    /// Takes the result of that pass: lets the sampler decide, and commits the canvas where it is final.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when `on_event` breaks; no canvas in the language that the answer is held to.
    pub(super) fn step(
        &mut self,
        model: &mut Model,
        session: &Session,
        draws: &dyn Draws,
        mut result: CanvasResult,
        sink: &mut LogitsSink<'_>,
        on_event: &mut OnEvent<'_>,
    ) -> Result<(), Error> {
        let stage = std::mem::replace(&mut self.stage, Stage::Between);
        let Stage::Canvas(mut canvas) = stage else {
            self.stage = stage;
            return Ok(());
        };
        let Some(asked) = canvas.asked.take() else { return Ok(()) };
        let (noise, number, n_prefix) = (self.noise, self.canvases.len(), canvas.n_prefix);
        let Asked { ask, uniform, open, predicted, .. } = asked;
        let (drawn, step, len) = (canvas.drawn, canvas.step, canvas.ids.len());
        if canvas.any_fixed() && self.feedback {
            sink.keep_open(&predicted);
        }
        if let Some(sampled) = draws.sampled(drawn, step) {
            result.sample = sampled;
        }
        if let Some(c) = &self.constrained {
            let positions = Positions { ids: &canvas.ids, open: &open, predicted: &predicted };
            c.read(number, &positions, &Sampling { ask, uniform: &uniform }, &mut result)?;
        }
        // Canvases of masks are never re-noised, and positions of other canvases are not chosen at random.
        let (renoise, choice) = match noise {
            Noise::Uniform => (draws.renoise(drawn, step, len), Vec::new()),
            Noise::Mask(_) => (Vec::new(), draws.choice(drawn, step, len)),
        };
        let mut decision = self.sampler.step(StepView {
            step,
            canvas: &canvas.ids,
            open: &open,
            argmax: &result.argmax,
            sample: &result.sample,
            lse: &result.lse,
            entropy: &result.entropy,
            first: &result.first,
            second: &result.second,
            sampled: &result.sampled,
            logits: &result.logits,
            mask: if let Noise::Mask(mask) = noise { mask } else { 0 },
            renoise: &renoise,
            choice: &choice,
            end_ids: &self.request.end_ids,
        });
        // Where nothing was predicted there is nothing to be sure of.
        for (confidence, predicted) in decision.confidence.iter_mut().zip(&predicted) {
            if !predicted {
                *confidence = 0.0;
            }
        }
        if let (Noise::Mask(mask), true) = (noise, ask.edit) {
            self.penalties.reopen(n_prefix, &mut decision.canvas, mask);
        }
        let masked = matches!(noise, Noise::Mask(_));
        let left = canvas.open(noise, &decision.canvas);
        let full = !left.contains(&true);
        let ended = canvas.ended(noise, &decision.canvas, &self.request.end_ids);
        let settled = match self.constrained {
            // What is in the language is not edited.
            Some(_) => ended || full && masked,
            None => ended && !ask.edit,
        };
        if decision.stop.is_none() && settled {
            decision.stop = Some(Stop::Converged);
        }
        if let Some(c) = &self.constrained
            && masked
            && decision.stop.is_some()
            && !full
            && !ended
        {
            let positions = Positions { ids: &decision.canvas, open: &left, predicted: &predicted };
            decision.canvas = c.complete(number, &positions, &result.logits)?;
        }
        canvas.accepted_per_step.push(decision.n_accepted());
        if step == 0 {
            canvas.first_draft = self.start.elapsed();
        }
        let event = Event::Step(StepEvent {
            canvas: number,
            step,
            steps_max: self.sampler.max_steps(),
            n_prefix,
            temperature: ask.temperature,
            canvas_in: &canvas.ids,
            predicted: &predicted,
            uniform: &uniform,
            renoise: &renoise,
            open: masked.then_some(&open[..]),
            fixed: if canvas.any_fixed() { &canvas.fixed } else { &[] },
            choice: &choice,
            result: &result,
            decision: &decision,
            logits: sink.wanted.then_some(&sink.logits[..]),
        });
        send(on_event, &event)?;
        let said = Said { step, predicted: &predicted, logits: &result.logits };
        let Some(stop) = decision.stop else {
            if let Some(p) = &mut canvas.probabilities {
                let accepted = || decision.accepted.iter().zip(&canvas.fixed).map(|(a, fixed)| *a || *fixed);
                let decided = if masked {
                    left.iter().map(|open| !open).collect()
                } else {
                    accepted().collect::<Vec<_>>()
                };
                p.step(&decision.canvas, &decided, &said);
            }
            (canvas.ids, canvas.accepted) = (decision.canvas, decision.accepted);
            canvas.step += 1;
            self.ask(&mut canvas, draws);
            self.stage = Stage::Canvas(canvas);
            return Ok(());
        };
        self.hashes.last_step(&result, &sink.logits);
        let ids = match (noise, self.request.profile.commit) {
            (Noise::Uniform, Commit::Argmax) => result.argmax,
            (Noise::Mask(_), _) => decision.canvas,
            (Noise::Uniform, Commit::Canvas) => {
                // Fresh noise knows of no bans.
                let mut ids = decision.canvas;
                self.penalties.without_banned(n_prefix, &mut ids, &result.argmax);
                ids
            }
        };
        if let Some(mut p) = canvas.probabilities.take() {
            p.step(&ids, &vec![true; len], &Said { step, predicted: &predicted, logits: &result.logits });
            self.probabilities = self.rescored(model, session, &canvas, (p, &ids))?;
        }
        let report = CanvasReport {
            steps: step + 1,
            stop,
            accepted_per_step: std::mem::take(&mut canvas.accepted_per_step),
        };
        self.commit(model, session, (ids, &canvas.slots), (report, canvas.first_draft), on_event)
    }

    /// Looks once more at the tokens of a canvas, which are final.
    fn rescored(
        &self,
        model: &mut Model,
        session: &Session,
        canvas: &Canvas,
        (probabilities, ids): (Probabilities, &[u32]),
    ) -> Result<Vec<TokenProbability>, Error> {
        let predicted: Vec<bool> = canvas
            .fixed
            .iter()
            .enumerate()
            .map(|(i, fixed)| !fixed && (i > 0 || !canvas.predicted_first))
            .collect();
        let uniform = vec![0.5; ids.len()];
        let ask = Ask { logits: true, ..Ask::default() };
        let pass = CanvasPass {
            lead: &self.lead,
            tail: &self.tail,
            open: Some(&predicted),
            keep: false,
            sampling: Some(Sampling { ask, uniform: &uniform }),
            ..CanvasPass::new(ids)
        };
        let result = canvas_pass(model, session, pass, &mut self.request.logits_sink(false))?;
        Ok(probabilities.finish(self.canvases.len(), &predicted, &result.logits))
    }

    /// What the steps of a block shared is of no use to anything else.
    fn forget_block(&mut self, model: &mut Model, session: &Session) -> Result<(), Error> {
        if self.request.cache != BlockCache::None {
            self.block_bytes = model.backend.seq_bytes(session.seq())?;
            model.backend.seq_truncate(session.seq(), session.tokens().len())?;
        }
        Ok(())
    }

    /// A canvas is final.
    fn commit(
        &mut self,
        model: &mut Model,
        session: &Session,
        (mut ids, slots): (Vec<u32>, &[Slot]),
        (report, first_draft): (CanvasReport, Duration),
        on_event: &mut OnEvent<'_>,
    ) -> Result<(), Error> {
        self.forget_block(model, session)?;
        let (canvas, tokens) = (self.canvases.len(), self.tokens);
        let window = self.windows[canvas];
        if canvas == 0 {
            self.timings.first_draft = first_draft;
        }
        ids.truncate(window.keep);
        let free = free_from(slots).min(ids.len());
        let least = self.request.least_tokens().saturating_sub(window.start + free);
        let mut end = None;
        if let Some((at, repeats)) = self.request.profile.end_of(&ids[free..], &self.request.end_ids, least) {
            self.repetition = repeats;
            // An end token stays, what repeats goes.
            ids[free + if repeats { at } else { at + 1 }..].fill(self.pad);
            end = Some(window.start + free + at);
        }
        if let Some(c) = &mut self.constrained {
            let text = end.map_or(ids.len(), |end| end - window.start).min(tokens - window.start);
            let done = c.commit(canvas, &ids[..text], end.is_some())?;
            // What can only end has ended.
            end = end.or(done.then_some(window.start + text));
        }
        self.end = end;
        self.committed.extend_from_slice(&ids);
        self.lead.extend_from_slice(&ids);
        // What was committed, and given text up to the next canvas or to the end of the answer.
        let next = self.windows.get(canvas + 1).map_or(tokens, |w| w.start);
        if end.is_none() && next > self.committed.len() {
            let between = self.fixed(self.committed.len()..next);
            self.lead.extend_from_slice(&between);
            self.committed.extend_from_slice(&between);
        }
        let until = end.unwrap_or(self.committed.len()).min(tokens);
        let stop = report.stop;
        self.canvases.push(report);
        if end.is_some() || self.canvases.len() == self.windows.len() {
            self.stage = Stage::Done;
        }
        let emitted = &self.committed[window.start..until.max(window.start)];
        let mut probabilities = std::mem::take(&mut self.probabilities);
        if self.request.logprobs.is_some() {
            probabilities.truncate(emitted.len().min(ids.len()));
            let rest = &emitted[probabilities.len()..];
            probabilities.extend(rest.iter().map(|&id| probabilities::given(id, canvas)));
        }
        send(on_event, &Event::Commit { canvas, ids: &ids, emitted, probabilities: &probabilities, stop })
    }

    /// The answer, where it is `done`.
    ///
    /// # Errors
    /// What it ended with; those of the backend.
    pub(super) fn finish(
        mut self,
        model: &mut Model,
        session: &Session,
        done: Result<(), Error>,
    ) -> Result<Generation, Error> {
        if let Err(e) = done {
            self.forget_block(model, session)?;
            return Err(e);
        }
        let tokens = self.tokens;
        self.timings.total = self.start.elapsed();
        self.timings.denoise = self.timings.total.saturating_sub(self.timings.prompt);
        let stopped = self.end.filter(|&e| e <= tokens);
        let ids = self.committed[..stopped.unwrap_or(tokens.min(self.committed.len()))].to_vec();
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let last_open = self.slot(tokens.saturating_sub(1)).is_open();
        let digests = Digests {
            ids: hex(&Sha256::digest(&bytes)),
            logits: hex(&self.hashes.logits.finalize()),
            full: self.hashes.full.map(|h| hex(&h.finalize())),
        };
        // Given text that ends the answer makes it complete, and so does a language.
        let complete = self.constrained.is_some() || self.request.given.end.is_some() || !last_open;
        Ok(Generation {
            ids,
            committed: self.committed,
            finish: if stopped.is_some() || complete { Finish::Stop } else { Finish::Length },
            repetition: self.repetition && stopped.is_some(),
            canvases: self.canvases,
            timings: self.timings,
            digests,
            kv_bytes: model.backend.seq_bytes(session.seq())?.max(self.block_bytes),
            reused: self.reused,
            kv_windowed: session.is_windowed(),
        })
    }
}

fn send(on_event: &mut OnEvent<'_>, event: &Event<'_>) -> Result<(), Error> {
    if on_event(event).is_break() { Err(Error::Interrupted) } else { Ok(()) }
}

struct Hashes {
    logits: Sha256,
    full: Option<Sha256>,
}

impl Hashes {
    fn last_step(&mut self, r: &CanvasResult, logits: &[f64]) {
        for i in 0..r.argmax.len() {
            for x in [r.max[i], r.lse[i], r.entropy[i]] {
                self.logits.update(x.to_bits().to_le_bytes());
            }
            self.logits.update(r.argmax[i].to_le_bytes());
        }
        if let Some(full) = &mut self.full {
            logits.iter().for_each(|&x| full.update((x as f32).to_bits().to_le_bytes()));
        }
    }
}
