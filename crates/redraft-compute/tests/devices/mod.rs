//! Which devices tests find. Where there is none, they say so; on a machine that has to have one, for `wgpu` (`REDRAFT_CI`) or
//! for backends that are named (`REDRAFT_DEVICES`), they fail.

use redraft_compute::{BACKENDS, BackendSpec};

/// Backends that compute on a device.
pub(crate) fn of_devices() -> impl Iterator<Item = &'static BackendSpec> {
    BACKENDS.iter().filter(|b| b.on_device)
}

/// Those of them that have one here.
pub(crate) fn present() -> Vec<&'static BackendSpec> {
    let named = std::env::var("REDRAFT_DEVICES").unwrap_or_default();
    let must = |spec: &BackendSpec| {
        let ci = spec.name == "wgpu" && std::env::var_os("REDRAFT_CI").is_some();
        ci || named.split(',').any(|name| name == spec.name)
    };
    let (there, missing): (Vec<_>, Vec<_>) = of_devices().partition(|spec| !(spec.devices)().is_empty());
    for spec in missing {
        assert!(!must(spec), "no device for {}", spec.name);
        println!("skipped: 1 (no device for {})", spec.name);
    }
    there
}
