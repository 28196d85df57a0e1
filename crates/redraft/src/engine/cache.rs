//! Caches for models that read prompt and answer whole: keys and values that the steps of one block share.
//!
//! In these models every key and value depends on the whole sequence, so a cache is an approximation. That of Fast-dLLM
//! (arXiv:2505.22618, section 3.2): the first step of a block reads everything, and the later ones take keys and values
//! outside the block as that step left them: of what is before the block ([`BlockCache::Prefix`]), or also of what is
//! after it ([`BlockCache::Dual`]). What a step does not read it does not predict.

use std::ops::Range;

use super::CanvasPass;
use crate::arch::Reading;
use crate::{Error, Model};

/// Which keys and values the later steps of a block take from its first one. Everything but `None` changes answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockCache {
    /// None: each step reads the whole sequence.
    #[default]
    None,
    /// Those before the block: later steps read the block and what is after it.
    Prefix,
    /// Those before and after the block: later steps read the block alone.
    Dual,
}

impl BlockCache {
    /// All of them.
    pub const ALL: &[BlockCache] = &[BlockCache::None, BlockCache::Prefix, BlockCache::Dual];

    /// The name in options and reports.
    ///
    /// ```
    /// use redraft::engine::BlockCache;
    ///
    /// assert_eq!(BlockCache::default().name(), "none");
    /// assert_eq!(BlockCache::from_name("dual"), Some(BlockCache::Dual));
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            BlockCache::None => "none",
            BlockCache::Prefix => "prefix",
            BlockCache::Dual => "dual",
        }
    }

    /// The cache of that name.
    pub fn from_name(name: &str) -> Option<BlockCache> {
        BlockCache::ALL.iter().copied().find(|c| c.name() == name)
    }
}

/// A step of a block with a cache, in a model that reads whole sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockStep {
    /// What is taken from the cache; with [`BlockCache::None`] it is no step of a block.
    pub cache: BlockCache,
    /// First position of the block in the canvas.
    pub begin: usize,
    /// The position after its last one.
    pub end: usize,
    /// The first step of the block, which fills the cache of the session anew; the later ones find it there.
    pub first: bool,
}

/// What a pass reads of a sequence, and what of it the cache holds then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reads {
    /// Positions of the sequence that are read, one row each.
    pub(super) rows: Range<usize>,
    /// Tokens that are in the cache: before this pass, or after one that fills it.
    pub(super) cached: usize,
    /// The rows of a pass that fills the cache, the cached ones first; what follows these is forgotten.
    pub(super) fill: Option<Vec<u32>>,
}

impl BlockStep {
    /// What the step reads of a sequence of `len` tokens whose canvas begins after `lead`. Where predictions are
    /// `shifted`, the row before the block predicts its first position and is read with it.
    pub(super) fn reads(&self, lead: usize, len: usize, shifted: bool) -> Reads {
        let begin = (lead + self.begin).saturating_sub(usize::from(shifted));
        let end = if self.cache == BlockCache::Dual { lead + self.end } else { len };
        let cached = begin + len - end;
        if !self.first {
            return Reads { rows: begin..end, cached, fill: None };
        }
        let order = (0..begin).chain(end..len).chain(begin..end);
        // Rows of a pass are addressed by u32.
        let fill = (cached > 0).then(|| order.map(|row| row as u32).collect());
        Reads { rows: 0..len, cached, fill }
    }
}

/// Whether a pass can be a step of a block.
pub(super) fn check(
    model: &Model,
    pass: &CanvasPass<'_>,
    step: BlockStep,
    cfg_scale: f64,
) -> Result<(), Error> {
    let wrong = |what: &str, expected: String, found: String| {
        Err(Error::Request { what: what.into(), expected, found })
    };
    if model.shape().reading != Reading::Whole {
        let found = model.arch().name.into();
        return wrong("block with a cache", "a model that reads prompt and answer whole".into(), found);
    }
    if cfg_scale > 0.0 {
        return wrong("cfg_scale with a cache", "0".into(), cfg_scale.to_string());
    }
    let (n, BlockStep { begin, end, first, .. }) = (pass.ids.len(), step);
    let open = |i: usize| pass.open.is_none_or(|open| open[i]);
    if begin >= end || end > n {
        return wrong("block", format!("positions of a canvas of {n}"), format!("{begin}..{end}"));
    }
    match (0..n).find(|i| !first && !(begin..end).contains(i) && open(*i)) {
        None => Ok(()),
        Some(i) => wrong("open positions of a later step", format!("some of {begin}..{end}"), i.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_reads_what_is_not_in_the_cache() {
        let step = |cache, first| BlockStep { cache, begin: 2, end: 4, first };
        let reads = |cache, first, shifted| {
            let r = step(cache, first).reads(3, 9, shifted);
            (r.rows, r.cached, r.fill)
        };
        // Prompt 0..3, canvas 3..9, block 5..7.
        let (prefix, dual) = (BlockCache::Prefix, BlockCache::Dual);
        assert_eq!(reads(prefix, false, false), (5..9, 5, None));
        assert_eq!(reads(prefix, true, false), (0..9, 5, Some((0..9).collect())));
        assert_eq!(reads(dual, false, false), (5..7, 7, None));
        assert_eq!(reads(dual, true, false), (0..9, 7, Some(vec![0, 1, 2, 3, 4, 7, 8, 5, 6])));
        assert_eq!(reads(dual, false, true), (4..7, 6, None));
        assert_eq!(reads(dual, true, true).2, Some(vec![0, 1, 2, 3, 7, 8, 4, 5, 6]));
    }

    #[test]
    fn a_block_that_is_everything_caches_nothing() {
        for cache in [BlockCache::Prefix, BlockCache::Dual] {
            for shifted in [false, true] {
                for first in [false, true] {
                    let reads = BlockStep { cache, begin: 0, end: 6, first }.reads(0, 6, shifted);
                    assert_eq!(reads, Reads { rows: 0..6, cached: 0, fill: None });
                }
            }
        }
    }
}
