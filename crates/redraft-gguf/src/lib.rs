//! Reader, writer and block codecs for GGUF model files.
pub mod limits;

mod dtype;
mod error;
mod map;
mod quant;
mod reader;
mod value;

pub use dtype::{DTYPES, DType, DTypeInfo};
pub use error::GgufError;
pub use map::{Bytes, OpenOptions};
pub use quant::{
    BlockCodec, CODECS, MAX_BLOCK_LEN, MAX_SUB_BLOCKS, Unpacked, bf16_to_f32, codec, f16_to_f32, f32_to_bf16,
    f32_to_f16,
};
pub use reader::{Gguf, TensorInfo};
pub use value::{Array, Metadata, StrArray, Value};
