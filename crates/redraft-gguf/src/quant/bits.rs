//! Pieces of layouts that several types share.

/// The f16 number at byte `at` of a block.
#[inline(always)]
pub(super) fn f16_at(block: &[u8], at: usize) -> f32 {
    super::f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

// Codes are unpacked eight at a time, as the bytes of a word, the first in the lowest.

/// A byte of 1 eight times.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Bytes `8 i` to `8 i + 7`.
#[inline(always)]
pub(super) fn word_at(bytes: &[u8], i: usize) -> u64 {
    u64::from_le_bytes(bytes.as_chunks::<8>().0[i])
}

/// Writes eight codes.
#[inline(always)]
pub(super) fn put(word: u64, codes: &mut [i8; 8]) {
    let bytes = word.to_le_bytes();
    for i in 0..8 {
        codes[i] = bytes[i] as i8;
    }
}

/// The `bits` lower bits of each byte after a shift to the right.
#[inline(always)]
pub(super) fn field(word: u64, shift: usize, bits: u32) -> u64 {
    word >> shift & (ONES * ((1 << bits) - 1))
}

/// Bit `i` of the lowest byte in byte `i`, as 0 or 1.
#[inline(always)]
pub(super) fn spread(bits: u32) -> u64 {
    let one_each = (u64::from(bits & 0xFF) * ONES) & 0x8040_2010_0804_0201;
    (one_each + 0x7F * ONES) >> 7 & ONES
}

/// `n`, at most 64, less than bytes of 0 to 127. (The upper bit keeps them from borrowing.)
#[inline(always)]
pub(super) fn minus(n: u8, word: u64) -> u64 {
    (word + u64::from(128 - n) * ONES) ^ (0x80 * ONES)
}

/// Splits bytes, a multiple of eight of them, into their lower and upper four bits, less `n`.
#[inline(always)]
pub(super) fn split_nibbles(bytes: &[u8], n: u8, low: &mut [i8], high: &mut [i8]) {
    let (low, high) = (low.as_chunks_mut::<8>().0, high.as_chunks_mut::<8>().0);
    for ((bytes, low), high) in bytes.as_chunks::<8>().0.iter().zip(low).zip(high) {
        let word = u64::from_le_bytes(*bytes);
        put(minus(n, field(word, 0, 4)), low);
        put(minus(n, field(word, 4, 4)), high);
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
        for (codes, bytes) in codes.as_chunks_mut::<8>().0.iter_mut().zip(bytes.as_chunks::<8>().0) {
            put(field(u64::from_le_bytes(*bytes), 2 * l, 2), codes);
        }
    }
}

/// Joins the lower two bits of 128 codes into 32 bytes.
pub(super) fn join_quarters(codes: &[i8], bytes: &mut [u8]) {
    for (m, b) in bytes.iter_mut().enumerate() {
        *b = (0..4).fold(0, |b, l| b | (codes[32 * l + m] as u8 & 3) << (2 * l));
    }
}

/// Takes one bit of 256 codes, at `place`, to 32 bytes: that of code `i` is bit `i / 32` of byte `i % 32`.
pub(super) fn take_bit(codes: &[i8], place: u32, bytes: &mut [u8]) {
    bytes.fill(0);
    for (s, codes) in codes.chunks_exact(32).enumerate() {
        for (&code, b) in codes.iter().zip(bytes.iter_mut()) {
            *b |= (code as u8 >> place & 1) << s;
        }
    }
}
