//! What a run of the suite found.

use std::fmt;

use super::cases::Case;
use super::runner::{Bits, Outcome, Output};
use crate::{Capabilities, Numerics};

/// Result of the suite on one backend.
#[derive(Debug, Clone)]
pub struct Report {
    /// The backend as it ran: level, threads.
    pub capabilities: Capabilities,
    /// Cases with equal bits.
    pub passed: usize,
    /// Cases with a difference.
    pub failures: Vec<Failure>,
    /// FNV-1a over the bits of all outputs of the cases in `exact`, in the order of the suite. The same number on
    /// two machines means the same bits in every case.
    pub digest: u64,
    /// The same of the cases in `fast`.
    pub fast_digest: u64,
}

/// A case that differs from the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The op.
    pub op: &'static str,
    /// The mode.
    pub numerics: Numerics,
    /// The case.
    pub case: String,
    /// Where the first difference is, what was expected and what was found.
    pub difference: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.capabilities;
        write!(
            f,
            "{} {} with {} threads: {} of {} cases equal, digests {:016x} and {:016x} (fast)",
            c.backend,
            c.level,
            c.threads,
            self.passed,
            self.passed + self.failures.len(),
            self.digest,
            self.fast_digest
        )?;
        self.failures.iter().try_for_each(|x| write!(f, "\n  {x}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}: {}", self.op, self.numerics.name(), self.case, self.difference)
    }
}

impl Failure {
    pub(super) fn compare(case: &Case, expected: &Outcome, found: &Outcome) -> Option<Failure> {
        if expected == found {
            return None;
        }
        let difference = match (expected, found) {
            (Ok(expected), Ok(found)) => first_difference(expected, found),
            (Ok(_), Err(e)) => format!("expected numbers, found the error: {e}"),
            (Err(e), Ok(_)) => format!("expected the error: {e}; found numbers"),
            (Err(e), Err(f)) => format!("expected the error: {e}; found the error: {f}"),
        };
        Some(Failure { op: case.op, numerics: case.numerics, case: case.name.clone(), difference })
    }
}

fn first_difference(expected: &[Output], found: &[Output]) -> String {
    for (e, f) in expected.iter().zip(found) {
        let place = |i: usize| {
            let cols = e.cols.max(1);
            format!("step {}, output {}, row {}, column {}", e.step, e.index, i / cols, i % cols)
        };
        match (&e.bits, &f.bits) {
            (Bits::Real(a), Bits::Real(b)) if a.len() == b.len() => {
                let differs = |&i: &usize| a[i] != b[i];
                if let Some(i) = (0..a.len()).find(differs) {
                    let count = (0..a.len()).filter(differs).count();
                    let (x, y) = (f32::from_bits(a[i]), f32::from_bits(b[i]));
                    return format!(
                        "{}: expected {x:e} ({:08x}), found {y:e} ({:08x}); {count} of {} differ",
                        place(i),
                        a[i],
                        b[i],
                        a.len()
                    );
                }
            }
            (Bits::Int(a), Bits::Int(b)) if a.len() == b.len() => {
                if let Some(i) = (0..a.len()).find(|&i| a[i] != b[i]) {
                    return format!("{}: expected {}, found {}", place(i), a[i], b[i]);
                }
            }
            _ => return format!("{}: another kind or length", place(0)),
        }
    }
    format!("expected {} outputs, found {}", expected.len(), found.len())
}

/// FNV-1a, 64 bits.
pub(super) struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xCBF2_9CE4_8422_2325)
    }
}

impl Digest {
    fn bytes(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    /// All bits of an outcome. Of an error only that it is one: its words are not part of the contract.
    pub(super) fn outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Ok(outputs) => outputs.iter().for_each(|o| match &o.bits {
                Bits::Real(x) => x.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
                Bits::Int(x) => x.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
                Bits::Other => self.bytes(b"other"),
            }),
            Err(_) => self.bytes(b"error"),
        }
    }

    pub(super) fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_fnv_1a() {
        let mut d = Digest::default();
        d.bytes(b"foobar");
        assert_eq!(d.finish(), 0x8594_4171_F739_67E8);
    }

    #[test]
    fn one_bit_is_a_difference_and_is_named() {
        let output = |x: f32| Output { step: 0, index: 1, cols: 2, bits: Bits::Real(vec![0, x.to_bits()]) };
        let text = first_difference(&[output(1.0)], &[output(1.0f32.next_up())]);
        assert!(text.contains("output 1, row 0, column 1") && text.contains("3f800001"), "{text}");
        let zero = first_difference(&[output(0.0)], &[output(-0.0)]);
        assert!(zero.contains("80000000"), "{zero}");
    }
}
