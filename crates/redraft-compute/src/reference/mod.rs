//! The definition of every op: safe scalar Rust, written for reading.

use std::sync::Arc;

use crate::ComputeError;
use crate::backend::{Backend, BackendOptions, BackendSpec};
use crate::weight::WeightTable;

/// Entry in [`BACKENDS`](crate::BACKENDS).
pub(crate) const SPEC: BackendSpec =
    BackendSpec { name: "reference", about: "the definition: scalar, one thread; f32, f64 or bf16", create };

fn create(_options: &BackendOptions, _weights: Arc<WeightTable>) -> Result<Box<dyn Backend>, ComputeError> {
    Err(ComputeError::Unavailable { what: "backend", name: "reference".into(), available: "cpu".into() })
}
