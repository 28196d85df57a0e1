//! AVX2: the 16 lanes are two 256-bit registers, lanes 0..8 and 8..16.
//!
//! Multiplications and additions stay separate instructions, except in [`Isa::add_exact`]; the compiler does not
//! contract them.
//!
//! Safety of this file: each intrinsic needs AVX2 (or F16C or FMA, which every such machine has and `table()` looks
//! for), and a vector exists only where an [`Avx2`] existed, which only [`Avx2::assume`] makes. Loads and stores go
//! through references to 16 elements, with instructions that allow any alignment.

use std::arch::x86_64::*;

use super::sse2;
use crate::cpu::vector::{Isa, LANES, Row16, RowBytes};
use crate::math::{IntLanes, Lanes};

/// Proof that the machine has AVX2, F16C and FMA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The proof, on trust.
    ///
    /// # Safety
    /// The machine must have AVX2, F16C and FMA.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Avx2 {
        Avx2(())
    }
}

/// Sixteen numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct F32s(pub(super) __m256, pub(super) __m256);

/// Sixteen integers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct I32s(pub(super) __m256i, pub(super) __m256i);

/// Applies an intrinsic to both halves.
macro_rules! halves {
    ($out:ident, $f:ident $(::<$n:tt>)?, $($x:expr),+) => {
        // SAFETY: a vector is in hand, so the machine has AVX2 (see the module).
        unsafe { $out($f$(::<$n>)?($($x.0),+), $f$(::<$n>)?($($x.1),+)) }
    };
}

impl Isa for Avx2 {
    type V = F32s;

    // 6 x 2 accumulators, 2 weights, 1 activation and 1 product are the 16 registers.
    const GROUPS: &'static [usize] = &[6, 4, 2, 1];
    const INT_TOKENS: usize = 4;
    const INT_PANELS: usize = 1;
    const SIGNED_BIAS: i32 = 0;
    const QUAD_WORDS: usize = 2;

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { F32s(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }
    #[inline(always)]
    fn load(self, x: &Row16) -> F32s {
        // SAFETY: `self` is the proof of AVX2; both halves lie inside the 16 elements.
        unsafe { F32s(_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x[8..].as_ptr())) }
    }
    #[inline(always)]
    fn store(self, v: F32s, x: &mut Row16) {
        // SAFETY: `self` is the proof of AVX2; both halves lie inside the 16 elements.
        unsafe {
            _mm256_storeu_ps(x.as_mut_ptr(), v.0);
            _mm256_storeu_ps(x[8..].as_mut_ptr(), v.1);
        }
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> F32s {
        // SAFETY: `self` is the proof of AVX2; the load reads the 16 bytes.
        unsafe {
            let all = _mm_loadu_si128(x.as_ptr().cast());
            let low = _mm256_cvtepi8_epi32(all);
            let high = _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(all));
            F32s(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
        }
    }

    #[inline(always)]
    fn load_int(self, x: &[i32; LANES]) -> I32s {
        // SAFETY: `self` is the proof of AVX2; both halves lie inside the 16 elements.
        unsafe { I32s(_mm256_loadu_si256(x.as_ptr().cast()), _mm256_loadu_si256(x[8..].as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bytes(self, x: &[i8; 4 * LANES]) -> I32s {
        // SAFETY: `self` is the proof of AVX2; both halves lie inside the 64 bytes.
        unsafe { I32s(_mm256_loadu_si256(x.as_ptr().cast()), _mm256_loadu_si256(x[32..].as_ptr().cast())) }
    }
    /// Four rows of each half side by side, a quarter each; then transpositions of 4 x 4 inside the quarters.
    #[inline(always)]
    fn load_rows(self, rows: &RowBytes<'_>, at: usize) -> [I32s; 4] {
        assert!(at + 16 <= rows.len(), "bytes {at} to {at} + 15 of rows of {}", rows.len());
        let (base, stride) = rows.address(at);
        // SAFETY: row `j` has its byte `at` at `base + j * stride`, and 16 bytes from there on.
        let (low, high) = unsafe { (rows8(self, base, stride), rows8(self, base.add(8 * stride), stride)) };
        [I32s(low[0], high[0]), I32s(low[1], high[1]), I32s(low[2], high[2]), I32s(low[3], high[3])]
    }
    #[inline(always)]
    fn shift_left(self, v: I32s, n: u32) -> I32s {
        // SAFETY: `self` is the proof of AVX2.
        let n = unsafe { _mm_cvtsi32_si128(n as i32) };
        // SAFETY: as above.
        unsafe { I32s(_mm256_sll_epi32(v.0, n), _mm256_sll_epi32(v.1, n)) }
    }
    #[inline(always)]
    fn shift_right(self, v: I32s, n: u32) -> I32s {
        // SAFETY: `self` is the proof of AVX2.
        let n = unsafe { _mm_cvtsi32_si128(n as i32) };
        // SAFETY: as above.
        unsafe { I32s(_mm256_srl_epi32(v.0, n), _mm256_srl_epi32(v.1, n)) }
    }
    #[inline(always)]
    fn halves(self, v: I32s) -> F32s {
        // SAFETY: `self` is the proof of AVX2 and F16C.
        unsafe {
            let mixed = _mm256_packus_epi32(v.0, v.1);
            let codes = _mm256_permute4x64_epi64::<0xD8>(mixed);
            let (low, high) = (_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes));
            F32s(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        }
    }
    #[inline(always)]
    fn add_exact(self, acc: F32s, a: F32s, b: F32s) -> F32s {
        // SAFETY: `self` is the proof of AVX2 and FMA.
        unsafe { F32s(_mm256_fmadd_ps(a.0, b.0, acc.0), _mm256_fmadd_ps(a.1, b.1, acc.1)) }
    }
    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: I32s) -> I32s {
        I32s(look_up8(self, table, v.0), look_up8(self, table, v.1))
    }
    #[inline(always)]
    fn quad(self, x: [i8; 4]) -> [i32; 2] {
        sse2::quad(x)
    }
    /// The even and the odd bytes of the weights as 16 bits each, so that no sum of products can saturate.
    #[inline(always)]
    fn dot_quads(self, acc: I32s, w: I32s, x: [i32; 2]) -> I32s {
        I32s(dot_quads8(self, acc.0, w.0, x), dot_quads8(self, acc.1, w.1, x))
    }
    #[inline(always)]
    fn dot_pairs(self, acc: I32s, w: I32s, x: i32) -> I32s {
        I32s(dot_pairs8(self, acc.0, w.0, x), dot_pairs8(self, acc.1, w.1, x))
    }
    #[inline(always)]
    fn mul_int(self, a: I32s, b: I32s) -> I32s {
        halves!(I32s, _mm256_mullo_epi32, a, b)
    }

    /// Four transpositions of 8 x 8.
    #[inline(always)]
    fn transpose(self, rows: &[F32s; LANES], columns: &mut [Row16; LANES]) {
        let (top, bottom) = rows.split_at(8);
        for (rows, at) in [(top, 0), (bottom, 8)] {
            let (mut low, mut high) = ([rows[0].0; 8], [rows[0].1; 8]);
            for j in 0..8 {
                (low[j], high[j]) = (rows[j].0, rows[j].1);
            }
            transpose8(self, low, &mut columns[..8], at);
            transpose8(self, high, &mut columns[8..], at);
        }
    }
}

/// 16 bytes of each of eight rows as four words.
///
/// # Safety
/// 16 bytes can be read at `base + j * stride` for `j` from 0 to 7.
#[inline(always)]
unsafe fn rows8(_: Avx2, base: *const u8, stride: usize) -> [__m256i; 4] {
    // SAFETY: the first argument is the proof of AVX2; the caller answers for the bytes.
    unsafe {
        let mut r = [_mm256_setzero_si256(); 4];
        for (j, r) in r.iter_mut().enumerate() {
            let low = _mm_loadu_si128(base.add(j * stride).cast());
            let high = _mm_loadu_si128(base.add((4 + j) * stride).cast());
            *r = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
        }
        let (ab0, ab1) = (_mm256_unpacklo_epi32(r[0], r[1]), _mm256_unpackhi_epi32(r[0], r[1]));
        let (cd0, cd1) = (_mm256_unpacklo_epi32(r[2], r[3]), _mm256_unpackhi_epi32(r[2], r[3]));
        [
            _mm256_unpacklo_epi64(ab0, cd0),
            _mm256_unpackhi_epi64(ab0, cd0),
            _mm256_unpacklo_epi64(ab1, cd1),
            _mm256_unpackhi_epi64(ab1, cd1),
        ]
    }
}

/// [`Isa::look_up`] of eight lanes.
#[inline(always)]
pub(super) fn look_up8(_: Avx2, table: &[i8; 16], v: __m256i) -> __m256i {
    // SAFETY: the first argument is the proof of AVX2; the load reads the 16 bytes.
    unsafe {
        let table = _mm_loadu_si128(table.as_ptr().cast());
        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v)
    }
}

/// [`Isa::dot_quads`] of eight lanes.
#[inline(always)]
pub(super) fn dot_quads8(_: Avx2, acc: __m256i, w: __m256i, x: [i32; 2]) -> __m256i {
    // SAFETY: the first argument is the proof of AVX2.
    unsafe {
        let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w));
        let odd = _mm256_srai_epi16::<8>(w);
        let acc = _mm256_add_epi32(acc, _mm256_madd_epi16(even, _mm256_set1_epi32(x[0])));
        _mm256_add_epi32(acc, _mm256_madd_epi16(odd, _mm256_set1_epi32(x[1])))
    }
}

/// [`Isa::dot_pairs`] of eight lanes.
#[inline(always)]
pub(super) fn dot_pairs8(_: Avx2, acc: __m256i, w: __m256i, x: i32) -> __m256i {
    // SAFETY: the first argument is the proof of AVX2.
    unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(w, _mm256_set1_epi32(x))) }
}

/// Writes column `i` of `r` to `columns[i][at..at + 8]`.
#[inline(always)]
pub(super) fn transpose8(_: Avx2, r: [__m256; 8], columns: &mut [Row16], at: usize) {
    // SAFETY: the argument is the proof of AVX2; each store writes the 8 elements of the slice beside it.
    unsafe {
        // Pairs of rows interleaved, then pairs of pairs: each register holds four rows of one column in
        // its lower half and of the column four further in its upper half.
        let mut q = [_mm256_setzero_ps(); 8];
        for h in 0..2 {
            let [a, b, c, d] = [r[4 * h], r[4 * h + 1], r[4 * h + 2], r[4 * h + 3]];
            let (ab0, ab1) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let (cd0, cd1) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            q[4 * h] = _mm256_shuffle_ps::<0x44>(ab0, cd0);
            q[4 * h + 1] = _mm256_shuffle_ps::<0xEE>(ab0, cd0);
            q[4 * h + 2] = _mm256_shuffle_ps::<0x44>(ab1, cd1);
            q[4 * h + 3] = _mm256_shuffle_ps::<0xEE>(ab1, cd1);
        }
        for i in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(q[i], q[i + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(q[i], q[i + 4]);
            _mm256_storeu_ps(columns[i][at..at + 8].as_mut_ptr(), low);
            _mm256_storeu_ps(columns[i + 4][at..at + 8].as_mut_ptr(), high);
        }
    }
}

impl Lanes for F32s {
    type Int = I32s;

    #[inline(always)]
    fn splat(self, x: f32) -> F32s {
        Avx2(()).splat(x)
    }
    #[inline(always)]
    fn add(self, o: F32s) -> F32s {
        halves!(F32s, _mm256_add_ps, self, o)
    }
    #[inline(always)]
    fn sub(self, o: F32s) -> F32s {
        halves!(F32s, _mm256_sub_ps, self, o)
    }
    #[inline(always)]
    fn mul(self, o: F32s) -> F32s {
        halves!(F32s, _mm256_mul_ps, self, o)
    }
    #[inline(always)]
    fn floor(self) -> F32s {
        halves!(F32s, _mm256_floor_ps, self)
    }
    #[inline(always)]
    fn select_lt(self, o: F32s, yes: F32s, no: F32s) -> F32s {
        let less = halves!(F32s, _mm256_cmp_ps::<_CMP_LT_OQ>, self, o);
        halves!(F32s, _mm256_blendv_ps, no, yes, less)
    }
    #[inline(always)]
    fn if_int_lt(self, a: I32s, b: I32s, no: F32s) -> F32s {
        let less = halves!(I32s, _mm256_cmpgt_epi32, b, a);
        halves!(F32s, _mm256_blendv_ps, no, self, F32s::from_bits(less))
    }
    #[inline(always)]
    fn to_bits(self) -> I32s {
        halves!(I32s, _mm256_castps_si256, self)
    }
    #[inline(always)]
    fn from_bits(bits: I32s) -> F32s {
        halves!(F32s, _mm256_castsi256_ps, bits)
    }
    #[inline(always)]
    fn to_int(self) -> I32s {
        halves!(I32s, _mm256_cvttps_epi32, self)
    }
    #[inline(always)]
    fn from_int(i: I32s) -> F32s {
        halves!(F32s, _mm256_cvtepi32_ps, i)
    }
    /// `maxps` returns its second operand for a NaN and for two zeros, which is what the contract asks for
    /// with the operands in this order.
    #[inline(always)]
    fn max(self, o: F32s) -> F32s {
        halves!(F32s, _mm256_max_ps, o, self)
    }
}

impl IntLanes for I32s {
    #[inline(always)]
    fn splat(self, i: i32) -> I32s {
        // SAFETY: a vector is in hand, so the machine has AVX2.
        unsafe { I32s(_mm256_set1_epi32(i), _mm256_set1_epi32(i)) }
    }
    #[inline(always)]
    fn add(self, o: I32s) -> I32s {
        halves!(I32s, _mm256_add_epi32, self, o)
    }
    #[inline(always)]
    fn sub(self, o: I32s) -> I32s {
        halves!(I32s, _mm256_sub_epi32, self, o)
    }
    #[inline(always)]
    fn and(self, o: I32s) -> I32s {
        halves!(I32s, _mm256_and_si256, self, o)
    }
    #[inline(always)]
    fn or(self, o: I32s) -> I32s {
        halves!(I32s, _mm256_or_si256, self, o)
    }
    #[inline(always)]
    fn xor(self, o: I32s) -> I32s {
        halves!(I32s, _mm256_xor_si256, self, o)
    }
    #[inline(always)]
    fn shl<const N: i32>(self) -> I32s {
        halves!(I32s, _mm256_slli_epi32::<N>, self)
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> I32s {
        halves!(I32s, _mm256_srli_epi32::<N>, self)
    }
}

crate::cpu::table::level_table!(Avx2, "avx2,f16c,fma");
