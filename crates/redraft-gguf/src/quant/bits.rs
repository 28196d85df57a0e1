//! Pieces of layouts that several types share.

/// The f16 number at byte `at` of a block.
#[inline(always)]
pub(super) fn f16_at(block: &[u8], at: usize) -> f32 {
    super::f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Splits bytes into their lower and upper four bits.
#[inline(always)]
pub(super) fn split_nibbles(bytes: &[u8], low: &mut [i8], high: &mut [i8]) {
    for ((&b, l), h) in bytes.iter().zip(low).zip(high) {
        *l = (b & 15) as i8;
        *h = (b >> 4) as i8;
    }
}

/// Joins the lower four bits of two codes into one byte each.
pub(super) fn join_nibbles(low: &[i8], high: &[i8], bytes: &mut [u8]) {
    for ((b, &l), &h) in bytes.iter_mut().zip(low).zip(high) {
        *b = (l as u8 & 15) | (h as u8) << 4;
    }
}

/// Splits 32 bytes into 128 codes of two bits: code `32 l + m` is bits 2l and 2l + 1 of byte `m`.
#[inline(always)]
pub(super) fn split_quarters(bytes: &[u8], codes: &mut [i8]) {
    for (l, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (code, &b) in codes.iter_mut().zip(bytes) {
            *code = (b >> (2 * l) & 3) as i8;
        }
    }
}

/// Joins the lower two bits of 128 codes into 32 bytes.
pub(super) fn join_quarters(codes: &[i8], bytes: &mut [u8]) {
    for (m, b) in bytes.iter_mut().enumerate() {
        *b = (0..4).fold(0, |b, l| b | (codes[32 * l + m] as u8 & 3) << (2 * l));
    }
}

/// Adds one bit to 256 codes, at `place`: that of code `i` is bit `i / 32` of byte `i % 32`.
#[inline(always)]
pub(super) fn add_bit(bytes: &[u8], place: u32, codes: &mut [i8]) {
    for (s, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (code, &b) in codes.iter_mut().zip(bytes) {
            *code |= ((b >> s & 1) << place) as i8;
        }
    }
}

/// The reverse of [`add_bit`].
pub(super) fn take_bit(codes: &[i8], place: u32, bytes: &mut [u8]) {
    bytes.fill(0);
    for (s, codes) in codes.chunks_exact(32).enumerate() {
        for (&code, b) in codes.iter().zip(bytes.iter_mut()) {
            *b |= (code as u8 >> place & 1) << s;
        }
    }
}
