//! Languages of bytes: how they are put together, and the deterministic automaton that reads them.
//!
//! 1. A language is a tree of [`Node`]s, whose parts can be shared.
//! 2. Thompson's construction makes a non-deterministic automaton of it, from the end to the start, so that a part that
//!    occurs twice before the same rest is built once.
//! 3. The subset construction makes it deterministic. States from which nothing is accepted are left out.
//!
//! Source: Thompson, "Regular expression search algorithm" (1968); Rabin and Scott, "Finite automata and their decision
//! problems" (1959).

use std::collections::HashMap;
use std::rc::Rc;

use super::ConstrainError;

/// States of the non-deterministic automaton at most.
pub(super) const MAX_NFA_STATES: usize = 1 << 20;

/// States of the deterministic automaton at most.
pub(super) const MAX_STATES: usize = 1 << 14;

/// Members of all sets of the subset construction at most, each counted for every class of bytes that it reads. This
/// bounds memory.
const MAX_MEMBERS: usize = 1 << 24;

/// Steps of making languages deterministic at most, which bounds time: states that are looked at.
pub(super) const MAX_WORK: usize = 1 << 27;

/// No state: nothing that follows is accepted.
pub(super) const DEAD: u32 = u32::MAX;

/// A language of bytes.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// One byte of a range, ends included.
    Byte(u8, u8),
    /// One part after another; no parts are the empty text.
    Cat(Rc<[Node]>),
    /// One of several; no parts are no text at all.
    Alt(Rc<[Node]>),
    /// The first parts one after another, `min` of them at least.
    First {
        /// The parts.
        parts: Rc<[Node]>,
        /// At least so many.
        min: u32,
    },
    /// A part several times, `min` to `max` (none: any number), with another between two of them.
    Repeat {
        /// The part, and what stands between two of them.
        parts: Rc<[Node; 2]>,
        /// At least.
        min: u32,
        /// At most.
        max: Option<u32>,
    },
}

impl Node {
    /// One part after another.
    pub(super) fn cat(parts: impl Into<Vec<Node>>) -> Node {
        Node::Cat(parts.into().into())
    }

    /// One of several.
    pub(super) fn alt(parts: impl Into<Vec<Node>>) -> Node {
        Node::Alt(parts.into().into())
    }

    /// The empty text.
    pub(super) fn empty() -> Node {
        Node::cat([])
    }

    /// No text at all.
    pub(super) fn never() -> Node {
        Node::alt([])
    }

    /// These bytes.
    pub(super) fn bytes(bytes: &[u8]) -> Node {
        Node::cat(bytes.iter().map(|&b| Node::Byte(b, b)).collect::<Vec<_>>())
    }

    /// This text.
    pub(super) fn text(text: &str) -> Node {
        Node::bytes(text.as_bytes())
    }

    /// The part or nothing.
    pub(super) fn optional(self) -> Node {
        Node::alt([self, Node::empty()])
    }

    /// The part `min` to `max` times.
    pub(super) fn repeat(self, min: u32, max: Option<u32>) -> Node {
        self.list(Node::empty(), min, max)
    }

    /// The part `min` to `max` times, with `between` between two of them.
    pub(super) fn list(self, between: Node, min: u32, max: Option<u32>) -> Node {
        match max {
            Some(max) if max < min => Node::never(),
            _ => Node::Repeat { parts: Rc::new([self, between]), min, max },
        }
    }

    /// Parts that it is made of, shared ones as often as they occur.
    pub(super) fn size(&self) -> usize {
        let of = |parts: &[Node]| parts.iter().fold(1usize, |sum, part| sum.saturating_add(part.size()));
        match self {
            Node::Byte(..) => 1,
            Node::Cat(parts) | Node::Alt(parts) | Node::First { parts, .. } => of(parts),
            Node::Repeat { parts, .. } => of(&**parts),
        }
    }

    /// Where it stands in memory, for parts that can be shared.
    fn address(&self) -> Option<usize> {
        match self {
            Node::Byte(..) => None,
            Node::Cat(parts) | Node::Alt(parts) | Node::First { parts, .. } if parts.is_empty() => None,
            Node::Cat(parts) | Node::Alt(parts) | Node::First { parts, .. } => Some(parts.as_ptr() as usize),
            Node::Repeat { parts, .. } => Some(Rc::as_ptr(parts) as usize),
        }
    }
}

/// A state of the non-deterministic automaton.
enum Thompson {
    /// Goes on to each of these without reading.
    Goes(Vec<u32>),
    /// Reads a byte of a range.
    Reads(u8, u8, u32),
    /// The text can end here.
    Ends,
}

/// Builds the non-deterministic automaton, of which the rest stands before a part is built.
struct Builder {
    states: Vec<Thompson>,
    /// The start of a part before a rest, by its address, its bounds and the rest.
    built: HashMap<(usize, u32, Option<u32>, u32), u32>,
    /// The state that reads a byte of a range before a rest: characters share the ends of their UTF-8.
    reads: HashMap<(u8, u8, u32), u32>,
}

impl Builder {
    fn push(&mut self, state: Thompson) -> Result<u32, ConstrainError> {
        if self.states.len() >= MAX_NFA_STATES {
            return Err(ConstrainError::TooLarge {
                what: "states of the language before it is made deterministic",
                found: self.states.len() + 1,
                limit: MAX_NFA_STATES,
            });
        }
        self.states.push(state);
        Ok(self.states.len() as u32 - 1)
    }

    /// The start of `node` where `rest` follows.
    fn build(&mut self, node: &Node, rest: u32) -> Result<u32, ConstrainError> {
        let (min, max) = match *node {
            Node::Repeat { min, max, .. } => (min, max),
            Node::First { min, .. } => (min, None),
            _ => (0, None),
        };
        let key = node.address().map(|address| (address, min, max, rest));
        if let Some(&start) = key.as_ref().and_then(|key| self.built.get(key)) {
            return Ok(start);
        }
        let start = match node {
            &Node::Byte(lo, hi) => match self.reads.get(&(lo, hi, rest)) {
                Some(&start) => start,
                None => {
                    let start = self.push(Thompson::Reads(lo, hi, rest))?;
                    self.reads.insert((lo, hi, rest), start);
                    start
                }
            },
            Node::Cat(parts) => parts.iter().rev().try_fold(rest, |rest, part| self.build(part, rest))?,
            Node::Alt(parts) => {
                let starts: Result<_, _> = parts.iter().map(|part| self.build(part, rest)).collect();
                let starts = starts?;
                self.push(Thompson::Goes(starts))?
            }
            Node::First { parts, min } => {
                let mut after = rest;
                for (i, part) in (0..parts.len() as u32).zip(&**parts).rev() {
                    let one = self.build(part, after)?;
                    after = if i >= *min { self.push(Thompson::Goes(vec![rest, one]))? } else { one };
                }
                after
            }
            Node::Repeat { parts, min, max } => self.repeat(parts, *min, *max, rest)?,
        };
        if let Some(key) = key {
            self.built.insert(key, start);
        }
        Ok(start)
    }

    fn repeat(
        &mut self,
        [part, between]: &[Node; 2],
        min: u32,
        max: Option<u32>,
        rest: u32,
    ) -> Result<u32, ConstrainError> {
        // What follows the part that was read last.
        let mut after = match max {
            Some(_) => rest,
            None => {
                // A loop: its part is built before what it comes back to is known.
                let again = self.push(Thompson::Goes(vec![rest]))?;
                let one = self.build(part, again)?;
                let next = self.build(between, one)?;
                if let Thompson::Goes(to) = &mut self.states[again as usize] {
                    to.push(next);
                }
                again
            }
        };
        // Copies before the loop; with an end, as many as there may be.
        let copies = max.unwrap_or(min);
        for left in (0..copies).rev() {
            // `left` copies come before this one.
            let one = self.build(part, after)?;
            let next = if left == 0 { one } else { self.build(between, one)? };
            after = match () {
                () if left >= min => self.push(Thompson::Goes(vec![rest, next]))?,
                () => next,
            };
        }
        match (max, min) {
            // The loop stands behind the separator only: its first part has none.
            (None, 0) => {
                let one = self.build(part, after)?;
                self.push(Thompson::Goes(vec![rest, one]))
            }
            _ => Ok(after),
        }
    }
}

/// A deterministic automaton over bytes, from each state of which something is accepted.
#[derive(Debug, Clone)]
pub(super) struct Automaton {
    /// The class of each byte; bytes of a class are the same to every state.
    class: [u8; 256],
    classes: usize,
    /// `[state, class]`.
    next: Vec<u32>,
    accepts: Vec<bool>,
}

impl Automaton {
    /// The automaton of a language.
    ///
    /// # Errors
    /// [`ConstrainError::TooLarge`], and [`ConstrainError::Empty`] where there is no text in it.
    pub(super) fn new(language: &Node) -> Result<Automaton, ConstrainError> {
        Automaton::spending(language, &mut 0)
    }

    /// The automaton of one of several languages, where so many steps were taken for those before it.
    ///
    /// # Errors
    /// As [`Automaton::new`].
    pub(super) fn spending(language: &Node, work: &mut usize) -> Result<Automaton, ConstrainError> {
        let mut b = Builder { states: vec![Thompson::Ends], built: HashMap::new(), reads: HashMap::new() };
        let start = b.build(language, 0)?;
        *work = work.saturating_add(b.states.len());
        Subsets::new(&b.states, work).automaton(start)?.trimmed()
    }

    /// The state in which it begins.
    pub(super) const START: u32 = 0;

    /// Number of states.
    pub(super) fn len(&self) -> usize {
        self.accepts.len()
    }

    /// The state after a byte, or [`DEAD`].
    pub(super) fn next(&self, state: u32, byte: u8) -> u32 {
        match state {
            DEAD => DEAD,
            _ => self.next[state as usize * self.classes + usize::from(self.class[usize::from(byte)])],
        }
    }

    /// Whether a text can end in a state.
    pub(super) fn accepts(&self, state: u32) -> bool {
        self.accepts.get(state as usize).is_some_and(|&accepts| accepts)
    }

    /// Whether a text is in the language.
    pub(super) fn contains(&self, text: &[u8]) -> bool {
        self.accepts(text.iter().fold(Automaton::START, |state, &byte| self.next(state, byte)))
    }

    /// The same language after a space that may be left out where the text does not begin with one.
    ///
    /// Tokenizers that put a space in front of a text take one away when they decode.
    pub(super) fn after_space(mut self) -> Automaton {
        let (start, space) = (self.len() as u32, usize::from(self.class[usize::from(b' ')]));
        // A class of its own for the space.
        if (0..256).any(|b| b != usize::from(b' ') && usize::from(self.class[b]) == space) {
            let classes = self.classes;
            let rows = self.next.chunks(classes).flat_map(|row| row.iter().copied().chain([row[space]]));
            self.next = rows.collect();
            self.class[usize::from(b' ')] = classes as u8;
            self.classes += 1;
        }
        let space = usize::from(self.class[usize::from(b' ')]);
        let mut first = self.next[..self.classes].to_vec();
        first[space] = Automaton::START;
        self.next.extend(first);
        self.accepts.push(self.accepts[0]);
        self.with_start(start)
    }

    /// The automaton that begins in another state, which becomes the first.
    fn with_start(mut self, start: u32) -> Automaton {
        let swapped = |state: u32| match state {
            0 => start,
            s if s == start => 0,
            s => s,
        };
        self.next.iter_mut().for_each(|to| *to = swapped(*to));
        for class in 0..self.classes {
            self.next.swap(class, start as usize * self.classes + class);
        }
        self.accepts.swap(0, start as usize);
        self
    }

    /// Without states that nothing is accepted from.
    fn trimmed(self) -> Result<Automaton, ConstrainError> {
        let n = self.len();
        let mut before = vec![Vec::new(); n];
        for (s, row) in self.next.chunks(self.classes).enumerate() {
            for &to in row.iter().filter(|&&to| to != DEAD) {
                before[to as usize].push(s as u32);
            }
        }
        let mut live = self.accepts.clone();
        let mut open: Vec<u32> = (0..n as u32).filter(|&s| live[s as usize]).collect();
        while let Some(s) = open.pop() {
            for &from in &before[s as usize] {
                if !live[from as usize] {
                    live[from as usize] = true;
                    open.push(from);
                }
            }
        }
        if !live.first().is_some_and(|&live| live) {
            return Err(ConstrainError::Empty);
        }
        let mut number = 0;
        let renamed: Vec<u32> = live
            .iter()
            .map(|&live| {
                number += u32::from(live);
                if live { number - 1 } else { DEAD }
            })
            .collect();
        let to = |to: u32| if to == DEAD { DEAD } else { renamed[to as usize] };
        let rows = self.next.chunks(self.classes).zip(&live).filter(|(_, live)| **live);
        Ok(Automaton {
            next: rows.flat_map(|(row, _)| row.iter().map(|&t| to(t))).collect(),
            accepts: self.accepts.iter().zip(&live).filter(|(_, live)| **live).map(|(&a, _)| a).collect(),
            ..self
        })
    }
}

/// The subset construction.
struct Subsets<'a> {
    nfa: &'a [Thompson],
    class: [u8; 256],
    classes: usize,
    /// The last set in which a state was put.
    seen: Vec<u32>,
    set: u32,
    /// States that were looked at.
    work: &'a mut usize,
}

impl<'a> Subsets<'a> {
    fn new(nfa: &'a [Thompson], work: &'a mut usize) -> Subsets<'a> {
        // Bytes between two bounds of ranges are the same to all of them.
        let mut begins = [false; 257];
        for state in nfa {
            if let &Thompson::Reads(lo, hi, _) = state {
                begins[usize::from(lo)] = true;
                begins[usize::from(hi) + 1] = true;
            }
        }
        let mut class = [0; 256];
        let mut classes = 0;
        for b in 0..256 {
            classes += usize::from(b > 0 && begins[b]);
            class[b] = classes as u8;
        }
        Subsets { nfa, class, classes: classes + 1, seen: vec![0; nfa.len()], set: 0, work }
    }

    /// The states that read or end, reached from `from` without reading; ascending.
    ///
    /// # Errors
    /// [`ConstrainError::TooLarge`] when it looked at too many.
    fn closure(&mut self, from: &[u32]) -> Result<Vec<u32>, ConstrainError> {
        self.set += 1;
        let mut open = from.to_vec();
        let mut set = Vec::new();
        while let Some(s) = open.pop() {
            *self.work += 1;
            if std::mem::replace(&mut self.seen[s as usize], self.set) == self.set {
                continue;
            }
            match &self.nfa[s as usize] {
                Thompson::Goes(to) => open.extend(to),
                Thompson::Reads(..) | Thompson::Ends => set.push(s),
            }
        }
        if *self.work > MAX_WORK {
            let what = "steps of making it deterministic";
            return Err(ConstrainError::TooLarge { what, found: *self.work, limit: MAX_WORK });
        }
        set.sort_unstable();
        Ok(set)
    }

    fn automaton(mut self, start: u32) -> Result<Automaton, ConstrainError> {
        let mut sets = vec![Rc::<[u32]>::from(self.closure(&[start])?)];
        let mut numbers = HashMap::from([(Rc::clone(&sets[0]), 0)]);
        let (mut next, mut accepts) = (Vec::new(), Vec::new());
        let mut at = 0;
        let mut members = 0;
        while at < sets.len() {
            let set = Rc::clone(&sets[at]);
            let mut to = vec![Vec::new(); self.classes];
            let mut ends = false;
            for &s in &*set {
                match self.nfa[s as usize] {
                    Thompson::Reads(lo, hi, after) => {
                        let (lo, hi) = (self.class[usize::from(lo)], self.class[usize::from(hi)]);
                        members += usize::from(hi - lo) + 1;
                        if members > MAX_MEMBERS {
                            let what = "members of the states of the language, for each class of bytes";
                            return Err(ConstrainError::TooLarge {
                                what,
                                found: members,
                                limit: MAX_MEMBERS,
                            });
                        }
                        (lo..=hi).for_each(|c| to[usize::from(c)].push(after));
                    }
                    _ => ends = true,
                }
            }
            accepts.push(ends);
            for from in to {
                if from.is_empty() {
                    next.push(DEAD);
                    continue;
                }
                let set: Rc<[u32]> = self.closure(&from)?.into();
                let fresh = sets.len() as u32;
                let number = *numbers.entry(Rc::clone(&set)).or_insert(fresh);
                if number == fresh {
                    if sets.len() >= MAX_STATES {
                        return Err(ConstrainError::TooLarge {
                            what: "states of the language",
                            found: sets.len() + 1,
                            limit: MAX_STATES,
                        });
                    }
                    sets.push(set);
                }
                next.push(number);
            }
            at += 1;
        }
        Ok(Automaton { class: self.class, classes: self.classes, next, accepts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(node: &Node, texts: &[&str]) -> Vec<bool> {
        let a = Automaton::new(node).unwrap();
        texts.iter().map(|t| a.contains(t.as_bytes())).collect()
    }

    #[test]
    fn parts_are_put_together() {
        let ab = Node::alt([Node::text("a"), Node::text("bc")]);
        assert_eq!(contains(&ab, &["a", "bc", "", "b", "abc"]), [true, true, false, false, false]);
        let texts = ["", "a", "a,bc", "a,a,a", "a,a,a,bc", ",a", "a,"];
        let within = |min, max| contains(&ab.clone().list(Node::text(","), min, max), &texts);
        assert_eq!(within(0, None), [true, true, true, true, true, false, false]);
        assert_eq!(within(1, None), [false, true, true, true, true, false, false]);
        assert_eq!(within(3, None), [false, false, false, true, true, false, false]);
        assert_eq!(within(0, Some(2)), [true, true, true, false, false, false, false]);
        assert_eq!(within(2, Some(3)), [false, false, true, true, false, false, false]);
        assert_eq!(within(0, Some(0)), [true, false, false, false, false, false, false]);
        let some = Node::First { parts: ["a", "b", "c"].map(Node::text).into(), min: 1 };
        assert_eq!(contains(&some, &["", "a", "ab", "abc", "ac"]), [false, true, true, true, false]);
        let twice = Node::text("ab").repeat(2, Some(2));
        assert_eq!(contains(&twice, &["abab", "ab", "ababab"]), [true, false, false]);
    }

    #[test]
    fn shared_parts_are_built_once() {
        // Each of 40 parts is there or not, and each choice is followed by the same rest.
        let mut rest = Node::text("!");
        for _ in 0..40 {
            rest = Node::alt([Node::cat([Node::text("x"), rest.clone()]), rest]);
        }
        let a = Automaton::new(&rest).unwrap();
        assert_eq!(a.len(), 42);
        assert!(a.contains(b"xxx!") && !a.contains(b"xxx"));
    }

    #[test]
    fn nothing_and_too_much_are_errors() {
        assert!(matches!(Automaton::new(&Node::never()), Err(ConstrainError::Empty)));
        let dead = Node::cat([Node::text("a"), Node::never()]);
        assert!(matches!(Automaton::new(&dead), Err(ConstrainError::Empty)));
        // A list of nothing is the empty list.
        assert_eq!(contains(&dead.clone().list(Node::text(","), 0, None), &["", "a"]), [true, false]);
        let long = Node::text("a").repeat(0, Some(20_000));
        let Err(ConstrainError::TooLarge { found, limit, .. }) = Automaton::new(&long) else {
            panic!("too many states")
        };
        assert_eq!((found, limit), (MAX_STATES + 1, MAX_STATES));
        let many = Node::text("abcd").repeat(0, Some(1000)).repeat(1000, Some(1000));
        let Err(ConstrainError::TooLarge { limit, .. }) = Automaton::new(&many) else { panic!("too many") };
        assert_eq!(limit, MAX_NFA_STATES);
    }

    #[test]
    fn readers_of_many_bytes_count_for_each_class() {
        // Bytes of 128 classes, and one state that reads all of them in very many ways.
        let every_other: Vec<Node> = (0..128u8).map(|i| Node::Byte(2 * i, 2 * i)).collect();
        let way = |i: u32| Node::cat([Node::Byte(0, 255), Node::text(&format!("{i:x}"))]);
        let wide =
            |n: u32| Node::alt((0..n).map(way).chain([Node::alt(every_other.clone())]).collect::<Vec<_>>());
        assert!(Automaton::new(&wide(1000)).unwrap().contains(b"x3e7"));
        let Err(ConstrainError::TooLarge { found, limit, .. }) = Automaton::new(&wide(70_000)) else {
            panic!("too many members")
        };
        assert!(limit == MAX_MEMBERS && found < MAX_MEMBERS + 256, "{found}");
    }

    #[test]
    fn a_space_in_front_is_taken_away() {
        let a = |text: &str| Automaton::new(&Node::text(text)).unwrap().after_space();
        assert_eq!(["ab", " ab", "  ab"].map(|t| a("ab").contains(t.as_bytes())), [true, true, false]);
        assert_eq!([" ab", "  ab", "ab"].map(|t| a(" ab").contains(t.as_bytes())), [false, true, false]);
        assert!(a("").contains(b"") && a("").contains(b" "));
    }
}
