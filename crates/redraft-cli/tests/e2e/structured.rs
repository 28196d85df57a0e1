//! `redraft run --json-schema`, `--regex`, `--choices`.

use serde_json::{Value, json};

use crate::{json, ok, redraft};

const FRANCE: &str = "What is the capital of France?";

#[test]
fn the_embedded_model_answers_in_a_language() {
    assert_eq!(
        ok(&["run", "--regex", r"The capital of France is [A-Z][a-z]{3,8}\.", FRANCE]),
        "The capital of France is Paris.\n"
    );
    assert_eq!(ok(&["run", "--choices", "Rome,Paris,London", FRANCE]), "Paris\n");
    let v = json(&["run", "--regex", r"\d{1,2} \+ 8 = \d{1,3}", "What is 7 + 8?"]);
    assert_eq!((v["text"].as_str(), v["finish_reason"].as_str()), (Some("7 + 8 = 15"), Some("stop")));
}

#[test]
fn replies_are_valid_under_a_schema() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("schema.json");
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": 3, "maximum": 40}},
        "required": ["city", "n"],
    });
    std::fs::write(&file, schema.to_string()).unwrap();
    let file = file.to_str().unwrap();
    // Longer than a canvas, with other seeds, and with fewer tokens than it would take.
    for flags in [&["--seed", "1"][..], &["--seed", "2", "-n", "30"], &["--steps", "2", "--seed", "3"]] {
        let v = json(&[&["run", "--json-schema", file, FRANCE], flags].concat());
        let reply: Value = serde_json::from_str(v["text"].as_str().unwrap()).unwrap();
        assert!(reply["city"].as_str().unwrap().chars().count() <= 12, "{reply}");
        assert!((3..=40).contains(&reply["n"].as_u64().unwrap()), "{reply}");
        assert_eq!((reply.as_object().unwrap().len(), v["finish_reason"].as_str()), (2, Some("stop")));
    }
    let receipt = dir.path().join("receipt.json");
    let receipt = receipt.to_str().unwrap();
    ok(&["run", "--json-schema", file, "--receipt", receipt, "-n", "40", FRANCE]);
    assert!(std::fs::read_to_string(receipt).unwrap().contains("json-schema"));
    ok(&["verify", receipt]);
}

#[test]
fn what_cannot_be_is_said_before_anything_is_computed() {
    let dir = tempfile::tempdir().unwrap();
    let schema = dir.path().join("schema.json");
    let schema = schema.to_str().unwrap();
    std::fs::write(schema, r#"{"properties": {"a": {"oneOf": []}}}"#).unwrap();
    for (flags, why) in [
        (
            &["--json-schema", schema][..],
            "JSON schema, #/properties/a: the keyword \"oneOf\" is not supported",
        ),
        (&["--json-schema", "nowhere.json"], "cannot read nowhere.json"),
        (&["--regex", "a("], "unclosed group"),
        (&["--regex", "a{300}", "-n", "9"], "raise --max-tokens"),
        (&["--choices", "a,,b"], "found an empty one"),
        (&["--choices", "a,b", "--regex", "a"], "cannot be used with"),
        (&["--choices", "a,b", "--think", "on"], "--choices with --think on"),
        (&["--choices", "a,b", "--trace", "t.safetensors"], "recordings have no place"),
        (&["--choices", "a,b", "--ban-tokens", "3"], "bans and min_tokens"),
        (&["--choices", "a,b", "--profile", "jax"], "profile"),
    ] {
        let done = redraft(&[&["run"], flags, &[FRANCE]].concat());
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{flags:?}: {}", done.err);
        assert!(done.err.contains(why), "{flags:?}: {}", done.err);
    }
}
