//! The loop over canvases and steps.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use redraft_compute::{TapData, TapKey, Val};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::constrained::{Constrained, Positions};
use super::pass::{CanvasPass, Previous, Sampling, TapSink, canvas_pass};
use super::result::CanvasResult;
use super::{BlockCache, BlockStep, Draws, Given, Penalties, Session, Slot, check, first_canvas, memory};
use crate::arch::{Noise, Reading, Shape};
use crate::constrain::Constraint;
use crate::model::hex;
use crate::sampler::{Ask, Commit, Decision, Params, Profile, Sampler, SamplerSpec, StepView, Stop};
use crate::{Error, Model};

/// Tokens of an answer where the user does not say.
pub const DEFAULT_MAX_TOKENS: usize = 512;

/// What to generate.
#[derive(Clone)]
pub struct Request {
    /// Prompt ids, BOS included.
    pub prompt: Vec<u32>,
    /// Tokens of the answer at most. Whole canvases are denoised and the output is cut; where the answer is one canvas,
    /// that is its length.
    pub max_tokens: usize,
    /// Context length; prompt and whole canvases must fit.
    pub context_len: usize,
    /// The sampler.
    pub sampler: &'static SamplerSpec,
    /// Its parameters.
    pub params: Params,
    /// Which reference implementation to follow where they disagree.
    pub profile: &'static Profile,
    /// Ids that end the answer.
    pub end_ids: Vec<u32>,
    /// Ids that are never drawn.
    pub ban: Vec<u32>,
    /// What of the answer is given.
    pub given: Given,
    /// The language that the answer is held to.
    pub constraint: Option<Arc<Constraint>>,
    /// Feed the previous prediction back (where the model can).
    pub self_conditioning: bool,
    /// Which keys and values the steps of a block share, in models that read prompt and answer whole: an approximation,
    /// which changes answers. Blocks are those of the sampler; one that has none takes the canvas for one.
    pub cache: BlockCache,
    /// Show raw logits in each [`StepEvent`] and digest them.
    pub full_logits: bool,
    /// Set from elsewhere to stop, inside a pass too.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Request {
    /// Tokens of the answer at least, if it does not reach its most before: `min_tokens` of its parameters.
    pub(crate) fn least_tokens(&self) -> usize {
        // Samplers of others have no such parameter, and NaN becomes 0.
        self.params.int("min_tokens")
    }

    /// Watches passes for the interruption of this request, and for their raw logits where they are `wanted`.
    pub(crate) fn logits_sink(&self, wanted: bool) -> LogitsSink<'_> {
        LogitsSink { interrupt: self.interrupt.as_ref(), wanted, logits: Vec::new() }
    }
}

/// Tokens of an answer where the user does not say: [`DEFAULT_MAX_TOKENS`], or the length that the model's makers take
/// for answers of one canvas; or what the context leaves after the prompt, in whole canvases.
pub fn default_max_tokens(
    shape: &Shape,
    sampler: &SamplerSpec,
    context_len: usize,
    prompt_len: usize,
) -> usize {
    let room = context_len.saturating_sub(prompt_len).saturating_sub(shape.reserved(sampler));
    match shape.reading {
        Reading::Cached => {
            let len = shape.canvas_len.max(1);
            DEFAULT_MAX_TOKENS.min(room / len * len)
        }
        // Blocks are counted from the start of the prompt.
        Reading::Blocks => DEFAULT_MAX_TOKENS.min(shape.cached(context_len).saturating_sub(prompt_len)),
        Reading::Whole => shape.canvas_len.min(room),
    }
    .max(1)
}

/// One denoising step, everything about it.
#[derive(Debug)]
pub struct StepEvent<'a> {
    /// Canvas, counted from 0.
    pub canvas: usize,
    /// Step in the canvas, counted from 0.
    pub step: usize,
    /// Steps of a canvas at most.
    pub steps_max: usize,
    /// Tokens before the canvas.
    pub n_prefix: usize,
    /// Temperature of the step.
    pub temperature: f64,
    /// Canvas that went in.
    pub canvas_in: &'a [u32],
    /// Uniform numbers that sampled.
    pub uniform: &'a [f64],
    /// Fresh noise, for all positions.
    pub renoise: &'a [u32],
    /// In canvases of masks, the positions that were masked.
    pub open: Option<&'a [bool]>,
    /// Positions whose token is given; empty where there are none.
    pub fixed: &'a [bool],
    /// Uniform numbers that chose positions; empty for samplers that decide canvases of random tokens.
    pub choice: &'a [f64],
    /// Argmax, sample and statistics.
    pub result: &'a CanvasResult,
    /// What the sampler decided.
    pub decision: &'a Decision,
    /// Raw logits of the open positions, `[open, V]`, before guidance, where [`Request::full_logits`] asks for them. With
    /// a [`BlockCache`] those of the block alone, but in its first step.
    pub logits: Option<&'a [f64]>,
}

/// What happens while a model generates.
#[derive(Debug)]
pub enum Event<'a> {
    /// Prompt tokens done, of so many.
    Prompt {
        /// Tokens in the cache.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A denoising step.
    Step(StepEvent<'a>),
    /// A canvas is final.
    Commit {
        /// Canvas, counted from 0.
        canvas: usize,
        /// What is committed: the argmax of the last step (or what [`Request::profile`] says), padded after an
        /// end token.
        ids: &'a [u32],
        /// What reaches the user with it: those of `ids` before the end token and within `max_tokens`, and given text from
        /// there to the next canvas.
        emitted: &'a [u32],
        /// Why the canvas was done.
        stop: Stop,
    },
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// An end token within `max_tokens`, or what the profile takes for one. The answer may be empty: a model
    /// that is asked for nothing much may fill its first canvas with end tokens.
    Stop,
    /// `max_tokens`.
    Length,
}

impl Finish {
    /// In JSON and receipts.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
        }
    }
}

/// One canvas, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanvasReport {
    /// Steps taken.
    pub steps: usize,
    /// Why it was done.
    pub stop: Stop,
    /// Positions accepted in each step.
    pub accepted_per_step: Vec<usize>,
}

/// Where the time went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// Passes over the prompt.
    pub prompt: Duration,
    /// From the start to the end of the first step.
    pub first_draft: Duration,
    /// Denoising steps, sampling included, and the passes over committed canvases.
    pub denoise: Duration,
    /// All of it.
    pub total: Duration,
}

/// SHA-256 digests in hexadecimal: equal on every bit-exact backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digests {
    /// Of the emitted ids, u32 little-endian.
    pub ids: String,
    /// For the last step of each canvas, per row the f32 bits of maximum, log-sum-exp and entropy and the
    /// u32 argmax.
    pub logits: String,
    /// Of the raw f32 logits of the last step of each canvas, row-major, open positions only, as in [`StepEvent::logits`]; where
    /// [`Request::full_logits`] asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// Emitted ids, without the end token.
    pub ids: Vec<u32>,
    /// Committed canvases, padded after an end token.
    pub committed: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// The answer was ended where it began to repeat itself, which some profiles do.
    pub repetition: bool,
    /// The canvases.
    pub canvases: Vec<CanvasReport>,
    /// Where the time went.
    pub timings: Timings,
    /// Digests.
    pub digests: Digests,
    /// Bytes of KV cache after the last step.
    pub kv_bytes: usize,
    /// Prompt tokens whose keys and values the session had already.
    pub reused: usize,
    /// Sliding layers hold the last tokens only, because the cache would be larger than its budget: a conversation
    /// that goes back further than half a window is computed anew.
    pub kv_windowed: bool,
}

/// Watches a pass for the raw logits, and for an interruption.
pub(crate) struct LogitsSink<'a> {
    interrupt: Option<&'a Arc<AtomicBool>>,
    wanted: bool,
    /// Those of the last pass.
    pub(crate) logits: Vec<f64>,
}

impl LogitsSink<'_> {
    /// Leaves those of the open positions, where all have been computed.
    fn keep_open(&mut self, open: &[bool]) {
        let width = self.logits.len() / open.len().max(1);
        let rows = self.logits.chunks(width.max(1)).zip(open).filter(|(_, open)| **open);
        self.logits = rows.flat_map(|(row, _)| row).copied().collect();
    }
}

impl TapSink for LogitsSink<'_> {
    fn wants(&self, key: TapKey) -> bool {
        self.wanted && key.name == "logits"
    }

    fn tap(&mut self, _key: TapKey, _val: Val, data: TapData<'_>) {
        self.logits.clear();
        match data {
            TapData::F32(x) => self.logits.extend(x.iter().map(|&x| f64::from(x))),
            TapData::F64(x) => self.logits.extend_from_slice(x),
            TapData::I32(_) => {}
        }
    }

    fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        self.interrupt.cloned()
    }
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

/// Generates an answer in `session`, whose cache is reused as far as it matches the prompt.
///
/// # Errors
/// [`Error::ContextOverflow`] and [`Error::Memory`] before anything is computed; [`Error::Interrupted`] when `on_event` breaks or
/// the interrupt flag is set; those of the passes.
pub fn generate(
    model: &mut Model,
    session: &mut Session,
    request: &Request,
    draws: &dyn Draws,
    on_event: &mut dyn FnMut(&Event<'_>) -> ControlFlow<()>,
) -> Result<Generation, Error> {
    let start = Instant::now();
    model.sampler()?;
    let given = &request.given;
    let tokens = given.tokens(request.max_tokens);
    let answer = match given.is_empty() {
        true => model.shape().canvases(request.prompt.len(), tokens).total(),
        false => tokens,
    };
    check::request(model, request, answer)?;
    let mut constrained = Constrained::of(model, request)?;
    let penalties = Penalties::of(model, request)?;
    memory::check(model, session, request, &penalties, answer)?;
    // Where a pass over what comes before a canvas predicts its first token, the language weighs on it, too.
    let predicts_next = model.shape().predicts_next();
    let before = |constrained: &Option<Constrained<'_>>| match constrained {
        Some(c) if predicts_next => c.first_token(&penalties, request.prompt.len()),
        _ => penalties.clone(),
    };
    session.set_penalties(&before(&constrained));
    let windows = given.windows(model.shape(), request.prompt.len(), request.max_tokens);
    if let Some(last) = windows.last() {
        check::context(model, request, last.start.saturating_add(last.len))?;
    }
    let (cached, lead) = request.prompt.split_at(model.shape().cached(request.prompt.len()));
    let mut sink = request.logits_sink(request.full_logits);
    let mut reused = session
        .set_prompt(model, cached, &mut sink, &mut |done, total| on_event(&Event::Prompt { done, total }))?;
    if lead.is_empty() {
        // The first canvas begins with a token that only the pass over what comes before it predicts.
        reused -= session.predict_next(model, &mut sink)?.min(reused);
    }
    let mut timings = Timings { prompt: start.elapsed(), ..Timings::default() };
    let mut hashes = Hashes { logits: Sha256::new(), full: request.full_logits.then(Sha256::new) };
    let mut sampler = (request.sampler.create)(&request.params, request.profile);
    model.arch.set_prompt_window(request.profile.window);
    let pad = model.tokenizer().pad().unwrap_or(0);
    let slot = |at: usize| given.slot(at, pad);
    let fixed = |range: Range<usize>| range.map_while(|at| fixed_id(slot(at))).collect::<Vec<u32>>();
    // What comes before the next canvas and is not in the cache.
    let mut lead = lead.to_vec();
    let mut committed = fixed(0..windows.first().map_or(tokens, |w| w.start));
    lead.extend_from_slice(&committed);
    let mut canvases = Vec::new();
    let mut end = None;
    let mut repetition = false;
    let mut block_bytes = 0;
    let least = request.least_tokens();
    for (canvas, window) in windows.iter().enumerate() {
        session.set_penalties(&before(&constrained));
        lead = session.extend_by(model, lead, &mut sink)?;
        let slots: Vec<Slot> = (window.start..window.start + window.len).map(slot).collect();
        let mut run = Canvas {
            model,
            session,
            request,
            penalties: &penalties,
            constrained: constrained.as_ref(),
            draws,
            lead: &lead,
            slots: &slots,
            sampler: &mut *sampler,
            canvas,
            start,
        };
        let done = run.denoise(&mut sink, &mut hashes, on_event);
        if request.cache != BlockCache::None {
            // What the steps of a block shared is of no use to anything else.
            block_bytes = model.backend.seq_bytes(session.seq())?;
            model.backend.seq_truncate(session.seq(), session.tokens().len())?;
        }
        let (mut ids, report, first) = done?;
        if canvas == 0 {
            timings.first_draft = first;
        }
        ids.truncate(window.keep);
        let free = free_from(&slots).min(ids.len());
        if let Some((at, repeats)) =
            request.profile.end_of(&ids[free..], &request.end_ids, least.saturating_sub(window.start + free))
        {
            repetition = repeats;
            // An end token stays, what repeats goes.
            ids[free + if repeats { at } else { at + 1 }..].fill(pad);
            end = Some(window.start + free + at);
        }
        if let Some(c) = &mut constrained {
            let text = end.map_or(ids.len(), |end| end - window.start).min(tokens - window.start);
            let done = c.commit(canvas, &ids[..text], end.is_some())?;
            // What can only end has ended.
            end = end.or(done.then_some(window.start + text));
        }
        committed.extend_from_slice(&ids);
        lead.extend_from_slice(&ids);
        // What was committed, and given text up to the next canvas or to the end of the answer.
        let next = windows.get(canvas + 1).map_or(tokens, |w| w.start);
        if end.is_none() && next > committed.len() {
            let between = fixed(committed.len()..next);
            lead.extend_from_slice(&between);
            committed.extend_from_slice(&between);
        }
        let until = end.unwrap_or(committed.len()).min(tokens);
        let emitted = &committed[window.start..until.max(window.start)];
        if on_event(&Event::Commit { canvas, ids: &ids, emitted, stop: report.stop }).is_break() {
            return Err(Error::Interrupted);
        }
        canvases.push(report);
        if end.is_some() {
            break;
        }
    }
    timings.total = start.elapsed();
    timings.denoise = timings.total.saturating_sub(timings.prompt);
    let stopped = end.filter(|&e| e <= tokens);
    let ids = committed[..stopped.unwrap_or(tokens.min(committed.len()))].to_vec();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let digests = Digests {
        ids: hex(&Sha256::digest(&bytes)),
        logits: hex(&hashes.logits.finalize()),
        full: hashes.full.map(|h| hex(&h.finalize())),
    };
    // Given text that ends the answer makes it complete, and so does a language.
    let complete = constrained.is_some() || given.end.is_some() || !slot(tokens.saturating_sub(1)).is_open();
    let finish = if stopped.is_some() || complete { Finish::Stop } else { Finish::Length };
    let kv_bytes = model.backend.seq_bytes(session.seq())?.max(block_bytes);
    let repetition = repetition && stopped.is_some();
    let kv_windowed = session.is_windowed();
    Ok(Generation {
        ids,
        committed,
        finish,
        repetition,
        canvases,
        timings,
        digests,
        kv_bytes,
        reused,
        kv_windowed,
    })
}

fn fixed_id(slot: Slot) -> Option<u32> {
    match slot {
        Slot::Fixed(id) => Some(id),
        _ => None,
    }
}

/// Where in a canvas an answer can end: after everything that is given and every gap.
fn free_from(slots: &[Slot]) -> usize {
    slots.iter().rposition(|&s| s != Slot::Open).map_or(0, |at| at + 1)
}

/// One canvas being denoised.
struct Canvas<'a> {
    model: &'a mut Model,
    session: &'a mut Session,
    request: &'a Request,
    penalties: &'a Penalties,
    constrained: Option<&'a Constrained<'a>>,
    draws: &'a dyn Draws,
    /// What is read before the canvas in each step.
    lead: &'a [u32],
    /// Its positions.
    slots: &'a [Slot],
    sampler: &'a mut dyn Sampler,
    canvas: usize,
    start: Instant,
}

impl Canvas<'_> {
    /// Steps until the sampler stops. Returns what is committed, the report, and when the first
    /// step was done.
    fn denoise(
        &mut self,
        sink: &mut LogitsSink<'_>,
        hashes: &mut Hashes,
        on_event: &mut dyn FnMut(&Event<'_>) -> ControlFlow<()>,
    ) -> Result<(Vec<u32>, CanvasReport, Duration), Error> {
        let len = self.slots.len();
        let n_prefix = self.session.tokens().len() + self.lead.len();
        let shape = self.model.shape();
        let (noise, feedback) = (shape.noise, self.request.self_conditioning && shape.self_conditioning);
        let tail = vec![self.model.tokenizer().pad().unwrap_or(0); shape.reserved(self.request.sampler)];
        // Positions of the canvas's block before it.
        let before = if shape.reading == Reading::Blocks { self.lead.len() } else { 0 };
        let drawn = match self.draws.recorded() {
            true => self.canvas,
            false => self.request.profile.draws_of(self.canvas),
        };
        let mut ids = first_canvas(noise, self.draws, drawn, len);
        // The first token of a block that comes with the pass before it, which alone can predict it.
        let next = self
            .session
            .next()
            .filter(|_| self.lead.is_empty() && self.slots.first().is_some_and(|s| s.is_open()));
        if let Some(next) = next {
            ids[0] = next;
        }
        // Of random tokens those count as decided that the step before accepted.
        let mut accepted = vec![false; len];
        let fixed: Vec<bool> = self.slots.iter().map(|s| !s.is_open()).collect();
        for (id, &slot) in ids.iter_mut().zip(self.slots) {
            *id = fixed_id(slot).unwrap_or(*id);
        }
        let any_fixed = fixed.contains(&true);
        let is_open = |ids: &[u32]| -> Vec<bool> {
            ids.iter().zip(&fixed).map(|(&id, &fixed)| !fixed && noise.is_open(id)).collect()
        };
        let mut accepted_per_step = Vec::new();
        let mut first_draft = Duration::ZERO;
        if !is_open(&ids).contains(&true) {
            let report = CanvasReport { steps: 0, stop: Stop::Converged, accepted_per_step };
            return Ok((ids, report, self.start.elapsed()));
        }
        let undecided: Vec<bool> = fixed.iter().map(|fixed| !fixed).collect();
        self.sampler.begin(&undecided, before);
        let mut step = 0;
        // The block whose surroundings are in the cache.
        let mut cached = None;
        loop {
            let ask = self.sampler.ask(step);
            let ask = Ask { logits: ask.logits || self.constrained.is_some(), ..ask };
            let uniform = self.draws.uniform(drawn, step, len);
            let open = is_open(&ids);
            let masked = matches!(noise, Noise::Mask(_)).then_some(&open[..]);
            let mut predicted: Vec<bool> =
                (0..len).map(|i| open[i] || ask.edit && !fixed[i] && (i > 0 || next.is_none())).collect();
            let block = (self.request.cache != BlockCache::None).then(|| self.sampler.block(&open));
            let block_step = block.as_ref().map(|block| {
                let first = cached != Some(block.clone());
                if !first {
                    (0..len).filter(|i| !block.contains(i)).for_each(|i| predicted[i] = false);
                }
                BlockStep { cache: self.request.cache, begin: block.start, end: block.end, first }
            });
            let decided: Vec<bool> = match noise {
                Noise::Mask(_) => open.iter().map(|open| !open).collect(),
                Noise::Uniform => {
                    accepted.iter().zip(&fixed).map(|(&accepted, &fixed)| accepted || fixed).collect()
                }
            };
            let previous = match step {
                1.. if feedback && !self.penalties.is_none(n_prefix) => Previous::KeptLogits,
                1.. if feedback => Previous::Kept { temperature: self.sampler.ask(step - 1).temperature },
                _ => Previous::None,
            };
            let pass = CanvasPass {
                lead: self.lead,
                ids: &ids,
                tail: &tail,
                open: (masked.is_some() || any_fixed).then_some(&predicted[..]),
                previous,
                keep: feedback,
                sampling: Some(Sampling { ask, uniform: &uniform }),
                penalties: Some(self.penalties),
                decided: &decided,
                block: block_step,
            };
            cached = block;
            let mut result = canvas_pass(self.model, self.session, pass, sink)?;
            if any_fixed && feedback {
                sink.keep_open(&predicted);
            }
            if let Some(sampled) = self.draws.sampled(drawn, step) {
                result.sample = sampled;
            }
            let positions = Positions { ids: &ids, open: &open, predicted: &predicted };
            if let Some(c) = self.constrained {
                c.read(self.canvas, &positions, &Sampling { ask, uniform: &uniform }, &mut result)?;
            }
            // Canvases of masks are never re-noised, and positions of other canvases are not chosen at random.
            let (renoise, choice) = match noise {
                Noise::Uniform => (self.draws.renoise(drawn, step, len), Vec::new()),
                Noise::Mask(_) => (Vec::new(), self.draws.choice(drawn, step, len)),
            };
            let mut decision = self.sampler.step(StepView {
                step,
                canvas: &ids,
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
            let full = !is_open(&decision.canvas).contains(&true);
            let ended = self.ended(noise, &decision.canvas);
            let settled = match self.constrained {
                // What is in the language is not edited.
                Some(_) => ended || full && masked.is_some(),
                None => ended && !ask.edit,
            };
            if decision.stop.is_none() && settled {
                decision.stop = Some(Stop::Converged);
            }
            if let (Some(c), Some(_), Some(_)) = (self.constrained, masked, decision.stop)
                && !full
                && !ended
            {
                let open = is_open(&decision.canvas);
                let positions = Positions { ids: &decision.canvas, open: &open, predicted: &predicted };
                decision.canvas = c.complete(self.canvas, &positions, &result.logits)?;
            }
            accepted_per_step.push(decision.n_accepted());
            if step == 0 {
                first_draft = self.start.elapsed();
            }
            let event = Event::Step(StepEvent {
                canvas: self.canvas,
                step,
                steps_max: self.sampler.max_steps(),
                n_prefix,
                temperature: ask.temperature,
                canvas_in: &ids,
                uniform: &uniform,
                renoise: &renoise,
                open: masked,
                fixed: if any_fixed { &fixed } else { &[] },
                choice: &choice,
                result: &result,
                decision: &decision,
                logits: sink.wanted.then_some(&sink.logits[..]),
            });
            if on_event(&event).is_break() {
                return Err(Error::Interrupted);
            }
            if let Some(stop) = decision.stop {
                hashes.last_step(&result, &sink.logits);
                let report = CanvasReport { steps: step + 1, stop, accepted_per_step };
                let committed = match (noise, self.request.profile.commit) {
                    (Noise::Uniform, Commit::Argmax) => result.argmax,
                    (Noise::Mask(_), _) => decision.canvas,
                    (Noise::Uniform, Commit::Canvas) => {
                        // Fresh noise knows of no bans.
                        let mut canvas = decision.canvas;
                        self.penalties.without_banned(n_prefix, &mut canvas, &result.argmax);
                        canvas
                    }
                };
                return Ok((committed, report, first_draft));
            }
            (ids, accepted) = (decision.canvas, decision.accepted);
            step += 1;
        }
    }

    /// Whether nothing that follows can change the answer: it has an end, everything before that is decided, and what is
    /// decided stays.
    fn ended(&self, noise: Noise, canvas: &[u32]) -> bool {
        let Noise::Mask(_) = noise else { return false };
        let free = free_from(self.slots);
        let open = |i: usize| self.slots[i].is_open() && noise.is_open(canvas[i]);
        let ends = |i: usize| i >= free && self.request.end_ids.contains(&canvas[i]);
        (0..canvas.len()).find(|&i| open(i) || ends(i)).is_some_and(|i| !open(i))
    }
}
