//! `redraft tokenize` and `redraft detokenize`.

use crate::{json, mini, ok, redraft, with_stdin};

#[test]
fn text_goes_to_ids_and_back() {
    let model = mini();
    for text in ["Hello, world", "  two  spaces\n\nand lines", "é 日本 🙂", "<bos>"] {
        let v = json(&["tokenize", "-m", &model, text]);
        let ids = v["ids"].to_string();
        assert_eq!(ok(&["detokenize", "-m", &model, &ids]), format!("{text}\n"), "{ids}");
        assert_eq!(with_stdin(&["detokenize", "-m", &model, "-"], &ids).out, format!("{text}\n"));
    }
    let special = json(&["tokenize", "-m", &model, "--special", "<bos>"]);
    assert_eq!(special["ids"], serde_json::json!([2]));
    assert_eq!(special["tokens"][0]["kind"], "control");
    assert_eq!(ok(&["detokenize", "-m", &model, "2"]), "\n");
    assert_eq!(ok(&["detokenize", "-m", &model, "--special", "2"]), "<bos>\n");
    let table = ok(&["tokenize", "-m", &model, "--special", "<bos>hi"]);
    assert!(table.contains("\"<bos>\"") && table.contains("tokens: 2,"), "{table}");
    assert_eq!(
        ok(&["tokenize", "-m", &model, "hi"]),
        with_stdin(&["tokenize", "-m", &model, "-"], "hi\n").out
    );
    assert_eq!(ok(&["tokenize", "-m", &model, "hi"]), with_stdin(&["tokenize", "-m", &model], "hi\n").out);
    let warned = redraft(&["tokenize", "-m", &model, "hi"]);
    assert_eq!((warned.vocabulary_warnings, warned.err.as_str()), (1, ""));
    let embedded = redraft(&["tokenize", "hi"]);
    assert_eq!((embedded.vocabulary_warnings, embedded.err.as_str()), (0, ""));
    assert_eq!(redraft(&["tokenize", "-q", "-m", &model, "hi"]).vocabulary_warnings, 0);
}

#[test]
fn listed_ids_are_compared() {
    let model = mini();
    let hello = json(&["tokenize", "-m", &model, "Hello"])["ids"].clone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("expected.json").display().to_string();
    let write = |cases: serde_json::Value| std::fs::write(&path, cases.to_string()).unwrap();

    write(serde_json::json!({"cases": [
        {"text": "Hello", "ids": hello, "decoded": "Hello"},
        {"text": "<bos>", "ids_parse_special": [2]},
    ]}));
    assert_eq!(ok(&["tokenize", "-m", &model, "--compare", &path]), "2 cases, 3 checks: all equal\n");

    write(serde_json::json!({"cases": [{"text": "Hello", "ids": [1, 2]}, {"text": "Hello", "ids": hello}]}));
    let done = redraft(&["tokenize", "-m", &model, "--compare", &path]);
    assert_eq!(done.code, Some(1));
    assert!(done.out.contains("expected [1, 2]") && done.out.ends_with("2 cases, 2 checks: 1 difference\n"));
    let v = redraft(&["tokenize", "-m", &model, "--compare", &path, "--json"]);
    assert_eq!(v.code, Some(1));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&v.out).unwrap()["ok"], false);

    write(serde_json::json!({"cases": [{"text": "Hello"}]}));
    assert_eq!(redraft(&["tokenize", "-m", &model, "--compare", &path]).code, Some(2));
}

/// What is promised of inputs of a megabyte holds for the program, not only for the library.
#[cfg(target_os = "linux")]
#[test]
fn a_megabyte_of_tokens_takes_less_than_100_megabytes() {
    let text = "a".repeat(1_000_000);
    for args in [&["tokenize"][..], &["tokenize", "--json"]] {
        // The limit of the shell is on addresses, which are more than what is used.
        let program = env!("CARGO_BIN_EXE_redraft");
        let limited = format!("ulimit -v 150000; exec \"{program}\" {}", args.join(" "));
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("a.txt");
        std::fs::write(&input, &text).unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &limited])
            .stdin(std::fs::File::open(&input).unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.len() > 20_000_000);
    }
}
