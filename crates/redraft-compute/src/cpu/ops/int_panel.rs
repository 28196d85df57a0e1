//! Integer panels of weights, and int8 activations in the order in which the integer kernel reads them.
//!
//! As with the panels in f32, a panel holds 16 output features and at most [`DEPTH`] input features, is unpacked
//! from the file's blocks and thrown away after use; the activations lie in groups of tokens.

use redraft_gguf::Unpacked;

use super::packed::resize;
use super::panel::{DEPTH, Matrix};
use crate::ComputeError;
use crate::cpu::pool::{Grid, Pool};
use crate::cpu::prefetch;
use crate::cpu::table::Table;
use crate::cpu::vector::{Bits16, LANES, Row16};
use crate::numerics::Units;

/// One row of weights of a panel, before the rows are transposed.
#[derive(Clone)]
pub(crate) struct PanelRow {
    pub(crate) codes: [i8; DEPTH],
    /// The block unpacked last; its codes are copied to `codes`. A block with sub-blocks in its units fills the panel, so
    /// its scales are all there are.
    pub(crate) block: Unpacked,
    /// Pairs of 16 bits, unit after unit.
    pub(crate) mins: [i32; LANES],
}

/// Sixteen output features as integers; column `j` of each row of sixteen is feature `j`. The rows of sixteen are lines
/// of the cache: a vector that lies across two of them is read and written at half the speed.
#[repr(C, align(64))]
pub(crate) struct IntPanel {
    /// `[k / 4]`: four neighbouring codes of each feature, the first in the lowest byte, with their bias added.
    pub(crate) codes: [Bits16; DEPTH / 4],
    /// `[sub-block]`, where a unit has several.
    pub(crate) scales: [Bits16; LANES],
    /// `[pair of sub-blocks]`: two minima of 16 bits.
    pub(crate) mins: [Bits16; LANES],
    /// `[unit]`.
    pub(crate) d: [Row16; LANES],
    /// `[unit]`.
    pub(crate) dmin: [Row16; LANES],
    pub(crate) units: Units,
    /// Units in the depth of the panel.
    pub(crate) n_units: usize,
    /// Of types that are unpacked row by row.
    pub(crate) rows: Option<Box<[PanelRow; LANES]>>,
    /// Copies of rows, where a matrix ends before the sixteenth.
    copies: Vec<u8>,
}

/// The activations of one group of `M` tokens, at some depths.
#[derive(Clone, Copy)]
pub(crate) struct IntGroup<'a> {
    /// `[k / 4][M]`: four codes, in `Isa::QUAD_WORDS` words.
    pub(crate) words: &'a [i32],
    /// `[unit][M]`: bits of the scales.
    pub(crate) scales: &'a [i32],
    /// Of types with minima `[pair of sub-blocks][M]`: sums of the codes, 16 bits each. Of others `[sub-block][M]`:
    /// with what a sum of products begins, to take out the bias of the weights.
    pub(crate) sums: &'a [i32],
}

impl Default for IntPanel {
    fn default() -> IntPanel {
        let empty = [[0.0; LANES]; LANES];
        IntPanel {
            units: Units::default(),
            n_units: 0,
            rows: None,
            copies: Vec::new(),
            codes: [[0.0; LANES]; DEPTH / 4],
            scales: empty,
            mins: empty,
            d: empty,
            dmin: empty,
        }
    }
}

impl Default for PanelRow {
    fn default() -> PanelRow {
        PanelRow { codes: [0; DEPTH], block: Unpacked::new(), mins: [0; LANES] }
    }
}

impl Matrix<'_> {
    /// Makes the integer panel of `at` = `[expert, row, n_rows]`, up to 16 rows from `row` on, and `depth` =
    /// `[k, len]`, `len` elements from `k` on; `k` is a multiple of [`DEPTH`] and `len` at most that. Columns of the
    /// panel without a row are not meaningful.
    pub(crate) fn int_panel(
        &self,
        table: &Table,
        units: Units,
        at: [usize; 3],
        depth: [usize; 2],
        panel: &mut IntPanel,
    ) {
        (panel.units, panel.n_units) = (units, depth[1] / units.len);
        let [expert, row, n_rows] = at;
        if n_rows == LANES {
            return (table.int_unpack)(self.codec(), self.row_run(expert, row, depth[0], depth[1]), panel);
        }
        let mut copies = std::mem::take(&mut panel.copies);
        let rows = self.row_run_or_copies(at, depth, &mut copies);
        (table.int_unpack)(self.codec(), rows, panel);
        panel.copies = copies;
    }

    /// Asks for the bytes of a panel, so that the memory works while another one is used: weights are read once a
    /// pass, from main memory, and sixteen rows are more streams than a machine foresees.
    pub(crate) fn prefetch(&self, [expert, row, n_rows]: [usize; 3], [k, len]: [usize; 2]) {
        if n_rows == LANES {
            let rows = self.row_run(expert, row, k, len);
            (0..LANES).for_each(|j| prefetch::near(rows.row(j)));
        }
    }
}

/// The groups of `n` tokens from token `first` on, as `(first token, tokens)`: as few as the kernel allows, and of
/// sizes that differ by one at most, since small groups are the slow ones.
pub(crate) fn int_groups(table: &Table, first: usize, n: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = n.div_ceil(table.int_tokens);
    (0..count).map(move |i| (first + i * n / count, (i + 1) * n / count - i * n / count))
}

/// Quantized activations of some tokens.
#[derive(Default)]
pub(crate) struct IntPacked {
    /// `[chunk of the depth][group]`, one record each: all words, all scales, all sums of its tokens, as in
    /// [`IntGroup`]. A panel meets the records of its chunk in the order in which they lie.
    records: Vec<i32>,
    /// First token of each group of each chunk, and the end; tokens count on from chunk to chunk.
    bounds: Vec<usize>,
    units: Units,
    tokens: usize,
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
        let tokens = bands.last().copied().unwrap_or(0);
        (self.units, self.tokens, self.quad_words) = (units, tokens, table.quad_words);
        self.bounds.clear();
        self.bounds.push(0);
        for chunk in 0..k.div_ceil(DEPTH) {
            for w in bands.windows(2) {
                let groups = int_groups(table, w[0], w[1] - w[0]);
                self.bounds.extend(groups.map(|(at, n)| chunk * tokens + at + n));
            }
        }
        let width = self.width();
        resize(&mut self.records, k.div_ceil(DEPTH) * tokens * width, "quantized activations")?;
        let grid = Grid { cols: width, bands: &self.bounds, tile_cols: width };
        pool.tiles(&mut self.records, grid, |_, mut tile| {
            let (chunk, first, size) = (tile.row / tokens, tile.row % tokens, tile.rows);
            let record = tile.whole();
            for i in 0..size {
                let x = &row(first + i)[chunk * DEPTH..k.min((chunk + 1) * DEPTH)];
                (table.quantize)(x, units, [i, size], record);
            }
        });
        Ok(())
    }

    /// Words of one token in a record.
    fn width(&self) -> usize {
        let n = DEPTH / self.units.len;
        DEPTH / 4 * self.quad_words + n + n * self.units.sums()
    }

    /// The activations of the group that starts at token `first` and has `size` tokens, input features
    /// `k .. k + len`, a chunk.
    pub(crate) fn group(&self, (first, size): (usize, usize), [k, len]: [usize; 2]) -> IntGroup<'_> {
        let width = self.width();
        let record = &self.records[(k / DEPTH * self.tokens + first) * width..][..size * width];
        let n = len / self.units.len;
        let (words, rest) = record.split_at(len / 4 * self.quad_words * size);
        let (scales, sums) = rest.split_at(n * size);
        IntGroup { words, scales, sums: &sums[..n * self.units.sums() * size] }
    }
}
