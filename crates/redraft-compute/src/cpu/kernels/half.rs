//! Numbers of 16 bits: panels of weights, and activations rounded beside them (`docs/numerics.md`, section 12).

use crate::cpu::vector::{Int, Isa, LANES, Row16, RowBytes};
use crate::math::{self, IntLanes, Lanes};
use crate::numerics::Half;

/// Unpacks sixteen rows of weights into a panel, small numbers flushed, and returns the largest magnitude.
///
/// A word of the rows holds the weights of two neighbouring rows of the panel, so the transposition moves 16 bits a
/// weight.
#[inline(always)]
pub(crate) fn unpack_half<S: Isa>(s: S, half: Half, rows: RowBytes<'_>, panel: &mut [Row16]) -> f32 {
    assert_eq!(rows.len(), 2 * panel.len(), "rows fit the panel");
    match half {
        Half::F16 => unpack::<S, false>(s, rows, panel),
        Half::Bf16 => unpack::<S, true>(s, rows, panel),
    }
}

#[inline(always)]
fn unpack<S: Isa, const BF16: bool>(s: S, rows: RowBytes<'_>, panel: &mut [Row16]) -> f32 {
    let mut largest = s.splat(0.0);
    let (blocks, tail) = panel.as_chunks_mut::<8>();
    for (b, block) in blocks.iter_mut().enumerate() {
        for (i, word) in s.load_rows(&rows, 16 * b).into_iter().enumerate() {
            let (low, high) = if BF16 {
                let low = S::V::from_bits(word.shl::<16>());
                (low, S::V::from_bits(word.and(word.splat(0xFFFF_0000u32 as i32))))
            } else {
                (s.halves(word.and(word.splat(0xFFFF))), s.halves(word.shr::<16>()))
            };
            let (low, high) = (math::flush(low), math::flush(high));
            largest = largest.max(size(low)).max(size(high));
            s.store(low, &mut block[2 * i]);
            s.store(high, &mut block[2 * i + 1]);
        }
    }
    let half = if BF16 { Half::Bf16 } else { Half::F16 };
    let done = 16 * blocks.len();
    let mut peak = s.largest(largest);
    for (k, out) in tail.iter_mut().enumerate() {
        for (j, out) in out.iter_mut().enumerate() {
            let bytes = &rows.row(j)[done + 2 * k..];
            *out = math::flush(half.value(u16::from_le_bytes([bytes[0], bytes[1]])));
            peak = peak.max(out.abs());
        }
    }
    peak
}

/// Rounds activations to numbers of 16 bits, held in f32, and returns the largest magnitude, NaN passed over.
#[inline(always)]
pub(crate) fn round_half<S: Isa>(s: S, half: Half, x: &[f32], out: &mut [f32]) -> f32 {
    assert_eq!(x.len(), out.len(), "arguments of one length");
    match half {
        Half::F16 => round::<S, false>(s, x, out),
        Half::Bf16 => round::<S, true>(s, x, out),
    }
}

#[inline(always)]
fn round<S: Isa, const BF16: bool>(s: S, x: &[f32], out: &mut [f32]) -> f32 {
    let mut largest = s.splat(0.0);
    let ((x, x_tail), (out, out_tail)) = (x.as_chunks::<LANES>(), out.as_chunks_mut::<LANES>());
    for (x, out) in x.iter().zip(out) {
        let y = rounded::<S, BF16>(s.load(x));
        largest = largest.max(size(y));
        s.store(y, out);
    }
    let y = rounded::<S, BF16>(s.load_part(x_tail, 0.0));
    s.store_part(y, out_tail);
    s.largest(largest.max(size(y)))
}

/// [`Half::round`].
#[inline(always)]
pub(super) fn rounded<S: Isa, const BF16: bool>(x: S::V) -> S::V {
    let bits: Int<S> = x.to_bits();
    let y = if BF16 {
        let odd = bits.shr::<16>().and(bits.splat(1));
        S::V::from_bits(bits.add(bits.splat(0x7FFF)).add(odd).and(bits.splat(0xFFFF_0000u32 as i32)))
    } else {
        math::f16_value(math::f16_code(x))
    };
    // Infinities and NaN stay: the integer code makes finite numbers of some.
    y.if_int_lt(bits.and(bits.splat(0x7FFF_FFFF)), bits.splat(0x7F80_0000), x)
}

#[inline(always)]
fn size<V: Lanes>(x: V) -> V {
    let bits = x.to_bits();
    V::from_bits(bits.and(bits.splat(0x7FFF_FFFF)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{CpuLevel, table::table};

    #[test]
    fn every_level_rounds_as_the_definition_does() {
        let special = [
            0x7F80_0000, // infinity
            0x7F80_0001, // NaN, of small and of large payloads
            0x7FC0_0000,
            0x7FFF_7FFF,
            0x7FFF_8000,
            0x7FFF_FFFF,
            0x7F7F_FFFF, // the largest number
            0x477F_E000, // 65504 and its neighbours
            0x477F_E001,
            0x477F_EFFF,
            0x477F_F000,
            0x3380_0000, // 2^-24, the smallest f16, and half of it
            0x3300_0000,
            0x3300_0001,
            0x0000_0000,
            0x0000_0001,
        ];
        let bits = special.into_iter().chain((0..=0x7FFF_FFFF).step_by(99_991));
        let x: Vec<f32> = bits.flat_map(|b| [b, b | 0x8000_0000]).map(f32::from_bits).collect();
        for level in CpuLevel::available() {
            let table = table(level).unwrap();
            for half in [Half::F16, Half::Bf16] {
                // Of a remainder, too.
                for n in [x.len(), 2 * special.len(), 2 * special.len() - 5] {
                    let mut found = vec![1.0; n];
                    let largest = (table.round_half)(half, &x[..n], &mut found);
                    for (x, found) in x.iter().zip(&found) {
                        let want = half.round(*x);
                        assert_eq!(found.to_bits(), want.to_bits(), "{level:?} {half:?} {:08x}", x.to_bits());
                    }
                    assert_eq!(largest, f32::INFINITY);
                }
                let mut found = [1.0; 2];
                assert_eq!((table.round_half)(half, &[f32::NAN, -3.0], &mut found), 3.0);
            }
        }
    }
}
