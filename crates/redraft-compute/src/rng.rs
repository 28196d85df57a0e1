//! Random numbers as a function of where they are used.
//!
//! Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) turns
//! a counter and a key into four random words without any state. The key is the seed, the counter is the
//! place: `(position in the canvas, step, canvas, draw)`. So every number can be computed anywhere, in any
//! order, and a run with another batch size or number of threads draws the same ones. Of the four words the
//! first is used; the others are not.

/// Multipliers of Philox 4x32.
const M: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Increments of the key: the golden ratio and sqrt(3) - 1 in 32 bits (Weyl sequence).
const W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// The step under which the initial noise of a canvas is drawn.
const INITIAL_STEP: u32 = u32::MAX;

/// What a number is drawn for: the last word of the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Draw {
    InitialId = 0,
    Uniform = 1,
    RenoiseId = 2,
    Choice = 3,
}

/// Philox 4x32 with ten rounds.
///
/// ```
/// use redraft_compute::rng::philox;
///
/// assert_eq!(philox([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
/// ```
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(W[0]), key[1].wrapping_add(W[1])];
        }
        let [a, b, c, d] = counter;
        let (p, q) = (u64::from(M[0]) * u64::from(a), u64::from(M[1]) * u64::from(c));
        counter = [(q >> 32) as u32 ^ b ^ key[0], q as u32, (p >> 32) as u32 ^ d ^ key[1], p as u32];
    }
    counter
}

fn word(seed: u64, canvas: u32, step: u32, position: u32, draw: Draw) -> u32 {
    philox([position, step, canvas, draw as u32], [seed as u32, (seed >> 32) as u32])[0]
}

/// An id in `0..vocab`: the high 32 bits of `word * vocab`.
fn id(word: u32, vocab: u32) -> u32 {
    ((u64::from(word) * u64::from(vocab)) >> 32) as u32
}

/// The random id that stands at `position` of canvas number `canvas` before the first step.
pub fn initial_id(seed: u64, canvas: u32, position: u32, vocab: u32) -> u32 {
    id(word(seed, canvas, INITIAL_STEP, position, Draw::InitialId), vocab)
}

/// The number in (0, 1) with which `position` is sampled in step `step` (counted from 0): the 24 high bits
/// of the word plus one half, times 2^-24. Exact in f64. Rounded to f32 the largest one becomes 1, which the
/// sampling of [`TokenSample`](crate::op::TokenSample) allows.
pub fn uniform(seed: u64, canvas: u32, step: u32, position: u32) -> f64 {
    fraction(word(seed, canvas, step, position, Draw::Uniform))
}

/// The number in (0, 1) by which samplers that choose positions at random choose `position` in step `step`. Made as
/// [`uniform`].
pub fn choice(seed: u64, canvas: u32, step: u32, position: u32) -> f64 {
    fraction(word(seed, canvas, step, position, Draw::Choice))
}

fn fraction(word: u32) -> f64 {
    (f64::from(word >> 8) + 0.5) * (1.0 / 16_777_216.0)
}

/// The random id that replaces a rejected token at `position` after step `step`.
pub fn renoise_id(seed: u64, canvas: u32, step: u32, position: u32, vocab: u32) -> u32 {
    id(word(seed, canvas, step, position, Draw::RenoiseId), vocab)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the Random123 distribution (`kat_vectors`, philox4x32 with 10 rounds).
    #[test]
    fn published_vectors() {
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (pi, [0xa409_3822, 0x299f_31d0], [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox(counter, key), expected, "counter {counter:x?}");
        }
    }

    #[test]
    fn numbers_are_addressed_by_place() {
        let seed = 0x299f_31d0_a409_3822;
        let w = philox([7, 3, 1, 1], [0xa409_3822, 0x299f_31d0])[0];
        assert_eq!(uniform(seed, 1, 3, 7), (f64::from(w >> 8) + 0.5) / 16_777_216.0);
        let w = philox([7, 3, 1, 3], [0xa409_3822, 0x299f_31d0])[0];
        assert_eq!(choice(seed, 1, 3, 7), (f64::from(w >> 8) + 0.5) / 16_777_216.0);
        let w = philox([7, u32::MAX, 1, 0], [0xa409_3822, 0x299f_31d0])[0];
        assert_eq!(u64::from(initial_id(seed, 1, 7, 262_144)), (u64::from(w) * 262_144) >> 32);
        let w = philox([7, 3, 1, 2], [0xa409_3822, 0x299f_31d0])[0];
        assert_eq!(u64::from(renoise_id(seed, 1, 3, 7, 531)), (u64::from(w) * 531) >> 32);
    }

    #[test]
    fn ids_fill_the_vocabulary_and_uniforms_the_interval() {
        let mut seen = [0u32; 16];
        let mut mean = 0.0;
        for position in 0..4096 {
            seen[initial_id(1, 0, position, 16) as usize] += 1;
            let u = uniform(1, 0, 0, position);
            assert!(u > 0.0 && u < 1.0);
            mean += u / 4096.0;
        }
        assert!(seen.iter().all(|&n| (192..320).contains(&n)), "{seen:?}");
        assert!((mean - 0.5).abs() < 0.02);
        assert_eq!(id(u32::MAX, 531), 530);
        assert_eq!(id(0, 531), 0);
        assert_eq!(id(u32::MAX, u32::MAX), u32::MAX - 1);
    }
}
