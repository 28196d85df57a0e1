//! Weights: matrices that stay in their file format.

use redraft_gguf::{Bytes, DType, codec};

use crate::ComputeError;

/// Handle of a weight that a backend holds; dense, from 0, in the order in which weights were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightId(pub u32);

/// One weight in its file format: `experts` matrices of `[rows, cols]`, rows contiguous.
///
/// A vector is a matrix with one row. `bytes` is a view into the model file; nothing is copied.
#[derive(Clone)]
pub struct Weight {
    /// Name in the file, for messages.
    pub name: String,
    /// Block type.
    pub dtype: DType,
    /// Number of stacked matrices; 1 but for expert stacks.
    pub experts: usize,
    /// Output features (rows of the matrix).
    pub rows: usize,
    /// Input features (contiguous).
    pub cols: usize,
    /// The blocks, `experts * rows * row_bytes` bytes.
    pub bytes: Bytes,
}

impl Weight {
    /// Checks that the type can be decoded and that the byte length fits the shape.
    ///
    /// # Errors
    /// [`ComputeError::UnsupportedType`] or [`ComputeError::WeightBytes`], naming the weight.
    pub fn check(&self) -> Result<(), ComputeError> {
        if codec(self.dtype).is_none() {
            return Err(ComputeError::UnsupportedType {
                weight: self.name.clone(),
                dtype: self.dtype.name().to_string(),
            });
        }
        let expected = self
            .dtype
            .row_bytes(self.cols as u64)
            .and_then(|r| r.checked_mul(self.rows as u64))
            .and_then(|m| m.checked_mul(self.experts as u64));
        if expected != Some(self.bytes.len() as u64) {
            return Err(ComputeError::WeightBytes {
                weight: self.name.clone(),
                shape: [self.experts, self.rows, self.cols],
                found: self.bytes.len(),
            });
        }
        Ok(())
    }

    /// Bytes of one row of a weight that passed [`check`](Self::check).
    pub fn row_bytes(&self) -> usize {
        self.bytes.len().checked_div(self.experts * self.rows).unwrap_or(0)
    }

    /// The bytes of row `row` of matrix `expert`.
    pub fn row(&self, expert: usize, row: usize) -> &[u8] {
        let n = self.row_bytes();
        let at = (expert * self.rows + row) * n;
        &self.bytes[at..at + n]
    }

    /// The first NaN or infinity among the decoded elements: where it is, as `[matrix, row, column]`, and which.
    /// Decodes all of the weight, so it is for explaining a failure.
    pub fn first_not_finite(&self) -> Option<([usize; 3], &'static str)> {
        let codec = codec(self.dtype)?;
        let mut values = vec![0.0; self.cols];
        (0..self.experts).flat_map(|e| (0..self.rows).map(move |r| (e, r))).find_map(|(expert, row)| {
            codec.dequantize(self.row(expert, row), &mut values);
            let col = values.iter().position(|x| !x.is_finite())?;
            Some(([expert, row, col], if values[col].is_nan() { "NaN" } else { "infinity" }))
        })
    }
}

/// All weights of a model, shared between the model that names them and the backend that reads them.
#[derive(Default, Clone)]
pub struct WeightTable {
    list: Vec<Weight>,
}

impl WeightTable {
    /// Adds a checked weight.
    ///
    /// # Errors
    /// Those of [`Weight::check`].
    pub fn add(&mut self, w: Weight) -> Result<WeightId, ComputeError> {
        w.check()?;
        self.list.push(w);
        Ok(WeightId(self.list.len() as u32 - 1))
    }

    /// The weight behind a handle.
    ///
    /// # Errors
    /// [`ComputeError::UnknownHandle`].
    pub fn get(&self, id: WeightId) -> Result<&Weight, ComputeError> {
        self.list.get(id.0 as usize).ok_or(ComputeError::UnknownHandle { what: "weight", id: id.0 })
    }

    /// All weights in the order of their handles.
    pub fn iter(&self) -> impl Iterator<Item = &Weight> + '_ {
        self.list.iter()
    }
}

impl std::fmt::Debug for WeightTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WeightTable({} weights)", self.list.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_element_is_found_by_its_place() {
        let mut numbers = [1.0f32; 24];
        let weight = |numbers: &[f32; 24]| Weight {
            name: "w".into(),
            dtype: DType::F32,
            experts: 2,
            rows: 3,
            cols: 4,
            bytes: Bytes::from(numbers.map(f32::to_le_bytes).as_flattened().to_vec()),
        };
        assert_eq!(weight(&numbers).first_not_finite(), None);
        numbers[23] = f32::NAN;
        numbers[18] = f32::NEG_INFINITY;
        assert_eq!(weight(&numbers).first_not_finite(), Some(([1, 1, 2], "infinity")));
    }
}
