//! From one model file to another.

mod importance;
mod quantize;
mod recipe;

pub use importance::Importance;
pub use quantize::{Errors, Plan, Planned};
pub use recipe::{MIXES, Mix, Recipe};
