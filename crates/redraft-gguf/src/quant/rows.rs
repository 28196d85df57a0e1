//! Unpacking a block of each of several rows at once: what [`BlockCodec::unpack`](super::BlockCodec::unpack) does for
//! one row, in words that hold the same place of all rows.

/// A block of each of some rows, and where its content goes. A [`Word`](Self::Word) has 32 bits of each row; it is a
/// vector where the machine has vectors.
///
/// Bytes of a word are numbered from the lowest; `quad` `i` is the word of the codes of weights `4 i` to `4 i + 3`.
pub trait Rows {
    /// 32 bits of each row.
    type Word: Copy;

    /// Bytes `at` to `at + 15` of each row's block.
    fn words(&self, at: usize) -> [Self::Word; 4];

    /// The same 32 bits for each row.
    fn all(&self, bits: u32) -> Self::Word;
    /// `a & b`.
    fn and(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// `a | b`.
    fn or(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// `a ^ b`.
    fn xor(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// `a + b`, wrapping.
    fn add(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// `a - b`, wrapping.
    fn sub(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// `a << n`, `n` below 32.
    fn shl(&self, a: Self::Word, n: u32) -> Self::Word;
    /// `a >> n`, `n` below 32, zeros shifted in.
    fn shr(&self, a: Self::Word, n: u32) -> Self::Word;
    /// Bits `4 i` to `4 i + 3` of `a`, one in each byte, as 0 or 16.
    fn fifth_bits(&self, a: Self::Word, i: u32) -> Self::Word;
    /// For each byte, 0 to 15, its number in the table.
    fn look_up(&self, table: &[i8; 16], a: Self::Word) -> Self::Word;

    /// The scale of the block: an f16 in the lower half of the word.
    fn put_d(&mut self, half: Self::Word);
    /// The scale of the block: the bits of an f32.
    fn put_d_bits(&mut self, bits: Self::Word);
    /// The scale of the minima: an f16 in the lower half of the word, `negative` of it if so.
    fn put_dmin(&mut self, half: Self::Word, negative: bool);
    /// The scale of sub-block `s`, as a number with a sign.
    fn put_scale(&mut self, s: usize, scale: Self::Word);
    /// The minima of sub-blocks `2 pair` and `2 pair + 1`, 16 bits each.
    fn put_mins(&mut self, pair: usize, mins: Self::Word);
    /// Four codes, as [`Bias`](super::Bias) says.
    fn put_quad(&mut self, i: usize, codes: Self::Word);
}

/// The `bits` lower bits of each byte after a shift to the right.
#[inline(always)]
pub(super) fn field<R: Rows>(rows: &R, word: R::Word, shift: u32, bits: u32) -> R::Word {
    let word = if shift == 0 { word } else { rows.shr(word, shift) };
    rows.and(word, rows.all(0x0101_0101 * ((1 << bits) - 1)))
}

/// The 16 bytes from `at` on as 16 codes of four low and 16 of four high bits: quads `low ..` and `high ..`.
#[inline(always)]
pub(super) fn put_nibbles<R: Rows>(rows: &mut R, at: usize, low: usize, high: usize) {
    for (i, word) in rows.words(at).into_iter().enumerate() {
        let (first, second) = (field(rows, word, 0, 4), field(rows, word, 4, 4));
        rows.put_quad(low + i, first);
        rows.put_quad(high + i, second);
    }
}

/// The same, each replaced by its number in a table.
#[inline(always)]
pub(super) fn put_from_table<R: Rows>(rows: &mut R, table: &[i8; 16], at: usize, low: usize) {
    for (i, word) in rows.words(at).into_iter().enumerate() {
        let (first, second) = (field(rows, word, 0, 4), field(rows, word, 4, 4));
        let (first, second) = (rows.look_up(table, first), rows.look_up(table, second));
        rows.put_quad(low + i, first);
        rows.put_quad(low + 4 + i, second);
    }
}

/// The 16 bytes from `at` on as the low four bits of 32 codes, and a word of their fifth bits.
#[inline(always)]
pub(super) fn put_five_bits<R: Rows>(rows: &mut R, at: usize, fifth: R::Word) {
    for (i, word) in rows.words(at).into_iter().enumerate() {
        for (half, quad) in [i, 4 + i].into_iter().enumerate() {
            let low = field(rows, word, 4 * half as u32, 4);
            let codes = rows.or(low, rows.fifth_bits(fifth, quad as u32));
            rows.put_quad(quad, codes);
        }
    }
}

/// Byte `i` of a word as a number.
#[inline(always)]
pub(super) fn byte<R: Rows>(rows: &R, word: R::Word, i: usize) -> R::Word {
    rows.and(if i == 0 { word } else { rows.shr(word, 8 * i as u32) }, rows.all(0xFF))
}

/// Four scales from the bytes of a word, each less `n`: sub-blocks `s` to `s + 3`.
#[inline(always)]
pub(super) fn put_scales<R: Rows>(rows: &mut R, s: usize, bytes: R::Word, n: u32) {
    for i in 0..4 {
        let scale = byte(rows, bytes, i);
        let scale = if n == 0 { scale } else { rows.sub(scale, rows.all(n)) };
        rows.put_scale(s + i, scale);
    }
}

/// Four minima from the bytes of a word: of the pairs of sub-blocks `pair` and `pair + 1`.
#[inline(always)]
pub(super) fn put_minima<R: Rows>(rows: &mut R, pair: usize, bytes: R::Word) {
    for i in 0..2 {
        let (even, odd) = (byte(rows, bytes, 2 * i), byte(rows, bytes, 2 * i + 1));
        let both = rows.or(even, rows.shl(odd, 16));
        rows.put_mins(pair + i, both);
    }
}
