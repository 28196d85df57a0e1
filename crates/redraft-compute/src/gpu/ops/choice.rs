//! What stands between logits and a sampler.

use super::super::cx::{Cx, NO_SLOT, rows as rows_of, words};
use super::super::device::Device;
use super::super::kernels::Kernel;
use crate::op::{Penalize, PickStats, RESTRICTED, Restrict};
use crate::{ComputeError, Val};

/// Copies logits, so that lists of ids can be worked into them.
fn copy<D: Device>(cx: &mut Cx<'_, D>, x: Val, out: Val) -> Result<(), ComputeError> {
    let (x, to) = (cx.value(x), cx.value(out));
    cx.gpu.device.copy((&x, 0), (&to, 0), 4 * out.len() as u64)
}

/// What the kernel `penalize` does with a list of ids.
struct List<'a> {
    kind: u32,
    ids: &'a [u32],
    /// Biases by id, or something for each row of the pass.
    list: &'a [u32],
    /// Factors, and what is subtracted.
    numbers: [f32; 3],
}

fn apply<D: Device>(cx: &mut Cx<'_, D>, out: Val, l: &List<'_>) -> Result<(), ComputeError> {
    if l.ids.is_empty() || out.is_empty() {
        return Ok(());
    }
    let (ids, list, to) = (cx.constant(l.ids)?, cx.constant(l.list)?, cx.value(out));
    let cols = out.cols();
    for part in cx.parts(out.rows(), cols)? {
        let n = part.len() * l.ids.len();
        let [more, less, presence] = l.numbers.map(f32::to_bits);
        let slot = if l.kind == LOOK { cx.slot(out, part.start * cols)? } else { NO_SLOT };
        let parameters = [
            slot,
            0,
            n as u32,
            l.ids.len() as u32,
            cols as u32,
            l.kind,
            part.start as u32,
            more,
            less,
            presence,
            (RESTRICTED as f32).to_bits(),
        ];
        let views = [words(&ids, l.ids.len()), words(&list, l.list.len()), rows_of(&to, &part, cols)];
        cx.each(Kernel::Penalize, &views, &parameters, n)?;
    }
    Ok(())
}

pub(super) fn penalize<D: Device>(cx: &mut Cx<'_, D>, o: &Penalize) -> Result<(), ComputeError> {
    copy(cx, o.logits, o.out)?;
    let by = &o.by;
    let ids: Vec<u32> = by.bias.iter().map(|b| b.0).collect();
    let bias: Vec<u32> = by.bias.iter().map(|b| (b.1 as f32).to_bits()).collect();
    apply(cx, o.out, &List { kind: 0, ids: &ids, list: &bias, numbers: [0.0; 3] })?;
    let except = |row| by.except.get(row).copied().flatten().unwrap_or(u32::MAX);
    let except: Vec<u32> = (0..o.out.rows()).map(except).collect();
    let numbers = [by.repetition as f32, (1.0 / by.repetition) as f32, by.presence as f32];
    apply(cx, o.out, &List { kind: 1, ids: &by.seen, list: &except, numbers })?;
    apply(cx, o.out, &List { kind: 2, ids: &by.ban, list: &[0], numbers: [0.0; 3] })?;
    for b in &by.row_bans {
        let flag = |row| u32::from(b.rows.get(row).is_some_and(|&banned| banned));
        let rows: Vec<u32> = (0..o.out.rows()).map(flag).collect();
        apply(cx, o.out, &List { kind: 3, ids: &b.ids, list: &rows, numbers: [0.0; 3] })?;
    }
    // What became too large may have been banned since.
    for ids in [ids, by.seen.clone()] {
        apply(cx, o.out, &List { kind: LOOK, ids: &ids, list: &[0], numbers: [0.0; 3] })?;
    }
    Ok(())
}

/// The kind of list whose ids are looked at.
const LOOK: u32 = 4;

pub(super) fn restrict<D: Device>(cx: &mut Cx<'_, D>, o: &Restrict) -> Result<(), ComputeError> {
    copy(cx, o.logits, o.out)?;
    apply(cx, o.out, &List { kind: 2, ids: &o.ban, list: &[0], numbers: [0.0; 3] })?;
    let cols = o.out.cols();
    let top_k = if (1..cols).contains(&o.top_k) { o.top_k } else { 0 };
    if top_k == 0 && o.top_p >= 1.0 {
        return Ok(());
    }
    let to = cx.value(o.out);
    let mut phases = Vec::new();
    if top_k > 0 {
        phases.push(TOP_K);
    }
    if o.top_p < 1.0 {
        phases.push(BOUND);
        // A row that is done leaves the others at once.
        phases.extend(std::iter::repeat_n(PIECE, cols.div_ceil(PIECE_IDS)));
        phases.push(REST);
    }
    for part in cx.parts(o.out.rows(), cols)? {
        let state = cx.temporary(32 * part.len() as u64)?;
        for &phase in &phases {
            let parameters = [
                NO_SLOT,
                0,
                part.len() as u32,
                cols as u32,
                top_k as u32,
                (o.top_p as f32).to_bits(),
                phase,
                (RESTRICTED as f32).to_bits(),
            ];
            let cost = 16 * (part.len() * cols) as u64;
            let views = [rows_of(&to, &part, cols), words(&state, 8 * part.len())];
            cx.dispatch(Kernel::Restrict, &views, &parameters, [part.len() as u32, 1, 1], cost)?;
        }
    }
    Ok(())
}

/// Phases of the kernel `restrict`.
const TOP_K: u32 = 0;
const BOUND: u32 = 1;
const PIECE: u32 = 2;
const REST: u32 = 3;
/// Ids that a piece takes.
const PIECE_IDS: usize = 1024;

pub(super) fn pick_stats<D: Device>(cx: &mut Cx<'_, D>, o: &PickStats) -> Result<(), ComputeError> {
    let cols = o.logits.cols();
    for picks in [o.argmax, o.sample] {
        cx.check_ids("PickStats", picks, cols)?;
    }
    let (x, out) = (cx.value(o.logits), cx.value(o.out));
    let (argmax, sample) = (cx.value(o.argmax), cx.value(o.sample));
    for part in cx.parts(o.logits.rows(), cols)? {
        let slot = cx.slot(o.out, 3 * part.start)?;
        let (argmax, argmax_at) = cx.near_value(&argmax, o.argmax, &part);
        let (sample, sample_at) = cx.near_value(&sample, o.sample, &part);
        let (out, out_at) = cx.near_value(&out, o.out, &part);
        let parameters = [slot, 0, cols as u32, argmax_at, sample_at, out_at];
        let views = [rows_of(&x, &part, cols), argmax, sample, out];
        let cost = 8 * (part.len() * cols) as u64;
        cx.dispatch(Kernel::PickStats, &views, &parameters, [part.len() as u32, 1, 1], cost)?;
    }
    Ok(())
}
