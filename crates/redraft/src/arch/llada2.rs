//! LLaDA2.0, 2.1 and 2.2: Ling 2 (Bailing MoE v2) that reads block by block. Experts are chosen by sigmoid with a bias, beside
//! one that all tokens use: within the best groups, in 2.2 within those that a block of tokens wants most. Fact sheet:
//! `docs/models/llada2.md`.

use std::fmt::Display;

use redraft_compute::op::{ExpertGroups, RopeStyle, RouterScore, Routing, RoutingBlock};
use redraft_gguf::Value;

use super::masked::{self, Canvas, Family};
use super::{ArchSpec, Hyper};
use crate::Error;
use crate::convert::{
    Config, Demand, Fixed, HfSpec, Key, Setting, Tensor, demand, key, missing, same, tables,
};
use crate::layers::ExpertsKind;
use crate::sampler::{DELETE_KEY, SPLIT_KEY, THRESHOLD, names_commands};

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "LLaDA2: Ling 2 with a block-causal mask, experts chosen in groups or by blocks",
    load: |gguf, w, notes| {
        // Half of a head rotates. The other programs take a missing key for a whole one, so nothing is assumed.
        Hyper::new(gguf.metadata(), FAMILY.name).size(ROTATED, 1 << 16)?;
        masked::load(&FAMILY, gguf, w, notes)
    },
    sampler: Some(&THRESHOLD),
    // Of the model card. A block is revealed as one, however long it is.
    defaults: &[("threshold", 0.95), ("block_length", 0.0)],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::LLADA2,
    hf: Some(&HF),
    pre: Some("bailingmoe2"),
    shifted: Some(FAMILY.shifted),
};

const HF: HfSpec = HfSpec {
    classes: &["LLaDA2MoeModelLM"],
    model_types: &["llada2_moe"],
    tensors: &[TENSORS, tables::DENSE, EXPERTS, tables::EXPERTS],
    ignored: &[],
    twins: &[],
    made: &[],
    keys: &[KEYS, &[key(super::CANVAS_LEN, Setting::Block(tables::BLOCK, Some(32)))]],
    demands: &[tables::PLAIN, tables::NO_QKV_BIAS, DEMANDS],
    inert: &[tables::INERT, INERT],
    add_bos: None,
};

/// Ling's names.
const TENSORS: &[Tensor] = &[
    same("model.word_embeddings.weight", "token_embd.weight"),
    same("model.norm.weight", "output_norm.weight"),
    same(tables::HEAD, "output.weight"),
    same("model.layers.{N}.input_layernorm.weight", "blk.{N}.attn_norm.weight"),
    same("model.layers.{N}.attention.query_key_value.weight", "blk.{N}.attn_qkv.weight"),
    same("model.layers.{N}.attention.query_layernorm.weight", "blk.{N}.attn_q_norm.weight"),
    same("model.layers.{N}.attention.key_layernorm.weight", "blk.{N}.attn_k_norm.weight"),
    same("model.layers.{N}.attention.dense.weight", "blk.{N}.attn_output.weight"),
    same("model.layers.{N}.post_attention_layernorm.weight", "blk.{N}.ffn_norm.weight"),
];

const EXPERTS: &[Tensor] = &[
    same("model.layers.{N}.mlp.gate.weight", "blk.{N}.ffn_gate_inp.weight"),
    same("model.layers.{N}.mlp.gate.expert_bias", "blk.{N}.exp_probs_b.bias"),
    same("model.layers.{N}.mlp.shared_experts.gate_proj.weight", "blk.{N}.ffn_gate_shexp.weight"),
    same("model.layers.{N}.mlp.shared_experts.up_proj.weight", "blk.{N}.ffn_up_shexp.weight"),
    same("model.layers.{N}.mlp.shared_experts.down_proj.weight", "blk.{N}.ffn_down_shexp.weight"),
];

const KEYS: &[Key] = &[
    key("vocab_size", Setting::Vocab),
    key("block_count", Setting::Size(&["num_hidden_layers"])),
    key("context_length", Setting::Size(&["max_position_embeddings"])),
    key("embedding_length", Setting::Size(&["hidden_size"])),
    key("feed_forward_length", Setting::OptSize(&["intermediate_size"])),
    key("attention.head_count", Setting::Size(&["num_attention_heads"])),
    key("attention.head_count_kv", Setting::OptCount(&["num_key_value_heads"])),
    key("attention.key_length", Setting::Made(|c| head_dim(c).map(|d| Some(d.into())))),
    key("attention.value_length", Setting::Made(|c| head_dim(c).map(|d| Some(d.into())))),
    key(ROTATED, Setting::Made(rotated)),
    key("rope.freq_base", Setting::Float(tables::ROPE_BASE)),
    key("attention.layer_norm_rms_epsilon", Setting::Float(&["rms_norm_eps"])),
    tables::NOT_CAUSAL,
    tables::NO_WINDOW,
    key(
        "leading_dense_block_count",
        Setting::Made(|c| Ok(c.size(&["first_k_dense_replace"])?.map(Value::U32))),
    ),
    key("expert_count", Setting::Size(&["num_experts"])),
    key("expert_used_count", Setting::Size(&["num_experts_per_tok"])),
    key("expert_feed_forward_length", Setting::Size(&["moe_intermediate_size"])),
    key(
        "expert_shared_count",
        Setting::Made(|c| Ok(Some(c.size(&["num_shared_experts"])?.unwrap_or(0).into()))),
    ),
    key(
        "expert_shared_feed_forward_length",
        Setting::OptSize(&["moe_shared_expert_intermediate_size", "moe_intermediate_size"]),
    ),
    key("expert_group_count", Setting::Size(&["n_group"])),
    key("expert_group_used_count", Setting::Size(&["topk_group"])),
    key("expert_gating_func", Setting::Always(Fixed::Size(SIGMOID as u32))),
    key("expert_weights_norm", Setting::Flag(&["norm_topk_prob"], true)),
    key("expert_weights_scale", Setting::Float(&["routed_scaling_factor"])),
    // Of 2.2.
    key(CAPACITY, Setting::OptSize(&["expert_capacity"])),
    key(DELETE_KEY, Setting::OptSize(&["delete_token_id"])),
    key(SPLIT_KEY, Setting::OptSize(&["split_token_id"])),
];

fn head_dim(c: &Config) -> Result<u32, String> {
    match c.count(&["head_dim"])? {
        Some(dim) => Ok(dim),
        None => Ok(c.need(&["hidden_size"])? / c.need(&["num_attention_heads"])?),
    }
}

fn rotated(c: &Config) -> Result<Option<Value>, String> {
    let by_share = match tables::rotated_share(c, tables::ROTATED)? {
        Some(share) => Some((f64::from(head_dim(c)?) * share) as u32),
        None => None,
    };
    match (by_share, c.count(&["rotary_dim"])?) {
        (Some(a), Some(b)) if a != b => Err(format!(
            "config.json: `rotary_dim` is {b}, but by `partial_rotary_factor` {a} channels of a head rotate"
        )),
        (Some(n), _) | (None, Some(n)) => Ok(Some(n.into())),
        (None, None) => Err(missing(tables::ROTATED)),
    }
}

const DEMANDS: &[Demand] = &[
    demand(&["use_qk_norm", "use_rmsnorm"], &["true"]),
    demand(&["score_function"], &["\"sigmoid\""]),
    demand(&["moe_router_enable_expert_bias"], &["true"]),
    demand(&["norm_head", "norm_softmax", "using_split_qkv_in_self_attention"], &["false"]),
    demand(&["num_nextn_predict_layers"], &["0"]),
];

/// Routers are computed in F32 here, whatever they say.
const INERT: &[&str] = &["moe_router_topk_scaling_factor", "rotary_type", "router_dtype"];

const ROTATED: &str = "rope.dimension_count";

const FAMILY: Family = Family {
    name: "llada2",
    rope: RopeStyle::Neox,
    bias: false,
    head_norms: true,
    experts: Some(experts),
    shifted: false,
    canvas: Canvas::Block(BLOCK),
};

/// Tokens of a block where the file does not say.
const BLOCK: usize = 32;

/// What makes a file one of 2.2: how many experts a block of tokens uses, and how long such a block is.
const CAPACITY: &str = "expert_capacity";
const EXPERT_BLOCK: &str = "expert_block_length";

/// RoPE base of the published models of 2.2; those before have 6e5.
const BASE_OF_2_2: f32 = 3e6;

/// Of `expert_gating_func`.
const SIGMOID: usize = 2;

/// What a file leaves out and is taken from the published models.
struct Assumed<'a> {
    h: &'a Hyper<'a>,
    /// Keys and values, for a note.
    said: Vec<String>,
}

impl Assumed<'_> {
    fn or<T: Display>(&mut self, name: &str, found: Option<T>, published: T) -> T {
        found.unwrap_or_else(|| {
            self.said.push(format!("{} {published}", self.h.key(name)));
            published
        })
    }
}

/// The blocks of tokens that choose experts together, in files of 2.2.
fn block(h: &Hyper<'_>, experts: usize) -> Result<Option<RoutingBlock>, Error> {
    if ![CAPACITY, EXPERT_BLOCK].iter().any(|name| h.meta.contains(&h.key(name))) {
        return Ok(None);
    }
    let capacity = h.size(CAPACITY, experts)?;
    // What is assumed is said where the canvas is read.
    let canvas = super::canvas_len(h.meta, BLOCK, &mut Vec::new())?;
    let len = h.opt_size(EXPERT_BLOCK, canvas)?.unwrap_or(canvas);
    match canvas.is_multiple_of(len) {
        true => Ok(Some(RoutingBlock { len, capacity })),
        // The first part of a block would be in the cache when the rest chooses.
        false => Err(h.wrong(EXPERT_BLOCK, format!("a divisor of {canvas}, {}", super::CANVAS_LEN), len)),
    }
}

/// What says that a file without block routing is one of 2.2 all the same.
fn looks_like_2_2(h: &Hyper<'_>) -> Result<Option<String>, Error> {
    let base = h.key("rope.freq_base");
    if h.meta.opt_f32(&base)? == Some(BASE_OF_2_2) {
        return Ok(Some(format!("{base} {BASE_OF_2_2}")));
    }
    Ok(names_commands(h.meta).then(|| "tokens that delete and insert".into()))
}

/// The groups that limit the choice; none where a token uses all of them.
fn groups(h: &Hyper<'_>, experts: usize, a: &mut Assumed<'_>) -> Result<Option<ExpertGroups>, Error> {
    let n = a.or("expert_group_count", h.opt_count("expert_group_count", experts)?, 8);
    let used = a.or("expert_group_used_count", h.opt_count("expert_group_used_count", n)?, 4);
    if n == 0 || !experts.is_multiple_of(n) || experts / n < 2 {
        let expected = format!("a divisor of the {experts} experts that leaves two a group");
        return Err(h.wrong("expert_group_count", expected, n));
    }
    if !(1..=n).contains(&used) {
        return Err(h.wrong("expert_group_used_count", format!("1..={n}"), used));
    }
    Ok((used < n).then_some(ExpertGroups { n, used }))
}

fn experts(h: &Hyper<'_>, notes: &mut Vec<String>) -> Result<ExpertsKind, Error> {
    if h.opt_count("expert_gating_func", usize::MAX)?.is_some() {
        h.equal("expert_gating_func", SIGMOID)?;
    }
    let n = h.size("expert_count", 1 << 16)?;
    let d_expert = h.size("expert_feed_forward_length", 1 << 24)?;
    // What files may leave out is the same in all published models.
    let mut a = Assumed { h, said: Vec::new() };
    let block = block(h, n)?;
    // Models of 2.2 have the keys of groups and do not use them.
    let groups = match block {
        Some(_) => None,
        None => groups(h, n, &mut a)?,
    };
    let lead = a.or("leading_dense_block_count", h.opt_count("leading_dense_block_count", 1 << 16)?, 1);
    let n_shared = a.or("expert_shared_count", h.opt_count("expert_shared_count", 1 << 16)?, 1);
    let renormalize = a.or("expert_weights_norm", h.opt_flag("expert_weights_norm")?, true);
    let shared_ff = h.opt_size("expert_shared_feed_forward_length", 1 << 24)?;
    let d_shared = match n_shared {
        0 => d_expert,
        _ => a.or("expert_shared_feed_forward_length", shared_ff, d_expert),
    };
    if !a.said.is_empty() {
        notes.push(format!("the file does not say everything of its experts; taking {}", a.said.join(", ")));
    }
    if let (None, Some(sign)) = (block, looks_like_2_2(h)?) {
        notes.push(format!(
            "the file looks like LLaDA2.2 ({sign}), but has no {}; taking it for 2.1, whose experts are chosen otherwise",
            h.key(CAPACITY)
        ));
    }
    let candidates = match (groups, block) {
        (Some(ExpertGroups { n: groups, used }), _) => n / groups * used,
        (_, Some(block)) => block.capacity,
        _ => n,
    };
    let top_k = h.size("expert_used_count", candidates)?;
    Ok(ExpertsKind {
        n,
        d_expert,
        routing: Routing {
            top_k,
            score: RouterScore::Sigmoid,
            bias: None,
            groups,
            block,
            // One weight alone is never divided by itself.
            renormalize: renormalize && top_k > 1,
            expert_scale: None,
        },
        biased: true,
        scale: Some(h.positive("expert_weights_scale")?.into()),
        shared: (n_shared > 0).then_some(d_shared.saturating_mul(n_shared)),
        dense: (lead, if lead > 0 { h.size("feed_forward_length", 1 << 24)? } else { 0 }),
    })
}
