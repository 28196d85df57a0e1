//! One row of weights times all rows of activations, in both modes.

use redraft_gguf::{Unpacked, codec};

use super::arithmetic::Arithmetic;
use super::matmul::{Rows, dot_rows, transpose};
use crate::host::HostReal;
use crate::math;
use crate::numerics::{Form, Numerics, Unit, Units};
use crate::{ComputeError, Weight};

/// Rows of activations, ready for products with weights of one type.
pub(super) enum Operand<R> {
    /// `[cols, rows]`.
    Real(Vec<R>),
    Int8(Int8),
}

/// Rows of activations as integers.
pub(super) struct Int8 {
    units: Units,
    /// `[rows, cols]`.
    codes: Vec<i8>,
    /// `[rows, cols / unit]`.
    scales: Vec<f32>,
    cols: usize,
}

impl<R: HostReal + From<f32>> Operand<R> {
    /// `x` is `[rows, cols]`.
    pub(super) fn new(
        weight: &Weight,
        numerics: Numerics,
        x: &[R],
        rows: usize,
    ) -> Result<Self, ComputeError> {
        let codec = codec(weight.dtype).ok_or_else(|| ComputeError::UnsupportedType {
            weight: weight.name.clone(),
            dtype: weight.dtype.name().to_string(),
        })?;
        let narrow = |x: &R| x.to_f64() as f32;
        Ok(match Form::of(codec, numerics) {
            Form::F32 => Operand::Real(transpose(x, rows, weight.cols)),
            Form::Int8(units) => {
                let x: Vec<f32> = x.iter().map(narrow).collect();
                Operand::Int8(Int8::new(&x, weight.cols, units))
            }
            Form::Half(half) => {
                let x: Vec<R> = x.iter().map(|x| R::from(half.round(narrow(x)))).collect();
                Operand::Real(transpose(&x, rows, weight.cols))
            }
        })
    }
}

impl<R: From<f32>> Operand<R> {
    /// `acc[t]` = the product of row `t` with row `row` of matrix `expert`.
    pub(super) fn dot<A: Arithmetic<R = R>>(
        &self,
        w: &mut Rows<'_, A>,
        [expert, row]: [usize; 2],
        acc: &mut [R],
    ) -> Result<(), ComputeError> {
        match self {
            Operand::Real(xt) => dot_rows::<A>(acc, xt, w.get(expert, row)?),
            Operand::Int8(x) => {
                for (t, acc) in acc.iter_mut().enumerate() {
                    *acc = R::from(x.dot(t, w.blocks(expert, row)?));
                }
            }
        }
        Ok(())
    }
}

impl Int8 {
    /// Each unit of each row gets the scale of its largest magnitude.
    fn new(x: &[f32], cols: usize, units: Units) -> Int8 {
        let mut int = Int8 { units, codes: Vec::new(), scales: Vec::new(), cols };
        for unit in x.chunks_exact(units.len) {
            // Bits without sign are ordered as the numbers are, and a NaN is above all.
            let peak = f32::from_bits(unit.iter().fold(0, |peak, x| peak.max(x.abs().to_bits())));
            let (scale, inverse) = math::int8_scale(peak);
            int.scales.push(scale);
            // Without a reciprocal all codes are 0, those of numbers that are not finite, too.
            let code = |&x: &f32| if inverse == 0.0 { 0 } else { math::int8_code(x, inverse) as i8 };
            int.codes.extend(unit.iter().map(code));
        }
        int
    }

    /// Integers inside a unit; between units f32, ascending from +0: first the products with the codes, then
    /// what the minima subtract.
    fn dot(&self, t: usize, blocks: &[Unpacked]) -> f32 {
        let units = self.units;
        let mut codes = self.codes[t * self.cols..][..self.cols].chunks_exact(units.len);
        let n = self.cols / units.len;
        let mut scales = self.scales[t * n..][..n].iter();
        let mut acc = 0.0;
        for block in blocks {
            for i in 0..block.len / units.len {
                let w = Unit::of(block, units, i);
                let (Some(x), Some(&dx)) = (codes.next(), scales.next()) else {
                    unreachable!("a row has one activation per weight")
                };
                let (mut sum, mut min_sum) = (0i32, 0i32);
                for (s, x) in x.chunks_exact(units.sub_len).enumerate() {
                    let w_codes = &w.codes[s * units.sub_len..][..units.sub_len];
                    let dot: i32 = w_codes.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
                    sum += w.scales[s] * dot;
                    min_sum += i32::from(w.mins[s]) * x.iter().map(|&x| i32::from(x)).sum::<i32>();
                }
                let (product, min) = ((w.d * dx) * sum as f32, (w.dmin * dx) * min_sum as f32);
                acc += product;
                acc -= min;
            }
        }
        acc
    }
}
