//! `redraft quantize`.

use crate::{json, mini, ok, redraft, testdata};

/// A folder and the path of a file in it.
fn place(name: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(name).display().to_string();
    (dir, path)
}

#[test]
fn a_model_is_quantized_and_runs() {
    let (dir, path) = place("q.gguf");
    let planned = json(&["quantize", &mini(), "--type", "q4_k_m", "--dry-run"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let args = ["quantize", &mini(), &path, "--type", "Q4_K_M", "-t"];
    let done = json(&[&args[..], &["1"]].concat());
    let first = std::fs::read(&path).unwrap();
    assert_eq!((&done["type"], &done["bytes"]), (&"q4_k_m".into(), &(first.len() as u64).into()));
    assert_eq!((&done["types"], &done["bytes"]), (&planned["types"], &planned["bytes"]));
    // Three matrices in four halve twice and more; vectors stay.
    assert!(done["bytes"].as_u64() < done["bytes_before"].as_u64().map(|n| n / 2), "{done}");
    for t in done["tensors"].as_array().unwrap() {
        match t["from"] == t["to"] {
            true => assert!(t.get("rmse").is_none(), "{t}"),
            false => assert!((1e-4..0.15).contains(&t["relative_error"].as_f64().unwrap()), "{t}"),
        }
    }

    let again = redraft(&[&args[..], &["3"]].concat());
    assert_eq!(again.code, Some(2), "{}", again.err);
    assert!(again.err.contains("exists: --force replaces it"), "{}", again.err);
    let table = ok(&[&args[..], &["3", "--force", "--report"]].concat());
    assert!(table.contains("relative") && table.contains("blk.0.attn_q.weight"), "{table}");
    assert!(std::fs::read(&path).unwrap() == first, "threads change nothing");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let v = json(&["run", "-m", &path, "-n", "5", "--steps", "2", "hello"]);
    assert_eq!(v["model"]["file_type"], "Q4_K_M");

    let (_other, twice) = place("twice.gguf");
    let done = redraft(&["quantize", &path, &twice, "--type", "q8_0"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.err.contains("quantized already"), "{}", done.err);
}

#[test]
fn patterns_and_the_embedding_have_their_own_types() {
    let v = json(&[
        "quantize",
        &mini(),
        "--dry-run",
        "--type",
        "q8_0",
        "--token-embd",
        "f16",
        "--tensor",
        "blk.0.*=bf16",
        "--tensor",
        "*.attn_q.weight=q4_0",
    ]);
    let of = |name: &str| {
        let found = v["tensors"].as_array().unwrap().iter().find(|t| t["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {v}"))["to"].as_str().unwrap().to_string()
    };
    assert_eq!(of("token_embd.weight"), "F16");
    assert_eq!((of("blk.0.attn_q.weight"), of("blk.1.attn_q.weight")), ("Q4_0".into(), "Q4_0".into()));
    assert_eq!((of("blk.0.attn_k.weight"), of("blk.1.attn_k.weight")), ("BF16".into(), "Q8_0".into()));
    assert_eq!(of("blk.0.attn_norm.weight"), "F32");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let (dir, path) = place("q.gguf");
    let missing = testdata("blocks/inputs.gguf").display().to_string();
    for (args, expected) in [
        (vec!["--type", "q9"], "q3_k_m"),
        (vec!["--type", "iq2_xs"], "which can only be read"),
        (vec!["--type", "q4_k_m", "--pure"], "expected a block type"),
        (vec!["--type", "q8_0", "--tensor", "nothing*=f16"], "found nothing*"),
        (vec!["--type", "q8_0", "--tensor", "nothing"], "expected PATTERN=TYPE"),
        (vec!["--type", "q8_0", "--tensor", "*=q9"], "there is no block type q9"),
        (vec!["--type", "q8_0", "--imatrix", missing.as_str()], "expected imatrix"),
    ] {
        let done = redraft(&[&["quantize", &mini(), &path][..], &args].concat());
        assert_eq!(done.code, Some(2), "{args:?}: {}", done.err);
        assert!(done.err.contains(expected), "{args:?}: {}", done.err);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    std::fs::copy(mini(), &path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let done = redraft(&["quantize", &path, &path, "--type", "q8_0", "--force"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(std::fs::read(&path).unwrap() == before, "the input is as it was");
}
