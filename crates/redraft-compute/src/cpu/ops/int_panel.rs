//! Integer panels of weights, and int8 activations in the order in which the integer kernel reads them.
//!
//! As with the panels in f32, a panel holds 16 output features and at most [`DEPTH`] input features, is unpacked
//! from the file's blocks and thrown away after use; the activations lie in groups of tokens.

use redraft_gguf::Unpacked;

use super::packed::{groups, resize};
use super::panel::{DEPTH, Matrix};
use crate::ComputeError;
use crate::cpu::pool::{Grid, Pool};
use crate::cpu::table::Table;
use crate::cpu::vector::{Bits16, LANES, Row16};
use crate::numerics::{Unit, Units};

/// Sixteen output features as integers; column `j` of each row of sixteen is feature `j`.
#[derive(Default)]
pub(crate) struct IntPanel {
    pub(crate) units: Units,
    /// `[k / 4]`: four neighbouring codes of each feature, the first in the lowest byte.
    pub(crate) codes: Vec<Bits16>,
    /// `[sub-block]`.
    pub(crate) scales: Vec<Bits16>,
    /// `[pair of sub-blocks]`: two minima of 16 bits.
    pub(crate) mins: Vec<Bits16>,
    /// `[unit]`: with what a sum of products begins, to take out the offset of the activations.
    pub(crate) start: Vec<Bits16>,
    /// `[unit]`.
    pub(crate) d: Vec<Row16>,
    /// `[unit]`.
    pub(crate) dmin: Vec<Row16>,
    /// Whether a scale may differ from 1.
    pub(crate) scaled: bool,
    /// Whether a scale of minima differs from 0.
    pub(crate) has_mins: bool,
}

/// Buffers of one thread for making integer panels.
#[derive(Default)]
pub(crate) struct IntUnpacker {
    block: Unpacked,
    rows: Vec<[i8; DEPTH]>,
    panel: IntPanel,
}

/// The activations of one group of `M` tokens, at some depths.
#[derive(Clone, Copy)]
pub(crate) struct IntGroup<'a> {
    /// `[k / 4][M]`: four codes, in `Isa::QUAD_WORDS` words.
    pub(crate) words: &'a [i32],
    /// `[unit][M]`: bits of the scales.
    pub(crate) scales: &'a [i32],
    /// `[pair of sub-blocks][M]`: sums of the codes, 16 bits each.
    pub(crate) sums: &'a [i32],
}

impl IntPanel {
    /// An empty panel for `len` input features.
    fn clear(&mut self, units: Units, len: usize) {
        let n = len / units.len;
        let zero = |x: &mut Vec<Row16>, n: usize| {
            x.clear();
            x.resize(n, [0.0; LANES]);
        };
        // Squares of 16 x 16 words are transposed as a whole.
        zero(&mut self.codes, (len / 4).next_multiple_of(LANES));
        zero(&mut self.scales, n * units.subs());
        zero(&mut self.mins, n * units.pairs());
        for x in [&mut self.start, &mut self.d, &mut self.dmin] {
            zero(x, n);
        }
        (self.units, self.scaled, self.has_mins) = (units, units.subs() > 1, false);
    }

    /// Everything but the codes of unit `u` of feature `j`.
    fn put(&mut self, unit: &Unit<'_>, u: usize, j: usize) {
        let bits = |i: i32| f32::from_bits(i as u32);
        (self.d[u][j], self.dmin[u][j]) = (unit.d, unit.dmin);
        for (out, &scale) in self.scales[u * self.units.subs()..].iter_mut().zip(unit.scales) {
            out[j] = bits(scale);
            self.scaled |= scale != 1;
        }
        if unit.dmin != 0.0 {
            self.has_mins = true;
            let pairs = self.mins[u * self.units.pairs()..].iter_mut();
            for (out, mins) in pairs.zip(unit.mins.chunks(2)) {
                out[j] = bits(i32::from(mins[0]) | i32::from(mins.get(1).copied().unwrap_or(0)) << 16);
            }
        }
    }
}

impl Matrix<'_> {
    /// The integer panel of up to 16 rows from `row` on and `len` elements from `k` on; `k` is a multiple of
    /// [`DEPTH`] and `len` at most that.
    pub(crate) fn int_panel<'b>(
        &self,
        table: &Table,
        units: Units,
        [expert, row, n_rows]: [usize; 3],
        [k, len]: [usize; 2],
        buf: &'b mut IntUnpacker,
    ) -> &'b IntPanel {
        buf.rows.resize(LANES, [0; DEPTH]);
        buf.rows[n_rows..].fill([0; DEPTH]);
        buf.panel.clear(units, len);
        for (j, codes) in buf.rows[..n_rows].iter_mut().enumerate() {
            let bytes = self.bytes(expert, row + j, k, len);
            let (block_len, block_bytes) = self.block();
            let blocks = bytes.chunks_exact(block_bytes).zip(codes.chunks_exact_mut(block_len));
            for (b, (bytes, codes)) in blocks.enumerate() {
                self.unpack(bytes, &mut buf.block);
                codes.copy_from_slice(buf.block.codes());
                let per_block = block_len / units.len;
                for i in 0..per_block {
                    buf.panel.put(&Unit::of(&buf.block, units, i), b * per_block + i, j);
                }
            }
        }
        (table.int_pack)(&buf.rows, &mut buf.panel);
        &buf.panel
    }
}

/// Quantized activations of some tokens.
#[derive(Default)]
pub(crate) struct IntPacked {
    /// Group after group one record: all words, all scales, all sums of its tokens, as in [`IntGroup`].
    records: Vec<i32>,
    /// First token of each group, and the end.
    bounds: Vec<usize>,
    units: Units,
    k: usize,
    quad_words: usize,
}

impl IntPacked {
    /// Quantizes tokens in bands, as [`Packed::fill`](super::packed::Packed::fill) packs them.
    pub(crate) fn fill<'a>(
        &mut self,
        pool: &Pool,
        table: &Table,
        units: Units,
        bands: &[usize],
        k: usize,
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) -> Result<(), ComputeError> {
        (self.units, self.k, self.quad_words) = (units, k, table.quad_words);
        self.bounds.clear();
        self.bounds.push(0);
        for w in bands.windows(2) {
            self.bounds.extend(groups(table.int_groups, w[0], w[1] - w[0]).map(|(at, n)| at + n));
        }
        let n = self.bounds.last().copied().unwrap_or(0);
        let width = self.width();
        resize(&mut self.records, n * width, "quantized activations")?;
        let grid = Grid { cols: width, bands: &self.bounds, tile_cols: width.max(1) };
        pool.tiles(&mut self.records, grid, |_, mut tile| {
            let (first, size) = (tile.row, tile.rows);
            let record = tile.whole();
            for i in 0..size {
                (table.quantize)(row(first + i), units, [i, size], record);
            }
        });
        Ok(())
    }

    /// Words of one token in a record.
    fn width(&self) -> usize {
        let n = self.k / self.units.len;
        self.k / 4 * self.quad_words + n + n * self.units.pairs()
    }

    /// The activations of the group that starts at token `first` and has `size` tokens, input features
    /// `k .. k + len`.
    pub(crate) fn group(&self, (first, size): (usize, usize), [k, len]: [usize; 2]) -> IntGroup<'_> {
        let record = &self.records[first * self.width()..][..size * self.width()];
        let (words, rest) = record.split_at(self.k / 4 * self.quad_words * size);
        let (scales, sums) = rest.split_at(self.k / self.units.len * size);
        let slice = |at: usize, n: usize| at * size..(at + n) * size;
        let (u, n) = (k / self.units.len, len / self.units.len);
        let pairs = self.units.pairs();
        IntGroup {
            words: &words[slice(k / 4 * self.quad_words, len / 4 * self.quad_words)],
            scales: &scales[slice(u, n)],
            sums: &sums[slice(u * pairs, n * pairs)],
        }
    }
}
