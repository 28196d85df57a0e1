//! From rows of weights, queries or keys to a panel `[k][16]`: column `j` of the panel is row `j`.
//!
//! 1. Sixteen rows, sixteen elements each, are loaded or made from the block's integers.
//! 2. Small numbers are flushed (`docs/numerics.md`, section 2), so that no product in the kernel can be subnormal.
//! 3. The square of 16 x 16 is transposed into 16 rows of the panel.

use redraft_gguf::Unpacked;

use crate::cpu::vector::{Isa, LANES, Row16};
use crate::math::{self, Lanes};

/// Packs up to 16 rows of `panel.len()` elements; the columns of missing rows are zero.
#[inline(always)]
pub(crate) fn pack<S: Isa>(s: S, rows: &[&[f32]], panel: &mut [Row16]) {
    assert!(rows.len() <= LANES && rows.iter().all(|r| r.len() == panel.len()), "rows fit the panel");
    let mut square = [s.splat(0.0); LANES];
    let (blocks, tail) = panel.as_chunks_mut::<LANES>();
    for (b, block) in blocks.iter_mut().enumerate() {
        for j in 0..rows.len() {
            let (row, _) = rows[j].as_chunks::<LANES>();
            square[j] = math::flush(s.load(&row[b]));
        }
        s.transpose(&square, block);
    }
    let done = blocks.len() * LANES;
    for (k, out) in tail.iter_mut().enumerate() {
        *out = [0.0; LANES];
        for (o, row) in out.iter_mut().zip(rows) {
            *o = math::flush(row[done + k]);
        }
    }
}

/// Sixteen weights of a block, the `q`-th. Each is `(d * scale) * code - (dmin * min)`, rounded after each operation, as
/// the codec defines it.
#[inline(always)]
fn weights<S: Isa>(s: S, block: &Unpacked, q: usize) -> S::V {
    let sub = q * LANES / block.sub_len;
    let scale = block.d * block.scales[sub] as f32;
    let min = block.dmin * f32::from(block.mins[sub]);
    let (codes, _) = block.codes.as_chunks::<LANES>();
    math::flush(s.load_i8(&codes[q]).mul(s.splat(scale)).sub(s.splat(min)))
}

/// The weights of one block.
#[inline(always)]
pub(crate) fn unpack_row<S: Isa>(s: S, block: &Unpacked, out: &mut [f32]) {
    let (whole, tail) = out.as_chunks_mut::<LANES>();
    assert!(tail.is_empty(), "blocks are multiples of 16");
    for (q, out) in whole.iter_mut().enumerate() {
        s.store(weights(s, block, q), out);
    }
}

/// Unpacks one block of up to 16 rows.
#[inline(always)]
pub(crate) fn unpack<S: Isa>(s: S, blocks: &[Unpacked], panel: &mut [Row16]) {
    let (squares, tail) = panel.as_chunks_mut::<LANES>();
    assert!(blocks.len() <= LANES && tail.is_empty(), "blocks fit the panel");
    let mut square = [s.splat(0.0); LANES];
    for (q, out) in squares.iter_mut().enumerate() {
        for (j, block) in blocks.iter().enumerate() {
            square[j] = weights(s, block, q);
        }
        s.transpose(&square, out);
    }
}
