//! `redraft chat` from a pipe.

use serde_json::Value;

use crate::{Done, mini, redraft, with_stdin};

/// A conversation with `--json` and commands: one object per answer.
fn answers(args: &[&str], input: &str) -> (Vec<Value>, Done) {
    let done = with_stdin(&[&["chat", "--commands", "--json"], args].concat(), input);
    let objects = done.out.lines().map(|l| serde_json::from_str(l).expect("one object per line")).collect();
    (objects, done)
}

fn ok(args: &[&str], input: &str) -> (Vec<Value>, String) {
    let (objects, done) = answers(args, input);
    assert_eq!(done.code, Some(0), "{}", done.err);
    (objects, done.err)
}

#[test]
fn each_line_of_a_pipe_is_a_turn() {
    let model = mini();
    let args = ["-m", &model, "-n", "8", "--steps", "2"];
    let done = with_stdin(&[&["chat"][..], &args].concat(), "Hello\n\n/help\nmore\\\nlines");
    assert_eq!(
        (done.code, done.err.as_str()),
        (Some(0), "warning: /help is a message here: --commands takes commands from a pipe\n")
    );
    let (objects, err) = ok(&args, "Hello\n//help\nmore\\\nlines\n");
    assert_eq!(err, "");
    let texts: String = objects.iter().map(|v| format!("{}\n", v["text"].as_str().unwrap())).collect();
    assert_eq!(done.out.trim_end(), texts.trim_end(), "without --commands a slash is nothing special");
    for (i, v) in objects.iter().enumerate() {
        assert_eq!((&v["turn"], &v["turns_left_out"]), (&(i + 1).into(), &0.into()));
        assert_eq!(v["seed"], 0);
        assert_eq!(v["reused_tokens"].as_u64().unwrap() > 0, i > 0);
    }
    // The first answer is that of `run`.
    let run = crate::json(&[&["run"][..], &args, &["Hello"]].concat());
    assert_eq!(objects[0]["digest"], run["digest"]);
    assert_eq!(with_stdin(&[&["chat"][..], &args].concat(), "").code, Some(0));
}

/// With the cache of earlier turns, and without.
#[test]
fn an_answer_is_that_of_a_fresh_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.json").display().to_string();
    let model = mini();
    for args in [&["-m", &model, "-n", "24", "--steps", "3", "--system", "Be brief."][..], &["--steps", "4"]]
    {
        let save = format!("Hello\nWhat is 7 + 8?\nAnd then?\n/save! {file}\n");
        let (talk, _) = ok(args, &save);
        assert!(talk[2]["reused_tokens"].as_u64().unwrap() > talk[1]["reused_tokens"].as_u64().unwrap());
        let (again, _) = ok(args, &format!("/load {file}\n/regenerate 0\n/regenerate\n/regenerate 0\n"));
        assert_eq!(again[0]["reused_tokens"], 0);
        assert_eq!(again[0]["digest"], talk[2]["digest"]);
        assert_eq!(again[0]["ids"], talk[2]["ids"]);
        // Another seed in between leaves nothing behind, and the whole prompt is reused.
        assert_eq!((&again[1]["seed"], &again[2]["seed"]), (&1.into(), &0.into()));
        assert_ne!(again[1]["digest"]["logits"], talk[2]["digest"]["logits"]);
        assert_eq!(again[2]["digest"], talk[2]["digest"]);
        assert_eq!(again[2]["reused_tokens"], again[2]["usage"]["prompt_tokens"]);
    }
}

#[test]
fn the_history_can_be_edited() {
    let model = mini();
    let args = ["-m", &model, "-n", "6", "--steps", "2"];
    let (v, err) = ok(
        &args,
        "one\ntwo\n/edit 4 my own\n/edit 1 one\n/history\n/undo\n/system Short.\n/seed 7\n/steps 3\none\n/clear\n\
         /system -\n/seed 0\n/set steps 2\none\n",
    );
    assert_eq!(v.len(), 5);
    let digest = |i: usize| &v[i]["digest"];
    assert_eq!(digest(2), digest(0), "the first question again");
    assert_eq!((&v[3]["seed"], &v[3]["diffusion"]["parameters"]["steps"]), (&7.into(), &3.into()));
    assert!(v[3]["usage"]["prompt_tokens"].as_u64() > v[0]["usage"]["prompt_tokens"].as_u64());
    assert_eq!(digest(4), digest(0), "everything as in the beginning");
    for part in ["message 4 is changed", "1 user: one\n2 assistant: ", "question 1 and its answer", "seed 7"]
    {
        assert!(err.contains(part), "{part}\n{err}");
    }
    assert!(!err.contains("3 user"), "{err}");
}

#[test]
fn an_error_ends_a_conversation_from_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let exists = dir.path().join("exists.json");
    std::fs::write(&exists, "mine").unwrap();
    let exists = exists.display().to_string();
    let model = mini();
    let args = ["-m", &model, "-n", "4", "--steps", "1"];
    for (line, part) in [
        ("/frob".to_string(), "there is no command /frob"),
        ("/steps 0".into(), "steps: expected an integer in 1..=4096, found `0`"),
        ("/set wat 1".into(), "no parameter `wat`; it has steps"),
        ("/seed x".into(), "expected `random` or a whole number"),
        ("/undo".into(), "nothing was said yet"),
        ("/regenerate".into(), "nothing was asked yet"),
        ("/edit 3 x".into(), "there are 0 messages"),
        (format!("/save {exists}"), "exists: /save!"),
        (format!("/load {exists}"), "is no saved conversation"),
        ("/load no/such.json".into(), "cannot read no/such.json"),
        (format!("/load {}", dir.path().display()), "is a folder"),
    ] {
        let (answers, done) = answers(&args, &format!("{line}\nHello\n"));
        assert_eq!((done.code, answers.len()), (Some(2), 0), "{line}: {}", done.err);
        assert!(done.err.starts_with("error: ") && done.err.contains(part), "{line}: {}", done.err);
    }
    assert_eq!(std::fs::read(&exists).unwrap(), b"mine");
    assert_eq!(redraft(&["chat", "-m", "no/such.gguf"]).code, Some(2));
}

#[test]
fn a_full_context_is_an_error_or_slides() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.json").display().to_string();
    let model = mini();
    let args = ["-m", &model, "-n", "16", "--steps", "2", "-c", "90"];
    let lines = "first question\nsecond question\nthird question\nfourth question\n";
    let (few, done) = answers(&args, lines);
    assert_eq!(done.code, Some(2), "{}", done.err);
    for part in ["the conversation has become too long", "--ctx-overflow slide", "context of 90"] {
        assert!(done.err.contains(part), "{}", done.err);
    }
    assert!((1..4).contains(&few.len()));

    let slide = [&args[..], &["--ctx-overflow", "slide", "--system", "Sys."]].concat();
    let (all, err) = ok(&slide, &format!("{lines}/save {file}\n/history\n"));
    assert_eq!(all.len(), 4);
    let left_out = all[3]["turns_left_out"].as_u64().unwrap();
    assert!(left_out > 0 && all[0]["turns_left_out"] == 0);
    assert!(err.contains(&format!("the oldest {left_out} of 3 turns are left out")), "{err}");
    assert!(err.contains("1 user (left out of the context): first question"), "{err}");
    assert!(all.iter().all(|v| v["usage"]["prompt_tokens"].as_u64().unwrap() + 16 <= 90));
    // The answer is that of the shorter conversation, and no more was left out than needed.
    let with_turns_from = |first: u64| {
        let mut v: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let messages = v["messages"].as_array_mut().unwrap();
        messages.drain(1..1 + 2 * first as usize);
        let path = dir.path().join("short.json");
        std::fs::write(&path, v.to_string()).unwrap();
        answers(
            &[&args[..], &["--system", "Sys."]].concat(),
            &format!("/load {}\n/regenerate 0\n", path.display()),
        )
    };
    assert_eq!(with_turns_from(left_out).0[0]["digest"], all[3]["digest"]);
    assert_eq!(with_turns_from(left_out - 1).1.code, Some(2));

    let alone =
        "a question that is by itself far longer than all of the context that there is here".repeat(3);
    let (_, done) = answers(&slide, &format!("hi\n{alone}\n"));
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("the question alone is too long"), "{}", done.err);
    let done = redraft(&["run", "-m", &model, "--ctx-overflow", "slide", "x"]);
    assert!(done.code == Some(2) && done.err.contains("`run` has no earlier turns"), "{}", done.err);
}

/// A model read whole writes one canvas, and the sampler of RND1 keeps a position after it.
#[test]
fn room_for_an_answer_of_one_canvas_is_that_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("plain.jinja");
    std::fs::write(&template, "{% for m in messages %}{{ m.content }}\n{% endfor %}").unwrap();
    let template = template.display().to_string();
    let lines = format!("{}\nsecond question\n", "first question ".repeat(40));
    let check = |name: &str, args: &[&str], room: u64| {
        let model = crate::testdata("oracle/models").join(name).display().to_string();
        let args = [
            &["-m", &model, "--chat-template", &template, "--steps", "1", "--ctx-overflow", "slide"][..],
            args,
        ]
        .concat();
        let (wide, _) = ok(&args, &lines);
        let prompt = wide[1]["usage"]["prompt_tokens"].as_u64().unwrap();
        for (context, left_out) in [(prompt + room, 0), (prompt + room - 1, 1)] {
            let context = context.to_string();
            let (v, err) = ok(&[&args[..], &["-c", &context]].concat(), &lines);
            assert_eq!(v[1]["turns_left_out"], left_out, "{name}, a context of {context}: {err}");
        }
    };
    check("rnd1-tiny.BF16.gguf", &["-n", "8"], 9);
    check("llada-tiny.BF16.gguf", &[], 128);
}

/// Of a model that reads block by block whole blocks are reused, with the bits of a fresh run, and old turns go where
/// prompt and whole canvases do not fit.
#[test]
fn a_conversation_in_blocks_is_that_of_fresh_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (template, file) = (path("plain.jinja"), path("c.json"));
    std::fs::write(&template, "{% for m in messages %}{{ m.content }}\n{% endfor %}").unwrap();
    for (name, block) in [("sdar-moe-tiny.BF16.gguf", 8), ("fast-dllm-tiny.BF16.gguf", 16)] {
        let model = crate::testdata("block-diffusion/models").join(name).display().to_string();
        let args = ["-m", &model, "--chat-template", &template, "-n", "20", "--ctx-overflow", "slide"];
        let lines = "A first question.\nA second one, which is longer.\nAnd a third.\n";
        let (talk, _) = ok(&args, &format!("{lines}/save! {file}\n"));
        let (again, _) = ok(&args, &format!("/load {file}\n/regenerate\n"));
        assert_eq!(
            (&again[0]["reused_tokens"], &again[0]["digest"]),
            (&0.into(), &talk[2]["digest"]),
            "{name}"
        );
        let number = |v: &Value| v.as_u64().unwrap();
        let reused = number(&talk[2]["reused_tokens"]);
        assert!(reused > 0 && reused % block == 0, "{name}: {reused}");
        // The third prompt, 20 tokens, and what is left of their block.
        let room = (number(&talk[2]["usage"]["prompt_tokens"]) + 20).next_multiple_of(block);
        for (context, left_out) in [(room, 0), (room - 1, 1)] {
            let (v, err) = ok(&[&args[..], &["-c", &context.to_string()]].concat(), lines);
            assert_eq!(v[2]["turns_left_out"], left_out, "{name}, a context of {context}: {err}");
        }
    }
}
