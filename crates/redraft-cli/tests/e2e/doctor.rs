//! `redraft doctor`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use redraft::gguf::{Gguf, GgufWriter};

use crate::{json, mini, ok, redraft, testdata};

#[test]
fn a_file_with_a_fault_is_reported_and_repaired() {
    let v = json(&["doctor", &mini()]);
    assert_eq!(
        (&v["verdict"], &v["architecture"]),
        (&"SUPPORTED_WITH_FIXES".into(), &"diffusion-gemma".into())
    );
    let f = &v["findings"][0];
    assert_eq!((&f["id"], &f["severity"]), (&"token-types".into(), &"warning".into()));
    assert_eq!(f["where"], "tokenizer.ggml.token_type");
    assert!(f["fix"]["what"].as_str().unwrap().ends_with(" as control"), "{f}");
    assert!(v["figures"]["kv_bytes"].as_u64() > Some(0), "{v}");
    assert!(v["figures"]["roofline"]["ms_per_step"].as_f64() > Some(0.0), "{v}");
    let text = ok(&["doctor", &mini()]);
    for part in [
        ": SUPPORTED_WITH_FIXES\n",
        "warning [token-types]",
        "\n  fix: type ",
        "--fix OUT.gguf",
        "by the roofline",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }

    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("fixed.gguf").display().to_string();
    let v = json(&["doctor", &mini(), "--fix", &out]);
    assert_eq!((&v["fixed"]["file"], &v["fixed"]["verdict"]), (&out.clone().into(), &"SUPPORTED".into()));
    assert!(ok(&["doctor", &out]).contains(": SUPPORTED\n"));
    let digest = |model: &str| {
        json(&["run", "-m", model, "--tokens", "2,31,87", "-n", "16", "--steps", "2"])["digest"].clone()
    };
    assert_eq!(digest(&out), digest(&mini()));

    let done = redraft(&["doctor", &mini(), "--fix", &out]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("exists: --force replaces it"), "{}", done.err);
    ok(&["doctor", &mini(), "--fix", &out, "--force"]);
    let before = std::fs::read(&out).unwrap();
    let done = redraft(&["doctor", &out, "--fix", &out, "--force"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert_eq!(std::fs::read(&out).unwrap(), before, "the input is not touched");
}

#[test]
fn negative_verdicts_have_their_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf").display().to_string();
    let whole = std::fs::read(mini()).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let done = redraft(&["doctor", &path]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    // Without the padding behind the last tensor.
    let gguf = Gguf::open(mini().as_ref(), &Default::default()).unwrap();
    let end = gguf.tensors().iter().map(|t| t.offset + t.n_bytes).max().unwrap();
    let lengths = format!("expected at least {end} bytes in all, found {}", whole.len() / 2);
    assert!(done.out.contains(": DAMAGED\n") && done.out.contains(&lengths), "{}", done.out);

    let bad = testdata("gguf-bad/duplicate-key.gguf").display().to_string();
    assert_eq!(redraft(&["doctor", &bad]).code, Some(1));
    let done = redraft(&["doctor", "none.gguf"]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""));

    let mut w = GgufWriter::with_metadata(gguf.metadata().clone());
    w.metadata_mut().set("general.architecture", "evil\u{1b}[2J");
    std::fs::write(&path, w.begin(Vec::new()).unwrap().finish().unwrap()).unwrap();
    let done = redraft(&["doctor", &path]);
    assert_eq!(done.code, Some(1));
    assert!(done.out.contains(": NEEDS_ARCH_SUPPORT\n") && !done.out.contains('\u{1b}'), "{}", done.out);
    let fixed = dir.path().join("fixed.gguf");
    let done = redraft(&["doctor", &path, "--fix", &fixed.display().to_string()]);
    assert!(
        done.err.contains("no change of metadata makes this file run") && !fixed.exists(),
        "{}",
        done.err
    );
}
