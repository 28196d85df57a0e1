//! Attention and its cache.

use std::ops::Range;

use super::super::cx::{Cx, NO_SLOT, words};
use super::super::device::{Device, View};
use super::super::kernels::Kernel;
use super::super::seq::row_bytes;
use crate::op::{Attention, KvAppend, Segment};
use crate::{ComputeError, KV_RUN, KvType};

/// Keys whose values a dispatch adds, at most, a multiple of 16: drivers end what takes long, and llvmpipe leaves a kernel after
/// some 65,000 rounds of its loops.
const KEYS: usize = 1 << 14;

/// The number by which kernels know a type.
fn kind(kv_type: KvType) -> u32 {
    match kv_type {
        KvType::F32 => 0,
        KvType::F16 => 1,
        KvType::I8 => 2,
    }
}

/// Rounds rows `span` of `x`, `[rows, width]`, and writes them to rows `to` and on of a cache with `room` bytes.
fn store<D: Device>(
    cx: &mut Cx<'_, D>,
    kv_type: KvType,
    (x, x_len): (&D::Buffer, usize),
    width: usize,
    span: &Range<usize>,
    (cache, room, to): (&D::Buffer, u64, usize),
) -> Result<(), ComputeError> {
    let runs = span.len() * width.div_ceil(KV_RUN);
    let stride = row_bytes(kv_type, width) / 4;
    let parameters =
        [NO_SLOT, 0, runs as u32, width as u32, span.start as u32, to as u32, kind(kv_type), stride as u32];
    let views = [words(x, x_len), View { buffer: cache, at: 0, bytes: room }];
    cx.each(Kernel::KvStore, &views, &parameters, runs)
}

/// Rows `rows` of a cache as f32, from row `to` of `out`, `[out_rows, width]`, on.
fn load<D: Device>(
    cx: &mut Cx<'_, D>,
    kv_type: KvType,
    (cache, room): (&D::Buffer, u64),
    width: usize,
    rows: &Range<usize>,
    (out, out_rows, to): (&D::Buffer, usize, usize),
) -> Result<(), ComputeError> {
    let stride = row_bytes(kv_type, width) / 4;
    let n = rows.len() * width;
    let parameters =
        [NO_SLOT, 0, n as u32, width as u32, rows.start as u32, to as u32, kind(kv_type), stride as u32];
    let views = [View { buffer: cache, at: 0, bytes: room }, words(out, out_rows * width)];
    cx.each(Kernel::KvLoad, &views, &parameters, n)
}

/// Checks that a kernel can see so many bytes of keys.
fn visible<D: Device>(cx: &Cx<'_, D>, bytes: u64) -> Result<(), ComputeError> {
    if bytes <= cx.gpu.device.limits().binding {
        return Ok(());
    }
    Err(ComputeError::OutOfMemory {
        what: "keys that a kernel of this device can see at once".into(),
        bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
    })
}

pub(super) fn append<D: Device>(cx: &mut Cx<'_, D>, o: &KvAppend) -> Result<(), ComputeError> {
    let (k, v) = (cx.value(o.k), cx.value(o.v));
    for (i, (segment, span)) in o.segments.spans().enumerate() {
        if span.is_empty() {
            continue;
        }
        let s = cx.of[i];
        let (buffers, room) = cx.gpu.reserve(&mut cx.seqs[s], o.layer, segment.n_past + segment.rows)?;
        visible(cx, room)?;
        let kv_type = cx.seqs[s].kv_type;
        for ((x, val), cache) in [(&k, o.k), (&v, o.v)].into_iter().zip(&buffers) {
            store(cx, kv_type, (x, val.len()), val.cols(), &span, (cache, room, segment.n_past))?;
        }
    }
    Ok(())
}

pub(super) fn attention<D: Device>(cx: &mut Cx<'_, D>, o: &Attention) -> Result<(), ComputeError> {
    if o.flash.is_some() {
        return Err(ComputeError::Unavailable {
            what: "rounding of flash attention on",
            name: "this backend".into(),
            available: "backend reference".into(),
        });
    }
    for (i, (segment, span)) in o.segments.spans().enumerate() {
        if !span.is_empty() {
            attend(cx, o, i, segment, &span)?;
        }
    }
    Ok(())
}

/// Keys or values of one sequence as a kernel reads them: those from `first` on, then those of the pass.
fn gather<D: Device>(
    cx: &mut Cx<'_, D>,
    o: &Attention,
    i: usize,
    segment: Segment,
    span: &Range<usize>,
    first: usize,
) -> Result<[D::Buffer; 2], ComputeError> {
    let width = o.k.cols();
    let keys = segment.n_past + segment.rows - first;
    let bytes = 4 * (keys * width) as u64;
    visible(cx, bytes)?;
    let new = [cx.value(o.k), cx.value(o.v)];
    if o.cache_layer.is_none() && span.len() == o.k.rows() && first == 0 {
        return Ok(new);
    }
    let mut out = Vec::with_capacity(2);
    for (which, new) in new.iter().enumerate() {
        let all = cx.temporary(bytes)?;
        let cached = o.cache_layer.map(|layer| {
            let seq = &cx.seqs[cx.of[i]];
            (seq.kv_type, seq.layers[layer].buffers.clone().map(|b| b[which].clone()), layer)
        });
        // Rows of the cache that are needed, and of the pass.
        let old = first.min(segment.n_past)..segment.n_past;
        let fresh = span.start + first.saturating_sub(segment.n_past)..span.end;
        if let Some((kv_type, Some(cache), layer)) = &cached
            && !old.is_empty()
        {
            let room = cx.seqs[cx.of[i]].room_bytes(*layer);
            load(cx, *kv_type, (cache, room), width, &old, (&all, keys, 0))?;
        }
        let row = 4 * width as u64;
        match cached {
            Some((kv_type, ..)) if kv_type != KvType::F32 => {
                let room = (row_bytes(kv_type, width) * fresh.len()) as u64;
                let packed = cx.temporary(room)?;
                store(cx, kv_type, (new, o.k.len()), width, &fresh, (&packed, room, 0))?;
                load(cx, kv_type, (&packed, room), width, &(0..fresh.len()), (&all, keys, old.len()))?;
            }
            _ => cx.gpu.device.copy(
                (new, row * fresh.start as u64),
                (&all, row * old.len() as u64),
                row * fresh.len() as u64,
            )?,
        }
        out.push(all);
    }
    <[D::Buffer; 2]>::try_from(out).map_err(|_| unreachable!("keys and values are two"))
}

/// Attention in sequence `i`, whose rows are `span`.
fn attend<D: Device>(
    cx: &mut Cx<'_, D>,
    o: &Attention,
    i: usize,
    segment: Segment,
    span: &Range<usize>,
) -> Result<(), ComputeError> {
    let seen: Vec<Range<usize>> = (0..segment.rows).map(|row| o.mask.visible(segment, row)).collect();
    // A multiple of 16, so that keys keep their accumulators.
    let first = seen.iter().map(|s| s.start).min().unwrap_or(0) / 16 * 16;
    let keys = segment.n_past + segment.rows - first;
    let [k, v] = gather(cx, o, i, segment, span, first)?;
    let list: Vec<u32> =
        seen.iter().flat_map(|s| [s.start - first, s.end - first]).map(|x| x as u32).collect();
    let list = (cx.constant(&list)?, list.len());
    let (q, out) = (cx.value(o.q), cx.value(o.out));
    let (heads, d, kv_cols) = (o.n_heads, o.head_dim, o.k.cols());
    let scale = o.scale as f32;
    let slot = cx.slot(o.out, 0)?;
    let most = (cx.gpu.device.limits().binding / (4 * heads * keys).max(1) as u64) as usize;
    let most = if most >= 64 { most / 64 * 64 } else { most };
    if most == 0 {
        visible(cx, 4 * (heads * keys) as u64)?;
    }
    let mut row = 0;
    while row < segment.rows {
        let n = most.min(segment.rows - row);
        let scores = cx.temporary(4 * (n * heads * keys) as u64)?;
        let inverses = cx.temporary(4 * (n * heads) as u64)?;
        let mut parameters = [
            slot,
            0,
            n as u32,
            (span.start + row) as u32,
            keys as u32,
            heads as u32,
            (heads / o.n_kv_heads) as u32,
            d as u32,
            kv_cols as u32,
            scale.to_bits(),
            u32::from(o.scale != 1.0),
            row as u32,
            0,
            keys as u32,
        ];
        let tile = |x: usize| x.div_ceil(64) as u32;
        let macs = (n * heads * keys * d) as u64;
        let all_scores = words(&scores, n * heads * keys);
        let all_inverses = words(&inverses, n * heads);
        let views = [words(&q, o.q.len()), words(&k, keys * kv_cols), all_scores];
        cx.dispatch(Kernel::AttentionScores, &views, &parameters, [tile(keys), tile(n), heads as u32], macs)?;
        let grid = cx.grid((n * heads).div_ceil(4))?;
        let views = [words(&list.0, list.1), all_scores, all_inverses];
        cx.dispatch(Kernel::AttentionSoftmax, &views, &parameters, grid, 64 * (n * heads * keys) as u64)?;
        let views = [all_scores, words(&v, keys * kv_cols), all_inverses, words(&out, o.out.len())];
        for from in (0..keys).step_by(KEYS) {
            let to = keys.min(from + KEYS);
            let [.., first, end] = &mut parameters;
            (*first, *end) = (from as u32, to as u32);
            let macs = (n * heads * (to - from) * d) as u64;
            let groups = [tile(d), tile(n), heads as u32];
            cx.dispatch(Kernel::AttentionValues, &views, &parameters, groups, macs)?;
        }
        row += n;
    }
    Ok(())
}
