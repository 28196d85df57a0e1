//! `Q8_0`: 32 weights of 8 bits with one scale.
//!
//! ```text
//! byte  0..1     2..33
//!       d: f16   q[0..32]: i8
//!
//! weight i = d * q[i]
//! ```

use super::bits::{f16_at, put};
use super::rows::Rows;
use super::{Bias, CommonFormat, Encoder, QuantEncode, QuantFormat, Unpacked, search};
use crate::DType;

pub(super) struct Q8_0;

const LEN: usize = 32;
const BYTES: usize = 34;
const _: () = assert!(BYTES == 2 + LEN);

impl QuantFormat for Q8_0 {
    const DTYPE: DType = DType::Q8_0;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;
    const ENCODER: Option<Encoder> = Some(Encoder::of::<Q8_0>());

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 0));
        let codes = &mut out.codes[..LEN];
        for (codes, bytes) in codes.as_chunks_mut::<8>().0.iter_mut().zip(block[2..].as_chunks::<8>().0) {
            put(u64::from_le_bytes(*bytes), codes);
        }
    }
}

impl CommonFormat for Q8_0 {
    const BIAS: Bias = Bias::Signed;

    #[inline(always)]
    fn unpack_rows<R: Rows>(rows: &mut R) {
        let head = rows.words(0);
        rows.put_d(head[0]);
        for half in 0..2 {
            for (i, codes) in rows.words(2 + 16 * half).into_iter().enumerate() {
                rows.put_quad(4 * half + i, codes);
            }
        }
    }
}

impl QuantEncode for Q8_0 {
    /// The method of every other writer of this type, so that the same weights give the same bytes: the
    /// scale takes the largest magnitude to 127, codes are rounded half away from zero, with the scale before
    /// its rounding to f16. At eight bits a search for a better scale gains next to nothing.
    fn quantize_block(x: &[f32], _importance: &[f32], block: &mut [u8]) {
        let d = x.iter().fold(0.0, |m: f32, v| m.max(v.abs())) / 127.0;
        // A subnormal scale, whose inverse might be infinite, is zero as f16 anyway.
        let inverse = if d >= f32::MIN_POSITIVE { 1.0 / d } else { 0.0 };
        block[..2].copy_from_slice(&search::f16_scale(d).to_le_bytes());
        for (b, v) in block[2..].iter_mut().zip(x) {
            *b = round_half_away(v * inverse) as u8;
        }
    }
}

/// Nearest integer to a number of -127.5 to 127.5, halves away from zero. The difference to the truncated
/// number is exact, so this is `f32::round` without the library call it is on some machines.
fn round_half_away(x: f32) -> i8 {
    let whole = x as i32;
    let rest = x - whole as f32;
    (whole + i32::from(rest >= 0.5) - i32::from(rest <= -0.5)) as i8
}

#[cfg(test)]
mod tests {
    use super::round_half_away;

    #[test]
    fn rounding_is_that_of_the_library() {
        let near = |x: f32| [f32::from_bits(x.to_bits() - 1), x, f32::from_bits(x.to_bits() + 1)];
        for half in 1..255 {
            for x in near(half as f32 / 2.0) {
                assert_eq!(round_half_away(x), x.round() as i8, "{x}");
                assert_eq!(round_half_away(-x), (-x).round() as i8, "-{x}");
            }
        }
        assert_eq!(round_half_away(0.0), 0);
    }
}
