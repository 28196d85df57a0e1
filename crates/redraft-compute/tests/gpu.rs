//! A GPU gives the bits of the reference. Where there is none, the test says so; on a machine that has to have one
//! (`REDRAFT_CI`) it fails.
#![cfg(feature = "wgpu")]
#![allow(clippy::unwrap_used)] // a test, with helpers

use redraft_compute::conformance::{Class, Probe, Suite};
use redraft_compute::{BackendOptions, BackendSpec, backend};

/// The backend, where there is a device.
fn wgpu() -> Option<&'static BackendSpec> {
    let spec = backend("wgpu").unwrap();
    if (spec.devices)().is_empty() {
        assert!(std::env::var_os("REDRAFT_CI").is_none(), "no device for wgpu");
        println!("skipped: 1 (no device for wgpu)");
        return None;
    }
    Some(spec)
}

#[test]
fn the_first_device_gives_the_bits_of_the_reference() {
    let Some(spec) = wgpu() else { return };
    let suite = Suite::new().unwrap();
    let report = suite.check(spec, &BackendOptions::default()).unwrap();
    println!("{report}");
    assert!(report.failures.is_empty(), "{} of {} cases differ", report.failures.len(), suite.len());
}

#[test]
fn the_probe_finds_the_first_device_exact() {
    let Some(spec) = wgpu() else { return };
    let probe = Probe::new(spec, &BackendOptions::default()).unwrap();
    let wrong: Vec<_> = probe.checks.iter().filter(|c| !c.passed).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(probe.class, Class::Exact, "{:?}", probe.first_failure());
    assert!(probe.checks.iter().any(|c| c.name.starts_with("control")) && probe.cases > 40);
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_lists_the_others() {
    let options = BackendOptions { device: Some("99".into()), ..Default::default() };
    let e = (backend("wgpu").unwrap().create)(&options, Default::default()).err().unwrap().to_string();
    assert!(e.contains("device 99") || e.contains("`99`"), "{e}");
}
