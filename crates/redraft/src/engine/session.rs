//! A sequence: what the KV cache holds, as tokens.

use std::ops::ControlFlow;

use redraft_compute::SeqId;

use super::pass::{self, Prompt};
use super::{Penalties, TapSink};
use crate::arch::{Reading, Shape};
use crate::{Error, Model};

/// Rows of one prompt pass at most; longer prompts run in chunks, with the same bits, in bounded memory.
const PROMPT_CHUNK: usize = 512;

/// Rows of one prompt pass at most of a model that has this shape: whole blocks where it reads in blocks, one at least.
pub(super) fn prompt_chunk(shape: &Shape) -> usize {
    match shape.reading {
        Reading::Blocks => (PROMPT_CHUNK / shape.canvas_len).max(1) * shape.canvas_len,
        Reading::Cached | Reading::Whole => PROMPT_CHUNK,
    }
}

/// Tokens that a layer with a window keeps at least when it has to save memory.
pub(super) fn kept(window: usize) -> usize {
    window.saturating_add(window / 2)
}

/// One prompt pass over the tokens of each of these sequences after what it has cached.
///
/// # Errors
/// As [`Session::extend`]. Nothing is cached of any of them then, unless it was the backend that could not forget what sliding
/// layers no longer need.
pub(super) fn extend_all(
    model: &mut Model,
    list: &mut [(&mut Session, &[u32])],
    sink: &mut dyn TapSink,
) -> Result<(), Error> {
    let shape = model.shape();
    let odd = |ids: &[u32]| shape.reading == Reading::Blocks && !ids.len().is_multiple_of(shape.canvas_len);
    if let Some((_, ids)) = list.iter().find(|(_, ids)| odd(ids)) {
        return Err(Error::Request {
            what: "tokens that are read before a canvas".into(),
            expected: format!("whole blocks of {}", shape.canvas_len),
            found: ids.len().to_string(),
        });
    }
    let prompts: Vec<Prompt<'_>> = list
        .iter()
        .map(|(s, new)| Prompt { seq: s.seq, past: &s.tokens, new, penalties: &s.penalties })
        .collect();
    let next = pass::prompts(model, &prompts, sink)?;
    for ((session, ids), next) in list.iter_mut().zip(next) {
        session.next = next;
        session.tokens.extend_from_slice(ids);
    }
    list.iter_mut().try_for_each(|(session, _)| session.evict(model))
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
    /// The token after those in the cache, where the last pass over them predicted it.
    next: Option<u32>,
    /// What weighs on that prediction.
    penalties: Penalties,
}

impl Session {
    pub(crate) fn new(seq: SeqId) -> Session {
        Session { seq, tokens: Vec::new(), first: 0, window: 0, next: None, penalties: Penalties::default() }
    }

    pub(crate) fn seq(&self) -> SeqId {
        self.seq
    }

    /// Tokens in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The token after those in the cache, of models whose passes over whole blocks predict it
    /// ([`Shape::predicts_next`]).
    pub fn next(&self) -> Option<u32> {
        self.next
    }

    /// What weighs on [`next`](Self::next) from now on.
    pub(super) fn set_penalties(&mut self, penalties: &Penalties) {
        if self.penalties != *penalties {
            self.penalties = penalties.clone();
            self.next = None;
        }
    }

    /// Whether sliding layers have lost tokens that no later one sees, to save memory.
    pub fn is_windowed(&self) -> bool {
        self.first > 0
    }

    /// Makes the cache hold exactly `prompt`: what it shares with the cached tokens from the start is kept,
    /// the rest is computed. With [`Reading::Blocks`] `prompt` is whole blocks. `progress` gets tokens done and tokens in all,
    /// before the first chunk and after each one. Returns how many tokens were kept.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when `progress` breaks; those of [`extend`](Self::extend). The cache then holds a shorter
    /// prefix of the prompt.
    pub fn set_prompt(
        &mut self,
        model: &mut Model,
        prompt: &[u32],
        sink: &mut dyn TapSink,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<usize, Error> {
        let shared = self.keep(model, prompt)?;
        loop {
            if progress(self.tokens.len(), prompt.len()).is_break() {
                return Err(Error::Interrupted);
            }
            let part = self.next_part(model.shape(), prompt);
            if part.is_empty() {
                return Ok(shared);
            }
            self.extend(model, part, sink)?;
        }
    }

    /// What follows in `prompt` after what is cached, as much as a pass holds.
    pub(super) fn next_part<'a>(&self, shape: &Shape, prompt: &'a [u32]) -> &'a [u32] {
        let done = self.tokens.len();
        &prompt[done..prompt.len().min(done + prompt_chunk(shape))]
    }

    /// Keeps of the cache what it shares with `prompt` from the start: nothing where sliding layers have lost what the rest of
    /// the prompt sees, whole blocks with [`Reading::Blocks`], since the tokens of a block see each other. Returns how many
    /// tokens that are.
    ///
    /// # Errors
    /// Those of the backend.
    pub(super) fn keep(&mut self, model: &mut Model, prompt: &[u32]) -> Result<usize, Error> {
        let shared = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let shared = if self.first <= shared.saturating_sub(self.window) { shared } else { 0 };
        let shared = match model.shape().reading {
            Reading::Blocks => model.shape().cached(shared),
            Reading::Cached | Reading::Whole => shared,
        };
        model.backend.seq_truncate(self.seq, shared)?;
        if shared < self.tokens.len() {
            self.tokens.truncate(shared);
            self.next = None;
        }
        self.first = self.first.min(shared);
        Ok(shared)
    }

    /// Makes [`next`](Self::next) known where the cache was cut since: reads the last block again. Returns how many
    /// tokens that were.
    ///
    /// # Errors
    /// Those of [`extend`](Self::extend).
    pub(crate) fn predict_next(&mut self, model: &mut Model, sink: &mut dyn TapSink) -> Result<usize, Error> {
        let shape = model.shape();
        if !shape.predicts_next() || self.next.is_some() || self.tokens.is_empty() {
            return Ok(0);
        }
        let last = self.tokens.split_off(self.tokens.len() - shape.canvas_len);
        model.backend.seq_truncate(self.seq, self.tokens.len())?;
        self.extend(model, &last, sink)?;
        Ok(last.len())
    }

    /// How many of these tokens, which come next, a prompt pass can read: as many as can be cached, and a pass holds.
    pub(super) fn readable(&self, shape: &Shape, ids: &[u32]) -> usize {
        let cached = shape.cached(self.tokens.len() + ids.len()).saturating_sub(self.tokens.len());
        cached.min(prompt_chunk(shape))
    }

    /// One prompt pass over `ids` after what is cached.
    ///
    /// # Errors
    /// [`Error::Request`] with [`Reading::Blocks`] where `ids` are not whole blocks; those of the pass.
    pub fn extend(&mut self, model: &mut Model, ids: &[u32], sink: &mut dyn TapSink) -> Result<(), Error> {
        extend_all(model, &mut [(self, ids)], sink)
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
