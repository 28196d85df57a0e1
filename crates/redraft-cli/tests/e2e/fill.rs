//! `redraft fill`.

use serde_json::Value;

use crate::{json, mini, ok, redraft, testdata, with_stdin};

const FRANCE: [&str; 3] = ["fill", "--prompt", "What is the capital of France?"];

fn fill(text: &str) -> Vec<&str> {
    [&FRANCE[..], &[text]].concat()
}

#[test]
fn the_embedded_model_fills_gaps() {
    for (text, want) in [
        ("The capital of France is [[]].", "The capital of France is Paris.\n"),
        ("The capital of [[]] is Paris.", "The capital of France is Paris.\n"),
        ("The capital of[[1]] is[[3]].", "The capital of France is Paris.\n"),
        ("[[]] France is Paris.", "The capital of France is Paris.\n"),
        ("The [[]] of France [[1]] [[...]].", "The capital of France is Paris.\n"),
        ("The capital of France is [[…]]", "The capital of France is Paris.\n"),
    ] {
        assert_eq!(ok(&fill(text)), want, "{text}");
    }
    assert_eq!(ok(&["fill", "--prompt", "55 + 68", "55 + [[3]] = 123"]), "55 + 68 = 123\n");
    let done = with_stdin(&["fill", "--prompt", "Count from 1 to 5."], "1, 2, [[]], 4, 5\n");
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "1, 2, 3, 4, 5\n", ""));
}

#[test]
fn the_report_says_what_stands_where() {
    let v = json(&fill("The capital of [[1]] is [[]]."));
    assert_eq!(v["text"], "The capital of France is Paris.");
    assert_eq!(v["finish_reason"], "stop");
    let gaps = v["gaps"].as_array().unwrap();
    assert_eq!((&gaps[0]["text"], &gaps[1]["text"]), (&Value::from("France"), &Value::from("Paris")));
    let number = |v: &Value| v.as_u64().unwrap() as usize;
    let prompt = number(&v["usage"]["prompt_tokens"]);
    let mut written = 0;
    for gap in gaps {
        let (start, end) = (number(&gap["start"]), number(&gap["end"]));
        let ids = gap["ids"].as_array().unwrap();
        assert_eq!(ids[..], v["ids"].as_array().unwrap()[start - prompt..end - prompt]);
        assert_eq!(gap["suffix_seen"], gap["suffix_tokens"]);
        written += end - start;
    }
    assert_eq!(number(&v["usage"]["completion_tokens"]), written);
    assert_eq!((number(&gaps[0]["start"]), gaps[0]["tried"].as_array().unwrap().len()), (prompt, 0));
    let tried = gaps[1]["tried"].as_array().unwrap();
    let best = tried.iter().max_by(|a, b| a[1].as_f64().unwrap().total_cmp(&b[1].as_f64().unwrap())).unwrap();
    assert_eq!((number(&best[0]), tried.len()), (gaps[1]["ids"].as_array().unwrap().len(), 16));
    assert!(v["lengths_ms"].as_f64() > Some(0.0) && v["warnings"] == Value::Array(Vec::new()));
    assert_eq!(v["diffusion"]["canvases"].as_array().unwrap().len(), 1);
}

#[test]
fn brackets_and_control_tokens_can_be_text() {
    let out = ok(&["fill", "-m", &mini(), r"a = \[[1]];<eos>[[2]]\\[[1]]"]);
    assert!(out.starts_with("a = [[1]];<eos>") && out.contains('\\'), "{out}");
    let prompt = |flags: &[&str]| {
        let v = json(&[&["fill", "-m", &mini(), "<eos>x[[1]]"], flags].concat());
        v["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert!(prompt(&["--raw"]) == 3 && prompt(&[]) > 3, "bos, eos, x");
}

/// Every family, with text in later blocks that a gap does not see.
#[test]
fn every_family_fills_and_says_what_it_did_not_see() {
    let text = "The cat[[3]] is 12, ok, and the cat [[2]] is here and there and here.[[1]]";
    for (file, unseen) in [
        ("oracle/models/dg-mini.F32.gguf", 0),
        ("oracle/models/dream-tiny.F16.gguf", 0),
        ("oracle/models/llada-tiny.BF16.gguf", 0),
        ("oracle/models/rnd1-tiny.BF16.gguf", 0),
        ("block-diffusion/models/sdar-tiny.BF16.gguf", 1),
        ("block-diffusion/models/fast-dllm-tiny.BF16.gguf", 0),
        ("llada2/models/llada2-tiny.BF16.gguf", 0),
        // Its own sampler would move what stands around the gaps.
        ("llada2/models/llada2.2-tiny.BF16.gguf", 0),
    ] {
        let done = redraft(&["fill", "-m", &testdata(file).display().to_string(), text]);
        assert_eq!(done.code, Some(0), "{file}: {}", done.err);
        assert!(
            done.out.starts_with("The cat") && done.out.contains(" is 12, ok, and the cat "),
            "{}",
            done.out
        );
        assert!(done.out.contains(" is here and there and here."), "{file}: {}", done.out);
        assert_eq!(
            done.err.matches("without a look at the text after it").count(),
            unseen,
            "{file}: {}",
            done.err
        );
    }
}

#[test]
fn a_receipt_of_a_filled_text_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json").display().to_string();
    ok(&[&fill("The capital of [[]] is [[3]].")[..], &["--receipt", &path]].concat());
    assert!(ok(&["verify", &path]).ends_with("equal: the model file, every step and the answer\n"));
    let m = testdata("llada2/models/llada2-tiny.BF16.gguf").display().to_string();
    ok(&["fill", "-m", &m, "The cat[[9]] is[[4]]", "--temperature", "0.7", "--receipt", &path]);
    assert!(ok(&["verify", &path, "-m", &m]).ends_with("equal: the model file, every step and the answer\n"));
}

#[test]
fn wrong_input_is_an_error_of_usage() {
    let dream = testdata("oracle/models/dream-tiny.F16.gguf").display().to_string();
    // All but `a`.
    let spaces: Vec<String> = (0..512).filter(|&id| id != 97).map(|id| id.to_string()).collect();
    let spaces = spaces.join(",");
    for (args, why) in [
        (&["fill", "no gap"][..], "there is no gap in the text"),
        (
            &["fill", "a [[0]]"],
            "the gap at character 3: expected nothing, ... or a number of tokens in 1..=65536",
        ),
        (&["fill", "[[99999999]]"], "found 99999999"),
        (
            &["fill", "[[65000]]"],
            "65000 from there on at least, together more than the context of 1024: shorten the text",
        ),
        (&["fill", "-m", &dream, "[[]]"], "the text is one gap"),
        (
            &["fill", "-m", &dream, "--ban-tokens", &spaces, "a [[2]]"],
            "those without a space in a gap after one",
        ),
        (&["fill", "a [[3"], "the gap at character 3 has no end"),
        (&["fill", "[[]] [[2]]"], "gap 1 is of any length and gap 2 follows it without text between them"),
        (&["fill", ""], "the text is empty"),
        (&["fill", "[[1]]", "--gap-max", "0"], "expected a whole number in 1..=65536"),
        (&["fill", "[[1]]", "-n", "5"], "there is none: --gap-max limits the others"),
        (
            &["fill", "[[1]] x [[]]", "--gap-max", "5"],
            "--gap-max limits gaps whose length is found by trying",
        ),
        (&["fill", "a [[]]", "--open-end"], "--open-end changes nothing: the text ends with a gap"),
        (&["fill", "a [[1]] b [[]]", "-n", "5", "--min-tokens", "50"], "--min-tokens: expected at most the"),
        (&["fill", "a [[1]] b", "--min-tokens", "5"], "--min-tokens changes nothing: no gap of free length"),
        (&["fill", "[[1]]", "--system", "x"], "--system is for a prompt"),
        (&["fill", "[[1]]", "--prompt", " "], "--prompt is empty"),
        (&["fill", "[[1]]", "--prompt", "x", "--raw"], "cannot be used with"),
        (&["fill", "[[1]]", "--ctx-overflow", "slide"], "`fill` has no earlier turns"),
        (&["fill", "[[1]]", "--sampler", "threshold"], "begins as random tokens: expected entropy-bound"),
        (&["fill", "[[1]]", "--trace", "x"], "unexpected argument '--trace'"),
        (&["fill", "several", "words", "[[1]]"], "several words are one argument in quotes"),
    ] {
        let done = redraft(args);
        assert_eq!(done.code, Some(2), "{args:?}: {}", done.err);
        assert!(done.err.contains(why) && done.out.is_empty(), "{args:?}: {}", done.err);
    }
}

#[test]
fn many_gaps_are_refused_with_the_limit() {
    let done = with_stdin(&["fill", "-"], &"a [[1]] ".repeat(200_000));
    let why = "400000 from there on at least, together more than the context of 1024";
    assert!(done.code == Some(2) && done.err.contains(why), "{}", done.err);
}

/// A live canvas shows the whole text in the end.
#[test]
fn a_live_canvas_ends_with_the_text() {
    let out = ok(&[&fill("The capital of [[]] is [[3]].")[..], &["--live", "always"]].concat());
    // The head, and what follows it: the space before the gap comes once.
    assert!(out.contains("The capital of\x1b") && out.contains("G France is Paris.\x1b"), "{out:?}");
    assert!(out.contains("step 2/48"), "{out:?}");
}

/// Before anything is computed or put aside; free lengths leave room for each other.
#[test]
fn texts_longer_than_the_context_are_refused() {
    let many = "[[65536]]".repeat(2000);
    let done = redraft(&["fill", "--prompt", "hi", &many]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.err.contains("more than the context of") && done.err.contains("raise --ctx"),
        "{}",
        done.err
    );
    ok(&["fill", "--prompt", "hi", "-c", "160", "--gap-max", "4", "a [[]] b [[]]"]);
}
