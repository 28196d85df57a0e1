//! What a model takes on this machine: memory, and the least time of a step.

use redraft_compute::cpu::CpuLevel;
use redraft_compute::cpu::peak::peak;
use redraft_gguf::available_memory;
use serde::Serialize;

use super::Finding;
use crate::arch::Reading;
use crate::bench::planned;
use crate::engine::{BlockCache, MemoryEstimate};
use crate::sampler::Ask;
use crate::{Error, Model};

/// Tokens of the prompt of the estimate, where the context has room for them.
const PROMPT: usize = 512;

/// What an answer of one canvas takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the answer: one canvas.
    pub answer_tokens: usize,
    /// Bytes of tensor data, mapped from the file.
    pub weights_bytes: u64,
    /// Keys and values.
    pub kv_bytes: u64,
    /// Intermediate results.
    pub buffer_bytes: u64,
    /// Bytes that are free, where the system tells.
    pub available_bytes: Option<u64>,
    /// The expected time of a step, where it was asked for.
    pub roofline: Option<Roofline>,
}

/// A lower bound of the time of a step: its multiply-accumulate operations at the measured peak of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Roofline {
    /// Tokens of the canvas, without a prompt.
    pub rows: usize,
    /// Operations with activations in int8, in 10^9.
    pub int8_gmac: f64,
    /// Operations in f32, in 10^9.
    pub f32_gmac: f64,
    /// Threads that computed while the peak was measured.
    pub threads: usize,
    /// Peak of bytes, in 10^9 operations a second.
    pub int8_gmac_s: f64,
    /// Peak of f32, likewise.
    pub f32_gmac_s: f64,
    /// The bound, in milliseconds.
    pub ms_per_step: f64,
}

impl Figures {
    pub(super) fn of(model: &mut Model, roofline: bool) -> Result<Figures, Error> {
        let (canvas, context) = (model.shape().canvas_len, model.shape().context_len);
        let answer = canvas.min(context);
        let mut prompt = PROMPT.min(context - answer);
        if model.shape().reading == Reading::Blocks {
            prompt -= prompt % canvas.max(1);
        }
        let need = MemoryEstimate::of(model, prompt, answer, Ask::default(), BlockCache::None)?;
        let roofline = if roofline { Some(Roofline::of(model, answer)?) } else { None };
        Ok(Figures {
            prompt_tokens: prompt,
            answer_tokens: answer,
            weights_bytes: model.weights_bytes(),
            kv_bytes: need.kv_bytes,
            buffer_bytes: need.buffer_bytes,
            available_bytes: available_memory(),
            roofline,
        })
    }

    /// A warning where the memory of this machine is too small.
    pub(super) fn too_large(&self) -> Option<Finding> {
        let free = self.available_bytes?;
        let beside = self.kv_bytes.saturating_add(self.buffer_bytes);
        let what = if beside > free {
            format!("an answer takes {beside} bytes beside the weights, {free} are free")
        } else if self.weights_bytes.saturating_add(beside) > free {
            format!(
                "weights and an answer take {} bytes, {free} are free: weights come from the disk again in every step",
                self.weights_bytes.saturating_add(beside)
            )
        } else {
            return None;
        };
        Some(Finding::warning("memory", "this machine", what))
    }
}

impl Roofline {
    fn of(model: &mut Model, rows: usize) -> Result<Roofline, Error> {
        let work = planned(model, rows)?;
        let peak = peak(CpuLevel::best(), model.backend().capabilities().threads.max(1));
        let (int8_gmac, f32_gmac) = (work.int8_macs as f64 / 1e9, work.f32_macs as f64 / 1e9);
        let seconds = int8_gmac / peak.int8_gmacs + f32_gmac / peak.f32_gmacs;
        Ok(Roofline {
            rows,
            int8_gmac,
            f32_gmac,
            threads: peak.threads,
            int8_gmac_s: peak.int8_gmacs,
            f32_gmac_s: peak.f32_gmacs,
            ms_per_step: seconds * 1e3,
        })
    }
}
