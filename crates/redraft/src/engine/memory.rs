//! Whether an answer fits into the memory of this machine, asked before anything is computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redraft_compute::{
    Backend, Capabilities, ComputeError, InputData, KvLayout, KvType, Observer, Precision, Program, SeqId,
    TapKey,
};
use redraft_gguf::available_memory;

use super::canvas::canvas_pass;
use super::pass::{CanvasPass, Previous, Sampling, TapSink};
use super::pass::{Prompt, prompts};
use super::session::{kept, prompt_chunk};
use super::{BlockCache, BlockStep, Penalties, Request, Session};
use crate::arch::Reading;
use crate::sampler::Ask;
use crate::{Error, Model};

/// Buffers that a thread of the backend keeps for itself: scores, panels.
const THREAD_BYTES: usize = 12 << 20;

/// What is not worth asking about: such answers fit everywhere, and their first step comes sooner.
const SMALL_BYTES: u64 = 64 << 20;

/// Memory that an answer takes beside the model file. The file itself, when it is mapped, takes memory that the system
/// gives to others whenever they need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// Keys and values of prompt and answer.
    pub kv_bytes: u64,
    /// Intermediate results of the largest pass, what the threads keep, and the tables of a language.
    pub buffer_bytes: u64,
}

impl MemoryEstimate {
    /// That of an answer of `answer` tokens, whole canvases, to a prompt of `prompt_len`, for a sampler that wants `ask` of
    /// a step, and steps that share keys and values by `cache`.
    ///
    /// # Errors
    /// Those of building the passes.
    pub fn of(
        model: &mut Model,
        prompt_len: usize,
        answer: usize,
        ask: Ask,
        cache: BlockCache,
    ) -> Result<MemoryEstimate, Error> {
        MemoryEstimate::with(model, prompt_len, answer, (ask, cache), &Penalties::default(), false)
    }

    fn with(
        model: &mut Model,
        prompt_len: usize,
        answer: usize,
        (ask, cache): (Ask, BlockCache),
        penalties: &Penalties,
        full_logits: bool,
    ) -> Result<MemoryEstimate, Error> {
        let capabilities = model.backend.capabilities();
        let number = if capabilities.precision == Precision::F64 { 8 } else { 4 };
        let tokens = prompt_len.saturating_add(answer);
        let kv_bytes = kv_bytes(model, model.kv_type(), tokens, cache).saturating_mul(number / 4);
        let threads = capabilities.threads.saturating_mul(THREAD_BYTES);
        let peak = peak_numbers(model, prompt_len, answer, (ask, cache), penalties, full_logits)?;
        let copies = copied_bytes(model, prompt_len, answer, ask, full_logits);
        let buffer_bytes = peak.saturating_mul(number).saturating_add(threads).saturating_add(copies);
        Ok(MemoryEstimate { kv_bytes: kv_bytes as u64, buffer_bytes: buffer_bytes as u64 })
    }

    pub(super) fn total(&self) -> u64 {
        self.kv_bytes.saturating_add(self.buffer_bytes)
    }
}

/// Bytes of the copies of a step's logits outside the backend: of a sampler that looks at them as they come and at
/// their places, of those who look at raw logits in f64 with those of open positions.
fn copied_bytes(model: &Model, prompt_len: usize, answer: usize, ask: Ask, full_logits: bool) -> usize {
    let one = if ask.logits { 2 * size_of::<f32>() } else { 0 };
    let one = one + if full_logits { 2 * size_of::<f64>() } else { 0 };
    let rows = model.shape().canvases(prompt_len, answer).largest();
    rows.saturating_mul(model.shape().vocab_len).saturating_mul(one)
}

/// Bytes of the cache of `tokens` tokens, those of sliding layers only as far as they are kept. Models that read whole
/// sequences have one where the steps of a block share keys and values.
fn kv_bytes(model: &Model, kv_type: KvType, tokens: usize, cache: BlockCache) -> usize {
    let shape = model.shape();
    if shape.reading == Reading::Whole && cache == BlockCache::None {
        return 0;
    }
    let all = shape.kv.bytes(kv_type, tokens);
    if all <= model.kv_budget {
        return all;
    }
    let of = |(layer, &width): (usize, &usize)| {
        // What is kept, and what a pass adds before older tokens go.
        let room = |w| kept(w).saturating_add(prompt_chunk(shape).max(shape.canvas_len));
        let tokens = model.arch.window(layer).map_or(tokens, |w| tokens.min(room(w)));
        KvLayout { widths: vec![width] }.bytes(kv_type, tokens)
    };
    shape.kv.widths.iter().enumerate().map(of).fold(0, usize::saturating_add)
}

/// Refuses a request that needs more memory than there is beside what is `promised` to others. Returns what it needs; nothing
/// where that is small.
pub(super) fn check(
    model: &mut Model,
    session: &Session,
    request: &Request,
    penalties: &Penalties,
    (answer, promised): (usize, u64),
) -> Result<MemoryEstimate, Error> {
    let tokens = request.prompt.len().saturating_add(answer);
    let kv = kv_bytes(model, model.kv_type(), tokens, request.cache) as u64;
    // Models of masks make the logits of a canvas: of a whole answer where prompt and answer are read in one pass.
    let open = match model.shape().reading {
        Reading::Whole => answer,
        Reading::Blocks => model.shape().canvas_len,
        Reading::Cached if request.wants_logits() => model.shape().canvas_len,
        Reading::Cached => 0,
    };
    let logits = (open as u64).saturating_mul(4 * model.shape().vocab_len as u64);
    let rows = model.shape().canvases(request.prompt.len(), answer).largest();
    let tables = request.constraint.as_ref().map_or(0, |c| c.table_bytes(rows)) as u64;
    if kv.max(logits).max(tables) < SMALL_BYTES && model.weights_bytes() < SMALL_BYTES {
        return Ok(MemoryEstimate { kv_bytes: 0, buffer_bytes: 0 });
    }
    let ask = request.ask();
    let (prompt_len, full) = (request.prompt.len(), request.full_logits);
    let mut need = MemoryEstimate::with(model, prompt_len, answer, (ask, request.cache), penalties, full)?;
    need.buffer_bytes = need.buffer_bytes.saturating_add(tables);
    let held = model.backend.seq_bytes(session.seq())? as u64;
    let available = available_memory().map(|bytes| bytes.saturating_sub(promised));
    check_against(model, need, held, (tokens, request.cache), available)?;
    Ok(need)
}

fn check_against(
    model: &Model,
    need: MemoryEstimate,
    held: u64,
    (tokens, cache): (usize, BlockCache),
    available: Option<u64>,
) -> Result<(), Error> {
    // What the session holds counts as used already.
    let Some(available) = available.map(|a| a.saturating_add(held)).filter(|&a| a < need.total()) else {
        return Ok(());
    };
    let types = KvType::ALL.iter().map(|&t| (t.name(), kv_bytes(model, t, tokens, cache) as u64));
    let smaller = types.filter(|&(_, bytes)| bytes < need.kv_bytes).collect();
    let kv_type = model.kv_type().name();
    Err(Error::Memory { need, kv_type, tokens, available, smaller })
}

/// Builds the largest passes as they will be, for a backend that only adds up.
fn peak_numbers(
    model: &mut Model,
    prompt_len: usize,
    answer: usize,
    how: (Ask, BlockCache),
    penalties: &Penalties,
    full_logits: bool,
) -> Result<usize, Error> {
    let (built, peak) =
        dry(model, |model| build(model, prompt_len, answer, how, penalties, &mut Raw(full_logits)));
    built?;
    Ok(peak)
}

/// Does `work` with a backend in the model's place that computes nothing. Also gives the numbers that the largest of its
/// programs would have needed.
pub(crate) fn dry<T>(model: &mut Model, work: impl FnOnce(&mut Model) -> T) -> (T, usize) {
    let peak = Arc::new(AtomicUsize::new(0));
    let capabilities = model.backend.capabilities();
    let sizer = Sizer { capabilities, peak: Arc::clone(&peak) };
    let backend = std::mem::replace(&mut model.backend, Box::new(sizer));
    let done = work(model);
    model.backend = backend;
    (done, peak.load(Ordering::Relaxed))
}

fn build(
    model: &mut Model,
    prompt_len: usize,
    answer: usize,
    (ask, cache): (Ask, BlockCache),
    penalties: &Penalties,
    sink: &mut dyn TapSink,
) -> Result<(), Error> {
    let shape = model.shape();
    let canvases = shape.canvases(prompt_len, answer);
    let cached = shape.cached(prompt_len);
    let chunk = prompt_chunk(shape);
    let previous = match shape.self_conditioning {
        true if penalties.is_none(prompt_len) => Previous::Kept { temperature: ask.temperature },
        true => Previous::KeptLogits,
        false => Previous::None,
    };
    let seq = SeqId(0);
    // A committed canvas goes through a prompt pass, too.
    let several = canvases.count > 1;
    let rows = cached.min(chunk).max(if several { canvases.len } else { 0 });
    if rows > 0 {
        prompts(model, &[Prompt { seq, past: &[], new: &vec![0; rows], penalties }], sink)?;
    }
    let (lead, len) = (if several { 0 } else { prompt_len - cached }, canvases.largest());
    let (lead, ids, uniform) = (vec![0; lead], vec![0; len], vec![0.5; len]);
    let sampling = Some(Sampling { ask, uniform: &uniform });
    let penalties = Some(penalties);
    // The first step of a block is the largest.
    let block = (cache != BlockCache::None).then_some(BlockStep { cache, begin: 0, end: len, first: true });
    let pass = CanvasPass { lead: &lead, previous, sampling, penalties, block, ..CanvasPass::new(&ids) };
    canvas_pass(model, &Session::new(seq), pass, sink)?;
    Ok(())
}

/// Whether somebody looks at raw logits.
struct Raw(bool);

impl TapSink for Raw {
    fn wants(&self, key: TapKey) -> bool {
        self.0 && key.name == "logits"
    }
}

/// Adds up what programs need.
struct Sizer {
    capabilities: Capabilities,
    peak: Arc<AtomicUsize>,
}

impl Backend for Sizer {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn seq_create(&mut self, _: &KvLayout, _: KvType) -> Result<SeqId, ComputeError> {
        Ok(SeqId(0))
    }

    fn seq_len(&self, _: SeqId) -> Result<usize, ComputeError> {
        Ok(0)
    }

    fn seq_truncate(&mut self, _: SeqId, _: usize) -> Result<(), ComputeError> {
        Ok(())
    }

    fn seq_forget(&mut self, _: SeqId, _: usize, _: usize) -> Result<(), ComputeError> {
        Ok(())
    }

    fn seq_free(&mut self, _: SeqId) {}

    fn seq_bytes(&self, _: SeqId) -> Result<usize, ComputeError> {
        Ok(0)
    }

    fn run(
        &mut self,
        program: &Program,
        _: &[SeqId],
        _: &[InputData<'_>],
        _: &mut dyn Observer,
    ) -> Result<(), ComputeError> {
        self.peak.fetch_max(program.peak_numbers(), Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadOptions;

    const NONE: BlockCache = BlockCache::None;

    #[test]
    fn what_does_not_fit_is_refused_with_numbers_and_advice() {
        let mut model = Model::embedded(&LoadOptions::default()).unwrap();
        let shape = model.shape().clone();
        let need = MemoryEstimate::of(&mut model, 1000, 10 * shape.canvas_len, Ask::default(), NONE).unwrap();
        let tokens = 1000 + 10 * shape.canvas_len;
        let row: usize = shape.kv.widths.iter().map(|w| 2 * 4 * w).sum();
        assert_eq!(need.kv_bytes, (row * tokens) as u64);
        // A chunk of the prompt alone has its input, its norm and a projection of it alive at once.
        assert!(need.buffer_bytes > (3 * 4 * prompt_chunk(&shape) * shape.d_model) as u64);
        let short = MemoryEstimate::of(&mut model, 10, shape.canvas_len, Ask::default(), NONE).unwrap();
        assert!(short.buffer_bytes < need.buffer_bytes);

        let check = |available| check_against(&model, need, 0, (tokens, NONE), available);
        check(None).unwrap();
        check(Some(need.total())).unwrap();
        let e = check(Some(1_000_000)).unwrap_err().to_string();
        let f16 = shape.kv.bytes(KvType::F16, tokens) as f64 / 1e9;
        assert!(e.contains(&format!("{tokens} tokens")) && e.contains("0.00 GB is free"), "{e}");
        assert!(e.contains(&format!("--kv-type f16 ({f16:.2} GB)")) && e.contains("i8"), "{e}");
        check_against(&model, need, need.total(), (tokens, NONE), Some(0)).unwrap();
        // Logits that leave the backend are copied there, and put to their places.
        let logits = shape.canvas_len * shape.vocab_len;
        let asks = [Ask { logits: true, worth: true, ..Ask::default() }, Ask::default()];
        let copies = |ask, full| copied_bytes(&model, 10, 30, ask, full);
        assert_eq!([copies(asks[0], false), copies(asks[1], false)], [8 * logits, 0]);
        assert_eq!([copies(asks[0], true), copies(asks[1], true)], [24 * logits, 16 * logits]);
        let penalties = Penalties::default();
        let mut with = |full| {
            MemoryEstimate::with(&mut model, 10, 30, (Ask::default(), NONE), &penalties, full).unwrap()
        };
        let more = with(true).buffer_bytes - with(false).buffer_bytes;
        assert!(more > 16 * logits as u64, "{more}: the copies, and the raw logits themselves");
        // The backend that computes is back.
        let session = model.session().unwrap();
        let ids = vec![0; shape.canvas_len];
        let uniform = vec![0.5; shape.canvas_len];
        let pass = CanvasPass { sampling: Some(Sampling::at(1.0, &uniform)), ..CanvasPass::new(&ids) };
        let done = canvas_pass(&mut model, &session, pass, &mut ()).unwrap();
        assert_eq!(done.argmax.len(), shape.canvas_len);
    }
}
