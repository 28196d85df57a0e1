//! What the families share that are plain transformers and denoise mask tokens, be it that they read prompt and canvas
//! in one bidirectional pass or block by block. Each family says in its own file where it differs.

use redraft_compute::op::{Distribution, Head, Mask, RopeStyle, Routing};
use redraft_compute::{ComputeError, KvLayout, ProgramBuilder, Val};
use redraft_gguf::{Gguf, Metadata, Value};

use super::{Angles, Arch, Hyper, Noise, Reading, Shape};
use crate::Error;
use crate::layers::{
    AttentionKind, Cache, ExpertsKind, FeedForwardKind, HeadNorms, Heads, Transformer, TransformerKind,
};
use crate::weights::WeightLoader;

/// Where a family differs from the others.
pub(super) struct Family {
    /// `general.architecture`, the prefix of its keys.
    pub(super) name: &'static str,
    /// Which channels are rotated together.
    pub(super) rope: RopeStyle,
    /// Queries, keys and values have biases.
    pub(super) bias: bool,
    /// Queries and keys have norms over heads.
    pub(super) head_norms: bool,
    /// Reads how routed experts work, in families that have them.
    pub(super) experts: Option<ReadExperts>,
    /// The prediction for a position is in the row before it, unless the file says otherwise.
    pub(super) shifted: bool,
    /// How it reads, and what a canvas is.
    pub(super) canvas: Canvas,
}

/// Reads a file's keys of routed experts; what had to be assumed is added to the notes.
pub(super) type ReadExperts = fn(&Hyper<'_>, &mut Vec<String>) -> Result<ExpertsKind, Error>;

/// How a family reads what comes before a canvas.
#[derive(Debug, Clone, Copy)]
pub(super) enum Canvas {
    /// [`Reading::Whole`], with so many tokens of an answer where nobody says.
    Answer(usize),
    /// [`Reading::Blocks`], with so many tokens of a block where the file does not say.
    Block(usize),
    /// The file decides: where it says how many tokens a block has it reads in blocks, else as with [`Canvas::Answer`].
    AnswerOrBlock(usize),
}

/// Goldens and llama.cpp name by `Qcur` and `Kcur` what goes into the attention, by `ffn_moe_weights` the weights of the
/// chosen experts.
pub(super) const TAP_NAMES: &[(&str, &str)] =
    &[("Qcur", "Qcur_pos"), ("Kcur", "Kcur_pos"), ("ffn_moe_weights", "ffn_moe_weights_scaled")];

/// Texts of mask tokens.
pub(crate) const MASK_TEXTS: [&str; 6] =
    ["<|mask|>", "<|MASK|>", "|<MASK>|", "<|mdm_mask|>", "[MASK]", "<mask>"];

struct Masked {
    shape: Shape,
    net: Transformer,
    /// Tokens of a block, in models that read block by block.
    blocks: Option<usize>,
}

pub(super) fn load(
    family: &Family,
    gguf: &Gguf,
    w: &mut WeightLoader<'_>,
    notes: &mut Vec<String>,
) -> Result<Box<dyn Arch>, Error> {
    let meta = gguf.metadata();
    let h = Hyper::new(meta, family.name);
    let d_model = h.size("embedding_length", 1 << 20)?;
    let n_heads = h.size("attention.head_count", 1 << 16)?;
    let n_kv_heads = h.opt_size("attention.head_count_kv", 1 << 16)?.unwrap_or(n_heads);
    h.grouped_heads(&[n_heads], &[n_kv_heads])?;
    let head_dim = match h.opt_size("attention.key_length", 1 << 16)? {
        Some(dim) => dim,
        None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
        None => return Err(h.wrong("attention.head_count", format!("a divisor of {d_model}"), n_heads)),
    };
    if meta.get(&h.key("attention.value_length")).is_some() {
        h.equal("attention.value_length", head_dim)?;
    }
    h.no_rope_scaling()?;
    let n_rot = h.opt_size("rope.dimension_count", head_dim)?.unwrap_or(head_dim);
    if meta.opt_bool(&h.key("attention.causal"))? == Some(true) {
        notes.push(format!(
            "the file says {} is true, but these models read both ways",
            h.key("attention.causal")
        ));
    }
    let feed_forward = match family.experts {
        None => FeedForwardKind::Dense(h.size("feed_forward_length", 1 << 24)?),
        Some(read) => FeedForwardKind::Experts(read(&h, notes)?),
    };
    let eps = h.positive("attention.layer_norm_rms_epsilon")?;
    let vocab_len = super::vocab_len(gguf)?;
    let kind = TransformerKind {
        n_layers: h.size("block_count", 1024)?,
        d_model,
        vocab_len,
        attention: AttentionKind {
            heads: Heads { q: n_heads, kv: n_kv_heads, dim: head_dim },
            own_values: true,
            bias: family.bias,
            norms: if family.head_norms { HeadNorms::QueryKey } else { HeadNorms::None },
            eps,
            style: family.rope,
            scale: (head_dim as f64).sqrt().recip(),
        },
        feed_forward,
        eps,
        rotary: h.rotary("rope.dimension_count", n_rot, "rope.freq_base")?,
    };
    let canvas = match family.canvas {
        Canvas::AnswerOrBlock(len) if meta.contains(super::CANVAS_LEN) => Canvas::Block(len),
        other => other,
    };
    let (reading, canvas_len) = match canvas {
        Canvas::Answer(len) | Canvas::AnswerOrBlock(len) => (Reading::Whole, len),
        Canvas::Block(len) => (Reading::Blocks, super::canvas_len(meta, len, notes)?),
    };
    let shape = Shape {
        n_layers: kind.n_layers,
        d_model,
        vocab_len,
        context_len: h.size("context_length", 1 << 30)?,
        reading,
        noise: Noise::Mask(mask_id(meta, vocab_len, notes)?),
        canvas_len,
        shifted: shifted(meta, family, notes)?,
        kv: KvLayout { widths: vec![n_kv_heads * head_dim; kind.n_layers] },
        self_conditioning: false,
    };
    if shape.predicts_next() && canvas_len == 1 {
        // The only token of a block would be the one that the block before predicts.
        return Err(Error::Hyper {
            key: super::CANVAS_LEN.into(),
            expected: "at least 2, since predictions are in the row before".into(),
            found: canvas_len.to_string(),
        });
    }
    let blocks = (reading == Reading::Blocks).then_some(canvas_len);
    Ok(Box::new(Masked { shape, net: Transformer::load(w, kind), blocks }))
}

/// Experts chosen by soft-max alone; `renormalize`: whether the weights of the chosen ones are divided by their sum.
pub(super) fn softmax_experts(h: &Hyper<'_>, renormalize: bool) -> Result<ExpertsKind, Error> {
    let n = h.size("expert_count", 1 << 16)?;
    Ok(ExpertsKind {
        n,
        d_expert: h.size("expert_feed_forward_length", 1 << 24)?,
        routing: Routing::softmax(h.size("expert_used_count", n)?, renormalize),
        biased: false,
        scale: None,
        shared: None,
        dense: (0, 0),
    })
}

/// `diffusion.shift_logits`; files that leave it out mean what the family does.
fn shifted(meta: &Metadata, family: &Family, notes: &mut Vec<String>) -> Result<bool, Error> {
    let key = super::SHIFT;
    let found = meta.opt_bool(key)?;
    if found.is_none() && !family.shifted {
        // llama.cpp takes a missing key for true in every family.
        notes.push(format!("the file has no {key}; taking false, which models of this architecture need"));
    }
    Ok(found.unwrap_or(family.shifted))
}

/// The mask token: named by the file, else by its text.
fn mask_id(meta: &Metadata, vocab_len: usize, notes: &mut Vec<String>) -> Result<u32, Error> {
    let key = "tokenizer.ggml.mask_token_id";
    let wrong = |expected: String, found: String| Error::Hyper { key: key.into(), expected, found };
    if let Some(id) = meta.opt_u32(key)? {
        return match (id as usize) < vocab_len {
            true => Ok(id),
            false => Err(wrong(format!("a token of the vocabulary, 0..{vocab_len}"), id.to_string())),
        };
    }
    let tokens = meta.str_array("tokenizer.ggml.tokens")?;
    let named = |text: &&str| tokens.iter().position(|t| t == *text).filter(|&id| id < vocab_len);
    let found = MASK_TEXTS.iter().find_map(|text| Some((named(text)?, *text)));
    let (id, text) = found.ok_or_else(|| {
        wrong("the token that stands for text to come".into(), "nothing, and no token named for it".into())
    })?;
    notes.push(format!("the file has no {key}; taking {id}, {text}"));
    Ok(id as u32)
}

impl Hyper<'_> {
    /// A size that may be missing.
    pub(super) fn opt_size(&self, name: &str, max: usize) -> Result<Option<usize>, Error> {
        self.meta.get(&self.key(name)).map(|_| self.size(name, max)).transpose()
    }

    /// No model of these families stretches its positions, and a file that asks for it would be read wrongly.
    fn no_rope_scaling(&self) -> Result<(), Error> {
        let name = "rope.scaling.type";
        match self.meta.get(&self.key(name)) {
            None => Ok(()),
            Some(Value::String(s)) if s == "none" => Ok(()),
            Some(found) => Err(self.wrong(name, "none", format!("{found:?}"))),
        }
    }
}

impl Masked {
    /// The hidden state of the last layer.
    fn hidden(&self, b: &mut ProgramBuilder, ids: Val, cache: Cache<'_>) -> Result<Val, ComputeError> {
        let mask = match self.blocks {
            None => Mask::Canvas { prefix: None },
            Some(len) => Mask::Blocks { len },
        };
        self.net.hidden(b, ids, mask, cache)
    }
}

impl Arch for Masked {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn position_inputs(&self, n_past: usize, rows: usize, angles: Angles) -> Vec<Vec<f64>> {
        vec![self.net.kind.rotary.table(n_past, rows, angles)]
    }

    fn result_norm(&self, b: &mut ProgramBuilder, hidden: Val) -> Result<Val, ComputeError> {
        self.net.result_norm(b, hidden)
    }

    fn prompt(&self, b: &mut ProgramBuilder, ids: Val) -> Result<Val, ComputeError> {
        if self.blocks.is_none() {
            return Err(ComputeError::Unavailable {
                what: "pass over a prompt alone",
                name: "prompt".into(),
                available: "canvas, with the prompt before it".into(),
            });
        }
        self.hidden(b, ids, Cache::Append)
    }

    fn canvas(
        &self,
        b: &mut ProgramBuilder,
        ids: Val,
        _: &[(usize, Distribution)],
    ) -> Result<Val, ComputeError> {
        let cache = if self.blocks.is_none() { Cache::Unused } else { Cache::Read };
        let x = self.hidden(b, ids, cache)?;
        self.net.result_norm(b, x)
    }

    fn block_step(
        &self,
        b: &mut ProgramBuilder,
        ids: Val,
        fill: Option<&[u32]>,
    ) -> Result<Val, ComputeError> {
        let x = self.hidden(b, ids, fill.map_or(Cache::Read, Cache::Fill))?;
        self.net.result_norm(b, x)
    }

    fn head(&self) -> Head {
        Head { w: self.net.output, softcap: None }
    }
}
