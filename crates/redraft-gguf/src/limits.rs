//! Every cap on a number that a file controls, with its reason.
//!
//! A GGUF header is a sequence of counts and lengths that the reader must believe before it has seen what
//! they count. Two rules keep a hostile file harmless: nothing is allocated before the count has been
//! compared with the bytes that are left in the file, and the numbers below bound what the file length
//! cannot bound.

/// Longest string in bytes (64 MiB). The longest strings in real files are whole tokenizer descriptions
/// (`tokenizer.huggingface.json`), which reach some 30 MB; everything else is far smaller.
pub const MAX_STRING_BYTES: u64 = 64 << 20;

/// Longest metadata key in bytes, as the format description states it (65,535).
pub const MAX_KEY_BYTES: u64 = 65_535;

/// Longest tensor name in bytes that is read. The format description says 64; longer names are harmless
/// to a reader that allocates, so they are accepted up to the length of a key.
pub const MAX_TENSOR_NAME_BYTES: u64 = 65_535;

/// Longest tensor name in bytes that is written: other readers keep names in 64 bytes with a final zero.
pub const MAX_WRITTEN_NAME_BYTES: usize = 63;

/// Most dimensions of a tensor. The format is defined for at most four.
pub const MAX_DIMS: u32 = 4;

/// Deepest nesting of arrays in metadata. No known file nests at all; the reader recurses once per level,
/// so this is also the bound on its stack.
pub const MAX_ARRAY_DEPTH: u32 = 4;

/// Largest value of `general.alignment` (1 MiB). Real files use 32; a huge alignment would only make
/// padding of gigabytes. The format description asks for a multiple of 8, ggml for a power of two; both are read.
pub const MAX_ALIGNMENT: u64 = 1 << 20;

/// Alignment of a file that does not state one.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// Fewest bytes that one metadata entry takes: key length (8), an empty key, the type (4), one value byte.
pub(crate) const MIN_METADATA_ENTRY_BYTES: u64 = 13;

/// Fewest bytes that one tensor entry takes: name length (8), an empty name, the number of dimensions (4),
/// no dimension, the type (4), the offset (8).
pub(crate) const MIN_TENSOR_ENTRY_BYTES: u64 = 24;

/// Fewest bytes that one string takes in an array: its length.
pub(crate) const MIN_STRING_BYTES: u64 = 8;

/// Fewest bytes that one nested array takes: element type (4) and count (8).
pub(crate) const MIN_ARRAY_BYTES: u64 = 12;
