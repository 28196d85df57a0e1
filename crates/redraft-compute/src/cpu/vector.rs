//! The vector of all kernels: 16 `f32` lanes.
//!
//! Sixteen, because that is the width that the contract fixes for sums (element `i` goes to accumulator
//! `i mod 16`), the number of output columns in a panel, and one AVX-512 register. An instruction set
//! supplies [`Lanes`] for its vector type and the few methods of [`Isa`]; every kernel is written once over
//! these two and compiled once per instruction set (see [`table`](super::table)).

#[cfg(target_arch = "x86_64")]
use super::x86::sse2;
use crate::math::reduce::tree;
use crate::math::{IntLanes, Lanes};

pub(crate) use crate::math::reduce::LANES;

/// Sixteen consecutive numbers in memory.
pub(crate) type Row16 = [f32; LANES];

/// Sixteen 32-bit patterns in memory: integers that are held as numbers, so that the moves of [`Isa`] serve them
/// too. No arithmetic touches them in this form.
pub(crate) type Bits16 = Row16;

/// The same run of bytes of sixteen rows.
#[derive(Clone, Copy)]
pub(crate) struct RowBytes<'a> {
    /// Row `j` begins `j * stride` bytes after row 0. All rows lie inside.
    bytes: &'a [u8],
    stride: usize,
    len: usize,
}

impl<'a> RowBytes<'a> {
    /// Rows of `len` bytes, `stride` bytes apart.
    ///
    /// # Panics
    /// When `bytes` does not hold sixteen of them.
    pub(crate) fn new(bytes: &'a [u8], stride: usize, len: usize) -> RowBytes<'a> {
        let last = stride.checked_mul(LANES - 1).and_then(|at| at.checked_add(len));
        assert!(last.is_some_and(|end| end <= bytes.len()), "sixteen rows of {len} bytes");
        RowBytes { bytes, stride, len }
    }

    /// Bytes of a row.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Row `j`, below 16.
    #[inline(always)]
    pub(crate) fn row(&self, j: usize) -> &'a [u8] {
        &self.bytes[j * self.stride..][..self.len]
    }

    /// The address of byte `at` of row 0, and the distance of the rows: for loads that reach no further than
    /// [`len`](Self::len) in each of sixteen rows.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn address(&self, at: usize) -> (*const u8, usize) {
        (self.bytes.as_ptr().wrapping_add(at), self.stride)
    }
}

/// Writes the first of sixteen numbers, as many as `out` takes.
#[inline(always)]
pub(crate) fn put_row(x: &Row16, out: &mut [f32]) {
    match out.first_chunk_mut::<LANES>() {
        Some(out) => *out = *x,
        None => put_part(x, out),
    }
}

/// Apart, so that the sixteen are moves and not a call.
#[cold]
#[inline(never)]
fn put_part(x: &Row16, out: &mut [f32]) {
    out.copy_from_slice(&x[..out.len()]);
}

/// The integers of an instruction set.
pub(crate) type Int<S> = <<S as Isa>::V as Lanes>::Int;

/// An instruction set. A value of the type is the proof that this machine has it, so only code that checked
/// makes one, and vectors come only from such a value.
pub(crate) trait Isa: Copy {
    /// The vector: 16 lanes.
    type V: Lanes;

    /// Numbers of tokens for which the matrix kernel keeps all accumulators in registers, descending to 1.
    const GROUPS: &'static [usize];

    /// Most tokens of the integer matrix kernel, which is made for all numbers up to this.
    const INT_TOKENS: usize;

    /// Panels that the integer matrix kernel takes side by side: 1 or 2.
    const INT_PANELS: usize;

    /// What is added to weights of eight bits with a sign before they are stored: 0, or 128 where
    /// [`dot_quads`](Self::dot_quads) takes weights without a sign.
    const SIGNED_BIAS: i32;

    /// 32-bit words in which [`quad`](Self::quad) stores four int8 activations: 1 or 2.
    const QUAD_WORDS: usize;

    /// Whether [`add_halves`](Self::add_halves) is one instruction.
    const HALF_PAIRS: bool = false;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// Sixteen numbers.
    fn load(self, x: &Row16) -> Self::V;
    /// Writes the lanes.
    fn store(self, v: Self::V, x: &mut Row16);
    /// The numbers of sixteen bytes with a sign.
    fn load_i8(self, x: &[i8; LANES]) -> Self::V;

    /// Sixteen integers.
    #[inline(always)]
    fn load_int(self, x: &[i32; LANES]) -> Int<Self> {
        self.load(&x.map(|x| f32::from_bits(x as u32))).to_bits()
    }
    /// Sixteen times four bytes.
    #[inline(always)]
    fn load_bytes(self, x: &[i8; 4 * LANES]) -> Int<Self> {
        let mut words = [0; LANES];
        for (word, bytes) in words.iter_mut().zip(x.as_chunks::<4>().0) {
            *word = i32::from_le_bytes(bytes.map(|b| b as u8));
        }
        self.load_int(&words)
    }
    /// Bytes `at` to `at + 15` of sixteen rows: in lane `j` of word `i` are bytes `at + 4 i` to `at + 4 i + 3` of row
    /// `j`.
    #[inline(always)]
    fn load_rows(self, rows: &RowBytes<'_>, at: usize) -> [Int<Self>; 4] {
        let mut words = [[0; LANES]; 4];
        for j in 0..LANES {
            let (quads, _) = rows.row(j)[at..at + 16].as_chunks::<4>();
            for (word, quad) in words.iter_mut().zip(quads) {
                word[j] = i32::from_le_bytes(*quad);
            }
        }
        words.map(|w| self.load_int(&w))
    }
    /// `v << n`, `n` below 32.
    fn shift_left(self, v: Int<Self>, n: u32) -> Int<Self>;
    /// `v >> n`, `n` below 32, zeros shifted in.
    fn shift_right(self, v: Int<Self>, n: u32) -> Int<Self>;
    /// Bits `4 i` to `4 i + 3` of each lane, one in each byte, as 0 or 16.
    #[inline(always)]
    fn fifth_bits(self, v: Int<Self>, i: u32) -> Int<Self> {
        let bits = self.shift_right(v, 4 * i).and(v.splat(15));
        let two = bits.or(bits.shl::<7>());
        two.or(two.shl::<14>()).and(v.splat(0x0101_0101)).shl::<4>()
    }
    /// For each byte, 0 to 15, its number in the table.
    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: Int<Self>) -> Int<Self> {
        let mut x = [0.0; LANES];
        self.store(Self::V::from_bits(v), &mut x);
        self.load_int(
            &x.map(|x| {
                i32::from_le_bytes(x.to_bits().to_le_bytes().map(|b| table[usize::from(b & 15)] as u8))
            }),
        )
    }
    /// The f16 numbers in the lower halves of the lanes; the upper halves are 0.
    #[inline(always)]
    fn halves(self, v: Int<Self>) -> Self::V {
        let (magnitude, sign) = (v.and(v.splat(0x7FFF)), v.and(v.splat(0x8000)).shl::<16>());
        // The bias changes from 15 to 127; infinity and NaN have the highest exponent in both.
        let rebias = v.splat(112 << 23);
        let normal = magnitude.shl::<13>().add(rebias);
        let special = Self::V::from_bits(normal.add(rebias));
        let normal = Self::V::from_bits(normal);
        let small = Self::V::from_int(magnitude).mul(self.splat(1.0 / 16_777_216.0));
        let x = small.if_int_lt(magnitude, v.splat(0x400), normal);
        let x = x.if_int_lt(magnitude, v.splat(0x7C00), special);
        Self::V::from_bits(x.to_bits().or(sign))
    }
    /// `acc + a * b`, for products that are exact in f32: fused where that is faster.
    #[inline(always)]
    fn add_exact(self, acc: Self::V, a: Self::V, b: Self::V) -> Self::V {
        acc.add(a.mul(b))
    }
    /// `acc` plus the product of the upper halves of `a` and `b`, then plus that of the lower halves: bfloat16 numbers,
    /// whose products are exact.
    #[inline(always)]
    fn add_halves(self, acc: Self::V, a: Int<Self>, b: Int<Self>) -> Self::V {
        let upper = a.splat(0xFFFF_0000u32 as i32);
        let acc = self.add_exact(acc, Self::V::from_bits(a.and(upper)), Self::V::from_bits(b.and(upper)));
        self.add_exact(acc, Self::V::from_bits(a.shl::<16>()), Self::V::from_bits(b.shl::<16>()))
    }
    /// Four int8 activations in the form that [`dot_quads`](Self::dot_quads) takes; the second word is used where
    /// `QUAD_WORDS` is 2.
    #[inline(always)]
    fn quad(self, x: [i8; 4]) -> [i32; 2] {
        [i32::from_le_bytes(x.map(|x| x as u8)), 0]
    }
    /// In each lane: `acc` plus the products of the four bytes of `w` with four activations. The bytes have a sign
    /// where [`SIGNED_BIAS`](Self::SIGNED_BIAS) is 0; those of 0 to 127 are the same either way.
    fn dot_quads(self, acc: Int<Self>, w: Int<Self>, x: [i32; 2]) -> Int<Self>;
    /// In each lane: `acc` plus the products of the two signed halves of `w` with those of `x`.
    fn dot_pairs(self, acc: Int<Self>, w: Int<Self>, x: i32) -> Int<Self>;
    /// The lower 32 bits of the products.
    fn mul_int(self, a: Int<Self>, b: Int<Self>) -> Int<Self>;
    /// The lowest byte of each lane.
    #[inline(always)]
    fn low_bytes(self, v: Int<Self>) -> [i8; LANES] {
        let mut x = [0.0; LANES];
        self.store(Self::V::from_bits(v), &mut x);
        x.map(|x| x.to_bits() as i8)
    }

    /// The sum of the lanes; it wraps.
    #[inline(always)]
    fn sum_int(self, v: Int<Self>) -> i32 {
        let mut x = [0.0; LANES];
        self.store(Self::V::from_bits(v), &mut x);
        x.iter().fold(0, |sum: i32, x| sum.wrapping_add(x.to_bits() as i32))
    }

    /// The lower 16 bits of each lane.
    #[inline(always)]
    fn low_halves(self, v: Int<Self>) -> [u16; LANES] {
        let mut x = [0.0; LANES];
        self.store(Self::V::from_bits(v), &mut x);
        x.map(|x| x.to_bits() as u16)
    }

    /// Up to sixteen numbers, `fill` in the lanes beyond.
    #[inline(always)]
    fn load_part(self, x: &[f32], fill: f32) -> Self::V {
        let mut all = [fill; LANES];
        all[..x.len()].copy_from_slice(x);
        self.load(&all)
    }

    /// Writes the first lanes.
    #[inline(always)]
    fn store_part(self, v: Self::V, x: &mut [f32]) {
        let mut all = [0.0; LANES];
        self.store(v, &mut all);
        x.copy_from_slice(&all[..x.len()]);
    }

    /// The 16 accumulators of a sum, added in the order of the contract: pairs `(0+8, 1+9, …)`, then
    /// `(0+4, …)`, `(0+2, …)`, `(0+1)`.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let mut x = [0.0; LANES];
        self.store(v, &mut x);
        tree(x)
    }

    /// The largest lane.
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        let mut x = [0.0; LANES];
        self.store(v, &mut x);
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                x[i] = Lanes::max(x[i], x[i + half]);
            }
            half /= 2;
        }
        x[0]
    }

    /// The largest lane, none below 0.
    #[inline(always)]
    fn largest_int(self, v: Int<Self>) -> i32 {
        let mut x = [0.0; LANES];
        self.store(Self::V::from_bits(v), &mut x);
        x.iter().fold(0, |peak, x| peak.max(x.to_bits() as i32))
    }

    /// The largest magnitude, by its bits, so that a NaN is above all numbers.
    #[inline(always)]
    fn peak(self, x: &[Row16]) -> f32 {
        let mut peak = self.splat(0.0);
        for x in x {
            let bits = self.load(x).to_bits();
            let magnitude = bits.and(bits.splat(0x7FFF_FFFF));
            peak = Self::V::from_bits(magnitude).if_int_lt(peak.to_bits(), magnitude, peak);
        }
        f32::from_bits(self.largest_int(peak.to_bits()) as u32)
    }

    /// `columns[i]` lane `j` = `rows[j]` lane `i`, written to memory.
    #[inline(always)]
    fn transpose(self, rows: &[Self::V; LANES], columns: &mut [Row16; LANES]) {
        let mut x = [[0.0; LANES]; LANES];
        for j in 0..LANES {
            self.store(rows[j], &mut x[j]);
        }
        for i in 0..LANES {
            for j in 0..LANES {
                columns[i][j] = x[j][i];
            }
        }
    }
}

/// One lane after the other, through the scalar implementation of the same trait.
macro_rules! by_lane {
    ($n:ident => $e:expr) => {{
        let mut out = [Default::default(); LANES];
        for $n in 0..LANES {
            out[$n] = $e;
        }
        out
    }};
}

/// The level that every machine has: arrays, which the compiler turns into what the target's baseline offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar;

/// Sixteen numbers as an array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct F32s(Row16);

/// Sixteen integers as an array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct I32s([i32; LANES]);

impl Isa for Scalar {
    type V = F32s;

    const GROUPS: &'static [usize] = &[2, 1];
    const INT_TOKENS: usize = 2;
    const INT_PANELS: usize = 1;
    const SIGNED_BIAS: i32 = 0;
    const QUAD_WORDS: usize = if cfg!(target_arch = "x86_64") { 2 } else { 1 };

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        F32s([x; LANES])
    }
    #[inline(always)]
    fn load(self, x: &Row16) -> F32s {
        F32s(*x)
    }
    #[inline(always)]
    fn store(self, v: F32s, x: &mut Row16) {
        *x = v.0;
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> F32s {
        F32s(x.map(f32::from))
    }
    #[inline(always)]
    fn shift_left(self, v: I32s, n: u32) -> I32s {
        I32s(by_lane!(i => v.0[i] << n))
    }
    #[inline(always)]
    fn shift_right(self, v: I32s, n: u32) -> I32s {
        I32s(by_lane!(i => (v.0[i] as u32 >> n) as i32))
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn quad(self, x: [i8; 4]) -> [i32; 2] {
        sse2::quad(x)
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn dot_quads(self, acc: I32s, w: I32s, x: [i32; 2]) -> I32s {
        I32s(sse2::dot_quads(acc.0, w.0, x))
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn dot_pairs(self, acc: I32s, w: I32s, x: i32) -> I32s {
        I32s(sse2::dot_pairs(acc.0, w.0, x))
    }
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn dot_quads(self, acc: I32s, w: I32s, x: [i32; 2]) -> I32s {
        let x = x[0].to_le_bytes();
        I32s(by_lane!(n => {
            let w = w.0[n].to_le_bytes();
            let product = |i: usize| i32::from(w[i] as i8) * i32::from(x[i] as i8);
            acc.0[n].wrapping_add(product(0) + product(1) + product(2) + product(3))
        }))
    }
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn dot_pairs(self, acc: I32s, w: I32s, x: i32) -> I32s {
        let product = |w: i32| i32::from(w as i16) * i32::from(x as i16) + (w >> 16) * (x >> 16);
        I32s(by_lane!(n => acc.0[n].wrapping_add(product(w.0[n]))))
    }
    #[inline(always)]
    fn mul_int(self, a: I32s, b: I32s) -> I32s {
        I32s(by_lane!(n => a.0[n].wrapping_mul(b.0[n])))
    }
}

impl Lanes for F32s {
    type Int = I32s;

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        F32s([x; LANES])
    }
    #[inline(always)]
    fn add(self, o: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n] + o.0[n]))
    }
    #[inline(always)]
    fn sub(self, o: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n] - o.0[n]))
    }
    #[inline(always)]
    fn mul(self, o: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n] * o.0[n]))
    }
    #[inline(always)]
    fn floor(self) -> F32s {
        F32s(by_lane!(n => Lanes::floor(self.0[n])))
    }
    #[inline(always)]
    fn select_lt(self, o: F32s, yes: F32s, no: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n].select_lt(o.0[n], yes.0[n], no.0[n])))
    }
    #[inline(always)]
    fn if_int_lt(self, a: I32s, b: I32s, no: F32s) -> F32s {
        F32s(by_lane!(n => self.0[n].if_int_lt(a.0[n], b.0[n], no.0[n])))
    }
    #[inline(always)]
    fn to_bits(self) -> I32s {
        I32s(by_lane!(n => Lanes::to_bits(self.0[n])))
    }
    #[inline(always)]
    fn from_bits(bits: I32s) -> F32s {
        F32s(by_lane!(n => <f32 as Lanes>::from_bits(bits.0[n])))
    }
    #[inline(always)]
    fn to_int(self) -> I32s {
        I32s(by_lane!(n => self.0[n].to_int()))
    }
    #[inline(always)]
    fn from_int(i: I32s) -> F32s {
        F32s(by_lane!(n => <f32 as Lanes>::from_int(i.0[n])))
    }
}

impl IntLanes for I32s {
    #[inline(always)]
    fn splat(self, i: i32) -> I32s {
        I32s([i; LANES])
    }
    #[inline(always)]
    fn add(self, o: I32s) -> I32s {
        I32s(by_lane!(n => self.0[n].wrapping_add(o.0[n])))
    }
    #[inline(always)]
    fn sub(self, o: I32s) -> I32s {
        I32s(by_lane!(n => self.0[n].wrapping_sub(o.0[n])))
    }
    #[inline(always)]
    fn and(self, o: I32s) -> I32s {
        I32s(by_lane!(n => self.0[n] & o.0[n]))
    }
    #[inline(always)]
    fn or(self, o: I32s) -> I32s {
        I32s(by_lane!(n => self.0[n] | o.0[n]))
    }
    #[inline(always)]
    fn xor(self, o: I32s) -> I32s {
        I32s(by_lane!(n => self.0[n] ^ o.0[n]))
    }
    #[inline(always)]
    fn shl<const N: i32>(self) -> I32s {
        I32s(by_lane!(n => self.0[n] << N))
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> I32s {
        I32s(by_lane!(n => self.0[n].shr::<N>()))
    }
}
