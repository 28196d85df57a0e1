//! Importance data of a model that runs: sums of the squares of what its matrices are multiplied by.

use std::collections::BTreeMap;

use redraft_compute::{TapData, Weight};
use redraft_gguf::{Array, DType, GgufWriter};

use super::{COUNTS, SUMS};
use crate::Error;
use crate::weights::tensor_of;

/// Collects importance data while a model that [has it](crate::Model::collect_importance) makes answers: from every pass,
/// over prompts and over canvases of each step, all rows alike. Sums are made in f64, row after row, so that backends and
/// numbers of threads give the same bits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportanceCollector {
    /// By the name of the tensor.
    tensors: BTreeMap<String, Sums>,
    prompts: u32,
    /// How many canvases had a step of this number.
    canvases_by_step: Vec<u32>,
}

/// Of a matrix, or of a stack.
#[derive(Debug, Clone, PartialEq)]
struct Sums {
    inputs: usize,
    /// `[matrices][inputs]`.
    squares: Vec<f64>,
    /// Rows, by matrix.
    counts: Vec<u64>,
}

impl Sums {
    /// Rows of `x`, each for the matrix, or the matrices of a stack, that it is multiplied by.
    fn add<T: Copy + Into<f64>>(&mut self, x: &[T], experts: Option<&[i32]>) {
        let rows = x.len() / self.inputs.max(1);
        let each = experts.map_or(1, |ids| ids.len() / rows.max(1));
        for (i, row) in x.chunks_exact(self.inputs.max(1)).enumerate() {
            for k in i * each..(i + 1) * each {
                let matrix = experts.map_or(0, |ids| usize::try_from(ids[k]).unwrap_or(usize::MAX));
                let Some(count) = self.counts.get_mut(matrix) else { continue };
                *count += 1;
                for (sum, &x) in self.squares[matrix * self.inputs..].iter_mut().zip(row) {
                    let x: f64 = x.into();
                    *sum += x * x;
                }
            }
        }
    }
}

impl ImportanceCollector {
    /// Adds what is multiplied by a weight, as [`redraft_compute::Observer::product`] shows it.
    pub(crate) fn add(&mut self, weight: &Weight, x: TapData<'_>, experts: Option<&[i32]>) {
        let Some(tensor) = tensor_of(&weight.name) else { return };
        let (n, inputs) = (weight.experts, weight.cols);
        let new = || Sums { inputs, squares: vec![0.0; n * inputs], counts: vec![0; n] };
        let sums = self.tensors.entry(tensor.to_owned()).or_insert_with(new);
        match x {
            TapData::F32(x) => sums.add(x, experts),
            TapData::F64(x) => sums.add(x, experts),
            // Ids are not multiplied.
            TapData::I32(_) => {}
        }
    }

    /// Notes what an answer consisted of, the steps of each of its canvases, for [`to_gguf`](Self::to_gguf).
    pub fn answered(&mut self, steps: impl Iterator<Item = usize>) {
        self.prompts += 1;
        for steps in steps {
            self.canvases_by_step.resize(self.canvases_by_step.len().max(steps), 0);
            self.canvases_by_step[..steps].iter_mut().for_each(|n| *n += 1);
        }
    }

    /// Number of tensors, matrices of stacks, and those of them that nothing was multiplied by.
    pub fn matrices(&self) -> (usize, usize, usize) {
        let counts = || self.tensors.values().flat_map(|s| &s.counts);
        (self.tensors.len(), counts().count(), counts().filter(|&&n| n == 0).count())
    }

    /// The file, as `llama-imatrix` writes it: `NAME.in_sum2` and `NAME.counts` in the order of names. A chunk is a
    /// canvas of `canvas_len` tokens in one step; `redraft.imatrix.canvases_by_step` says how many canvases had a first
    /// step, a second one and so on, and `facts` become `redraft.imatrix.KEY`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn to_gguf(
        &self,
        datasets: &[String],
        canvas_len: usize,
        facts: &BTreeMap<String, String>,
    ) -> Result<Vec<u8>, Error> {
        let mut w = GgufWriter::new();
        let m = w.metadata_mut();
        m.set("general.type", "imatrix");
        m.set("imatrix.datasets", Array::Str(datasets.iter().map(String::as_str).collect()));
        m.set("imatrix.chunk_count", self.canvases_by_step.iter().fold(0u32, |n, &x| n.saturating_add(x)));
        m.set("imatrix.chunk_size", u32::try_from(canvas_len).unwrap_or(u32::MAX));
        m.set("redraft.imatrix.prompts", self.prompts);
        m.set("redraft.imatrix.canvases_by_step", Array::U32(self.canvases_by_step.clone()));
        for (key, value) in facts {
            m.set(format!("redraft.imatrix.{key}"), value.as_str());
        }
        for (name, s) in &self.tensors {
            let n = s.counts.len() as u64;
            w.add_tensor(&format!("{name}{SUMS}"), &[s.inputs as u64, n], DType::F32)?;
            w.add_tensor(&format!("{name}{COUNTS}"), &[1, n], DType::F32)?;
        }
        let mut out = w.begin(Vec::new())?;
        let bytes = |x: &mut dyn Iterator<Item = f32>| x.flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
        for (name, s) in &self.tensors {
            // Larger than any number of the format is as large as can be: sums are finite there.
            let squares = &mut s.squares.iter().map(|&x| (x as f32).min(f32::MAX));
            out.write_tensor(&format!("{name}{SUMS}"), &bytes(squares))?;
            out.write_tensor(&format!("{name}{COUNTS}"), &bytes(&mut s.counts.iter().map(|&n| n as f32)))?;
        }
        Ok(out.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use redraft_gguf::Gguf;

    use super::*;
    use crate::importance::Importance;

    fn weight(name: &str, experts: usize, cols: usize) -> Weight {
        let bytes = vec![0; 4 * experts * cols].into();
        Weight { name: name.into(), dtype: DType::F32, experts, rows: 1, cols, bytes }
    }

    #[test]
    fn rows_go_to_their_matrices_and_the_file_can_be_read() {
        let mut c = ImportanceCollector::default();
        let x = TapData::F32(&[1.0, 2.0, 3.0, -4.0]);
        c.add(&weight("a.weight", 1, 2), x, None);
        c.add(&weight("a.weight", 1, 2), TapData::F64(&[0.5, 0.0]), None);
        // Two rows, each for two of three experts; then four rows, each for one.
        c.add(&weight("s.weight", 3, 2), x, Some(&[2, 0, 2, 0]));
        c.add(&weight("t.weight", 3, 1), x, Some(&[2, 0, 2, 0]));
        // Parts of a tensor have the same inputs.
        c.add(&weight("qkv.weight[0..4]", 1, 2), x, None);
        c.add(&weight("qkv.weight[4..6]", 1, 2), x, None);
        let of = |name: &str| (c.tensors[name].squares.clone(), c.tensors[name].counts.clone());
        assert_eq!(of("a.weight"), (vec![10.25, 20.0], vec![3]));
        assert_eq!(of("s.weight"), (vec![10.0, 20.0, 0.0, 0.0, 10.0, 20.0], vec![2, 0, 2]));
        assert_eq!(of("t.weight"), (vec![20.0, 0.0, 10.0], vec![2, 0, 2]));
        assert_eq!(of("qkv.weight"), (vec![10.0, 20.0], vec![2]));
        assert_eq!(c.matrices(), (4, 8, 2));

        let facts = BTreeMap::from([("seed".to_string(), "7".to_string())]);
        let file = c.to_gguf(&["prompts.txt".into()], 32, &facts).unwrap();
        let g = Gguf::from_bytes(file.into()).unwrap();
        assert_eq!(g.metadata().str("redraft.imatrix.seed").unwrap(), "7");
        let dims = |name: &str| g.tensor(name).unwrap().dims.to_vec();
        assert_eq!((dims("s.weight.in_sum2"), dims("s.weight.counts")), (vec![2, 3], vec![1, 3]));
        Importance::from_gguf(&g).unwrap();
    }
}
