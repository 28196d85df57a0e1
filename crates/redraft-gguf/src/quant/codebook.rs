//! Types whose four-bit codes stand for numbers from a table.

use super::search::Codes;

/// A table of sixteen numbers. Two codes may stand for the same one.
pub(super) struct Codebook {
    /// By code.
    numbers: [i8; 16],
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
        Codebook { numbers, low: low as f32, high: high as f32, nearest }
    }

    /// From codes to numbers.
    #[inline(always)]
    pub(super) fn look_up(&self, codes: &mut [i8]) {
        for code in codes {
            *code = self.numbers[(*code & 15) as usize];
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
        book.look_up(&mut codes);
        assert_eq!(codes, table);
    }
}
