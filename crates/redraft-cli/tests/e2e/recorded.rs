//! `redraft run --receipt` and `verify`, `run --trace` and `replay`.

use serde_json::{Value, json};

use crate::{mini, ok, redraft};

/// A receipt of an answer over two canvases, and where it stands.
fn receipt(dir: &tempfile::TempDir) -> (String, Value) {
    let path = dir.path().join("receipt.json").display().to_string();
    let run = ["run", "-m", &mini(), "--tokens", "2,14,21", "-n", "20", "--steps", "5", "--seed", "3"];
    ok(&[&run[..], &["--receipt", &path, "--digest", "full"]].concat());
    let text = std::fs::read_to_string(&path).expect("the receipt was written");
    (path, serde_json::from_str(&text).expect("a receipt is JSON"))
}

/// The verdict on a changed receipt: exit code and report.
fn verdict(dir: &tempfile::TempDir, receipt: &Value, model: &[&str]) -> (Option<i32>, Value, String) {
    let path = dir.path().join("changed.json").display().to_string();
    std::fs::write(&path, receipt.to_string()).expect("a receipt can be written");
    let done = redraft(&[&["verify", "--json", &path][..], model].concat());
    (done.code, serde_json::from_str(&done.out).unwrap_or(Value::Null), done.err)
}

#[test]
fn a_receipt_is_repeated_on_any_backend() {
    let dir = tempfile::tempdir().unwrap();
    let (path, r) = receipt(&dir);
    assert_eq!(
        (&r["redraft_receipt"], &r["seed"], &r["prompt_ids"]),
        (&json!(1), &json!(3), &json!([2, 14, 21]))
    );
    assert_eq!(r["canvases"].as_array().map(Vec::len), Some(2));
    assert_eq!(r["ids"].as_array().map(Vec::len), Some(20));
    for backend in ["cpu", "reference"] {
        let text = ok(&["verify", &path, "-m", &mini(), "--backend", backend, "-t", "2"]);
        assert!(text.ends_with("equal: the model file, every step and the answer\n"), "{text}");
    }
    // An answer is repeated in its mode, whatever the default is: fast for the embedded file.
    let fast = dir.path().join("fast.json").display().to_string();
    let exact = dir.path().join("exact.json").display().to_string();
    ok(&["run", "--numerics", "exact", "-n", "20", "--receipt", &exact, "What is 7 + 8?"]);
    ok(&["run", "-n", "20", "--receipt", &fast, "What is 7 + 8?"]);
    for (path, mode) in [(&exact, "exact"), (&fast, "fast")] {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(&format!(r#""numerics": "{mode}""#)), "{text}");
        let text = ok(&["verify", path, "--backend", "reference"]);
        assert!(text.ends_with("equal: the model file, every step and the answer\n"), "{text}");
    }
    let done = redraft(&["verify", &fast, "--numerics", "exact"]);
    assert!(done.code == Some(2) && done.err.contains("was made with numerics fast"), "{}", done.err);
    // So is one with a rounded cache.
    let rounded = dir.path().join("rounded.json").display().to_string();
    ok(&["run", "--kv-type", "i8", "-n", "20", "--receipt", &rounded, "What is 7 + 8?"]);
    assert!(std::fs::read_to_string(&rounded).unwrap().contains(r#""kv_type": "i8""#));
    let text = ok(&["verify", &rounded, "--backend", "reference"]);
    assert!(
        text.contains("KV cache i8") && text.ends_with("equal: the model file, every step and the answer\n"),
        "{text}"
    );
    let done = redraft(&["verify", &rounded, "--kv-type", "f32"]);
    assert!(done.code == Some(2) && done.err.contains("was made with kv_type i8"), "{}", done.err);
    // The same run gives the same bytes.
    let again = receipt(&dir).1;
    assert_eq!(r, again);
}

#[test]
fn the_first_difference_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (_, receipt) = receipt(&dir);
    let model = mini();
    let model = ["-m", model.as_str()];
    let first = |change: &dyn Fn(&mut Value)| {
        let mut r = receipt.clone();
        change(&mut r);
        let (code, report, err) = verdict(&dir, &r, &model);
        assert_eq!((code, &report["verified"]), (Some(1), &json!(false)), "{err}");
        report["first_difference"]["what"].as_str().expect("a place").to_string()
    };
    let zeros = json!("0000000000000000");
    assert_eq!(first(&|r| r["seed"] = json!(4)), "canvas 1, step 1: canvas that went in");
    assert_eq!(
        first(&|r| r["canvases"][1]["steps"][2]["logits"] = zeros.clone()),
        "canvas 2, step 3: logits"
    );
    assert_eq!(
        first(&|r| r["canvases"][0]["steps"][4]["decision"] = zeros.clone()),
        "canvas 1, step 5: decision"
    );
    assert_eq!(first(&|r| r["parameters"]["entropy_bound"] = json!(0)), "canvas 1, step 1: decision");
    // The first step has the highest temperature whatever the number of steps.
    assert_eq!(first(&|r| r["parameters"]["steps"] = json!(4)), "canvas 1, step 2: logits");
    assert_eq!(first(&|r| r["canvases"][0]["stop"] = json!("converged")), "canvas 1: reason to stop");
    assert_eq!(first(&|r| _ = r["canvases"].as_array_mut().unwrap().pop()), "number of canvases");
    let pop = |r: &mut Value| _ = r["canvases"][1]["steps"].as_array_mut().unwrap().pop();
    assert_eq!(first(&pop), "canvas 2, step 5: number of steps");
    assert_eq!(first(&|r| r["ids"][7] = json!(1)), "ids of the answer");
    // Whoever reads a receipt reads its text.
    assert_eq!(first(&|r| r["text"] = json!("equal")), "text of the answer");
    assert_eq!(first(&|r| r["digest"]["full"] = zeros.clone()), "digest of all logits");
    assert_eq!(first(&|r| r["model"]["sha256_header"] = zeros.clone()), "model: SHA-256 of the header");
    assert_eq!(first(&|r| r["model"]["sha256_file"] = zeros.clone()), "model: SHA-256 of the file");
}

#[test]
fn receipts_that_cannot_be_repeated_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let (path, receipt) = receipt(&dir);
    let model = mini();
    let model = ["-m", model.as_str()];
    let refused = |change: &dyn Fn(&mut Value), model: &[&str]| {
        let mut r = receipt.clone();
        change(&mut r);
        let (code, _, err) = verdict(&dir, &r, model);
        assert_eq!(code, Some(2), "{err}");
        err
    };
    let same = |_: &mut Value| {};
    assert!(refused(&same, &[]).contains("give that file with -m"));
    assert!(refused(&|r| r["redraft_receipt"] = json!(2), &model).contains("expected format 1, found 2"));
    assert!(refused(&|r| r["numerics"] = json!("odd"), &model).contains("expected exact or fast"));
    assert!(refused(&|r| r["kv_type"] = json!("odd"), &model).contains("expected f32, f16 or i8"));
    assert!(refused(&|r| r["sampler"] = json!("odd"), &model).contains("expected entropy-bound"));
    assert!(refused(&|r| r["prompt_ids"][0] = json!(99999), &model).contains("99999"));
    assert!(refused(&|r| r["surprise"] = json!(1), &model).contains("unknown field `surprise`"));
    assert!(
        refused(&|r| _ = r.as_object_mut().unwrap().remove("ids"), &model).contains("missing field `ids`")
    );
    assert!(refused(&|r| r["parameters"] = json!({}), &model).contains("expected steps"));
    let garbage = dir.path().join("garbage.json").display().to_string();
    std::fs::write(&garbage, "[").unwrap();
    let done = redraft(&["verify", &garbage]);
    assert!(done.code == Some(2) && done.err.contains("not a receipt"), "{}", done.err);
    let done = redraft(&["run", "-m", model[1], "--receipt", model[1], "x"]);
    assert!(done.code == Some(2) && done.err.contains("write to another file"), "{}", done.err);
    assert!(std::fs::exists(&path).unwrap());
}

#[test]
fn a_recording_is_shown_as_text_in_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps.safetensors").display().to_string();
    let answer = ok(&["run", "--trace", &path, "What is the capital of France?"]);
    let text = ok(&["replay", &path]);
    assert!(text.starts_with("canvas 1 step 1/48 · accepted "), "{text}");
    assert!(text.ends_with(&answer), "the last step is the answer: {text}");
    let v = crate::json(&["replay", &path]);
    assert_eq!(v["canvases"], 1);
    assert_eq!(v["steps"].as_array().map(Vec::len), Some(text.matches("canvas 1 step").count()));

    // Another model's recording needs that model.
    let golden = crate::testdata("oracle/cases/dg-mini.F32.traj-default.safetensors").display().to_string();
    assert!(ok(&["replay", "-m", &mini(), &golden]).contains("canvas 2 step 1/48"));
    let theirs = dir.path().join("theirs.safetensors").display().to_string();
    ok(&["run", "-m", &mini(), "--tokens", "2", "-n", "1", "--steps", "1", "--trace", &theirs]);
    let done = redraft(&["replay", &theirs]);
    assert!(done.code == Some(2) && done.err.contains("give the file with -m"), "{}", done.err);
    let done = redraft(&["replay", "--play", &path]);
    assert!(done.code == Some(2) && done.err.contains("needs a terminal"), "{}", done.err);
    let taps = crate::testdata("oracle/cases/dg-mini.F32.decode.safetensors").display().to_string();
    let done = redraft(&["replay", "-m", &mini(), &taps]);
    assert!(done.code == Some(2) && done.err.contains("run --trace"), "{}", done.err);
}

/// Whatever the profile commits, and however many tokens were asked for.
#[cfg(unix)]
#[test]
fn the_end_of_a_recording_is_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps.safetensors");
    for profile in ["hf", "jax", "llamacpp"] {
        let run =
            ["run", "-m", &mini(), "--tokens", "2,14,21", "-n", "20", "--steps", "2", "--profile", profile];
        let answer = crate::json(&[&run[..], &["--trace", &path.display().to_string()]].concat());
        let recording =
            redraft::trace::Recording::read(&redraft::trace::TraceFile::open(&path).unwrap(), 531).unwrap();
        assert_eq!(json!(recording.answer(usize::MAX)), answer["ids"], "{profile}");
    }
}

/// A receipt comes from somebody else: what it says of itself stays on its line.
#[test]
fn texts_of_receipts_cannot_forge_lines() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut receipt) = receipt(&dir);
    let forged = "x\nequal: the model file, every step and the answer";
    for field in ["/model/name", "/backend", "/version"] {
        *receipt.pointer_mut(field).unwrap() = json!(forged);
    }
    receipt["finish_reason"] = json!(forged);
    let path = dir.path().join("forged.json").display().to_string();
    std::fs::write(&path, receipt.to_string()).unwrap();
    let done = redraft(&["verify", &path, "-m", &mini()]);
    assert_eq!(done.code, Some(1));
    assert!(!done.out.lines().any(|l| l.starts_with("equal")), "{}", done.out);
    let done = redraft(&["verify", &path]);
    assert_eq!((done.code, done.err.lines().count()), (Some(2), 1), "{}", done.err);
}
