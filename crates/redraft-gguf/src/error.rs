//! The one error type of the crate.
//!
//! Each variant says what is wrong, where (file offset, key or tensor), what was expected and what was
//! found; the fields carry the same facts for programs.

use std::path::PathBuf;

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
        "big-endian GGUF files are not supported: the version at offset 4 reads {version} in big-endian order"
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
        "metadata key \"{key}\" has an unknown value type at offset {offset}: expected 0 to 12, found {found}"
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
    #[error("metadata key \"{key}\" has a bad boolean at offset {offset}: expected 0 or 1, found {found}")]
    BadBool {
        /// The key.
        key: String,
        /// Where the byte stands, in bytes from the start of the file.
        offset: u64,
        /// The byte.
        found: u8,
    },

    /// A metadata key occurs twice.
    #[error("metadata key \"{key}\" occurs twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },

    /// `general.alignment` cannot be used.
    #[error("metadata key \"general.alignment\": expected a power of two from 1 to 1048576, found {found}")]
    BadAlignment {
        /// The value in the file.
        found: u64,
    },

    /// A required metadata key is absent.
    #[error("metadata key \"{key}\" is missing: expected {expected}")]
    MissingKey {
        /// The key.
        key: String,
        /// The type that was asked for.
        expected: &'static str,
    },

    /// A metadata value has another type than the one asked for.
    #[error("metadata key \"{key}\" has the wrong type: expected {expected}, found {found}")]
    WrongType {
        /// The key.
        key: String,
        /// The type that was asked for.
        expected: &'static str,
        /// The type in the file.
        found: String,
    },

    /// A metadata number does not fit the type asked for.
    #[error("metadata key \"{key}\" is out of range: expected {expected}, found {found}")]
    OutOfRange {
        /// The key.
        key: String,
        /// The type that was asked for.
        expected: &'static str,
        /// The number in the file.
        found: i128,
    },

    /// A tensor name occurs twice.
    #[error("tensor \"{tensor}\" occurs twice")]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
    },

    /// The number of elements or bytes of a tensor does not fit into 64 bits.
    #[error("tensor \"{tensor}\" is too large: the shape {dims:?} has more elements than 64 bits can count")]
    ShapeOverflow {
        /// The tensor.
        tensor: String,
        /// Its shape, contiguous dimension first.
        dims: Vec<u64>,
    },

    /// A row of a tensor is not a whole number of blocks.
    #[error(
        "tensor \"{tensor}\" of type {dtype}: expected rows of a multiple of {expected} elements, found {found}"
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
        "tensor \"{tensor}\" is misaligned: expected a multiple of {expected} as data offset, found {found}"
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
        "tensor \"{tensor}\" lies outside the file: {n_bytes} bytes at offset {offset}, expected an end of at most {expected}"
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
        "tensors \"{first}\" and \"{tensor}\" overlap: expected data from offset {expected} on, found offset {found}"
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
    #[error("tensor \"{tensor}\" has {dtype}, whose size is unknown: expected a type of the table")]
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
    #[error("tensor \"{tensor}\" has the wrong amount of data: expected {expected} bytes, found {found}")]
    TensorSize {
        /// The tensor.
        tensor: String,
        /// Its length in bytes by shape and type.
        expected: u64,
        /// Bytes given so far, the refused ones included.
        found: u64,
    },
}
