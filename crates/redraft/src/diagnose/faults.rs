//! Usual mistakes of ports, as changes of a pass: what a model would compute if it were built with one of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redraft_compute::op::{Activation, Add, Factor, GateUp, Mask, RmsNorm, RopeStyle, RouterScore, Scale};
use redraft_compute::{ComputeError, Op, ProgramBuilder, Rewrite, Val, WeightId};
use redraft_gguf::{Gguf, Metadata, Value};

use super::weights::exchanged;
use crate::arch::Reading;
use crate::{Error, LoadOptions, Model};

/// A mistake.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Positions see what comes before them only.
    CausalMask,
    /// Positions see all of the pass, and all that comes before it.
    FullMask,
    /// Layers with a sliding window see everything.
    NoWindow,
    /// Sliding windows are one key wider.
    WindowPlusOne,
    /// Positions are counted from 0 in each pass.
    PositionsRestart,
    /// Neighbouring channels are rotated together instead of halves of a head, or the other way round.
    RopeStyle,
    /// Queries and keys are not rotated.
    NoRope,
    /// Another base of the rotary frequencies.
    RopeBase(f64),
    /// A norm that is left out: the weight's name without its layer.
    NormMissing(String),
    /// A norm that is applied twice.
    NormTwice(String),
    /// The weight of a norm is left out.
    NormUnweighted(String),
    /// The norms of query and key heads are left out.
    HeadNormsMissing,
    /// Norms that have no weight are left out: those of heads, or those of whole rows.
    PlainNormMissing {
        /// Of heads.
        heads: bool,
    },
    /// Norms multiply by `1 + weight`.
    NormPlusOne,
    /// Another number is added to the mean of squares in norms.
    NormEpsilon(f32),
    /// Scores are multiplied by 1.
    NoAttentionScale,
    /// Scores are divided by the root of the head size where they should not be.
    AttentionScale,
    /// A bias that is left out: its name without its layer.
    BiasMissing(String),
    /// All biases of projections are left out.
    BiasesMissing,
    /// Keys and values are exchanged.
    KeyValueSwapped,
    /// Channels of the values stand in another order: head by head instead of channel by channel, or the other way round.
    ValueTransposed,
    /// Gate and up projections are exchanged: in dense blocks, in experts.
    GateUpSwapped {
        /// In dense blocks.
        dense: bool,
        /// In experts.
        experts: bool,
    },
    /// Another activation: SiLU instead of GELU, or the other way round.
    Activation,
    /// The router reads what the experts read, instead of the stream before that norm.
    RouterOnNormed,
    /// The router reads the stream before the norm of the experts.
    RouterOnStream,
    /// What the router reads is not divided by the root of the width.
    RouterUnscaled,
    /// Experts read the norm of the dense block.
    ExpertsOnDenseNorm,
    /// The weights of the chosen experts are not divided by their sum, or are though they should not.
    RouterSum,
    /// Soft-max instead of sigmoids in the router, or the other way round.
    RouterScore,
    /// The bias of the router's choice is left out.
    RouterBias,
    /// Experts of all groups compete.
    RouterGroups,
    /// The factors of the experts are left out.
    ExpertScale,
    /// Embeddings are not multiplied by the root of the width.
    EmbeddingScale,
    /// Logits are not capped.
    NoSoftcap,
    /// A layer's scalar of the prompt is used for the canvas, that of the canvas for the prompt.
    LayerScalarSwapped,
    /// The scalar of a layer's output is left out.
    NoLayerScalar,
    /// The previous prediction is not fed back.
    NoSelfConditioning,
    /// Row `i` of the logits is row `i + 1`, or where it is -1 row `i - 1`.
    LogitsShifted(i8),
    /// What is called the output of the last layer is that after the final norm.
    LastLayerNormed,
    /// No mistake, but the noise of another honest program: each number of each norm's weight is off by 2 to the power of
    /// -`bits` of itself, upwards or downwards as the seed says.
    Noise {
        /// Which noise.
        seed: u64,
        /// How small it is.
        bits: u32,
    },
}

impl Fault {
    /// In JSON: without spaces.
    pub fn name(&self) -> String {
        let (name, of) = match self {
            Fault::CausalMask => ("causal-mask", None),
            Fault::FullMask => ("full-mask", None),
            Fault::NoWindow => ("no-sliding-window", None),
            Fault::WindowPlusOne => ("window-plus-one", None),
            Fault::PositionsRestart => ("positions-restart", None),
            Fault::RopeStyle => ("rope-style", None),
            Fault::NoRope => ("no-rope", None),
            Fault::RopeBase(base) => ("rope-base", Some(base.to_string())),
            Fault::NormMissing(w) => ("norm-missing", Some(w.clone())),
            Fault::NormTwice(w) => ("norm-twice", Some(w.clone())),
            Fault::NormUnweighted(w) => ("norm-unweighted", Some(w.clone())),
            Fault::HeadNormsMissing => ("norm-missing", Some("heads".into())),
            Fault::PlainNormMissing { heads: true } => ("plain-norm-missing", Some("heads".into())),
            Fault::PlainNormMissing { heads: false } => ("plain-norm-missing", Some("rows".into())),
            Fault::NormPlusOne => ("norm-one-plus-weight", None),
            Fault::NormEpsilon(eps) => ("norm-epsilon", Some(format!("{eps:e}"))),
            Fault::NoAttentionScale => ("no-attention-scale", None),
            Fault::AttentionScale => ("attention-scale", None),
            Fault::BiasMissing(w) => ("bias-missing", Some(w.clone())),
            Fault::BiasesMissing => ("bias-missing", Some("all".into())),
            Fault::KeyValueSwapped => ("key-value-swapped", None),
            Fault::ValueTransposed => ("value-transposed", None),
            Fault::GateUpSwapped { dense: true, experts: true } => ("gate-up-swapped", None),
            Fault::GateUpSwapped { dense, .. } => {
                ("gate-up-swapped", Some(if *dense { "dense" } else { "experts" }.into()))
            }
            Fault::RouterUnscaled => ("router-unscaled", None),
            Fault::ExpertsOnDenseNorm => ("experts-on-dense-norm", None),
            Fault::Activation => ("activation", None),
            Fault::RouterOnNormed => ("router-on-normed-stream", None),
            Fault::RouterOnStream => ("router-on-raw-stream", None),
            Fault::RouterSum => ("router-normalization", None),
            Fault::RouterScore => ("router-score", None),
            Fault::RouterBias => ("router-bias", None),
            Fault::RouterGroups => ("router-groups", None),
            Fault::ExpertScale => ("expert-scale", None),
            Fault::EmbeddingScale => ("embedding-scale", None),
            Fault::NoSoftcap => ("no-softcap", None),
            Fault::LayerScalarSwapped => ("layer-scalar-swapped", None),
            Fault::NoLayerScalar => ("no-layer-scalar", None),
            Fault::NoSelfConditioning => ("no-self-conditioning", None),
            Fault::Noise { seed, .. } => ("noise", Some(seed.to_string())),
            Fault::LogitsShifted(1) => ("logits-shifted-left", None),
            Fault::LogitsShifted(_) => ("logits-shifted-right", None),
            Fault::LastLayerNormed => ("last-layer-normed", None),
        };
        of.map_or(name.to_string(), |of| format!("{name}:{of}"))
    }

    /// All that a model of this file could be built with.
    pub(super) fn all(model: &Model) -> Vec<Fault> {
        let mut all = vec![
            Fault::LogitsShifted(1),
            Fault::LogitsShifted(-1),
            Fault::LastLayerNormed,
            Fault::CausalMask,
            Fault::FullMask,
            Fault::NoWindow,
            Fault::WindowPlusOne,
            Fault::PositionsRestart,
            Fault::RopeStyle,
            Fault::NoRope,
            Fault::HeadNormsMissing,
            Fault::PlainNormMissing { heads: true },
            Fault::PlainNormMissing { heads: false },
            Fault::NormPlusOne,
            Fault::NormEpsilon(1e-12),
            Fault::NormEpsilon(1e-6),
            Fault::NormEpsilon(1e-5),
            Fault::BiasesMissing,
            Fault::NoAttentionScale,
            Fault::AttentionScale,
            Fault::KeyValueSwapped,
            Fault::ValueTransposed,
            Fault::GateUpSwapped { dense: true, experts: true },
            Fault::GateUpSwapped { dense: true, experts: false },
            Fault::GateUpSwapped { dense: false, experts: true },
            Fault::RouterUnscaled,
            Fault::ExpertsOnDenseNorm,
            Fault::Activation,
            Fault::RouterOnNormed,
            Fault::RouterOnStream,
            Fault::RouterSum,
            Fault::RouterScore,
            Fault::RouterBias,
            Fault::RouterGroups,
            Fault::ExpertScale,
            Fault::EmbeddingScale,
            Fault::NoSoftcap,
            Fault::LayerScalarSwapped,
            Fault::NoLayerScalar,
            Fault::NoSelfConditioning,
        ];
        for base in BASES {
            let fault = Fault::RopeBase(base);
            all.extend(fault.edited(model.gguf().metadata()).is_some().then_some(fault));
        }
        let mut kinds: Vec<&str> = model.weights.iter().map(|w| kind(&w.name)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for name in kinds {
            if name.ends_with(".bias") && !name.starts_with("exp_probs") {
                all.push(Fault::BiasMissing(name.into()));
            } else if name.contains("norm") || name.ends_with("ffn_gate_inp.scale") {
                all.push(Fault::NormMissing(name.into()));
                all.push(Fault::NormTwice(name.into()));
                all.push(Fault::NormUnweighted(name.into()));
            }
        }
        all
    }

    /// Whether it can be in passes of one kind alone: those of weights and metadata are everywhere.
    fn is_of_a_pass(&self) -> bool {
        !matches!(
            self,
            Fault::RopeBase(_)
                | Fault::KeyValueSwapped
                | Fault::ValueTransposed
                | Fault::LogitsShifted(_)
                | Fault::LastLayerNormed
                | Fault::NoSoftcap
                | Fault::NoSelfConditioning
        )
    }

    /// Metadata that say what the fault would have made of them, for those that are a number of the file.
    fn edited(&self, metadata: &Metadata) -> Option<Metadata> {
        let Fault::RopeBase(base) = self else { return None };
        let keys: Vec<String> = metadata
            .iter()
            .filter(|(key, value)| {
                key.contains(".rope.freq_base") && matches!(value, Value::F32(x) if f64::from(*x) != *base)
            })
            .map(|(key, _)| key.to_string())
            .collect();
        let mut out = metadata.clone();
        keys.iter().for_each(|key| out.set(key.clone(), *base as f32));
        (!keys.is_empty()).then_some(out)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::CausalMask => f.write_str("a causal mask where positions should see each other both ways"),
            Fault::FullMask => f.write_str("a full mask where positions should not see what follows"),
            Fault::NoWindow => f.write_str("no sliding window"),
            Fault::WindowPlusOne => f.write_str("sliding windows are one key too wide"),
            Fault::PositionsRestart => f.write_str("positions are counted from 0 in each pass"),
            Fault::Noise { bits, .. } => write!(f, "the noise of another program, 2^-{bits} of each norm's weight"),
            Fault::RopeStyle => f.write_str(
                "the other style of RoPE (neighbouring channels instead of halves, or the reverse)",
            ),
            Fault::NoRope => f.write_str("no RoPE"),
            Fault::RopeBase(base) => write!(f, "a RoPE base of {base}"),
            Fault::NormMissing(name) => write!(f, "the norm {name} is missing"),
            Fault::NormTwice(name) => write!(f, "the norm {name} is applied twice"),
            Fault::NormUnweighted(name) => write!(f, "the weight of the norm {name} is ignored"),
            Fault::HeadNormsMissing => f.write_str("the norms of query and key heads are missing"),
            Fault::PlainNormMissing { heads: true } => {
                f.write_str("the norm of heads that has no weight is missing")
            }
            Fault::PlainNormMissing { heads: false } => f.write_str("the norm that has no weight is missing"),
            Fault::NormEpsilon(eps) => write!(f, "an epsilon of {eps:e} in norms"),
            Fault::NormPlusOne => f.write_str("norms multiply by 1 + weight instead of the weight"),
            Fault::NoAttentionScale => f.write_str("attention scores are not scaled"),
            Fault::AttentionScale => f.write_str(
                "attention scores are divided by the root of the head size, which this model does not do",
            ),
            Fault::BiasMissing(name) => write!(f, "the bias {name} is missing"),
            Fault::BiasesMissing => f.write_str("the biases of the projections are missing"),
            Fault::KeyValueSwapped => f.write_str("key and value projections are exchanged"),
            Fault::ValueTransposed => {
                f.write_str("the channels of the values are transposed (heads and channels)")
            }
            Fault::GateUpSwapped { dense, experts } => f.write_str(match (dense, experts) {
                (true, false) => "gate and up projections of the dense blocks are exchanged",
                (false, true) => "gate and up projections of the experts are exchanged",
                _ => "gate and up projections are exchanged",
            }),
            Fault::RouterUnscaled => {
                f.write_str("what the router reads is not divided by the root of the width")
            }
            Fault::ExpertsOnDenseNorm => f.write_str("the experts read the norm of the dense block"),
            Fault::Activation => f.write_str("the wrong activation (SiLU or GELU)"),
            Fault::RouterOnNormed => {
                f.write_str("the router reads the normed input of the experts instead of the residual stream")
            }
            Fault::RouterOnStream => f.write_str("the router reads the residual stream before its norm"),
            Fault::RouterSum => {
                f.write_str("the weights of the chosen experts are (not) divided by their sum")
            }
            Fault::RouterScore => f.write_str("soft-max and sigmoid of the router are mixed up"),
            Fault::RouterBias => f.write_str("the bias of the router's choice is missing"),
            Fault::RouterGroups => f.write_str("the router ignores the groups of experts"),
            Fault::ExpertScale => f.write_str("the factors of the experts are missing"),
            Fault::EmbeddingScale => f.write_str("embeddings are not multiplied by the root of the width"),
            Fault::NoSoftcap => f.write_str("logits are not soft-capped"),
            Fault::LayerScalarSwapped => f.write_str(
                "the layer scalar of the other kind of pass is used (the encoder's for the canvas, or the reverse)",
            ),
            Fault::NoLayerScalar => f.write_str("the scalar of the layer outputs is missing"),
            Fault::NoSelfConditioning => f.write_str("the previous prediction is not fed back"),
            Fault::LogitsShifted(1) => f.write_str("logits are shifted by one position: row i is row i + 1"),
            Fault::LogitsShifted(_) => f.write_str("logits are shifted by one position: row i is row i - 1"),
            Fault::LastLayerNormed => f.write_str(
                "the output of the last layer is compared after the final norm (as transformers gives it)",
            ),
        }
    }
}

/// Bases that models have.
const BASES: [f64; 6] = [10_000.0, 50_000.0, 500_000.0, 600_000.0, 1_000_000.0, 8_000_000.0];

/// A weight's name without its layer and without the ending of a part.
fn kind(name: &str) -> &str {
    let name = name.split('[').next().unwrap_or(name);
    match name.strip_prefix("blk.").and_then(|n| n.split_once('.')) {
        Some((layer, rest)) if layer.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => name,
    }
}

/// A kind of pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Over what comes before a canvas.
    Prompt,
    /// Over a canvas.
    Canvas,
}

/// A mistake, in all passes or in those of a kind, which programs often have separate code for.
#[derive(Debug, Clone, PartialEq)]
pub struct Mistake {
    /// What is wrong.
    pub fault: Fault,
    /// Where, if not everywhere.
    pub only: Option<Pass>,
}

impl Mistake {
    /// In JSON: without spaces.
    pub fn name(&self) -> String {
        let pass = match self.only {
            None => "",
            Some(Pass::Prompt) => "prompt/",
            Some(Pass::Canvas) => "canvas/",
        };
        format!("{pass}{}", self.fault.name())
    }

    /// The faults everywhere, then, where a model reads its prompt apart, in passes of one kind.
    pub(super) fn all(model: &Model) -> Vec<Mistake> {
        let faults = Fault::all(model);
        let kinds: &[Option<Pass>] = match model.shape().reading {
            Reading::Cached => &[None, Some(Pass::Canvas), Some(Pass::Prompt)],
            Reading::Blocks | Reading::Whole => &[None],
        };
        let of = |&only: &Option<Pass>| {
            let here = faults.iter().filter(move |f| only.is_none() || f.is_of_a_pass());
            here.map(move |fault| Mistake { fault: fault.clone(), only })
        };
        kinds.iter().flat_map(of).collect()
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(f)?;
        match self.only {
            None => Ok(()),
            Some(Pass::Prompt) => f.write_str(", in passes over the prompt"),
            Some(Pass::Canvas) => f.write_str(", in passes over a canvas"),
        }
    }
}

/// A fault in the programs of a model.
#[derive(Debug)]
pub(crate) struct Applied {
    mistake: Mistake,
    /// Weights that take each other's place.
    instead: Vec<(WeightId, WeightId)>,
    changed: AtomicBool,
}

impl Applied {
    /// Opens the model with a fault.
    ///
    /// # Errors
    /// Those of [`Model::from_gguf`].
    pub(super) fn open(
        gguf: &Gguf,
        options: &LoadOptions,
        mistake: &Mistake,
    ) -> Result<(Model, Arc<Applied>), Error> {
        let fault = &mistake.fault;
        let edited = fault.edited(gguf.metadata());
        let changed = AtomicBool::new(edited.is_some());
        let gguf = edited.map_or_else(|| gguf.clone(), |metadata| gguf.with_metadata(metadata));
        let mut instead = Vec::new();
        let mut model = Model::with_weights(gguf.clone(), options, &mut |table| {
            instead = exchanged(fault, table, gguf.metadata())?;
            Ok(())
        })?;
        let applied = Arc::new(Applied { mistake: mistake.clone(), instead, changed });
        model.mistake = Some(Arc::clone(&applied));
        Ok((model, applied))
    }

    /// Whether anything was different in the passes so far.
    pub(super) fn changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// Puts a pass together as it is with the mistake; nothing where it is right.
    pub(crate) fn of_pass(self: &Arc<Applied>, pass: Pass) -> Option<Arc<dyn Rewrite>> {
        let wrong = self.mistake.only.is_none_or(|only| only == pass);
        wrong.then(|| Arc::clone(self) as Arc<dyn Rewrite>)
    }

    /// The position at which a pass after so many begins.
    pub(crate) fn first_position(&self, pass: Pass, n_past: usize) -> usize {
        let wrong = self.mistake.only.is_none_or(|only| only == pass);
        if n_past == 0 || self.mistake.fault != Fault::PositionsRestart || !wrong {
            return n_past;
        }
        self.changed.store(true, Ordering::Relaxed);
        0
    }

    /// Whether the weight `id` is of this kind.
    fn is(b: &ProgramBuilder, id: Option<WeightId>, wanted: &str) -> bool {
        id.and_then(|id| b.weights().get(id).ok()).is_some_and(|w| kind(&w.name) == wanted)
    }

    /// Whether the weight `id` is that of a norm, by its name; a router's scale is applied like one.
    fn is_norm(b: &ProgramBuilder, id: Option<WeightId>) -> bool {
        id.and_then(|id| b.weights().get(id).ok()).is_some_and(|w| kind(&w.name).contains("norm"))
    }

    /// The weight in whose place another one stands.
    fn weight(&self, id: WeightId) -> WeightId {
        self.instead.iter().find(|(from, _)| *from == id).map_or(id, |(_, to)| *to)
    }

    /// What `op` becomes, where it stays one op; `None` where it is left alone or becomes several.
    fn op(&self, b: &ProgramBuilder, op: &Op) -> Option<Op> {
        let mut op = op.clone();
        let before = op.clone();
        match (&self.mistake.fault, &mut op) {
            (Fault::CausalMask, Op::Attention(o)) if !matches!(o.mask, Mask::Causal { .. }) => {
                o.mask = Mask::Causal { window: None };
            }
            (Fault::WindowPlusOne, Op::Attention(o)) => match &mut o.mask {
                Mask::Causal { window: Some(w) } | Mask::Canvas { prefix: Some(w) } => *w += 1,
                _ => {}
            },
            (Fault::FullMask, Op::Attention(o)) if !matches!(o.mask, Mask::Canvas { .. }) => {
                o.mask = Mask::Canvas { prefix: None };
            }
            (Fault::NoWindow, Op::Attention(o)) => match &mut o.mask {
                Mask::Causal { window: w } | Mask::Canvas { prefix: w } => *w = None,
                Mask::Blocks { .. } => {}
            },
            (Fault::RopeStyle, Op::Rope(o)) => {
                o.style = match o.style {
                    RopeStyle::Neox => RopeStyle::Interleaved,
                    RopeStyle::Interleaved => RopeStyle::Neox,
                };
            }
            (Fault::NoRope, Op::Rope(o)) => return Some(copy(o.x, o.out)),
            (Fault::NormMissing(name), Op::RmsNorm(o)) if Self::is(b, o.weight, name) => {
                return Some(copy(o.x, o.out));
            }
            (Fault::NormUnweighted(name), Op::RmsNorm(o)) if Self::is(b, o.weight, name) => o.weight = None,
            (Fault::HeadNormsMissing, Op::RmsNorm(o))
                if ["attn_q_norm.weight", "attn_k_norm.weight"].iter().any(|n| Self::is(b, o.weight, n)) =>
            {
                return Some(copy(o.x, o.out));
            }
            (Fault::PlainNormMissing { heads }, Op::RmsNorm(o))
                if o.weight.is_none() && (o.group < o.x.cols()) == *heads =>
            {
                return Some(copy(o.x, o.out));
            }
            (Fault::NormEpsilon(eps), Op::RmsNorm(o)) => o.eps = *eps,
            (Fault::Noise { .. }, Op::RmsNorm(o)) => o.weight = o.weight.map(|w| self.weight(w)),
            (Fault::BiasesMissing, Op::MatMul(o)) => o.bias = None,
            (Fault::NoAttentionScale, Op::Attention(o)) => o.scale = 1.0,
            (Fault::AttentionScale, Op::Attention(o)) if o.scale == 1.0 => {
                o.scale = (o.head_dim as f64).sqrt().recip();
            }
            (Fault::BiasMissing(name), Op::MatMul(o)) if Self::is(b, o.bias, name) => o.bias = None,
            (Fault::KeyValueSwapped | Fault::ValueTransposed, Op::MatMul(o)) => {
                o.w = self.weight(o.w);
                o.bias = o.bias.map(|bias| self.weight(bias));
            }
            (Fault::GateUpSwapped { dense: true, .. }, Op::Glu(o)) => std::mem::swap(&mut o.gate, &mut o.up),
            (Fault::GateUpSwapped { experts: true, .. }, Op::MoeExperts(o)) => match &mut o.gate_up {
                GateUp::Split { gate, up } => std::mem::swap(gate, up),
                GateUp::Fused(w) => *w = self.weight(*w),
            },
            (Fault::RouterUnscaled, Op::Scale(o)) => {
                let of_router = |op: &Op| matches!(op, Op::RmsNorm(n) if n.out == o.x && Self::is(b, n.weight, "ffn_gate_inp.scale"));
                if b.ops().iter().any(of_router) {
                    o.by = Factor::Const(1.0);
                }
            }
            (Fault::ExpertsOnDenseNorm, Op::MoeExperts(o)) => {
                let dense = b.ops().iter().rev().find_map(|op| match op {
                    Op::RmsNorm(n) if Self::is(b, n.weight, "ffn_norm.weight") => Some(n.out),
                    _ => None,
                });
                o.x = dense.unwrap_or(o.x);
            }
            (Fault::Activation, Op::Glu(o)) => o.act = other(o.act),
            (Fault::Activation, Op::MoeExperts(o)) => o.act = other(o.act),
            (Fault::RouterOnNormed, Op::RmsNorm(o)) if Self::is(b, o.weight, "ffn_gate_inp.scale") => {
                // The norm of the experts comes right before it and reads the same.
                let normed = b.ops().iter().rev().find_map(|op| match op {
                    Op::RmsNorm(n) if n.x == o.x => Some(n.out),
                    _ => None,
                });
                o.x = normed.unwrap_or(o.x);
            }
            (Fault::RouterOnStream, Op::MatMul(o)) if Self::is(b, Some(o.w), "ffn_gate_inp.weight") => {
                let stream = b.ops().iter().rev().find_map(|op| match op {
                    Op::RmsNorm(n) if n.out == o.x => Some(n.x),
                    _ => None,
                });
                o.x = stream.unwrap_or(o.x);
            }
            (Fault::RouterSum, Op::MoeRoute(o)) => o.routing.renormalize = !o.routing.renormalize,
            (Fault::RouterScore, Op::MoeRoute(o)) => {
                o.routing.score = match o.routing.score {
                    RouterScore::Softmax => RouterScore::Sigmoid,
                    RouterScore::Sigmoid => RouterScore::Softmax,
                };
            }
            (Fault::RouterBias, Op::MoeRoute(o)) => o.routing.bias = None,
            (Fault::RouterGroups, Op::MoeRoute(o)) => o.routing.groups = None,
            (Fault::ExpertScale, Op::MoeRoute(o)) => o.routing.expert_scale = None,
            (Fault::ExpertScale, Op::Scale(o)) => {
                let routed = |op: &Op| matches!(op, Op::MoeRoute(r) if r.weights == o.x);
                if b.ops().iter().any(routed) {
                    o.by = Factor::Const(1.0);
                }
            }
            (Fault::EmbeddingScale, Op::Embed(o)) => o.scale = 1.0,
            (Fault::NoSoftcap, Op::Softcap(o)) => return Some(copy(o.x, o.out)),
            (Fault::NoSoftcap, Op::TokenStats(o)) => {
                if let Some(head) = &mut o.logits.head {
                    head.softcap = None;
                }
            }
            (Fault::LayerScalarSwapped, Op::Scale(o)) => {
                if let Factor::Scalar(w) = &mut o.by {
                    *w = self.weight(*w);
                }
            }
            (Fault::NoLayerScalar, Op::Scale(o)) if matches!(o.by, Factor::Scalar(_)) => {
                o.by = Factor::Const(1.0);
            }
            (Fault::NoSelfConditioning, Op::Add(o)) => {
                let down = |op: &Op| matches!(op, Op::MatMul(m) if m.out == o.b && Self::is(b, Some(m.w), "self_cond_down.weight"));
                if b.ops().iter().any(down) {
                    return Some(copy(o.a, o.out));
                }
            }
            _ => {}
        }
        (op != before).then_some(op)
    }
}

/// `out = x`.
fn copy(x: Val, out: Val) -> Op {
    Scale { x, by: Factor::Const(1.0), out }.into()
}

fn other(act: Activation) -> Activation {
    match act {
        Activation::GeluTanh => Activation::Silu,
        Activation::Silu => Activation::GeluTanh,
    }
}

impl Rewrite for Applied {
    fn append(&self, b: &mut ProgramBuilder, op: Op) -> Result<(), ComputeError> {
        if let Some(op) = self.op(b, &op) {
            self.changed.store(true, Ordering::Relaxed);
            return b.append(op);
        }
        match (&self.mistake.fault, &op) {
            (Fault::NormTwice(name), Op::RmsNorm(o)) if Self::is(b, o.weight, name) => {
                self.changed.store(true, Ordering::Relaxed);
                let x = b.rms_norm(o.x, o.weight, o.eps, o.group)?;
                b.append(RmsNorm { x, ..o.clone() })
            }
            (Fault::NormPlusOne, Op::RmsNorm(o)) if Self::is_norm(b, o.weight) => {
                self.changed.store(true, Ordering::Relaxed);
                let plain = b.rms_norm(o.x, None, o.eps, o.group)?;
                let weighted = b.rms_norm(o.x, o.weight, o.eps, o.group)?;
                b.append(Add { a: plain, b: weighted, first: 0, out: o.out })
            }
            _ => b.append(op),
        }
    }
}
