//! From one model file to another.

mod quantize;
mod recipe;

pub use quantize::{Summary, quantize};
pub use recipe::{MIXES, Mix, Recipe};
