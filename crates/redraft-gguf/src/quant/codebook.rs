//! Types whose four-bit codes stand for numbers from a table.

use super::search::Codes;

/// A table of sixteen numbers. Two codes may stand for the same one.
pub(super) struct Codebook {
    /// By code.
    numbers: [i8; 16],
    /// Ascending.
    sorted: [f32; 16],
}

impl Codebook {
    pub(super) const fn new(numbers: [i8; 16]) -> Codebook {
        let mut sorted = [0.0; 16];
        let mut i = 0;
        while i < 16 {
            // Insertion: what is larger moves up by one.
            let mut at = i;
            while at > 0 && sorted[at - 1] > numbers[i] as f32 {
                sorted[at] = sorted[at - 1];
                at -= 1;
            }
            sorted[at] = numbers[i] as f32;
            i += 1;
        }
        Codebook { numbers, sorted }
    }

    /// From codes to numbers.
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

impl Codes for &Codebook {
    fn step(self) -> f32 {
        (self.sorted[15] - self.sorted[0]) / 160.0
    }

    fn ends(self) -> [f32; 2] {
        [self.sorted[0], self.sorted[15]]
    }

    fn nearest(self, x: f32) -> f32 {
        let mut best = self.sorted[0];
        for [a, b] in self.sorted.array_windows() {
            best = if x > 0.5 * (a + b) { *b } else { best };
        }
        best
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
