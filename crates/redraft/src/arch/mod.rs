//! Architectures: one file each, and the list [`ARCHS`].

mod a2d_qwen2;
mod a2d_qwen3;
mod diffusion_gemma;
mod dream;
mod fast_dllm;
mod gemma4;
mod llada;
mod llada2;
mod llada_moe;
mod masked;
mod rnd1;
mod sdar;
mod sdar_moe;

pub(crate) use masked::MASK_TEXTS;

use redraft_compute::op::{Distribution, Head};
use redraft_compute::{ComputeError, KvLayout, ProgramBuilder, Val};
use redraft_gguf::{Gguf, Metadata};

use crate::Error;
use crate::convert::HfSpec;
use crate::layers::Rotary;
use crate::sampler::{PromptWindow, SamplerSpec};
use crate::weights::WeightLoader;

/// How a model reads what comes before a canvas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Prompt and committed canvases are read once, causally, and stay in the KV cache; a canvas sees all of them.
    Cached,
    /// A sequence is cut into blocks from its first token on, and a token sees its own block and those before it. Whole
    /// blocks of the prompt and finished ones are read once and stay in the KV cache. What the prompt leaves over is
    /// read again in each step with the first canvas, which is the rest of that block; the later ones are whole blocks.
    Blocks,
    /// Nothing stays: each step reads the whole sequence both ways, unless a
    /// [`BlockCache`](crate::engine::BlockCache) approximates it. The answer is one canvas.
    Whole,
}

/// What a canvas holds where nothing is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noise {
    /// Random tokens. Every position is open in every step.
    Uniform,
    /// The mask token. A position is open while it holds it, and then stays as it is unless a sampler edits; no prediction
    /// is this token.
    Mask(u32),
}

impl Noise {
    /// Whether a position that holds `id` is still to be decided.
    pub fn is_open(self, id: u32) -> bool {
        match self {
            Noise::Uniform => true,
            Noise::Mask(mask) => id == mask,
        }
    }
}

/// What the engine needs to know of a model before it runs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Layers.
    pub n_layers: usize,
    /// Model width.
    pub d_model: usize,
    /// Vocabulary size (rows of the embedding table).
    pub vocab_len: usize,
    /// Longest sequence.
    pub context_len: usize,
    /// How it reads what comes before a canvas.
    pub reading: Reading,
    /// What a canvas begins with.
    pub noise: Noise,
    /// Tokens that are denoised together; with [`Reading::Blocks`] those of a block. With [`Reading::Whole`] that is
    /// the answer, however long, and this is its length where nobody says.
    pub canvas_len: usize,
    /// The prediction for a position is in the row before it.
    pub shifted: bool,
    /// Key-value cache of a sequence; with [`Reading::Whole`] it is empty unless a
    /// [`BlockCache`](crate::engine::BlockCache) is asked for.
    pub kv: KvLayout,
    /// Whether the model can be told its previous prediction.
    pub self_conditioning: bool,
}

impl Shape {
    /// How many of the `prompt_len` tokens of a prompt are read before the first canvas; those that are left are read
    /// again with it in each step.
    pub fn cached(&self, prompt_len: usize) -> usize {
        match self.reading {
            Reading::Cached => prompt_len,
            Reading::Blocks => prompt_len - prompt_len % self.canvas_len,
            Reading::Whole => 0,
        }
    }

    /// The canvases of an answer of `tokens` to a prompt of `prompt_len`.
    pub fn canvases(&self, prompt_len: usize, tokens: usize) -> Canvases {
        let len = self.canvas_len;
        match self.reading {
            Reading::Cached => Canvases { count: tokens.div_ceil(len), first: len, len },
            Reading::Blocks => {
                let first = len - prompt_len % len;
                Canvases { count: 1 + tokens.saturating_sub(first).div_ceil(len), first, len }
            }
            Reading::Whole => Canvases { count: 1, first: tokens, len: tokens },
        }
    }

    /// Positions after an answer that a sampler keeps for itself. Where the answer is not read as a whole, nothing
    /// would see them.
    pub fn reserved(&self, sampler: &SamplerSpec) -> usize {
        if self.reading == Reading::Whole { sampler.reserved } else { 0 }
    }

    /// Whether classifier-free guidance is possible. It takes a pass in which the prompt is masked, so it cannot come from
    /// the cache.
    pub fn can_be_guided(&self) -> bool {
        self.reading == Reading::Whole
    }

    /// Whether the pass over whole blocks predicts the token after them, with which the next block begins: in its own
    /// block no row comes before it.
    pub fn predicts_next(&self) -> bool {
        self.reading == Reading::Blocks && self.shifted
    }
}

/// How an answer is divided into canvases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canvases {
    /// How many there are.
    pub count: usize,
    /// Positions of the first.
    pub first: usize,
    /// Positions of each other one.
    pub len: usize,
}

impl Canvases {
    /// Positions of a canvas.
    pub fn len_of(&self, canvas: usize) -> usize {
        if canvas == 0 { self.first } else { self.len }
    }

    /// Positions of the largest one; of the first where it is the only one.
    pub(crate) fn largest(&self) -> usize {
        if self.count > 1 { self.len } else { self.first }
    }

    /// Positions of all of them.
    pub fn total(&self) -> usize {
        match self.count {
            0 => 0,
            n => (n - 1).saturating_mul(self.len).saturating_add(self.first),
        }
    }
}

/// What the angles of rotary positions are computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Angles {
    /// f64: exact in what f32 shows of their sines.
    #[default]
    Exact,
    /// f32, as other programs do, whose rounding is being told.
    F32,
}

/// An architecture with its hyper-parameters and weights: turns a pass into ops.
pub trait Arch: Send + Sync {
    /// Sizes.
    fn shape(&self) -> &Shape;

    /// Values of the inputs that depend on positions only (RoPE tables), in the order in which
    /// [`prompt`](Self::prompt) and [`canvas`](Self::canvas) declare them; their angles are computed in `angles`.
    fn position_inputs(&self, n_past: usize, rows: usize, angles: Angles) -> Vec<Vec<f64>>;

    /// Which prompt tokens canvases see from now on, where a layer has a sliding window.
    fn set_prompt_window(&mut self, _window: PromptWindow) {}

    /// Tokens that a sliding layer sees at most, the last ones; `None` where a layer sees all.
    fn window(&self, _layer: usize) -> Option<usize> {
        None
    }

    /// Pass over prompt tokens or committed canvases, causal or over whole blocks: extends the KV cache, returns the
    /// hidden state of the last layer `[T, d_model]`.
    ///
    /// # Errors
    /// [`ComputeError::Unavailable`] with [`Reading::Whole`]; those of the ops.
    fn prompt(&self, b: &mut ProgramBuilder, ids: Val) -> Result<Val, ComputeError>;

    /// Final norm of a hidden state, tapped as `result_norm`.
    fn result_norm(&self, b: &mut ProgramBuilder, hidden: Val) -> Result<Val, ComputeError>;

    /// Bidirectional pass over a canvas, with [`Reading::Blocks`] over any tokens after whole blocks. `previous`: the
    /// distributions of the step before, each with the row that its first one belongs to. Returns what the [`head`](Self::head) is applied to, one row per
    /// position of the canvas: the final normed hidden state `[T, d_model]`.
    fn canvas(
        &self,
        b: &mut ProgramBuilder,
        ids: Val,
        previous: &[(usize, Distribution)],
    ) -> Result<Val, ComputeError>;

    /// With [`Reading::Whole`], as [`canvas`](Self::canvas), in a step of a
    /// [block](crate::engine::BlockStep): with `fill` over a whole sequence, whose keys and values fill the empty
    /// KV cache in this order of rows; without it over tokens that see themselves and what is in the cache. Not asked of
    /// other models.
    ///
    /// # Errors
    /// [`ComputeError::Unavailable`] where there is no such pass; those of the ops.
    fn block_step(
        &self,
        _b: &mut ProgramBuilder,
        _ids: Val,
        _fill: Option<&[u32]>,
    ) -> Result<Val, ComputeError> {
        Err(ComputeError::Unavailable {
            what: "pass of models that read whole sequences",
            name: "block_step".into(),
            available: "prompt, canvas".into(),
        })
    }

    /// How raw logits `[T, V]` come from what [`canvas`](Self::canvas) returns. They are made as a whole, and tapped as
    /// `logits`, only for those who want to see them.
    fn head(&self) -> Head;
}

/// Reads hyper-parameters and weights of a file; what had to be assumed is added to the notes.
pub type LoadArch = fn(&Gguf, &mut WeightLoader<'_>, &mut Vec<String>) -> Result<Box<dyn Arch>, Error>;

/// One entry of [`ARCHS`].
pub struct ArchSpec {
    /// `general.architecture`.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Reads hyper-parameters and weights.
    pub load: LoadArch,
    /// The sampler where nobody asks for another. None for autoregressive models, which write one token after another:
    /// their passes can be measured, but there is nothing to denoise.
    pub sampler: Option<&'static SamplerSpec>,
    /// Parameters in which the models' makers run it, where they are not its own defaults.
    pub defaults: &'static [(&'static str, f64)],
    /// Names of taps in goldens where they are others, each with the tap's own.
    pub tap_names: &'static [(&'static str, &'static str)],
    /// Shapes of well-known models, for `redraft synth`.
    pub presets: &'static [Preset],
    /// What checkpoints of `transformers` look like, where `redraft convert` takes them.
    pub hf: Option<&'static HfSpec>,
    /// `tokenizer.ggml.pre` of the published models, where their kind of tokenizer has one.
    pub pre: Option<&'static str>,
    /// `diffusion.shift_logits` of the published models, where the family has the key.
    pub shifted: Option<bool>,
}

/// The shape of a well-known model: metadata and tensors, without weights.
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Builds the description.
    pub build: fn() -> crate::synth::Plan,
}

/// All architectures.
pub static ARCHS: &[ArchSpec] = &[
    a2d_qwen2::SPEC,
    a2d_qwen3::SPEC,
    diffusion_gemma::SPEC,
    dream::SPEC,
    fast_dllm::SPEC,
    gemma4::SPEC,
    llada::SPEC,
    llada2::SPEC,
    llada_moe::SPEC,
    rnd1::SPEC,
    sdar::SPEC,
    sdar_moe::SPEC,
];

/// The architecture of a file.
///
/// # Errors
/// [`Error::UnknownArch`] with the names that exist, or the error of a missing key.
pub fn arch_of(meta: &Metadata) -> Result<&'static ArchSpec, Error> {
    let found = meta.str("general.architecture")?;
    // Image encoders come as files of their own, next to the model.
    if found == "clip" || meta.opt_str("general.type")? == Some("mmproj") {
        return Err(Error::NotText { what: format!("an image encoder (mmproj, architecture `{found}`)") });
    }
    ARCHS.iter().find(|a| a.name == found).ok_or_else(|| Error::UnknownArch {
        found: found.to_string(),
        known: ARCHS.iter().map(|a| a.name).collect::<Vec<_>>().join(", "),
    })
}

/// Vocabulary size: the rows of the embedding table.
pub(crate) fn vocab_len(gguf: &Gguf) -> Result<usize, Error> {
    let name = "token_embd.weight";
    let problem = |p: String| Error::Weights { problems: vec![format!("{name}: {p}")] };
    let t = gguf.tensor(name).ok_or_else(|| problem("missing".into()))?;
    match t.dims[..] {
        // Ids travel as i32.
        [_, v] if (1..=i32::MAX as u64).contains(&v) => Ok(v as usize),
        _ => Err(problem(format!("expected the shape [embedding_length, vocabulary], found {:?}", t.dims))),
    }
}

/// The key of the tokens of a canvas.
pub(crate) const CANVAS_LEN: &str = "diffusion.canvas_length";

/// The key of whether the prediction for a position is in the row before it.
pub(crate) const SHIFT: &str = "diffusion.shift_logits";

/// Tokens of a canvas: what the file says, or the model card's number with a note.
pub(crate) fn canvas_len(meta: &Metadata, card: usize, notes: &mut Vec<String>) -> Result<usize, Error> {
    let key = CANVAS_LEN;
    match meta.opt_u64(key)? {
        Some(n) if (1..=1 << 16).contains(&n) => Ok(n as usize),
        Some(n) => Err(Error::Hyper { key: key.into(), expected: "1..=65536".into(), found: n.to_string() }),
        None => {
            notes.push(format!("the file has no {key}; taking {card}"));
            Ok(card)
        }
    }
}

/// Hyper-parameters under the prefix of an architecture.
pub(crate) struct Hyper<'a> {
    meta: &'a Metadata,
    arch: &'static str,
}

impl<'a> Hyper<'a> {
    pub(crate) fn new(meta: &'a Metadata, arch: &'static str) -> Hyper<'a> {
        Hyper { meta, arch }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    /// A key that is wrong, as an error.
    pub(crate) fn wrong(&self, name: &str, expected: impl ToString, found: impl ToString) -> Error {
        Error::Hyper { key: self.key(name), expected: expected.to_string(), found: found.to_string() }
    }

    /// A size: an integer in `1..=max`.
    pub(crate) fn size(&self, name: &str, max: usize) -> Result<usize, Error> {
        let x = self.meta.u64(&self.key(name))?;
        self.in_range(name, x, max)
    }

    /// A number that may be missing or zero.
    pub(crate) fn opt_count(&self, name: &str, max: usize) -> Result<Option<usize>, Error> {
        match self.meta.opt_u64(&self.key(name))? {
            None => Ok(None),
            Some(0) => Ok(Some(0)),
            Some(x) => self.in_range(name, x, max).map(Some),
        }
    }

    /// A flag that may be missing.
    pub(crate) fn opt_flag(&self, name: &str) -> Result<Option<bool>, Error> {
        Ok(self.meta.opt_bool(&self.key(name))?)
    }

    /// A size that must have one value.
    pub(crate) fn equal(&self, name: &str, value: usize) -> Result<(), Error> {
        let found = self.size(name, usize::MAX)?;
        if found == value { Ok(()) } else { Err(self.wrong(name, value, found)) }
    }

    /// Query heads must share key-value heads evenly in every layer.
    pub(crate) fn grouped_heads(&self, heads: &[usize], kv_heads: &[usize]) -> Result<(), Error> {
        match (0..heads.len()).find(|&i| !heads[i].is_multiple_of(kv_heads[i])) {
            None => Ok(()),
            Some(i) => {
                let expected = format!("a divisor of the {} query heads of layer {i}", heads[i]);
                Err(self.wrong("attention.head_count_kv", expected, kv_heads[i]))
            }
        }
    }

    /// A rotary scheme without frequency factors, of `n_rot` channels, the value of `dims`.
    pub(crate) fn rotary(&self, dims: &str, n_rot: usize, base: &str) -> Result<Rotary, Error> {
        if !n_rot.is_multiple_of(2) {
            return Err(self.wrong(dims, "an even number", n_rot));
        }
        Ok(Rotary { base: self.positive(base)?.into(), n_rot, factors: None })
    }

    fn in_range(&self, name: &str, x: u64, max: usize) -> Result<usize, Error> {
        match usize::try_from(x) {
            Ok(x) if (1..=max).contains(&x) => Ok(x),
            _ => Err(self.wrong(name, format!("1..={max}"), x)),
        }
    }

    /// A positive finite number.
    pub(crate) fn positive(&self, name: &str) -> Result<f32, Error> {
        let x = self.meta.f32(&self.key(name))?;
        if x > 0.0 && x.is_finite() { Ok(x) } else { Err(self.wrong(name, "a positive number", x)) }
    }

    /// A size per layer: one number for all layers, or an array with one entry a layer.
    pub(crate) fn size_per_layer(&self, name: &str, n: usize, max: usize) -> Result<Vec<usize>, Error> {
        if !matches!(self.meta.get(&self.key(name)), Some(redraft_gguf::Value::Array(_))) {
            return Ok(vec![self.size(name, max)?; n]);
        }
        let list = self.meta.u32_array(&self.key(name))?;
        if list.len() != n {
            return Err(self.wrong(name, format!("{n} entries"), list.len()));
        }
        list.into_iter().map(|x| self.in_range(name, x.into(), max)).collect()
    }

    /// A flag per layer.
    pub(crate) fn flag_per_layer(&self, name: &str, n: usize) -> Result<Vec<bool>, Error> {
        let list = self.meta.bool_array(&self.key(name))?;
        if list.len() == n { Ok(list) } else { Err(self.wrong(name, format!("{n} entries"), list.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_encoders_are_named() {
        let found = |key: &str, value: &str| {
            let mut meta = Metadata::new();
            meta.set("general.architecture", "gemma9");
            meta.set(key, value);
            arch_of(&meta).map(|_| ()).unwrap_err().to_string()
        };
        for (key, value) in [("general.architecture", "clip"), ("general.type", "mmproj")] {
            let error = found(key, value);
            assert!(error.contains("image encoder (mmproj") && error.contains("not supported"), "{error}");
        }
        assert!(found("general.type", "model").contains("architecture `gemma9` is not supported"));
    }
}
