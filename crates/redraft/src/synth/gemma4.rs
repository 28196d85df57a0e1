//! Shapes of DiffusionGemma and of its autoregressive twin, Gemma 4. Fact sheet: `docs/models/diffusion-gemma.md`.

use redraft_gguf::{Array, Metadata, Value};

use super::{Fill, Plan, Role, TensorPlan, general, vocab};
use crate::arch::{CANVAS_LEN, Preset};
use crate::sampler::entropy_bound_key as eb;

/// The presets of DiffusionGemma.
pub const DIFFUSION_GEMMA: &[Preset] = &[
    Preset {
        name: "diffusion-gemma-26b-a4b",
        about: "DiffusionGemma 26B-A4B: 30 layers, 128 experts of which 8 are used, canvas 256",
        build: diffusion_gemma_26b,
    },
    Preset {
        name: "tiny",
        about: "DiffusionGemma with 6 layers, 8 experts of which 2 are used, canvas 32, for tests",
        build: diffusion_gemma_tiny,
    },
];

/// The presets of Gemma 4: files that llama.cpp reads, too.
pub const GEMMA4: &[Preset] = &[
    Preset {
        name: "gemma4-26b-a4b",
        about: "Gemma 4 26B-A4B, the autoregressive twin of DiffusionGemma, for comparison with other engines",
        build: gemma4_26b,
    },
    Preset {
        name: "gemma4-26b-6l",
        about: "the first six of its thirty layers: the real shapes where memory is short",
        build: gemma4_26b_6l,
    },
    Preset {
        name: "gemma4-mini",
        about: "Gemma 4 with 12 layers of a third of the width, 32 experts of which 4 are used: 0.5 billion weights",
        build: gemma4_mini,
    },
    Preset { name: "gemma4-tiny", about: "the twin of tiny, for tests", build: gemma4_tiny },
];

/// Sizes of a model, in the words of the GGUF keys.
#[derive(Clone, Copy)]
struct Sizes {
    name: &'static str,
    size_label: &'static str,
    n_layers: usize,
    context_len: u32,
    d_model: u64,
    d_ff: u64,
    n_heads: u64,
    /// Key-value heads of sliding layers.
    n_kv_heads_swa: u64,
    /// Key-value heads of full layers.
    n_kv_heads: u64,
    /// Head width of sliding layers.
    head_dim_swa: u64,
    /// Head width of full layers.
    head_dim: u64,
    window: u32,
    n_experts: u64,
    n_used: u32,
    d_expert: u64,
    vocab_len: usize,
    /// None: autoregressive, a Gemma 4.
    canvas_len: Option<u32>,
}

const LARGE: Sizes = Sizes {
    name: "DiffusionGemma 26B-A4B",
    size_label: "26B-A4B",
    n_layers: 30,
    context_len: 262_144,
    d_model: 2816,
    d_ff: 2112,
    n_heads: 16,
    n_kv_heads_swa: 8,
    n_kv_heads: 2,
    head_dim_swa: 256,
    head_dim: 512,
    window: 1024,
    n_experts: 128,
    n_used: 8,
    d_expert: 704,
    vocab_len: 262_144,
    canvas_len: Some(256),
};

/// The same architecture with two million weights. Its rows are whole super-blocks in some tensors and not in
/// others, so that a file has the block types of the large one.
const TINY: Sizes = Sizes {
    name: "DiffusionGemma tiny",
    size_label: "2M",
    n_layers: 6,
    context_len: 4096,
    d_model: 256,
    d_ff: 96,
    n_heads: 4,
    n_kv_heads_swa: 2,
    n_kv_heads: 1,
    head_dim_swa: 32,
    head_dim: 64,
    window: 16,
    n_experts: 8,
    n_used: 2,
    d_expert: 32,
    vocab_len: 2048,
    canvas_len: Some(32),
};

/// Between the two, with the proportions of the large one.
const MINI: Sizes = Sizes {
    name: "Gemma 4 mini",
    size_label: "0.5B",
    n_layers: 12,
    context_len: 32_768,
    d_model: 1024,
    d_ff: 704,
    n_heads: 8,
    n_kv_heads_swa: 4,
    n_kv_heads: 1,
    head_dim_swa: 128,
    head_dim: 256,
    window: 512,
    n_experts: 32,
    n_used: 4,
    d_expert: 352,
    vocab_len: 32_768,
    canvas_len: None,
};

/// DiffusionGemma 26B-A4B.
pub fn diffusion_gemma_26b() -> Plan {
    plan(&LARGE)
}

/// DiffusionGemma with two million weights.
pub fn diffusion_gemma_tiny() -> Plan {
    plan(&TINY)
}

/// Gemma 4 26B-A4B: DiffusionGemma without what makes it one.
pub fn gemma4_26b() -> Plan {
    plan(&Sizes { name: "Gemma 4 26B-A4B", canvas_len: None, ..LARGE })
}

/// Six layers of Gemma 4 26B-A4B, five sliding and a full one.
pub fn gemma4_26b_6l() -> Plan {
    plan(&Sizes {
        name: "Gemma 4 26B-A4B, six layers",
        size_label: "6B-A1.4B",
        n_layers: 6,
        canvas_len: None,
        ..LARGE
    })
}

/// Gemma 4 with half a billion weights.
pub fn gemma4_mini() -> Plan {
    plan(&MINI)
}

/// Gemma 4 with two million weights.
pub fn gemma4_tiny() -> Plan {
    plan(&Sizes { name: "Gemma 4 tiny", canvas_len: None, ..TINY })
}

/// Every sixth layer attends to everything, the others to a window.
fn is_sliding(layer: usize) -> bool {
    layer % 6 != 5
}

fn plan(s: &Sizes) -> Plan {
    Plan { metadata: metadata(s), tensors: tensors(s) }
}

fn metadata(s: &Sizes) -> Metadata {
    let arch = if s.canvas_len.is_some() { "diffusion-gemma" } else { "gemma4" };
    let mut m = general(arch, s.name, s.size_label);
    let mut set = |key: &str, value: Value| m.set(format!("{arch}.{key}"), value);
    let size = |n: u64| Value::U32(n as u32);
    let per_layer =
        |sliding, full| (0..s.n_layers).map(|i| if is_sliding(i) { sliding } else { full }).collect();
    set("block_count", size(s.n_layers as u64));
    set("context_length", s.context_len.into());
    set("embedding_length", size(s.d_model));
    set("feed_forward_length", size(s.d_ff));
    set("attention.head_count", size(s.n_heads));
    set(
        "attention.head_count_kv",
        Array::I32(per_layer(s.n_kv_heads_swa as i32, s.n_kv_heads as i32)).into(),
    );
    set("rope.freq_base", Value::F32(1e6));
    set("rope.freq_base_swa", Value::F32(1e4));
    set("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
    set("expert_count", size(s.n_experts));
    set("expert_used_count", s.n_used.into());
    set("attention.key_length", size(s.head_dim));
    set("attention.value_length", size(s.head_dim));
    set("final_logit_softcapping", Value::F32(30.0));
    set("attention.sliding_window", s.window.into());
    set("attention.shared_kv_layers", size(0));
    set("embedding_length_per_layer_input", size(0));
    set("attention.sliding_window_pattern", Array::Bool((0..s.n_layers).map(is_sliding).collect()).into());
    set("attention.key_length_swa", size(s.head_dim_swa));
    set("attention.value_length_swa", size(s.head_dim_swa));
    set("expert_feed_forward_length", size(s.d_expert));
    set("rope.dimension_count", size(s.head_dim));
    set("rope.dimension_count_swa", size(s.head_dim_swa));
    if let Some(canvas_len) = s.canvas_len {
        set("attention.causal", false.into());
        m.set(CANVAS_LEN, canvas_len);
        m.set(eb::MAX_STEPS, 48u32);
        m.set(eb::T_MIN, 0.4f32);
        m.set(eb::T_MAX, 0.8f32);
        m.set(eb::ENTROPY_BOUND, 0.1f32);
        m.set(eb::STABILITY, 1u32);
        m.set(eb::CONFIDENCE, 0.005f32);
    }
    vocab::set(&mut m, s.vocab_len);
    m
}

/// Collects tensors with the fills that keep a model of random weights alive: no branch drowns in the residual
/// stream, scores, router logits and logits differ by a few units, and positions stay apart, so that a canvas
/// is spread over nearly all experts.
struct Tensors(Vec<TensorPlan>);

impl Tensors {
    fn add(&mut self, name: impl Into<String>, dims: &[u64], role: Role, fill: Fill) {
        self.0.push(TensorPlan { name: name.into(), dims: dims.to_vec(), role, fill });
    }

    /// A matrix or a stack of them, whose outputs are `gain` times as large as its inputs.
    fn matrix(&mut self, name: impl Into<String>, dims: &[u64], role: Role, gain: f32) {
        self.add(name, dims, role, Fill::Std(gain / (dims[0] as f32).sqrt()));
    }

    /// A vector of positive numbers around `centre`.
    fn vector(&mut self, name: impl Into<String>, n: u64, centre: f32) {
        self.add(name, &[n], Role::Float, Fill::Between(0.6 * centre, 1.4 * centre));
    }
}

fn tensors(s: &Sizes) -> Vec<TensorPlan> {
    let (n, f, x, e) = (s.d_model, s.d_ff, s.d_expert, s.n_experts);
    let mut t = Tensors(Vec::new());
    // The model multiplies embeddings by sqrt(n).
    t.matrix("token_embd.weight", &[n, s.vocab_len as u64], Role::Embedding, 1.0);
    // The standard deviation of the logits.
    t.vector("output_norm.weight", n, 5.0);
    let pairs = s.head_dim / 2;
    t.add("rope_freqs.weight", &[pairs], Role::Float, Fill::RopeFactors { rotated: pairs / 4 });
    if s.canvas_len.is_some() {
        t.vector("self_cond_pre_norm.weight", n, 1.0);
        t.matrix("self_cond_gate.weight", &[n, f], Role::Matrix, 1.5);
        t.matrix("self_cond_up.weight", &[n, f], Role::Matrix, 1.5);
        t.matrix("self_cond_down.weight", &[f, n], Role::Matrix, 1.0);
    }
    let mut sliding_before = 0;
    let n_sliding = (0..s.n_layers).filter(|&i| is_sliding(i)).count();
    for i in 0..s.n_layers {
        let b = |name: &str| format!("blk.{i}.{name}");
        let sliding = is_sliding(i);
        let (d, kv) = if sliding { (s.head_dim_swa, s.n_kv_heads_swa) } else { (s.head_dim, s.n_kv_heads) };
        let down = Role::Sensitive { index: i, of: s.n_layers };
        t.vector(b("attn_norm.weight"), n, 1.0);
        t.matrix(b("attn_q.weight"), &[n, s.n_heads * d], Role::Matrix, 1.0);
        t.matrix(b("attn_k.weight"), &[n, kv * d], Role::Matrix, 1.0);
        if sliding {
            let role = Role::Sensitive { index: sliding_before, of: n_sliding };
            t.matrix(b("attn_v.weight"), &[n, kv * d], role, 1.0);
            sliding_before += 1;
        }
        t.matrix(b("attn_output.weight"), &[s.n_heads * d, n], Role::Matrix, 1.0);
        // Scores are products of two normed vectors of d elements, not divided by sqrt(d).
        let qk = 2.0 / (d as f32).sqrt().sqrt();
        t.vector(b("attn_q_norm.weight"), d, qk);
        t.vector(b("attn_k_norm.weight"), d, qk);
        // Attention makes positions alike; too much of it, and the whole canvas goes to the same experts.
        t.vector(b("post_attention_norm.weight"), n, 0.4);
        t.add(b("layer_output_scale.weight"), &[1], Role::Float, Fill::Between(0.5, 0.9));
        if s.canvas_len.is_some() {
            t.add(b("enc_layer_output_scale.weight"), &[1], Role::Float, Fill::Between(0.5, 0.9));
        }
        t.vector(b("ffn_norm.weight"), n, 1.0);
        t.matrix(b("ffn_gate.weight"), &[n, f], Role::Matrix, 1.5);
        t.matrix(b("ffn_up.weight"), &[n, f], Role::Matrix, 1.5);
        t.matrix(b("ffn_down.weight"), &[f, n], down, 1.0);
        t.vector(b("post_ffw_norm.weight"), n, 0.7);
        // The router's input is a normed vector divided by sqrt(n).
        t.add(b("ffn_gate_inp.weight"), &[n, e], Role::Float, Fill::Std(2.0));
        t.vector(b("ffn_gate_inp.scale"), n, 1.0);
        t.vector(b("pre_ffw_norm_2.weight"), n, 1.0);
        t.vector(b("post_ffw_norm_1.weight"), n, 1.0);
        t.vector(b("post_ffw_norm_2.weight"), n, 1.0);
        t.matrix(b("ffn_gate_up_exps.weight"), &[n, 2 * x, e], Role::Matrix, 1.5);
        t.matrix(b("ffn_down_exps.weight"), &[x, n, e], down, 1.0);
        t.vector(b("ffn_down_exps.scale"), e, 1.0);
    }
    t.0
}
