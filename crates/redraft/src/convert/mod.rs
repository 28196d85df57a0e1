//! From one model file to another.

mod quantize;

pub use quantize::{Recipe, Summary, quantize};
