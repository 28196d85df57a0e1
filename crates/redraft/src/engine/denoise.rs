//! A canvas on its way from noise to text: where it is, and what its next step asks of the model.

use std::ops::Range;
use std::time::Duration;

use super::pass::Previous;
use super::probabilities::Probabilities;
use super::{BlockStep, Slot};
use crate::arch::Noise;
use crate::sampler::Ask;

/// A canvas being denoised.
pub(super) struct Canvas {
    pub(super) slots: Vec<Slot>,
    /// Positions that are given.
    pub(super) fixed: Vec<bool>,
    /// The number of its draws.
    pub(super) drawn: usize,
    /// Tokens before it.
    pub(super) n_prefix: usize,
    /// Its first token came with the pass before it.
    pub(super) predicted_first: bool,
    pub(super) ids: Vec<u32>,
    /// Of random tokens those that the step before accepted.
    pub(super) accepted: Vec<bool>,
    pub(super) step: usize,
    /// The block whose surroundings are in the cache.
    pub(super) block: Option<Range<usize>>,
    pub(super) accepted_per_step: Vec<usize>,
    pub(super) first_draft: Duration,
    /// How likely its tokens are, where somebody asks.
    pub(super) probabilities: Option<Probabilities>,
    /// What the next step is; none where nothing is open.
    pub(super) asked: Option<Asked>,
}

/// What a step asks of the model.
pub(super) struct Asked {
    pub(super) ask: Ask,
    pub(super) uniform: Vec<f64>,
    pub(super) open: Vec<bool>,
    pub(super) predicted: Vec<bool>,
    pub(super) decided: Vec<bool>,
    pub(super) block: Option<BlockStep>,
    pub(super) previous: Previous<'static>,
}

impl Canvas {
    pub(super) fn any_fixed(&self) -> bool {
        self.fixed.contains(&true)
    }

    pub(super) fn open(&self, noise: Noise, ids: &[u32]) -> Vec<bool> {
        ids.iter().zip(&self.fixed).map(|(&id, &fixed)| !fixed && noise.is_open(id)).collect()
    }

    /// Whether nothing that follows can change the answer: it has an end, everything before that is decided, and what is
    /// decided stays.
    pub(super) fn ended(&self, noise: Noise, ids: &[u32], end_ids: &[u32]) -> bool {
        let Noise::Mask(_) = noise else { return false };
        let free = free_from(&self.slots);
        let open = |i: usize| self.slots[i].is_open() && noise.is_open(ids[i]);
        let ends = |i: usize| i >= free && end_ids.contains(&ids[i]);
        (0..ids.len()).find(|&i| open(i) || ends(i)).is_some_and(|i| !open(i))
    }
}

pub(super) fn fixed_id(slot: Slot) -> Option<u32> {
    match slot {
        Slot::Fixed(id) => Some(id),
        _ => None,
    }
}

/// Where in a canvas an answer can end: after everything that is given and every gap.
pub(super) fn free_from(slots: &[Slot]) -> usize {
    slots.iter().rposition(|&s| s != Slot::Open).map_or(0, |at| at + 1)
}
