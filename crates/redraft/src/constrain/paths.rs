//! The best canvas of a language, a drawn one, and how likely each token is where only canvases of the language are.
//!
//! A canvas is a path: each position takes the automaton from one state to the next. The probability of a path is the product
//! of those of its tokens, position by position, as the step gives them.
//!
//! 1. *Best*: from the last position to the first, the best score from each state to the end of the canvas (Viterbi, "Error
//!    bounds for convolutional codes and an asymptotically optimum decoding algorithm", 1967). Suresh, Banerjee, Ugare,
//!    Misailovic and Singh, "DINGO: Constrained Inference for Diffusion LLMs" (arXiv 2505.23061, 2025), do this for the
//!    blocks of a diffusion model.
//! 2. *Drawn*: the same with sums in place of maxima gives the probability of what can follow each state. From the first
//!    position to the last, a token is drawn by its own probability times that of what can follow it: the canvas is a draw
//!    from the product of the positions' distributions on condition that it is in the language.
//! 3. *Marginals*: with the sums from the start, too, the probability of each token on that condition, and its entropy.
//!
//! Scores are sums of f32 logits in f64. Of equal scores the token with the lower id wins, from left to right; threads share
//! out whole rows, and everything else is done in order on one, so that the bits are the same everywhere.

use redraft_compute::math::host::{exp, ln};
use redraft_compute::op::RESTRICTED;

use super::tokens::{NOWHERE, TokenAutomaton};

/// What is far below the largest of some terms adds nothing to their sum: e^-45 is less than a hundredth of a rounding.
const NEGLIGIBLE: f64 = 45.0;

/// Sums of this size have lost nothing that matters to numbers that are too small for f64.
const SMALL: f64 = 1e-250;

/// What a position says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Row<'a> {
    /// This token stands there.
    Fixed(u32),
    /// Logits of all ids, `[V]`.
    Logits(&'a [f32]),
    /// Nothing: each token is as likely.
    Free,
}

/// Where a canvas stands in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The state before it.
    pub state: u32,
    /// Tokens of the answer from its first position on; positions after them are cut off.
    pub left: usize,
}

/// How tokens are drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawing<'a> {
    /// Uniform numbers, one for each position.
    pub uniform: &'a [f64],
    /// At each position only so many of the likeliest tokens; 0 is all.
    pub top_k: usize,
    /// At each position the likeliest tokens that have this probability together; 1 is all.
    pub top_p: f64,
}

/// What a step makes of a canvas that is in the language, one entry for each position.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reading {
    /// The best canvas.
    pub best: Vec<u32>,
    /// A drawn one; the best one where nothing is drawn.
    pub drawn: Vec<u32>,
    /// Log-probability of the token of the best canvas at its position.
    pub first: Vec<f32>,
    /// That of the likeliest other token.
    pub second: Vec<f32>,
    /// That of the drawn token.
    pub sampled: Vec<f32>,
    /// Entropy of the position in nats.
    pub entropy: Vec<f32>,
}

/// A sum of exponentials, as its logarithm.
#[derive(Debug, Clone, Copy)]
struct LogSum {
    max: f64,
    /// In units of e^max.
    sum: f64,
}

impl LogSum {
    const NONE: LogSum = LogSum { max: f64::NEG_INFINITY, sum: 0.0 };

    fn add(&mut self, x: f64) {
        if x <= self.max {
            if self.max - x < NEGLIGIBLE {
                self.sum += exp(x - self.max);
            }
        } else if x > f64::NEG_INFINITY {
            let old = if x - self.max < NEGLIGIBLE { self.sum * exp(self.max - x) } else { 0.0 };
            *self = LogSum { max: x, sum: old + 1.0 };
        }
    }

    fn ln(self) -> f64 {
        if self.sum > 0.0 { self.max + ln(self.sum) } else { f64::NEG_INFINITY }
    }
}

/// What a row says of a class of tokens.
#[derive(Debug, Clone, Copy)]
struct ClassRow {
    /// The largest logit, whose it is, and the next one.
    best: f32,
    id: u32,
    second: f32,
    /// Log of the sum of the exponentials.
    sum: f64,
    /// Entropy within the class.
    entropy: f64,
}

const NO_TOKEN: ClassRow = ClassRow {
    best: f32::NEG_INFINITY,
    id: u32::MAX,
    second: f32::NEG_INFINITY,
    sum: f64::NEG_INFINITY,
    entropy: 0.0,
};

/// The best token from a state.
#[derive(Debug, Clone, Copy)]
struct Choice {
    id: u32,
    to: u32,
}

/// The tables of one canvas.
pub(super) struct Paths<'a> {
    automaton: &'a TokenAutomaton,
    rows: &'a [Row<'a>],
    span: Span,
    /// `[row, class]`.
    classes: Vec<ClassRow>,
    /// Log of the sum over a label, `[row, label]`.
    label_sums: Vec<f64>,
    /// `[row, state]`.
    choices: Vec<Choice>,
    /// Log of the sum over all paths from a state to the end, `[row, state]`, one row more than the canvas has.
    follow: Vec<f64>,
}

impl<'a> Paths<'a> {
    /// Bytes of the tables of a canvas.
    pub(super) fn bytes(automaton: &TokenAutomaton, rows: usize) -> usize {
        let class = automaton.n_classes * size_of::<ClassRow>();
        let state = automaton.len() * (size_of::<Choice>() + size_of::<f64>());
        (rows + 1).saturating_mul(class + state + automaton.n_labels() * size_of::<f64>())
    }

    /// What a step goes through for a canvas: at each position all transitions, and the classes of all labels.
    pub(super) fn work(automaton: &TokenAutomaton, rows: usize) -> usize {
        rows.saturating_mul(automaton.n_edges() + automaton.n_in_labels())
    }

    /// Fills the tables; none where no canvas is in the language.
    pub(super) fn new(
        automaton: &'a TokenAutomaton,
        rows: &'a [Row<'a>],
        span: Span,
        threads: usize,
    ) -> Option<Paths<'a>> {
        let n = automaton.len();
        let classes = class_rows(automaton, rows, threads);
        let mut label_sums = Vec::with_capacity(rows.len() * automaton.n_labels());
        let mut choices = vec![Choice { id: u32::MAX, to: u32::MAX }; rows.len() * n];
        let mut follow = vec![f64::NEG_INFINITY; (rows.len() + 1) * n];
        let mut best = vec![f64::NEG_INFINITY; n];
        for s in (0..n as u32).filter(|&s| allowed(automaton, span, s, rows.len())) {
            best[s as usize] = 0.0;
            follow[rows.len() * n + s as usize] = 0.0;
        }
        for row in classes.chunks(automaton.n_classes.max(1)) {
            let max = row.iter().map(|c| c.sum).fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> =
                row.iter().map(|c| if c.sum - max > -700.0 { exp(c.sum - max) } else { 0.0 }).collect();
            for label in 0..automaton.n_labels() as u32 {
                let of = automaton.classes(label);
                let sum = of.iter().fold(0.0, |sum, &c| sum + powers[c as usize]);
                label_sums.push(match sum > SMALL {
                    true => max + ln(sum),
                    false => {
                        let mut sum = LogSum::NONE;
                        of.iter().for_each(|&c| sum.add(row[c as usize].sum));
                        sum.ln()
                    }
                });
            }
        }
        let mut label_best = vec![(f32::NEG_INFINITY, u32::MAX); automaton.n_labels()];
        for at in (0..rows.len()).rev() {
            let row = &classes[at * automaton.n_classes..][..automaton.n_classes];
            for (label, best) in (0..).zip(&mut label_best) {
                *best = automaton.classes(label).iter().fold((f32::NEG_INFINITY, u32::MAX), |best, &c| {
                    let c = row[c as usize];
                    if c.best > best.0 || c.best == best.0 && c.id < best.1 { (c.best, c.id) } else { best }
                });
            }
            let sums = &label_sums[at * automaton.n_labels()..][..automaton.n_labels()];
            let (here, after) = follow[at * n..(at + 2) * n].split_at_mut(n);
            let mut better = vec![f64::NEG_INFINITY; n];
            for s in (0..n as u32).filter(|&s| allowed(automaton, span, s, at)) {
                let (mut most, mut sum) = (f64::NEG_INFINITY, LogSum::NONE);
                let choice = &mut choices[at * n + s as usize];
                for e in automaton.edges(s) {
                    let (logit, id) = label_best[e.label as usize];
                    let score = f64::from(logit) + best[e.to as usize];
                    if score > most || score == most && score > f64::NEG_INFINITY && id < choice.id {
                        (most, *choice) = (score, Choice { id, to: e.to });
                    }
                    sum.add(sums[e.label as usize] + after[e.to as usize]);
                }
                better[s as usize] = most;
                here[s as usize] = sum.ln();
            }
            best = better;
        }
        let reached = best.get(span.state as usize).is_some_and(|&b| b > f64::NEG_INFINITY);
        reached.then_some(Paths { automaton, rows, span, classes, label_sums, choices, follow })
    }

    /// The best canvas.
    pub(super) fn best(&self) -> Vec<u32> {
        let mut state = self.span.state;
        let choose = |at: usize| {
            let choice = self.choices[at * self.automaton.len() + state as usize];
            state = choice.to;
            choice.id
        };
        (0..self.rows.len()).map(choose).collect()
    }

    /// A drawn canvas: at each position, from left to right, the first id in the order of the vocabulary at which the running sum of the
    /// probabilities of ids that can stand there reaches `u` times their sum.
    fn drawn(&self, how: Drawing<'_>) -> Vec<u32> {
        let mut state = self.span.state;
        let mut out = Vec::with_capacity(self.rows.len());
        // The state after each class, and the probability of what can follow it.
        let mut after = vec![(u32::MAX, f64::NEG_INFINITY); self.automaton.n_classes];
        for (at, row) in self.rows.iter().enumerate() {
            let follow = &self.follow[(at + 1) * self.automaton.len()..];
            after.fill((u32::MAX, f64::NEG_INFINITY));
            for e in self.automaton.edges(state) {
                let what = (e.to, follow[e.to as usize]);
                self.automaton.classes(e.label).iter().for_each(|&c| after[c as usize] = what);
            }
            let whole = self.follow[at * self.automaton.len() + state as usize];
            let weight = |id: usize, class: u32| match class {
                NOWHERE => 0.0,
                class => {
                    let x = logit(row, id) + after[class as usize].1 - whole;
                    if x > -NEGLIGIBLE { exp(x) } else { 0.0 }
                }
            };
            let mut weights: Vec<f64> =
                self.automaton.class_of.iter().enumerate().map(|(id, &class)| weight(id, class)).collect();
            restrict(&mut weights, how.top_k, how.top_p);
            let target = how.uniform[at] * weights.iter().fold(0.0, |sum, w| sum + w);
            let mut sum = 0.0;
            let found = weights.iter().position(|&w| {
                sum += w;
                w > 0.0 && sum >= target
            });
            // Rounding cannot leave the sum short: it is the same sum.
            let id =
                found.map_or(self.choices[at * self.automaton.len() + state as usize].id, |id| id as u32);
            state = after.get(self.automaton.class(id) as usize).map_or(u32::MAX, |a| a.0);
            out.push(id);
        }
        out
    }

    /// Everything about the canvas. `how` tokens are drawn, if they are.
    pub(super) fn reading(&self, how: Option<Drawing<'_>>) -> Reading {
        let (a, n) = (self.automaton, self.automaton.len());
        let best = self.best();
        let drawn = how.map_or_else(|| best.clone(), |how| self.drawn(how));
        let mut r = Reading { best, drawn, ..Reading::default() };
        let whole = self.follow[self.span.state as usize];
        let mut before = vec![f64::NEG_INFINITY; n];
        before[self.span.state as usize] = 0.0;
        for at in 0..self.rows.len() {
            let follow = &self.follow[(at + 1) * n..][..n];
            let sums = &self.label_sums[at * a.n_labels()..];
            let mut after = vec![LogSum::NONE; n];
            // Of each label, what can come before and after it.
            let mut around = vec![LogSum::NONE; a.n_labels()];
            for s in (0..n as u32).filter(|&s| before[s as usize] > f64::NEG_INFINITY) {
                for e in a.edges(s).iter().filter(|e| follow[e.to as usize] > f64::NEG_INFINITY) {
                    around[e.label as usize].add(before[s as usize] + follow[e.to as usize]);
                    after[e.to as usize].add(before[s as usize] + sums[e.label as usize]);
                }
            }
            let mut of_class = vec![LogSum::NONE; a.n_classes];
            for (label, around) in (0..).zip(&around) {
                let around = around.ln();
                if around > f64::NEG_INFINITY {
                    a.classes(label).iter().for_each(|&c| of_class[c as usize].add(around));
                }
            }
            let around: Vec<f64> = of_class.into_iter().map(|sum| sum.ln() - whole).collect();
            self.position(at, &around, &mut r);
            before = after.into_iter().map(LogSum::ln).collect();
        }
        r
    }

    /// Appends what position `at` says, where `around` is the probability of all around each class.
    fn position(&self, at: usize, around: &[f64], r: &mut Reading) {
        let (n, row) = (self.automaton.n_classes, &self.rows[at]);
        let first = r.best[at];
        let p = |id: u32| match around.get(self.automaton.class(id) as usize) {
            Some(around) => (logit(row, id as usize) + around).min(0.0),
            None => f64::NEG_INFINITY,
        };
        let mut second = f64::NEG_INFINITY;
        let mut entropy = 0.0;
        for (class, around) in self.classes[at * n..][..n].iter().zip(around) {
            let other = if class.id == first { class.second } else { class.best };
            second = second.max(f64::from(other) + around);
            // Of a class, and of a token within it.
            let share = (class.sum + around).min(0.0);
            if share > -NEGLIGIBLE {
                entropy += exp(share) * (class.entropy - share);
            }
        }
        r.first.push(p(first) as f32);
        r.second.push(second.min(0.0) as f32);
        r.sampled.push(p(r.drawn[at]) as f32);
        r.entropy.push(entropy as f32);
    }
}

/// Whether a state may be there before position `at` of a canvas: a text can be finished within the tokens that are left.
pub(super) fn allowed(automaton: &TokenAutomaton, span: Span, state: u32, at: usize) -> bool {
    match span.left.checked_sub(at) {
        Some(left) => automaton.shortest[state as usize] as usize <= left,
        None => state == automaton.ended(),
    }
}

/// The logit of an id, which can be none.
fn logit(row: &Row<'_>, id: usize) -> f64 {
    let x = match row {
        Row::Fixed(fixed) if *fixed as usize != id => f64::NEG_INFINITY,
        Row::Fixed(_) | Row::Free => 0.0,
        Row::Logits(x) => x.get(id).map_or(f64::NEG_INFINITY, |&x| f64::from(x)),
    };
    if x > RESTRICTED / 2.0 { x } else { f64::NEG_INFINITY }
}

/// What each row says of each class, `[row, class]`. Rows are shared out among threads, each of which takes whole ones.
///
/// The threads are started here: those of a backend take ops, not functions. They sleep meanwhile, and starting some once
/// a step is nothing beside reading all logits several times.
fn class_rows(automaton: &TokenAutomaton, rows: &[Row<'_>], threads: usize) -> Vec<ClassRow> {
    let n = automaton.n_classes;
    let mut all = vec![NO_TOKEN; rows.len() * n];
    let share = rows.len().div_ceil(threads.max(1)).max(1);
    let fill = |rows: &[Row<'_>], out: &mut [ClassRow]| {
        rows.iter().zip(out.chunks_mut(n.max(1))).for_each(|(row, out)| class_row(automaton, row, out));
    };
    std::thread::scope(|scope| {
        let mut shares = rows.chunks(share).zip(all.chunks_mut((share * n).max(1)));
        let own = shares.next();
        for (rows, out) in shares {
            scope.spawn(move || fill(rows, out));
        }
        own.map(|(rows, out)| fill(rows, out))
    });
    all
}

fn class_row(automaton: &TokenAutomaton, row: &Row<'_>, out: &mut [ClassRow]) {
    if let &Row::Fixed(id) = row {
        if let Some(class) = out.get_mut(automaton.class(id) as usize) {
            *class = ClassRow { best: 0.0, id, sum: 0.0, ..NO_TOKEN };
        }
        return;
    }
    let ids = || automaton.class_of.iter().enumerate().filter(|(_, class)| **class != NOWHERE);
    for (id, &class) in ids() {
        let (class, x) = (&mut out[class as usize], logit(row, id) as f32);
        if x > class.best {
            (class.best, class.id, class.second) = (x, id as u32, class.best);
        } else if x > class.second {
            class.second = x;
        }
    }
    // Sums of e^(x - best), and of the same times (x - best).
    let mut sums = vec![(0.0, 0.0); out.len()];
    for (id, &class) in ids() {
        let d = logit(row, id) - f64::from(out[class as usize].best);
        if d > -NEGLIGIBLE {
            let (p, (sum, weighted)) = (exp(d), &mut sums[class as usize]);
            *sum += p;
            *weighted += p * d;
        }
    }
    for (class, (sum, weighted)) in out.iter_mut().zip(sums) {
        if sum > 0.0 {
            class.sum = f64::from(class.best) + ln(sum);
            class.entropy = ln(sum) - weighted / sum;
        }
    }
}

/// Sets all but the `top_k` largest weights to 0, then all but the largest that sum up to `top_p`. Equal weights stay together.
fn restrict(weights: &mut [f64], top_k: usize, top_p: f64) {
    if (top_k == 0 || top_k >= weights.len()) && top_p >= 1.0 {
        return;
    }
    let mut falling: Vec<f64> = weights.iter().copied().filter(|&w| w > 0.0).collect();
    falling.sort_by(|a, b| b.total_cmp(a));
    if top_k > 0 {
        falling.truncate(top_k);
    }
    let target = top_p * falling.iter().fold(0.0, |sum, w| sum + w);
    let mut sum = 0.0;
    let last = falling.iter().position(|w| {
        sum += w;
        sum >= target
    });
    let least = last.and_then(|i| falling.get(i)).or(falling.last()).copied().unwrap_or(0.0);
    weights.iter_mut().filter(|w| **w < least).for_each(|w| *w = 0.0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::automaton::{Automaton, Node};
    use super::super::tokens::tests::vocabulary;
    use super::*;

    const TEXTS: [&str; 8] = ["a", "b", "ab", "ba", "c", "bb", "", ""];
    /// The end and the padding.
    const END: u32 = 6;
    const PAD: u32 = 7;

    fn node() -> impl Strategy<Value = Node> {
        let leaf = prop_oneof!["[abc]{0,3}".prop_map(|t| Node::text(&t)), Just(Node::Byte(b'a', b'b'))];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..3).prop_map(Node::cat),
                prop::collection::vec(inner.clone(), 1..4).prop_map(Node::alt),
                (inner, 0u32..2, 0u32..4)
                    .prop_map(|(n, min, more)| n.repeat(min, (more < 3).then_some(min + more))),
            ]
        })
    }

    /// All canvases of the language, from the bytes alone.
    fn canvases(language: &Automaton, rows: &[Row<'_>], left: usize) -> Vec<Vec<u32>> {
        let fits = |canvas: &[u32]| {
            let text = canvas.iter().position(|&id| id >= END).unwrap_or(canvas.len());
            let filled = canvas[text..].iter().enumerate().all(|(i, &id)| id == END || i > 0 && id == PAD);
            let fixed = canvas.iter().zip(rows).all(|(id, row)| !matches!(row, Row::Fixed(f) if f != id));
            let bytes: String = canvas[..text].iter().map(|&id| TEXTS[id as usize]).collect();
            let can_end = |more: usize| {
                let mut texts = vec![bytes.clone()];
                for _ in 0..more {
                    let longer = |t: &String| TEXTS[..6].iter().map(|x| t.clone() + x).collect::<Vec<_>>();
                    let next: Vec<String> = texts.iter().flat_map(longer).collect();
                    texts.extend(next);
                }
                texts.iter().any(|t| language.contains(t.as_bytes()))
            };
            let n = canvas.len();
            // Tokens that are cut off are none of the reply.
            let whole = text < n && text <= left && can_end(0);
            let partial = text == n && n <= left && can_end((left - n).min(3));
            filled && fixed && (whole || partial)
        };
        let mut all = vec![Vec::new()];
        for _ in rows {
            let longer = |c: &Vec<u32>| (0..8).map(|id| [&c[..], &[id]].concat()).collect::<Vec<_>>();
            all = all.iter().flat_map(longer).collect();
        }
        all.retain(|c| fits(c));
        all
    }

    fn score(rows: &[Row<'_>], canvas: &[u32]) -> f64 {
        rows.iter().zip(canvas).rev().fold(0.0, |sum, (row, &id)| logit(row, id as usize) + sum)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

        /// Everything there is to know of a canvas, against all of them.
        #[test]
        fn nothing_is_better_than_the_best(
            node in node(),
            logits in prop::collection::vec(prop::collection::vec(-6i8..6, 8), 1..5),
            kinds in prop::collection::vec(0u32..30, 5),
            more in 0usize..3,
            cut in 0usize..3,
        ) {
            let Ok(language) = Automaton::new(&node) else { return Ok(()) };
            let Ok(a) = TokenAutomaton::new(language.clone(), &vocabulary(&TEXTS, &[END], Some(PAD))) else {
                return Ok(());
            };
            let logits: Vec<Vec<f32>> = logits.iter().map(|row| row.iter().map(|&x| f32::from(x) / 2.0).collect()).collect();
            let rows: Vec<Row<'_>> = logits.iter().zip(&kinds).map(|(row, &kind)| match kind {
                0..8 => Row::Fixed(kind),
                8 | 9 => Row::Free,
                _ => Row::Logits(row),
            }).collect();
            let left = (rows.len() + more).saturating_sub(cut);
            let all = canvases(&language, &rows, left);
            let span = Span { state: TokenAutomaton::START, left };
            let Some(paths) = Paths::new(&a, &rows, span, 1 + more) else {
                prop_assert_eq!(all, Vec::<Vec<u32>>::new());
                return Ok(());
            };
            prop_assert!(!all.is_empty());
            let most = all.iter().map(|c| score(&rows, c)).fold(f64::NEG_INFINITY, f64::max);
            // The first in the order of ids among equals.
            let best = all.iter().find(|c| score(&rows, c) == most).unwrap();
            prop_assert_eq!(&paths.best(), best);
            let uniform: Vec<f64> = (0..rows.len()).map(|i| (i as f64 * 0.37 + 0.21) % 1.0).collect();
            let r = paths.reading(Some(Drawing { uniform: &uniform, top_k: 0, top_p: 1.0 }));
            prop_assert!(all.contains(&r.drawn));
            let total: f64 = all.iter().map(|c| score(&rows, c).exp()).sum();
            for at in 0..rows.len() {
                let p: Vec<f64> = (0..8).map(|id| {
                    all.iter().filter(|c| c[at] == id).map(|c| score(&rows, c).exp()).sum::<f64>() / total
                }).collect();
                let near = |log: f32, p: f64| (f64::from(log).exp() - p).abs() < 1e-6;
                prop_assert!(near(r.first[at], p[best[at] as usize]), "{} {:?}", r.first[at], p);
                prop_assert!(near(r.sampled[at], p[r.drawn[at] as usize]));
                let second = (0..8).filter(|&id| id != best[at]).map(|id| p[id as usize]).fold(0.0, f64::max);
                prop_assert!(near(r.second[at], second), "{} {}", r.second[at], second);
                let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
                prop_assert!((f64::from(r.entropy[at]) - entropy).abs() < 1e-5);
            }
        }
    }

    /// Canvases are drawn as often as they should be.
    #[test]
    fn canvases_are_drawn_by_their_probability() {
        let language = super::super::regex::whole("a(b|ba)*|c{2}|(ab)*").unwrap();
        let language = Automaton::new(&language).unwrap();
        let a = TokenAutomaton::new(language.clone(), &vocabulary(&TEXTS, &[END], Some(PAD))).unwrap();
        let logits: Vec<Vec<f32>> =
            (0..4).map(|i| (0..8).map(|id| ((i * 8 + id) * 37 % 11) as f32 / 4.0).collect()).collect();
        let rows: Vec<Row<'_>> = logits.iter().map(|row| Row::Logits(row)).collect();
        let all = canvases(&language, &rows, 4);
        let paths = Paths::new(&a, &rows, Span { state: TokenAutomaton::START, left: 4 }, 1).unwrap();
        let total: f64 = all.iter().map(|c| score(&rows, c).exp()).sum();
        let draws = 20_000u32;
        let mut counts = std::collections::BTreeMap::<Vec<u32>, f64>::new();
        // Numbers in (0, 1) of a generator that has nothing to do with the engine's.
        let mut seed = 1u64;
        let mut number = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) as f64 + 0.5) / f64::from(1u32 << 31)
        };
        for _ in 0..draws {
            let uniform: Vec<f64> = (0..4).map(|_| number()).collect();
            *counts.entry(paths.drawn(Drawing { uniform: &uniform, top_k: 0, top_p: 1.0 })).or_default() +=
                1.0;
        }
        assert!(all.len() > 20 && counts.keys().all(|c| all.contains(c)));
        let chi: f64 = all
            .iter()
            .map(|c| {
                let want = score(&rows, c).exp() / total * f64::from(draws);
                (counts.get(c).copied().unwrap_or(0.0) - want).powi(2) / want
            })
            .sum();
        // Mean and standard deviation of chi-square with so many degrees of freedom.
        let free = all.len() as f64 - 1.0;
        assert!(chi < free + 4.0 * (2.0 * free).sqrt(), "{chi} with {free} degrees of freedom");
    }

    #[test]
    fn restrictions_leave_the_likeliest() {
        let cut = |k, p| {
            let mut w = vec![0.1, 0.4, 0.0, 0.3, 0.1, 0.1];
            restrict(&mut w, k, p);
            w
        };
        assert_eq!(cut(2, 1.0), [0.0, 0.4, 0.0, 0.3, 0.0, 0.0]);
        assert_eq!(cut(0, 0.5), [0.0, 0.4, 0.0, 0.3, 0.0, 0.0]);
        assert_eq!(cut(0, 0.4), [0.0, 0.4, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(cut(3, 1.0), [0.1, 0.4, 0.0, 0.3, 0.1, 0.1], "equal weights stay together");
        assert_eq!(cut(2, 0.5), [0.0, 0.4, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(cut(0, 1.0), cut(9, 1.0));
    }
}
