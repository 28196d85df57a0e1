//! Help, version, usage errors, exit codes.

use std::process::Stdio;

use crate::{command, json, mini, ok, redraft};

#[test]
fn help_and_version_are_answers() {
    let help = ok(&["--help"]);
    for command in ["run", "chat", "inspect", "tokenize", "detokenize", "trace", "compare", "synth"] {
        assert!(help.contains(command), "{help}");
        assert!(ok(&[command, "--help"]).contains("Examples:"), "{command}");
    }
    assert_eq!(ok(&["--version"]), format!("redraft {}\n", env!("CARGO_PKG_VERSION")));
    let facts = ok(&["--version", "-v"]);
    for fact in ["diffusion-gemma", "reference", "entropy-bound", "Q4_K"] {
        assert!(facts.contains(fact), "{facts}");
    }
    assert_eq!(json(&["-V"])["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn sampler_flags_come_from_the_registry() {
    let help = ok(&["run", "--help"]);
    for flag in ["--steps <N>", "--entropy-bound <X>", "--t-min <X>", "--confidence <X>", "REDRAFT_STEPS"] {
        assert!(help.contains(flag), "{flag}\n{help}");
    }
}

/// Wrong usage and input that cannot be used: exit code, and what the message must say.
#[test]
fn mistakes_are_explained() {
    let model = mini();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let text = file("text.gguf", b"this is no model");
    let whole = std::fs::read(&model).unwrap();
    let cut = file("cut.gguf", &whole[..whole.len() / 2]);
    let bad_template = file("bad.jinja", b"{% if %}");
    let endless = file(
        "endless.jinja",
        b"\n{% for i in range(99999) %}{% for j in range(9) %}{% endfor %}{% endfor %}",
    );
    let huge = file("huge.jinja", &[b'x'; (1 << 20) + 1]);
    let folder = dir.path().display().to_string();
    let m = ["run", "-m", &model];
    let cases: &[(&[&str], &[&str], &[&str])] = &[
        (&["frobnicate"], &[], &["unrecognized subcommand 'frobnicate'"]),
        (&m, &["--wat", "x"], &["unexpected argument '--wat'"]),
        (&m, &["--numerics", "quick", "x"], &["--numerics", "expected `exact` or `fast`"]),
        (
            &["trace", "-o", "x", "--numerics", "fast", "--precision", "f64", "x"],
            &["-m", &model],
            &["numerics `fast` is not available", "exact with precision f64"],
        ),
        (&m, &["--kv-type", "f8", "x"], &["--kv-type", "expected `f32` or `f16` or `i8`"]),
        (
            &["trace", "-o", "x", "--kv-type", "i8", "--precision", "f64", "x"],
            &["-m", &model],
            &["KV type `i8` is not available", "f32 with precision f64"],
        ),
        (&m, &["--profile", "torch", "x"], &["--profile", "hf", "jax", "llamacpp"]),
        (&m, &["--backend", "cuda", "x"], &["--backend", "auto", "reference", "cpu"]),
        (&m, &["--steps", "0", "x"], &["--steps", "an integer in 1..=4096"]),
        (&m, &["--t-max", "hot", "x"], &["--t-max", "a number in 0.001..=100"]),
        (&m, &["--seed", "-1", "x"], &["--seed", "expected `random` or a whole number"]),
        (&m, &["-n", "-5", "x"], &["--max-tokens", "at least 1"]),
        (&m, &["-n", "0", "x"], &["--max-tokens", "at least 1"]),
        (&m, &["-t", "0", "x"], &["--threads", "1..=256"]),
        (&m, &["-t", "18446744073709551615", "x"], &["--threads", "1..=256"]),
        (&["trace", "-o", "x", "--layers", "1..9", "x"], &["-m", &model], &["--layers 1..9", "layers 0..1"]),
        (&m, &["--tokens", "1,2", "x"], &["cannot be used with"]),
        (&m, &["--raw", "--system", "a", "x"], &["cannot be used with"]),
        (&m, &["-v", "-q", "x"], &["cannot be used with"]),
        (&m, &["-"], &["the prompt is empty"]),
        (&m, &["  \n"], &["the prompt is empty"]),
        (&m, &["--tokens", "5,99999"], &["token id in the prompt", "0..531", "99999"]),
        (&m, &["-c", "20", "-n", "16", "hello"], &["context of 20", "--max-tokens", "--ctx"]),
        (&m, &["--chat-template", &bad_template, "x"], &["bad.jinja"]),
        (&m, &["--chat-template", "no/such.jinja", "x"], &["no/such.jinja"]),
        (&m, &["--chat-template", &folder, "x"], &["is a folder: expected a chat template"]),
        (&m, &["--chat-template", &endless, "x"], &["chat template, line 2: rendering needs more than"]),
        (&m, &["--chat-template", &huge, "x"], &["huge.jinja", "at most 1048576 bytes"]),
        (&["run", "-m", "no/such.gguf", "x"], &[], &["error: cannot read no/such.gguf: No such file"]),
        (&["run", "-m", &text, "x"], &[], &["text.gguf", "GGUF"]),
        (&["run", "-m", &cut, "x"], &[], &["cut.gguf", "outside the file"]),
        (&["run", "-m", &folder, "x"], &[], &["is a folder: expected a GGUF file"]),
        (&["inspect", &text], &[], &["text.gguf"]),
        (&["inspect"], &[], &["<FILE>"]),
        (&m, &["--tokens", ""], &["--tokens", "expected token ids, whole numbers between commas"]),
        (&["detokenize", "-m", &model, "1,x"], &[], &["IDS: expected token ids", "found \"x\""]),
        (&["detokenize", "-m", &model, "531"], &[], &["token id in IDS: expected 0..531, found 531"]),
        (&["tokenize"], &[], &["there is no text"]),
        (&["trace", "-m", &model, "x"], &[], &["--output"]),
        (
            &["trace", "-m", &model, "-o", "x", "--precision", "llamacpp", "--numerics", "exact", "x"],
            &[],
            &["--numerics is what --precision llamacpp says"],
        ),
        (&["trace", "-m", &model, "-o", "x", "--like", &text], &[], &["text.gguf", "safetensors"]),
        (&["trace", "-m", &model, "-o", "x", "--backend", "cpu", "--precision", "f64", "x"], &[], &["f64"]),
        (&["compare", &text, &text], &[], &["text.gguf", "safetensors"]),
        (&["compare", &folder, &text], &[], &["none of its files could be read as tensors"]),
        (
            &["trace", "-m", &model, "-o", "x", "--like", &folder],
            &[],
            &["is a folder: expected a safetensors"],
        ),
        (&["trace", "-m", &model, "-o", "x", "--steps", "3", "x"], &[], &["--steps", "needs --generation"]),
        (&["trace", "-m", &model, "-o", "x", "-n", "3", "x"], &[], &["--max-tokens", "needs --generation"]),
        (
            &["trace", "-m", &model, "-o", "x", "--like", &text, "--seed", "3"],
            &[],
            &["--seed", "with --like"],
        ),
        (&["run", "-m", &model, "What", "is"], &[], &["unexpected argument 'is'", "one argument in quotes"]),
        (&["run", "\u{1b}[31mx", "\u{1b}[2Jy"], &[], &["unexpected argument", "y'"]),
        (&["synth", "gpt-5", "x", "--type", "q8_0"], &[], &["gpt-5", "diffusion-gemma-26b-a4b"]),
        (&["synth", "diffusion-gemma-26b-a4b", "x", "--type", "q9"], &[], &["q9", "q4_k_m"]),
    ];
    let mut failures = Vec::new();
    for (start, rest, needles) in cases {
        let args = [*start, *rest].concat();
        let done = redraft(&args);
        let fine = done.code == Some(2)
            && done.out.is_empty()
            && done.err.starts_with("error: ")
            && !done.err.contains('\x1b')
            && needles.iter().all(|n| done.err.contains(n));
        if !fine {
            failures.push(format!("{args:?}: code {:?}\n{}{}", done.code, done.out, done.err));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// An output that is the model or the golden, even by another path, is refused before anything is computed.
#[test]
fn outputs_do_not_overwrite_inputs() {
    let dir = tempfile::tempdir().unwrap();
    let copy = |from: &str, name: &str| {
        let path = dir.path().join(name);
        std::fs::copy(from, &path).unwrap();
        path.display().to_string()
    };
    let model = copy(&mini(), "model.gguf");
    let case = crate::testdata("oracle/cases/dg-mini.F32.two-token.safetensors").display().to_string();
    let golden = copy(&case, "golden.safetensors");
    let detour = dir.path().join(".").join("model.gguf").display().to_string();
    let before = (std::fs::read(&model).unwrap(), std::fs::read(&golden).unwrap());
    for args in [
        &["trace", "-m", &model, "-o", &model, "x"][..],
        &["trace", "-m", &model, "-o", &detour, "x"],
        &["trace", "-m", &model, "--like", &golden, "-o", &golden],
        &["run", "-m", &model, "--trace", &model, "x"],
    ] {
        let done = redraft(args);
        assert_eq!(done.code, Some(2), "{args:?}: {}", done.err);
        assert!(done.err.contains("is also an input or another output of this command"), "{}", done.err);
    }
    assert!(before == (std::fs::read(&model).unwrap(), std::fs::read(&golden).unwrap()));
}

#[test]
fn without_a_command_there_is_help() {
    let done = redraft(&[]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("Usage: redraft"), "{}", done.err);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let model = mini();
    for args in [&["run", "-m", &model, "x"][..], &["inspect", &model], &["inspect", "--json", &model]] {
        let mut child =
            command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        drop(child.stdout.take());
        let done = crate::Done::from(child.wait_with_output().unwrap());
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_the_machines_fault() {
    // A small limit of the system for files stands for a disk that fills up.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.safetensors").display().to_string();
    ok(&["trace", "-q", "-m", &mini(), "-o", &path, "x"]);
    let before = std::fs::read(&path).unwrap();
    assert!(before.len() > 4096);
    let done = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_redraft")])
        .args(["trace", "-q", "-m", &mini(), "-o", &path, "another prompt"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert!(said.starts_with(&format!("error: cannot write {path}: ")), "{said}");
    assert!(std::fs::read(&path).unwrap() == before, "the file that was there is as it was");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "nothing else is left");
    let full = std::fs::File::create("/dev/full").unwrap();
    let done = command(&["inspect", &mini()]).stdout(full).output().unwrap();
    assert_eq!(done.status.code(), Some(3));
}
