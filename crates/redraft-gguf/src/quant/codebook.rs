//! Types whose four-bit codes stand for numbers from a table.

use super::bits::put;
use super::search::Codes;

/// A table of sixteen numbers. Two codes may stand for the same one.
pub(super) struct Codebook {
    /// By code.
    numbers: [i8; 16],
    /// The numbers of two codes by the byte that holds them, that of the lower four bits in the lower byte.
    pairs: [u16; 256],
    low: f32,
    high: f32,
    /// The number nearest to x by the smallest integer that is not below 2 (x - low): the middle between two
    /// numbers is a multiple of one half, so x lies on the same side of all of them as that integer's half does.
    nearest: [i8; 512],
}

impl Codebook {
    pub(super) const fn new(numbers: [i8; 16]) -> Codebook {
        let (mut low, mut high) = (numbers[0], numbers[0]);
        let mut i = 1;
        while i < 16 {
            low = if numbers[i] < low { numbers[i] } else { low };
            high = if numbers[i] > high { numbers[i] } else { high };
            i += 1;
        }
        let mut nearest = [low; 512];
        let mut half = 0;
        while half < nearest.len() {
            let mut i = 0;
            while i < 16 {
                let (new, old) = (halves(numbers[i], low, half), halves(nearest[half], low, half));
                // Of two that are equally near the lower one.
                if new < old || (new == old && numbers[i] < nearest[half]) {
                    nearest[half] = numbers[i];
                }
                i += 1;
            }
            half += 1;
        }
        let mut pairs = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (first, second) = (numbers[byte & 15] as u8, numbers[byte >> 4] as u8);
            pairs[byte] = first as u16 | (second as u16) << 8;
            byte += 1;
        }
        Codebook { numbers, pairs, low: low as f32, high: high as f32, nearest }
    }

    /// The numbers by code.
    #[inline(always)]
    pub(super) fn numbers(&self) -> &[i8; 16] {
        &self.numbers
    }

    /// The numbers of the lower and of the upper four bits of bytes, a multiple of eight of them.
    #[inline(always)]
    pub(super) fn split(&self, bytes: &[u8], low: &mut [i8], high: &mut [i8]) {
        let (low, high) = (low.as_chunks_mut::<8>().0, high.as_chunks_mut::<8>().0);
        for ((bytes, low), high) in bytes.as_chunks::<8>().0.iter().zip(low).zip(high) {
            let (mut first, mut second) = (0, 0);
            for (i, &b) in bytes.iter().enumerate() {
                let pair = u64::from(self.pairs[usize::from(b)]);
                first |= (pair & 0xFF) << (8 * i);
                second |= (pair >> 8) << (8 * i);
            }
            put(first, low);
            put(second, high);
        }
    }

    /// From numbers of the table to codes, the lower one of two.
    pub(super) fn codes_of(&self, numbers: &mut [i8]) {
        for number in numbers {
            let code = self.numbers.iter().position(|n| n == number);
            *number = code.expect("a number of the table") as i8;
        }
    }
}

/// Halves between a number and `low + half / 2`.
const fn halves(number: i8, low: i8, half: usize) -> i32 {
    (2 * (number as i32 - low as i32) - half as i32).abs()
}

impl Codes for &Codebook {
    fn step(self) -> f32 {
        (self.high - self.low) / 160.0
    }

    fn ends(self) -> [f32; 2] {
        [self.low, self.high]
    }

    fn nearest(self, x: f32) -> f32 {
        let x = if x > self.low { x } else { self.low };
        let halves = 2.0 * (if x < self.high { x } else { self.high } - self.low);
        let whole = halves as i32;
        let up = whole + i32::from((whole as f32) < halves);
        // At most 2 (127 + 127).
        f32::from(self.nearest[(up & 511) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_numbers_are_found_and_have_codes() {
        let table = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
        let book = Codebook::new(table);
        assert_eq!(book.ends(), [-12.0, 12.0]);
        for quarter in -80..=80 {
            let x = quarter as f32 / 4.0;
            let distance = |n: f32| (n - x).abs();
            let least = table.iter().map(|&n| distance(f32::from(n))).fold(f32::INFINITY, f32::min);
            assert_eq!(distance(book.nearest(x)), least, "{x}");
        }
        let mut codes = table;
        book.codes_of(&mut codes);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15]);
        let bytes: [u8; 8] = std::array::from_fn(|i| (codes[i] | codes[i + 8] << 4) as u8);
        let (mut low, mut high) = ([0; 8], [0; 8]);
        book.split(&bytes, &mut low, &mut high);
        assert_eq!((&low[..], &high[..]), table.split_at(8));
    }
}
