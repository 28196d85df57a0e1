//! Shape checks of all ops, in one place and in the order of `op.rs`.

use crate::op::*;
use crate::weight::WeightTable;
use crate::{ComputeError, Kind, Val, WeightId};

/// Smallest epsilon of a norm: 2^-100, so that the mean of a row of zeros stays in the domain of `rsqrt`.
const MIN_EPS: f32 = f32::from_bits((127 - 100) << 23);

/// One failed relation, as an error.
fn wrong(op: &'static str, what: &str, expected: impl ToString, found: impl ToString) -> ComputeError {
    ComputeError::Shape { op, what: what.into(), expected: expected.to_string(), found: found.to_string() }
}

fn eq(op: &'static str, what: &str, expected: usize, found: usize) -> Result<(), ComputeError> {
    if expected == found { Ok(()) } else { Err(wrong(op, what, expected, found)) }
}

fn same(op: &'static str, what: &str, a: Val, b: Val) -> Result<(), ComputeError> {
    if (a.rows(), a.cols(), a.kind()) == (b.rows(), b.cols(), b.kind()) {
        return Ok(());
    }
    Err(wrong(op, what, shape(a), shape(b)))
}

fn shape(v: Val) -> String {
    format!("[{}, {}] {:?}", v.rows(), v.cols(), v.kind())
}

fn kind(op: &'static str, what: &str, v: Val, kind: Kind) -> Result<(), ComputeError> {
    if v.kind() == kind { Ok(()) } else { Err(wrong(op, what, format!("{kind:?}"), shape(v))) }
}

/// Checks a weight against `[experts, rows, cols]`; `None` accepts any extent.
fn weight(
    op: &'static str,
    table: &WeightTable,
    id: WeightId,
    want: [Option<usize>; 3],
) -> Result<[usize; 3], ComputeError> {
    let w = table.get(id)?;
    let have = [w.experts, w.rows, w.cols];
    if want.iter().zip(have).all(|(w, h)| w.is_none_or(|w| w == h)) {
        return Ok(have);
    }
    let want: Vec<String> = want.iter().map(|w| w.map_or("any".into(), |w| w.to_string())).collect();
    Err(wrong(op, &format!("tensor {}", w.name), format!("[{}]", want.join(", ")), format!("{have:?}")))
}

fn vector(op: &'static str, table: &WeightTable, id: WeightId, n: usize) -> Result<(), ComputeError> {
    weight(op, table, id, [Some(1), Some(1), Some(n)]).map(|_| ())
}

impl Op {
    /// Checks every shape and kind that the op relies on.
    ///
    /// # Errors
    /// [`ComputeError::Shape`] naming op, argument, expected and found; [`ComputeError::UnknownHandle`] for
    /// a weight that is not in the table.
    pub fn check(&self, table: &WeightTable) -> Result<(), ComputeError> {
        let op = self.name();
        match self {
            Op::Embed(o) => {
                kind(op, "ids", o.ids, Kind::Int)?;
                eq(op, "columns of ids", 1, o.ids.cols())?;
                weight(op, table, o.table, [Some(1), None, Some(o.out.cols())])?;
                eq(op, "rows of out", o.ids.rows(), o.out.rows())
            }
            Op::SoftEmbed(o) => {
                let vocab = check_distribution(op, table, &o.of)?;
                weight(op, table, o.table, [Some(1), Some(vocab), Some(o.out.cols())])?;
                eq(op, "rows of out", o.of.logits.x.rows(), o.out.rows())
            }
            Op::MatMul(o) => {
                kind(op, "x", o.x, Kind::Real)?;
                weight(op, table, o.w, [Some(1), Some(o.out.cols()), Some(o.x.cols())])?;
                eq(op, "rows of out", o.x.rows(), o.out.rows())?;
                o.bias.map_or(Ok(()), |b| vector(op, table, b, o.out.cols()))
            }
            Op::RmsNorm(o) => {
                kind(op, "x", o.x, Kind::Real)?;
                same(op, "out", o.x, o.out)?;
                if !(MIN_EPS..f32::INFINITY).contains(&o.eps) {
                    return Err(wrong(op, "eps", format!("a finite number of at least {MIN_EPS:e}"), o.eps));
                }
                if o.group == 0 || !o.x.cols().is_multiple_of(o.group) {
                    return Err(wrong(op, "group", format!("a divisor of {}", o.x.cols()), o.group));
                }
                o.weight.map_or(Ok(()), |w| vector(op, table, w, o.group))
            }
            Op::Scale(o) => {
                kind(op, "x", o.x, Kind::Real)?;
                same(op, "out", o.x, o.out)?;
                match o.by {
                    Factor::Const(_) => Ok(()),
                    Factor::Scalar(w) => vector(op, table, w, 1),
                }
            }
            Op::Add(o) => {
                kind(op, "a", o.a, Kind::Real)?;
                kind(op, "b", o.b, Kind::Real)?;
                eq(op, "columns of b", o.a.cols(), o.b.cols())?;
                let end = o.first.saturating_add(o.b.rows());
                if end > o.a.rows() {
                    return Err(wrong(op, "end of the rows of b", format!("at most {}", o.a.rows()), end));
                }
                same(op, "out", o.a, o.out)
            }
            Op::Glu(o) => {
                kind(op, "gate", o.gate, Kind::Real)?;
                same(op, "up", o.gate, o.up)?;
                same(op, "out", o.gate, o.out)
            }
            Op::Rope(o) => {
                kind(op, "x", o.x, Kind::Real)?;
                kind(op, "table", o.table, Kind::Real)?;
                same(op, "out", o.x, o.out)?;
                eq(op, "rows of the table", o.x.rows(), o.table.rows())?;
                eq(op, "columns of the table", o.n_rot, o.table.cols())?;
                if o.head_dim == 0 || o.x.cols() % o.head_dim != 0 {
                    return Err(wrong(op, "head_dim", format!("a divisor of {}", o.x.cols()), o.head_dim));
                }
                if o.n_rot % 2 != 0 || o.n_rot > o.head_dim {
                    return Err(wrong(op, "n_rot", format!("even and at most {}", o.head_dim), o.n_rot));
                }
                Ok(())
            }
            Op::Attention(o) => check_attention(op, o),
            Op::KvAppend(o) => {
                kind(op, "k", o.k, Kind::Real)?;
                kind(op, "v", o.v, Kind::Real)?;
                eq(op, "rows of v", o.k.rows(), o.v.rows())?;
                eq(op, "rows to append", o.segments.rows(), o.k.rows())
            }
            Op::MoeRoute(o) => {
                kind(op, "logits", o.logits, Kind::Real)?;
                same(op, "probs", o.logits, o.probs)?;
                kind(op, "ids", o.ids, Kind::Int)?;
                check_routing(op, table, o.logits.cols(), &o.routing)?;
                let Some(RoutingBlock { len, .. }) = o.routing.block else { return Ok(()) };
                eq(op, "rows of the sequences", o.segments.rows(), o.logits.rows())?;
                match o.segments.iter().find(|s| !s.n_past.is_multiple_of(len)) {
                    Some(s) => Err(wrong(op, "n_past", format!("whole blocks of {len}"), s.n_past)),
                    None => Ok(()),
                }
            }
            Op::MoeExperts(o) => {
                kind(op, "x", o.x, Kind::Real)?;
                kind(op, "ids", o.ids, Kind::Int)?;
                kind(op, "weights", o.weights, Kind::Real)?;
                eq(op, "rows of ids", o.x.rows(), o.ids.rows())?;
                eq(op, "rows of weights", o.ids.rows(), o.weights.rows())?;
                eq(op, "columns of weights", o.ids.cols(), o.weights.cols())?;
                let n = o.x.cols();
                let [e, _, ff] = weight(op, table, o.down, [None, Some(o.out.cols()), None])?;
                match o.gate_up {
                    GateUp::Fused(w) => {
                        weight(op, table, w, [Some(e), ff.checked_mul(2), Some(n)])?;
                    }
                    GateUp::Split { gate, up } => {
                        weight(op, table, gate, [Some(e), Some(ff), Some(n)])?;
                        weight(op, table, up, [Some(e), Some(ff), Some(n)])?;
                    }
                }
                eq(op, "rows of out", o.x.rows(), o.out.rows())
            }
            Op::Softcap(o) => {
                kind(op, "x", o.x, Kind::Real)?;
                same(op, "out", o.x, o.out)?;
                check_factor(op, "cap", o.cap)
            }
            Op::TokenStats(o) => {
                let of = Distribution { logits: o.logits, stats: o.stats, tiles: o.tiles };
                check_distribution(op, table, &of)?;
                kind(op, "argmax", o.argmax, Kind::Int)?;
                eq(op, "rows of argmax", o.logits.x.rows(), o.argmax.rows())
            }
            Op::TokenSample(o) => {
                check_distribution(op, table, &o.of)?;
                kind(op, "u", o.u, Kind::Real)?;
                eq(op, "rows of u", o.of.logits.x.rows(), o.u.rows())?;
                eq(op, "columns of u", 1, o.u.cols())
            }
            Op::TakeRows(o) => {
                kind(op, "x", o.x, Kind::Real)?;
                eq(op, "rows of out", o.rows.len(), o.out.rows())?;
                eq(op, "columns of out", o.x.cols(), o.out.cols())?;
                match o.rows.iter().find(|&&r| r as usize >= o.x.rows()) {
                    None => Ok(()),
                    Some(r) => Err(wrong(op, "rows", format!("0..{}", o.x.rows()), r)),
                }
            }
            Op::Penalize(o) => {
                kind(op, "logits", o.logits, Kind::Real)?;
                same(op, "out", o.logits, o.out)?;
                check_penalty(op, &o.by, o.logits.rows(), o.logits.cols())
            }
            Op::Restrict(o) => {
                kind(op, "logits", o.logits, Kind::Real)?;
                same(op, "out", o.logits, o.out)?;
                if o.ban.len() >= o.logits.cols() {
                    return Err(wrong(op, "ban", format!("fewer than {} ids", o.logits.cols()), o.ban.len()));
                }
                if o.top_p > 0.0 && o.top_p <= 1.0 {
                    return Ok(());
                }
                Err(wrong(op, "top_p", "above 0 and at most 1", o.top_p))
            }
            Op::PickStats(o) => {
                kind(op, "logits", o.logits, Kind::Real)?;
                for (name, pick) in [("argmax", o.argmax), ("sample", o.sample)] {
                    kind(op, name, pick, Kind::Int)?;
                    eq(op, name, o.logits.rows(), pick.len())?;
                }
                kind(op, "out", o.out, Kind::Real)?;
                eq(op, "rows of out", o.logits.rows(), o.out.rows())?;
                eq(op, "columns of out", 3, o.out.cols())
            }
        }
    }
}

/// A host scalar that is normal when it is rounded to f32, as is its reciprocal.
fn check_factor(op: &'static str, what: &str, x: f64) -> Result<(), ComputeError> {
    if (1e-30..=1e30).contains(&x) { Ok(()) } else { Err(wrong(op, what, "a number in 1e-30..=1e30", x)) }
}

/// Returns the size of the vocabulary.
fn check_distribution(
    op: &'static str,
    table: &WeightTable,
    d: &Distribution,
) -> Result<usize, ComputeError> {
    let Logits { x, head, scale, .. } = d.logits;
    kind(op, "x", x, Kind::Real)?;
    let vocab = match head {
        Some(head) => {
            head.softcap.map_or(Ok(()), |cap| check_factor(op, "cap", cap))?;
            weight(op, table, head.w, [Some(1), None, Some(x.cols())])?[1]
        }
        None => x.cols(),
    };
    // Ids travel as i32.
    if vocab == 0 || i32::try_from(vocab).is_err() {
        return Err(wrong(op, "the vocabulary", format!("1..={} ids", i32::MAX), vocab));
    }
    check_factor(op, "scale", scale)?;
    for (what, v, cols) in [("stats", d.stats, STATS), ("tiles", d.tiles, 2 * Logits::tiles(vocab))] {
        kind(op, what, v, Kind::Real)?;
        eq(op, &format!("rows of {what}"), x.rows(), v.rows())?;
        eq(op, &format!("columns of {what}"), cols, v.cols())?;
    }
    Ok(vocab)
}

fn check_penalty(op: &'static str, by: &Penalty, rows: usize, vocab: usize) -> Result<(), ComputeError> {
    let row_bans = by.row_bans.iter().map(|b| ("row_bans", &b.ids));
    for (what, ids) in [("seen", &by.seen), ("ban", &by.ban)].into_iter().chain(row_bans) {
        let ascending = ids.windows(2).all(|w| w[0] < w[1]);
        if !ascending || ids.last().is_some_and(|&id| id as usize >= vocab) {
            return Err(wrong(op, what, format!("ascending ids in 0..{vocab}"), format!("{ids:?}")));
        }
    }
    let ascending = by.bias.windows(2).all(|w| w[0].0 < w[1].0);
    let fits = |&(id, x): &(u32, f64)| (id as usize) < vocab && x.abs() <= 1e30;
    if !ascending || !by.bias.iter().all(fits) {
        let expected = format!("ascending ids in 0..{vocab} with numbers in -1e30..=1e30");
        return Err(wrong(op, "bias", expected, format!("{:?}", by.bias)));
    }
    by.row_bans.iter().try_for_each(|b| eq(op, "flags of a ban", rows, b.rows.len()))?;
    // Neighbouring rows mostly have the same bans.
    let here = |row: usize| by.row_bans.iter().map(move |b| b.rows[row]);
    for row in (0..rows).filter(|&row| row == 0 || !here(row).eq(here(row - 1))) {
        let of_row = by.row_bans.iter().filter(|b| b.rows[row]).flat_map(|b| &b.ids);
        let mut banned: Vec<u32> = by.ban.iter().chain(of_row).copied().collect();
        banned.sort_unstable();
        banned.dedup();
        if banned.len() >= vocab {
            return Err(wrong(op, "ban", format!("fewer than {vocab} ids"), banned.len()));
        }
    }
    eq(op, "rows of except", rows, by.except.len())?;
    check_factor(op, "repetition", by.repetition)?;
    if by.presence.abs() <= 1e30 {
        return Ok(());
    }
    Err(wrong(op, "presence", "a number in -1e30..=1e30", by.presence))
}

fn check_routing(
    op: &'static str,
    table: &WeightTable,
    experts: usize,
    r: &Routing,
) -> Result<(), ComputeError> {
    let mut candidates = experts;
    if let Some(ExpertGroups { n, used }) = r.groups {
        // A group is judged by two experts.
        if n == 0 || !experts.is_multiple_of(n) || experts / n < 2 {
            let expected = format!("a divisor of {experts} that leaves two experts a group");
            return Err(wrong(op, "groups", expected, n));
        }
        if used == 0 || used > n {
            return Err(wrong(op, "groups used", format!("1..={n}"), used));
        }
        candidates = experts / n * used;
    }
    if let Some(RoutingBlock { len, capacity }) = r.block {
        eq(op, "groups beside blocks of tokens", 0, r.groups.map_or(0, |groups| groups.n))?;
        if len == 0 {
            return Err(wrong(op, "length of a block", "at least 1", 0));
        }
        if capacity == 0 || capacity > experts {
            return Err(wrong(op, "capacity", format!("1..={experts}"), capacity));
        }
        candidates = capacity;
    }
    if r.top_k == 0 || r.top_k > candidates {
        return Err(wrong(op, "top_k", format!("1..={candidates}"), r.top_k));
    }
    [r.bias, r.expert_scale].into_iter().flatten().try_for_each(|w| vector(op, table, w, experts))
}

fn check_attention(op: &'static str, o: &Attention) -> Result<(), ComputeError> {
    for (what, v) in [("q", o.q), ("k", o.k), ("v", o.v)] {
        kind(op, what, v, Kind::Real)?;
        eq(op, "rows", o.q.rows(), v.rows())?;
    }
    same(op, "out", o.q, o.out)?;
    eq(op, "rows of the sequences", o.segments.rows(), o.q.rows())?;
    if o.cache_layer.is_none() {
        o.segments.iter().try_for_each(|s| eq(op, "n_past without a cache", 0, s.n_past))?;
    }
    if o.flash.is_some() {
        eq(op, "caches beside keys and values in f16", 0, usize::from(o.cache_layer.is_some()))?;
    }
    if o.mask == (Mask::Blocks { len: 0 }) {
        return Err(wrong(op, "length of a block", "at least 1", 0));
    }
    if o.n_kv_heads == 0 || !o.n_heads.is_multiple_of(o.n_kv_heads) {
        return Err(wrong(op, "n_heads", format!("a multiple of n_kv_heads = {}", o.n_kv_heads), o.n_heads));
    }
    let width = |heads: usize| heads.saturating_mul(o.head_dim);
    eq(op, "columns of q", width(o.n_heads), o.q.cols())?;
    eq(op, "columns of k", width(o.n_kv_heads), o.k.cols())?;
    eq(op, "columns of v", width(o.n_kv_heads), o.v.cols())
}
