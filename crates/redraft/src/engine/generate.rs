//! The loop over canvases and steps.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redraft_compute::{TapData, TapKey, Val};
use serde::{Deserialize, Serialize};

use super::canvas::canvas_pass;
use super::pass::TapSink;
use super::result::CanvasResult;
use super::run::{Next, Run};
use super::{BlockCache, Draws, Given, Session, TokenProbability};
use crate::arch::{Reading, Shape};
use crate::constrain::Constraint;
use crate::sampler::{Ask, Decision, PROFILES, Params, Profile, SamplerSpec, Stop};
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
    /// What is added to the logits of ids in every step, before they are divided by a temperature.
    pub bias: Vec<(u32, f64)>,
    /// How likely each token was is told ([`Event::Commit`]), with so many of the most likely ids.
    pub logprobs: Option<usize>,
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

    /// Whether somebody other than the sampler looks at the logits of each step.
    pub(crate) fn wants_logits(&self) -> bool {
        self.constraint.is_some() || self.logprobs.is_some()
    }

    /// What its sampler, or somebody else, wants of a step.
    pub fn ask(&self) -> Ask {
        let ask = (self.sampler.create)(&self.params, self.profile).ask(0);
        Ask { logits: ask.logits || self.wants_logits(), ..ask }
    }

    /// Watches passes for the interruption of this request, and for their raw logits where they are `wanted`.
    pub(crate) fn logits_sink(&self, wanted: bool) -> LogitsSink<'_> {
        LogitsSink { interrupt: self.interrupt.as_ref(), wanted, logits: Vec::new() }
    }

    /// For an answer of `max_tokens` in the model's own way: its sampler, its parameters, its end tokens.
    ///
    /// # Errors
    /// [`Error::Autoregressive`] for a model that has no canvas to denoise; those of the parameters.
    pub fn new(model: &Model, prompt: Vec<u32>, max_tokens: usize) -> Result<Request, Error> {
        let sampler = model.sampler()?;
        Ok(Request {
            prompt,
            max_tokens,
            context_len: model.shape().context_len,
            sampler,
            params: model.params(sampler, &[])?,
            profile: &PROFILES[0],
            end_ids: model.tokenizer().end_ids(),
            ban: Vec::new(),
            bias: Vec::new(),
            logprobs: None,
            given: Given::default(),
            constraint: None,
            self_conditioning: true,
            cache: BlockCache::None,
            full_logits: false,
            interrupt: None,
        })
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
    /// Positions that were predicted, whose rows [`logits`](Self::logits) has.
    pub predicted: &'a [bool],
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
    /// Raw logits of the predicted positions, `[predicted, V]`, before guidance, where [`Request::full_logits`] asks for
    /// them.
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
        /// How likely each of `emitted` was, where [`Request::logprobs`] asks; else nothing.
        probabilities: &'a [TokenProbability],
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
    /// Of the raw f32 logits of the last step of each canvas, row-major, of the positions in [`StepEvent::logits`]; where
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
    pub(super) wanted: bool,
    /// Those of the last pass.
    pub(crate) logits: Vec<f64>,
}

impl LogitsSink<'_> {
    /// Leaves those of the open positions, where all have been computed.
    pub(super) fn keep_open(&mut self, open: &[bool]) {
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
    let mut run = Run::new(model, session, request.clone(), 0)?;
    let mut sink = request.logits_sink(request.full_logits);
    let mut go = || -> Result<(), Error> {
        loop {
            match run.advance(model, session, draws, &mut sink, on_event)? {
                Next::Again => {}
                Next::Read => session.extend(model, run.reads(), &mut sink)?,
                Next::Canvas => {
                    let result = canvas_pass(model, session, run.pass(), &mut sink)?;
                    run.step(model, session, draws, result, &mut sink, on_event)?;
                }
                Next::Done => return Ok(()),
            }
        }
    };
    let done = go();
    run.finish(model, session, done)
}
