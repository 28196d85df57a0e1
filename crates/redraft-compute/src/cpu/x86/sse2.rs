//! Products of small integers with SSE2, which every x86-64 has, for the scalar level: `pmaddwd` is the one
//! multiplication of integers that the baseline has in vectors, and no plain code becomes it.

use std::arch::x86_64::*;

use crate::cpu::vector::LANES;

/// In each lane: `acc` plus the products of the two signed halves of `w` with those of `x`.
#[inline(always)]
pub(in crate::cpu) fn dot_pairs(mut acc: [i32; LANES], w: [i32; LANES], x: i32) -> [i32; LANES] {
    for (acc, w) in acc.as_chunks_mut::<4>().0.iter_mut().zip(w.as_chunks::<4>().0) {
        // SAFETY: SSE2 is part of the target; loads and stores are of the four integers.
        unsafe {
            let products = _mm_madd_epi16(load(w), _mm_set1_epi32(x));
            _mm_storeu_si128(acc.as_mut_ptr().cast(), _mm_add_epi32(load(acc), products));
        }
    }
    acc
}

/// In each lane: `acc` plus the products of the four signed bytes of `w`, the even ones with the halves of `x[0]`, the
/// odd ones with those of `x[1]`.
#[inline(always)]
pub(in crate::cpu) fn dot_quads(mut acc: [i32; LANES], w: [i32; LANES], x: [i32; 2]) -> [i32; LANES] {
    for (acc, w) in acc.as_chunks_mut::<4>().0.iter_mut().zip(w.as_chunks::<4>().0) {
        // SAFETY: as above.
        unsafe {
            let w = load(w);
            let even = _mm_srai_epi16::<8>(_mm_slli_epi16::<8>(w));
            let odd = _mm_srai_epi16::<8>(w);
            let sum = _mm_add_epi32(load(acc), _mm_madd_epi16(even, _mm_set1_epi32(x[0])));
            let sum = _mm_add_epi32(sum, _mm_madd_epi16(odd, _mm_set1_epi32(x[1])));
            _mm_storeu_si128(acc.as_mut_ptr().cast(), sum);
        }
    }
    acc
}

#[inline(always)]
fn load(x: &[i32; 4]) -> __m128i {
    // SAFETY: SSE2 is part of the target; the load reads the four integers.
    unsafe { _mm_loadu_si128(x.as_ptr().cast()) }
}

/// Four int8 activations for [`dot_quads`]: bytes 0 and 2 in the first word, 1 and 3 in the second, each as 16 bits.
#[inline(always)]
pub(in crate::cpu) fn quad(x: [i8; 4]) -> [i32; 2] {
    let pair = |a: i8, b: i8| i32::from(a) & 0xFFFF | i32::from(b) << 16;
    [pair(x[0], x[2]), pair(x[1], x[3])]
}
