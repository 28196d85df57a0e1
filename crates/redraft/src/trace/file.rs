//! Trace and golden files: safetensors, read with the `safetensors` crate's checks, written with sorted
//! names so that the same trace has the same bytes.

use std::collections::BTreeMap;
use std::path::Path;

use redraft_gguf::{Bytes, OpenOptions, Shown};
use safetensors::{Dtype, SafeTensors};

use super::Given;
use crate::Error;

/// Elements of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Elements {
    /// f64.
    F64(Vec<f64>),
    /// f32, and what was read from f16 or bf16.
    F32(Vec<f32>),
    /// 32-bit integers.
    I32(Vec<i32>),
    /// Masks.
    U8(Vec<u8>),
    /// All other integers, when read.
    I64(Vec<i64>),
}

impl Elements {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Elements::F64(x) => x.len(),
            Elements::F32(x) => x.len(),
            Elements::I32(x) => x.len(),
            Elements::U8(x) => x.len(),
            Elements::I64(x) => x.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they are integers.
    pub fn is_int(&self) -> bool {
        !matches!(self, Elements::F64(_) | Elements::F32(_))
    }

    /// As f64; exact for all but integers beyond 2^53.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Elements::F64(x) => x.clone(),
            Elements::F32(x) => x.iter().map(|&x| x.into()).collect(),
            Elements::I32(x) => x.iter().map(|&x| x.into()).collect(),
            Elements::U8(x) => x.iter().map(|&x| x.into()).collect(),
            Elements::I64(x) => x.iter().map(|&x| x as f64).collect(),
        }
    }

    /// As integers, when they are.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        match self {
            Elements::I32(x) => Some(x.iter().map(|&x| x.into()).collect()),
            Elements::U8(x) => Some(x.iter().map(|&x| x.into()).collect()),
            Elements::I64(x) => Some(x.clone()),
            Elements::F64(_) | Elements::F32(_) => None,
        }
    }

    /// Name of the type in safetensors files.
    pub fn dtype(&self) -> &'static str {
        match self {
            Elements::F64(_) => "F64",
            Elements::F32(_) => "F32",
            Elements::I32(_) => "I32",
            Elements::U8(_) => "U8",
            Elements::I64(_) => "I64",
        }
    }

    /// The elements at these places, all of which there are.
    pub(super) fn reordered(&self, order: &[usize]) -> Elements {
        fn each<T: Copy>(x: &[T], order: &[usize]) -> Vec<T> {
            order.iter().map(|&i| x[i]).collect()
        }
        match self {
            Elements::F64(x) => Elements::F64(each(x, order)),
            Elements::F32(x) => Elements::F32(each(x, order)),
            Elements::I32(x) => Elements::I32(each(x, order)),
            Elements::U8(x) => Elements::U8(each(x, order)),
            Elements::I64(x) => Elements::I64(each(x, order)),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Elements::F64(x) => x.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Elements::F32(x) => x.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Elements::I32(x) => x.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Elements::U8(x) => x.clone(),
            Elements::I64(x) => x.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    /// `None` for types that no trace holds. The length must be one of whole elements.
    pub(super) fn read(dtype: Dtype, b: &[u8]) -> Option<Elements> {
        fn each<const N: usize, T>(b: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
            b.as_chunks::<N>().0.iter().map(|&c| f(c)).collect()
        }
        Some(match dtype {
            Dtype::F64 => Elements::F64(each(b, f64::from_le_bytes)),
            Dtype::F32 => Elements::F32(each(b, f32::from_le_bytes)),
            Dtype::F16 => Elements::F32(each(b, |c| redraft_gguf::f16_to_f32(u16::from_le_bytes(c)))),
            Dtype::BF16 => Elements::F32(each(b, |c| redraft_gguf::bf16_to_f32(u16::from_le_bytes(c)))),
            Dtype::I32 => Elements::I32(each(b, i32::from_le_bytes)),
            Dtype::U8 | Dtype::BOOL => Elements::U8(b.to_vec()),
            Dtype::I8 => Elements::I64(each(b, |c| i8::from_le_bytes(c).into())),
            Dtype::I16 => Elements::I64(each(b, |c| i16::from_le_bytes(c).into())),
            Dtype::U16 => Elements::I64(each(b, |c| u16::from_le_bytes(c).into())),
            Dtype::U32 => Elements::I64(each(b, |c| u32::from_le_bytes(c).into())),
            Dtype::I64 => Elements::I64(each(b, i64::from_le_bytes)),
            _ => return None,
        })
    }
}

/// A tensor of a trace, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Extents; rows are positions or steps.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Elements,
}

/// A trace or golden file in memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TraceFile {
    /// Tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// What else a file of another program says about a tensor, or does not.
    pub given: BTreeMap<String, Given>,
    /// What a person should know about how it was read.
    pub notes: Vec<String>,
    /// Header metadata.
    pub metadata: BTreeMap<String, String>,
    /// Where it was read from, for messages.
    pub name: String,
}

impl TraceFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Gguf`] when it cannot be opened or is cut short meanwhile, [`Error::Golden`] when it is no valid
    /// safetensors file or holds an element type that no trace has.
    pub fn open(path: &Path) -> Result<TraceFile, Error> {
        let bytes = Bytes::open(path, &OpenOptions::default())?;
        let file = TraceFile::parse(&bytes, &path.display().to_string());
        bytes.check()?;
        file
    }

    /// Reads from memory; `name` is for messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn parse(bytes: &[u8], name: &str) -> Result<TraceFile, Error> {
        let wrong = |problem: String| Error::Golden { file: name.to_string(), problem };
        // Checks that the tensors follow each other and fill the file.
        let (header_len, header) = SafeTensors::read_metadata(bytes)
            .map_err(|e| wrong(format!("expected a safetensors file, as traces and goldens are: {e}")))?;
        let data = &bytes[8 + header_len..];
        let metadata = header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        let mut tensors = BTreeMap::new();
        // In the order of the file, so that the same file gives the same error.
        for key in header.offset_keys() {
            let Some(info) = header.info(&key) else { continue };
            let (start, end) = info.data_offsets;
            let elements = Elements::read(info.dtype, &data[start..end]).ok_or_else(|| {
                wrong(format!("tensor {} has the unsupported type {:?}", Shown(&key), info.dtype))
            })?;
            tensors.insert(key, Tensor { shape: info.shape.clone(), data: elements });
        }
        Ok(TraceFile { tensors, metadata, name: name.to_string(), ..TraceFile::default() })
    }

    /// Adds a tensor.
    pub fn insert(&mut self, name: impl Into<String>, shape: Vec<usize>, data: Elements) {
        debug_assert_eq!(shape.iter().product::<usize>(), data.len());
        self.tensors.insert(name.into(), Tensor { shape, data });
    }

    /// Gives a tensor another name, in the place of any that has it.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        if let Some(tensor) = self.tensors.remove(from) {
            self.tensors.insert(to.to_string(), tensor);
            self.given.remove(to);
        }
        if let Some(given) = self.given.remove(from) {
            self.given.insert(to.to_string(), given);
        }
    }

    /// The file's bytes. Tensors stand by descending element size, then by name, so that each is aligned.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size = |t: &Tensor| match t.data {
            Elements::F64(_) | Elements::I64(_) => 8,
            Elements::F32(_) | Elements::I32(_) => 4,
            Elements::U8(_) => 1,
        };
        let mut order: Vec<(&String, &Tensor)> = self.tensors.iter().collect();
        order.sort_by_key(|(name, t)| (std::cmp::Reverse(size(t)), *name));
        let mut header = serde_json::Map::new();
        header.insert("__metadata__".into(), serde_json::json!(self.metadata));
        let mut at = 0;
        for (name, t) in &order {
            let end = at + t.data.len() * size(t);
            let entry =
                serde_json::json!({"dtype": t.data.dtype(), "shape": t.shape, "data_offsets": [at, end]});
            header.insert((*name).clone(), entry);
            at = end;
        }
        let mut head = serde_json::Value::Object(header).to_string().into_bytes();
        head.resize(head.len().next_multiple_of(8), b' ');
        let mut out = (head.len() as u64).to_le_bytes().to_vec();
        out.append(&mut head);
        order.iter().for_each(|(_, t)| out.append(&mut t.data.to_bytes()));
        out
    }

    /// An integer tensor that must be there.
    ///
    /// # Errors
    /// [`Error::Golden`] when it is missing or not of integers.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>, Error> {
        let t = self.need(name)?;
        t.data
            .to_i64()
            .ok_or_else(|| self.wrong(format!("tensor {name}: expected integers, found {}", t.data.dtype())))
    }

    /// Token ids that must be there.
    ///
    /// # Errors
    /// [`Error::Golden`] when they are missing or no ids.
    pub fn ids(&self, name: &str) -> Result<Vec<u32>, Error> {
        let id =
            |x: i64| u32::try_from(x).map_err(|_| self.wrong(format!("tensor {name}: {x} is no token id")));
        self.ints(name)?.into_iter().map(id).collect()
    }

    /// A tensor that must be there.
    ///
    /// # Errors
    /// [`Error::Golden`].
    pub fn need(&self, name: &str) -> Result<&Tensor, Error> {
        self.tensors.get(name).ok_or_else(|| self.wrong(format!("tensor {name} is missing")))
    }

    /// Refuses a tensor of `found` elements that are not so many rows of `len`.
    pub(super) fn check_rows(&self, name: &str, found: usize, rows: usize, len: usize) -> Result<(), Error> {
        if rows.checked_mul(len) == Some(found) {
            return Ok(());
        }
        Err(self
            .wrong(format!("tensor {name}: expected {rows} rows of {len} elements, found {found} elements")))
    }

    /// How many positions at the start of the first canvas's rows, which have `len`, are the end of the prompt.
    pub(super) fn lead(&self, len: usize) -> Result<usize, Error> {
        if !self.tensors.contains_key("n_lead") {
            return Ok(0);
        }
        match self.ints("n_lead")?[..] {
            [n] if (0..len as i64).contains(&n) => Ok(n as usize),
            ref found => {
                Err(self.wrong(format!("tensor n_lead: expected one number below {len}, found {found:?}")))
            }
        }
    }

    pub(crate) fn wrong(&self, problem: String) -> Error {
        Error::Golden { file: self.name.clone(), problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_reads_back_and_has_stable_bytes() {
        let mut f = TraceFile { name: "mem".into(), ..TraceFile::default() };
        f.metadata.insert("model".into(), "x".into());
        f.metadata.insert("a".into(), "\"quoted\"".into());
        f.insert("dec/l_out-0", vec![2, 2], Elements::F32(vec![1.0, -0.0, f32::MIN_POSITIVE, 4.0]));
        f.insert("logits", vec![1, 3], Elements::F64(vec![0.1, 0.2, 0.3]));
        f.insert("accepted", vec![3], Elements::U8(vec![1, 0, 1]));
        f.insert("argmax", vec![2], Elements::I32(vec![-1, 7]));
        let bytes = f.to_bytes();
        assert_eq!(TraceFile::parse(&bytes, "mem").unwrap(), f);
        assert_eq!(f.clone().to_bytes(), bytes);
    }

    #[test]
    fn broken_files_are_errors() {
        for bytes in [&b""[..], b"1234567", &u64::MAX.to_le_bytes(), b"\x02\0\0\0\0\0\0\0{]"] {
            let e = TraceFile::parse(bytes, "bad").unwrap_err().to_string();
            assert!(e.starts_with("bad: "), "{e}");
        }
    }
}
