//! A sequence: what the KV cache holds, as tokens.

use std::ops::ControlFlow;

use redraft_compute::SeqId;

use super::TapSink;
use crate::{Error, Model};

/// Rows of one prompt pass at most; longer prompts run in chunks, with the same bits, in bounded memory.
pub(super) const PROMPT_CHUNK: usize = 512;

/// Tokens that a layer with a window keeps at least when it has to save memory.
pub(super) fn kept(window: usize) -> usize {
    window.saturating_add(window / 2)
}

/// A sequence of tokens whose keys and values are cached. Created by [`Model::session`]; its memory stays with
/// the model's backend until [`Model::close`] or the end of the model.
#[derive(Debug)]
pub struct Session {
    seq: SeqId,
    tokens: Vec<u32>,
    /// Sliding layers may have lost the tokens before this one.
    first: usize,
    /// Tokens that a sliding layer sees.
    window: usize,
}

impl Session {
    pub(crate) fn new(seq: SeqId) -> Session {
        Session { seq, tokens: Vec::new(), first: 0, window: 0 }
    }

    pub(crate) fn seq(&self) -> SeqId {
        self.seq
    }

    /// Tokens in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Whether sliding layers have lost tokens that no later one sees, to save memory.
    pub fn is_windowed(&self) -> bool {
        self.first > 0
    }

    /// Makes the cache hold exactly `prompt`: what it shares with the cached tokens from the start is kept,
    /// the rest is computed; all of it where sliding layers have lost what those tokens see. `progress` gets tokens done and tokens in all, before the first chunk and after each
    /// one. Returns how many tokens were kept.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when `progress` breaks; those of the passes. The cache then holds a shorter
    /// prefix of the prompt.
    pub fn set_prompt(
        &mut self,
        model: &mut Model,
        prompt: &[u32],
        sink: &mut dyn TapSink,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<usize, Error> {
        let shared = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let shared = if self.first <= shared.saturating_sub(self.window) { shared } else { 0 };
        model.backend.seq_truncate(self.seq, shared)?;
        self.tokens.truncate(shared);
        self.first = self.first.min(shared);
        if progress(shared, prompt.len()).is_break() {
            return Err(Error::Interrupted);
        }
        for chunk in prompt[shared..].chunks(PROMPT_CHUNK) {
            self.extend(model, chunk, sink)?;
            if progress(self.tokens.len(), prompt.len()).is_break() {
                return Err(Error::Interrupted);
            }
        }
        Ok(shared)
    }

    /// One prompt pass over `ids` after what is cached.
    ///
    /// # Errors
    /// Those of the pass.
    pub fn extend(&mut self, model: &mut Model, ids: &[u32], sink: &mut dyn TapSink) -> Result<(), Error> {
        super::pass::prompt(model, self.seq, self.tokens.len(), ids, sink)?;
        self.tokens.extend_from_slice(ids);
        self.evict(model)
    }

    /// Frees what sliding layers no longer need, where the whole cache is larger than its budget. Half a window more
    /// than needed stays, so that an answer can be taken back.
    fn evict(&mut self, model: &mut Model) -> Result<(), Error> {
        let n = self.tokens.len();
        if model.shape().kv.bytes(model.kv_type(), n) <= model.kv_budget {
            return Ok(());
        }
        let layers = 0..model.shape().n_layers;
        let windows: Vec<(usize, usize)> =
            layers.filter_map(|l| model.arch.window(l).map(|w| (l, w))).collect();
        self.window = windows.iter().map(|&(_, w)| w).max().unwrap_or(0);
        let before = n.saturating_sub(kept(self.window));
        for &(layer, _) in &windows {
            model.backend.seq_forget(self.seq, layer, before)?;
        }
        if !windows.is_empty() {
            self.first = self.first.max(before);
        }
        Ok(())
    }
}
