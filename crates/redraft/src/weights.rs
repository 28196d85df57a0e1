//! From tensor names to weights: every missing, mis-shaped or unreadable tensor is reported at once.

use std::collections::BTreeSet;

use redraft_compute::{Weight, WeightId, WeightTable};
use redraft_gguf::{Gguf, codec};

use crate::Error;

/// The handle of a weight that could not be loaded.
const DANGLING: WeightId = WeightId(u32::MAX);

/// The tensor of the file that a weight is, or the first part of: the parts that [`WeightLoader::matrices`] cuts a tensor
/// into have the same inputs. None for the other parts.
pub(crate) fn tensor_of(weight: &str) -> Option<&str> {
    match weight.split_once('[') {
        None => Some(weight),
        Some((tensor, rows)) => rows.starts_with("0..").then_some(tensor),
    }
}

/// Collects the weights of an architecture from a file.
pub struct WeightLoader<'a> {
    gguf: &'a Gguf,
    table: WeightTable,
    used: BTreeSet<String>,
    problems: Vec<String>,
}

impl<'a> WeightLoader<'a> {
    /// A loader over the tensors of a file.
    pub fn new(gguf: &'a Gguf) -> WeightLoader<'a> {
        WeightLoader { gguf, table: WeightTable::default(), used: BTreeSet::new(), problems: Vec::new() }
    }

    /// Whether the file has a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// A vector of `n` elements.
    pub fn vector(&mut self, name: &str, n: usize) -> WeightId {
        self.load(name, &[n])
    }

    /// A matrix `[rows = output features, cols = input features]`.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> WeightId {
        self.load(name, &[cols, rows])
    }

    /// The output head `[rows, cols]`: `output.weight`, or `token_embd` where the file has none.
    pub(crate) fn head(&mut self, rows: usize, cols: usize, token_embd: WeightId) -> WeightId {
        if self.has("output.weight") { self.matrix("output.weight", rows, cols) } else { token_embd }
    }

    /// A stack of `experts` matrices `[rows, cols]`.
    pub fn stack(&mut self, name: &str, experts: usize, rows: usize, cols: usize) -> WeightId {
        self.load(name, &[cols, rows, experts])
    }

    /// A vector of `n` finite elements, for one that decides something and would not show in a result.
    pub(crate) fn finite_vector(&mut self, name: &str, n: usize) -> WeightId {
        let id = self.vector(name, n);
        let damaged = self.table.get(id).ok().and_then(Weight::first_not_finite);
        if let Some(([.., col], value)) = damaged {
            self.problems.push(format!("{name}: expected finite numbers, found {value} at {col}"));
        }
        id
    }

    /// Matrices of `rows` rows each that the file has as one, the first on top.
    pub(crate) fn matrices<const N: usize>(
        &mut self,
        name: &str,
        rows: [usize; N],
        cols: usize,
    ) -> [WeightId; N] {
        let total = rows.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
        let Some(whole) = self.find(name, &[cols, total]) else { return [DANGLING; N] };
        let row_bytes = whole.bytes.len() / total.max(1);
        let mut from = 0;
        rows.map(|n| {
            let to = from + n;
            let bytes =
                whole.bytes.slice(from * row_bytes..to * row_bytes).unwrap_or_else(|| Vec::new().into());
            let part = Weight { name: format!("{name}[{from}..{to}]"), rows: n, bytes, ..whole.clone() };
            from = to;
            self.add(part)
        })
    }

    /// The elements of a vector that the host needs itself; empty when the tensor cannot be used.
    pub fn values(&mut self, name: &str, n: usize) -> Vec<f32> {
        let id = self.vector(name, n);
        let Ok(w) = self.table.get(id) else { return Vec::new() };
        let mut out = vec![0.0; n];
        if let Some(codec) = codec(w.dtype) {
            codec.dequantize(&w.bytes, &mut out);
        }
        if let Some(bad) = out.iter().find(|x| !(x.is_finite() && **x != 0.0)) {
            self.problems.push(format!("{name}: expected finite non-zero numbers, found {bad}"));
        }
        out
    }

    /// `dims` in file order (contiguous first). A tensor that cannot be used is remembered, and the handle is one that
    /// [`finish`](Self::finish) never lets out.
    fn load(&mut self, name: &str, dims: &[usize]) -> WeightId {
        match self.find(name, dims) {
            Some(weight) => self.add(weight),
            None => DANGLING,
        }
    }

    fn find(&mut self, name: &str, dims: &[usize]) -> Option<Weight> {
        let want: Vec<u64> = dims.iter().map(|&d| d as u64).collect();
        let Some(t) = self.gguf.tensor(name) else {
            self.problems.push(format!("{name}: missing, expected the shape {want:?}"));
            return None;
        };
        self.used.insert(name.to_string());
        // Trailing extents of 1 carry no meaning in the file format.
        let trim = |d: &[u64]| d.iter().rposition(|&x| x != 1).map_or(0, |i| i + 1);
        if t.dims[..trim(&t.dims)] != want[..trim(&want)] {
            self.problems.push(format!("{name}: expected the shape {want:?}, found {:?}", t.dims));
            return None;
        }
        let extent = |i: usize| dims.get(i).copied().unwrap_or(1);
        Some(Weight {
            name: name.to_string(),
            dtype: t.dtype,
            experts: extent(2),
            rows: extent(1),
            cols: extent(0),
            bytes: self.gguf.tensor_bytes(t),
        })
    }

    fn add(&mut self, weight: Weight) -> WeightId {
        self.table.add(weight).unwrap_or_else(|e| {
            self.problems.push(e.to_string());
            DANGLING
        })
    }

    /// The table, and the names of tensors that nothing asked for.
    ///
    /// # Errors
    /// [`Error::Weights`] with every problem met.
    pub fn finish(self) -> Result<(WeightTable, Vec<String>), Error> {
        if !self.problems.is_empty() {
            return Err(Error::Weights { problems: self.problems });
        }
        let unused = self.gguf.tensors().iter().map(|t| &t.name).filter(|n| !self.used.contains(*n));
        Ok((self.table, unused.cloned().collect()))
    }
}
