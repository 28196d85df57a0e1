//! Writes GGUF files: the same metadata and tensors in the same order give the same bytes.
//!
//! Everything that stands before the tensor data is known before the first byte of it, so the header is
//! written at once and the data follow as a stream: a file of many gigabytes is written without holding
//! more than a chunk of it. What this writer accepts, the reader of this crate reads back.

use std::collections::HashSet;
use std::io::Write;

use crate::limits::{
    DEFAULT_ALIGNMENT, MAX_ARRAY_DEPTH, MAX_DIMS, MAX_KEY_BYTES, MAX_STRING_BYTES, MAX_WRITTEN_NAME_BYTES,
};
use crate::reader::{ALIGNMENT_KEY, MAGIC, check_alignment, tensor_size};
use crate::{Array, DType, GgufError, Metadata, Shown, Value};

/// The version of the format that is written.
const VERSION: u32 = 3;

/// A file to be written: metadata and tensors, without the tensors' data.
///
/// ```
/// use redraft_gguf::{DType, Gguf, GgufWriter};
///
/// let mut w = GgufWriter::new();
/// w.metadata_mut().set("general.architecture", "dream");
/// w.add_tensor("a.weight", &[4, 2], DType::F16)?;
/// w.add_tensor("b.weight", &[1], DType::F32)?;
///
/// let mut out = w.begin(Vec::new())?;
/// out.start_tensor("a.weight")?;
/// out.write(&[0; 10])?; // in chunks of any size
/// out.write(&[0; 6])?;
/// out.end_tensor()?;
/// out.write_tensor("b.weight", &1.5f32.to_le_bytes())?;
/// let file = Gguf::from_bytes(out.finish()?.into())?;
/// assert_eq!(file.tensors().len(), 2);
/// # Ok::<(), redraft_gguf::GgufError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct GgufWriter {
    metadata: Metadata,
    tensors: Vec<Announced>,
    names: HashSet<String>,
}

#[derive(Debug, Clone)]
struct Announced {
    name: String,
    dims: Vec<u64>,
    dtype: DType,
    n_bytes: u64,
}

impl GgufWriter {
    /// A file without metadata and tensors.
    pub fn new() -> GgufWriter {
        GgufWriter::default()
    }

    /// A file with the given metadata and no tensors.
    pub fn with_metadata(metadata: Metadata) -> GgufWriter {
        GgufWriter { metadata, ..GgufWriter::default() }
    }

    /// The metadata, written in their order. `general.alignment` among them sets the alignment of the file;
    /// without it the alignment is 32.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The metadata, to be changed.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Announces a tensor. `dims[0]` is the contiguous dimension. Data are written in the order of the
    /// announcements.
    ///
    /// # Errors
    ///
    /// [`GgufError::DuplicateTensor`]; [`GgufError::Limit`] for more than four dimensions or a name of more
    /// than 63 bytes; [`GgufError::UnknownType`], [`GgufError::RowNotBlocks`] or
    /// [`GgufError::ShapeOverflow`] when shape and type have no size.
    pub fn add_tensor(&mut self, name: &str, dims: &[u64], dtype: DType) -> Result<(), GgufError> {
        let n_bytes = tensor_size(name, dims, dtype)?
            .ok_or_else(|| GgufError::UnknownType { tensor: name.to_owned(), dtype: dtype.name().into() })?;
        self.announce(name, dims, dtype, n_bytes)
    }

    /// Announces a tensor of a type that the table of types does not have, with the number of its bytes: for
    /// copying a tensor from another file as it is.
    ///
    /// # Errors
    ///
    /// As [`add_tensor`](Self::add_tensor), and [`GgufError::TensorSize`] when the type is known and gives
    /// another size.
    pub fn add_raw_tensor(
        &mut self,
        name: &str,
        dims: &[u64],
        dtype: DType,
        n_bytes: u64,
    ) -> Result<(), GgufError> {
        match tensor_size(name, dims, dtype)? {
            Some(expected) if expected != n_bytes => {
                Err(GgufError::TensorSize { tensor: name.to_owned(), expected, found: n_bytes })
            }
            _ => self.announce(name, dims, dtype, n_bytes),
        }
    }

    fn announce(&mut self, name: &str, dims: &[u64], dtype: DType, n_bytes: u64) -> Result<(), GgufError> {
        let limit = |what: String, expected: u64, found: u64| {
            if found > expected { Err(GgufError::Limit { what, offset: 0, expected, found }) } else { Ok(()) }
        };
        limit(
            format!("the length of tensor name \"{}\"", Shown(name)),
            MAX_WRITTEN_NAME_BYTES as u64,
            name.len() as u64,
        )?;
        limit(
            format!("the number of dimensions of tensor \"{}\"", Shown(name)),
            MAX_DIMS.into(),
            dims.len() as u64,
        )?;
        if !self.names.insert(name.to_owned()) {
            return Err(GgufError::DuplicateTensor { tensor: name.to_owned() });
        }
        self.tensors.push(Announced { name: name.to_owned(), dims: dims.to_vec(), dtype, n_bytes });
        Ok(())
    }

    /// Writes everything before the tensor data to `out` and returns what takes the data. `out` is written
    /// in pieces of the size of the chunks given, so a file should be wrapped in a [`std::io::BufWriter`].
    ///
    /// # Errors
    ///
    /// [`GgufError::Write`]; [`GgufError::BadAlignment`], [`GgufError::WrongType`] or [`GgufError::Limit`]
    /// when the metadata could not be read back; [`GgufError::ShapeOverflow`] when all tensors together
    /// exceed 64 bits.
    pub fn begin<W: Write>(self, mut out: W) -> Result<TensorWriter<W>, GgufError> {
        let alignment = self.metadata.opt_u64(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
        check_alignment(alignment)?;
        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            put_string(&mut header, key, &"a metadata key", MAX_KEY_BYTES)?;
            header.extend(value.type_id().to_le_bytes());
            put_value(&mut header, key, value)?;
        }
        let mut offset = 0u64;
        for t in &self.tensors {
            put_string(&mut header, &t.name, &"a tensor name", MAX_WRITTEN_NAME_BYTES as u64)?;
            header.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| header.extend(d.to_le_bytes()));
            header.extend(t.dtype.0.to_le_bytes());
            header.extend(offset.to_le_bytes());
            offset = offset
                .checked_add(t.n_bytes)
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .ok_or_else(|| GgufError::ShapeOverflow { tensor: t.name.clone(), dims: t.dims.clone() })?;
        }
        header.resize(header.len().next_multiple_of(alignment as usize), 0);
        out.write_all(&header)?;
        Ok(TensorWriter { out, alignment, tensors: self.tensors, next: 0, written: None })
    }
}

/// Takes the data of the announced tensors, in their order, in chunks of any size.
#[derive(Debug)]
pub struct TensorWriter<W: Write> {
    out: W,
    alignment: u64,
    tensors: Vec<Announced>,
    /// The tensor that is being written or comes next.
    next: usize,
    /// Bytes of it that were written, when it has been started.
    written: Option<u64>,
}

impl<W: Write> TensorWriter<W> {
    /// Starts the next tensor; the name guards against writing one tensor's data under another's name.
    ///
    /// # Errors
    ///
    /// [`GgufError::TensorOrder`] when another tensor comes next or one is not ended.
    pub fn start_tensor(&mut self, name: &str) -> Result<(), GgufError> {
        let expected = match (self.tensors.get(self.next), self.written) {
            (Some(t), None) if t.name == name => {
                self.written = Some(0);
                return Ok(());
            }
            (Some(t), None) => format!("tensor \"{}\"", t.name),
            (Some(t), Some(_)) => format!("the end of tensor \"{}\"", t.name),
            (None, _) => "the end of the file".to_owned(),
        };
        Err(GgufError::TensorOrder { expected, found: format!("tensor \"{}\"", Shown(name)) })
    }

    /// Writes the next bytes of the started tensor.
    ///
    /// # Errors
    ///
    /// [`GgufError::TensorSize`] when it has no room for them (nothing is written then),
    /// [`GgufError::TensorOrder`] when no tensor is started, [`GgufError::Write`].
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), GgufError> {
        let (t, written) = self.started("data")?;
        let total = written.saturating_add(chunk.len() as u64);
        if total > t.n_bytes {
            return Err(GgufError::TensorSize { tensor: t.name.clone(), expected: t.n_bytes, found: total });
        }
        self.out.write_all(chunk)?;
        self.written = Some(total);
        Ok(())
    }

    /// Ends the started tensor and writes its padding.
    ///
    /// # Errors
    ///
    /// [`GgufError::TensorSize`] when bytes are missing, [`GgufError::TensorOrder`] when no tensor is
    /// started, [`GgufError::Write`].
    pub fn end_tensor(&mut self) -> Result<(), GgufError> {
        let (t, written) = self.started("the end of a tensor")?;
        if written != t.n_bytes {
            return Err(GgufError::TensorSize {
                tensor: t.name.clone(),
                expected: t.n_bytes,
                found: written,
            });
        }
        let padding = written.next_multiple_of(self.alignment) - written;
        self.out.write_all(&vec![0; padding as usize])?;
        self.next += 1;
        self.written = None;
        Ok(())
    }

    /// Writes a whole tensor.
    ///
    /// # Errors
    ///
    /// Those of [`start_tensor`](Self::start_tensor), [`write`](Self::write) and
    /// [`end_tensor`](Self::end_tensor).
    pub fn write_tensor(&mut self, name: &str, data: &[u8]) -> Result<(), GgufError> {
        self.start_tensor(name)?;
        self.write(data)?;
        self.end_tensor()
    }

    /// Ends the file and returns the flushed output.
    ///
    /// # Errors
    ///
    /// [`GgufError::TensorOrder`] when a tensor is missing or not ended, [`GgufError::Write`].
    pub fn finish(mut self) -> Result<W, GgufError> {
        if let Some(t) = self.tensors.get(self.next) {
            let part = if self.written.is_some() { "the end of tensor" } else { "tensor" };
            let expected = format!("{part} \"{}\"", t.name);
            return Err(GgufError::TensorOrder { expected, found: "the end of the file".to_owned() });
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn started(&self, found: &str) -> Result<(&Announced, u64), GgufError> {
        match (self.tensors.get(self.next), self.written) {
            (Some(t), Some(written)) => Ok((t, written)),
            (t, _) => Err(GgufError::TensorOrder {
                expected: match t {
                    Some(t) => format!("the start of tensor \"{}\"", t.name),
                    None => "the end of the file".to_owned(),
                },
                found: found.to_owned(),
            }),
        }
    }
}

fn put_string(
    out: &mut Vec<u8>,
    s: &str,
    what: &dyn std::fmt::Display,
    max_bytes: u64,
) -> Result<(), GgufError> {
    let n = s.len() as u64;
    if n > max_bytes {
        let what = format!("the length of {what}");
        return Err(GgufError::Limit { what, offset: out.len() as u64, expected: max_bytes, found: n });
    }
    out.extend(n.to_le_bytes());
    out.extend(s.as_bytes());
    Ok(())
}

fn put_value(out: &mut Vec<u8>, key: &str, value: &Value) -> Result<(), GgufError> {
    match value {
        Value::U8(x) => out.push(*x),
        Value::I8(x) => out.extend(x.to_le_bytes()),
        Value::U16(x) => out.extend(x.to_le_bytes()),
        Value::I16(x) => out.extend(x.to_le_bytes()),
        Value::U32(x) => out.extend(x.to_le_bytes()),
        Value::I32(x) => out.extend(x.to_le_bytes()),
        Value::F32(x) => out.extend(x.to_le_bytes()),
        Value::Bool(x) => out.push(u8::from(*x)),
        Value::String(s) => {
            put_string(out, s, &format_args!("metadata key \"{}\"", Shown(key)), MAX_STRING_BYTES)?
        }
        Value::Array(a) => put_array(out, key, a, 1)?,
        Value::U64(x) => out.extend(x.to_le_bytes()),
        Value::I64(x) => out.extend(x.to_le_bytes()),
        Value::F64(x) => out.extend(x.to_le_bytes()),
    }
    Ok(())
}

/// Writes element type, count and elements. `depth` is 1 for an array that is not inside another.
fn put_array(out: &mut Vec<u8>, key: &str, array: &Array, depth: u32) -> Result<(), GgufError> {
    if depth > MAX_ARRAY_DEPTH {
        return Err(GgufError::Limit {
            what: format!("the nesting of arrays in metadata key \"{}\"", Shown(key)),
            offset: out.len() as u64,
            expected: MAX_ARRAY_DEPTH.into(),
            found: depth.into(),
        });
    }
    out.extend(array.element_type_id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend(v),
        Array::I8(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::U16(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::I16(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::U32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::I32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::F32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|&x| u8::from(x))),
        Array::Str(v) => {
            for s in v.iter() {
                put_string(
                    out,
                    s,
                    &format_args!("an element of metadata key \"{}\"", Shown(key)),
                    MAX_STRING_BYTES,
                )?;
            }
        }
        Array::Array(v) => {
            for inner in v {
                put_array(out, key, inner, depth + 1)?;
            }
        }
        Array::U64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::I64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::F64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
    }
    Ok(())
}
