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

#[test]
fn importance_data_of_answers_are_collected_and_used() {
    let (dir, path) = place("imatrix.gguf");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let prompts = file("prompts.txt");
    std::fs::write(
        &prompts,
        "hello\n\n{\"messages\": [{\"role\": \"user\", \"content\": \"bye\"}], \"id\": 7}\n",
    )
    .unwrap();
    let base = ["trace", "-m", &mini(), "--steps", "3", "-n", "20", "--imatrix", &path];
    let v = json(&[&base[..], &["--prompts", &prompts]].concat());
    assert_eq!(
        (&v["kind"], &v["prompts"], &v["file"]),
        (&"imatrix".into(), &2.into(), &path.as_str().into())
    );
    // Two canvases of 16 for each prompt, of three steps at most.
    assert!(v["steps"].as_u64().is_some_and(|n| (4..=12).contains(&n)), "{v}");
    let header = ok(&["inspect", &path]);
    for said in ["\"imatrix\"", "redraft.imatrix.canvases_by_step", "blk.0.attn_q.weight.in_sum2", &prompts] {
        assert!(header.contains(said), "{said}: {header}");
    }
    let data = std::fs::read(&path).unwrap();
    ok(&[&base[..], &["--prompts", &prompts, "-t", "1"]].concat());
    assert!(std::fs::read(&path).unwrap() == data, "threads change nothing");
    ok(&[&base[..], &["hello"]].concat());
    assert!(std::fs::read(&path).unwrap() != data, "one prompt alone");

    let out = file("q.gguf");
    let args = ["quantize", &mini(), &out, "--type", "q4_k_m", "--imatrix", &path];
    let done = redraft(&args);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!done.err.contains("without importance data"), "{}", done.err);
    let tensors = json(&[&args[..], &["--force"]].concat())["tensors"].as_array().unwrap().clone();
    assert!(tensors.iter().filter(|t| t["from"] != t["to"]).all(|t| t["importance"] == true), "{tensors:?}");

    for (args, expected) in [
        (vec!["--imatrix", &path, "-o", &out, "hi"], "cannot be used with"),
        (vec!["--imatrix", &path, "--generation", "hi"], "cannot be used with"),
        (vec!["--imatrix", &path, "--prompts", &prompts, "hi"], "cannot be used with"),
        (vec!["-o", &out, "--prompts", &prompts], "cannot be used with"),
        (vec!["--prompts", &prompts], "--imatrix"),
        (vec!["--imatrix", &prompts, "--prompts", &prompts], "is also an input"),
        (vec!["--imatrix", &path, "--prompts", &prompts, "--raw"], "messages are no text"),
    ] {
        let done = redraft(&[&["trace", "-m", &mini()][..], &args].concat());
        assert_eq!(done.code, Some(2), "{args:?}: {}", done.err);
        assert!(done.err.contains(expected), "{args:?}: {}", done.err);
    }
}

#[test]
fn answers_of_types_are_compared_beside_their_size() {
    let (dir, path) = place("q.gguf");
    let prompts = dir.path().join("prompts.txt").display().to_string();
    std::fs::write(&prompts, "hello\nbye\n").unwrap();
    let report = ["--report", "--prompts", &prompts, "-n", "16"];
    let one = json(&[&["quantize", &mini(), &path, "--type", "q8_0"][..], &report].concat());
    let a = &one["answers"];
    assert_eq!((&a["answers"], &a["max_tokens"]), (&2.into(), &16.into()));
    assert!(a["kl_mean"].as_f64().is_some_and(|x| x > 0.0) && a["kl_max"].as_f64() < Some(10.0), "{a}");
    let rows: u64 = a["by_step"].as_array().unwrap().iter().map(|s| s["rows"].as_u64().unwrap()).sum();
    assert_eq!(a["rows"], rows);
    assert_eq!(a["steps_per_canvas"].as_array().map(Vec::len), Some(2));
    // Without OUT nothing is written, and types stand beside each other.
    let before = std::fs::read_dir(dir.path()).unwrap().count();
    let both = json(&[&["quantize", &mini(), "--type", "q8_0,f32"][..], &report].concat());
    assert_eq!(both["reports"][0]["answers"], *a);
    let same = &both["reports"][1]["answers"];
    assert_eq!((&same["kl_max"], &same["equal_answers_percent"]), (&0.0.into(), &100.0.into()), "{same}");
    let text = ok(&[&["quantize", &mini(), "--type", "q8_0,f32"][..], &report].concat());
    assert!(
        text.contains("f32 (input)") && text.contains("same argmax") && !text.contains("blk.0"),
        "{text}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), before);

    // A file that cannot answer has errors of tensors only.
    let inputs = testdata("blocks/inputs.gguf").display().to_string();
    let done = redraft(&["quantize", &inputs, "--type", "f16", "--report"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.err.contains("answers are not compared"), "{}", done.err);
    let done = redraft(&[&["quantize", &inputs, "--type", "f16"][..], &report].concat());
    assert_eq!(done.code, Some(2), "{}", done.err);
    let done = redraft(&["quantize", &mini(), &path, "--type", "q8_0,f16", "--force"]);
    assert!(done.code == Some(2) && done.err.contains("leave OUT out"), "{}", done.err);
}

#[test]
fn what_is_asked_for_holds() {
    let (_dir, path) = place("q.gguf");
    // Rows of 288 are no blocks of 256; a mix gives way.
    for pure in [&["--pure"][..], &[]] {
        let done = redraft(&[&["quantize", &mini(), &path, "--type", "q6_k"][..], pure].concat());
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(done.err.contains("Q6_K cannot hold rows of 288: take a mix"), "{}", done.err);
    }
    ok(&["quantize", &mini(), "--type", "q4_k_m", "--dry-run"]);
    for more in [&["--force"][..], &["-n", "5"], &["--prompts", "x.txt"], &["--report"]] {
        let done =
            redraft(&[&["quantize", &mini(), &path, "--type", "q8_0", "--dry-run"][..], more].concat());
        assert!(done.code == Some(2) && done.err.contains("cannot be used with"), "{more:?}: {}", done.err);
    }
    let done = redraft(&["quantize", &mini(), &path, "--type", "q8_0", "--prompts", "x.txt"]);
    assert!(done.code == Some(2) && done.err.contains("--report"), "{}", done.err);
    assert!(!std::path::Path::new(&path).exists());
}

#[cfg(unix)]
#[test]
fn a_link_to_nothing_is_in_the_way_and_a_strange_place_is_no_full_disk() {
    let (dir, path) = place("q.gguf");
    std::os::unix::fs::symlink(dir.path().join("nothing"), &path).unwrap();
    for command in [&["quantize", &mini(), &path, "--type", "q8_0"][..], &["doctor", &mini(), "--fix", &path]]
    {
        let done = redraft(command);
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(done.err.contains("q.gguf: it is a link to nothing"), "{}", done.err);
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    }
    if std::path::Path::new("/proc/self").exists() {
        let done = redraft(&["quantize", &mini(), "/proc/q.gguf", "--type", "q8_0"]);
        assert_eq!(done.code, Some(2), "{}", done.err);
    }
}
