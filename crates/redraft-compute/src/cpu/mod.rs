//! The CPU backend.

use std::sync::Arc;

use crate::ComputeError;
use crate::backend::{Backend, BackendOptions, BackendSpec};
use crate::weight::WeightTable;

/// Entry in [`BACKENDS`](crate::BACKENDS).
pub(crate) const SPEC: BackendSpec = BackendSpec { name: "cpu", about: "CPU", create };

fn create(_options: &BackendOptions, _weights: Arc<WeightTable>) -> Result<Box<dyn Backend>, ComputeError> {
    Err(ComputeError::Unavailable { what: "backend", name: "cpu".into(), available: "cpu".into() })
}
