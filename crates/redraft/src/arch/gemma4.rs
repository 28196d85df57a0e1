//! Gemma 4 with routed experts, an autoregressive model: the twin of DiffusionGemma that other engines read, too.
//! Here it is for measurements alone: one canvas pass over it does the matrix work of a denoising step without
//! self-conditioning. Fact sheet: `docs/models/diffusion-gemma.md`.

use redraft_compute::op::{Distribution, Head};
use redraft_compute::{ComputeError, ProgramBuilder, Val};
use redraft_gguf::Gguf;

use super::{Angles, Arch, ArchSpec, Shape};
use crate::Error;
use crate::layers::{Gemma4, Scalars};
use crate::weights::WeightLoader;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: "gemma4",
    about: "Gemma 4 with routed experts: autoregressive, for `bench` and `trace` only",
    load,
    sampler: None,
    defaults: &[],
    tap_names: &[],
    presets: crate::synth::GEMMA4,
    hf: None,
    pre: None,
    shifted: None,
};

/// Rows of a step where nobody asks for another number, as many as a canvas of DiffusionGemma has.
const ROWS: usize = 256;

struct Twin(Gemma4);

fn load(gguf: &Gguf, w: &mut WeightLoader<'_>, _notes: &mut Vec<String>) -> Result<Box<dyn Arch>, Error> {
    // Of the variants that share the name only this one is here; each of the others says so by its keys.
    let h = super::Hyper::new(gguf.metadata(), SPEC.name);
    for name in ["embedding_length_per_layer_input", "attention.shared_kv_layers"] {
        let found = gguf.metadata().opt_u64(&h.key(name))?.unwrap_or(0);
        if found != 0 {
            return Err(h.wrong(name, "0 (the mixture of experts)", found));
        }
    }
    let scale = "layer_output_scale.weight";
    let mut base = Gemma4::load(gguf, w, SPEC.name, Scalars { prompt: scale, canvas: scale })?;
    base.shape.canvas_len = ROWS;
    Ok(Box::new(Twin(base)))
}

impl Arch for Twin {
    fn shape(&self) -> &Shape {
        &self.0.shape
    }

    fn position_inputs(&self, n_past: usize, rows: usize, angles: Angles) -> Vec<Vec<f64>> {
        self.0.position_inputs(n_past, rows, angles)
    }

    fn window(&self, layer: usize) -> Option<usize> {
        self.0.window(layer)
    }

    fn prompt(&self, b: &mut ProgramBuilder, ids: Val) -> Result<Val, ComputeError> {
        let x = self.0.embed(b, ids)?;
        self.0.stack(b, x, false)
    }

    fn result_norm(&self, b: &mut ProgramBuilder, hidden: Val) -> Result<Val, ComputeError> {
        self.0.result_norm(b, hidden)
    }

    /// Rows that all see each other.
    fn canvas(
        &self,
        b: &mut ProgramBuilder,
        ids: Val,
        _: &[(usize, Distribution)],
    ) -> Result<Val, ComputeError> {
        let x = self.0.embed(b, ids)?;
        let x = self.0.stack(b, x, true)?;
        self.0.result_norm(b, x)
    }

    fn head(&self) -> Head {
        self.0.head()
    }
}
