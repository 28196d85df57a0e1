//! Canonical numerics, reference ops and bit-identical backends for redraft.
//!
//! A model is a *list of ops*: plain structs with named fields ([`op`]), put together into a [`Program`]
//! for one forward pass and handed to a [`Backend`]. There is no lazy tensor and no graph compiler; the
//! list can be read, printed, traced and profiled.
//!
//! The numeric contract is written in `docs/numerics.md`: every sum has one order, every operation rounds
//! once, and nothing depends on the instruction set, the number of threads or the batch. The safe scalar
//! definition of each op stands in [`reference`](mod@reference); a fast kernel is right when its bits are equal to it.

pub mod backend;
mod cache;
mod check;
pub mod conformance;
pub mod cost;
pub mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
pub mod error;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "hip")]
mod hip;
mod host;
mod kv;
pub mod math;
mod numerics;
pub mod op;
mod pass;
pub mod program;
pub mod reference;
pub mod rng;
mod segment;
pub mod value;
pub mod weight;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use backend::{
    BACKENDS, Backend, BackendOptions, BackendSpec, Capabilities, Check, DeviceInfo, DeviceKind, InputData,
    KvLayout, Placement, Precision, SeqId, backend, fastest,
};
pub use error::ComputeError;
pub use kv::{KV_RUN, KvType};
pub use numerics::Numerics;
pub use op::Op;
pub use program::{
    AttentionSpec, Blind, KeptId, Observer, Program, ProgramBuilder, Rewrite, TapData, TapKey,
};
pub use value::{Kind, Val};
pub use weight::{Weight, WeightId, WeightTable};
