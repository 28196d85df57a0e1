//! Goldens of models of masks: a forward pass over `ids` at once, and trajectories of their samplers, whose rows are
//! whole sequences (prompt, canvases, and what a sampler puts after them). Of models that read block by block they show
//! what the cache must not change.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::like::{Config, cache_of};
use super::{Elements, PassRecorder, TraceFile};
use crate::arch::{Noise, Reading};
use crate::engine::{
    CanvasPass, Draws, Event, Given, Philox, Request, Session, StepEvent, canvas_pass, generate,
};
use crate::sampler::{PROFILES, SamplerSpec, sampler};
use crate::{Error, Model};

/// The forward pass over the golden's `ids`.
pub(super) fn forward(
    model: &mut Model,
    golden: &TraceFile,
    interrupt: Option<Arc<AtomicBool>>,
) -> Result<TraceFile, Error> {
    refuse_causal(model, golden)?;
    let ids = golden.ids("ids")?;
    if ids.is_empty() {
        return Err(golden.wrong("tensor ids: expected at least one id".into()));
    }
    let context = model.shape().context_len;
    if ids.len() > context {
        return Err(Error::ContextOverflow { prompt: ids.len(), answer: 0, context });
    }
    let mut recorder = PassRecorder::new(|name: &str, _| golden.tensors.contains_key(name));
    recorder.interrupt = interrupt;
    recorder.names = model.arch().tap_names;
    let session = model.session()?;
    let done = canvas_pass(model, &session, CanvasPass::new(&ids), &mut recorder);
    model.close(session);
    done.map(|_| recorder.file)
}

fn refuse_causal(model: &Model, golden: &TraceFile) -> Result<(), Error> {
    match model.shape().reading {
        Reading::Whole | Reading::Blocks => Ok(()),
        Reading::Cached => Err(golden.wrong(format!(
            "it is of a model that reads the whole sequence at once, which {} does not",
            model.arch().name
        ))),
    }
}

/// How a trajectory was made: the names of the reference programs, one group for each of them.
struct Settings {
    sampler: &'static SamplerSpec,
    parameters: Vec<(String, f64)>,
    /// Length of a row.
    sequence_len: usize,
    /// As RND1's program has it: `k` counts the positions that stay masked, instead of those that are revealed, and the
    /// first position of a sequence is never predicted.
    counts_masked: bool,
}

fn settings(model: &Model, config: &Config<'_>, prompt_len: usize) -> Result<Settings, Error> {
    let wrong = |e: String| config.wrong(e);
    let name = |key: &str| config.get(key).and_then(Value::as_str).map(|s| s.replace('_', "-"));
    let opt = |key: &str| config.get(key).and_then(Value::as_f64);
    let need = |key: &str| opt(key).ok_or_else(|| wrong(format!("{key}: expected a number")));
    let size = |key: &str| -> Result<usize, Error> {
        let x = need(key)?;
        let fits = x.fract() == 0.0 && (0.0..=1e6).contains(&x);
        if fits { Ok(x as usize) } else { Err(wrong(format!("{key}: expected a length, found {x}"))) }
    };
    let mut parameters =
        vec![("steps".to_string(), need("steps")?), ("temperature".into(), 0.0), ("top_p".into(), 1.0)];
    let (sampler, sequence_len, counts_masked) = match (name("sampler"), name("alg"), name("remasking")) {
        (Some(name), ..) => {
            // In our own words.
            let spec = sampler(&name)?;
            parameters = spec.params.iter().filter_map(|p| Some((p.name.into(), opt(p.name)?))).collect();
            (spec, prompt_len + size("gen_length")?, false)
        }
        (None, Some(alg), _) => {
            parameters.push(("eps".into(), need("eps")?));
            (sampler(&alg)?, size("max_length")?, false)
        }
        (None, None, Some(remasking)) => {
            parameters.push(("block_length".into(), need("block_length")?));
            parameters.push(("cfg_scale".into(), opt("cfg").unwrap_or(0.0)));
            (sampler(&remasking)?, prompt_len + size("gen_length")?, false)
        }
        (None, None, None) => (model.sampler()?, size("seq_len")?, true),
    };
    Ok(Settings { sampler, parameters, sequence_len, counts_masked })
}

/// Recorded numbers that choose positions; their rows are whole sequences.
struct Choices {
    rows: Vec<f64>,
    sequence_len: usize,
    prompt_len: usize,
    other: Philox,
}

impl Draws for Choices {
    fn initial(&self, canvas: usize, len: usize) -> Vec<u32> {
        self.other.initial(canvas, len)
    }

    fn uniform(&self, canvas: usize, step: usize, len: usize) -> Vec<f64> {
        self.other.uniform(canvas, step, len)
    }

    fn renoise(&self, canvas: usize, step: usize, len: usize) -> Vec<u32> {
        self.other.renoise(canvas, step, len)
    }

    fn choice(&self, canvas: usize, step: usize, len: usize) -> Vec<f64> {
        match self.rows.chunks(self.sequence_len).nth(step) {
            Some(row) => row[self.prompt_len..][..len].to_vec(),
            None => self.other.choice(canvas, step, len),
        }
    }
}

/// The rows of a trajectory, whole sequences.
#[derive(Default)]
struct Rows {
    x_in: Vec<i32>,
    x_out: Vec<i32>,
    argmax: Vec<i32>,
    revealed: Vec<u8>,
    confidence: Vec<f32>,
    entropy: Vec<f32>,
    k: Vec<i32>,
    n_masked: Vec<i32>,
    block: Vec<i32>,
}

impl Rows {
    fn step(&mut self, s: &StepEvent<'_>, around: &Around, mask: u32, counts_masked: bool, block: usize) {
        self.x_in.extend(around.whole(s.canvas_in));
        self.x_out.extend(around.whole(&s.decision.canvas));
        let numbers = |x: &[f32]| around.numbers(x, s.canvas_in.len());
        self.confidence.extend(numbers(&s.decision.confidence));
        self.entropy.extend(numbers(&s.result.entropy));
        let accepted: Vec<f32> = s.decision.accepted.iter().map(|&a| f32::from(u8::from(a))).collect();
        self.revealed.extend(numbers(&accepted).iter().map(|&x| x as u8));
        let masked = |ids: &[u32]| ids.iter().filter(|&&id| id == mask).count() as i32;
        let (before, after) = (masked(s.canvas_in), masked(&s.decision.canvas));
        self.n_masked.push(before);
        self.k.push(if counts_masked { after } else { before - after });
        let first = s.canvas_in.iter().position(|&id| id == mask).unwrap_or(0);
        self.block.push((first / block.max(1)) as i32);
    }

    fn file(self, len: usize) -> TraceFile {
        let n = self.k.len();
        let mut f = TraceFile::default();
        for (name, x) in [("x_in", self.x_in), ("x_out", self.x_out), ("argmax", self.argmax)] {
            if x.len() == n * len {
                f.insert(name, vec![n, len], Elements::I32(x));
            }
        }
        for (name, x) in [("k", self.k), ("n_masked", self.n_masked), ("block", self.block)] {
            f.insert(name, vec![n], Elements::I32(x));
        }
        f.insert("revealed", vec![n, len], Elements::U8(self.revealed));
        f.insert("confidence", vec![n, len], Elements::F32(self.confidence));
        f.insert("entropy", vec![n, len], Elements::F32(self.entropy));
        f
    }
}

/// What stands around a canvas.
struct Around {
    /// Prompt and committed canvases.
    before: Vec<u32>,
    /// Canvases to come, and what a sampler puts after them.
    after: Vec<u32>,
}

impl Around {
    fn whole(&self, canvas: &[u32]) -> Vec<i32> {
        [&self.before, canvas, &self.after].concat().into_iter().map(|id| id as i32).collect()
    }

    /// Numbers of a canvas of `len` positions, none for 0, with 0 around them.
    fn numbers(&self, canvas: &[f32], len: usize) -> Vec<f32> {
        let mut out = vec![0.0; self.before.len()];
        out.extend_from_slice(canvas);
        out.resize(self.before.len() + len + self.after.len(), 0.0);
        out
    }
}

/// Repeats a trajectory from its settings and recorded numbers.
pub(super) fn trajectory(
    model: &mut Model,
    golden: &TraceFile,
    interrupt: Option<Arc<AtomicBool>>,
) -> Result<TraceFile, Error> {
    refuse_causal(model, golden)?;
    let prompt = golden.ids("prompt_ids")?;
    let config = Config::of(golden)?;
    let Settings { sampler, parameters, sequence_len, counts_masked } =
        settings(model, &config, prompt.len())?;
    let Noise::Mask(mask) = model.shape().noise else {
        return Err(golden.wrong(format!("{} has no mask token", model.arch().name)));
    };
    let reserved = model.shape().reserved(sampler);
    let max_tokens = sequence_len.saturating_sub(prompt.len() + reserved);
    let canvases = model.shape().canvases(prompt.len(), max_tokens);
    let rows = golden.tensors.get("u").map_or_else(Vec::new, |t| t.data.to_f64());
    if !rows.len().is_multiple_of(sequence_len.max(1)) {
        return Err(golden.wrong(format!("tensor u: expected rows of {sequence_len} numbers")));
    }
    if canvases.total() != max_tokens || (canvases.count > 1 && !rows.is_empty()) {
        let found = format!("{max_tokens} tokens in canvases of {} and {}", canvases.first, canvases.len);
        return Err(golden
            .wrong(format!("expected whole canvases, and one where there is a tensor u; found {found}")));
    }
    let other = Philox { seed: 0, vocab_len: model.shape().vocab_len as u32 };
    let draws = Choices { rows, sequence_len, prompt_len: prompt.len(), other };
    let tail = vec![model.tokenizer().pad().unwrap_or(0); reserved];
    let mut after = vec![mask; max_tokens - canvases.first];
    after.extend_from_slice(&tail);
    let mut around = Around { before: prompt.clone(), after };
    let params = sampler.params(model.gguf().metadata(), &parameters)?;
    let block = params.get("block_length");
    let block = if block.is_nan() { 1 } else { block as usize };
    let request = Request {
        prompt: prompt.clone(),
        max_tokens,
        context_len: model.shape().context_len,
        sampler,
        params,
        profile: &PROFILES[0],
        end_ids: config.ends()?,
        ban: config.banned()?,
        bias: Vec::new(),
        logprobs: None,
        self_conditioning: false,
        given: Given::default(),
        constraint: None,
        cache: cache_of(golden)?,
        full_logits: false,
        interrupt,
    };
    let mut out = Rows::default();
    let mut session = model.session()?;
    let done = generate(model, &mut session, &request, &draws, &mut |event| {
        match event {
            Event::Step(s) => out.step(s, &around, mask, counts_masked, block),
            Event::Commit { ids, .. } => {
                around.before.extend_from_slice(ids);
                around.after.drain(..canvases.len.min(around.after.len() - tail.len()));
            }
            Event::Prompt { .. } => {}
        }
        ControlFlow::Continue(())
    });
    model.close(session);
    let session = model.session()?;
    let done = done.and_then(|done| {
        if golden.tensors.contains_key("argmax") {
            out.argmax =
                predictions(model, &session, &request, &out.x_in, sequence_len, (mask, counts_masked))?;
        }
        Ok(done)
    });
    model.close(session);
    let sequence = [&prompt, &done?.committed[..], &tail].concat();
    let sequence: Vec<i32> = sequence.into_iter().map(|id| id as i32).collect();
    let mut file = out.file(sequence_len);
    file.insert("final", vec![sequence.len()], Elements::I32(sequence));
    file.tensors.retain(|name, _| golden.tensors.contains_key(name) && name != "prompt_ids");
    Ok(file)
}

/// The most likely ids of all positions of each row of `x_in`, the mask token too: the engine predicts open positions
/// only, goldens have all. `first_stays`: the first position of a sequence is never predicted.
fn predictions(
    model: &mut Model,
    session: &Session,
    request: &Request,
    x_in: &[i32],
    sequence_len: usize,
    (mask, first_stays): (u32, bool),
) -> Result<Vec<i32>, Error> {
    let (vocab_len, shifted) = (model.shape().vocab_len, model.shape().shifted);
    let cfg_scale = request.params.get("cfg_scale");
    let mut logits = |ids: &[u32]| -> Result<Vec<f64>, Error> {
        let mut sink = request.logits_sink(true);
        canvas_pass(model, session, CanvasPass::new(ids), &mut sink)?;
        Ok(sink.logits)
    };
    let mut out = Vec::with_capacity(x_in.len());
    for row in x_in.chunks(sequence_len.max(1)) {
        let ids: Vec<u32> = row.iter().map(|&id| id as u32).collect();
        let mut x = logits(&ids)?;
        if cfg_scale > 0.0 {
            let mut without = ids.clone();
            without[..request.prompt.len()].fill(mask);
            let without = logits(&without)?;
            x.iter_mut().zip(without).for_each(|(x, u)| *x = u + (cfg_scale + 1.0) * (*x - u));
        }
        let best =
            |x: &[f64]| x.iter().enumerate().fold(0, |best, (i, v)| if *v > x[best] { i } else { best });
        let mut argmax: Vec<i32> = x.chunks(vocab_len).map(|x| best(x) as i32).collect();
        if shifted {
            argmax.rotate_right(1);
            argmax[0] = if first_stays { row[0] } else { argmax[1] };
        }
        out.extend(argmax);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use redraft_compute::SeqId;

    use super::*;
    use crate::LoadOptions;
    use crate::engine::BlockCache;

    /// With guidance, whose passes without the prompt stop, too.
    #[test]
    fn predictions_stop_when_they_are_interrupted() {
        let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/oracle");
        let file = oracle.join("models/llada-tiny.BF16.gguf");
        let mut model = Model::open(&file, &LoadOptions::default()).unwrap();
        let spec = sampler("low-confidence").unwrap();
        let parameters = [("block_length".to_string(), 4.0), ("cfg_scale".to_string(), 1.5)];
        let stop = Arc::new(AtomicBool::new(false));
        let request = Request {
            prompt: vec![20, 31],
            max_tokens: 4,
            context_len: model.shape().context_len,
            sampler: spec,
            params: model.params(spec, &parameters).unwrap(),
            profile: &PROFILES[0],
            end_ids: Vec::new(),
            ban: Vec::new(),
            bias: Vec::new(),
            logprobs: None,
            self_conditioning: false,
            given: Given::default(),
            constraint: None,
            cache: BlockCache::None,
            full_logits: false,
            interrupt: Some(Arc::clone(&stop)),
        };
        let session = model.session().unwrap();
        let mut run = || predictions(&mut model, &session, &request, &[20, 31, 57, 511], 4, (511, false));
        assert_eq!(run().unwrap().len(), 4);
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(run(), Err(Error::Interrupted)));
    }

    #[test]
    fn a_trajectory_that_ends_early_frees_its_sequence() {
        let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/oracle");
        let golden = oracle.join("cases/llada-tiny.BF16.sampler-cfg.safetensors");
        let golden = TraceFile::open(&golden).unwrap();
        let file = oracle.join("models/llada-tiny.BF16.gguf");
        let mut model = Model::open(&file, &LoadOptions::default()).unwrap();
        let stop = Some(Arc::new(AtomicBool::new(true)));
        assert!(matches!(trajectory(&mut model, &golden, stop), Err(Error::Interrupted)));
        // Sequences are counted: this is the one after that of the trajectory.
        let SeqId(next) = model.session().unwrap().seq();
        let alive = (0..next).filter(|&id| model.backend.seq_len(SeqId(id)).is_ok()).collect::<Vec<_>>();
        assert!(next > 0 && alive.is_empty(), "{alive:?}");
    }
}
