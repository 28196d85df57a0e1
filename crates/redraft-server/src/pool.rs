//! Sequences whose keys and values may serve another prompt.

use redraft::Model;
use redraft::engine::Session;

/// Sessions that nobody uses, the least recently used first. Whoever continues a conversation gets the one that has its
/// beginning.
pub(crate) struct Pool {
    idle: Vec<Session>,
    most_bytes: usize,
    most: usize,
}

/// Bytes of keys and values of so many tokens.
pub(crate) fn kv_bytes(model: &Model, tokens: usize) -> usize {
    model.shape().kv.bytes(model.kv_type(), tokens)
}

impl Pool {
    /// Keeps at most `most` sessions, and `most_bytes` of keys and values.
    pub(crate) fn new(most_bytes: usize, most: usize) -> Pool {
        Pool { idle: Vec::new(), most_bytes, most }
    }

    /// The session that shares most with `prompt` from its start, a new one where all would lose most of what they hold.
    pub(crate) fn take(&mut self, model: &mut Model, prompt: &[u32]) -> Result<Session, redraft::Error> {
        let shared = |s: &Session| s.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let fits = |s: &Session| 2 * shared(s) >= s.tokens().len();
        let best = (0..self.idle.len())
            .filter(|&i| fits(&self.idle[i]))
            .max_by_key(|&i| (shared(&self.idle[i]), std::cmp::Reverse(i)));
        match best {
            Some(i) => Ok(self.idle.remove(i)),
            None => model.session(),
        }
    }

    /// Takes a session back, and frees those that were not used for the longest time beyond the limits.
    pub(crate) fn give(&mut self, model: &mut Model, session: Session) {
        self.idle.push(session);
        while self.idle.len() > self.most || self.bytes(model) > self.most_bytes {
            self.free_one(model);
        }
    }

    /// Frees the session that was not used for the longest time; whether there was one.
    pub(crate) fn free_one(&mut self, model: &mut Model) -> bool {
        if self.idle.is_empty() {
            return false;
        }
        model.close(self.idle.remove(0));
        true
    }

    /// Bytes of keys and values.
    pub(crate) fn bytes(&self, model: &Model) -> usize {
        self.idle.iter().map(|s| kv_bytes(model, s.tokens().len())).fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redraft::LoadOptions;

    #[test]
    fn the_longest_beginning_is_reused_and_the_oldest_goes() {
        let mut model = Model::embedded(&LoadOptions::default()).unwrap();
        let row = kv_bytes(&model, 1);
        let mut pool = Pool::new(20 * row, 8);
        let with = |pool: &mut Pool, model: &mut Model, ids: &[u32]| {
            let mut s = pool.take(model, ids).unwrap();
            let kept = s.tokens().iter().zip(ids).take_while(|(a, b)| a == b).count();
            s.set_prompt(model, ids, &mut (), &mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
            (s, kept)
        };
        let (a, kept) = with(&mut pool, &mut model, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(kept, 0);
        pool.give(&mut model, a);
        let (b, kept) = with(&mut pool, &mut model, &[1, 9, 9, 9, 9, 9, 9, 9]);
        assert_eq!(kept, 0, "a conversation is not thrown away for one token");
        pool.give(&mut model, b);
        let (c, kept) = with(&mut pool, &mut model, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(kept, 6);
        pool.give(&mut model, c);
        assert_eq!(pool.bytes(&model), 16 * row);
        let (d, kept) = with(&mut pool, &mut model, &[7; 10]);
        assert_eq!(kept, 0);
        pool.give(&mut model, d);
        assert_eq!((pool.idle.len(), pool.bytes(&model)), (2, 18 * row), "the one with nines is gone");
        assert_eq!(pool.idle[0].tokens()[..2], [1, 2]);
    }
}
