//! Whether the results of a device are those of the contract, found out once for each driver.

use std::fs;
use std::path::{Path, PathBuf};

use redraft_compute::conformance::{Class, Probe};
use redraft_compute::{BackendOptions, BackendSpec, ComputeError, DeviceInfo, Numerics, WeightTable};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::placement::Sizes;
use crate::{Error, LoadOptions};

/// What is known of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What may be said of its results.
    pub class: Class,
    /// The first thing that is wrong, where anything is.
    pub reason: Option<String>,
}

/// A verdict in a file.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// All that it depends on.
    key: String,
    class: String,
    reason: Option<String>,
}

/// The device that options name: the first of the backend, or that of the number.
///
/// # Errors
/// [`ComputeError::Unavailable`] with the devices that there are.
pub fn chosen(spec: &BackendSpec, options: &BackendOptions) -> Result<DeviceInfo, ComputeError> {
    let devices = (spec.devices)();
    let wanted = options.device.as_deref().unwrap_or("0");
    let list = devices.iter().map(|d| format!("{} ({})", d.id, d.name)).collect::<Vec<_>>().join(", ");
    devices.into_iter().find(|d| d.id == wanted).ok_or_else(|| ComputeError::Unavailable {
        what: "device",
        name: format!("{wanted} of {}", spec.name),
        available: if list.is_empty() { "none: no driver for it was found".into() } else { list },
    })
}

/// Decides what of a model goes to a device, and finds out whether its results are those of the mode. Returns what somebody
/// should know.
pub(crate) fn prepare(
    engine: &BackendSpec,
    backend_options: &mut BackendOptions,
    options: &LoadOptions,
    numerics: Numerics,
    weights: &WeightTable,
) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    let info = chosen(engine, backend_options)?;
    backend_options.device_memory = options.device_memory.or(info.memory.map(|m| m / 10 * 9));
    // Caches and what is computed have an eighth, and half a gigabyte at least.
    let rest = |m: u64| (m / 8).max(1 << 29).min(m / 2);
    let room = backend_options.device_memory.map_or(u64::MAX, |m| m - rest(m));
    let sizes = Sizes::of(weights, engine.weight_bytes);
    let plan = sizes.fit(options.placement, room).ok_or_else(|| ComputeError::OutOfMemory {
        what: format!(
            "one layer beside embedding and head on {}, which has room for {room} bytes",
            info.name
        ),
        bytes: usize::try_from(sizes.least()).unwrap_or(usize::MAX),
    })?;
    backend_options.placement = plan.placement;
    if plan.placement.splits() {
        notes.push(plan.describe(&info.name, room));
    }
    let Verdict { class, reason } = verdict(engine, backend_options, options.cache.as_deref())?;
    if !class.covers(numerics) {
        let (class, reason) = (class.name(), reason.unwrap_or_default());
        // Who asks for a mode by name asks for its bits.
        if options.numerics.is_some() {
            return Err(Error::Approximate { backend: engine.name, class, numerics, reason });
        }
        notes.push(format!("results of this device are approximate ({class}): {reason}"));
    }
    Ok(notes)
}

/// Probes a device, unless a file in `cache` says what came of it with this driver and this program.
///
/// # Errors
/// When the device cannot be had, or fails.
pub fn verdict(
    spec: &BackendSpec,
    options: &BackendOptions,
    cache: Option<&Path>,
) -> Result<Verdict, ComputeError> {
    let info = chosen(spec, options)?;
    let key = format!(
        "{} | {} | {} | {} | {:016x}",
        spec.name,
        info.name,
        info.driver,
        env!("CARGO_PKG_VERSION"),
        info.kernels
    );
    let file = cache.map(|folder| file_of(folder, &key));
    if let Some(known) = file.as_deref().and_then(|f| read(f, &key)) {
        return Ok(known);
    }
    // All of it: what the processor would take over must not speak for the device.
    let whole = BackendOptions { device: options.device.clone(), ..BackendOptions::default() };
    let probe = Probe::new(spec, &whole)?;
    let verdict = Verdict { class: probe.class, reason: probe.first_failure() };
    if let Some(file) = file {
        // The next run probes again where this one cannot write.
        let _ = write(&file, key, &verdict);
    }
    Ok(verdict)
}

fn file_of(folder: &Path, key: &str) -> PathBuf {
    let hash = Sha256::digest(key.as_bytes());
    let name: String = hash.iter().take(8).map(|b| format!("{b:02x}")).collect();
    folder.join(format!("device-{name}.json"))
}

/// A verdict that was written for the same key.
fn read(file: &Path, key: &str) -> Option<Verdict> {
    let stored: Stored = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let class =
        [Class::Exact, Class::ExactQuant, Class::Approx].into_iter().find(|c| c.name() == stored.class)?;
    (stored.key == key).then_some(Verdict { class, reason: stored.reason })
}

/// Written beside and moved, so that nobody reads half of it.
fn write(file: &Path, key: String, verdict: &Verdict) -> std::io::Result<()> {
    let stored = Stored { key, class: verdict.class.name().into(), reason: verdict.reason.clone() };
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = file.with_extension(format!("{}.part", std::process::id()));
    fs::write(&part, serde_json::to_vec_pretty(&stored)?)?;
    fs::rename(&part, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_for_one_driver_and_one_program() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_of(folder.path(), "a");
        let verdict = Verdict { class: Class::ExactQuant, reason: Some("MatMul".into()) };
        write(&file, "a".into(), &verdict).unwrap();
        assert_eq!(read(&file, "a"), Some(verdict));
        assert_eq!(read(&file, "b"), None);
        assert_ne!(file, file_of(folder.path(), "b"));
        fs::write(&file, b"{").unwrap();
        assert_eq!(read(&file, "a"), None);
    }
}
