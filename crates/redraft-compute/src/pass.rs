//! What every backend checks before it runs a program.

use std::collections::BTreeSet;

use crate::backend::{InputData, SeqId};
use crate::op::{Attention, Op, Segment};
use crate::program::Program;
use crate::weight::WeightTable;
use crate::{ComputeError, Kind, Val};

/// One layer of the KV cache of a sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheLayer {
    /// Channels of a row.
    pub(crate) width: usize,
    /// The first token that is still there.
    pub(crate) first: usize,
}

/// The sequences without doubles, in ascending order. They are as many as the program has, and different ones where it
/// changes them.
pub(crate) fn different(program: &Program, seqs: &[SeqId]) -> Result<Vec<SeqId>, ComputeError> {
    let segments = program.segments();
    let mut different: Vec<SeqId> = seqs.to_vec();
    different.sort_unstable();
    different.dedup();
    let changes = program.keeps.len() + program.ops.iter().filter(|op| matches!(op, Op::KvAppend(_))).count();
    if seqs.len() != segments.len() || (different.len() != seqs.len() && changes > 0) {
        return Err(ComputeError::Input {
            name: "sequences".into(),
            expected: format!("{}{}", segments.len(), if changes > 0 { " different ones" } else { "" }),
            found: format!("{:?}", seqs.iter().map(|s| s.0).collect::<Vec<_>>()),
        });
    }
    Ok(different)
}

/// Checks what the program expects of the cache of a sequence with `len` tokens, before anything is computed. Returns
/// whether it extends the cache.
pub(crate) fn check_cache(
    program: &Program,
    segment: Segment,
    len: usize,
    layers: &[CacheLayer],
) -> Result<bool, ComputeError> {
    if len != segment.n_past {
        return Err(ComputeError::CacheLength { expected: segment.n_past, found: len });
    }
    let wrong = |op: &Op, layer: usize, expected: String, found: String| ComputeError::Shape {
        op: op.name(),
        what: format!("KV cache layer {layer}"),
        expected,
        found,
    };
    let mut appended = BTreeSet::new();
    for op in &program.ops {
        let (layer, widths) = match op {
            Op::KvAppend(o) => (o.layer, [o.k.cols(), o.v.cols()]),
            Op::Attention(Attention { cache_layer: Some(layer), k, v, .. }) => (*layer, [k.cols(), v.cols()]),
            _ => continue,
        };
        let there = layers.get(layer);
        if let Some(width) = widths.into_iter().find(|&w| there.map(|l| l.width) != Some(w)) {
            let found = there.map_or("no such layer".into(), |l| format!("rows of {}", l.width));
            return Err(wrong(op, layer, format!("rows of {width}"), found));
        }
        if let (Op::Attention(o), Some(there)) = (op, there) {
            let seen = o.mask.visible(segment, 0).start;
            if seen < there.first {
                let found = format!("tokens from {} on: the others were evicted", there.first);
                return Err(wrong(op, layer, format!("tokens from {seen} on"), found));
            }
        }
        // A pass sees its own rows beside those of the cache, so they come into the cache last.
        if appended.contains(&layer) {
            return Err(wrong(op, layer, "to be appended to last".into(), "used after that".into()));
        }
        if matches!(op, Op::KvAppend(_)) {
            appended.insert(layer);
        }
    }
    Ok(!appended.is_empty())
}

/// An input that is not what the program wants.
pub(crate) fn wrong_input(name: &str, v: Val, found: Option<&InputData<'_>>) -> ComputeError {
    ComputeError::Input {
        name: name.into(),
        expected: format!("{} {:?}", v.len(), v.kind()),
        found: found.map_or("nothing".into(), InputData::describe),
    }
}

/// A kept value that is not there or has another size.
pub(crate) fn wrong_kept(id: crate::KeptId, v: Val, found: Option<usize>) -> ComputeError {
    ComputeError::Input {
        name: format!("{id:?}"),
        expected: format!("{} Real", v.len()),
        found: found.map_or("nothing".into(), |n| format!("{n} Real")),
    }
}

/// Checks that all ids of a value of `cols` columns are in `0..limit`.
pub(crate) fn check_ids(
    op: &'static str,
    ids: &[i32],
    cols: usize,
    limit: usize,
) -> Result<(), ComputeError> {
    match ids.iter().position(|&id| usize::try_from(id).map_or(true, |id| id >= limit)) {
        None => Ok(()),
        Some(i) => {
            let (id, row) = (i64::from(ids[i]), i / cols.max(1));
            Err(ComputeError::IdOutOfRange { op, id, row, limit })
        }
    }
}

/// Why element `i` of an input is refused.
pub(crate) fn input_not_finite(name: &str, v: Val, i: usize, is_nan: bool) -> ComputeError {
    let cols = v.cols().max(1);
    ComputeError::NotFinite {
        op: "input",
        tap: name.into(),
        layer: None,
        row: i / cols,
        col: i % cols,
        value: not_finite(is_nan),
    }
}

/// The word for it.
pub(crate) fn not_finite(is_nan: bool) -> &'static str {
    if is_nan { "NaN" } else { "infinity" }
}

/// Why op `index` failed whose result `v` is not finite in element `i`: a damaged weight, or numbers that are too large.
pub(crate) fn op_not_finite(program: &Program, index: usize, v: Val, i: usize, is_nan: bool) -> ComputeError {
    let op = &program.ops[index];
    let tap = program.label(index, v);
    let cols = v.cols().max(1);
    damaged_weight(op, program.weights(), &tap).unwrap_or(ComputeError::NotFinite {
        op: op.name(),
        tap,
        layer: program.layer_of(index),
        row: i / cols,
        col: i % cols,
        value: not_finite(is_nan),
    })
}

/// The weight that an op got a NaN or an infinity from, if one of its weights holds any.
fn damaged_weight(op: &Op, weights: &WeightTable, tap: &str) -> Option<ComputeError> {
    op.weights().into_iter().find_map(|id| {
        let w = weights.get(id).ok()?;
        let (at, value) = w.first_not_finite()?;
        Some(ComputeError::DamagedWeight { weight: w.name.clone(), value, at, tap: tap.to_owned() })
    })
}

/// Whether an input fits a value.
pub(crate) fn fits(data: &InputData<'_>, v: Val) -> bool {
    match data {
        InputData::Int(x) => v.kind() == Kind::Int && x.len() == v.len(),
        InputData::F32(x) => v.kind() == Kind::Real && x.len() == v.len(),
        InputData::F64(x) => v.kind() == Kind::Real && x.len() == v.len(),
    }
}
