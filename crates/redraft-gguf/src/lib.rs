//! Reader, writer and block codecs for GGUF model files.
//!
//! A GGUF file is a header, typed metadata, a table of tensors and the tensors' data. This crate reads
//! versions 2 and 3 (little-endian), writes version 3, decodes every block type that files of today carry and
//! encodes those that are worth choosing. It has no tensors to compute with, no threads and no network.
//!
//! ```
//! use redraft_gguf::{Array, DType, Gguf, GgufWriter, Value, codec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Write a file with one quantized matrix of two rows.
//! let q8 = codec(DType::Q8_0).unwrap();
//! let weights: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
//! let mut blocks = vec![0; 64 / q8.block_len() * q8.block_bytes()];
//! q8.encoder().unwrap().quantize(&weights, None, &mut blocks);
//!
//! let mut w = GgufWriter::new();
//! w.metadata_mut().set("general.architecture", "llada");
//! w.metadata_mut().set("llada.attention.head_count_kv", Value::Array(Array::I32(vec![8, 2])));
//! w.add_tensor("blk.0.attn_q.weight", &[32, 2], DType::Q8_0)?;
//! let mut out = w.begin(Vec::new())?;
//! out.write_tensor("blk.0.attn_q.weight", &blocks)?;
//! let bytes = out.finish()?;
//!
//! // Read it back.
//! let file = Gguf::from_bytes(bytes.into())?;
//! assert_eq!(file.metadata().i32_array("llada.attention.head_count_kv")?, [8, 2]);
//! let t = file.tensor("blk.0.attn_q.weight").unwrap();
//! assert_eq!((t.row_len(), t.n_rows(), t.n_bytes), (32, 2, 68));
//! let mut row = [0.0; 32];
//! q8.dequantize(&file.tensor_bytes(t)[34..], &mut row);
//! assert!((row[0] - 0.5).abs() < 0.005);
//! # Ok(())
//! # }
//! ```
//!
//! # Hostile files
//!
//! A file is never trusted: sizes are computed with checks, nothing is allocated before the file is known to
//! have the bytes that fill it, [`limits`] caps what the file length cannot, tensors must lie inside the file
//! and apart from each other, and no input makes the reader panic. A file with a tensor type of the future
//! can still be inspected. What remains is the condition of a memory map, see [`OpenOptions::mmap`] and
//! [`Gguf::check`].

pub mod limits;

mod cached;
mod cursor;
mod dtype;
mod error;
mod map;
mod memory;
mod metadata;
mod quant;
mod reader;
mod split;
mod text;
mod value;
mod writer;

pub use cached::is_cached;
pub use dtype::{DTYPES, DType, DTypeInfo};
pub use error::GgufError;
pub use map::{Bytes, OpenOptions, guard_maps};
pub use memory::available_memory;
pub use metadata::Metadata;
pub use quant::{
    Bias, BlockCodec, CODECS, CommonFormat, Encoder, FormatVisitor, MAX_BLOCK_LEN, MAX_SUB_BLOCKS,
    QuantFormat, Rows, Unpacked, bf16_to_f32, codec, f16_to_f32, f32_to_bf16, f32_to_f16, visit_format,
};
pub use reader::{Gguf, GgufFile, TensorInfo};
pub use split::SplitName;
pub use text::Shown;
pub use value::{Array, StrArray, Value};
pub use writer::{GgufWriter, TensorWriter};
