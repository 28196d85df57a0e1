//! Runs what a golden file describes and writes the results under its names.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redraft_compute::TapKey;
use redraft_gguf::Shown;
use serde_json::Value;

use super::{GenerationRecorder, PassRecorder, Tensor, TraceFile, split_layer, whole};
use crate::arch::{Noise, Reading};
use crate::engine::{
    BlockCache, CanvasPass, Draws, Given, Philox, Previous, Request, Session, canvas_pass, generate,
};
use crate::sampler::{PROFILES, ParamSpec, Profile, SamplerSpec, profile, sampler, unsaid};
use crate::{Error, Model};

/// Takes every input from `golden` (prompt, chunks, canvas, `sc_logits`; or a recorded trajectory with its
/// draws), runs the model, and returns the results under the golden's names. Inputs are not copied. Stops
/// when `interrupt` is set.
///
/// # Errors
/// [`Error::Golden`] naming the tensor or setting that is missing or does not fit the model; those of the
/// passes; [`Error::Interrupted`].
pub fn like(
    model: &mut Model,
    golden: &TraceFile,
    interrupt: Option<Arc<AtomicBool>>,
) -> Result<TraceFile, Error> {
    let mut out = if golden.tensors.contains_key("x_in") {
        whole::trajectory(model, golden, interrupt)?
    } else if golden.tensors.contains_key("ids") {
        whole::forward(model, golden, interrupt)?
    } else if golden.tensors.contains_key("step_left") {
        trajectory(model, golden, interrupt)?
    } else if golden.tensors.contains_key("prompt_ids") {
        forward(model, golden, interrupt)?
    } else {
        let inputs =
            "there is neither prompt_ids or ids (a forward pass) nor step_left or x_in (a trajectory)";
        return Err(golden.wrong(format!("{inputs}: give a golden with its inputs, not a file of results")));
    };
    // The golden's shapes where rows and elements are as many: per-head taps are [T, heads, d] there.
    for (name, t) in &mut out.tensors {
        let rows = t.shape.first().copied();
        let same = |g: &&Tensor| g.data.len() == t.data.len() && g.shape.first().copied() == rows;
        if let Some(g) = golden.tensors.get(name).filter(same) {
            t.shape.clone_from(&g.shape);
        }
    }
    Ok(out)
}

fn forward(
    model: &mut Model,
    golden: &TraceFile,
    interrupt: Option<Arc<AtomicBool>>,
) -> Result<TraceFile, Error> {
    let prompt = golden.ids("prompt_ids")?;
    // Any pass after the prompt is one over a canvas, of which there is one at least.
    let (answer, context) = (model.shape().canvases(prompt.len(), 1).first, model.shape().context_len);
    if prompt.len().saturating_add(answer) > context {
        return Err(Error::ContextOverflow { prompt: prompt.len(), answer, context });
    }
    let cached = model.shape().cached(prompt.len());
    let chunks = match golden.tensors.contains_key("chunk_lengths") {
        true => golden.ints("chunk_lengths")?,
        false if cached == 0 => Vec::new(),
        false => vec![cached as i64],
    };
    let mut recorder = PassRecorder::new(|name: &str, _| golden.tensors.contains_key(name));
    recorder.interrupt = interrupt;
    recorder.names = model.arch().tap_names;
    let mut session = model.session()?;
    let done = passes(model, &mut session, golden, &prompt, &chunks, &mut recorder);
    model.close(session);
    done.map(|()| recorder.file)
}

/// What of the prompt is cached, in chunks; then the canvas, if there is one, after the rest.
fn passes<F: Fn(&str, TapKey) -> bool>(
    model: &mut Model,
    session: &mut Session,
    golden: &TraceFile,
    prompt: &[u32],
    chunks: &[i64],
    recorder: &mut PassRecorder<F>,
) -> Result<(), Error> {
    let masks = |prefix: &str| -> Vec<(usize, usize)> {
        let find = |(name, t): (&String, &Tensor)| match split_layer(name.strip_prefix(prefix)?) {
            ("", "kq_visible", Some(layer)) => Some((layer, *t.shape.get(1)?)),
            _ => None,
        };
        golden.tensors.iter().filter_map(find).collect()
    };
    let (mut rest, lead) = prompt.split_at(model.shape().cached(prompt.len()));
    let cached = rest.len();
    for (i, &n) in chunks.iter().enumerate() {
        let n = usize::try_from(n).ok().filter(|n| (1..=rest.len()).contains(n)).ok_or_else(|| {
            golden
                .wrong(format!("chunk_lengths {chunks:?} do not divide the {cached} tokens before a canvas"))
        })?;
        let (chunk, later) = rest.split_at(n);
        rest = later;
        recorder.prefix = if i == 0 { "enc/".into() } else { format!("enc{}/", i + 1) };
        recorder.masks = masks(&recorder.prefix);
        session.extend(model, chunk, recorder)?;
    }
    if !rest.is_empty() {
        return Err(golden
            .wrong(format!("chunk_lengths {chunks:?} do not divide the {cached} tokens before a canvas")));
    }
    if golden.tensors.contains_key("canvas_ids") {
        let ids = golden.ids("canvas_ids")?;
        let (expected, found) = (model.shape().canvases(prompt.len(), 1).first, ids.len());
        if expected != found {
            return Err(
                golden.wrong(format!("tensor canvas_ids: expected a canvas of {expected}, found {found}"))
            );
        }
        let given = golden.tensors.get("sc_logits").map(|t| t.data.to_f64());
        let previous = given.as_deref().map_or(Previous::None, Previous::Given);
        recorder.prefix = "dec/".into();
        recorder.masks = masks(&recorder.prefix);
        canvas_pass(model, session, CanvasPass { lead, previous, ..CanvasPass::new(&ids) }, recorder)?;
    }
    Ok(())
}

/// The name of a parameter of a sampler in the metadata `config`, which other programs know.
pub fn golden_name(parameter: &str) -> &str {
    match parameter {
        "steps" => "max_steps",
        "stability" => "stability_threshold",
        "confidence" => "confidence_threshold",
        other => other,
    }
}

/// The metadata `config` of a recorded trajectory: how it was made.
pub(super) struct Config<'a> {
    golden: &'a TraceFile,
    settings: serde_json::Map<String, Value>,
}

impl Config<'_> {
    /// That of a recording.
    pub(super) fn of(golden: &TraceFile) -> Result<Config<'_>, Error> {
        let Some(text) = golden.metadata.get("config") else {
            return Err(golden.wrong("metadata `config` is missing".into()));
        };
        match serde_json::from_str(text) {
            Ok(settings) => Ok(Config { golden, settings }),
            Err(e) => Err(golden.wrong(format!("metadata `config`: {e}"))),
        }
    }

    /// What is wrong with it.
    pub(super) fn wrong(&self, problem: String) -> Error {
        self.golden.wrong(format!("metadata `config`: {problem}"))
    }

    /// A setting, if there is one.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.settings.get(name)
    }

    /// The parameters of a sampler.
    fn parameters(&self, spec: &SamplerSpec) -> Result<Vec<(String, f64)>, Error> {
        let number = |p: &ParamSpec| {
            let name = golden_name(p.name);
            let found = self.get(name).map_or(unsaid(p.name), Value::as_f64);
            let found = found.ok_or_else(|| self.wrong(format!("{name}: expected a number")));
            found.map(|x| (p.name.to_string(), x))
        };
        spec.params.iter().map(number).collect()
    }

    /// Ids that were never drawn; none where it does not say.
    pub(super) fn banned(&self) -> Result<Vec<u32>, Error> {
        self.setting("ban")
    }

    /// Ids that end an answer; none where it does not say.
    pub(super) fn ends(&self) -> Result<Vec<u32>, Error> {
        self.setting("eos").map(Eos::ids)
    }

    /// A setting, or its default.
    fn setting<T: serde::de::DeserializeOwned + Default>(&self, name: &str) -> Result<T, Error> {
        let value = self.get(name).map_or_else(|| Ok(T::default()), T::deserialize);
        value.map_err(|e| self.wrong(format!("{name}: {e}")))
    }
}

/// End ids, as recordings of different origin write them.
#[derive(serde::Deserialize, Default)]
#[serde(untagged)]
enum Eos {
    One(u32),
    Many(Vec<u32>),
    #[default]
    None,
}

impl Eos {
    /// As a list.
    fn ids(self) -> Vec<u32> {
        match self {
            Eos::One(id) => vec![id],
            Eos::Many(ids) => ids,
            Eos::None => Vec::new(),
        }
    }
}

/// The profile of a recording; those that do not say are of transformers.
pub(super) fn profile_of(file: &TraceFile) -> Result<&'static Profile, Error> {
    file.metadata.get("profile").map_or(Ok(&PROFILES[0]), |name| profile(name))
}

/// Whether the previous prediction was fed back; recordings that do not say are of programs that always do so.
fn self_conditioning_of(file: &TraceFile) -> Result<bool, Error> {
    let Some(text) = file.metadata.get("self_conditioning") else { return Ok(true) };
    text.parse().map_err(|_| {
        let found = Shown(text);
        file.wrong(format!("metadata `self_conditioning`: expected true or false, found {found}"))
    })
}

/// What the steps of a block shared; recordings that do not say are of programs in which each step reads everything.
pub(super) fn cache_of(file: &TraceFile) -> Result<BlockCache, Error> {
    let Some(name) = file.metadata.get("cache") else { return Ok(BlockCache::None) };
    BlockCache::from_name(name).ok_or_else(|| {
        let found = Shown(name);
        file.wrong(format!("metadata `cache`: expected none, prefix or dual, found {found}"))
    })
}

/// Draws of a recording; beyond its end the generator of seed 0 goes on, so that a run that takes more
/// steps than the recording ends, and differs in length.
struct Recorded {
    canvas_len: usize,
    /// Positions at the start of the first canvas's rows that are the end of the prompt.
    lead: usize,
    /// First row of each canvas, and the end.
    first: Vec<usize>,
    init: Vec<u32>,
    renoise: Vec<u32>,
    u: Option<Vec<f64>>,
    choice: Option<Vec<f64>>,
    denoiser: Option<Vec<u32>>,
    beyond: Philox,
}

impl Recorded {
    /// Positions at the start of a canvas's rows that are none of the canvas.
    fn lead_of(&self, canvas: usize) -> usize {
        if canvas == 0 { self.lead } else { 0 }
    }

    fn row<'a, T>(&self, all: &'a [T], canvas: usize, step: usize) -> Option<&'a [T]> {
        let row = self.first.get(canvas)?.checked_add(step)?;
        let end = *self.first.get(canvas + 1)?;
        (row < end).then(|| &all[row * self.canvas_len + self.lead_of(canvas)..(row + 1) * self.canvas_len])
    }
}

impl Draws for Recorded {
    fn recorded(&self) -> bool {
        true
    }

    fn initial(&self, canvas: usize, len: usize) -> Vec<u32> {
        let row = self.init.chunks(self.canvas_len).nth(canvas).map(|row| &row[self.lead_of(canvas)..]);
        row.map_or_else(|| self.beyond.initial(canvas, len), <[u32]>::to_vec)
    }

    fn uniform(&self, canvas: usize, step: usize, len: usize) -> Vec<f64> {
        let row = self.u.as_ref().and_then(|u| self.row(u, canvas, step));
        row.map_or_else(|| self.beyond.uniform(canvas, step, len), <[f64]>::to_vec)
    }

    fn renoise(&self, canvas: usize, step: usize, len: usize) -> Vec<u32> {
        let row = (!self.renoise.is_empty()).then(|| self.row(&self.renoise, canvas, step)).flatten();
        row.map_or_else(|| self.beyond.renoise(canvas, step, len), <[u32]>::to_vec)
    }

    fn choice(&self, canvas: usize, step: usize, len: usize) -> Vec<f64> {
        let row = self.choice.as_ref().and_then(|u| self.row(u, canvas, step));
        row.map_or_else(|| self.beyond.choice(canvas, step, len), <[f64]>::to_vec)
    }

    fn sampled(&self, canvas: usize, step: usize) -> Option<Vec<u32>> {
        // Where uniform numbers are recorded the sample is ours to compute.
        self.u.is_none().then_some(())?;
        self.row(self.denoiser.as_ref()?, canvas, step).map(<[u32]>::to_vec)
    }
}

fn trajectory(
    model: &mut Model,
    golden: &TraceFile,
    interrupt: Option<Arc<AtomicBool>>,
) -> Result<TraceFile, Error> {
    let spec = match golden.metadata.get("sampler") {
        Some(name) => sampler(name)?,
        None => model.sampler()?,
    };
    let config = Config::of(golden)?;
    let parameters = config.parameters(spec)?;
    let draws = recorded(model, golden)?;
    let n_canvases = draws.first.len() - 1;
    let prompt = golden.ids("prompt_ids")?;
    let max_tokens = n_canvases * draws.canvas_len - draws.lead;
    let canvases = model.shape().canvases(prompt.len(), max_tokens);
    if (canvases.count, canvases.total()) != (n_canvases, max_tokens) {
        let found = format!("{n_canvases} of {} with {} of the prompt", draws.canvas_len, draws.lead);
        let expected = format!("{} of {} after one of {}", canvases.count - 1, canvases.len, canvases.first);
        return Err(golden.wrong(format!(
            "tensor init_canvas: expected canvases as the prompt makes them, {expected}; found {found}"
        )));
    }
    let request = Request {
        max_tokens,
        context_len: model.shape().context_len,
        params: spec.params(model.gguf().metadata(), &parameters)?,
        profile: profile_of(golden)?,
        sampler: spec,
        end_ids: config.ends()?,
        ban: config.banned()?,
        bias: Vec::new(),
        logprobs: None,
        self_conditioning: self_conditioning_of(golden)?,
        given: Given::default(),
        constraint: None,
        cache: cache_of(golden)?,
        full_logits: golden.tensors.contains_key("raw_logits_step"),
        interrupt,
        prompt,
    };
    let mut recorder = GenerationRecorder::default();
    if request.full_logits {
        if let Noise::Mask(_) = model.shape().noise {
            return Err(golden.wrong(format!(
                "tensor raw_logits_step: a step of {} predicts only the positions that are still masked, so there are \
                 no raw logits of a whole canvas",
                model.arch().name
            )));
        }
        let steps = golden.ints("raw_logits_step")?;
        if steps.first().is_some_and(|&s| s < 0) || !steps.windows(2).all(|w| w[0] < w[1]) {
            return Err(golden.wrong(format!("raw_logits_step must ascend, found {steps:?}")));
        }
        recorder.logits_steps = steps.into_iter().map(|s| s as usize).collect();
    }
    let mut session = model.session()?;
    let done = generate(model, &mut session, &request, &draws, &mut |event| {
        recorder.event(event);
        ControlFlow::Continue(())
    });
    model.close(session);
    let vocab_len = model.shape().vocab_len;
    let mut out = recorder.finish_with_logits(golden, vocab_len, &request.prompt, &done?.committed)?;
    for input in ["u", "choice", "init_canvas", "renoise", "prompt_ids", "raw_logits_step"] {
        out.tensors.remove(input);
    }
    if draws.u.is_none() {
        out.tensors.remove("denoiser");
    }
    out.tensors.retain(|name, _| golden.tensors.contains_key(name));
    Ok(out)
}

/// Checks the recording's shapes against the model and each other.
fn recorded(model: &Model, golden: &TraceFile) -> Result<Recorded, Error> {
    let shape = model.shape();
    let len = match shape.reading {
        Reading::Cached => shape.canvas_len,
        // The one canvas is as long as it is.
        Reading::Whole => golden.ids("init_canvas")?.len().max(1),
        // So it is where the first is the only one.
        Reading::Blocks => golden.need("init_canvas")?.shape.last().copied().unwrap_or_default().max(1),
    };
    let lead = golden.lead(len)?;
    let index = golden.ints("canvas_index")?;
    let rows = |name: &str, found: usize, rows: usize| golden.check_rows(name, found, rows, len);
    let init = golden.ids("init_canvas")?;
    let n_canvases = init.len() / len;
    rows("init_canvas", init.len(), n_canvases)?;
    let in_order = index.windows(2).all(|w| w[0] <= w[1]);
    let mut first: Vec<usize> = (0..n_canvases as i64).map(|c| index.partition_point(|&i| i < c)).collect();
    first.push(index.len());
    if !in_order || n_canvases == 0 || index.iter().any(|&i| i < 0 || i >= n_canvases as i64) {
        return Err(golden.wrong(format!("canvas_index must count {n_canvases} canvases in order")));
    }
    let masks = matches!(shape.noise, Noise::Mask(_));
    let renoise = if masks { Vec::new() } else { golden.ids("renoise")? };
    if !masks {
        rows("renoise", renoise.len(), index.len())?;
    }
    let numbers = |name: &str| -> Result<Option<Vec<f64>>, Error> {
        let Some(x) = golden.tensors.get(name).map(|t| t.data.to_f64()) else { return Ok(None) };
        rows(name, x.len(), index.len())?;
        match x.iter().find(|x| !(0.0 < **x && **x <= 1.0)) {
            None => Ok(Some(x)),
            Some(x) => Err(golden.wrong(format!("tensor {name}: expected numbers in (0, 1], found {x}"))),
        }
    };
    let (u, choice) = (numbers("u")?, numbers("choice")?);
    let denoiser = golden.tensors.contains_key("denoiser").then(|| golden.ids("denoiser")).transpose()?;
    match (&u, &denoiser) {
        (Some(_), _) => {}
        (None, Some(d)) => rows("denoiser", d.len(), index.len())?,
        (None, None) => return Err(golden.wrong("neither u nor denoiser is there to replay".into())),
    }
    let beyond = Philox { seed: 0, vocab_len: shape.vocab_len as u32 };
    Ok(Recorded { canvas_len: len, lead, first, init, renoise, u, choice, denoiser, beyond })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two canvases of four positions, of which the first is the rest of a block that the prompt has begun.
    #[test]
    fn a_canvas_begins_after_the_end_of_the_prompt() {
        let draws = Recorded {
            canvas_len: 4,
            lead: 3,
            first: vec![0, 1, 2],
            init: (10..18).collect(),
            renoise: (20..28).collect(),
            u: None,
            choice: None,
            denoiser: None,
            beyond: Philox { seed: 0, vocab_len: 100 },
        };
        assert_eq!(draws.initial(0, 1), [13]);
        assert_eq!(draws.initial(1, 4), [14, 15, 16, 17]);
        assert_eq!(draws.initial(2, 4), draws.beyond.initial(2, 4));
        assert_eq!((draws.renoise(0, 0, 1), draws.renoise(1, 0, 4)), (vec![23], vec![24, 25, 26, 27]));
    }
}
