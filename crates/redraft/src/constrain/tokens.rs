//! From bytes to tokens: what each token does to each state of a language.
//!
//! 1. The texts of the tokens are a tree of bytes. From each state that tokens lead to, the automaton walks this tree, and leaves
//!    a branch where it dies: what a state costs are the bytes that it can read.
//! 2. The tokens that lead from one state to another are a *label*. States that go on alike, such as the insides of all strings of
//!    a schema, share their labels.
//! 3. Tokens that are in the same labels are a *class*: no state can tell them apart, so that a step looks at each of its
//!    logits once and at classes from then on.
//!
//! After the text come tokens that end the answer: one more state, in which only such tokens and padding stand.

use std::collections::HashMap;
use std::rc::Rc;

use super::ConstrainError;
use super::automaton::{Automaton, DEAD};

/// Tokens in all labels together at most.
const MAX_IN_LABELS: usize = 1 << 25;

/// Bytes that are read to build it at most, where no state dies.
const MAX_WALKED: usize = 1 << 30;

/// Edges at most.
const MAX_EDGES: usize = 1 << 21;

/// Classes at most.
const MAX_CLASSES: usize = 1 << 16;

/// No class: the token stands nowhere.
pub(super) const NOWHERE: u32 = u32::MAX;

/// What a language needs to know of a vocabulary.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    /// Number of ids.
    pub len: usize,
    /// Tokens that are text, each once, with their bytes.
    pub texts: Vec<(u32, Vec<u8>)>,
    /// Tokens that end an answer; none of them is text.
    pub end_ids: Vec<u32>,
    /// What may stand after the end, beside further ends.
    pub pad: Option<u32>,
    /// Decoding takes a space at the start of a text away.
    pub strips_space: bool,
}

impl Vocabulary {
    /// Refuses ids that are none, and ids that would lead from a state to two others.
    fn check(&self) -> Result<(), ConstrainError> {
        let wrong = |problem| Err(ConstrainError::Vocabulary { len: self.len, problem });
        let all = self.texts.iter().map(|(id, _)| id).chain(&self.end_ids).chain(&self.pad);
        if let Some(id) = all.copied().find(|&id| id as usize >= self.len) {
            return wrong(format!("expected ids below that, found {id}"));
        }
        let mut is_text = vec![false; self.len];
        for (id, _) in &self.texts {
            if std::mem::replace(&mut is_text[*id as usize], true) {
                return wrong(format!("expected one text for each id, found two for {id}"));
            }
        }
        match self.end_ids.iter().find(|&&id| is_text[id as usize]) {
            Some(id) => {
                wrong(format!("expected ends of an answer that are no text, found {id}, which is both"))
            }
            None => Ok(()),
        }
    }
}

/// Tokens that lead from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) label: u32,
    pub(super) to: u32,
}

/// A deterministic automaton over tokens.
#[derive(Debug, Clone)]
pub(super) struct TokenAutomaton {
    /// Where the edges of each state begin in `edges`, and where the last ends.
    starts: Vec<u32>,
    edges: Vec<Edge>,
    /// The same of the classes of each label.
    label_starts: Vec<u32>,
    label_classes: Vec<u32>,
    /// The class of each id, or [`NOWHERE`].
    pub(super) class_of: Vec<u32>,
    pub(super) n_classes: usize,
    /// Tokens from each state to the end of a text, the token that ends the answer not counted.
    pub(super) shortest: Vec<u32>,
}

/// The tree of the tokens' bytes, parents before children.
struct Tree {
    /// The byte of each node, its depth, the node after its last descendant, and where its tokens begin.
    nodes: Vec<(u8, u32, u32, u32)>,
    /// By node.
    tokens: Vec<u32>,
}

impl Tree {
    fn new(texts: &[(u32, Vec<u8>)]) -> Tree {
        let mut sorted: Vec<&(u32, Vec<u8>)> = texts.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        sorted.sort_by(|a, b| (&a.1, a.0).cmp(&(&b.1, b.0)));
        let mut tree = Tree { nodes: Vec::new(), tokens: Vec::with_capacity(sorted.len()) };
        // The nodes of the text that was read last.
        let mut open: Vec<usize> = Vec::new();
        let mut last: &[u8] = &[];
        for (id, bytes) in sorted {
            let shared = last.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            for node in open.drain(shared..) {
                tree.nodes[node].2 = tree.nodes.len() as u32;
            }
            for (depth, &byte) in (shared as u32..).zip(&bytes[shared..]) {
                open.push(tree.nodes.len());
                tree.nodes.push((byte, depth, 0, tree.tokens.len() as u32));
            }
            tree.tokens.push(*id);
            last = bytes;
        }
        for node in open {
            tree.nodes[node].2 = tree.nodes.len() as u32;
        }
        tree
    }

    fn depth(&self) -> usize {
        self.nodes.iter().map(|n| n.1 as usize + 1).max().unwrap_or(0)
    }

    /// Calls `found` with each token that `automaton` can read from a state, and the state after it. Returns how many bytes were
    /// read.
    fn walk(
        &self,
        automaton: &Automaton,
        from: u32,
        path: &mut [u32],
        mut found: impl FnMut(u32, u32),
    ) -> usize {
        let (mut at, mut read) = (0, 0);
        path[0] = from;
        while let Some(&(byte, depth, after, first)) = self.nodes.get(at) {
            read += 1;
            let to = automaton.next(path[depth as usize], byte);
            if to == DEAD {
                at = after as usize;
                continue;
            }
            path[depth as usize + 1] = to;
            at += 1;
            // The tokens of this node are those before the ones of the next.
            let end = self.nodes.get(at).map_or(self.tokens.len(), |next| next.3 as usize);
            self.tokens[first as usize..end].iter().for_each(|&id| found(id, to));
        }
        read
    }
}

/// Labels, each once.
#[derive(Default)]
struct Labels {
    numbers: HashMap<Rc<[u32]>, u32>,
    all: Vec<Rc<[u32]>>,
    tokens: usize,
}

impl Labels {
    /// The number of a label; `tokens` is empty then.
    fn number(&mut self, tokens: &mut Vec<u32>) -> Result<u32, ConstrainError> {
        let number = match self.numbers.get(tokens.as_slice()) {
            Some(&number) => number,
            None => {
                self.tokens += tokens.len();
                check("tokens in its transitions", self.tokens, MAX_IN_LABELS)?;
                let label: Rc<[u32]> = tokens.as_slice().into();
                let number = self.all.len() as u32;
                self.all.push(Rc::clone(&label));
                self.numbers.insert(label, number);
                number
            }
        };
        tokens.clear();
        Ok(number)
    }
}

fn check(what: &'static str, found: usize, limit: usize) -> Result<(), ConstrainError> {
    if found > limit { Err(ConstrainError::TooLarge { what, found, limit }) } else { Ok(()) }
}

impl TokenAutomaton {
    /// The state in which it begins.
    pub(super) const START: u32 = 0;

    /// The automaton over the tokens of a vocabulary.
    ///
    /// # Errors
    /// [`ConstrainError::TooLarge`]; [`ConstrainError::Vocabulary`]; [`ConstrainError::Unwritable`] where no text of the
    /// language is made of tokens.
    pub(super) fn new(language: Automaton, v: &Vocabulary) -> Result<TokenAutomaton, ConstrainError> {
        v.check()?;
        let automaton = if v.strips_space { language.after_space() } else { language };
        let tree = Tree::new(&v.texts);
        let mut path = vec![DEAD; tree.depth() + 1];
        let mut labels = Labels::default();
        // States of the automaton that tokens lead to, in the order in which they are found.
        let mut number = vec![DEAD; automaton.len()];
        let mut states = vec![Automaton::START];
        number[Automaton::START as usize] = 0;
        let mut edges: Vec<Vec<Edge>> = Vec::new();
        let (mut walked, mut n_edges) = (0, 0);
        // Tokens to each state, and the states that some lead to.
        let mut to_state = vec![Vec::new(); automaton.len()];
        while let Some(&state) = states.get(edges.len()) {
            let mut reached = Vec::new();
            walked += tree.walk(&automaton, state, &mut path, |id, to| {
                let tokens: &mut Vec<u32> = &mut to_state[to as usize];
                if tokens.is_empty() {
                    reached.push(to);
                }
                tokens.push(id);
            });
            check("bytes of tokens that its states can read", walked, MAX_WALKED)?;
            n_edges += reached.len();
            check("transitions", n_edges, MAX_EDGES)?;
            let mut own = Vec::with_capacity(reached.len());
            for to in reached {
                if number[to as usize] == DEAD {
                    number[to as usize] = states.len() as u32;
                    states.push(to);
                }
                let label = labels.number(&mut to_state[to as usize])?;
                own.push(Edge { label, to: number[to as usize] });
            }
            edges.push(own);
        }
        let accepts: Vec<bool> = states.iter().map(|&s| automaton.accepts(s)).collect();
        let shortest = shortest(&edges, &accepts);
        if shortest[Automaton::START as usize] == u32::MAX {
            return Err(ConstrainError::Unwritable);
        }
        TokenAutomaton::with_ends(edges, labels, &accepts, shortest, v)
    }

    /// Adds the state after the end, and leaves out edges to states that no tokens lead out of to an end.
    fn with_ends(
        mut edges: Vec<Vec<Edge>>,
        mut labels: Labels,
        accepts: &[bool],
        mut shortest: Vec<u32>,
        v: &Vocabulary,
    ) -> Result<TokenAutomaton, ConstrainError> {
        edges.iter_mut().for_each(|own| own.retain(|e| shortest[e.to as usize] != u32::MAX));
        let ended = edges.len() as u32;
        let ascending = |mut ids: Vec<u32>| {
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let ends = labels.number(&mut ascending(v.end_ids.clone()))?;
        let filling = labels.number(&mut ascending(v.end_ids.iter().copied().chain(v.pad).collect()))?;
        for (own, _) in edges.iter_mut().zip(accepts).filter(|(_, accepts)| **accepts) {
            own.push(Edge { label: ends, to: ended });
        }
        edges.push(vec![Edge { label: filling, to: ended }]);
        shortest.push(0);
        // Labels that are left; tokens of the others stand nowhere.
        let mut used = vec![false; labels.all.len()];
        edges.iter().flatten().for_each(|e| used[e.label as usize] = true);
        for (tokens, _) in labels.all.iter_mut().zip(&used).filter(|(_, used)| !**used) {
            *tokens = Rc::from([]);
        }
        let (class_of, n_classes) = classes(&labels.all, v.len);
        check("classes of tokens", n_classes, MAX_CLASSES)?;
        let (mut label_starts, mut label_classes) = (vec![0], Vec::new());
        for tokens in &labels.all {
            let mut own: Vec<u32> = tokens.iter().map(|&id| class_of[id as usize]).collect();
            own.sort_unstable();
            own.dedup();
            label_classes.extend(own);
            label_starts.push(label_classes.len() as u32);
        }
        let mut starts = vec![0];
        starts.extend(edges.iter().scan(0, |n, own| {
            *n += own.len() as u32;
            Some(*n)
        }));
        Ok(TokenAutomaton {
            starts,
            edges: edges.into_iter().flatten().collect(),
            label_starts,
            label_classes,
            class_of,
            n_classes,
            shortest,
        })
    }

    /// Number of states, that after the end included.
    pub(super) fn len(&self) -> usize {
        self.shortest.len()
    }

    /// The state after the end.
    pub(super) fn ended(&self) -> u32 {
        self.len() as u32 - 1
    }

    /// Number of labels.
    pub(super) fn n_labels(&self) -> usize {
        self.label_starts.len() - 1
    }

    /// Number of classes of all labels together.
    pub(super) fn n_in_labels(&self) -> usize {
        self.label_classes.len()
    }

    /// Number of edges.
    pub(super) fn n_edges(&self) -> usize {
        self.edges.len()
    }

    /// The edges of a state.
    pub(super) fn edges(&self, state: u32) -> &[Edge] {
        &self.edges[self.starts[state as usize] as usize..self.starts[state as usize + 1] as usize]
    }

    /// The classes of a label, ascending.
    pub(super) fn classes(&self, label: u32) -> &[u32] {
        let starts = &self.label_starts;
        &self.label_classes[starts[label as usize] as usize..starts[label as usize + 1] as usize]
    }

    /// The class of an id, or [`NOWHERE`].
    pub(super) fn class(&self, id: u32) -> u32 {
        self.class_of.get(id as usize).copied().unwrap_or(NOWHERE)
    }

    /// The state after a token; none where the token cannot stand there.
    pub(super) fn next(&self, state: u32, id: u32) -> Option<u32> {
        let class = self.class(id);
        let edge = self.edges(state).iter().find(|e| self.classes(e.label).binary_search(&class).is_ok());
        edge.map(|e| e.to)
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let lists = [&self.starts, &self.label_starts, &self.label_classes, &self.class_of, &self.shortest];
        lists.iter().map(|l| l.len() * 4).sum::<usize>() + self.edges.len() * size_of::<Edge>()
    }
}

/// Edges from each state to one that accepts; `u32::MAX` where none does.
fn shortest(edges: &[Vec<Edge>], accepts: &[bool]) -> Vec<u32> {
    let mut before = vec![Vec::new(); edges.len()];
    for (s, own) in (0..).zip(edges) {
        own.iter().for_each(|e| before[e.to as usize].push(s));
    }
    let mut shortest = vec![u32::MAX; edges.len()];
    let mut open: Vec<u32> = (0..edges.len() as u32).filter(|&s| accepts[s as usize]).collect();
    open.iter().for_each(|&s| shortest[s as usize] = 0);
    for n in 1.. {
        let mut next = Vec::new();
        for s in open {
            for &from in &before[s as usize] {
                if shortest[from as usize] == u32::MAX {
                    shortest[from as usize] = n;
                    next.push(from);
                }
            }
        }
        if next.is_empty() {
            break;
        }
        open = next;
    }
    shortest
}

/// The class of each id, and how many there are: ids of a class are in the same labels.
fn classes(labels: &[Rc<[u32]>], vocab_len: usize) -> (Vec<u32>, usize) {
    let mut class_of = vec![0u32; vocab_len];
    let mut n = 1u32;
    // What became of each class in the label at hand.
    let mut split: HashMap<u32, u32> = HashMap::new();
    for tokens in labels {
        split.clear();
        for &id in &**tokens {
            let class = &mut class_of[id as usize];
            *class = *split.entry(*class).or_insert_with(|| {
                n += 1;
                n - 1
            });
        }
    }
    // Class 0 is in no label, and of the others only the last splits have ids.
    let mut number = vec![NOWHERE; n as usize];
    let mut used = 0;
    for class in &mut class_of {
        if *class == 0 {
            *class = NOWHERE;
            continue;
        }
        let number = &mut number[*class as usize];
        if *number == NOWHERE {
            *number = used;
            used += 1;
        }
        *class = *number;
    }
    (class_of, used as usize)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::automaton::Node;
    use super::*;

    /// Ids are places in `texts`; an empty text is no text.
    pub(crate) fn vocabulary(texts: &[&str], end_ids: &[u32], pad: Option<u32>) -> Vocabulary {
        let texts = (0..).zip(texts).map(|(id, t)| (id, t.as_bytes().to_vec())).collect::<Vec<_>>();
        let len = texts.len();
        let texts = texts.into_iter().filter(|(_, t)| !t.is_empty()).collect();
        Vocabulary { len, texts, end_ids: end_ids.to_vec(), pad, strips_space: false }
    }

    #[test]
    fn tokens_are_told_apart_only_where_a_state_does() {
        let v = vocabulary(&["a", "ab", "b", "c", "abc", "x", "y", "xy", "", ""], &[8], Some(9));
        // abc, or any number of x and y.
        let xy = Node::alt([Node::text("x"), Node::text("y")]).repeat(0, None);
        let a = Automaton::new(&Node::alt([Node::text("abc"), xy])).unwrap();
        let t = TokenAutomaton::new(a, &v).unwrap();
        let class = |id| t.class(id);
        assert!(class(5) == class(6) && class(6) == class(7), "nothing tells x, y and xy apart");
        assert!(class(0) != class(1) && class(2) != class(3) && class(4) != class(3));
        let walk = |ids: &[u32]| ids.iter().try_fold(TokenAutomaton::START, |s, &id| t.next(s, id));
        let ended = Some(t.ended());
        for ids in [&[8][..], &[4, 8], &[0, 2, 3, 8], &[1, 3, 8, 9, 8, 9], &[5, 7, 6, 8]] {
            assert_eq!(walk(ids), ended, "{ids:?}");
        }
        for ids in [&[9][..], &[0, 8], &[4, 5], &[5, 0], &[4, 9], &[8, 0]] {
            assert_eq!(walk(ids), None, "{ids:?}");
        }
        assert_eq!(t.shortest[TokenAutomaton::START as usize], 0);
        assert_eq!(walk(&[0]).map(|s| t.shortest[s as usize]), Some(2), "b, c");
    }

    #[test]
    fn vocabularies_that_contradict_themselves_are_refused() {
        let good = vocabulary(&["a", "b", "", ""], &[2], Some(3));
        let problem = |v: &Vocabulary| {
            let a = Automaton::new(&Node::text("a")).unwrap();
            TokenAutomaton::new(a, v).map(|_| ()).map_err(|e| e.to_string())
        };
        assert_eq!(problem(&good), Ok(()));
        let texts = [&good.texts[..], &[(4, b"c".to_vec())]].concat();
        let twice = [&good.texts[..], &[(1, b"c".to_vec())]].concat();
        for (v, what) in [
            (Vocabulary { texts, ..good.clone() }, "expected ids below that, found 4"),
            (Vocabulary { end_ids: vec![2, 9], ..good.clone() }, "expected ids below that, found 9"),
            (Vocabulary { pad: Some(4), ..good.clone() }, "expected ids below that, found 4"),
            (Vocabulary { len: 1, ..good.clone() }, "expected ids below that, found 1"),
            (Vocabulary { texts: twice, ..good.clone() }, "found two for 1"),
            (Vocabulary { end_ids: vec![2, 0], ..good.clone() }, "found 0, which is both"),
        ] {
            let e = problem(&v).unwrap_err();
            assert!(e.starts_with(&format!("vocabulary of {} ids: ", v.len)) && e.ends_with(what), "{e}");
        }
    }

    #[test]
    fn states_that_no_token_leaves_are_left_out() {
        // Nothing writes d after a.
        let v = vocabulary(&["a", "bc", "dx", ""], &[3], None);
        let a = |text: &str| Automaton::new(&Node::alt([Node::text(text), Node::text("abc")])).unwrap();
        let t = TokenAutomaton::new(a("ad"), &v).unwrap();
        assert_eq!(t.class(2), NOWHERE);
        let only = Automaton::new(&Node::text("ad")).unwrap();
        assert_eq!(TokenAutomaton::new(only, &v).unwrap_err(), ConstrainError::Unwritable);
    }

    #[test]
    fn all_tokens_of_a_tree_are_found() {
        let texts = ["a", "ab", "ab", "abc", "b", "é", "a b"];
        let v = vocabulary(&texts, &[], None);
        let any = Automaton::new(&super::super::regex::whole("(?s).*").unwrap()).unwrap();
        let tree = Tree::new(&v.texts);
        let mut found = Vec::new();
        tree.walk(&any, 0, &mut vec![0; tree.depth() + 1], |id, _| found.push(id));
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6]);
    }
}
