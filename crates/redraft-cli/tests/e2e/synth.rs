//! `redraft synth`.

use crate::{json, ok, redraft};

#[test]
fn a_tiny_file_is_written_and_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.gguf").display().to_string();
    let v = json(&["synth", "tiny", &path, "--type", "Q8_0"]);
    assert_eq!((&v["type"], &v["seed"]), (&"q8_0".into(), &0.into()));
    assert_eq!(v["bytes"], std::fs::metadata(&path).unwrap().len());
    assert_eq!(json(&["inspect", &path])["parameters"], v["parameters"]);
    let v = json(&["run", "-m", &path, "-n", "5", "--steps", "2", "hello"]);
    assert_eq!(v["model"]["file_type"], "Q8_0");
    let before = std::fs::read(&path).unwrap();
    let done = redraft(&["synth", "tiny", &path, "--type", "f32"]);
    assert!(done.code == Some(2) && done.err.contains("exists: --force replaces it"), "{}", done.err);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(ok(&["synth", "tiny", &path, "--type", "f32", "--force"]).contains("parameters"));
    let sdar = json(&["synth", "sdar-tiny", &path, "--type", "q4_k_m", "--force"]);
    assert!(sdar["bytes"].as_u64() < Some(6 << 20), "{sdar}");
    let v = json(&["run", "-m", &path, "-n", "5", "hello"]);
    assert_eq!((&v["model"]["architecture"], &v["usage"]["completion_tokens"]), (&"sdar".into(), &5.into()));
    let help = ok(&["synth", "--help"]);
    let at = |name: &str| help.find(&format!("- {name}:")).unwrap_or_else(|| panic!("{name}: {help}"));
    assert!(at("tiny") < at("fast-dllm-tiny") && at("sdar-moe-tiny") < at("dream-7b"), "{help}");
    let done = redraft(&["synth", "tiny", "no/such/folder/x.gguf", "--type", "f32"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
}
