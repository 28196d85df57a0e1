//! Shapes of models of masks: Dream, LLaDA, LLaDA-MoE, LLaDA2, RND1, SDAR, Fast-dLLM v2 and A2D. Fact sheets: `docs/models`.

use redraft_gguf::{Metadata, Value};

use super::vocab::{self, ByteLevel};
use super::{Fill, Plan, Role, TensorPlan, general};
use crate::arch::{CANVAS_LEN, Preset, SHIFT};
use crate::sampler::{DELETE_KEY, SPLIT_KEY};

pub(crate) const DREAM: &[Preset] =
    &[Preset { name: "dream-7b", about: "Dream 7B: 28 layers, dense", build: || plan(&DREAM_7B) }];
pub(crate) const LLADA: &[Preset] =
    &[Preset { name: "llada-8b", about: "LLaDA 8B: 32 layers, dense", build: || plan(&LLADA_8B) }];
pub(crate) const LLADA_MOE: &[Preset] = &[Preset {
    name: "llada-moe-7b-a1b",
    about: "LLaDA-MoE 7B-A1B: 16 layers, 64 experts of which 8 are used",
    build: || plan(&LLADA_MOE_7B),
}];
pub(crate) const LLADA2: &[Preset] = &[
    Preset {
        name: "llada2-mini",
        about: "LLaDA2 mini 16B-A1B: 20 layers, 256 experts in 8 groups of which 8 are used, blocks of 32",
        build: || plan(&LLADA2_MINI),
    },
    Preset {
        name: "llada2-flash",
        about: "LLaDA2 flash 100B-A6B: 32 layers, 256 experts in 8 groups of which 8 are used, blocks of 32",
        build: || plan(&LLADA2_FLASH),
    },
    Preset {
        name: "llada2-tiny",
        about: "LLaDA2 with 4 layers, 8 experts in 4 groups of which 2 are used, blocks of 32, for tests",
        build: || plan(&tiny("LLaDA2 tiny", LLADA2_MINI)),
    },
    Preset {
        name: "llada2.2-mini",
        about: "LLaDA2.2 mini 16B-A1B: as LLaDA2 mini, but of 256 experts a block of 32 tokens uses 48, a token 8 of these",
        build: || plan(&LLADA2_2_MINI),
    },
    Preset {
        name: "llada2.2-tiny",
        about: "LLaDA2.2 with 4 layers, 8 experts of which a block of 32 tokens uses 4, a token 2 of these, for tests",
        build: || plan(&tiny("LLaDA2.2 tiny", LLADA2_2_MINI)),
    },
];
pub(crate) const RND1: &[Preset] = &[Preset {
    name: "rnd1-30b-a3b",
    about: "RND1 30B-A3B: 48 layers, 128 experts of which 8 are used",
    build: || plan(&RND1_30B),
}];
pub(crate) const A2D_QWEN2: &[Preset] = &[Preset {
    name: "qwen2.5-0.5b-mdlm",
    about: "A2D of Qwen 2.5 0.5B (Open-dCoder's shapes): 24 layers, full mask",
    build: || plan(&QWEN2_MDLM),
}];
pub(crate) const A2D_QWEN3: &[Preset] = &[
    Preset {
        name: "qwen3-0.6b-mdlm",
        about: "A2D of Qwen 3 0.6B: 28 layers, full mask",
        build: || plan(&MDLM),
    },
    Preset {
        name: "qwen3-0.6b-bd3lm",
        about: "A2D of Qwen 3 0.6B: 28 layers, blocks of 32",
        build: || plan(&BD3LM),
    },
];
pub(crate) const SDAR: &[Preset] = &[
    Preset { name: "sdar-8b", about: "SDAR 8B: 36 layers, dense, blocks of 4", build: || plan(&SDAR_8B) },
    Preset {
        name: "sdar-tiny",
        about: "SDAR with 4 layers, blocks of 4, for tests",
        build: || plan(&tiny("SDAR tiny", SDAR_8B)),
    },
];
pub(crate) const SDAR_MOE: &[Preset] = &[
    Preset {
        name: "sdar-30b-a3b",
        about: "SDAR 30B-A3B: 48 layers, 128 experts of which 8 are used, blocks of 4",
        build: || plan(&SDAR_30B),
    },
    Preset {
        name: "sdar-moe-tiny",
        about: "SDAR with 4 layers, 8 experts of which 2 are used, blocks of 4, for tests",
        build: || plan(&tiny("SDAR MoE tiny", SDAR_30B)),
    },
];
pub(crate) const FAST_DLLM: &[Preset] = &[
    Preset {
        name: "fast-dllm-v2-7b",
        about: "Fast-dLLM v2 7B: 28 layers, dense, blocks of 32",
        build: || plan(&FAST_DLLM_7B),
    },
    Preset {
        name: "fast-dllm-tiny",
        about: "Fast-dLLM v2 with 4 layers, blocks of 32, for tests",
        build: || plan(&tiny("Fast-dLLM v2 tiny", FAST_DLLM_7B)),
    },
];

/// What Ling 2 has beside routed experts.
#[derive(Clone, Copy)]
pub(super) struct Ling {
    /// Width of the dense block in the first layer.
    pub(super) dense_ff: u64,
    /// Groups of experts, and how many a token uses.
    pub(super) groups: (u64, u64),
    /// How many experts a block of tokens uses, in models of 2.2, which know tokens that delete and insert, and say what
    /// their groups were.
    pub(super) capacity: Option<u64>,
}

/// Tokens of 2.2 that delete and insert: so many before the end of the vocabulary, 156930 and 156931 of 157184.
const COMMANDS: [usize; 2] = [254, 253];

/// Sizes of a model, in the words of the GGUF keys.
pub(super) struct Sizes {
    pub(super) arch: &'static str,
    name: &'static str,
    size_label: &'static str,
    pub(super) n_layers: u64,
    context_len: u32,
    pub(super) d_model: u64,
    pub(super) n_heads: u64,
    pub(super) n_kv_heads: u64,
    pub(super) head_dim: u64,
    /// Queries, keys and values have biases.
    bias: bool,
    /// Queries and keys have norms over heads.
    head_norms: bool,
    /// Width of the feed-forward block, or of an expert.
    pub(super) d_ff: u64,
    /// Experts, and how many a token uses.
    pub(super) experts: Option<(u64, u64)>,
    /// Routers by sigmoid with groups and a bias, a shared expert, a dense first layer, heads that rotate by half, and
    /// queries, keys and values in one matrix.
    pub(super) ling: Option<Ling>,
    rope_base: f32,
    eps: f32,
    /// Whether the file says that logits are not shifted.
    unshifted: bool,
    /// Tokens of a block, of models that read block by block.
    block_len: Option<u32>,
    /// The embedding is the output head, too.
    tied: bool,
    pub(super) vocab: ByteLevel,
}

const DREAM_7B: Sizes = Sizes {
    arch: "dream",
    name: "Dream 7B",
    size_label: "7B",
    n_layers: 28,
    context_len: 131_072,
    d_model: 3584,
    n_heads: 28,
    n_kv_heads: 4,
    head_dim: 128,
    bias: true,
    head_norms: false,
    d_ff: 18_944,
    experts: None,
    ling: None,
    rope_base: 1e6,
    eps: 1e-6,
    unshifted: false,
    block_len: None,
    tied: false,
    vocab: ByteLevel { pre: "qwen2", n: 152_064, end: 151_643, mask: 151_666, mask_text: "<|mask|>" },
};

const LLADA_8B: Sizes = Sizes {
    arch: "llada",
    name: "LLaDA 8B",
    size_label: "8B",
    n_layers: 32,
    context_len: 4096,
    d_model: 4096,
    n_heads: 32,
    n_kv_heads: 32,
    head_dim: 128,
    bias: false,
    d_ff: 12_288,
    rope_base: 5e5,
    eps: 1e-5,
    unshifted: true,
    vocab: ByteLevel { pre: "llada-moe", n: 126_464, end: 126_081, mask: 126_336, mask_text: "<|mdm_mask|>" },
    ..DREAM_7B
};

const LLADA_MOE_7B: Sizes = Sizes {
    arch: "llada-moe",
    name: "LLaDA-MoE 7B-A1B",
    size_label: "7B-A1B",
    n_layers: 16,
    context_len: 8192,
    d_model: 2048,
    n_heads: 16,
    n_kv_heads: 16,
    head_norms: true,
    d_ff: 1024,
    experts: Some((64, 8)),
    rope_base: 5e4,
    vocab: ByteLevel { pre: "llada-moe", n: 157_184, end: 156_892, mask: 156_895, mask_text: "<|mask|>" },
    ..LLADA_8B
};

const LLADA2_MINI: Sizes = Sizes {
    arch: "llada2",
    name: "LLaDA2 mini",
    size_label: "16B-A1B",
    n_layers: 20,
    context_len: 32_768,
    n_kv_heads: 4,
    d_ff: 512,
    experts: Some((256, 8)),
    ling: Some(Ling { dense_ff: 5120, groups: (8, 4), capacity: None }),
    rope_base: 6e5,
    eps: 1e-6,
    block_len: Some(32),
    vocab: ByteLevel { pre: "bailingmoe2", ..LLADA_MOE_7B.vocab },
    ..LLADA_MOE_7B
};

const LLADA2_FLASH: Sizes = Sizes {
    name: "LLaDA2 flash",
    size_label: "100B-A6B",
    n_layers: 32,
    d_model: 4096,
    n_heads: 32,
    d_ff: 1024,
    ling: Some(Ling { dense_ff: 9216, groups: (8, 4), capacity: None }),
    ..LLADA2_MINI
};

const LLADA2_2_MINI: Sizes = Sizes {
    name: "LLaDA2.2 mini",
    context_len: 131_072,
    ling: Some(Ling { dense_ff: 5120, groups: (8, 4), capacity: Some(48) }),
    rope_base: 3e6,
    ..LLADA2_MINI
};

const RND1_30B: Sizes = Sizes {
    arch: "rnd1",
    name: "RND1 30B-A3B",
    size_label: "30B-A3B",
    n_layers: 48,
    context_len: 32_768,
    n_heads: 32,
    n_kv_heads: 4,
    d_ff: 768,
    experts: Some((128, 8)),
    rope_base: 1e6,
    eps: 1e-6,
    unshifted: false,
    vocab: ByteLevel { pre: "qwen2", n: 151_936, end: 151_643, mask: 151_669, mask_text: "<|mask|>" },
    ..LLADA_MOE_7B
};

const SDAR_8B: Sizes = Sizes {
    arch: "sdar",
    name: "SDAR 8B",
    size_label: "8B",
    n_layers: 36,
    d_model: 4096,
    d_ff: 12_288,
    n_kv_heads: 8,
    experts: None,
    ..SDAR_30B
};

const SDAR_30B: Sizes = Sizes {
    arch: "sdar-moe",
    name: "SDAR 30B-A3B",
    unshifted: true,
    block_len: Some(4),
    vocab: ByteLevel { pre: "qwen2", n: 151_936, end: 151_643, mask: 151_669, mask_text: "<|MASK|>" },
    ..RND1_30B
};

const FAST_DLLM_7B: Sizes = Sizes {
    arch: "fast-dllm",
    name: "Fast-dLLM v2 7B",
    context_len: 32_768,
    block_len: Some(32),
    vocab: ByteLevel { pre: "qwen2", n: 152_064, end: 151_643, mask: 151_665, mask_text: "|<MASK>|" },
    ..DREAM_7B
};

const MDLM: Sizes = Sizes {
    arch: "a2d-qwen3",
    name: "Qwen 3 0.6B A2D MDLM",
    size_label: "0.6B",
    n_layers: 28,
    context_len: 40_960,
    d_model: 1024,
    n_heads: 16,
    d_ff: 3072,
    block_len: None,
    tied: true,
    vocab: ByteLevel { pre: "qwen2", n: 151_936, end: 151_643, mask: 151_669, mask_text: "<|mask|>" },
    ..SDAR_8B
};

const QWEN2_MDLM: Sizes = Sizes {
    arch: "a2d-qwen2",
    name: "Qwen 2.5 0.5B A2D MDLM",
    size_label: "0.5B",
    n_layers: 24,
    context_len: 32_768,
    d_model: 896,
    n_heads: 14,
    n_kv_heads: 2,
    head_dim: 64,
    bias: true,
    head_norms: false,
    d_ff: 4864,
    vocab: ByteLevel { mask: 151_665, ..MDLM.vocab },
    ..MDLM
};

const BD3LM: Sizes = Sizes { name: "Qwen 3 0.6B A2D BD3LM", block_len: Some(32), ..MDLM };

/// A model of the same kind with two to five million weights. Its rows are whole super-blocks in some tensors and not in
/// others.
pub(super) fn tiny(name: &'static str, s: Sizes) -> Sizes {
    Sizes {
        name,
        size_label: if s.experts.is_some() { "4M" } else { "2M" },
        n_layers: 4,
        context_len: 4096,
        d_model: 256,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 64,
        d_ff: 96,
        experts: s.experts.map(|_| (8, 2)),
        ling: s.ling.map(|ling| Ling { dense_ff: 160, groups: (4, 2), capacity: ling.capacity.map(|_| 4) }),
        vocab: ByteLevel { n: 2048, end: 2000, mask: 2010, ..s.vocab },
        ..s
    }
}

/// All models, for tests.
#[cfg(test)]
pub(super) const ALL: [Sizes; 13] = [
    DREAM_7B,
    LLADA_8B,
    LLADA_MOE_7B,
    LLADA2_MINI,
    LLADA2_FLASH,
    LLADA2_2_MINI,
    RND1_30B,
    SDAR_8B,
    SDAR_30B,
    FAST_DLLM_7B,
    MDLM,
    BD3LM,
    QWEN2_MDLM,
];

pub(super) fn plan(s: &Sizes) -> Plan {
    Plan { metadata: metadata(s), tensors: tensors(s) }
}

fn metadata(s: &Sizes) -> Metadata {
    let mut m = general(s.arch, s.name, s.size_label);
    let mut set = |key: &str, value: Value| m.set(format!("{}.{key}", s.arch), value);
    let size = |n: u64| Value::U32(n as u32);
    set("block_count", size(s.n_layers));
    set("context_length", s.context_len.into());
    set("embedding_length", size(s.d_model));
    set("attention.head_count", size(s.n_heads));
    set("attention.head_count_kv", size(s.n_kv_heads));
    set("attention.key_length", size(s.head_dim));
    set("attention.value_length", size(s.head_dim));
    set("rope.dimension_count", size(if s.ling.is_some() { s.head_dim / 2 } else { s.head_dim }));
    set("rope.freq_base", Value::F32(s.rope_base));
    set("attention.layer_norm_rms_epsilon", Value::F32(s.eps));
    set("attention.causal", false.into());
    set("vocab_size", size(s.vocab.n as u64));
    set("feed_forward_length", size(s.ling.map_or(s.d_ff, |l| l.dense_ff)));
    if let Some((n, used)) = s.experts {
        set("expert_count", size(n));
        set("expert_used_count", size(used));
        set("expert_feed_forward_length", size(s.d_ff));
    }
    if let Some(ling) = s.ling {
        set("leading_dense_block_count", size(1));
        set("expert_group_count", size(ling.groups.0));
        set("expert_group_used_count", size(ling.groups.1));
        set("expert_shared_count", size(1));
        set("expert_shared_feed_forward_length", size(s.d_ff));
        set("expert_gating_func", size(2));
        set("expert_weights_norm", true.into());
        set("expert_weights_scale", Value::F32(2.5));
        if let Some(capacity) = ling.capacity {
            set("expert_capacity", size(capacity));
            set("expert_block_length", s.block_len.unwrap_or(1).into());
            let id = |before: usize| Value::U32((s.vocab.n - before) as u32);
            m.set(DELETE_KEY, id(COMMANDS[0]));
            m.set(SPLIT_KEY, id(COMMANDS[1]));
        }
    }
    if s.unshifted {
        m.set(SHIFT, false);
    }
    if let Some(len) = s.block_len {
        m.set(CANVAS_LEN, len);
    }
    vocab::set_byte_level(&mut m, &s.vocab);
    m
}

/// Fills keep a model of random weights alive: scores, router logits and logits differ by a few units, and no branch
/// drowns in the residual stream.
fn tensors(s: &Sizes) -> Vec<TensorPlan> {
    let (n, f, vocab) = (s.d_model, s.d_ff, s.vocab.n as u64);
    let (q, kv) = (s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim);
    let mut out = Vec::new();
    let mut add = |name: String, dims: &[u64], role, fill| {
        out.push(TensorPlan { name, dims: dims.to_vec(), role, fill });
    };
    // A matrix whose outputs are `gain` times as large as its inputs, and numbers around a centre.
    let gain = |x: f32, inputs: u64| Fill::Std(x / (inputs as f32).sqrt());
    let around = |x: f32| Fill::Between(0.6 * x, 1.4 * x);
    let (role, fill) = if s.tied { (Role::Embedding, gain(1.0, n)) } else { (Role::Matrix, Fill::Std(1.0)) };
    add("token_embd.weight".into(), &[n, vocab], role, fill);
    // The standard deviation of the logits.
    add("output_norm.weight".into(), &[n], Role::Float, around(5.0));
    if !s.tied {
        add("output.weight".into(), &[n, vocab], Role::Embedding, gain(1.0, n));
    }
    for i in 0..s.n_layers {
        let b = |name: &str| format!("blk.{i}.{name}");
        let sensitive = Role::Sensitive { index: i as usize, of: s.n_layers as usize };
        add(b("attn_norm.weight"), &[n], Role::Float, around(1.0));
        let fused = [("attn_qkv", q + 2 * kv, Role::Matrix)];
        let single = [("attn_q", q, Role::Matrix), ("attn_k", kv, Role::Matrix), ("attn_v", kv, sensitive)];
        for &(name, width, role) in if s.ling.is_some() { &fused[..] } else { &single } {
            add(b(&format!("{name}.weight")), &[n, width], role, gain(1.4, n));
            if s.bias {
                add(b(&format!("{name}.bias")), &[width], Role::Float, Fill::Std(0.5));
            }
        }
        if s.head_norms {
            // Scores are products of d elements, divided by sqrt(d).
            add(b("attn_q_norm.weight"), &[s.head_dim], Role::Float, around(1.4));
            add(b("attn_k_norm.weight"), &[s.head_dim], Role::Float, around(1.4));
        }
        add(b("attn_output.weight"), &[q, n], Role::Matrix, gain(0.4, q));
        add(b("ffn_norm.weight"), &[n], Role::Float, around(1.0));
        let routed = s.experts.filter(|_| s.ling.is_none() || i > 0);
        if let Some((e, _)) = routed {
            add(b("ffn_gate_inp.weight"), &[n, e], Role::Float, gain(2.0, n));
            if s.ling.is_some() {
                add(b("exp_probs_b.bias"), &[e], Role::Float, Fill::Between(-0.2, 0.2));
            }
        }
        let mut block = |suffix: &str, f: u64, experts: &[u64]| {
            let stack = |a: u64, c: u64| [&[a, c], experts].concat();
            for name in ["ffn_gate", "ffn_up"] {
                add(b(&format!("{name}{suffix}.weight")), &stack(n, f), Role::Matrix, gain(1.5, n));
            }
            add(b(&format!("ffn_down{suffix}.weight")), &stack(f, n), sensitive, gain(0.7, f));
        };
        match routed {
            None => block("", s.ling.map_or(f, |l| l.dense_ff), &[]),
            Some((e, _)) => {
                block("_exps", f, &[e]);
                if s.ling.is_some() {
                    block("_shexp", f, &[]);
                }
            }
        }
    }
    out
}
