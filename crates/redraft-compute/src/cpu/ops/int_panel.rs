//! Integer panels of weights, and int8 activations in the order in which the integer kernel reads them.
//!
//! As with the panels in f32, a panel holds 16 output features and at most [`DEPTH`] input features, is unpacked
//! from the file's blocks and thrown away after use; the activations lie in groups of tokens.

use redraft_gguf::Unpacked;

use super::packed::resize;
use super::panel::{DEPTH, Matrix};
use crate::ComputeError;
use crate::cpu::pool::Pool;
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

/// Activations of some tokens at the depth of a panel.
#[derive(Clone, Copy)]
pub(crate) struct IntTokens<'a> {
    /// Those of a chunk, as in [`IntPacked`].
    pub(crate) records: &'a [i32],
    /// Words from one record to the next.
    pub(crate) width: usize,
    /// The record of each token.
    pub(crate) order: &'a [usize],
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
}

/// Most words of a record behind its codes: scales and sums of units of 16.
pub(crate) const TAIL: usize = 32;

/// Words of a line of the cache.
const LINE: usize = 16;

/// Quantized activations of some tokens.
#[derive(Default)]
pub(crate) struct IntPacked {
    /// `[chunk of the depth][token]`, one record each:
    ///
    /// * `DEPTH / 4` times four codes, in `Isa::QUAD_WORDS` words;
    /// * `[unit]`: bits of the scales;
    /// * of types with minima `[pair of sub-blocks]`: sums of the codes, 16 bits each; of others `[sub-block]`: with what
    ///   a sum of products begins, to take out the bias of the weights.
    ///
    /// The last chunk may be shorter; its records have gaps.
    records: Vec<i32>,
    /// Where the first one begins: at a line of the cache, as all do.
    start: usize,
    units: Units,
    tokens: usize,
    quad_words: usize,
}

impl IntPacked {
    /// Quantizes `tokens` tokens; `row(i)` is token `i`, of `k` numbers.
    pub(crate) fn fill<'a>(
        &mut self,
        pool: &Pool,
        table: &Table,
        units: Units,
        [tokens, k]: [usize; 2],
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) -> Result<(), ComputeError> {
        (self.units, self.tokens, self.quad_words) = (units, tokens, table.quad_words);
        let width = self.width();
        let n = k.div_ceil(DEPTH) * tokens * width;
        resize(&mut self.records, n + LINE + TAIL, "quantized activations")?;
        self.start = self.records.as_ptr().align_offset(size_of::<[i32; LINE]>()).min(LINE);
        let records = &mut self.records[self.start..][..n];
        pool.rows(records, width, 64 * width, |_, first, records| {
            for (i, record) in (first..).zip(records.chunks_exact_mut(width)) {
                let (chunk, token) = (i / tokens, i % tokens);
                let x = &row(token)[chunk * DEPTH..k.min((chunk + 1) * DEPTH)];
                (table.quantize)(x, units, record);
            }
        });
        Ok(())
    }

    /// Words of a record.
    fn width(&self) -> usize {
        let n = DEPTH / self.units.len;
        (DEPTH / 4 * self.quad_words + n + n * self.units.sums()).next_multiple_of(LINE)
    }

    /// The tokens `order` for the chunk that begins at input feature `k`. Behind the last record there is room, so that each
    /// has a whole tail.
    pub(crate) fn tokens<'a>(&'a self, order: &'a [usize], k: usize) -> IntTokens<'a> {
        let width = self.width();
        let at = self.start + k / DEPTH * self.tokens * width;
        IntTokens { records: &self.records[at..], width, order }
    }
}
