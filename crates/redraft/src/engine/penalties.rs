//! What weighs on logits before a sampler sees them: tokens that must not be, and tokens that were seen.
//!
//! The repetition penalty is that of Keskar, McCann, Varshney, Xiong and Socher, "CTRL" (2019), section 4.1, in the form of
//! transformers' `RepetitionPenaltyLogitsProcessor`; the presence penalty that of OpenAI's API and of llama.cpp, whose order
//! (repetition, then presence) is taken. `docs/samplers.md` says what counts as seen.

use redraft_compute::op::Penalty;

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
}

impl Default for Penalties {
    fn default() -> Penalties {
        Penalties { repetition: 1.0, presence: 0.0, ban: Vec::new() }
    }
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
        let masked = mask.is_some_and(|mask| !ban.contains(&mask));
        if ban.len() + usize::from(masked) >= vocab_len {
            return Err(Error::Request {
                what: "banned tokens".into(),
                expected: format!("one of the {vocab_len} of the vocabulary that is left"),
                found: format!("{} of them", ban.len()),
            });
        }
        let penalty = |name, none| Some(request.params.get(name)).filter(|x| !x.is_nan()).unwrap_or(none);
        Ok(Penalties {
            repetition: penalty("repetition_penalty", 1.0),
            presence: penalty("presence_penalty", 0.0),
            ban,
        })
    }

    /// Whether logits stay as they are.
    pub fn is_none(&self) -> bool {
        self.ban.is_empty() && !self.weighs_seen()
    }

    fn weighs_seen(&self) -> bool {
        self.repetition != 1.0 || self.presence != 0.0
    }

    /// For logits that were divided by `temperature`, one row for each entry of `own`: the token that stands at its position, if
    /// one does. `seen` are all tokens that stand somewhere. A token does not count as seen at the only position that has
    /// it: predicted again, it would push itself away.
    pub(super) fn on(
        &self,
        seen: impl Iterator<Item = u32>,
        own: &[Option<u32>],
        temperature: f64,
    ) -> Penalty {
        let mut seen: Vec<u32> = if self.weighs_seen() { seen.collect() } else { Vec::new() };
        seen.sort_unstable();
        let once = |id: &u32| {
            let first = seen.partition_point(|x| x < id);
            seen.get(first + 1) != Some(id)
        };
        let except = own.iter().map(|id| id.filter(once)).collect();
        seen.dedup();
        // A factor commutes with the temperature, a difference does not.
        let presence = self.presence / temperature;
        Penalty { seen, except, repetition: self.repetition, presence, ban: self.ban.clone() }
    }

    /// The canvas without banned tokens, whose places take those of `instead`.
    pub(super) fn without_banned(&self, canvas: &mut [u32], instead: &[u32]) {
        for (id, &other) in canvas.iter_mut().zip(instead) {
            if self.ban.binary_search(id).is_ok() {
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
        let penalties = Penalties { repetition: 2.0, presence: 0.5, ban: vec![9] };
        let seen = [4, 7, 4, 1, 8];
        let own = [Some(4), None, Some(7), Some(8)];
        let p = penalties.on(seen.into_iter(), &own, 0.5);
        assert_eq!(p.seen, [1, 4, 7, 8]);
        assert_eq!(p.except, [None, None, Some(7), Some(8)], "4 stands at another place, too");
        assert_eq!((p.repetition, p.presence, p.ban), (2.0, 1.0, vec![9]));
        let bans = Penalties { ban: vec![9], ..Penalties::default() };
        assert!(bans.on(seen.into_iter(), &own, 1.0).seen.is_empty(), "nobody asks what was seen");
        assert!(!bans.is_none() && Penalties::default().is_none());
    }
}
