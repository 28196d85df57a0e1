//! Weights in their file format, and panels unpacked from them.
//!
//! A panel holds 16 output features (rows of the matrix) and [`DEPTH`] input features, `[k][16]`. It is made
//! on the fly from the file's blocks, used for all tokens and thrown away: there is no second copy of the
//! weights.

use redraft_gguf::{BlockCodec, Unpacked, codec};

use crate::ComputeError;
use crate::cpu::table::Table;
use crate::cpu::vector::{LANES, Row16, RowBytes};
use crate::numerics::{Form, Half, Numerics};
use crate::weight::Weight;

/// Input features of a panel: one super-block. A panel of 16 KiB and the activations beside it fit the
/// first-level cache.
pub(crate) const DEPTH: usize = 256;

/// A stack of matrices in its file format.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    weight: &'a Weight,
    data: &'a [u8],
    row_bytes: usize,
    codec: &'static dyn BlockCodec,
}

/// Buffers of one thread for making panels.
#[derive(Default)]
pub(crate) struct Unpacker {
    rows: Vec<f32>,
    blocks: Vec<Unpacked>,
    /// Of rows of 16-bit numbers, where a matrix ends before the sixteenth.
    copies: Vec<u8>,
    rows16: Vec<Row16>,
}

/// A panel of weights.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    pub(crate) rows: &'a [Row16],
    /// The largest magnitude; infinite where the weights are not numbers of 16 bits.
    pub(crate) largest: f32,
}

impl<'a> Matrix<'a> {
    pub(crate) fn new(weight: &'a Weight) -> Result<Matrix<'a>, ComputeError> {
        let codec = codec(weight.dtype).ok_or_else(|| ComputeError::UnsupportedType {
            weight: weight.name.clone(),
            dtype: weight.dtype.name().to_string(),
        })?;
        Ok(Matrix { weight, data: &weight.bytes, row_bytes: weight.row_bytes(), codec })
    }

    /// What activations become before they meet these weights.
    pub(crate) fn form(&self, numerics: Numerics) -> Form {
        Form::of(self.codec, numerics)
    }

    /// How its blocks are unpacked.
    pub(crate) fn codec(&self) -> &'static dyn BlockCodec {
        self.codec
    }

    /// Output features of one matrix.
    pub(crate) fn rows(&self) -> usize {
        self.weight.rows
    }

    /// Input features.
    pub(crate) fn cols(&self) -> usize {
        self.weight.cols
    }

    fn row_bytes(&self, expert: usize, row: usize) -> &'a [u8] {
        &self.data[(expert * self.weight.rows + row) * self.row_bytes..][..self.row_bytes]
    }

    /// The bytes of `len` elements of a row from `k` on; both are multiples of the block length.
    pub(crate) fn bytes(&self, expert: usize, row: usize, k: usize, len: usize) -> &'a [u8] {
        let (block, bytes) = (self.codec.block_len(), self.codec.block_bytes());
        &self.row_bytes(expert, row)[k / block * bytes..(k + len) / block * bytes]
    }

    /// The same of sixteen rows from `row` on.
    pub(crate) fn row_run(&self, expert: usize, row: usize, k: usize, len: usize) -> RowBytes<'a> {
        let (block, bytes) = (self.codec.block_len(), self.codec.block_bytes());
        let first = (expert * self.weight.rows + row) * self.row_bytes + k / block * bytes;
        RowBytes::new(&self.data[first..], self.row_bytes, len / block * bytes)
    }

    /// The same of up to sixteen rows; what is missing are copies of the last one.
    pub(crate) fn row_run_or_copies<'c>(
        &self,
        [expert, row, n_rows]: [usize; 3],
        [k, len]: [usize; 2],
        copies: &'c mut Vec<u8>,
    ) -> RowBytes<'c>
    where
        'a: 'c,
    {
        if n_rows == LANES {
            return self.row_run(expert, row, k, len);
        }
        copies.clear();
        for j in 0..LANES {
            copies.extend_from_slice(self.bytes(expert, row + j.min(n_rows - 1), k, len));
        }
        let stride = copies.len() / LANES;
        RowBytes::new(copies, stride, stride)
    }

    /// All bytes of `n` rows from `row` on.
    pub(crate) fn run_bytes(&self, [expert, row, n]: [usize; 3]) -> &'a [u8] {
        &self.data[(expert * self.weight.rows + row) * self.row_bytes..][..n * self.row_bytes]
    }

    /// One row (or a vector), small numbers flushed.
    pub(crate) fn row(&self, table: &Table, expert: usize, row: usize, out: &mut [f32]) {
        self.part(table, [expert, row, 0], out);
    }

    /// Elements of a row from `k` on, as numbers; `k` and the number of elements are multiples of the block length.
    pub(crate) fn part(&self, table: &Table, [expert, row, k]: [usize; 3], out: &mut [f32]) {
        let (bytes, len) = (self.bytes(expert, row, k, out.len()), self.codec.block_len());
        if len == 1 {
            self.codec.dequantize(bytes, out);
            return (table.flush)(out);
        }
        let mut block = Unpacked::new();
        for (bytes, out) in bytes.chunks_exact(self.codec.block_bytes()).zip(out.chunks_exact_mut(len)) {
            self.codec.unpack(bytes, &mut block);
            (table.unpack_row)(&block, out);
        }
    }

    /// A weight with one row, as numbers.
    pub(crate) fn vector(&self, table: &Table) -> Vec<f32> {
        let mut out = vec![0.0; self.cols()];
        self.row(table, 0, 0, &mut out);
        out
    }

    /// The panel of up to 16 rows from `row` on and `len` elements from `k` on; `k` is a multiple of
    /// [`DEPTH`] and `len` at most that. Columns of the panel without a row are not meaningful.
    pub(crate) fn panel<'b>(
        &self,
        table: &Table,
        [expert, row, n_rows]: [usize; 3],
        [k, len]: [usize; 2],
        buf: &'b mut Unpacker,
    ) -> Panel<'b> {
        buf.rows16.resize(DEPTH, [0.0; LANES]);
        let panel = &mut buf.rows16[..len];
        let block = self.codec.block_len();
        let mut largest = f32::INFINITY;
        if let Some(half) = Half::of(self.codec.dtype()) {
            let rows = self.row_run_or_copies([expert, row, n_rows], [k, len], &mut buf.copies);
            largest = (table.unpack_half)(half, rows, panel);
        } else if block > 1 {
            // Quantized: the integers of one block of each row, then all arithmetic in vectors.
            buf.blocks.resize_with(LANES, Unpacked::new);
            let bytes = self.codec.block_bytes();
            for (b, panel) in panel.chunks_exact_mut(block).enumerate() {
                for (j, out) in buf.blocks[..n_rows].iter_mut().enumerate() {
                    let at = self.bytes(expert, row + j, k + b * block, block);
                    debug_assert_eq!(at.len(), bytes);
                    self.codec.unpack(at, out);
                }
                (table.unpack)(&buf.blocks[..n_rows], panel);
            }
        } else {
            buf.rows.resize(LANES * DEPTH, 0.0);
            for (j, out) in buf.rows.chunks_exact_mut(DEPTH).take(n_rows).enumerate() {
                self.codec.dequantize(self.bytes(expert, row + j, k, len), &mut out[..len]);
            }
            let mut rows: [&[f32]; LANES] = [&[]; LANES];
            for (slot, row) in rows.iter_mut().zip(buf.rows.chunks_exact(DEPTH)) {
                *slot = &row[..len];
            }
            (table.pack)(&rows[..n_rows], panel);
        }
        Panel { rows: panel, largest }
    }
}

/// The chunks `[k, len]` into which `n` input features are cut.
pub(crate) fn depths(n: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..n).step_by(DEPTH).map(move |k| [k, DEPTH.min(n - k)])
}
