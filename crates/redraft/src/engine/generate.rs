//! The loop over canvases and steps.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redraft_compute::{TapData, TapKey, Val};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::pass::{CanvasPass, CanvasResult, Previous, Sampling, TapSink, canvas_pass, check_guidance};
use super::{Draws, Penalties, Session, first_canvas, memory};
use crate::arch::{Noise, Reading, Shape};
use crate::model::hex;
use crate::sampler::{
    Commit, Decision, PROFILES, Params, Profile, SAMPLERS, Sampler, SamplerSpec, StepView, Stop,
};
use crate::{Error, Model};

/// Tokens of an answer where the user does not say.
pub const DEFAULT_MAX_TOKENS: usize = 512;

/// What to generate.
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
    /// Feed the previous prediction back (where the model can).
    pub self_conditioning: bool,
    /// Show raw logits in each [`StepEvent`] and digest them.
    pub full_logits: bool,
    /// Set from elsewhere to stop between ops.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Request {
    /// Watches passes for the interruption of this request, and for their raw logits where they are `wanted`.
    pub(crate) fn logits_sink(&self, wanted: bool) -> LogitsSink<'_> {
        LogitsSink { interrupt: self.interrupt.as_deref(), wanted, logits: Vec::new() }
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
    /// Uniform numbers that chose positions; empty for samplers that decide canvases of random tokens.
    pub choice: &'a [f64],
    /// Argmax, sample and statistics.
    pub result: &'a CanvasResult,
    /// What the sampler decided.
    pub decision: &'a Decision,
    /// Raw logits of the open positions, `[open, V]`, before guidance, where [`Request::full_logits`] asks for them.
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
        /// Those of `ids` that reach the user: before the end token, and within `max_tokens`.
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
    /// Of the raw f32 logits of the last step of each canvas, row-major, open positions only; where [`Request::full_logits`] asks for it.
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
    /// Bytes of KV cache at the end.
    pub kv_bytes: usize,
    /// Prompt tokens whose keys and values the session had already.
    pub reused: usize,
    /// Sliding layers hold the last tokens only, because the cache would be larger than its budget: a conversation
    /// that goes back further than half a window is computed anew.
    pub kv_windowed: bool,
}

/// Watches a pass for the raw logits, and for an interruption.
pub(crate) struct LogitsSink<'a> {
    interrupt: Option<&'a AtomicBool>,
    wanted: bool,
    /// Those of the last pass.
    pub(crate) logits: Vec<f64>,
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

    fn interrupted(&self) -> bool {
        self.interrupt.is_some_and(|i| i.load(Ordering::Relaxed))
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
    let division = model.shape().canvases(request.prompt.len(), request.max_tokens);
    check_request(model, request, division.total())?;
    let mask = if let Noise::Mask(mask) = model.shape().noise { Some(mask) } else { None };
    let penalties = Penalties::of(request, model.shape().vocab_len, mask)?;
    memory::check(model, session, request, &penalties, division.total())?;
    session.set_penalties(&penalties);
    let (cached, mut lead) = request.prompt.split_at(model.shape().cached(request.prompt.len()));
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
    let mut committed: Vec<u32> = Vec::new();
    let mut canvases = Vec::new();
    let mut end = None;
    let mut repetition = false;
    for canvas in 0..division.count {
        let len = division.len_of(canvas);
        if canvas > 0 {
            let from = committed.len() - division.len_of(canvas - 1);
            session.extend(model, &[lead, &committed[from..]].concat(), &mut sink)?;
            lead = &[];
        }
        let mut run = Canvas {
            model,
            session,
            request,
            penalties: &penalties,
            draws,
            lead,
            len,
            sampler: &mut *sampler,
            canvas,
            start,
        };
        let (mut ids, report, first) = run.denoise(&mut sink, &mut hashes, on_event)?;
        if canvas == 0 {
            timings.first_draft = first;
        }
        if let Some((at, repeats)) = request.profile.end_of(&ids, &request.end_ids) {
            let pad = model.tokenizer().pad().unwrap_or(0);
            repetition = repeats;
            // An end token stays, what repeats goes.
            ids[if repeats { at } else { at + 1 }..].fill(pad);
            end = Some(committed.len() + at);
        }
        let emitted = end.unwrap_or(committed.len() + len).min(request.max_tokens);
        let emitted = &ids[..emitted - committed.len()];
        if on_event(&Event::Commit { canvas, ids: &ids, emitted, stop: report.stop }).is_break() {
            return Err(Error::Interrupted);
        }
        canvases.push(report);
        committed.extend_from_slice(&ids);
        if end.is_some() {
            break;
        }
    }
    timings.total = start.elapsed();
    timings.denoise = timings.total.saturating_sub(timings.prompt);
    let stopped = end.filter(|&e| e <= request.max_tokens);
    let ids = committed[..stopped.unwrap_or(request.max_tokens.min(committed.len()))].to_vec();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let digests = Digests {
        ids: hex(&Sha256::digest(&bytes)),
        logits: hex(&hashes.logits.finalize()),
        full: hashes.full.map(|h| hex(&h.finalize())),
    };
    let finish = if stopped.is_some() { Finish::Stop } else { Finish::Length };
    let kv_bytes = model.backend.seq_bytes(session.seq())?;
    let repetition = repetition && finish == Finish::Stop;
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

fn check_request(model: &Model, request: &Request, answer: usize) -> Result<(), Error> {
    let shape = model.shape();
    if request.prompt.is_empty() {
        return Err(Error::Request {
            what: "prompt".into(),
            expected: "at least one token".into(),
            found: "none".into(),
        });
    }
    if request.max_tokens == 0 {
        return Err(Error::Request {
            what: "max_tokens".into(),
            expected: "at least 1".into(),
            found: "0".into(),
        });
    }
    let masks = matches!(shape.noise, Noise::Mask(_));
    if request.sampler.masks != masks {
        let fit = SAMPLERS.iter().filter(|s| s.masks == masks).map(|s| s.name).collect::<Vec<_>>().join(", ");
        let begins = if masks { "mask tokens" } else { "random tokens" };
        return Err(Error::Request {
            what: format!("sampler for a model whose canvas begins as {begins}"),
            expected: fit,
            found: request.sampler.name.into(),
        });
    }
    if masks && request.profile.name != PROFILES[0].name {
        return Err(Error::Request {
            what: "profile of a model whose canvas begins as mask tokens".into(),
            expected: format!("{}, which each of them has", PROFILES[0].name),
            found: request.profile.name.into(),
        });
    }
    if request.params.get("cfg_scale") > 0.0 {
        check_guidance(model)?;
    }
    check_commands(request, shape)?;
    let answer = answer.saturating_add(shape.reserved(request.sampler));
    if request.prompt.len().saturating_add(answer) > request.context_len {
        return Err(Error::ContextOverflow {
            prompt: request.prompt.len(),
            answer,
            context: request.context_len,
        });
    }
    Ok(())
}

/// The tokens by which a sampler deletes and inserts, where it does: two of the vocabulary.
fn check_commands(request: &Request, shape: &Shape) -> Result<(), Error> {
    let Noise::Mask(mask) = shape.noise else { return Ok(()) };
    let mut others = vec![f64::from(mask), 0.0];
    for name in ["delete_token", "split_token"] {
        let id = request.params.get(name);
        if id >= shape.vocab_len as f64 || others.contains(&id) {
            return Err(Error::Request {
                what: name.into(),
                expected: format!(
                    "the id in 1..{} that does so in this model, another one than that of the mask and of the other",
                    shape.vocab_len
                ),
                found: id.to_string(),
            });
        }
        others.push(id);
    }
    Ok(())
}

/// One canvas being denoised.
struct Canvas<'a> {
    model: &'a mut Model,
    session: &'a Session,
    request: &'a Request,
    penalties: &'a Penalties,
    draws: &'a dyn Draws,
    /// What is read before the canvas in each step.
    lead: &'a [u32],
    /// Positions.
    len: usize,
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
        let len = self.len;
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
        let given = self.session.next().filter(|_| self.lead.is_empty());
        if let Some(next) = given {
            ids[0] = next;
        }
        // Of random tokens those count as decided that the step before accepted.
        let mut accepted = vec![false; len];
        let mut accepted_per_step = Vec::new();
        let mut first_draft = Duration::ZERO;
        self.sampler.begin(len, before);
        let mut step = 0;
        loop {
            let ask = self.sampler.ask(step);
            let uniform = self.draws.uniform(drawn, step, len);
            let open: Vec<bool> = ids.iter().map(|&id| noise.is_open(id)).collect();
            let masked = matches!(noise, Noise::Mask(_)).then_some(&open[..]);
            let predicted: Vec<bool> =
                (0..len).map(|i| open[i] || ask.edit && (i > 0 || given.is_none())).collect();
            let decided: Vec<bool> = match noise {
                Noise::Mask(_) => open.iter().map(|open| !open).collect(),
                Noise::Uniform => accepted,
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
                open: masked.map(|_| &predicted[..]),
                previous,
                sampling: Some(Sampling { ask, uniform: &uniform }),
                penalties: Some(self.penalties),
                decided: &decided,
            };
            let mut result = canvas_pass(self.model, self.session, pass, sink)?;
            if let Some(sampled) = self.draws.sampled(drawn, step) {
                result.sample = sampled;
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
            if let (Noise::Mask(mask), true) = (noise, ask.edit) {
                self.penalties.reopen(n_prefix, &mut decision.canvas, mask);
            }
            if decision.stop.is_none() && !ask.edit && self.ended(noise, &decision.canvas) {
                decision.stop = Some(Stop::Converged);
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
                    (Noise::Uniform, Commit::Canvas) => {
                        // Fresh noise knows of no bans.
                        let mut canvas = decision.canvas;
                        self.penalties.without_banned(n_prefix, &mut canvas, &result.argmax);
                        canvas
                    }
                    (Noise::Mask(_), _) => decision.canvas,
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
        let first = canvas.iter().find(|&&id| noise.is_open(id) || self.request.end_ids.contains(&id));
        first.is_some_and(|&id| !noise.is_open(id))
    }
}
