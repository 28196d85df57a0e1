//! Importance data from a file: mean squares of the inputs of matrices.

use std::collections::BTreeMap;

use redraft_gguf::{DType, Gguf, TensorInfo};

use super::{COUNTS, SUMS};
use crate::Error;

/// Mean squares of the inputs of matrices, by the name of the matrix.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Importance {
    /// `[matrices][inputs]`; none is negative, all are finite.
    matrices: BTreeMap<String, Vec<f32>>,
}

impl Importance {
    /// Reads a file of importance data.
    ///
    /// # Errors
    /// [`Error::Request`] when it is another kind of file; [`Error::Weights`] for tensors of other types and shapes,
    /// and for numbers that are no sums of squares.
    pub fn from_gguf(gguf: &Gguf) -> Result<Importance, Error> {
        let kind = gguf.metadata().opt_str("general.type")?;
        if kind != Some("imatrix") {
            return Err(Error::Request {
                what: "general.type of the importance data".into(),
                expected: "imatrix (a GGUF file as `llama-imatrix` writes it)".into(),
                found: kind.unwrap_or("nothing").into(),
            });
        }
        let mut problems = Vec::new();
        let mut matrices = BTreeMap::new();
        for t in gguf.tensors() {
            let Some(name) = t.name.strip_suffix(SUMS) else { continue };
            match mean_squares(gguf, t, name) {
                Ok(means) => _ = matrices.insert(name.to_owned(), means),
                Err(problem) => problems.push(problem),
            }
        }
        // What was read from a file that became shorter is not what it says.
        gguf.check()?;
        match problems.is_empty() {
            true => Ok(Importance { matrices }),
            false => Err(Error::Weights { problems }),
        }
    }

    /// The weights of the errors of matrix `t`, `[matrices][inputs]`: `dims[2]` matrices of `dims[0]` inputs.
    ///
    /// # Errors
    /// In words: data of another size.
    pub(crate) fn of(&self, t: &TensorInfo) -> Result<Option<&[f32]>, String> {
        let Some(means) = self.matrices.get(&t.name) else { return Ok(None) };
        let (inputs, n) = (t.row_len(), t.dims.iter().skip(2).product::<u64>());
        match inputs.checked_mul(n) == Some(means.len() as u64) {
            true => Ok(Some(means)),
            false => Err(format!(
                "{}: expected importance data of {n} times {inputs} numbers, found {}",
                t.name,
                means.len()
            )),
        }
    }
}

/// The quotients of one matrix or stack. A matrix that nothing was multiplied by is one of which nothing is known: all
/// its inputs count alike, as in llama.cpp.
fn mean_squares(gguf: &Gguf, sums: &TensorInfo, name: &str) -> Result<Vec<f32>, String> {
    let counts = gguf
        .tensor(&format!("{name}{COUNTS}"))
        .ok_or_else(|| format!("{}: there is no {name}{COUNTS} beside it", sums.name))?;
    if sums.dtype != DType::F32 || counts.dtype != DType::F32 {
        return Err(format!("{}: expected F32 for sums and counts", sums.name));
    }
    let floats = |t: &TensorInfo| -> Vec<f32> {
        let bytes = gguf.tensor_bytes(t);
        bytes.as_chunks().0.iter().map(|b: &[u8; 4]| f32::from_le_bytes(*b)).collect()
    };
    let (mut means, counts) = (floats(sums), floats(counts));
    let inputs = usize::try_from(sums.row_len()).unwrap_or(usize::MAX);
    if means.is_empty() || inputs.checked_mul(counts.len()) != Some(means.len()) {
        return Err(format!(
            "{}: expected one count per matrix, found {} counts for {} rows",
            sums.name,
            counts.len(),
            sums.n_rows()
        ));
    }
    let usable = |x: f32| x.is_finite() && x >= 0.0;
    if !means.iter().chain(&counts).all(|&x| usable(x)) {
        return Err(format!("{}: sums of squares and counts are finite and not negative", sums.name));
    }
    for (row, &count) in means.chunks_exact_mut(inputs).zip(&counts) {
        match count > 0.0 {
            // Counts are whole numbers in the files of llama.cpp; a tiny one would make infinities.
            true => row.iter_mut().for_each(|x| *x = (*x / count).min(f32::MAX)),
            false => row.fill(1.0),
        }
    }
    Ok(means)
}

#[cfg(test)]
mod tests {
    use redraft_gguf::GgufWriter;

    use super::*;

    fn file(kind: &str, tensors: &[(&str, &[u64], &[f32])]) -> Gguf {
        let mut w = GgufWriter::new();
        w.metadata_mut().set("general.type", kind);
        for (name, dims, _) in tensors {
            w.add_tensor(name, dims, DType::F32).unwrap();
        }
        let mut out = w.begin(Vec::new()).unwrap();
        for (name, _, values) in tensors {
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            out.write_tensor(name, &bytes).unwrap();
        }
        Gguf::from_bytes(out.finish().unwrap().into()).unwrap()
    }

    fn matrix(name: &str, dims: &[u64]) -> TensorInfo {
        TensorInfo { name: name.into(), dims: dims.into(), dtype: DType::F32, file: 0, offset: 0, n_bytes: 0 }
    }

    #[test]
    fn sums_are_divided_by_their_counts() {
        let g = file(
            "imatrix",
            &[
                ("a.weight.in_sum2", &[2, 3], &[8.0, 2.0, 5.0, 6.0, 3.0, 0.0]),
                ("a.weight.counts", &[1, 3], &[4.0, 0.0, 3.0]),
            ],
        );
        let importance = Importance::from_gguf(&g).unwrap();
        // The second matrix was never used.
        let want: &[f32] = &[2.0, 0.5, 1.0, 1.0, 1.0, 0.0];
        assert_eq!(importance.of(&matrix("a.weight", &[2, 7, 3])), Ok(Some(want)));
        assert_eq!(importance.of(&matrix("b.weight", &[2, 7, 3])), Ok(None));
        let e = importance.of(&matrix("a.weight", &[3, 7])).unwrap_err();
        assert_eq!(e, "a.weight: expected importance data of 1 times 3 numbers, found 6");
    }

    #[test]
    fn other_files_are_refused() {
        let sums: (&str, &[u64], &[f32]) = ("a.in_sum2", &[2], &[1.0, 2.0]);
        fn e(kind: &str, tensors: &[(&str, &[u64], &[f32])]) -> String {
            Importance::from_gguf(&file(kind, tensors)).unwrap_err().to_string()
        }
        assert!(e("model", &[sums]).contains("found model"));
        assert!(e("imatrix", &[sums]).contains("there is no a.counts"));
        assert!(e("imatrix", &[sums, ("a.counts", &[1, 2], &[1.0, 1.0])]).contains("2 counts for 1 rows"));
        for (sum, count) in [(f32::NAN, 1.0), (-1.0, 1.0), (1.0, f32::INFINITY), (1.0, -2.0)] {
            let e = e("imatrix", &[("a.in_sum2", &[2], &[sum, 0.0]), ("a.counts", &[1], &[count])]);
            assert!(e.contains("finite and not negative"), "{e}");
        }
    }
}
