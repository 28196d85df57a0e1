//! The thread that owns the model: it admits requests, makes their answers together and tells of them.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvError, TryRecvError};
use std::thread::JoinHandle;
use std::time::Instant;

use redraft::arch::{Reading, Shape};
use redraft::chat::{AnswerParser, Delta, ToolCall};
use redraft::compute::ComputeError;
use redraft::constrain::Constraint;
use redraft::engine::{
    Batch, BlockCache, CanvasReport, Digests, Event, Finished, Generation, Given, JobId, MemoryEstimate,
    Philox, Request, Session, default_max_tokens,
};
use redraft::fill::{Fill, Lengths, Template, find_lengths};
use redraft::gguf::available_memory;
use redraft::sampler::{PROFILES, Params, SamplerSpec, Stop};
use redraft::{Error, Model};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

use crate::Config;
use crate::app::App;
use crate::draft::Draft;
use crate::error::{ApiError, Names};
use crate::facts::Facts;
use crate::fields::Drafts;
use crate::metrics::Metrics;
use crate::pool::{Pool, kv_bytes};
use crate::scores::Score;
use crate::writer::{Reader, Stops, Writer};

/// Drafts that wait for a slow client; more are left out.
const DRAFTS: usize = 16;

/// What is to be answered.
pub(crate) struct Work {
    pub(crate) prompt: Vec<u32>,
    /// Tokens of the answer at most; of a text to fill those of its gap.
    pub(crate) max_tokens: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) sampler: &'static SamplerSpec,
    pub(crate) overrides: Vec<(String, f64)>,
    pub(crate) constraint: Option<Arc<Constraint>>,
    /// What is added to the logits of ids.
    pub(crate) bias: Vec<(u32, f64)>,
    /// How likely each token was is wanted, with so many of the most likely ones.
    pub(crate) logprobs: Option<usize>,
    pub(crate) stop: Vec<String>,
    /// Whether drafts are wanted, and which.
    pub(crate) drafts: Drafts,
    /// The answer is one of a chat, not a text that goes on.
    pub(crate) chat: bool,
    /// A text with one gap, which is the answer.
    pub(crate) fill: Option<Template>,
    /// Of the fields that errors speak of.
    pub(crate) names: Names,
}

/// What a client hears of its answer. The first one says whether there will be an answer.
pub(crate) enum Update {
    /// The request is in order.
    Started,
    Draft(Draft),
    Delta(Delta),
    /// How likely the tokens were that were committed.
    Scores(Vec<Score>),
    Done(Box<Done>),
    Failed(ApiError),
}

/// A complete answer.
pub(crate) struct Done {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) tool_calls: Vec<ToolCall>,
    pub(crate) finish: &'static str,
    /// The stop text that ended it.
    pub(crate) stop: Option<String>,
    /// How likely each of its tokens was, where that was asked for.
    pub(crate) scores: Option<Vec<Score>>,
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) seed: u64,
    pub(crate) sampler: &'static str,
    pub(crate) params: Params,
    pub(crate) canvases: Vec<CanvasReport>,
    /// Of the whole answer; none where a stop text cut it.
    pub(crate) digests: Option<Digests>,
}

/// A request with its way back.
pub(crate) struct Job {
    pub(crate) work: Work,
    /// Which of the answers to a request it is.
    pub(crate) index: usize,
    pub(crate) updates: UnboundedSender<(usize, Update)>,
    /// Drafts that the client has not read.
    pub(crate) unread: Arc<AtomicUsize>,
    /// None: it may take as long as it takes.
    pub(crate) deadline: Option<Instant>,
    /// Its place; given back where the job is dropped.
    pub(crate) _place: OwnedSemaphorePermit,
}

impl Job {
    /// Why nobody wants it any more.
    fn over(&self) -> Option<Ended> {
        if self.updates.is_closed() {
            return Some(Ended::Gone);
        }
        self.deadline.is_some_and(|d| Instant::now() >= d).then_some(Ended::Late)
    }

    fn tell(&self, update: Update) {
        // A client that has gone is found by the next look at its job.
        let _ = self.updates.send((self.index, update));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Gone,
    Late,
}

/// What the thread hears.
pub(crate) enum Message {
    Ask(Box<Job>),
    /// Nothing more will come.
    End,
}

/// An answer that is being made.
struct Running {
    id: JobId,
    job: Box<Job>,
    writer: Writer,
    prompt_tokens: usize,
    max_tokens: usize,
    params: Params,
    /// Keys and values that it will have at its end.
    kv_bytes: usize,
    /// Tokens whose keys and values it has now.
    held_tokens: usize,
    /// Tokens that are final.
    emitted: usize,
    /// Tokens of the prompt that its session had already.
    cached_tokens: Option<usize>,
    canvases: Vec<CanvasReport>,
    scores: Vec<Score>,
    accepted: Vec<usize>,
    fill: Option<(Request, Lengths)>,
    ended: Option<Ended>,
}

/// The thread's state.
pub(crate) struct Worker {
    model: Model,
    facts: Arc<Facts>,
    metrics: Arc<Metrics>,
    batch: Batch,
    pool: Pool,
    parallel: usize,
    waiting: VecDeque<Box<Job>>,
    running: Vec<Running>,
    inbox: Receiver<Message>,
    interrupt: Arc<AtomicBool>,
}

impl Worker {
    pub(crate) fn new(
        model: Model,
        app: &App,
        inbox: Receiver<Message>,
        interrupt: Arc<AtomicBool>,
    ) -> Worker {
        let Config { parallel, cache_bytes, .. } = app.config;
        let rows = model.shape().canvas_len.saturating_mul(2 * parallel);
        Worker {
            batch: Batch::new(rows, Some(Arc::clone(&interrupt))),
            pool: Pool::new(cache_bytes, 4 * parallel),
            model,
            facts: Arc::clone(&app.facts),
            metrics: Arc::clone(&app.metrics),
            parallel,
            waiting: VecDeque::new(),
            running: Vec::new(),
            inbox,
            interrupt,
        }
    }

    /// Starts the thread, which drops `end` at its end, however that comes about.
    pub(crate) fn spawn<E: Send + 'static>(self, end: E) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("model".into()).spawn(move || {
            let _end = end;
            self.run();
        })
    }

    /// Until the end is told and all is done.
    fn run(mut self) {
        let mut ending = false;
        loop {
            ending |= self.take_in();
            self.drop_unwanted();
            self.admit();
            self.count();
            if self.running.is_empty() {
                if ending && self.waiting.is_empty() {
                    return;
                }
                continue;
            }
            let start = Instant::now();
            self.round();
            self.metrics.rounds.observe(start.elapsed().as_secs_f64());
            self.count();
        }
    }

    fn count(&self) {
        self.metrics.waiting.set(self.waiting.len() as i64);
        self.metrics.running.set(self.running.len() as i64);
        self.metrics.cache_bytes.set(i64::try_from(self.pool.bytes(&self.model)).unwrap_or(i64::MAX));
    }

    /// Takes what has come; waits where there is nothing to do. Whether the end was told.
    fn take_in(&mut self) -> bool {
        if self.running.is_empty() && self.waiting.is_empty() {
            match self.inbox.recv() {
                Ok(Message::Ask(job)) => self.waiting.push_back(job),
                Ok(Message::End) | Err(RecvError) => return true,
            }
        }
        loop {
            match self.inbox.try_recv() {
                Ok(Message::Ask(job)) => self.waiting.push_back(job),
                Ok(Message::End) | Err(TryRecvError::Disconnected) => return true,
                Err(TryRecvError::Empty) => return false,
            }
        }
    }

    /// Ends what nobody waits for any more.
    fn drop_unwanted(&mut self) {
        let stopping = self.interrupt.load(Ordering::Relaxed);
        self.waiting.retain(|job| {
            let over = job.over();
            match over {
                Some(Ended::Late) => job.tell(Update::Failed(ApiError::timeout())),
                None if stopping => job.tell(Update::Failed(ApiError::closing())),
                _ => {}
            }
            over.is_none() && !stopping
        });
        for r in &mut self.running {
            r.ended = r.job.over();
            if r.ended.is_some() {
                self.batch.stop(r.id);
            }
        }
    }

    fn admit(&mut self) {
        while self.running.len() < self.parallel {
            let Some(job) = self.waiting.pop_front() else { return };
            match self.begin(job) {
                Ok(running) => {
                    running.job.tell(Update::Started);
                    self.running.push(running);
                }
                Err((job, Refused::NoRoom)) => return self.waiting.push_front(job),
                Err((job, Refused::Error(e))) => match job.over() {
                    Some(Ended::Gone) => {}
                    Some(Ended::Late) => job.tell(Update::Failed(ApiError::timeout())),
                    None => {
                        self.metrics.rejected("request");
                        job.tell(Update::Failed(ApiError::of(e, job.work.names)));
                    }
                },
            }
        }
    }

    /// Begins an answer.
    #[allow(clippy::result_large_err, reason = "the job goes back to where it came from")]
    fn begin(&mut self, job: Box<Job>) -> Result<Running, (Box<Job>, Refused)> {
        let alone = self.running.is_empty();
        let asked = self.request(&job.work).and_then(|request| Ok((self.room(&request)?, request)));
        let (kv_bytes, request) = match asked {
            Ok((Some(kv_bytes), request)) => (kv_bytes, request),
            Ok((None, _)) => return Err((job, Refused::NoRoom)),
            Err(e) => return Err((job, Refused::Error(e))),
        };
        let mut session = match self.pool.take(&mut self.model, &request.prompt) {
            Ok(session) => session,
            Err(e) => return Err((job, Refused::of(e, alone))),
        };
        let draws = Philox { seed: job.work.seed, vocab_len: self.facts.shape.vocab_len as u32 };
        let (request, lengths) = match &job.work.fill {
            None => (request, None),
            Some(template) => match self.measure(&job, &mut session, &request, template, draws) {
                Ok(lengths) => {
                    (template.request(&request, &lengths.of_gaps(), request_end(&self.facts)), Some(lengths))
                }
                Err(e) => {
                    self.pool.give(&mut self.model, session);
                    return Err((job, Refused::of(e, alone)));
                }
            },
        };
        let tokenizer = &self.facts.tokenizer;
        let reader = match job.work.chat {
            true => {
                let mut parser = AnswerParser::for_tokenizer(tokenizer);
                parser.after_prompt(&request.prompt);
                Reader::Chat(Box::new(parser))
            }
            false => Reader::Text(Box::new(tokenizer.stream_decoder_inside(false))),
        };
        let (prompt_tokens, max_tokens) = (request.prompt.len(), request.max_tokens);
        let params = request.params.clone();
        let fill = lengths.map(|lengths| (request.clone(), lengths));
        match self.batch.join(&mut self.model, session, request, draws) {
            Err((session, e)) => {
                self.pool.give(&mut self.model, session);
                Err((job, Refused::of(e, alone)))
            }
            Ok(id) => Ok(Running {
                id,
                writer: Writer::new(reader, Stops::new(job.work.stop.clone())),
                job,
                prompt_tokens,
                max_tokens,
                params,
                kv_bytes,
                held_tokens: 0,
                emitted: 0,
                cached_tokens: None,
                canvases: Vec::new(),
                scores: Vec::new(),
                accepted: Vec::new(),
                fill,
                ended: None,
            }),
        }
    }

    /// The request for the engine.
    fn request(&self, work: &Work) -> Result<Request, Error> {
        let facts = &self.facts;
        let prompt = work.prompt.clone();
        let most = || default_max_tokens(&facts.shape, work.sampler, facts.context_len, prompt.len());
        Ok(Request {
            max_tokens: work.max_tokens.unwrap_or_else(most),
            context_len: facts.context_len,
            sampler: work.sampler,
            params: self.model.params(work.sampler, &work.overrides)?,
            profile: &PROFILES[0],
            end_ids: facts.end_ids.clone(),
            ban: Vec::new(),
            bias: work.bias.clone(),
            logprobs: work.logprobs,
            given: Given::default(),
            constraint: work.constraint.clone(),
            self_conditioning: true,
            cache: BlockCache::None,
            full_logits: work.drafts == Drafts::Alternatives,
            interrupt: Some(Arc::clone(&self.interrupt)),
            prompt,
        })
    }

    /// Bytes of keys and values of an answer at its end, where there is room for it beside what the others will take; makes
    /// room. None: once others are done. What fits at no time is left to the engine to refuse.
    fn room(&mut self, request: &Request) -> Result<Option<usize>, Error> {
        let (shape, prompt_len) = (&self.facts.shape, request.prompt.len());
        let answer = shape.canvases(prompt_len, request.max_tokens).total();
        let tokens = prompt_len.saturating_add(answer);
        if tokens > request.context_len || prompt_len == 0 {
            return Ok(Some(0));
        }
        let ask = request.ask();
        let need = MemoryEstimate::of(&mut self.model, prompt_len, answer, ask, request.cache)?;
        let kv = usize::try_from(need.kv_bytes).unwrap_or(usize::MAX);
        let to_come = |r: &Running| r.kv_bytes.saturating_sub(kv_bytes(&self.model, r.held_tokens)) as u64;
        let to_come = self.running.iter().map(to_come).fold(0, u64::saturating_add);
        let raw = if request.full_logits { raw_logits_bytes(shape, answer) } else { 0 };
        let all = [need.kv_bytes, need.buffer_bytes, raw, to_come].into_iter().fold(0, u64::saturating_add);
        loop {
            if available_memory().is_none_or(|free| all <= free) {
                return Ok(Some(kv));
            }
            if !self.pool.free_one(&mut self.model) {
                return Ok(self.running.is_empty().then_some(kv));
            }
        }
    }

    /// Finds the length of a gap, while the others wait.
    fn measure(
        &mut self,
        job: &Job,
        session: &mut Session,
        base: &Request,
        template: &Template,
        draws: Philox,
    ) -> Result<Lengths, Error> {
        let fill = Fill { template, base, gap_max: base.max_tokens, end: request_end(&self.facts) };
        find_lengths(&mut self.model, session, fill, &draws, &mut |_, _| match job.over() {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        })
    }

    fn round(&mut self) {
        let Worker { batch, model, running, facts, metrics, .. } = self;
        let done = batch.round(model, &mut |id, event| match running.iter_mut().find(|r| r.id == id) {
            Some(r) => r.event(event, facts, metrics),
            None => ControlFlow::Break(()),
        });
        for Finished { id, session, result } in done {
            self.pool.give(&mut self.model, session);
            if let Some(at) = self.running.iter().position(|r| r.id == id) {
                let r = self.running.swap_remove(at);
                r.finish(result, &self.model, &self.metrics);
            }
        }
    }
}

/// Why an answer cannot begin.
enum Refused {
    /// Until others are done.
    NoRoom,
    Error(Error),
}

impl Refused {
    /// Memory that is missing comes back where others end. `alone`: there are none.
    fn of(e: Error, alone: bool) -> Refused {
        match e {
            Error::Memory { .. } | Error::Compute(ComputeError::OutOfMemory { .. }) if !alone => {
                Refused::NoRoom
            }
            e => Refused::Error(e),
        }
    }
}

/// Bytes of the raw logits of a canvas, in the backend and as they are shown, twice.
fn raw_logits_bytes(shape: &Shape, answer: usize) -> u64 {
    let rows = if shape.reading == Reading::Whole { answer } else { shape.canvas_len };
    (rows as u64).saturating_mul(shape.vocab_len as u64).saturating_mul(4 + 2 * 8)
}

/// What follows a text that is complete.
fn request_end(facts: &Facts) -> Option<u32> {
    facts.tokenizer.eos()
}

/// One piece for what was committed at once.
fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
    let mut out: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (out.last_mut(), delta) {
            (Some(Delta::Text(before)), Delta::Text(text)) => before.push_str(&text),
            (Some(Delta::Reasoning(before)), Delta::Reasoning(text)) => before.push_str(&text),
            (_, delta) => out.push(delta),
        }
    }
    out
}

impl Running {
    fn event(&mut self, event: &Event<'_>, facts: &Facts, metrics: &Metrics) -> ControlFlow<()> {
        match event {
            Event::Prompt { done, .. } => {
                self.cached_tokens.get_or_insert(*done);
                self.held_tokens = *done;
            }
            Event::Step(step) => {
                metrics.steps.inc();
                self.accepted.push(step.decision.n_accepted());
                let (job, limit) = (&self.job, self.max_tokens.saturating_sub(self.emitted));
                if job.work.drafts != Drafts::None && job.unread.load(Ordering::Relaxed) < DRAFTS {
                    job.unread.fetch_add(1, Ordering::Relaxed);
                    let draft = Draft::new(step, &facts.tokenizer, &facts.end_ids, limit);
                    job.tell(Update::Draft(draft));
                }
            }
            Event::Commit { ids, emitted, probabilities, stop, .. } => {
                self.canvas(*stop);
                self.held_tokens += ids.len();
                self.emitted += emitted.len();
                if self.fill.is_some() {
                    return ControlFlow::Continue(());
                }
                let before = self.writer.tokens;
                let deltas = emitted.iter().flat_map(|&id| self.writer.push(id)).collect();
                joined(deltas).into_iter().for_each(|d| self.job.tell(Update::Delta(d)));
                // Those behind a stop text are not told of.
                let told = probabilities.iter().take(self.writer.tokens - before);
                let scores: Vec<Score> = told.map(|p| Score::new(p, &facts.tokenizer)).collect();
                if !scores.is_empty() {
                    self.scores.extend_from_slice(&scores);
                    self.job.tell(Update::Scores(scores));
                }
                if self.writer.stopped {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn canvas(&mut self, stop: Stop) {
        let accepted_per_step = std::mem::take(&mut self.accepted);
        self.canvases.push(CanvasReport { steps: accepted_per_step.len(), stop, accepted_per_step });
    }

    /// Tells of the end.
    fn finish(mut self, result: Result<Generation, Error>, model: &Model, metrics: &Metrics) {
        let cached = self.cached_tokens.unwrap_or(0);
        metrics.tokens("cached", cached);
        metrics.tokens("prompt", self.prompt_tokens.saturating_sub(cached));
        let done = match result {
            Ok(done) => Some(done),
            Err(Error::Interrupted) if self.writer.stopped => None,
            Err(e) => {
                metrics.tokens("completion", self.writer.tokens);
                return match self.ended {
                    Some(Ended::Gone) => metrics.rejected("gone"),
                    Some(Ended::Late) => {
                        metrics.rejected("timeout");
                        self.job.tell(Update::Failed(ApiError::timeout()));
                    }
                    None => self.job.tell(Update::Failed(ApiError::of(e, self.job.work.names))),
                };
            }
        };
        let mut deltas = Vec::new();
        if let (Some((request, lengths)), Some(template), Some(done)) =
            (&self.fill, &self.job.work.fill, &done)
        {
            let filled = template.filled(model, request, lengths, done);
            if let Some(gap) = filled.gaps.into_iter().next() {
                deltas = self.writer.whole(gap.text, gap.ids.len());
            }
        }
        deltas.extend(self.writer.finish());
        joined(deltas).into_iter().for_each(|d| self.job.tell(Update::Delta(d)));
        let Running { job, writer, prompt_tokens, params, canvases, scores, .. } = self;
        metrics.tokens("completion", writer.tokens);
        let finish = match &done {
            Some(done) if !writer.stopped => done.finish.name(),
            _ => "stop",
        };
        let stop = writer.stop().map(str::to_owned);
        let answer = writer.answer;
        let finish = if finish == "stop" && !answer.tool_calls.is_empty() { "tool_calls" } else { finish };
        // That somebody looks at logits is not said of the answer.
        let digests = done.filter(|_| !writer.stopped).map(|d| Digests { full: None, ..d.digests });
        job.tell(Update::Done(Box::new(Done {
            text: answer.text,
            reasoning: answer.reasoning,
            tool_calls: answer.tool_calls,
            finish,
            stop,
            scores: job.work.logprobs.map(|_| scores),
            prompt_tokens,
            cached_tokens: cached,
            completion_tokens: writer.tokens,
            seed: job.work.seed,
            sampler: job.work.sampler.name,
            params,
            canvases,
            digests,
        })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_others_have_is_waited_for() {
        let memory = || Error::Compute(ComputeError::OutOfMemory { what: "x".into(), bytes: 1 });
        assert!(matches!(Refused::of(memory(), false), Refused::NoRoom));
        assert!(matches!(Refused::of(memory(), true), Refused::Error(_)));
        assert!(matches!(Refused::of(Error::Interrupted, false), Refused::Error(_)));
    }
}
