//! Short digests of every denoising step.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::engine::{Event, StepEvent};
use crate::model::hex;

/// A denoising step: the first 64 bits of three SHA-256 digests, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepDigests {
    /// Of the ids that went in, u32 little-endian.
    pub canvas: String,
    /// Of what the model made of them: per position the f32 bits of maximum, log-sum-exp and entropy, and the
    /// u32 argmax and sample.
    pub logits: String,
    /// Of what the sampler decided: per position whether it was accepted, as a byte, and the u32 id that goes
    /// into the next step.
    pub decision: String,
}

/// A canvas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanvasDigests {
    /// `converged`, `complete` or `max_steps`; none while it is not done.
    pub stop: Option<String>,
    /// Its steps.
    pub steps: Vec<StepDigests>,
}

/// Makes the digests while an answer is generated.
#[derive(Debug, Default)]
pub struct StepRecorder {
    canvases: Vec<CanvasDigests>,
}

impl StepRecorder {
    /// Notes what an event shows.
    pub fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Prompt { .. } => {}
            Event::Step(step) => {
                if step.step == 0 {
                    self.canvases.push(CanvasDigests { stop: None, steps: Vec::new() });
                }
                if let Some(canvas) = self.canvases.last_mut() {
                    canvas.steps.push(digests(step));
                }
            }
            Event::Commit { stop, .. } => {
                if let Some(canvas) = self.canvases.last_mut() {
                    canvas.stop = Some(stop.name().to_string());
                }
            }
        }
    }

    /// What was recorded so far.
    pub fn canvases(&self) -> &[CanvasDigests] {
        &self.canvases
    }

    /// What was recorded.
    pub(super) fn finish(self) -> Vec<CanvasDigests> {
        self.canvases
    }
}

fn digests(s: &StepEvent<'_>) -> StepDigests {
    let mut canvas = Sha256::new();
    s.canvas_in.iter().for_each(|id| canvas.update(id.to_le_bytes()));
    let mut logits = Sha256::new();
    let r = s.result;
    for i in 0..r.argmax.len() {
        for x in [r.max[i], r.lse[i], r.entropy[i]] {
            logits.update(x.to_bits().to_le_bytes());
        }
        logits.update(r.argmax[i].to_le_bytes());
        logits.update(r.sample[i].to_le_bytes());
    }
    let mut decision = Sha256::new();
    for (accepted, id) in s.decision.accepted.iter().zip(&s.decision.canvas) {
        decision.update([u8::from(*accepted)]);
        decision.update(id.to_le_bytes());
    }
    let short = |hash: Sha256| hex(&hash.finalize()[..8]);
    StepDigests { canvas: short(canvas), logits: short(logits), decision: short(decision) }
}
