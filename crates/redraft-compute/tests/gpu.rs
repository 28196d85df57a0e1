//! A GPU gives the bits of the reference. Where there is none, the test says so; on a machine that has to have one
//! (`REDRAFT_CI`) it fails.
#![cfg(feature = "wgpu")]
#![allow(clippy::unwrap_used)] // a test, with helpers

use redraft_compute::{BackendOptions, ComputeError, backend, conformance::Suite};

#[test]
fn the_first_device_gives_the_bits_of_the_reference() {
    let suite = Suite::new().unwrap();
    match suite.check(backend("wgpu").unwrap(), &BackendOptions::default()) {
        Ok(report) => {
            println!("{report}");
            assert!(report.failures.is_empty(), "{} of {} cases differ", report.failures.len(), suite.len());
        }
        Err(e @ ComputeError::Unavailable { .. }) => {
            assert!(std::env::var_os("REDRAFT_CI").is_none(), "{e}");
            println!("skipped: 1 (no device: {e})");
        }
        Err(e) => panic!("{e}"),
    }
}
