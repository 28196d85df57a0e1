//! The decoder stack of Gemma 4 with routed experts: what DiffusionGemma and its autoregressive twin share. Fact
//! sheet: `docs/models/diffusion-gemma.md`.

use redraft_compute::op::{Activation, Factor, Head, Mask, RopeStyle, Routing};
use redraft_compute::{ComputeError, Kind, KvLayout, ProgramBuilder, Val, WeightId};
use redraft_gguf::Gguf;

use super::{
    AttentionKind, Cache, Experts, GatedMlp, HeadNorms, Heads, Rotary, Router, SelfAttention,
    SelfConditioning,
};
use crate::Error;
use crate::arch::{Angles, Hyper, Noise, Reading, Shape, vocab_len};
use crate::sampler::PromptWindow;
use crate::weights::WeightLoader;

/// What passes do differently in the architectures that share the stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalars {
    /// The tensor of a layer that multiplies its output in prompt passes.
    pub(crate) prompt: &'static str,
    /// The same in canvas passes.
    pub(crate) canvas: &'static str,
}

/// Hyper-parameters; field names are those of the GGUF keys.
struct Config {
    d_model: usize,
    d_ff: usize,
    n_heads: Vec<usize>,
    n_kv_heads: Vec<usize>,
    /// True for sliding-window layers.
    sliding: Vec<bool>,
    window: usize,
    head_dim: usize,
    head_dim_swa: usize,
    n_experts: usize,
    n_used: usize,
    d_expert: usize,
    eps: f32,
    softcap: f64,
}

struct Layer {
    attn_norm: WeightId,
    attn: SelfAttention,
    attn_post_norm: WeightId,
    ffn_norm: WeightId,
    mlp: GatedMlp,
    mlp_post_norm: WeightId,
    router_scale: WeightId,
    router: Router,
    moe_norm: WeightId,
    experts: Experts,
    moe_post_norm: WeightId,
    ffn_post_norm: WeightId,
    /// Multiplies the layer's output in prompt passes.
    prompt_scale: WeightId,
    /// The same in canvas passes.
    canvas_scale: WeightId,
}

/// Embedding, layers, final norm and output head.
pub(crate) struct Gemma4 {
    config: Config,
    pub(crate) shape: Shape,
    pub(crate) token_embd: WeightId,
    output: WeightId,
    output_norm: WeightId,
    layers: Vec<Layer>,
    rope_full: Rotary,
    rope_swa: Rotary,
    pub(crate) prompt_window: PromptWindow,
}

impl Gemma4 {
    /// Reads hyper-parameters under the prefix `arch` and the weights of the stack. `canvas_len` and
    /// self-conditioning are for the architecture to fill into the shape.
    pub(crate) fn load(
        gguf: &Gguf,
        w: &mut WeightLoader<'_>,
        arch: &'static str,
        scalars: Scalars,
    ) -> Result<Gemma4, Error> {
        let h = Hyper::new(gguf.metadata(), arch);
        let n_layers = h.size("block_count", 1024)?;
        let c = Config {
            d_model: h.size("embedding_length", 1 << 20)?,
            d_ff: h.size("feed_forward_length", 1 << 24)?,
            n_heads: h.size_per_layer("attention.head_count", n_layers, 1 << 16)?,
            n_kv_heads: h.size_per_layer("attention.head_count_kv", n_layers, 1 << 16)?,
            sliding: h.flag_per_layer("attention.sliding_window_pattern", n_layers)?,
            window: h.size("attention.sliding_window", 1 << 30)?,
            head_dim: h.size("attention.key_length", 1 << 16)?,
            head_dim_swa: h.size("attention.key_length_swa", 1 << 16)?,
            n_experts: h.size("expert_count", 1 << 16)?,
            n_used: h.size("expert_used_count", h.size("expert_count", 1 << 16)?)?,
            d_expert: h.size("expert_feed_forward_length", 1 << 24)?,
            eps: h.positive("attention.layer_norm_rms_epsilon")?,
            softcap: h.positive("final_logit_softcapping")?.into(),
        };
        h.equal("attention.value_length", c.head_dim)?;
        h.equal("attention.value_length_swa", c.head_dim_swa)?;
        h.grouped_heads(&c.n_heads, &c.n_kv_heads)?;
        let vocab_len = vocab_len(gguf)?;
        let rope_swa = h.rotary(
            "rope.dimension_count_swa",
            h.size("rope.dimension_count_swa", c.head_dim_swa)?,
            "rope.freq_base_swa",
        )?;
        let mut rope_full =
            h.rotary("rope.dimension_count", h.size("rope.dimension_count", c.head_dim)?, "rope.freq_base")?;
        rope_full.factors = Some(w.values("rope_freqs.weight", rope_full.n_rot / 2));

        let token_embd = w.matrix("token_embd.weight", vocab_len, c.d_model);
        let output = w.head(vocab_len, c.d_model, token_embd);
        let output_norm = w.vector("output_norm.weight", c.d_model);
        let layers = (0..n_layers).map(|i| Layer::load(w, &c, i, scalars)).collect();
        let kv_width = |i: usize| c.n_kv_heads[i] * if c.sliding[i] { c.head_dim_swa } else { c.head_dim };
        let shape = Shape {
            n_layers,
            d_model: c.d_model,
            vocab_len,
            context_len: h.size("context_length", 1 << 30)?,
            reading: Reading::Cached,
            noise: Noise::Uniform,
            canvas_len: 0,
            shifted: false,
            kv: KvLayout { widths: (0..n_layers).map(kv_width).collect() },
            self_conditioning: false,
        };
        let prompt_window = PromptWindow::default();
        Ok(Gemma4 {
            config: c,
            shape,
            token_embd,
            output,
            output_norm,
            layers,
            rope_full,
            rope_swa,
            prompt_window,
        })
    }

    /// Self-conditioning beside the stack, as wide as its dense branch, where the file has it.
    pub(crate) fn self_conditioning(&self, w: &mut WeightLoader<'_>) -> Option<SelfConditioning> {
        SelfConditioning::load(w, self.config.d_ff, self.config.d_model, self.config.eps)
    }

    /// The root mean square norm of the model over rows `[T, n]`.
    pub(crate) fn norm(
        &self,
        b: &mut ProgramBuilder,
        x: Val,
        w: Option<WeightId>,
    ) -> Result<Val, ComputeError> {
        b.rms_norm(x, w, self.config.eps, self.config.d_model)
    }

    /// Embeddings `[T, n]` of ids, times `sqrt(n)`.
    pub(crate) fn embed(&self, b: &mut ProgramBuilder, ids: Val) -> Result<Val, ComputeError> {
        let x = b.embed(ids, self.token_embd, (self.config.d_model as f64).sqrt())?; // [T, n]
        b.tap("inp_scaled", x);
        Ok(x)
    }

    /// Values of the RoPE tables, in the order in which [`stack`](Self::stack) declares them.
    pub(crate) fn position_inputs(&self, n_past: usize, rows: usize, angles: Angles) -> Vec<Vec<f64>> {
        vec![self.rope_full.table(n_past, rows, angles), self.rope_swa.table(n_past, rows, angles)]
    }

    /// Tokens that a sliding layer sees at most, the last ones; `None` where a layer sees all.
    pub(crate) fn window(&self, layer: usize) -> Option<usize> {
        self.config.sliding.get(layer).copied()?.then_some(self.config.window)
    }

    /// All layers over `x` `[T, n]`. Every position of a canvas sees the same keys of the prefix.
    pub(crate) fn stack(
        &self,
        b: &mut ProgramBuilder,
        mut x: Val,
        canvas: bool,
    ) -> Result<Val, ComputeError> {
        let table_full = b.input("rope table of full layers", self.rope_full.n_rot, Kind::Real)?;
        let table_swa = b.input("rope table of sliding layers", self.rope_swa.n_rot, Kind::Real)?;
        for i in 0..self.layers.len() {
            b.set_layer(Some(i));
            let window = self.window(i);
            let prefix = window.map(|w| self.prompt_window.keys(w));
            let mask = if canvas { Mask::Canvas { prefix } } else { Mask::Causal { window } };
            let table = if window.is_some() { table_swa } else { table_full };
            x = self.layer(b, i, x, table, mask)?;
        }
        b.set_layer(None);
        Ok(x)
    }

    /// The final norm `[T, n]`.
    pub(crate) fn result_norm(&self, b: &mut ProgramBuilder, hidden: Val) -> Result<Val, ComputeError> {
        let x = self.norm(b, hidden, Some(self.output_norm))?;
        b.tap("result_norm", x);
        Ok(x)
    }

    /// From normed rows to logits.
    pub(crate) fn head(&self) -> Head {
        Head { w: self.output, softcap: Some(self.config.softcap) }
    }

    /// Layer `i` over `x` `[T, n]`. Canvas passes leave the cache alone and have a scalar of their own.
    fn layer(
        &self,
        b: &mut ProgramBuilder,
        i: usize,
        x: Val,
        table: Val,
        mask: Mask,
    ) -> Result<Val, ComputeError> {
        let l = &self.layers[i];
        let canvas = matches!(mask, Mask::Canvas { .. });
        let h = self.norm(b, x, Some(l.attn_norm))?;
        b.tap("attn_norm", h);
        let cache = if canvas { Cache::Read } else { Cache::Append };
        let o = l.attn.build(b, h, table, mask, (i, cache))?; // [T, n]
        let o = self.norm(b, o, Some(l.attn_post_norm))?;
        b.tap("attn_post_norm", o);
        let a = b.add(x, o)?;
        b.tap("attn_out", a);

        let u = self.norm(b, a, Some(l.ffn_norm))?;
        b.tap("ffn_norm_1", u);
        let dense = l.mlp.build(b, u)?; // [T, n]
        let dense = self.norm(b, dense, Some(l.mlp_post_norm))?;
        b.tap("ffn_mlp", dense);

        let u = self.norm(b, a, Some(l.moe_norm))?;
        b.tap("ffn_norm_2", u);
        // The router reads the residual stream itself, through its own norm and scale.
        let r = self.norm(b, a, Some(l.router_scale))?;
        let r = b.scale(r, Factor::Const(1.0 / (self.config.d_model as f64).sqrt()))?;
        let route = l.router.build(b, r)?; // ids, weights: [T, k]
        let moe = l.experts.build(b, u, route)?; // [T, n]
        let moe = self.norm(b, moe, Some(l.moe_post_norm))?;
        b.tap("ffn_moe", moe);

        let f = b.add(dense, moe)?;
        b.tap("ffn_moe_combined", f);
        let f = self.norm(b, f, Some(l.ffn_post_norm))?;
        b.tap("ffn_post_norm", f);
        let y = b.add(a, f)?;
        // The scalar multiplies the residual too.
        let y = b.scale(y, Factor::Scalar(if canvas { l.canvas_scale } else { l.prompt_scale }))?;
        b.tap("l_out", y);
        Ok(y)
    }
}

impl Layer {
    fn load(w: &mut WeightLoader<'_>, c: &Config, i: usize, scalars: Scalars) -> Layer {
        let name = |n: &str| format!("blk.{i}.{n}");
        let (n, act) = (c.d_model, Activation::GeluTanh);
        let d = if c.sliding[i] { c.head_dim_swa } else { c.head_dim };
        let attention = AttentionKind {
            heads: Heads { q: c.n_heads[i], kv: c.n_kv_heads[i], dim: d },
            // Full layers take their values from the raw key projection; scores are not scaled.
            own_values: c.sliding[i],
            bias: false,
            norms: HeadNorms::QueryKeyValue,
            eps: c.eps,
            style: RopeStyle::Neox,
            scale: 1.0,
        };
        Layer {
            attn_norm: w.vector(&name("attn_norm.weight"), n),
            attn: SelfAttention::load(w, &name("attn_"), n, attention),
            attn_post_norm: w.vector(&name("post_attention_norm.weight"), n),
            ffn_norm: w.vector(&name("ffn_norm.weight"), n),
            mlp: GatedMlp::load(w, [&name("ffn_"), ""], c.d_ff, n, act),
            mlp_post_norm: w.vector(&name("post_ffw_norm_1.weight"), n),
            router_scale: w.vector(&name("ffn_gate_inp.scale"), n),
            router: Router {
                w: w.matrix(&name("ffn_gate_inp.weight"), c.n_experts, n),
                routing: Routing {
                    expert_scale: Some(w.vector(&name("ffn_down_exps.scale"), c.n_experts)),
                    ..Routing::softmax(c.n_used, true)
                },
                scale: None,
            },
            moe_norm: w.vector(&name("pre_ffw_norm_2.weight"), n),
            experts: Experts::load(w, &name("ffn_"), c.n_experts, c.d_expert, n, act),
            moe_post_norm: w.vector(&name("post_ffw_norm_2.weight"), n),
            ffn_post_norm: w.vector(&name("post_ffw_norm.weight"), n),
            prompt_scale: w.vector(&name(scalars.prompt), 1),
            canvas_scale: w.vector(&name(scalars.canvas), 1),
        }
    }
}
