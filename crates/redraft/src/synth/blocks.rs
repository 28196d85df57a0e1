//! Random blocks: bits from a counter-based generator, under scales that give a standard deviation.
//!
//! Each block is a function of (seed, tensor, block), so parts of a tensor can be made in any order and on
//! any thread. Random codes are spread evenly over their range; where that leaves the mean beside zero, a
//! minimum in the middle or scales of random sign bring it back.

use redraft_gguf::{DType, f16_to_f32, f32_to_bf16, f32_to_f16};

use super::{Fill, TensorPlan};

/// 64 random bits for each counter: splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014), whose state is its counter. Three times as fast as Philox, and nothing here could tell
/// the two apart.
#[derive(Debug, Clone, Copy)]
struct Words {
    key: u64,
}

/// The odd number next to 2^64 / golden ratio.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Words {
    /// The stream of a tensor.
    fn new(seed: u64, tensor: u64) -> Words {
        Words { key: mix(mix(seed).wrapping_add(tensor.wrapping_add(1).wrapping_mul(GAMMA))) }
    }

    fn at(self, i: u64) -> u64 {
        mix(self.key.wrapping_add(i.wrapping_mul(GAMMA)))
    }

    /// Fills `out` with the words from `i` on.
    fn fill(self, i: u64, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut();
        let mut i = i;
        for w in words {
            *w = self.at(i).to_le_bytes();
            i += 1;
        }
        rest.copy_from_slice(&self.at(i).to_le_bytes()[..rest.len()]);
    }
}

/// A block type whose blocks can be made of random bits.
trait RandomBlock {
    const DTYPE: DType;
    const BYTES: usize;
    /// Standard deviation of the weights of a block whose `d` is 1.
    const STD: f64;

    /// Writes a block; `words` from counter `at` on are its own, as many as it has bytes.
    fn block(scale: Scale, words: Words, at: u64, out: &mut [u8]);
}

/// The scale of all blocks of a tensor, as f16.
#[derive(Debug, Clone, Copy)]
struct Scale {
    d: u16,
    /// 7.5 times that, the middle of codes 0..=15.
    middle: u16,
}

/// The bit of an f16 that makes it negative.
const SIGN: u16 = 0x8000;

/// Codes 0..=15, scales 32..=63, the minimum at 7.5 of the scale.
struct Q4K;

impl RandomBlock for Q4K {
    const DTYPE: DType = DType::Q4_K;
    const BYTES: usize = 144;
    /// Root mean squares of scale and centred code: sqrt(2341.5 * 21.25).
    const STD: f64 = 223.062_5;

    fn block(scale: Scale, words: Words, at: u64, out: &mut [u8]) {
        out[..2].copy_from_slice(&scale.d.to_le_bytes());
        out[2..4].copy_from_slice(&scale.middle.to_le_bytes());
        // Eight numbers 32..=63, scale and minimum alike, packed as the type packs 6-bit pairs.
        let s = words.at(at).to_le_bytes().map(|b| 32 | b & 31);
        for j in 0..4 {
            out[4 + j] = s[j] | (s[j + 4] >> 4) << 6;
            out[8 + j] = out[4 + j];
            out[12 + j] = (s[j + 4] & 15) * 0x11;
        }
        words.fill(at + 1, &mut out[16..]);
    }
}

/// Codes -32..=31, scales of 16..=31 with random signs.
struct Q6K;

impl RandomBlock for Q6K {
    const DTYPE: DType = DType::Q6_K;
    const BYTES: usize = 210;
    /// Root mean squares of scale and code: sqrt(573.5 * 341.5).
    const STD: f64 = 442.549_7;

    fn block(scale: Scale, words: Words, at: u64, out: &mut [u8]) {
        words.fill(at, &mut out[..208]);
        for s in &mut out[192..208] {
            let magnitude = (16 | *s & 15) as i8;
            *s = if *s & 128 == 0 { magnitude } else { -magnitude } as u8;
        }
        out[208..210].copy_from_slice(&scale.d.to_le_bytes());
    }
}

/// Codes -16..=15, the scale with a random sign.
struct Q5_0;

impl RandomBlock for Q5_0 {
    const DTYPE: DType = DType::Q5_0;
    const BYTES: usize = 22;
    /// Root mean square of the code: sqrt(85.5).
    const STD: f64 = 9.246_621;

    fn block(scale: Scale, words: Words, at: u64, out: &mut [u8]) {
        // One word has the sign of the scale and the high bits of the codes.
        let word = words.at(at);
        let sign = if word >> 63 == 0 { 0 } else { SIGN };
        out[..2].copy_from_slice(&(scale.d ^ sign).to_le_bytes());
        out[2..6].copy_from_slice(&(word as u32).to_le_bytes());
        words.fill(at + 1, &mut out[6..22]);
    }
}

/// Codes -127..=127: no quantizer writes -128.
struct Q8_0;

impl RandomBlock for Q8_0 {
    const DTYPE: DType = DType::Q8_0;
    const BYTES: usize = 34;
    /// Root mean square of the code, where -127 is twice as likely: sqrt(5460.5).
    const STD: f64 = 73.895_2;

    fn block(scale: Scale, words: Words, at: u64, out: &mut [u8]) {
        out[..2].copy_from_slice(&scale.d.to_le_bytes());
        for (i, codes) in (at..).zip(out[2..34].as_chunks_mut().0) {
            *codes = without_0x80(words.at(i)).to_le_bytes();
        }
    }
}

/// Turns each byte 0x80 into 0x81, eight at a time.
fn without_0x80(word: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    // A byte that is zero here has no bit in the sum of its low bits and 0x7F, nor in itself.
    let x = word ^ !LOW;
    let zero = !(((x & LOW) + LOW) | x | LOW);
    word | zero >> 7
}

/// Makes the blocks from a number on, for a standard deviation.
type FillBlocks = fn(f32, Words, u64, &mut [u8]);

/// All quantized types that can be made.
static RANDOM_BLOCKS: &[(DType, FillBlocks)] =
    &[entry::<Q4K>(), entry::<Q6K>(), entry::<Q5_0>(), entry::<Q8_0>()];

const fn entry<B: RandomBlock>() -> (DType, FillBlocks) {
    (B::DTYPE, fill_blocks::<B>)
}

fn fill_blocks<B: RandomBlock>(std: f32, words: Words, first: u64, out: &mut [u8]) {
    let d = f32_to_f16((f64::from(std) / B::STD) as f32);
    let scale = Scale { d, middle: f32_to_f16(7.5 * f16_to_f32(d)) };
    let mut at = first.wrapping_mul(B::BYTES as u64);
    for block in out.chunks_exact_mut(B::BYTES) {
        B::block(scale, words, at, block);
        at = at.wrapping_add(B::BYTES as u64);
    }
}

/// Makes the data of one tensor, in pieces.
pub(super) struct Filler {
    words: Words,
    kind: Kind,
}

enum Kind {
    Blocks {
        fill: FillBlocks,
        std: f32,
    },
    /// Plain numbers, drawn from a table of [`LEVELS`] values in the bytes of the file.
    Levels {
        table: Vec<[u8; 4]>,
        n_bytes: usize,
    },
    RopeFactors {
        rotated: u64,
    },
}

/// Values that a plain number can take: drawing from a table is faster than rounding to f16.
const LEVELS: usize = 4096;

/// What stops the rotation of a pair: its angle becomes zero to any precision.
const NO_ROTATION: f32 = 1e30;

impl Filler {
    /// For the tensor at `index` of a plan; `None` when the type cannot be made or the fill does not go with
    /// it.
    pub(super) fn new(seed: u64, index: usize, tensor: &TensorPlan, dtype: DType) -> Option<Filler> {
        let random = RANDOM_BLOCKS.iter().find(|(t, _)| *t == dtype).map(|&(_, fill)| fill);
        let kind = match (tensor.fill, random) {
            (Fill::Std(std), Some(fill)) => Kind::Blocks { fill, std },
            // A uniform spread has sqrt(3) standard deviations on each side.
            (Fill::Std(std), None) => levels(dtype, -std * 3f32.sqrt(), std * 3f32.sqrt())?,
            (Fill::Between(low, high), None) => levels(dtype, low, high)?,
            (Fill::RopeFactors { rotated }, None) if dtype == DType::F32 => Kind::RopeFactors { rotated },
            _ => return None,
        };
        Some(Filler { words: Words::new(seed, index as u64), kind })
    }

    /// Makes the blocks from `first` on, as many as `out` has room for. `first` is a multiple of four.
    pub(super) fn fill(&self, first: u64, out: &mut [u8]) {
        debug_assert!(first.is_multiple_of(4), "four plain numbers share a random word");
        match &self.kind {
            Kind::Blocks { fill, std } => fill(*std, self.words, first, out),
            Kind::Levels { table, n_bytes: 2 } => self.draw::<2>(table, first, out),
            Kind::Levels { table, .. } => self.draw::<4>(table, first, out),
            Kind::RopeFactors { rotated } => {
                for (i, x) in (first..).zip(out.as_chunks_mut().0) {
                    *x = if i < *rotated { 1.0 } else { NO_ROTATION }.to_le_bytes();
                }
            }
        }
    }

    fn draw<const N: usize>(&self, table: &[[u8; 4]], first: u64, out: &mut [u8]) {
        for (i, four) in (first / 4..).zip(out.as_chunks_mut::<N>().0.chunks_mut(4)) {
            let word = self.words.at(i);
            for (k, x) in four.iter_mut().enumerate() {
                x.copy_from_slice(&table[(word >> (16 * k)) as usize % LEVELS][..N]);
            }
        }
    }
}

/// Evenly spaced numbers between two bounds; `None` for a type that is no plain float.
fn levels(dtype: DType, low: f32, high: f32) -> Option<Kind> {
    let encode: fn(f32) -> [u8; 4] = match dtype {
        DType::F32 => f32::to_le_bytes,
        DType::F16 => |x| u32::from(f32_to_f16(x)).to_le_bytes(),
        DType::BF16 => |x| u32::from(f32_to_bf16(x)).to_le_bytes(),
        _ => return None,
    };
    let step = (high - low) / LEVELS as f32;
    let table = (0..LEVELS).map(|i| encode(low + (i as f32 + 0.5) * step)).collect();
    Some(Kind::Levels { table, n_bytes: if dtype == DType::F32 { 4 } else { 2 } })
}

#[cfg(test)]
mod tests {
    use super::without_0x80;

    #[test]
    fn only_the_byte_0x80_changes() {
        for b in 0..=255u8 {
            let others = [0, 0x7F, 0x80, 0x81, 0xFF, 1, b, b];
            let word = u64::from_le_bytes(others);
            let expected = u64::from_le_bytes(others.map(|b| if b == 0x80 { 0x81 } else { b }));
            assert_eq!(without_0x80(word), expected, "{b:#x}");
        }
    }
}
