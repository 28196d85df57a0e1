//! VNNI: products of bytes in one instruction, with 512-bit registers (AVX-512 VNNI) and with 256-bit registers
//! (AVX-VNNI, on machines without AVX-512).
//!
//! `vpdpbusd` multiplies unsigned bytes with signed ones. The weights are the unsigned ones, so that the activation can
//! be the operand that is read from memory. Everything else is that of AVX-512 and of AVX2.

use std::arch::x86_64::*;

use super::{avx2, avx512};
use crate::cpu::vector::{Int, Isa, LANES, Row16, RowBytes};

/// Proof that the machine has AVX-512 F, BW and VNNI, and BF16 where that is said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512Vnni<const BF16: bool>(());

/// Proof that the machine has AVX2, F16C, FMA and AVX-VNNI.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AvxVnni(());

/// The parts of [`Isa`] that are those of a set without VNNI.
macro_rules! as_base {
    ($base:ty, $v:ty) => {
        type V = $v;

        const GROUPS: &'static [usize] = <$base as Isa>::GROUPS;
        const SIGNED_BIAS: i32 = 128;
        const QUAD_WORDS: usize = 1;

        #[inline(always)]
        fn splat(self, x: f32) -> $v {
            self.base().splat(x)
        }
        #[inline(always)]
        fn load(self, x: &Row16) -> $v {
            self.base().load(x)
        }
        #[inline(always)]
        fn store(self, v: $v, x: &mut Row16) {
            self.base().store(v, x)
        }
        #[inline(always)]
        fn load_i8(self, x: &[i8; LANES]) -> $v {
            self.base().load_i8(x)
        }
        #[inline(always)]
        fn load_int(self, x: &[i32; LANES]) -> Int<Self> {
            self.base().load_int(x)
        }
        #[inline(always)]
        fn load_bytes(self, x: &[i8; 4 * LANES]) -> Int<Self> {
            self.base().load_bytes(x)
        }
        #[inline(always)]
        fn load_rows(self, rows: &RowBytes<'_>, at: usize) -> [Int<Self>; 4] {
            self.base().load_rows(rows, at)
        }
        #[inline(always)]
        fn shift_left(self, v: Int<Self>, n: u32) -> Int<Self> {
            self.base().shift_left(v, n)
        }
        #[inline(always)]
        fn shift_right(self, v: Int<Self>, n: u32) -> Int<Self> {
            self.base().shift_right(v, n)
        }
        #[inline(always)]
        fn halves(self, v: Int<Self>) -> $v {
            self.base().halves(v)
        }
        #[inline(always)]
        fn add_exact(self, acc: $v, a: $v, b: $v) -> $v {
            self.base().add_exact(acc, a, b)
        }
        #[inline(always)]
        fn transpose(self, rows: &[$v; LANES], columns: &mut [Row16; LANES]) {
            self.base().transpose(rows, columns)
        }
    };
}

impl<const BF16: bool> Avx512Vnni<BF16> {
    /// The proof, on trust.
    ///
    /// # Safety
    /// The machine must have AVX-512 F, BW and VNNI, and BF16 where that is said.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Avx512Vnni<BF16> {
        Avx512Vnni(())
    }

    #[inline(always)]
    fn base(self) -> avx512::Avx512 {
        // SAFETY: `self` is the proof of more than AVX-512F.
        unsafe { avx512::Avx512::assume() }
    }
}

impl<const BF16: bool> Isa for Avx512Vnni<BF16> {
    as_base!(avx512::Avx512, avx512::F32s);

    // 6 x 2 sums of a sub-block, 6 x 2 of a unit, 2 weights and an activation, of 32 registers.
    const INT_TOKENS: usize = 6;
    const INT_PANELS: usize = 2;

    const HALF_PAIRS: bool = BF16;

    /// The byte of four bits in each of four bytes, one bit of it kept in each.
    #[inline(always)]
    fn fifth_bits(self, v: avx512::I32s, i: u32) -> avx512::I32s {
        // SAFETY: `self` is the proof of AVX-512 F and BW.
        unsafe {
            let from = _mm512_set4_epi32(0x0C0C_0C0C, 0x0808_0808, 0x0404_0404, 0);
            let bytes = _mm512_shuffle_epi8(
                v.0,
                _mm512_add_epi32(from, _mm512_set1_epi32(0x0101_0101 * (i / 2) as i32)),
            );
            let bits = if i.is_multiple_of(2) { 0x0804_0201 } else { 0x8040_2010u32 as i32 };
            let set = _mm512_test_epi8_mask(bytes, _mm512_set1_epi32(bits));
            avx512::I32s(_mm512_maskz_mov_epi8(set, _mm512_set1_epi8(16)))
        }
    }
    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: avx512::I32s) -> avx512::I32s {
        // SAFETY: `self` is the proof of AVX-512 F and BW; the load reads the 16 bytes.
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            avx512::I32s(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v.0))
        }
    }

    /// `vdpbf16ps` adds the product of the upper halves, rounds, and adds that of the lower halves. It takes subnormal
    /// numbers for 0, and none occur.
    #[inline(always)]
    fn add_halves(self, acc: avx512::F32s, a: avx512::I32s, b: avx512::I32s) -> avx512::F32s {
        assert!(BF16, "products of pairs of bf16");
        // SAFETY: `self` is the proof of AVX-512 BF16; the vectors are 512 bits without invalid patterns.
        unsafe {
            let (a, b) = (
                std::mem::transmute::<__m512i, __m512bh>(a.0),
                std::mem::transmute::<__m512i, __m512bh>(b.0),
            );
            avx512::F32s(_mm512_dpbf16_ps(acc.0, a, b))
        }
    }

    #[inline(always)]
    fn dot_quads(self, acc: avx512::I32s, w: avx512::I32s, x: [i32; 2]) -> avx512::I32s {
        // SAFETY: `self` is the proof of AVX-512 VNNI.
        unsafe { avx512::I32s(_mm512_dpbusd_epi32(acc.0, w.0, _mm512_set1_epi32(x[0]))) }
    }
    #[inline(always)]
    fn dot_pairs(self, acc: avx512::I32s, w: avx512::I32s, x: i32) -> avx512::I32s {
        // SAFETY: `self` is the proof of AVX-512 VNNI.
        unsafe { avx512::I32s(_mm512_dpwssd_epi32(acc.0, w.0, _mm512_set1_epi32(x))) }
    }
    #[inline(always)]
    fn mul_int(self, a: avx512::I32s, b: avx512::I32s) -> avx512::I32s {
        self.base().mul_int(a, b)
    }
    #[inline(always)]
    fn low_bytes(self, v: avx512::I32s) -> [i8; LANES] {
        self.base().low_bytes(v)
    }
    #[inline(always)]
    fn sum_int(self, v: avx512::I32s) -> i32 {
        self.base().sum_int(v)
    }
    #[inline(always)]
    fn largest_int(self, v: avx512::I32s) -> i32 {
        self.base().largest_int(v)
    }
}

impl AvxVnni {
    /// The proof, on trust.
    ///
    /// # Safety
    /// The machine must have AVX2, F16C, FMA and AVX-VNNI.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> AvxVnni {
        AvxVnni(())
    }

    #[inline(always)]
    fn base(self) -> avx2::Avx2 {
        // SAFETY: `self` is the proof of more than AVX2.
        unsafe { avx2::Avx2::assume() }
    }
}

impl Isa for AvxVnni {
    as_base!(avx2::Avx2, avx2::F32s);

    // Twice 4 sums of a sub-block, 2 weights and an activation, of 16 registers; the sums of the unit wait in
    // memory.
    const INT_TOKENS: usize = 4;
    const INT_PANELS: usize = 1;

    #[inline(always)]
    fn look_up(self, table: &[i8; 16], v: avx2::I32s) -> avx2::I32s {
        self.base().look_up(table, v)
    }

    #[inline(always)]
    fn dot_quads(self, acc: avx2::I32s, w: avx2::I32s, x: [i32; 2]) -> avx2::I32s {
        // SAFETY: `self` is the proof of AVX-VNNI.
        unsafe {
            let x = _mm256_set1_epi32(x[0]);
            avx2::I32s(_mm256_dpbusd_avx_epi32(acc.0, w.0, x), _mm256_dpbusd_avx_epi32(acc.1, w.1, x))
        }
    }
    #[inline(always)]
    fn dot_pairs(self, acc: avx2::I32s, w: avx2::I32s, x: i32) -> avx2::I32s {
        self.base().dot_pairs(acc, w, x)
    }
    #[inline(always)]
    fn mul_int(self, a: avx2::I32s, b: avx2::I32s) -> avx2::I32s {
        self.base().mul_int(a, b)
    }
}

/// The kernels for 512-bit registers.
pub(in crate::cpu) mod wide {
    use super::{Isa, Row16, RowBytes};

    type Avx512Vnni = super::Avx512Vnni<false>;

    crate::cpu::table::level_table!(Avx512Vnni, "avx512f,avx512bw,avx512vnni");
}

/// The kernels for 512-bit registers with products of bfloat16 numbers.
pub(in crate::cpu) mod wide_bf16 {
    use super::{Isa, Row16, RowBytes};

    type Avx512Bf16 = super::Avx512Vnni<true>;

    crate::cpu::table::level_table!(Avx512Bf16, "avx512f,avx512bw,avx512vnni,avx512bf16");
}

/// The kernels for 256-bit registers.
pub(in crate::cpu) mod narrow {
    use super::{AvxVnni, Isa, Row16, RowBytes};

    crate::cpu::table::level_table!(AvxVnni, "avx2,f16c,fma,avxvnni");
}
