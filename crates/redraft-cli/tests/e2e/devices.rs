//! `redraft devices`, `redraft selftest`, and models on devices.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::Value;

use crate::{command, json, mini, redraft};

#[test]
fn what_computes_is_listed_with_its_class() {
    let cache = tempfile::tempdir().unwrap();
    let list = || -> Vec<Value> {
        let out = command(&["devices", "--json"]).env("REDRAFT_CACHE", cache.path()).output().unwrap();
        serde_json::from_slice::<Value>(&out.stdout).unwrap()["devices"].as_array().unwrap().clone()
    };
    let first = list();
    for name in ["reference", "cpu"] {
        let d = first.iter().find(|d| d["backend"] == name).unwrap();
        assert_eq!((&d["id"], &d["kind"], &d["class"]), (&"0".into(), &"cpu".into(), &"EXACT".into()));
    }
    let on_devices: Vec<&Value> = first.iter().filter(|d| d["kind"] != "cpu").collect();
    for d in &on_devices {
        assert!(["EXACT", "EXACT-QUANT", "APPROX"].iter().any(|c| d["class"] == *c), "{d}");
        assert_eq!(d["class"] == "EXACT", d["reason"].is_null(), "{d}");
    }
    // What was found is kept, and read again.
    assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), on_devices.len());
    assert_eq!(list(), first);
}

#[test]
fn the_suite_runs_on_the_backend_that_is_named() {
    let v = json(&["selftest", "--quick", "--backend", "cpu"]);
    assert_eq!((&v["equal"], v["tested"].as_array().unwrap().len()), (&true.into(), 1));
    let t = &v["tested"][0];
    assert_eq!((&t["backend"], &t["class"], &t["cases"]), (&"cpu".into(), &"EXACT".into(), &t["equal"]));
    let reference = json(&["selftest", "--quick", "--backend", "reference"]);
    assert_eq!(reference["tested"][0]["digest"], t["digest"]);
    assert_eq!(redraft(&["selftest", "--device", "0"]).code, Some(2), "a device of no backend");
}

#[test]
fn a_device_that_is_not_there_is_said_so() {
    for args in [
        &["run", "-m", &mini(), "--backend", "wgpu", "--device", "77", "x"][..],
        &["selftest", "--backend", "wgpu", "--device", "77"],
    ] {
        let d = redraft(args);
        assert_eq!(d.code, Some(3), "{}", d.err);
        assert!(d.err.contains("77"), "{}", d.err);
    }
    let d = redraft(&["run", "-m", &mini(), "-ngl", "x", "x"]);
    assert_eq!(d.code, Some(2));
    assert!(d.err.contains("--gpu-layers"), "{}", d.err);
}
