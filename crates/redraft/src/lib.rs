//! Engine for text-diffusion language models.

pub mod chat;
pub mod tokenizer;
