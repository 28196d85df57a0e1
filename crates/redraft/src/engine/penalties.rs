//! What weighs on logits before a sampler sees them: tokens that must not be, and tokens that were seen.
//!
//! The repetition penalty is that of Keskar, McCann, Varshney, Xiong and Socher, "CTRL" (2019), section 4.1, in the form of
//! transformers' `RepetitionPenaltyLogitsProcessor`; the presence penalty that of OpenAI's API and of llama.cpp, whose order
//! (bias, repetition, presence) is taken. That an answer cannot end too early is `min_new_tokens` of transformers. `docs/samplers.md` says what counts as seen.

use redraft_compute::op::{Penalty, RowBan};

use super::{Request, Slot};
use crate::arch::{Noise, Shape};
use crate::{Error, Model};

/// The largest bias, and the smallest with its sign: what is as large forces a token or bans it.
const MAX_BIAS: f64 = 100.0;

/// Penalties and bans of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Penalties {
    /// Logits of tokens that were seen are divided by it, or multiplied where they are below 0; 1 is none.
    pub repetition: f64,
    /// What is subtracted from logits of tokens that were seen; 0 is none.
    pub presence: f64,
    /// Ids in ascending order, and what is added to their logits before all else.
    pub bias: Vec<(u32, f64)>,
    /// Ids that are never drawn, ascending.
    pub ban: Vec<u32>,
    /// Ids that are not drawn at some positions: ends of an answer that is too short for one, what no gap can hold.
    pub places: Vec<PlaceBan>,
}

/// Ids that are not drawn at some positions of the sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceBan {
    /// The ids, ascending.
    pub ids: Vec<u32>,
    /// The position of the first flag.
    pub first: usize,
    /// Whether they are banned, position by position.
    pub at: Vec<bool>,
}

impl PlaceBan {
    fn holds(&self, at: usize) -> bool {
        at.checked_sub(self.first).and_then(|i| self.at.get(i)).is_some_and(|&banned| banned)
    }
}

impl Default for Penalties {
    fn default() -> Penalties {
        Penalties { repetition: 1.0, presence: 0.0, bias: Vec::new(), ban: Vec::new(), places: Vec::new() }
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
    /// Those of a request.
    ///
    /// # Errors
    /// [`Error::Request`] for a ban or a bias of an id that does not exist, a bias that is twice or too large, and where
    /// nothing is left to be drawn.
    pub(crate) fn of(model: &Model, request: &Request) -> Result<Penalties, Error> {
        let vocab_len = model.shape().vocab_len;
        let ascending = |mut ids: Vec<u32>| {
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let ban = ascending(request.ban.clone());
        if let Some(id) = ban.iter().find(|&&id| id as usize >= vocab_len) {
            return Err(Error::Request {
                what: "banned token id".into(),
                expected: format!("0..{vocab_len}"),
                found: id.to_string(),
            });
        }
        let mut bias = request.bias.clone();
        bias.sort_unstable_by_key(|&(id, _)| id);
        let twice = bias.windows(2).find(|w| w[0].0 == w[1].0).map(|w| w[0]);
        let wrong = |&(id, x): &(u32, f64)| id as usize >= vocab_len || x.is_nan() || x.abs() > MAX_BIAS;
        if let Some((id, x)) = bias.iter().copied().find(wrong).or(twice) {
            return Err(Error::Request {
                what: "logit_bias".into(),
                expected: format!(
                    "ids in 0..{vocab_len}, each once, with numbers in -{MAX_BIAS}..={MAX_BIAS}"
                ),
                found: format!("{id}: {x}"),
            });
        }
        bias.retain(|&(_, x)| x != 0.0);
        let penalty = |name, none| Some(request.params.get(name)).filter(|x| !x.is_nan()).unwrap_or(none);
        let (given, tokenizer) = (&request.given, model.tokenizer());
        let flags = |of: fn(Slot) -> bool| given.slots.iter().map(|&slot| of(slot)).collect::<Vec<bool>>();
        let early = (0..penalty("min_tokens", 0.0) as usize).map(|at| given.slot(at, 0).is_open()).collect();
        let gaps = flags(|slot| matches!(slot, Slot::Gap | Slot::SpacedGap));
        let spaced = flags(|slot| slot == Slot::SpacedGap);
        let spaceless = if spaced.contains(&true) { tokenizer.without_space().to_vec() } else { Vec::new() };
        let first = request.prompt.len();
        let places = [
            (request.end_ids.clone(), early),
            // A gap holds text, and does not end the answer.
            ([tokenizer.markers(), request.end_ids.clone()].concat(), gaps),
            (spaceless, spaced),
        ];
        let places = places.into_iter().filter(|(_, at)| at.contains(&true)).map(|(mut ids, at)| {
            ids.retain(|&id| (id as usize) < vocab_len);
            PlaceBan { ids: ascending(ids), first, at }
        });
        let penalties = Penalties {
            repetition: penalty("repetition_penalty", 1.0),
            presence: penalty("presence_penalty", 0.0),
            bias,
            ban,
            places: places.filter(|p| !p.ids.is_empty()).collect(),
        };
        penalties.check(model.shape())?;
        Ok(penalties)
    }

    /// Refuses bans that leave nothing to be drawn somewhere.
    fn check(&self, shape: &Shape) -> Result<(), Error> {
        let end = self.places.iter().map(|p| p.first + p.at.len()).max().unwrap_or(0);
        let here = |at: usize| self.places.iter().map(|p| p.holds(at)).collect::<Vec<bool>>();
        // Positions have few combinations of bans.
        let mut seen = vec![vec![false; self.places.len()]];
        let first = self.places.iter().map(|p| p.first).min().unwrap_or(end);
        for at in first..end {
            let here = here(at);
            if !seen.contains(&here) {
                seen.push(here);
            }
        }
        for here in seen {
            let places = self.places.iter().zip(&here).filter(|(_, here)| **here).flat_map(|(p, _)| &p.ids);
            let mut never: Vec<u32> = self.ban.iter().chain(places).copied().collect();
            never.extend(if let Noise::Mask(mask) = shape.noise { Some(mask) } else { None });
            never.sort_unstable();
            never.dedup();
            if never.len() >= shape.vocab_len {
                let (what, beside) = match here.contains(&true) {
                    true => (
                        "banned tokens, beside those that cannot stand at some position (ends that come too early; \
                         control tokens in a gap; those without a space in a gap after one)",
                        format!(" and {} that cannot stand there", never.len() - self.ban.len()),
                    ),
                    false => ("banned tokens", String::new()),
                };
                return Err(Error::Request {
                    what: what.into(),
                    expected: format!("one of the {} of the vocabulary that is left", shape.vocab_len),
                    found: format!("{} of them{beside}", self.ban.len()),
                });
            }
        }
        Ok(())
    }

    /// Whether logits of positions from `first` on stay as they are.
    pub fn is_none(&self, first: usize) -> bool {
        let places = |p: &PlaceBan| p.at.iter().skip(first.saturating_sub(p.first)).any(|&banned| banned);
        self.ban.is_empty() && self.bias.is_empty() && !self.places.iter().any(places) && !self.weighs_seen()
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
        let row_ban = |ban: &PlaceBan| {
            let rows: Vec<bool> = places.iter().map(|place| ban.holds(place.at)).collect();
            rows.contains(&true).then(|| RowBan { ids: ban.ids.clone(), rows })
        };
        // A factor commutes with the temperature, a difference and a sum do not.
        let presence = self.presence / temperature;
        Penalty {
            bias: self.bias.iter().map(|&(id, x)| (id, x / temperature)).collect(),
            seen,
            except,
            repetition: self.repetition,
            presence,
            ban: self.ban.clone(),
            row_bans: self.places.iter().filter_map(row_ban).collect(),
        }
    }

    /// Whether an id cannot stand at a position of the sequence where others can.
    fn is_misplaced(&self, at: usize, id: u32) -> bool {
        self.places.iter().any(|p| p.holds(at) && p.ids.binary_search(&id).is_ok())
    }

    /// Makes masks of ids that moved to where they cannot stand, in a canvas that begins at `first`.
    pub(super) fn reopen(&self, first: usize, canvas: &mut [u32], mask: u32) {
        for (at, id) in (first..).zip(canvas) {
            if self.is_misplaced(at, *id) {
                *id = mask;
            }
        }
    }

    /// The canvas that begins at `first`, without banned tokens, whose places take those of `instead`.
    pub(super) fn without_banned(&self, first: usize, canvas: &mut [u32], instead: &[u32]) {
        for (at, (id, &other)) in (first..).zip(canvas.iter_mut().zip(instead)) {
            if self.is_misplaced(at, *id) || self.ban.binary_search(id).is_ok() {
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
        // No end before position 12.
        let ends = vec![PlaceBan { ids: vec![2], first: 8, at: vec![true; 4] }];
        let penalties = Penalties {
            repetition: 2.0,
            presence: 0.5,
            ban: vec![9],
            places: ends.clone(),
            bias: vec![(3, -1.0)],
        };
        let seen = [4, 7, 4, 1, 8];
        let places =
            [(9, Some(4)), (11, None), (12, Some(7)), (14, Some(8))].map(|(at, own)| Place { at, own });
        let p = penalties.on(seen.into_iter(), &places, 0.5);
        assert_eq!(p.seen, [1, 4, 7, 8]);
        assert_eq!(p.except, [None, None, Some(7), Some(8)], "4 stands at another place, too");
        assert_eq!((p.repetition, p.presence, p.ban, p.bias), (2.0, 1.0, vec![9], vec![(3, -2.0)]));
        assert_eq!(p.row_bans, [RowBan { ids: vec![2], rows: vec![true, true, false, false] }]);
        let bans = Penalties { ban: vec![9], ..Penalties::default() };
        assert!(bans.on(seen.into_iter(), &places, 1.0).seen.is_empty(), "nobody asks what was seen");
        assert!(!bans.is_none(100) && Penalties::default().is_none(0));
        let guard = Penalties { places: ends, ..Penalties::default() };
        assert!(!guard.is_none(0) && !guard.is_none(11) && guard.is_none(12));
        let mut canvas = [2, 2, 3];
        guard.without_banned(11, &mut canvas, &[7, 8, 9]);
        assert_eq!(canvas, [7, 2, 3]);
        let mut canvas = [2, 2, 3];
        guard.reopen(11, &mut canvas, 5);
        assert_eq!(canvas, [5, 2, 3]);
    }
}
