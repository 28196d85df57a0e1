//! Engine for text-diffusion language models: models that write a whole block of text (a *canvas*) at once
//! and refine it over a few denoising steps.

pub mod arch;
pub mod bench;
pub mod chat;
pub mod constrain;
pub mod convert;
pub mod device;
pub mod diagnose;
mod distribution;
pub mod doctor;
mod embedded;
pub mod engine;
pub mod error;
pub mod evaluate;
mod file_type;
pub mod fill;
pub mod importance;
mod layers;
pub mod model;
mod partial;
pub mod placement;
pub mod receipt;
pub mod sampler;
pub mod synth;
pub mod tokenizer;
pub mod trace;
pub mod weights;

pub use error::Error;
pub use file_type::file_type_name;
pub use model::{LoadOptions, Model, sha256_header};
pub use redraft_compute as compute;
pub use redraft_gguf as gguf;
