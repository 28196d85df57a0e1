//! Panels of integers from blocks: sixteen rows at once, in vectors whose lanes are the rows.
//!
//! The formats of common types say how their words become codes, scales and minima ([`CommonFormat`]); a word is read
//! from sixteen rows by [`Isa::load_rows`], which transposes on the way. The blocks of other types are unpacked row by
//! row and transposed afterwards.

use std::marker::PhantomData;

use redraft_gguf::{Bias, BlockCodec, CommonFormat, FormatVisitor, Rows, visit_format};

use crate::cpu::ops::int_panel::{IntPanel, PanelRow};
use crate::cpu::vector::{Int, Isa, LANES, RowBytes};
use crate::math::{IntLanes, Lanes, flush};
use crate::numerics::Unit;

/// Unpacks the blocks of sixteen rows of one type into the panel.
#[inline(always)]
pub(crate) fn unpack<S: Isa>(s: S, codec: &dyn BlockCodec, rows: RowBytes<'_>, panel: &mut IntPanel) {
    let common = Common { s, rows, panel: &mut *panel };
    if visit_format(codec.dtype(), common).is_none() {
        listed(s, codec, rows, panel);
    }
}

/// Unpacks blocks of a common format.
struct Common<'a, S> {
    s: S,
    rows: RowBytes<'a>,
    panel: &'a mut IntPanel,
}

impl<S: Isa> FormatVisitor for Common<'_, S> {
    type Output = ();

    #[inline(always)]
    fn visit<F: CommonFormat>(self) {
        let n = self.rows.len() / F::BYTES;
        for unit in 0..n {
            let at = unit * F::BYTES;
            F::unpack_rows(&mut Block::<S, F> {
                s: self.s,
                rows: self.rows,
                at,
                unit,
                panel: &mut *self.panel,
                format: PhantomData,
            });
        }
    }
}

/// One block of each row.
struct Block<'a, S, F> {
    s: S,
    rows: RowBytes<'a>,
    /// Where the block begins.
    at: usize,
    /// Its number in the panel.
    unit: usize,
    panel: &'a mut IntPanel,
    format: PhantomData<F>,
}

impl<S: Isa, F: CommonFormat> Rows for Block<'_, S, F> {
    type Word = Int<S>;

    #[inline(always)]
    fn words(&self, at: usize) -> [Int<S>; 4] {
        self.s.load_rows(&self.rows, self.at + at)
    }
    #[inline(always)]
    fn all(&self, bits: u32) -> Int<S> {
        let zero = self.s.splat(0.0).to_bits();
        zero.splat(bits as i32)
    }
    #[inline(always)]
    fn and(&self, a: Int<S>, b: Int<S>) -> Int<S> {
        a.and(b)
    }
    #[inline(always)]
    fn or(&self, a: Int<S>, b: Int<S>) -> Int<S> {
        a.or(b)
    }
    #[inline(always)]
    fn xor(&self, a: Int<S>, b: Int<S>) -> Int<S> {
        a.xor(b)
    }
    #[inline(always)]
    fn add(&self, a: Int<S>, b: Int<S>) -> Int<S> {
        a.add(b)
    }
    #[inline(always)]
    fn sub(&self, a: Int<S>, b: Int<S>) -> Int<S> {
        a.sub(b)
    }
    #[inline(always)]
    fn shl(&self, a: Int<S>, n: u32) -> Int<S> {
        self.s.shift_left(a, n)
    }
    #[inline(always)]
    fn shr(&self, a: Int<S>, n: u32) -> Int<S> {
        self.s.shift_right(a, n)
    }
    #[inline(always)]
    fn fifth_bits(&self, a: Int<S>, i: u32) -> Int<S> {
        self.s.fifth_bits(a, i)
    }
    #[inline(always)]
    fn look_up(&self, table: &[i8; 16], a: Int<S>) -> Int<S> {
        self.s.look_up(table, a)
    }
    #[inline(always)]
    fn put_d(&mut self, half: Int<S>) {
        let half = half.and(half.splat(0xFFFF));
        self.s.store(flush(self.s.halves(half)), &mut self.panel.d[self.unit]);
    }
    #[inline(always)]
    fn put_d_bits(&mut self, bits: Int<S>) {
        self.s.store(flush(S::V::from_bits(bits)), &mut self.panel.d[self.unit]);
    }
    #[inline(always)]
    fn put_dmin(&mut self, half: Int<S>, negative: bool) {
        let half = half.and(half.splat(0xFFFF));
        let half = if negative { half.xor(half.splat(0x8000)) } else { half };
        self.s.store(flush(self.s.halves(half)), &mut self.panel.dmin[self.unit]);
    }
    #[inline(always)]
    fn put_scale(&mut self, s: usize, scale: Int<S>) {
        self.s.store(S::V::from_bits(scale), &mut self.panel.scales[s]);
    }
    #[inline(always)]
    fn put_mins(&mut self, pair: usize, mins: Int<S>) {
        let pairs = self.panel.units.pairs();
        self.s.store(S::V::from_bits(mins), &mut self.panel.mins[self.unit * pairs + pair]);
    }
    #[inline(always)]
    fn put_quad(&mut self, i: usize, codes: Int<S>) {
        let codes = if F::BIAS == Bias::Signed { biased(self.s, codes) } else { codes };
        self.s.store(S::V::from_bits(codes), &mut self.panel.codes[self.unit * (F::LEN / 4) + i]);
    }
}

/// Bytes with a sign, with [`Isa::SIGNED_BIAS`] added.
#[inline(always)]
fn biased<S: Isa>(_: S, codes: Int<S>) -> Int<S> {
    if S::SIGNED_BIAS == 0 { codes } else { codes.xor(codes.splat(0x8080_8080u32 as i32)) }
}

/// Unpacks blocks of any type row after row, then transposes.
#[inline(always)]
fn listed<S: Isa>(s: S, codec: &dyn BlockCodec, bytes: RowBytes<'_>, panel: &mut IntPanel) {
    let units = panel.units;
    let rows = panel.rows.get_or_insert_default();
    for (j, out) in rows.iter_mut().enumerate() {
        let mut u = 0;
        for bytes in bytes.row(j).chunks_exact(codec.block_bytes()) {
            let block = &mut out.block;
            codec.unpack(bytes, block);
            let len = block.len;
            out.codes[u * units.len..][..len].copy_from_slice(block.codes());
            for i in 0..len / units.len {
                let unit = Unit::of(block, units, i);
                (panel.d[u][j], panel.dmin[u][j]) = (unit.d, unit.dmin);
                let n = units.pairs();
                for pair in 0..n {
                    let min = |s: usize| unit.mins.get(s).map_or(0, |&m| i32::from(m));
                    out.mins[u * n + pair] = min(2 * pair) | min(2 * pair + 1) << 16;
                }
                u += 1;
            }
        }
    }
    let rows: &[PanelRow; LANES] = rows;
    let mut square = [s.splat(0.0); LANES];
    let (squares, _) = panel.codes.as_chunks_mut::<LANES>();
    for (i, out) in squares.iter_mut().enumerate() {
        for j in 0..LANES {
            let (codes, _) = rows[j].codes.as_chunks::<{ 4 * LANES }>();
            let codes = s.load_bytes(&codes[i]);
            square[j] = S::V::from_bits(if units.bias == Bias::Signed { biased(s, codes) } else { codes });
        }
        s.transpose(&square, out);
    }
    if units.subs > 1 {
        for j in 0..LANES {
            square[j] = S::V::from_bits(s.load_int(&rows[j].block.scales));
        }
        s.transpose(&square, &mut panel.scales);
    }
    if units.mins {
        for j in 0..LANES {
            square[j] = S::V::from_bits(s.load_int(&rows[j].mins));
        }
        s.transpose(&square, &mut panel.mins);
    }
}
