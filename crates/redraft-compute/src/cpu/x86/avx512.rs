//! AVX-512F: the 16 lanes are one register.
//!
//! Multiplications and additions stay separate instructions, except in [`Isa::add_exact`]. Safety as in `avx2.rs`: an
//! [`Avx512`] or a vector in hand is the proof that the machine has AVX-512F.

use std::arch::x86_64::*;

use super::avx2::{Avx2, dot_pairs8, dot_quads8, look_up8};
use crate::cpu::vector::{Isa, LANES, Row16, RowBytes};
use crate::math::{IntLanes, Lanes};

/// Proof that the machine has AVX-512F.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The proof, on trust.
    ///
    /// # Safety
    /// The machine must have AVX-512F.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Avx512 {
        Avx512(())
    }
}

impl Avx512 {
    /// Lanes 0..8 and 8..16.
    #[inline(always)]
    fn split(self, v: I32s) -> [__m256i; 2] {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe { [_mm512_castsi512_si256(v.0), _mm512_extracti64x4_epi64::<1>(v.0)] }
    }

    /// The reverse of [`split`](Self::split).
    #[inline(always)]
    fn join(self, low: __m256i, high: __m256i) -> I32s {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe { I32s(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)) }
    }
}

/// Sixteen numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct F32s(pub(super) __m512);

/// Sixteen integers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct I32s(pub(super) __m512i);

/// Applies an intrinsic.
macro_rules! whole {
    ($out:ident, $f:ident $(::<$n:tt>)?, $($x:expr),+) => {
        // SAFETY: a vector is in hand, so the machine has AVX-512F (see the module).
        unsafe { $out($f$(::<$n>)?($($x.0),+)) }
    };
}

impl Isa for Avx512 {
    type V = F32s;

    // 24 accumulators, the weights, an activation and a product, of 32 registers.
    const GROUPS: &'static [usize] = &[24, 16, 12, 8, 4, 2, 1];
    const INT_TOKENS: usize = <Avx2 as Isa>::INT_TOKENS;
    const INT_PANELS: usize = <Avx2 as Isa>::INT_PANELS;
    const SIGNED_BIAS: i32 = <Avx2 as Isa>::SIGNED_BIAS;
    const QUAD_WORDS: usize = <Avx2 as Isa>::QUAD_WORDS;

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe { F32s(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    fn load(self, x: &Row16) -> F32s {
        // SAFETY: `self` is the proof of AVX-512F; the load reads the 16 elements.
        unsafe { F32s(_mm512_loadu_ps(x.as_ptr())) }
    }
    #[inline(always)]
    fn store(self, v: F32s, x: &mut Row16) {
        // SAFETY: `self` is the proof of AVX-512F; the store writes the 16 elements.
        unsafe { _mm512_storeu_ps(x.as_mut_ptr(), v.0) }
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> F32s {
        // SAFETY: `self` is the proof of AVX-512F; the load reads the 16 bytes.
        unsafe { F32s(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast())))) }
    }

    #[inline(always)]
    fn load_int(self, x: &[i32; LANES]) -> I32s {
        // SAFETY: `self` is the proof of AVX-512F; the load reads the 16 elements.
        unsafe { I32s(_mm512_loadu_si512(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bytes(self, x: &[i8; 4 * LANES]) -> I32s {
        // SAFETY: `self` is the proof of AVX-512F; the load reads the 64 bytes.
        unsafe { I32s(_mm512_loadu_si512(x.as_ptr().cast())) }
    }

    /// Four rows side by side, a quarter each; then transpositions of 4 x 4 inside the quarters.
    #[inline(always)]
    fn load_rows(self, rows: &RowBytes<'_>, at: usize) -> [I32s; 4] {
        assert!(at + 16 <= rows.len(), "bytes {at} to {at} + 15 of rows of {}", rows.len());
        let (base, mut stride) = rows.address(at);
        // SAFETY: `self` is the proof of AVX-512F. Row `j` has its byte `at` at `base + j * stride`, and 16 bytes from
        // there on. The empty assembly changes nothing.
        unsafe {
            // Hides from the compiler that the distance is the same in each turn of a loop: it would keep sixteen
            // addresses, more than there are registers.
            std::arch::asm!("/* {0} */", inout(reg) stride, options(nomem, nostack, preserves_flags));
            let mut r = [_mm512_setzero_si512(); 4];
            for (j, r) in r.iter_mut().enumerate() {
                let v = _mm512_castsi128_si512(_mm_loadu_si128(base.add(j * stride).cast()));
                let v = _mm512_inserti32x4::<1>(v, _mm_loadu_si128(base.add((4 + j) * stride).cast()));
                let v = _mm512_inserti32x4::<2>(v, _mm_loadu_si128(base.add((8 + j) * stride).cast()));
                *r = _mm512_inserti32x4::<3>(v, _mm_loadu_si128(base.add((12 + j) * stride).cast()));
            }
            let [a, b, c, d] = r;
            let (ab0, ab1) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let (cd0, cd1) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            [
                I32s(_mm512_unpacklo_epi64(ab0, cd0)),
                I32s(_mm512_unpackhi_epi64(ab0, cd0)),
                I32s(_mm512_unpacklo_epi64(ab1, cd1)),
                I32s(_mm512_unpackhi_epi64(ab1, cd1)),
            ]
        }
    }
    #[inline(always)]
    fn shift_left(self, v: I32s, n: u32) -> I32s {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe { I32s(_mm512_sll_epi32(v.0, _mm_cvtsi32_si128(n as i32))) }
    }
    #[inline(always)]
    fn shift_right(self, v: I32s, n: u32) -> I32s {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe { I32s(_mm512_srl_epi32(v.0, _mm_cvtsi32_si128(n as i32))) }
    }
    #[inline(always)]
    fn halves(self, v: I32s) -> F32s {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe { F32s(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(v.0))) }
    }
    #[inline(always)]
    fn add_exact(self, acc: F32s, a: F32s, b: F32s) -> F32s {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe { F32s(_mm512_fmadd_ps(a.0, b.0, acc.0)) }
    }

    // Products of small integers are not part of AVX-512F. Every such machine has AVX2, which does them by halves.

    #[inline(always)]
    fn quad(self, x: [i8; 4]) -> [i32; 2] {
        // SAFETY: `self` is the proof of AVX-512F, which every such machine has together with AVX2.
        unsafe { Avx2::assume() }.quad(x)
    }
    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: I32s) -> I32s {
        // SAFETY: as in `quad`.
        let avx2 = unsafe { Avx2::assume() };
        let [low, high] = self.split(v);
        self.join(look_up8(avx2, table, low), look_up8(avx2, table, high))
    }
    #[inline(always)]
    fn dot_quads(self, acc: I32s, w: I32s, x: [i32; 2]) -> I32s {
        // SAFETY: as in `quad`.
        let avx2 = unsafe { Avx2::assume() };
        let ([acc0, acc1], [w0, w1]) = (self.split(acc), self.split(w));
        self.join(dot_quads8(avx2, acc0, w0, x), dot_quads8(avx2, acc1, w1, x))
    }
    #[inline(always)]
    fn dot_pairs(self, acc: I32s, w: I32s, x: i32) -> I32s {
        // SAFETY: as in `quad`.
        let avx2 = unsafe { Avx2::assume() };
        let ([acc0, acc1], [w0, w1]) = (self.split(acc), self.split(w));
        self.join(dot_pairs8(avx2, acc0, w0, x), dot_pairs8(avx2, acc1, w1, x))
    }
    #[inline(always)]
    fn mul_int(self, a: I32s, b: I32s) -> I32s {
        whole!(I32s, _mm512_mullo_epi32, a, b)
    }
    #[inline(always)]
    fn low_bytes(self, v: I32s) -> [i8; LANES] {
        let mut x = [0; LANES];
        // SAFETY: `self` is the proof of AVX-512F; the store writes the 16 bytes.
        unsafe { _mm_storeu_si128(x.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(v.0)) };
        x
    }

    #[inline(always)]
    fn sum_int(self, v: I32s) -> i32 {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe { _mm512_reduce_add_epi32(v.0) }
    }
    #[inline(always)]
    fn largest_int(self, v: I32s) -> i32 {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe { _mm512_reduce_max_epi32(v.0) }
    }

    /// Pairs of rows interleaved, then pairs of pairs: a register then holds four rows of the columns `c`, `4 + c`,
    /// `8 + c` and `12 + c`, a quarter each. The quarters of four registers are exchanged in two more steps.
    #[inline(always)]
    fn transpose(self, rows: &[F32s; LANES], columns: &mut [Row16; LANES]) {
        // SAFETY: `self` is the proof of AVX-512F.
        unsafe {
            let mut quarters = [_mm512_setzero_ps(); LANES];
            for i in 0..4 {
                let [a, b, c, d] = [rows[4 * i].0, rows[4 * i + 1].0, rows[4 * i + 2].0, rows[4 * i + 3].0];
                let (ab0, ab1) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let (cd0, cd1) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                quarters[4 * i] = _mm512_shuffle_ps::<0x44>(ab0, cd0);
                quarters[4 * i + 1] = _mm512_shuffle_ps::<0xEE>(ab0, cd0);
                quarters[4 * i + 2] = _mm512_shuffle_ps::<0x44>(ab1, cd1);
                quarters[4 * i + 3] = _mm512_shuffle_ps::<0xEE>(ab1, cd1);
            }
            for c in 0..4 {
                let (a, b, d, e) = (quarters[c], quarters[4 + c], quarters[8 + c], quarters[12 + c]);
                let (low0, high0) = (_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xEE>(a, b));
                let (low1, high1) = (_mm512_shuffle_f32x4::<0x44>(d, e), _mm512_shuffle_f32x4::<0xEE>(d, e));
                self.store(F32s(_mm512_shuffle_f32x4::<0x88>(low0, low1)), &mut columns[c]);
                self.store(F32s(_mm512_shuffle_f32x4::<0xDD>(low0, low1)), &mut columns[4 + c]);
                self.store(F32s(_mm512_shuffle_f32x4::<0x88>(high0, high1)), &mut columns[8 + c]);
                self.store(F32s(_mm512_shuffle_f32x4::<0xDD>(high0, high1)), &mut columns[12 + c]);
            }
        }
    }
}

impl Lanes for F32s {
    type Int = I32s;

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        Avx512(()).splat(x)
    }
    #[inline(always)]
    fn add(self, o: F32s) -> F32s {
        whole!(F32s, _mm512_add_ps, self, o)
    }
    #[inline(always)]
    fn sub(self, o: F32s) -> F32s {
        whole!(F32s, _mm512_sub_ps, self, o)
    }
    #[inline(always)]
    fn mul(self, o: F32s) -> F32s {
        whole!(F32s, _mm512_mul_ps, self, o)
    }
    /// Rounding mode 1 is towards minus infinity; 8 keeps the inexact flag alone.
    #[inline(always)]
    fn floor(self) -> F32s {
        whole!(F32s, _mm512_roundscale_ps::<0x09>, self)
    }
    #[inline(always)]
    fn select_lt(self, o: F32s, yes: F32s, no: F32s) -> F32s {
        // SAFETY: a vector is in hand, so the machine has AVX-512F.
        unsafe { F32s(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, o.0), no.0, yes.0)) }
    }
    #[inline(always)]
    fn if_int_lt(self, a: I32s, b: I32s, no: F32s) -> F32s {
        // SAFETY: a vector is in hand, so the machine has AVX-512F.
        unsafe { F32s(_mm512_mask_blend_ps(_mm512_cmplt_epi32_mask(a.0, b.0), no.0, self.0)) }
    }
    #[inline(always)]
    fn to_bits(self) -> I32s {
        whole!(I32s, _mm512_castps_si512, self)
    }
    #[inline(always)]
    fn from_bits(bits: I32s) -> F32s {
        whole!(F32s, _mm512_castsi512_ps, bits)
    }
    #[inline(always)]
    fn to_int(self) -> I32s {
        whole!(I32s, _mm512_cvttps_epi32, self)
    }
    #[inline(always)]
    fn from_int(i: I32s) -> F32s {
        whole!(F32s, _mm512_cvtepi32_ps, i)
    }
    /// The order of the operands matters, as in `avx2.rs`.
    #[inline(always)]
    fn max(self, o: F32s) -> F32s {
        whole!(F32s, _mm512_max_ps, o, self)
    }
}

impl IntLanes for I32s {
    #[inline(always)]
    fn splat(self, i: i32) -> I32s {
        // SAFETY: a vector is in hand, so the machine has AVX-512F.
        unsafe { I32s(_mm512_set1_epi32(i)) }
    }
    #[inline(always)]
    fn add(self, o: I32s) -> I32s {
        whole!(I32s, _mm512_add_epi32, self, o)
    }
    #[inline(always)]
    fn sub(self, o: I32s) -> I32s {
        whole!(I32s, _mm512_sub_epi32, self, o)
    }
    #[inline(always)]
    fn and(self, o: I32s) -> I32s {
        whole!(I32s, _mm512_and_si512, self, o)
    }
    #[inline(always)]
    fn or(self, o: I32s) -> I32s {
        whole!(I32s, _mm512_or_si512, self, o)
    }
    #[inline(always)]
    fn xor(self, o: I32s) -> I32s {
        whole!(I32s, _mm512_xor_si512, self, o)
    }
    #[inline(always)]
    fn shl<const N: i32>(self) -> I32s {
        // SAFETY: a vector is in hand, so the machine has AVX-512F. (The immediate form takes an unsigned
        // constant, which a constant parameter of this trait cannot be turned into.)
        unsafe { I32s(_mm512_sll_epi32(self.0, _mm_cvtsi32_si128(N))) }
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> I32s {
        // SAFETY: as in `shl`.
        unsafe { I32s(_mm512_srl_epi32(self.0, _mm_cvtsi32_si128(N))) }
    }
}

crate::cpu::table::level_table!(Avx512, "avx512f");
