//! A sequence: what the KV cache holds, as tokens.

use std::ops::ControlFlow;

use redraft_compute::SeqId;

use super::TapSink;
use crate::{Error, Model};

/// Rows of one prompt pass at most; longer prompts run in chunks, with the same bits, in bounded memory.
const PROMPT_CHUNK: usize = 512;

/// A sequence of tokens whose keys and values are cached. Created by [`Model::session`]; its memory stays with
/// the model's backend until [`Model::close`] or the end of the model.
#[derive(Debug)]
pub struct Session {
    seq: SeqId,
    tokens: Vec<u32>,
}

impl Session {
    pub(crate) fn new(seq: SeqId) -> Session {
        Session { seq, tokens: Vec::new() }
    }

    pub(crate) fn seq(&self) -> SeqId {
        self.seq
    }

    /// Tokens in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Makes the cache hold exactly `prompt`: what it shares with the cached tokens from the start is kept,
    /// the rest is computed. `progress` gets tokens done and tokens in all, before the first chunk and after each
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
        model.backend.seq_truncate(self.seq, shared)?;
        self.tokens.truncate(shared);
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
        Ok(())
    }
}
