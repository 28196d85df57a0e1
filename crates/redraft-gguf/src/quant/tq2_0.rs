//! `TQ2_0`: super-blocks of 256 ternary weights, two bits each, with one scale.
//!
//! ```text
//! byte  0..63                     64..65
//!       qs[0..64], as in Q2_K     d: f16
//!
//! weight i = d * (code[i] - 1)
//! ```
//!
//! Writers use the codes 0..=2; a 3 stands for 2 d.

use super::bits::{f16_at, split_quarters};
use super::{QuantFormat, Unpacked};
use crate::DType;

pub(super) struct TQ2_0;

const LEN: usize = 256;
const BYTES: usize = 66;
const _: () = assert!(BYTES == LEN / 4 + 2);

impl QuantFormat for TQ2_0 {
    const DTYPE: DType = DType::TQ2_0;
    const LEN: usize = LEN;
    const BYTES: usize = BYTES;

    fn unpack_block(block: &[u8], out: &mut Unpacked) {
        out.single(LEN, f16_at(block, 64));
        for (qs, codes) in block[..64].chunks_exact(32).zip(out.codes.chunks_exact_mut(128)) {
            split_quarters(qs, codes);
        }
        out.codes.iter_mut().for_each(|c| *c -= 1);
    }
}
