//! The ops: one plain struct each, with named fields and a shape check.
//!
//! `T` is the number of rows (positions of the pass), `n` the model width, `V` the vocabulary. Weights are
//! `[rows = output features, cols = input features]`. The definition of each op's arithmetic is the function
//! of the same name in [`reference`](crate::reference).

pub use crate::segment::{Mask, Segment, Segments};
use crate::{Numerics, Val, WeightId};

/// Rows of an embedding table, times a constant: `out[t] = table[ids[t]] * scale`.
#[derive(Debug, Clone, PartialEq)]
pub struct Embed {
    /// Token ids `[T, 1]`, Int.
    pub ids: Val,
    /// Table `[V, n]`.
    pub table: WeightId,
    /// Host scalar, rounded once to the backend's number type.
    pub scale: f64,
    /// `[T, n]`.
    pub out: Val,
}

/// Soft embedding of a distribution: `out[t] = (sum_v p[t, v] * table[v]) * scale`, `v` ascending over the ids that
/// take part ([`Numerics::probability_cut`]).
#[derive(Debug, Clone, PartialEq)]
pub struct SoftEmbed {
    /// The distributions of `T` rows.
    pub of: Distribution,
    /// Table `[V, n]`.
    pub table: WeightId,
    /// Host scalar.
    pub scale: f64,
    /// `[T, n]`.
    pub out: Val,
}

/// `out = x · wᵀ (+ bias)`, sequential over the input features (in `fast` over their units).
#[derive(Debug, Clone, PartialEq)]
pub struct MatMul {
    /// `[T, cols of w]`.
    pub x: Val,
    /// `[rows, cols]`.
    pub w: WeightId,
    /// `[1, rows]`, added after the sum.
    pub bias: Option<WeightId>,
    /// How the product is computed.
    pub numerics: Numerics,
    /// `[T, rows of w]`.
    pub out: Val,
}

/// Root-mean-square norm over groups of `group` neighbouring columns (a whole row, or one head):
/// `out = x * rsqrt(mean(x²) + eps) * weight`. The weight is used as stored (not `1 + w`).
#[derive(Debug, Clone, PartialEq)]
pub struct RmsNorm {
    /// `[T, cols]`, `cols` a multiple of `group`.
    pub x: Val,
    /// `[1, group]`, or none for the weightless norm.
    pub weight: Option<WeightId>,
    /// Added to the mean of squares.
    pub eps: f32,
    /// Number of columns that share one mean.
    pub group: usize,
    /// `[T, cols]`.
    pub out: Val,
}

/// The factor of a [`Scale`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Factor {
    /// A host scalar, rounded once.
    Const(f64),
    /// A weight with one element.
    Scalar(WeightId),
}

/// `out = x * by`.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// `[T, cols]`.
    pub x: Val,
    /// The factor.
    pub by: Factor,
    /// `[T, cols]`.
    pub out: Val,
}

/// `out = a + b` in the rows that `b` has, and `a` in the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Add {
    /// `[T, cols]`.
    pub a: Val,
    /// `[R, cols]`, `R` at most `T`.
    pub b: Val,
    /// The row of `a` that the first row of `b` is added to.
    pub first: usize,
    /// `[T, cols]`.
    pub out: Val,
}

/// The activation of a gated feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))`.
    GeluTanh,
    /// `x / (1 + exp(-x))`.
    Silu,
}

/// `out = act(gate) * up`.
#[derive(Debug, Clone, PartialEq)]
pub struct Glu {
    /// `[T, f]`.
    pub gate: Val,
    /// `[T, f]`.
    pub up: Val,
    /// The activation.
    pub act: Activation,
    /// `[T, f]`.
    pub out: Val,
}

/// Which channels of a head form the rotated pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Channels `(i, i + n_rot / 2)`.
    Neox,
    /// Channels `(2 i, 2 i + 1)`.
    Interleaved,
}

/// Rotary position embedding of the first `n_rot` channels of each head; the others are copied.
///
/// The angles are an input, computed once on the host in f64 (`math::rope_table`).
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// `[T, heads * head_dim]`.
    pub x: Val,
    /// `[T, n_rot]`: `n_rot / 2` cosines, then `n_rot / 2` sines.
    pub table: Val,
    /// Channels of a head.
    pub head_dim: usize,
    /// Rotated channels, even, at most `head_dim`.
    pub n_rot: usize,
    /// Pairing.
    pub style: RopeStyle,
    /// `[T, heads * head_dim]`.
    pub out: Val,
}

/// In what flash attention over keys and values in f16 adds up the values. Other programs compute so; here it tells how far
/// they are from the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flash {
    /// f32, and queries in f32.
    F32,
    /// f16, and queries in f16: what llama.cpp does on a CPU for passes of fewer than 64 tokens, and did for all before.
    F16,
}

/// Attention over `[cache | new]`, two passes, no online soft-max; grouped queries share a KV head.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// `[T, n_heads * head_dim]`, after norm and RoPE.
    pub q: Val,
    /// `[T, n_kv_heads * head_dim]`.
    pub k: Val,
    /// `[T, n_kv_heads * head_dim]`.
    pub v: Val,
    /// Layer of the KV cache whose keys come before `k`; none for a pass without a cache.
    pub cache_layer: Option<usize>,
    /// The sequences, each of which sees itself alone.
    pub segments: Segments,
    /// Query heads, a multiple of `n_kv_heads`.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f64,
    /// Visible keys.
    pub mask: Mask,
    /// Rounded as flash attention over keys and values in f16, which a pass without a cache makes for itself.
    pub flash: Option<Flash>,
    /// `[T, n_heads * head_dim]`.
    pub out: Val,
}

/// Appends keys and values of this pass to a layer of the KV caches of its sequences.
#[derive(Debug, Clone, PartialEq)]
pub struct KvAppend {
    /// Layer of the cache.
    pub layer: usize,
    /// The sequences.
    pub segments: Segments,
    /// `[T, n_kv_heads * head_dim]`.
    pub k: Val,
    /// `[T, n_kv_heads * head_dim]`.
    pub v: Val,
}

/// What a router makes of its logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterScore {
    /// Probabilities by soft-max over all experts.
    Softmax,
    /// A probability of each expert by itself, `1 / (1 + exp(-x))`.
    Sigmoid,
}

/// What is added to the sum of chosen sigmoids, which may all be zero (DeepSeek-V3's code, and those that follow it).
pub(crate) const SIGMOID_SUM: f64 = 1e-20;

/// Groups of experts: `E / n` neighbours each. A token uses experts of the `used` best groups only, where a group is as
/// good as the sum of its two best experts (DeepSeek-V3, section 2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Groups, a divisor of the number of experts.
    pub n: usize,
    /// Groups that a token uses.
    pub used: usize,
}

/// Blocks of tokens whose experts are limited together: `len` neighbours each, counted from the first position of the
/// sequence, the last one as long as it is. An expert is worth to a block the most that it is worth to one of its
/// tokens; all tokens of the block choose among the `capacity` best (LLaDA2.2, as SGLang and FluxServe have it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutingBlock {
    /// Tokens of a block.
    pub len: usize,
    /// Experts that a block can use.
    pub capacity: usize,
}

/// How a router chooses the experts of a token, and how it weighs them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    /// Experts a token uses.
    pub top_k: usize,
    /// How probabilities come from logits.
    pub score: RouterScore,
    /// `[1, E]`: added to the probabilities for the choice; the weights do not have it.
    pub bias: Option<WeightId>,
    /// Groups, where not all experts compete with each other.
    pub groups: Option<ExpertGroups>,
    /// Blocks of tokens, where these choose together; not beside groups.
    pub block: Option<RoutingBlock>,
    /// Divide the chosen probabilities by their sum.
    pub renormalize: bool,
    /// `[1, E]`: factor per expert, applied after the renormalisation.
    pub expert_scale: Option<WeightId>,
}

impl Routing {
    /// The `top_k` most probable of all experts by soft-max, without factors.
    pub fn softmax(top_k: usize, renormalize: bool) -> Routing {
        Routing {
            top_k,
            score: RouterScore::Softmax,
            bias: None,
            groups: None,
            block: None,
            renormalize,
            expert_scale: None,
        }
    }
}

/// Router of a mixture of experts: probabilities, the `top_k` largest (ties to the lower id, best first), and these
/// probabilities as weights.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeRoute {
    /// `[T, E]`.
    pub logits: Val,
    /// The sequences, from whose starts blocks of tokens are counted: where these choose together, what is cached of each
    /// is whole blocks, since all tokens of a block have to be there.
    pub segments: Segments,
    /// How experts are chosen and weighed.
    pub routing: Routing,
    /// `[T, E]`: probabilities.
    pub probs: Val,
    /// `[T, top_k]`, Int: expert ids, best first.
    pub ids: Val,
    /// `[T, top_k]`: weights.
    pub weights: Val,
}

/// Gate and up projections of the experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateUp {
    /// One stack `[E, 2 x, n]`: rows `0..x` gate, `x..2 x` up.
    Fused(WeightId),
    /// Two stacks `[E, x, n]`.
    Split {
        /// Gate.
        gate: WeightId,
        /// Up.
        up: WeightId,
    },
}

/// The routed experts: `out[t] = sum_slot weights[t, slot] * down_e(act(gate_e x[t]) * up_e x[t])` with
/// `e = ids[t, slot]`, slots in order.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeExperts {
    /// `[T, n]`.
    pub x: Val,
    /// `[T, top_k]`, Int.
    pub ids: Val,
    /// `[T, top_k]`.
    pub weights: Val,
    /// Gate and up.
    pub gate_up: GateUp,
    /// `[E, n, x]`.
    pub down: WeightId,
    /// The activation.
    pub act: Activation,
    /// How the three products are computed.
    pub numerics: Numerics,
    /// `[T, n]`.
    pub out: Val,
}

/// `out = cap * tanh(x / cap)`, computed as `cap * tanh(x * (1 / cap))`.
#[derive(Debug, Clone, PartialEq)]
pub struct Softcap {
    /// `[T, V]`.
    pub x: Val,
    /// The cap.
    pub cap: f64,
    /// `[T, V]`.
    pub out: Val,
}

/// Ids that form one tile of the vocabulary.
pub const TILE: usize = 1024;

/// Columns of [`TokenStats::stats`].
pub const STATS: usize = 4;

/// How a model turns final hidden states into raw logits: `softcap(x · wᵀ)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Head {
    /// `[V, n]`.
    pub w: WeightId,
    /// The cap `c` of `c * tanh(x / c)`, where the model has one.
    pub softcap: Option<f64>,
}

/// Logits `[T, V]` that an op reads tile by tile. With a head they are computed tile by tile, too, and never exist as a
/// whole; the bits are those of [`MatMul`] and [`Softcap`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Logits {
    /// With a head the final hidden states `[T, n]`, without one the raw logits `[T, V]`.
    pub x: Val,
    /// The head.
    pub head: Option<Head>,
    /// Factor on the raw logits (the reciprocal of a temperature), a host scalar.
    pub scale: f64,
    /// How the head's product is computed, and which ids take part in a [`SoftEmbed`].
    pub numerics: Numerics,
}

impl Logits {
    /// Tiles of a vocabulary of `vocab` ids.
    pub fn tiles(vocab: usize) -> usize {
        vocab.div_ceil(TILE)
    }
}

/// Logits and what [`TokenStats`] found out about them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distribution {
    /// The logits.
    pub logits: Logits,
    /// [`TokenStats::stats`].
    pub stats: Val,
    /// [`TokenStats::tiles`].
    pub tiles: Val,
}

/// Statistics of each row of logits, in one pass over the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenStats {
    /// The logits.
    pub logits: Logits,
    /// `[T, 4]`: maximum `m`, log-sum-exp, entropy in nats, sum of `exp(x - m)`.
    pub stats: Val,
    /// `[T, 2 * tiles]`: for each tile its maximum, then for each its share of the sum of `exp(x - m)`.
    pub tiles: Val,
    /// `[T, 1]`, Int: the lowest id with the maximum.
    pub argmax: Val,
}

/// Samples one id per row by inverse CDF.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenSample {
    /// The distributions of `T` rows.
    pub of: Distribution,
    /// `[T, 1]`: numbers in (0, 1).
    pub u: Val,
    /// `[T, 1]`, Int.
    pub out: Val,
}

/// Rows of a matrix, in any order: `out[i] = x[rows[i]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct TakeRows {
    /// `[T, cols]`.
    pub x: Val,
    /// `R` indices below `T`.
    pub rows: Vec<u32>,
    /// `[R, cols]`.
    pub out: Val,
}

/// The logit of an id that cannot be: its probability is zero, and it is finite.
pub const RESTRICTED: f64 = -1e30;

/// Logits of which some ids are taken out, whose logit becomes [`RESTRICTED`]: banned ones; then all but the `top_k`
/// largest; then all but the most likely ones that have the probability `top_p` together.
#[derive(Debug, Clone, PartialEq)]
pub struct Restrict {
    /// `[T, V]`, already divided by the temperature.
    pub logits: Val,
    /// Ids that must not be, fewer than the vocabulary has.
    pub ban: Vec<u32>,
    /// Ids that stay; 0 keeps all.
    pub top_k: usize,
    /// Probability that stays, above 0; 1 keeps all.
    pub top_p: f64,
    /// `[T, V]`.
    pub out: Val,
}

/// What is added to logits and taken off them, and of which ids.
#[derive(Debug, Clone, PartialEq)]
pub struct Penalty {
    /// Ids in ascending order, and what is added to their logits before all else.
    pub bias: Vec<(u32, f64)>,
    /// Ids that were seen, ascending.
    pub seen: Vec<u32>,
    /// For each row the id of `seen` that does not count as seen there, if there is one.
    pub except: Vec<Option<u32>>,
    /// The logit of an id that was seen is divided by it, or multiplied where it is below 0; 1 changes nothing.
    pub repetition: f64,
    /// What is then subtracted from it.
    pub presence: f64,
    /// Ids that must not be, ascending, fewer than the vocabulary has: their logit becomes [`RESTRICTED`].
    pub ban: Vec<u32>,
    /// Further ids that must not be in some rows; in each row fewer are banned than the vocabulary has.
    pub row_bans: Vec<RowBan>,
}

/// Ids that must not be in some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowBan {
    /// The ids, ascending.
    pub ids: Vec<u32>,
    /// The rows, `T` flags.
    pub rows: Vec<bool>,
}

/// Logits that are lower where ids were seen or must not be.
#[derive(Debug, Clone, PartialEq)]
pub struct Penalize {
    /// `[T, V]`.
    pub logits: Val,
    /// By what.
    pub by: Penalty,
    /// `[T, V]`.
    pub out: Val,
}

/// What a sampler may want to know besides [`TokenStats`].
#[derive(Debug, Clone, PartialEq)]
pub struct PickStats {
    /// `[T, V]`, those that the picks were made from or others.
    pub logits: Val,
    /// `[T, 1]`, Int: [`TokenStats::argmax`].
    pub argmax: Val,
    /// `[T, 1]`, Int: [`TokenSample::out`].
    pub sample: Val,
    /// `[T, 3]`: the logit of the argmax, the largest logit of any other id, and the logit of the sample.
    pub out: Val,
}

macro_rules! ops {
    ($($name:ident: [$($out:ident),*]),* $(,)?) => {
        /// One op of a program.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($name), "`](struct@", stringify!($name), ").")] $name($name),)*
        }

        impl Op {
            /// Name of the op.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$name(_) => stringify!($name),)* }
            }

            /// The values that the op writes; the first is the main result.
            pub fn outputs(&self) -> Vec<Val> {
                match self { $(Op::$name(_o) => vec![$(_o.$out),*],)* }
            }
        }

        $(impl From<$name> for Op {
            fn from(o: $name) -> Op { Op::$name(o) }
        })*
    };
}

ops! {
    Embed: [out],
    SoftEmbed: [out],
    MatMul: [out],
    RmsNorm: [out],
    Scale: [out],
    Add: [out],
    Glu: [out],
    Rope: [out],
    Attention: [out],
    KvAppend: [],
    MoeRoute: [weights, ids, probs],
    MoeExperts: [out],
    Softcap: [out],
    TokenStats: [stats, tiles, argmax],
    TokenSample: [out],
    TakeRows: [out],
    Penalize: [out],
    Restrict: [out],
    PickStats: [out],
}

impl Op {
    /// How the op computes its products with weights; `Exact` for ops that have none.
    pub fn numerics(&self) -> Numerics {
        match self {
            Op::MatMul(o) => o.numerics,
            Op::MoeExperts(o) => o.numerics,
            Op::TokenStats(o) => o.logits.numerics,
            Op::TokenSample(o) => o.of.logits.numerics,
            Op::SoftEmbed(o) => o.of.logits.numerics,
            _ => Numerics::Exact,
        }
    }

    /// The values that the op reads.
    pub fn inputs(&self) -> Vec<Val> {
        match self {
            Op::Embed(o) => vec![o.ids],
            Op::SoftEmbed(o) => vec![o.of.logits.x, o.of.stats, o.of.tiles],
            Op::MatMul(o) => vec![o.x],
            Op::RmsNorm(o) => vec![o.x],
            Op::Scale(o) => vec![o.x],
            Op::Add(o) => vec![o.a, o.b],
            Op::Glu(o) => vec![o.gate, o.up],
            Op::Rope(o) => vec![o.x, o.table],
            Op::Attention(o) => vec![o.q, o.k, o.v],
            Op::KvAppend(o) => vec![o.k, o.v],
            Op::MoeRoute(o) => vec![o.logits],
            Op::MoeExperts(o) => vec![o.x, o.ids, o.weights],
            Op::Softcap(o) => vec![o.x],
            Op::TokenStats(o) => vec![o.logits.x],
            Op::TokenSample(o) => vec![o.of.logits.x, o.of.stats, o.of.tiles, o.u],
            Op::TakeRows(o) => vec![o.x],
            Op::Penalize(o) => vec![o.logits],
            Op::Restrict(o) => vec![o.logits],
            Op::PickStats(o) => vec![o.logits, o.argmax, o.sample],
        }
    }

    /// The weights that the op reads.
    pub fn weights(&self) -> Vec<WeightId> {
        let head = |logits: &Logits| logits.head.map(|h| h.w).into_iter();
        match self {
            Op::Embed(o) => vec![o.table],
            Op::SoftEmbed(o) => head(&o.of.logits).chain([o.table]).collect(),
            Op::MatMul(o) => [Some(o.w), o.bias].into_iter().flatten().collect(),
            Op::RmsNorm(o) => o.weight.into_iter().collect(),
            Op::Scale(o) => match o.by {
                Factor::Scalar(w) => vec![w],
                Factor::Const(_) => vec![],
            },
            Op::MoeRoute(o) => o.routing.bias.into_iter().chain(o.routing.expert_scale).collect(),
            Op::MoeExperts(o) => match o.gate_up {
                GateUp::Fused(w) => vec![w, o.down],
                GateUp::Split { gate, up } => vec![gate, up, o.down],
            },
            Op::Add(_)
            | Op::Glu(_)
            | Op::Rope(_)
            | Op::Attention(_)
            | Op::KvAppend(_)
            | Op::Softcap(_)
            | Op::TakeRows(_)
            | Op::Penalize(_)
            | Op::Restrict(_)
            | Op::PickStats(_) => vec![],
            Op::TokenStats(o) => head(&o.logits).collect(),
            Op::TokenSample(o) => head(&o.of.logits).collect(),
        }
    }
}
