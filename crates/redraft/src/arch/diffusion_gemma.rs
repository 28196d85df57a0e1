//! DiffusionGemma: a Gemma-4 mixture of experts that reads its prompt causally and denoises a canvas
//! bidirectionally with the same weights. Fact sheet: `docs/models/diffusion-gemma.md`.

use redraft_compute::op::{Distribution, Head};
use redraft_compute::{ComputeError, ProgramBuilder, Val};
use redraft_gguf::Gguf;

use super::{Arch, ArchSpec, Shape};
use crate::Error;
use crate::layers::{Gemma4, Scalars, SelfConditioning};
use crate::sampler::{ENTROPY_BOUND, PromptWindow};
use crate::weights::WeightLoader;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: "diffusion-gemma",
    about: "DiffusionGemma: causal prompt, bidirectional canvas, dense plus routed experts",
    load,
    sampler: Some(&ENTROPY_BOUND),
    defaults: &[],
    tap_names: &[],
    presets: crate::synth::DIFFUSION_GEMMA,
    pre: None,
    shifted: None,
};

/// Width of a canvas where the file does not say (the model card's).
const CANVAS_LEN: usize = 256;

struct DiffusionGemma {
    base: Gemma4,
    self_cond: Option<SelfConditioning>,
}

fn load(gguf: &Gguf, w: &mut WeightLoader<'_>, notes: &mut Vec<String>) -> Result<Box<dyn Arch>, Error> {
    let scalars = Scalars { prompt: "enc_layer_output_scale.weight", canvas: "layer_output_scale.weight" };
    let mut base = Gemma4::load(gguf, w, SPEC.name, scalars)?;
    let self_cond = base.self_conditioning(w);
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
            let s = sc.build(b, previous, m.token_embd)?; // [T, n]
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
