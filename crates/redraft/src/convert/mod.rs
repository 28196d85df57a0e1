//! From other forms of a model to a model file: from checkpoints of `transformers`, and from one block type to another.

mod config;
mod folder;
mod from_safetensors;
mod hf;
mod plan;
mod quantize;
mod recipe;
mod rows;
mod slow_tokenizer;
pub(crate) mod tables;
mod tokenizer_json;

pub use config::Config;
pub(crate) use config::missing;
pub use folder::Checkpoint;
pub use from_safetensors::{ConvertOptions, Converted, convert, convert_to_memory};
pub use hf::{Demand, Fixed, HfSpec, Key, Made, Rows, Setting, Tensor};
pub(crate) use hf::{demand, key, same};
pub use quantize::{Errors, Planned, QuantizePlan};
pub use recipe::{MIXES, Mix, Recipe};
