//! A GPU gives the bits of the reference.
#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test, with helpers

mod devices;

use devices::{of_devices, present};
use redraft_compute::conformance::{Class, Probe, Suite};
use redraft_compute::{BackendOptions, ComputeError};

#[test]
fn the_first_device_gives_the_bits_of_the_reference() {
    let suite = Suite::new().unwrap();
    let mut differ = Vec::new();
    for spec in present() {
        let report = suite.check(spec, &BackendOptions::default()).unwrap();
        println!("{report}");
        differ.extend((!report.failures.is_empty()).then_some((spec.name, report.failures.len())));
    }
    assert!(differ.is_empty(), "of {} cases differ {differ:?}", suite.len());
}

#[test]
fn the_probe_finds_the_first_device_exact() {
    for spec in present() {
        let probe = Probe::new(spec, &BackendOptions::default()).unwrap();
        let wrong: Vec<_> = probe.checks.iter().filter(|c| !c.passed).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(probe.class, Class::Exact, "{:?}", probe.first_failure());
        assert!(probe.checks.iter().any(|c| c.name.starts_with("control")) && probe.cases > 40);
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_lists_the_others() {
    for spec in of_devices() {
        let options = BackendOptions { device: Some("99".into()), ..Default::default() };
        let e = (spec.create)(&options, Default::default()).err().unwrap().to_string();
        assert!(e.contains("device 99") || e.contains("`99`"), "{e}");
        let devices = (spec.devices)();
        assert!(devices.iter().all(|d| e.contains(&d.name)), "{e}");
        assert!(!devices.is_empty() || e.contains("none"), "{e}");
        let options = BackendOptions { device: Some("first".into()), ..Default::default() };
        let e = (spec.create)(&options, Default::default()).err().unwrap().to_string();
        assert!(e.contains("`first`") && e.contains("a number"), "{e}");
    }
}

#[test]
#[ignore = "takes devices with 1000 bytes; `cargo xtask emulate` has them"]
fn memory_that_is_not_there_is_an_error_that_says_what_for() {
    for spec in present() {
        let e = (spec.create)(&BackendOptions::default(), Default::default()).err().unwrap();
        assert!(matches!(e, ComputeError::OutOfMemory { .. }), "{e}");
        assert!(e.to_string().contains("the status of ops on the host as"), "{e}");
    }
}
