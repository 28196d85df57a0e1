//! What weighs on logits before a sampler sees them: tokens that must not be, and tokens that were seen.
//!
//! The repetition penalty is that of Keskar, McCann, Varshney, Xiong and Socher, "CTRL" (2019), section 4.1, in the form of
//! transformers' `RepetitionPenaltyLogitsProcessor`; the presence penalty that of OpenAI's API and of llama.cpp, whose order
//! (repetition, then presence) is taken. That an answer cannot end too early is `min_new_tokens` of transformers. `docs/samplers.md` says what counts as seen.

use redraft_compute::op::{Penalty, RowBan};

use super::Request;
use crate::Error;

/// Penalties and bans of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Penalties {
    /// Logits of tokens that were seen are divided by it, or multiplied where they are below 0; 1 is none.
    pub repetition: f64,
    /// What is subtracted from logits of tokens that were seen; 0 is none.
    pub presence: f64,
    /// Ids that are never drawn, ascending.
    pub ban: Vec<u32>,
    /// Ids that are not drawn at positions of the sequence before [`ends_from`](Self::ends_from), ascending: ends of the
    /// answer.
    pub ends: Vec<u32>,
    /// The first position that may end the answer.
    pub ends_from: usize,
}

impl Default for Penalties {
    fn default() -> Penalties {
        Penalties { repetition: 1.0, presence: 0.0, ban: Vec::new(), ends: Vec::new(), ends_from: 0 }
    }
}

/// A row of logits: the position that it predicts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Position in the sequence.
    pub(super) at: usize,
    /// The token that stands there, if one does.
    pub(super) own: Option<u32>,
}

impl Penalties {
    /// Those of a request for a model of `vocab_len` ids, of which `mask` cannot be drawn either.
    ///
    /// # Errors
    /// [`Error::Request`] for a ban of an id that does not exist, and where nothing is left to be drawn.
    pub(super) fn of(request: &Request, vocab_len: usize, mask: Option<u32>) -> Result<Penalties, Error> {
        let mut ban = request.ban.clone();
        ban.sort_unstable();
        ban.dedup();
        if let Some(id) = ban.iter().find(|&&id| id as usize >= vocab_len) {
            return Err(Error::Request {
                what: "banned token id".into(),
                expected: format!("0..{vocab_len}"),
                found: id.to_string(),
            });
        }
        let penalty = |name, none| Some(request.params.get(name)).filter(|x| !x.is_nan()).unwrap_or(none);
        let min_tokens = penalty("min_tokens", 0.0) as usize;
        let mut ends = if min_tokens > 0 { request.end_ids.clone() } else { Vec::new() };
        ends.retain(|&id| (id as usize) < vocab_len);
        ends.sort_unstable();
        ends.dedup();
        let mut never: Vec<u32> = ban.iter().chain(&ends).copied().chain(mask).collect();
        never.sort_unstable();
        never.dedup();
        if never.len() >= vocab_len {
            let found = match ends.len() {
                0 => format!("{} of them", ban.len()),
                n => format!("{} of them and the {n} that end an answer", ban.len()),
            };
            return Err(Error::Request {
                what: "banned tokens".into(),
                expected: format!("one of the {vocab_len} of the vocabulary that is left"),
                found,
            });
        }
        let ends_from = if ends.is_empty() { 0 } else { request.prompt.len().saturating_add(min_tokens) };
        Ok(Penalties {
            repetition: penalty("repetition_penalty", 1.0),
            presence: penalty("presence_penalty", 0.0),
            ban,
            ends,
            ends_from,
        })
    }

    /// Whether logits of positions from `first` on stay as they are.
    pub fn is_none(&self, first: usize) -> bool {
        self.ban.is_empty() && first >= self.ends_from && !self.weighs_seen()
    }

    fn weighs_seen(&self) -> bool {
        self.repetition != 1.0 || self.presence != 0.0
    }

    /// For logits that were divided by `temperature`, one row for each of `places`, from left to right. `seen` are all tokens
    /// that stand somewhere. A token does not count as seen at the only position that has it: predicted again, it would push
    /// itself away.
    pub(super) fn on(&self, seen: impl Iterator<Item = u32>, places: &[Place], temperature: f64) -> Penalty {
        let mut seen: Vec<u32> = if self.weighs_seen() { seen.collect() } else { Vec::new() };
        seen.sort_unstable();
        let once = |id: &u32| {
            let first = seen.partition_point(|x| x < id);
            seen.get(first + 1) != Some(id)
        };
        let except = places.iter().map(|place| place.own.filter(once)).collect();
        seen.dedup();
        let rows: Vec<bool> = places.iter().map(|place| place.at < self.ends_from).collect();
        let early = rows.contains(&true).then(|| RowBan { ids: self.ends.clone(), rows });
        // A factor commutes with the temperature, a difference does not.
        let presence = self.presence / temperature;
        Penalty {
            seen,
            except,
            repetition: self.repetition,
            presence,
            ban: self.ban.clone(),
            row_bans: early.into_iter().collect(),
        }
    }

    /// Makes masks of ends that moved to where no end may be, in a canvas that begins at `first`.
    pub(super) fn reopen(&self, first: usize, canvas: &mut [u32], mask: u32) {
        for (at, id) in (first..).zip(canvas) {
            if at < self.ends_from && self.ends.binary_search(id).is_ok() {
                *id = mask;
            }
        }
    }

    /// The canvas that begins at `first`, without banned tokens, whose places take those of `instead`.
    pub(super) fn without_banned(&self, first: usize, canvas: &mut [u32], instead: &[u32]) {
        for (at, (id, &other)) in (first..).zip(canvas.iter_mut().zip(instead)) {
            let early = at < self.ends_from && self.ends.binary_search(id).is_ok();
            if early || self.ban.binary_search(id).is_ok() {
                *id = other;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_not_push_itself_away() {
        let penalties =
            Penalties { repetition: 2.0, presence: 0.5, ban: vec![9], ends: vec![2], ends_from: 12 };
        let seen = [4, 7, 4, 1, 8];
        let places =
            [(9, Some(4)), (11, None), (12, Some(7)), (14, Some(8))].map(|(at, own)| Place { at, own });
        let p = penalties.on(seen.into_iter(), &places, 0.5);
        assert_eq!(p.seen, [1, 4, 7, 8]);
        assert_eq!(p.except, [None, None, Some(7), Some(8)], "4 stands at another place, too");
        assert_eq!((p.repetition, p.presence, p.ban), (2.0, 1.0, vec![9]));
        assert_eq!(p.row_bans, [RowBan { ids: vec![2], rows: vec![true, true, false, false] }]);
        let bans = Penalties { ban: vec![9], ..Penalties::default() };
        assert!(bans.on(seen.into_iter(), &places, 1.0).seen.is_empty(), "nobody asks what was seen");
        assert!(!bans.is_none(100) && Penalties::default().is_none(0));
        let guard = Penalties { ends: vec![2], ends_from: 12, ..Penalties::default() };
        assert!(!guard.is_none(11) && guard.is_none(12));
        let mut canvas = [2, 2, 3];
        guard.without_banned(11, &mut canvas, &[7, 8, 9]);
        assert_eq!(canvas, [7, 2, 3]);
    }
}
