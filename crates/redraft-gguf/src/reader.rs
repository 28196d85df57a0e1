//! Reads the header, the metadata and the tensor table of a GGUF file, and nothing else.
//!
//! ```text
//! "GGUF"  version u32  n_tensors u64  n_metadata u64
//! n_metadata x  key string, value type u32, value
//! n_tensors  x  name string, n_dims u32, n_dims x u64, type u32, offset u64 (from the tensor data on)
//! padding to a multiple of the alignment
//! tensor data, each tensor at a multiple of the alignment
//! ```
//!
//! All numbers are little-endian; a string is its length in bytes (u64) and UTF-8 text. Every number comes
//! from a file that may be hostile: sums and products are checked, and memory is asked for only after the
//! bytes that fill it are known to be there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cursor::{Cursor, read_value};
use crate::limits::{
    DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_DIMS, MAX_KEY_BYTES, MAX_TENSOR_NAME_BYTES,
    MIN_METADATA_ENTRY_BYTES, MIN_TENSOR_ENTRY_BYTES,
};
use crate::{Bytes, DType, GgufError, Metadata, OpenOptions, Shown, split};

pub(crate) const MAGIC: [u8; 4] = *b"GGUF";

/// The key that states the alignment of the tensor data.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// An opened GGUF model: the metadata and tensor table of one file, or of the several files of a split model,
/// over shared bytes. Cheap to clone.
///
/// ```
/// use redraft_gguf::{DType, Gguf, GgufWriter};
///
/// let mut w = GgufWriter::new();
/// w.metadata_mut().set("general.architecture", "llada");
/// w.add_tensor("output_norm.weight", &[2], DType::F32)?;
/// let mut data = w.begin(Vec::new())?;
/// data.write_tensor("output_norm.weight", &[0, 0, 128, 63, 0, 0, 0, 64])?;
///
/// let file = Gguf::from_bytes(data.finish()?.into())?;
/// assert_eq!(file.metadata().str("general.architecture")?, "llada");
/// let t = file.tensor("output_norm.weight").unwrap();
/// assert_eq!(t.dims, [2]);
/// assert_eq!(file.tensor_bytes(t)[..4], 1.0f32.to_le_bytes());
/// # Ok::<(), redraft_gguf::GgufError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gguf(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    files: Vec<GgufFile>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

/// One file of a model.
#[derive(Debug, Clone)]
pub struct GgufFile {
    /// Where it was opened; `None` when it was given as bytes.
    pub path: Option<PathBuf>,
    /// The format version: 2 or 3.
    pub version: u32,
    /// The alignment of the tensor data in bytes.
    pub alignment: u64,
    /// Number of bytes before the tensor data: header, metadata, tensor table and padding.
    pub data_offset: u64,
    /// Number of tensors in this file.
    pub n_tensors: usize,
    /// All bytes of the file.
    pub bytes: Bytes,
}

/// One file as it was read, not yet part of a model.
#[derive(Debug)]
pub(crate) struct Parsed {
    version: u32,
    alignment: u64,
    data_offset: u64,
    pub(crate) bytes: Bytes,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
}

/// One row of the tensor table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name.
    pub name: String,
    /// The shape in the order of the file: `dims[0]` is contiguous in memory. Empty for a single number.
    pub dims: Vec<u64>,
    /// The element type.
    pub dtype: DType,
    /// Which file of a split model has the data; 0 for a model in one file.
    pub file: usize,
    /// Where the data start, in bytes from the start of that file.
    pub offset: u64,
    /// The length of the data in bytes. For a type that the table of types does not have, everything up to
    /// the next tensor or the end of the file, padding included.
    pub n_bytes: u64,
}

impl TensorInfo {
    /// Number of elements.
    pub fn n_elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Elements of a row: the contiguous dimension.
    pub fn row_len(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all dimensions but the contiguous one.
    pub fn n_rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }
}

impl Gguf {
    /// Opens a file. When it is one of the files of a split model, all of them are opened.
    ///
    /// # Errors
    ///
    /// [`GgufError::Open`] when a file cannot be read; those that start with `Shard` when the files of a split
    /// model do not fit together; any other variant when it is no valid GGUF file.
    pub fn open(path: &Path, opts: &OpenOptions) -> Result<Gguf, GgufError> {
        let gguf = split::open(path, opts)?;
        // The header may have been read from a file that was cut short meanwhile.
        gguf.check()?;
        Ok(gguf)
    }

    /// Parses a file that is already in memory. The tensor data are not touched. One file of a split model is
    /// taken for itself.
    ///
    /// # Errors
    ///
    /// The variant of [`GgufError`] that names what is wrong with the file.
    pub fn from_bytes(bytes: Bytes) -> Result<Gguf, GgufError> {
        Gguf::of_files(vec![(None, parse(bytes)?)])
    }

    /// Joins files: metadata in the order of the files, each key as the first file with it has it, then all
    /// tensors.
    pub(crate) fn of_files(parsed: Vec<(Option<PathBuf>, Parsed)>) -> Result<Gguf, GgufError> {
        let mut all = Inner {
            files: Vec::with_capacity(parsed.len()),
            metadata: Metadata::new(),
            tensors: Vec::new(),
            index: HashMap::new(),
        };
        for (file, (path, p)) in parsed.into_iter().enumerate() {
            let Parsed { version, alignment, data_offset, bytes, metadata, tensors } = p;
            let n_tensors = tensors.len();
            all.files.push(GgufFile { path, version, alignment, data_offset, n_tensors, bytes });
            if file == 0 {
                all.metadata = metadata;
                all.tensors = tensors;
                continue;
            }
            for (key, value) in
                metadata.iter().filter(|(key, _)| !all.metadata.contains(key)).collect::<Vec<_>>()
            {
                all.metadata.push(key, value.clone())?;
            }
            all.tensors.extend(tensors.into_iter().map(|t| TensorInfo { file, ..t }));
        }
        all.index.reserve(all.tensors.len());
        for (i, t) in all.tensors.iter().enumerate() {
            if all.index.insert(t.name.clone(), i).is_some() {
                return Err(GgufError::DuplicateTensor { tensor: t.name.clone() });
            }
        }
        Ok(Gguf(Arc::new(all)))
    }

    /// Takes keys out of the metadata.
    pub(crate) fn forget(&mut self, keys: &[&str]) {
        let inner = Arc::make_mut(&mut self.0);
        for key in keys {
            inner.metadata.remove(key);
        }
    }

    /// The same files with other metadata: what a file would mean if it said something else.
    #[must_use]
    pub fn with_metadata(&self, metadata: Metadata) -> Gguf {
        Gguf(Arc::new(Inner { metadata, ..(*self.0).clone() }))
    }

    /// The files of the model, in order; one unless the model is split.
    pub fn files(&self) -> &[GgufFile] {
        &self.0.files
    }

    /// Asks whether all files are still as long as they were. Tensor data of mapped files are only what they
    /// were when this says so *after* they were read; see [`Bytes::check`].
    ///
    /// # Errors
    ///
    /// [`GgufError::FileCut`] or [`GgufError::FileLost`].
    pub fn check(&self) -> Result<(), GgufError> {
        self.files().iter().try_for_each(|f| f.bytes.check())
    }

    /// The format version: 2 or 3. Of a split model, that of the first file.
    pub fn version(&self) -> u32 {
        self.0.files[0].version
    }

    /// The alignment of the tensor data in bytes. Of a split model, that of the first file.
    pub fn alignment(&self) -> u64 {
        self.0.files[0].alignment
    }

    /// Number of bytes before the tensor data: header, metadata, tensor table and padding. Of a split model,
    /// that of the first file.
    pub fn data_offset(&self) -> u64 {
        self.0.files[0].data_offset
    }

    /// The metadata in the order of the file.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// The tensor table in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.0.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.0.index.get(name).map(|&i| &self.0.tensors[i])
    }

    /// The data of a tensor of this model, without a copy.
    ///
    /// # Panics
    ///
    /// When `t` is not from this model's table and lies outside its files.
    pub fn tensor_bytes(&self, t: &TensorInfo) -> Bytes {
        let range = t.offset as usize..(t.offset + t.n_bytes) as usize;
        let slice = self.0.files[t.file].bytes.slice(range);
        slice.expect("the table of this model only has tensors inside its files")
    }

    /// All bytes of the file. Of a split model, those of the first file.
    pub fn bytes(&self) -> &Bytes {
        &self.0.files[0].bytes
    }
}

/// Reads everything before the tensor data.
pub(crate) fn parse(bytes: Bytes) -> Result<Parsed, GgufError> {
    let mut c = Cursor::new(&bytes);
    let version = header(&mut c)?;
    let n_tensors = c.u64(&"the number of tensors")?;
    let n_metadata = c.u64(&"the number of metadata entries")?;
    c.check_count(&"the metadata", n_metadata, MIN_METADATA_ENTRY_BYTES)?;

    let mut metadata = Metadata::new();
    for i in 0..n_metadata {
        let key = c.string(&format_args!("metadata key {i}"), MAX_KEY_BYTES)?.to_owned();
        let value = read_value(&mut c, &key)?;
        metadata.push(key, value)?;
    }
    let alignment = alignment(&metadata)?;

    c.check_count(&"the tensor table", n_tensors, MIN_TENSOR_ENTRY_BYTES)?;
    // Not with the announced capacity: an entry in memory is several times its bytes in the file.
    let mut tensors = Vec::new();
    for i in 0..n_tensors {
        tensors.push(tensor_entry(&mut c, i)?);
    }

    let file_len = bytes.len() as u64;
    // A file without tensors may end right after its table.
    let mut data_offset = c.pos().next_multiple_of(alignment);
    if tensors.is_empty() {
        data_offset = data_offset.min(file_len);
    }
    place(&mut tensors, alignment, data_offset, file_len)?;
    Ok(Parsed { version, alignment, data_offset, bytes, metadata, tensors })
}

/// Checks magic and version.
fn header(c: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let magic = c.array::<4>(&"the magic")?;
    if magic != MAGIC {
        return Err(GgufError::BadMagic { found: magic });
    }
    let version = c.u32(&"the version")?;
    match version {
        2 | 3 => Ok(version),
        // A small number in the other byte order: the whole file is in that order.
        v if v & 0xFFFF == 0 && v != 0 => Err(GgufError::BigEndian { version: v.swap_bytes() }),
        found => Err(GgufError::UnsupportedVersion { found }),
    }
}

fn alignment(metadata: &Metadata) -> Result<u64, GgufError> {
    let alignment = metadata.opt_u64(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    check_alignment(alignment)?;
    Ok(alignment)
}

/// Accepts the alignments that files may state: the format description wants a multiple of 8, ggml a power of
/// two.
pub(crate) fn check_alignment(alignment: u64) -> Result<(), GgufError> {
    let legal = alignment.is_power_of_two() || (alignment != 0 && alignment.is_multiple_of(8));
    if legal && alignment <= MAX_ALIGNMENT {
        Ok(())
    } else {
        Err(GgufError::BadAlignment { found: alignment })
    }
}

/// Reads one row of the tensor table; `offset` stays relative to the tensor data and `n_bytes` zero until
/// [`place`] knows where the data start.
fn tensor_entry(c: &mut Cursor<'_>, i: u64) -> Result<TensorInfo, GgufError> {
    let name = c.string(&format_args!("the name of tensor {i}"), MAX_TENSOR_NAME_BYTES)?.to_owned();
    let what = format!("the table entry of tensor \"{}\"", Shown(&name));
    let at = c.pos();
    let n_dims = c.u32(&what)?;
    if n_dims > MAX_DIMS {
        let what = format!("the number of dimensions of tensor \"{}\"", Shown(&name));
        return Err(GgufError::Limit { what, offset: at, expected: MAX_DIMS.into(), found: n_dims.into() });
    }
    let dims = (0..n_dims).map(|_| c.u64(&what)).collect::<Result<Vec<u64>, _>>()?;
    let dtype = DType(c.u32(&what)?);
    let offset = c.u64(&what)?;
    Ok(TensorInfo { name, dims, dtype, file: 0, offset, n_bytes: 0 })
}

/// The size in bytes of a tensor by shape and type; `None` when the type is unknown.
pub(crate) fn tensor_size(name: &str, dims: &[u64], dtype: DType) -> Result<Option<u64>, GgufError> {
    let overflow = || GgufError::ShapeOverflow { tensor: name.to_owned(), dims: dims.to_vec() };
    // In any order of multiplication: a zero must not hide an overflow of the others.
    let all =
        dims.iter().filter(|&&d| d != 0).try_fold(1u64, |n, &d| n.checked_mul(d)).ok_or_else(overflow)?;
    let Some(info) = dtype.info() else { return Ok(None) };
    let row_len = dims.first().copied().unwrap_or(1);
    let block_len = info.block_len as u64;
    if row_len % block_len != 0 {
        return Err(GgufError::RowNotBlocks {
            tensor: name.to_owned(),
            dtype: info.name.to_owned(),
            expected: block_len,
            found: row_len,
        });
    }
    let n_elements = if dims.contains(&0) { 0 } else { all };
    (n_elements / block_len).checked_mul(info.block_bytes as u64).map(Some).ok_or_else(overflow)
}

/// Turns the relative offsets into absolute ones and finds the sizes; every tensor must start aligned, lie
/// inside the file and share no byte with another.
fn place(
    tensors: &mut [TensorInfo],
    alignment: u64,
    data_offset: u64,
    file_len: u64,
) -> Result<(), GgufError> {
    let mut sizes = Vec::with_capacity(tensors.len());
    let mut furthest = None;
    for t in tensors.iter_mut() {
        sizes.push(tensor_size(&t.name, &t.dims, t.dtype)?);
        if t.offset % alignment != 0 {
            return Err(GgufError::Misaligned {
                tensor: t.name.clone(),
                expected: alignment,
                found: t.offset,
            });
        }
        t.offset = t.offset.saturating_add(data_offset);
        t.n_bytes = sizes[sizes.len() - 1].unwrap_or(0);
        if t.offset.checked_add(t.n_bytes).is_none_or(|end| end > file_len)
            && furthest.as_ref().is_none_or(|f: &TensorInfo| t.offset > f.offset)
        {
            furthest = Some(t.clone());
        }
    }
    // The last one says how long the whole file would be.
    if let Some(t) = furthest {
        return Err(GgufError::TensorOutOfFile {
            tensor: t.name,
            offset: t.offset,
            n_bytes: t.n_bytes,
            expected: file_len,
        });
    }

    // By start, empty tensors before the one that starts at the same place.
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| (tensors[i].offset, sizes[i].unwrap_or(u64::MAX), i));
    for (pos, &i) in order.iter().enumerate() {
        let next = order.get(pos + 1).copied();
        let limit = next.map_or(file_len, |n| tensors[n].offset);
        if sizes[i].is_none() {
            tensors[i].n_bytes = limit - tensors[i].offset;
        }
        let end = tensors[i].offset + tensors[i].n_bytes;
        let shares = end > limit || (sizes[i].is_none() && limit == tensors[i].offset && next.is_some());
        if let Some(n) = next.filter(|_| shares) {
            return Err(GgufError::TensorOverlap {
                first: tensors[i].name.clone(),
                tensor: tensors[n].name.clone(),
                expected: end,
                found: limit,
            });
        }
    }
    Ok(())
}
