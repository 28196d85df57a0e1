//! `redraft devices`: what there is to compute with, and whether its results are those of the contract.

use redraft::compute::{BACKENDS, BackendOptions, BackendSpec, DeviceInfo};
use redraft::device::{Verdict, verdict};
use serde::Serialize;

use crate::args::model::cache_folder;
use crate::exit::Exit;
use crate::out::Out;
use crate::ui::progress::human_bytes;
use crate::ui::table::table;

/// List backends and devices: memory, limits, and whether their results have the bits of the contract.
///
/// A device is probed the first time that this program sees it with its driver: operations against the host, and a part of the
/// suite of `redraft selftest`. EXACT: the bits of every other exact device. EXACT-QUANT: those of `fast` with quantized
/// weights. APPROX: other bits, and the first thing that differs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  redraft devices\n  redraft devices --json | jq '.devices[] | select(.class == \"EXACT\")'"
)]
pub(crate) struct Args {
    /// Probe again, whatever is known.
    #[arg(long)]
    probe: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    devices: Vec<Device>,
}

#[derive(Debug, Serialize)]
struct Device {
    backend: &'static str,
    id: String,
    name: String,
    kind: &'static str,
    driver: String,
    memory_bytes: Option<u64>,
    /// EXACT, EXACT-QUANT or APPROX; none where the device cannot be used.
    class: Option<&'static str>,
    /// The first thing that differs, or why the device cannot be used.
    reason: Option<String>,
    limits: serde_json::Map<String, serde_json::Value>,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let all = BACKENDS.iter().flat_map(|spec| (spec.devices)().into_iter().map(move |d| (spec, d)));
    let report = Report { devices: all.map(|(spec, info)| device(spec, info, args.probe)).collect() };
    if out.json {
        out.object(&report)?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = report
        .devices
        .iter()
        .map(|d| {
            vec![
                d.backend.into(),
                d.id.clone(),
                d.name.clone(),
                d.kind.into(),
                d.memory_bytes.map_or("-".into(), human_bytes),
                d.class.unwrap_or("-").into(),
                d.driver.clone(),
            ]
        })
        .collect();
    out.text(&table(&["backend", "device", "name", "kind", "memory", "class", "driver"], &[1, 4], &rows))?;
    for d in &report.devices {
        if let Some(reason) = &d.reason {
            out.text(&format!("{} {}: {reason}\n", d.backend, d.id))?;
        }
        if out.verbose > 0 && !d.limits.is_empty() {
            let limits: Vec<String> = d.limits.iter().map(|(name, n)| format!("{name} {n}")).collect();
            out.text(&format!("{} {}: {}\n", d.backend, d.id, limits.join(", ")))?;
        }
    }
    Ok(Exit::Done)
}

fn device(spec: &'static BackendSpec, info: DeviceInfo, again: bool) -> Device {
    let options = BackendOptions { device: Some(info.id.clone()), ..Default::default() };
    let cache = cache_folder().filter(|_| !again);
    // Ours are tested by every build; a driver is what may differ.
    let found = if spec.on_device { Some(verdict(spec, &options, cache.as_deref())) } else { None };
    let (class, reason) = match found {
        None => (Some("EXACT"), None),
        Some(Ok(Verdict { class, reason })) => (Some(class.name()), reason),
        Some(Err(e)) => (None, Some(e.to_string())),
    };
    Device {
        backend: spec.name,
        id: info.id,
        name: info.name,
        kind: info.kind.name(),
        driver: info.driver,
        memory_bytes: info.memory,
        class,
        reason,
        limits: info.limits.into_iter().map(|(name, n)| (name.replace(' ', "_"), n.into())).collect(),
    }
}
