//! `redraft bench`: what it reports, never how fast.

use crate::{json, ok, redraft};

/// A file of the twin, and the folder that holds it.
fn twin() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("twin.gguf").display().to_string();
    ok(&["synth", "gemma4-tiny", &path, "--type", "q4_k_m"]);
    (dir, path)
}

#[test]
fn steps_are_counted_and_have_parts() {
    let v = json(&["bench", "--rows", "4,8", "--prompt", "0,3", "-r", "3", "-t", "1", "--parts"]);
    let steps = v["steps"].as_array().expect("steps");
    let of = |key: &str| steps.iter().map(|s| s[key].as_u64().expect("a number")).collect::<Vec<_>>();
    assert_eq!((of("rows"), of("prompt")), (vec![4, 4, 8, 8], vec![0, 3, 0, 3]));
    assert_eq!((&v["threads"], &v["numerics"], &v["kv_type"]), (&1.into(), &"fast".into(), &"f32".into()));
    assert!(v["peak"]["int8_gmac_s"].as_f64() > Some(0.0));
    for s in steps {
        let wall = &s["wall_s"];
        assert_eq!(wall["all"].as_array().map(Vec::len), Some(3));
        assert!(
            wall["min"].as_f64() <= wall["median"].as_f64()
                && wall["median"].as_f64() <= wall["max"].as_f64()
        );
        let parts = s["parts"].as_array().expect("parts");
        let seconds = |p: &serde_json::Value| p["seconds"].as_f64().expect("seconds");
        let (step, parts) = parts.split_last().expect("the step itself");
        assert_eq!(step["part"], "step");
        // Of three steps the one in the middle is shown.
        assert!((seconds(step) - wall["median"].as_f64().expect("a time")).abs() < 1e-9);
        let (between, ops) = parts.split_last().expect("parts");
        assert_eq!(between["part"], "between ops");
        assert!((0.0..seconds(step)).contains(&seconds(between)), "{s}");
        assert!(ops.iter().all(|p| seconds(p) >= 0.0), "{s}");
    }
}

#[test]
fn reports_go_to_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (lines, page) = (path("steps.jsonl"), path("steps.html"));
    for rows in ["4", "8,16"] {
        ok(&["bench", "--rows", rows, "-r", "1", "-t", "1", "--parts", "--jsonl", &lines, "--html", &page]);
    }
    let text = std::fs::read_to_string(&lines).expect("lines");
    let rows = |line: &str| {
        let v: serde_json::Value = serde_json::from_str(line).expect("an object a line");
        v["steps"].as_array().expect("steps").iter().map(|s| s["rows"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(text.lines().map(rows).collect::<Vec<_>>(), [vec![Some(4)], vec![Some(8), Some(16)]]);
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("16 rows after 0 tokens"), "{html}");
    assert_eq!(html.matches("<rect").count(), 2, "the page is that of the last run");
    assert_eq!(html.matches("<table>").count(), 3, "steps, and the parts of each");
    let done = redraft(&["bench", "--rows", "4", "-r", "1", "--html", &path("no/such/folder.html")]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("--html") && done.err.contains("folder.html"), "{}", done.err);
}

#[test]
fn an_autoregressive_model_is_measured_and_not_run() {
    let (_dir, path) = twin();
    let v = json(&["bench", "-m", &path, "--rows", "4", "-r", "1"]);
    assert_eq!(
        (&v["model"]["architecture"], &v["steps"][0]["outputs"]),
        (&"gemma4".into(), &"logits".into())
    );
    for command in
        [&["run", "hello"][..], &["chat"], &["trace", "--generation", "-o", "x.safetensors", "hello"]]
    {
        let done = redraft(&[command, &["-m", &path]].concat());
        assert_eq!(done.code, Some(2), "{command:?}");
        assert!(done.err.contains("gemma4 is autoregressive"), "{command:?}: {}", done.err);
    }
    let done = redraft(&["bench", "-m", &path, "--self-conditioning"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("self-conditioning: expected a model that has it"), "{}", done.err);
    let done = redraft(&["bench", "-m", &path, "--rows", "4", "--temperature", "0.5"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("temperature: expected steps with draws"), "{}", done.err);
}

#[cfg(unix)]
#[test]
fn another_program_takes_its_turns() {
    let args = ["bench", "--rows", "4", "-r", "1", "--rounds", "2", "--pattern", r"took (?<ms>\d+) ms"];
    let v = json(&[&args[..], &["--compare", "echo took 500 ms"]].concat());
    assert_eq!(v["theirs_s"]["all"], serde_json::json!([0.5, 0.5]));
    assert_eq!(v["ours_s"]["all"].as_array().map(Vec::len), Some(2));
    let ratio = 0.5 / v["ours_s"]["median"].as_f64().expect("a time");
    assert!((v["ratio"].as_f64().expect("a ratio") / ratio - 1.0).abs() < 1e-12);
    assert_eq!(v["ours"]["steps"][0]["rows"], 4);
    for (command, why) in [("echo nothing", "it matches nothing"), ("exit 3", "ended with exit status: 3")] {
        let done = redraft(&[&args[..], &["--compare", command]].concat());
        assert_eq!(done.code, Some(2), "{command}");
        assert!(done.err.contains(why), "{command}: {}", done.err);
    }
}

#[test]
fn kernels_have_a_figure_each() {
    let v = json(&["bench", "kernels", "--types", "q8_0", "--levels", "scalar", "--tokens", "1,2"]);
    let level = &v["levels"][0];
    let found: Vec<_> = level["kernels"]
        .as_array()
        .expect("kernels")
        .iter()
        .map(|k| {
            assert!(k["gmac_s"].as_f64() > Some(0.0));
            (k["numerics"].as_str().expect("a mode"), k["tokens"].as_u64().expect("tokens"))
        })
        .collect();
    assert_eq!(found, [("exact", 1), ("exact", 2), ("fast", 1), ("fast", 2)]);
    let done = redraft(&["bench", "kernels", "--types", "q9"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("expected one of q4_k, q6_k"), "{}", done.err);
    for bad in ["0", "65537", "18446744073709551615", "x"] {
        let done = redraft(&["bench", "kernels", "--tokens", bad]);
        assert_eq!(done.code, Some(2), "{bad}");
        assert!(done.err.contains("expected a whole number in 1..=65536"), "{bad}: {}", done.err);
    }
}
