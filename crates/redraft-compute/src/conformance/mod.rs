//! The conformance suite: small programs for every op, run on any backend and compared with the reference
//! *bit for bit*.
//!
//! The suite is part of the library, so that a user can run it on the machine at hand (`redraft selftest`)
//! and so that a new backend is right exactly when its report says so. There are no tolerances: a backend
//! that differs in one bit fails, and errors (an overflow, an id out of range) must be the same errors.
//!
//! ```no_run
//! use redraft_compute::conformance::Suite;
//! use redraft_compute::{BackendOptions, backend};
//!
//! let suite = Suite::new()?;
//! let report = suite.check(backend("cpu")?, &BackendOptions::default())?;
//! assert!(report.failures.is_empty(), "{report}");
//! # Ok::<(), redraft_compute::ComputeError>(())
//! ```

mod cases;
mod probe;
mod report;
mod runner;

pub use probe::{Class, Probe};
pub use report::{Failure, Report};
pub use runner::Suite;
