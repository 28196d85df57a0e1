//! Products with weights.

use redraft_gguf::{BlockCodec, Unpacked, codec};

use super::arithmetic::Arithmetic;
use super::product::Operand;
use crate::host::OpCx;
use crate::math;
use crate::op::MatMul;
use crate::{ComputeError, Numerics, Weight, WeightId};

/// One weight, decoded row by row.
pub(super) struct Rows<'a, A: Arithmetic> {
    pub(super) weight: &'a Weight,
    raw: Vec<f32>,
    row: Vec<A::R>,
    blocks: Vec<Unpacked>,
    /// Matrix and row of `blocks`.
    unpacked: Option<[usize; 2]>,
}

impl<'a, A: Arithmetic> Rows<'a, A> {
    pub(super) fn new(weight: &'a Weight) -> Self {
        Rows {
            weight,
            raw: vec![0.0; weight.cols],
            row: Vec::with_capacity(weight.cols),
            blocks: Vec::new(),
            unpacked: None,
        }
    }

    /// Row `row` of matrix `expert`: dequantized, and flushed to zero below 2^-50.
    pub(super) fn get(&mut self, expert: usize, row: usize) -> Result<&[A::R], ComputeError> {
        let codec = self.codec()?;
        codec.dequantize(self.weight.row(expert, row), &mut self.raw);
        self.row.clear();
        self.row.extend(self.raw.iter().map(|&w| A::weight(math::flush(w))));
        Ok(&self.row)
    }

    /// The same row as integers.
    pub(super) fn blocks(&mut self, expert: usize, row: usize) -> Result<&[Unpacked], ComputeError> {
        if self.unpacked != Some([expert, row]) {
            let codec = self.codec()?;
            let bytes = self.weight.row(expert, row);
            self.blocks.resize_with(bytes.len() / codec.block_bytes(), Unpacked::new);
            for (bytes, block) in bytes.chunks_exact(codec.block_bytes()).zip(&mut self.blocks) {
                codec.unpack(bytes, block);
            }
            self.unpacked = Some([expert, row]);
        }
        Ok(&self.blocks)
    }

    fn codec(&self) -> Result<&'static dyn BlockCodec, ComputeError> {
        codec(self.weight.dtype).ok_or_else(|| ComputeError::UnsupportedType {
            weight: self.weight.name.clone(),
            dtype: self.weight.dtype.name().to_string(),
        })
    }
}

/// A weight with one row.
pub(super) fn vector<A: Arithmetic>(cx: &OpCx<'_, A::R>, id: WeightId) -> Result<Vec<A::R>, ComputeError> {
    Ok(Rows::<A>::new(cx.weights.get(id)?).get(0, 0)?.to_vec())
}

/// The elements of `x`, `[rows, cols]`, with rows and columns exchanged.
pub(super) fn transpose<R: Copy>(x: &[R], rows: usize, cols: usize) -> Vec<R> {
    (0..cols).flat_map(|c| (0..rows).map(move |r| x[r * cols + c])).collect()
}

/// `acc[t] = sum_k x[k][t] * w[k]` for all rows `t` at once, `x` transposed: `k` ascends from +0, each product
/// is rounded, then each sum.
pub(super) fn dot_rows<A: Arithmetic>(acc: &mut [A::R], xt: &[A::R], w: &[A::R]) {
    acc.fill(A::R::default());
    for (x, &w) in xt.chunks_exact(acc.len().max(1)).zip(w) {
        for (acc, &x) in acc.iter_mut().zip(x) {
            *acc = *acc + x * w;
        }
    }
}

/// `y[t][n] = sum_k x[t][k] * w[n][k]`, `k` ascending from +0 (in `fast`, unit after unit); not rounded further. `x` has
/// `rows` rows.
pub(super) fn product<A: Arithmetic>(
    weight: &Weight,
    numerics: Numerics,
    x: &[A::R],
    rows: usize,
) -> Result<Vec<A::R>, ComputeError> {
    let x = Operand::new(weight, numerics, x, rows)?;
    let mut w = Rows::<A>::new(weight);
    let mut acc = vec![A::R::default(); rows];
    let mut y = vec![A::R::default(); rows * weight.rows];
    for n in 0..weight.rows {
        x.dot(&mut w, [0, n], &mut acc)?;
        for (y, &acc) in y[n..].iter_mut().step_by(weight.rows).zip(&acc) {
            *y = acc;
        }
    }
    Ok(y)
}

/// The [`product`], then `+ bias[n]`.
pub(super) fn matmul<A: Arithmetic>(o: &MatMul, cx: &mut OpCx<'_, A::R>) -> Result<(), ComputeError> {
    let bias = o.bias.map(|b| vector::<A>(cx, b)).transpose()?;
    let mut out = product::<A>(cx.weights.get(o.w)?, o.numerics, cx.real(o.x), o.x.rows())?;
    for row in out.chunks_exact_mut(o.out.cols().max(1)) {
        for (n, y) in row.iter_mut().enumerate() {
            *y = A::store(bias.as_ref().map_or(*y, |b| *y + b[n]));
        }
    }
    cx.put_real(o.out, out);
    Ok(())
}
