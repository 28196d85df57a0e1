//! Weights in the memory of a GPU: in one of three forms, in slabs that a kernel can see at once.

use redraft_gguf::{DType, Unpacked, codec};

use super::device::{Device, Limits};
use crate::numerics::{Half, Units};
use crate::{ComputeError, Weight, math};

/// How the rows of a weight are stored, as the kernels `weight_*` describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    F32,
    Half(Half),
    Block(Block),
}

/// The form of block types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) units: Units,
    /// 16: codes are bytes. Else they have four bits, and this was added to them.
    pub(super) kind: u32,
    pub(super) heads_at: u32,
    pub(super) subs_at: u32,
}

/// The kind of a [`Block`] whose codes are bytes.
const BYTES: u32 = 16;

/// Rows of some matrices of a stack.
pub(super) struct Slab<B> {
    pub(super) buffer: B,
    /// First matrix, and how many.
    pub(super) experts: [usize; 2],
    /// First row of each, and how many.
    pub(super) rows: [usize; 2],
    /// Bytes of the rows.
    pub(super) bytes: u64,
}

/// A weight as a GPU has it.
pub(super) struct Stored<B> {
    pub(super) form: Form,
    /// Words of a row.
    pub(super) stride: usize,
    pub(super) slabs: Vec<Slab<B>>,
}

impl Form {
    /// The form of a type, for rows of `cols`, and the words of a row.
    pub(super) fn of(dtype: DType, cols: usize) -> Option<(Form, usize)> {
        let codec = codec(dtype)?;
        if let Some(half) = Half::of(dtype) {
            return Some((Form::Half(half), cols.div_ceil(2)));
        }
        if codec.block_len() == 1 {
            return Some((Form::F32, cols));
        }
        let units = Units::of(codec);
        let kind = code_kind(dtype)?;
        let codes = if kind == BYTES { cols / 4 } else { cols / 8 };
        let heads = (cols / units.len) * if units.mins { 2 } else { 1 };
        let subs = (cols / units.sub_len).div_ceil(2);
        let block = Block { units, kind, heads_at: codes as u32, subs_at: (codes + heads) as u32 };
        Some((Form::Block(block), codes + heads + subs))
    }
}

/// Whether the codes of a type fit four bits, and what is added to them then.
fn code_kind(dtype: DType) -> Option<u32> {
    let codec = codec(dtype)?;
    let mut block = Unpacked::new();
    let (mut least, mut most) = (0i8, 0i8);
    // Codes of four bits and fewer come from one byte or two of the same place of each; each value of a byte shows what can be.
    for byte in 0..=u8::MAX {
        codec.unpack(&vec![byte; codec.block_bytes()], &mut block);
        least = block.codes().iter().fold(least, |m, &c| m.min(c));
        most = block.codes().iter().fold(most, |m, &c| m.max(c));
    }
    Some(match (least, most) {
        (0.., ..=15) => 0,
        (-8.., ..=7) => 8,
        _ => BYTES,
    })
}

/// Writes one row as words.
pub(super) struct Packer<'a> {
    weight: &'a Weight,
    form: Form,
    stride: usize,
    blocks: Vec<Unpacked>,
    values: Vec<f32>,
}

impl<'a> Packer<'a> {
    pub(super) fn new(weight: &'a Weight) -> Result<Packer<'a>, ComputeError> {
        let (form, stride) =
            Form::of(weight.dtype, weight.cols).ok_or_else(|| ComputeError::UnsupportedType {
                weight: weight.name.clone(),
                dtype: weight.dtype.name().to_string(),
            })?;
        Ok(Packer { weight, form, stride, blocks: Vec::new(), values: Vec::new() })
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Appends row `row` of matrix `expert` to `out`.
    pub(super) fn row(&mut self, expert: usize, row: usize, out: &mut Vec<u8>) {
        let bytes = self.weight.row(expert, row);
        match self.form {
            Form::F32 => {
                self.values.resize(self.weight.cols, 0.0);
                if let Some(codec) = codec(self.weight.dtype) {
                    codec.dequantize(bytes, &mut self.values);
                }
                out.extend(self.values.iter().flat_map(|&x| math::flush(x).to_le_bytes()));
            }
            Form::Half(_) => {
                out.extend(bytes);
                out.resize(out.len() + self.stride * 4 - bytes.len(), 0);
            }
            Form::Block(block) => self.block_row(block, bytes, out),
        }
    }

    fn block_row(&mut self, form: Block, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(codec) = codec(self.weight.dtype) else { return };
        let size = codec.block_bytes();
        self.blocks.resize_with(bytes.len() / size, Unpacked::new);
        for (bytes, block) in bytes.chunks_exact(size).zip(&mut self.blocks) {
            codec.unpack(bytes, block);
        }
        for block in &self.blocks {
            if form.kind == BYTES {
                out.extend(block.codes().iter().map(|&c| c as u8));
                continue;
            }
            let nibble = |c: i8| (i32::from(c) + form.kind as i32) as u8 & 15;
            for eight in block.codes().chunks_exact(8) {
                out.extend((0..4).map(|i| nibble(eight[i]) | nibble(eight[i + 4]) << 4));
            }
        }
        let units = form.units;
        for block in &self.blocks {
            for i in 0..block.len / units.len {
                // One scale of its own where a unit is a sub-block.
                let scale = if units.len < block.len { block.scales[i * units.subs] as f32 } else { 1.0 };
                out.extend((block.d * scale).to_le_bytes());
                if units.mins {
                    out.extend(block.dmin.to_le_bytes());
                }
            }
        }
        let from = out.len();
        for block in &self.blocks {
            for s in 0..block.len / units.sub_len {
                let scale = if units.len < block.len { 1 } else { block.scales[s] as u8 };
                out.extend([scale, block.mins[s]]);
            }
        }
        out.resize(from + (out.len() - from).next_multiple_of(4), 0);
    }
}

/// How a stack is cut: matrices `[first, n]` and rows `[first, n]` of each.
fn cuts(weight: &Weight, row: u64, limits: Limits) -> Vec<[[usize; 2]; 2]> {
    let rows = usize::try_from(limits.binding / row.max(1)).unwrap_or(usize::MAX).max(1);
    let mut out = Vec::new();
    if weight.rows <= rows {
        let each = (rows / weight.rows.max(1)).max(1);
        let mut first = 0;
        while first < weight.experts {
            let n = each.min(weight.experts - first);
            out.push([[first, n], [0, weight.rows]]);
            first += n;
        }
    } else {
        for expert in 0..weight.experts {
            let mut first = 0;
            while first < weight.rows {
                let n = rows.min(weight.rows - first);
                out.push([[expert, 1], [first, n]]);
                first += n;
            }
        }
    }
    out
}

/// Bytes of a weight on a GPU.
pub(crate) fn stored_bytes(weight: &Weight) -> u64 {
    let row = Form::of(weight.dtype, weight.cols).map_or(0, |(_, stride)| 4 * stride as u64);
    row.saturating_mul(weight.rows as u64).saturating_mul(weight.experts as u64)
}

/// Bytes that are packed before they go to the device.
const PIECE: usize = 8 << 20;

impl<B: Clone> Stored<B> {
    /// Brings a weight to a device.
    pub(super) fn upload<D: Device<Buffer = B>>(
        device: &mut D,
        weight: &Weight,
    ) -> Result<Stored<B>, ComputeError> {
        let mut packer = Packer::new(weight)?;
        let row = 4 * packer.stride() as u64;
        let mut slabs = Vec::new();
        let mut piece = Vec::with_capacity(PIECE);
        for [experts, rows] in cuts(weight, row, device.limits()) {
            let bytes = row * (experts[1] * rows[1]) as u64;
            let buffer = device.alloc(&weight.name, bytes)?;
            let mut at = 0;
            for expert in experts[0]..experts[0] + experts[1] {
                for r in rows[0]..rows[0] + rows[1] {
                    packer.row(expert, r, &mut piece);
                    if piece.len() + row as usize > PIECE {
                        device.write(&buffer, at, &piece)?;
                        at += piece.len() as u64;
                        piece.clear();
                    }
                }
            }
            device.write(&buffer, at, &piece)?;
            piece.clear();
            slabs.push(Slab { buffer, experts, rows, bytes });
        }
        Ok(Stored { form: packer.form(), stride: packer.stride(), slabs })
    }
}

#[cfg(test)]
mod tests {
    use redraft_gguf::{Bytes, CODECS};

    use super::*;

    /// The value of a weight by the layout that the kernels read.
    fn value(words: &[u32], form: Block, k: usize) -> f32 {
        let (units, at) = (form.units, |x: u32| x as usize);
        let code = if form.kind == BYTES {
            i32::from((words[k / 4] >> (8 * (k % 4))) as u8 as i8)
        } else {
            (words[k / 8] >> (8 * (k & 3) + (k & 4)) & 15) as i32 - form.kind as i32
        };
        let mins = usize::from(units.mins);
        let head = at(form.heads_at) + k / units.len * (1 + mins);
        let sub = k / units.sub_len;
        let pair = words[at(form.subs_at) + sub / 2] >> (16 * (sub % 2));
        let scaled = (f32::from_bits(words[head]) * f32::from(pair as u8 as i8)) * code as f32;
        let min =
            if units.mins { f32::from_bits(words[head + 1]) * f32::from((pair >> 8) as u8) } else { 0.0 };
        math::flush(scaled - min)
    }

    #[test]
    fn rows_keep_their_values() {
        let mut seed = 7u64;
        for codec in CODECS.iter().filter(|c| c.block_len() > 1) {
            let cols = 2 * codec.block_len();
            let mut bytes = vec![0; 2 * 3 * 2 * codec.block_bytes()];
            for b in &mut bytes {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *b = (seed >> 56) as u8;
            }
            let bytes = Bytes::from(bytes);
            let weight = Weight { name: "w".into(), dtype: codec.dtype(), experts: 2, rows: 3, cols, bytes };
            let mut packer = Packer::new(&weight).unwrap();
            let Form::Block(form) = packer.form() else { panic!("{}", codec.dtype()) };
            let mut expected = vec![0.0; cols];
            for (expert, row) in [(0, 0), (1, 2)] {
                let mut out = Vec::new();
                packer.row(expert, row, &mut out);
                let words: Vec<u32> = out.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b)).collect();
                assert_eq!((words.len(), out.len() % 4), (packer.stride(), 0));
                codec.dequantize(weight.row(expert, row), &mut expected);
                for (k, &e) in expected.iter().enumerate().filter(|(_, e)| e.is_finite()) {
                    let found = value(&words, form, k);
                    assert_eq!(found.to_bits(), math::flush(e).to_bits(), "{} {k}: {e:e}", codec.dtype());
                }
            }
        }
    }

    #[test]
    fn stacks_are_cut_where_a_kernel_cannot_see_them_whole() {
        let weight = |experts, rows| Weight {
            name: "w".into(),
            dtype: DType::F32,
            experts,
            rows,
            cols: 16,
            bytes: Bytes::from(vec![0; experts * rows * 64]),
        };
        let limits = |binding| Limits { binding, align: 256, groups: 65_535 };
        assert_eq!(
            cuts(&weight(5, 4), 64, limits(512)),
            [[[0, 2], [0, 4]], [[2, 2], [0, 4]], [[4, 1], [0, 4]]]
        );
        assert_eq!(
            cuts(&weight(1, 9), 64, limits(256)),
            [[[0, 1], [0, 4]], [[0, 1], [4, 4]], [[0, 1], [8, 1]]]
        );
        let two = cuts(&weight(2, 5), 64, limits(256));
        assert_eq!(two, [[[0, 1], [0, 4]], [[0, 1], [4, 1]], [[1, 1], [0, 4]], [[1, 1], [4, 1]]]);
    }
}
