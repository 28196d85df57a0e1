//! DiffusionGemma: a Gemma-4 mixture of experts that reads its prompt causally and denoises a canvas
//! bidirectionally with the same weights. Fact sheet: `docs/models/diffusion-gemma.md`.

use redraft_compute::op::{Distribution, Head};
use redraft_compute::{ComputeError, ProgramBuilder, Val, WeightId};
use redraft_gguf::Gguf;

use super::{Arch, ArchSpec, Shape};
use crate::Error;
use crate::layers::{GatedMlp, Gemma4, Scalars};
use crate::sampler::PromptWindow;
use crate::weights::WeightLoader;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: "diffusion-gemma",
    about: "DiffusionGemma: causal prompt, bidirectional canvas, dense plus routed experts",
    autoregressive: false,
    load,
    presets: crate::synth::DIFFUSION_GEMMA,
};

/// Width of a canvas where the file does not say (the model card's).
const CANVAS_LEN: usize = 256;

struct SelfConditioning {
    pre_norm: WeightId,
    mlp: GatedMlp,
}

struct DiffusionGemma {
    base: Gemma4,
    self_cond: Option<SelfConditioning>,
}

fn load(gguf: &Gguf, w: &mut WeightLoader<'_>, notes: &mut Vec<String>) -> Result<Box<dyn Arch>, Error> {
    let scalars = Scalars { prompt: "enc_layer_output_scale.weight", canvas: "layer_output_scale.weight" };
    let mut base = Gemma4::load(gguf, w, SPEC.name, scalars)?;
    let has_self_cond =
        ["pre_norm", "gate", "up", "down"].iter().any(|n| w.has(&format!("self_cond_{n}.weight")));
    let self_cond = has_self_cond.then(|| SelfConditioning {
        pre_norm: w.vector("self_cond_pre_norm.weight", base.shape.d_model),
        mlp: base.mlp(w, "self_cond_"),
    });
    if self_cond.is_none() {
        notes.push("the file has no self-conditioning tensors; self-conditioning is off".into());
    }
    base.shape.canvas_len = super::canvas_len(gguf.metadata(), CANVAS_LEN, notes)?;
    base.shape.self_conditioning = self_cond.is_some();
    Ok(Box::new(DiffusionGemma { base, self_cond }))
}

impl Arch for DiffusionGemma {
    fn shape(&self) -> &Shape {
        &self.base.shape
    }

    fn window(&self, layer: usize) -> Option<usize> {
        self.base.window(layer)
    }

    fn set_prompt_window(&mut self, window: PromptWindow) {
        self.base.prompt_window = window;
    }

    fn position_inputs(&self, n_past: usize, rows: usize) -> Vec<Vec<f64>> {
        self.base.position_inputs(n_past, rows)
    }

    fn prompt(&self, b: &mut ProgramBuilder, ids: Val) -> Result<Val, ComputeError> {
        let x = self.base.embed(b, ids)?;
        self.base.stack(b, x, false)
    }

    fn result_norm(&self, b: &mut ProgramBuilder, hidden: Val) -> Result<Val, ComputeError> {
        self.base.result_norm(b, hidden)
    }

    fn canvas(
        &self,
        b: &mut ProgramBuilder,
        ids: Val,
        previous: Option<Distribution>,
    ) -> Result<Val, ComputeError> {
        let m = &self.base;
        let mut x = m.embed(b, ids)?;
        if let (Some(previous), Some(sc)) = (previous, &self.self_cond) {
            let s = b.soft_embed(previous, m.token_embd, m.embed_scale())?; // [T, n]
            b.tap("sc_soft", s);
            let z = m.norm(b, s, Some(sc.pre_norm))?;
            b.tap("sc_normed", z);
            let s = sc.mlp.build(b, z)?; // [T, n]
            b.tap("sc_sig", s);
            x = b.add(x, s)?;
        }
        // The weightless norm applies on the first step too.
        let x = m.norm(b, x, None)?;
        b.tap("inp_region", x);
        let x = m.stack(b, x, true)?;
        m.result_norm(b, x)
    }

    fn head(&self) -> Head {
        self.base.head()
    }
}
