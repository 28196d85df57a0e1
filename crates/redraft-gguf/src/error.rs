//! The one error type of the crate.
//!
//! Each variant says what is wrong, where (file offset, key or tensor), what was expected and what was
//! found; the fields carry the same facts for programs.

use std::path::PathBuf;

use crate::Shown;

/// Everything that can go wrong when a GGUF file is opened, read, queried or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file could not be opened, mapped or read.
    #[error("cannot read {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },

    /// A file that has to be read is larger than the memory that is available.
    #[error(
        "{} does not fit into memory: reading it takes {needed} bytes ({:.1} GB), {available} bytes ({:.1} GB) \
         are available; {}",
        path.display(), *needed as f64 / 1e9, *available as f64 / 1e9, memory_advice(refused.as_deref())
    )]
    Memory {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        needed: u64,
        /// Bytes that are available.
        available: u64,
        /// What the system said to mapping the file, where that was tried first.
        refused: Option<String>,
    },

    /// A mapped file became shorter while it was in use.
    #[error(
        "{} was cut short while it was in use: expected {expected} bytes, found {found}; what was computed from \
         it meanwhile is void",
        path.display()
    )]
    FileCut {
        /// The file.
        path: PathBuf,
        /// Its length when it was opened.
        expected: u64,
        /// Its length now.
        found: u64,
    },

    /// A part of a mapped file could not be delivered: the file was cut short for a time, or its disk failed.
    #[error(
        "a part of {} could not be read while it was in use (the file was changed, or its disk has an error): \
         what was computed from it meanwhile is void",
        path.display()
    )]
    FileLost {
        /// The file.
        path: PathBuf,
    },

    /// One file of a split model is no valid GGUF file.
    #[error("{}: {source}", path.display())]
    Shard {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<GgufError>,
    },

    /// A file says that it is one of several, and its name does not say which.
    #[error(
        "{} is file {} of {count} of a split model by its metadata: expected a name that ends in \"{expected}\", \
         so that the others can be found",
        path.display(), no + 1
    )]
    ShardName {
        /// The file.
        path: PathBuf,
        /// `split.no`, counted from 0.
        no: u16,
        /// `split.count`.
        count: u16,
        /// The end of the name that the metadata ask for.
        expected: String,
    },

    /// A file of a split model is not there.
    #[error("file {} of {count} of a split model is missing: expected {}", no + 1, path.display())]
    ShardMissing {
        /// Where it should be.
        path: PathBuf,
        /// Its number, counted from 0.
        no: u16,
        /// Number of files.
        count: u16,
    },

    /// A file does not belong to the split model that its name puts it into.
    #[error(
        "{} does not belong to this split model: metadata key \"{}\": expected {expected}, found {found}",
        path.display(), Shown(key)
    )]
    ShardMismatch {
        /// The file.
        path: PathBuf,
        /// The key that says so.
        key: String,
        /// What the other files say.
        expected: String,
        /// What this file says.
        found: String,
    },

    /// Two files of a split model have a tensor of the same name.
    #[error("tensor \"{}\" occurs twice: in {} and in {}", Shown(tensor), first.display(), second.display())]
    ShardTensor {
        /// The tensor.
        tensor: String,
        /// The file that has it first.
        first: PathBuf,
        /// The file that has it again.
        second: PathBuf,
    },

    /// The files of a split model do not have as many tensors together as they say.
    #[error("the {count} files of the split model {} have {found} tensors together, expected {expected} \
         (metadata key \"split.tensors.count\"): the files come from different models",
        path.display())]
    ShardTensors {
        /// The file that was opened.
        path: PathBuf,
        /// Number of files.
        count: u16,
        /// `split.tensors.count`.
        expected: u64,
        /// Tensors in all files.
        found: u64,
    },

    /// The output could not be written.
    #[error("cannot write GGUF data: {source}")]
    Write {
        /// What the operating system said.
        #[from]
        source: std::io::Error,
    },

    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: expected the bytes \"GGUF\" at offset 0, found \"{}\"", found.escape_ascii())]
    BadMagic {
        /// The first bytes of the file.
        found: [u8; 4],
    },

    /// The format version is not one that this reader knows.
    #[error("GGUF version {found} at offset 4 is not supported: expected 2 or 3")]
    UnsupportedVersion {
        /// The version in the file.
        found: u32,
    },

    /// The file was written for big-endian machines.
    #[error(
        "big-endian GGUF files are not supported: the version at offset 4 reads {version} in big-endian order \
         (gguf-py's gguf-convert-endian turns the file round)"
    )]
    BigEndian {
        /// The version, read in big-endian order.
        version: u32,
    },

    /// The file ends inside something.
    #[error(
        "file ends inside {what}: expected {expected} bytes at offset {offset}, found {found} to the end of the file"
    )]
    Truncated {
        /// What was being read.
        what: String,
        /// Where it starts, in bytes from the start of the file.
        offset: u64,
        /// Bytes (or, for counts, the least number of bytes) it needs.
        expected: u64,
        /// Bytes left in the file from `offset`.
        found: u64,
    },

    /// A number in the file is above the cap that [`limits`](crate::limits) sets.
    #[error("{what} is too large at offset {offset}: expected at most {expected}, found {found}")]
    Limit {
        /// What was being read.
        what: String,
        /// Where the number stands, in bytes from the start of the file.
        offset: u64,
        /// The cap.
        expected: u64,
        /// The number in the file.
        found: u64,
    },

    /// A string is not UTF-8.
    #[error("{what} at offset {offset} is not valid UTF-8")]
    NotUtf8 {
        /// Which string.
        what: String,
        /// Where its text starts, in bytes from the start of the file.
        offset: u64,
    },

    /// A metadata value has a type number that the format does not define.
    #[error(
        "metadata key \"{}\" has an unknown value type at offset {offset}: expected 0 to 12, found {found}",
        Shown(key)
    )]
    UnknownValueType {
        /// The key.
        key: String,
        /// Where the type number stands, in bytes from the start of the file.
        offset: u64,
        /// The type number.
        found: u32,
    },

    /// A boolean is neither 0 nor 1.
    #[error(
        "metadata key \"{}\" has a bad boolean at offset {offset}: expected 0 or 1, found {found}",
        Shown(key)
    )]
    BadBool {
        /// The key.
        key: String,
        /// Where the byte stands, in bytes from the start of the file.
        offset: u64,
        /// The byte.
        found: u8,
    },

    /// A metadata key occurs twice.
    #[error("metadata key \"{}\" occurs twice", Shown(key))]
    DuplicateKey {
        /// The key.
        key: String,
    },

    /// `general.alignment` cannot be used.
    #[error(
        "metadata key \"general.alignment\": expected a power of two or a multiple of 8, at most 1048576, found {found}"
    )]
    BadAlignment {
        /// The value in the file.
        found: u64,
    },

    /// A required metadata key is absent.
    #[error("metadata key \"{}\" is missing: expected {expected}", Shown(key))]
    MissingKey {
        /// The key.
        key: String,
        /// The type that was asked for.
        expected: &'static str,
    },

    /// A metadata value has another type than the one asked for.
    #[error("metadata key \"{}\" has the wrong type: expected {expected}, found {found}", Shown(key))]
    WrongType {
        /// The key.
        key: String,
        /// The type that was asked for.
        expected: &'static str,
        /// The type in the file.
        found: String,
    },

    /// A metadata number does not fit the type asked for.
    #[error("metadata key \"{}\" is out of range: expected {expected}, found {found}", Shown(key))]
    OutOfRange {
        /// The key.
        key: String,
        /// The type that was asked for.
        expected: &'static str,
        /// The number in the file.
        found: i128,
    },

    /// A tensor name occurs twice.
    #[error("tensor \"{}\" occurs twice", Shown(tensor))]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
    },

    /// The number of elements or bytes of a tensor does not fit into 64 bits.
    #[error(
        "tensor \"{}\" is too large: the shape {dims:?} has more elements than 64 bits can count",
        Shown(tensor)
    )]
    ShapeOverflow {
        /// The tensor.
        tensor: String,
        /// Its shape, contiguous dimension first.
        dims: Vec<u64>,
    },

    /// A row of a tensor is not a whole number of blocks.
    #[error(
        "tensor \"{}\" of type {dtype}: expected rows of a multiple of {expected} elements, found {found}",
        Shown(tensor)
    )]
    RowNotBlocks {
        /// The tensor.
        tensor: String,
        /// The name of its type.
        dtype: String,
        /// The block length in elements.
        expected: u64,
        /// The row length in elements.
        found: u64,
    },

    /// The data of a tensor do not start at a multiple of the alignment.
    #[error(
        "tensor \"{}\" is misaligned: expected a multiple of {expected} as data offset, found {found}",
        Shown(tensor)
    )]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// The alignment of the file in bytes.
        expected: u64,
        /// The offset in the file's table, in bytes from the start of the tensor data.
        found: u64,
    },

    /// The data of a tensor reach beyond the end of the file.
    #[error(
        "tensor \"{}\" lies outside the file: {n_bytes} bytes at offset {offset}, expected an end of at most {expected}",
        Shown(tensor)
    )]
    TensorOutOfFile {
        /// The tensor.
        tensor: String,
        /// Where its data start, in bytes from the start of the file (saturated at the largest u64).
        offset: u64,
        /// The length of its data in bytes.
        n_bytes: u64,
        /// The length of the file in bytes.
        expected: u64,
    },

    /// Two tensors share bytes.
    #[error(
        "tensors \"{}\" and \"{}\" overlap: expected data from offset {expected} on, found offset {found}",
        Shown(first),
        Shown(tensor)
    )]
    TensorOverlap {
        /// The tensor that starts first.
        first: String,
        /// The tensor that starts before the first one ends.
        tensor: String,
        /// The end of the first tensor, in bytes from the start of the file.
        expected: u64,
        /// The start of the second tensor, in bytes from the start of the file.
        found: u64,
    },

    /// A tensor was announced to the writer with a type whose size is unknown.
    #[error("tensor \"{}\" has {dtype}, whose size is unknown: expected a type of the table", Shown(tensor))]
    UnknownType {
        /// The tensor.
        tensor: String,
        /// The name of its type.
        dtype: String,
    },

    /// Tensor data were given to the writer in another order than announced.
    #[error("tensor data out of order: expected {expected}, found {found}")]
    TensorOrder {
        /// What the writer waits for.
        expected: String,
        /// What was given.
        found: String,
    },

    /// More or fewer bytes were given to the writer than the tensor has.
    #[error(
        "tensor \"{}\" has the wrong amount of data: expected {expected} bytes, found {found}",
        Shown(tensor)
    )]
    TensorSize {
        /// The tensor.
        tensor: String,
        /// Its length in bytes by shape and type.
        expected: u64,
        /// Bytes given so far, the refused ones included.
        found: u64,
    },
}

/// What helps against too little memory.
fn memory_advice(refused: Option<&str>) -> String {
    match refused {
        None => "leave out --no-mmap, or use a smaller quantization".to_owned(),
        Some(why) => format!(
            "the file cannot be mapped instead ({why}): use a smaller quantization, or copy it to another file system"
        ),
    }
}
