//! `redraft batch`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Done, command, json as run_json, mini, redraft};

/// A folder with a file of requests, and where answers go.
struct Files {
    _dir: tempfile::TempDir,
    input: PathBuf,
    output: PathBuf,
}

impl Files {
    fn new(lines: &[String]) -> Files {
        let dir = tempfile::tempdir().unwrap();
        let files =
            Files { input: dir.path().join("in.jsonl"), output: dir.path().join("out.jsonl"), _dir: dir };
        fs::write(&files.input, lines.join("\n") + "\n").unwrap();
        files
    }

    fn args<'a>(&'a self, output: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
        let all = ["batch", self.input.to_str().unwrap(), output.to_str().unwrap(), "-t", "1", "--json"];
        [&all, more].concat()
    }

    fn run(&self, more: &[&str]) -> Done {
        redraft(&self.args(&self.output, more))
    }

    fn start(&self) -> Child {
        let quiet = std::process::Stdio::null;
        command(&self.args(&self.output, &["--parallel", "2"]))
            .stdout(quiet())
            .stderr(quiet())
            .spawn()
            .unwrap()
    }

    fn answers(&self) -> BTreeMap<String, Value> {
        answers(&self.output)
    }
}

/// The lines of a file of answers by their ids, each id once, without what depends on the time and the company.
fn answers(path: &Path) -> BTreeMap<String, Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let mut told: Value = serde_json::from_str(line).unwrap();
        let key = told["custom_id"].as_str().map_or_else(|| told["error"]["line"].to_string(), String::from);
        if let Some(response) = told["response"].as_object_mut() {
            assert_eq!(
                response["request_id"],
                response["body"].get("id").unwrap_or(&response["request_id"]).clone()
            );
            response.remove("request_id");
            let body = response["body"].as_object_mut().unwrap();
            body.retain(|name, _| name != "id" && name != "created");
            body.get_mut("usage").and_then(Value::as_object_mut).map(|u| u.remove("prompt_tokens_details"));
        }
        assert!(all.insert(key, told).is_none(), "{line}");
    }
    all
}

fn request(id: &str, body: Value) -> String {
    json!({"custom_id": id, "method": "POST", "url": "/v1/chat/completions", "body": body}).to_string()
}

fn question(text: &str, seed: usize) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "seed": seed, "max_tokens": 24})
}

/// So many requests.
fn sums(n: usize) -> Vec<String> {
    (0..n).map(|i| request(&format!("sum-{i}"), question(&format!("What is {i} + {}?", 3 * i), i))).collect()
}

#[test]
fn answers_are_those_of_single_runs() {
    let mut lines = sums(3);
    let gap = json!({"prompt": "The capital of ", "suffix": " is Paris.", "max_tokens": 3, "seed": 1});
    lines.push(
        json!({"custom_id": "gap", "method": "POST", "url": "/v1/completions", "body": gap}).to_string(),
    );
    let files = Files::new(&lines);
    let done = files.run(&[]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    let counts = ["requests", "already", "answered", "failed"].map(|name| report[name].as_u64().unwrap());
    assert_eq!((counts, &report["interrupted"]), ([4, 0, 4, 0], &json!(false)));
    let all = files.answers();
    let mut tokens = 0;
    for i in 0..3 {
        let told = &all[&format!("sum-{i}")];
        assert_eq!((&told["response"]["status_code"], &told["error"]), (&json!(200), &Value::Null));
        let body = &told["response"]["body"];
        let (seed, text) = (i.to_string(), format!("What is {i} + {}?", 3 * i));
        let run = run_json(&["run", "--seed", &seed, "-n", "24", "-t", "1", &text]);
        assert_eq!(body["choices"][0]["message"]["content"], run["text"]);
        assert_eq!(body["choices"][0]["diffusion"]["digest"], run["digest"]);
        tokens += body["usage"]["completion_tokens"].as_u64().unwrap();
    }
    let gap = &all["gap"]["response"]["body"];
    assert_eq!(
        (&gap["object"], &gap["choices"][0]["finish_reason"]),
        (&json!("text_completion"), &json!("stop"))
    );
    assert_eq!(report["completion_tokens"], tokens + gap["usage"]["completion_tokens"].as_u64().unwrap());

    // Nothing is asked twice.
    let before = fs::read(&files.output).unwrap();
    let again: Value = serde_json::from_str(&files.run(&[]).out).unwrap();
    let counts = ["requests", "already", "answered", "completion_tokens"].map(|n| again[n].as_u64().unwrap());
    assert_eq!(counts, [4, 4, 4, 0]);
    assert_eq!(fs::read(&files.output).unwrap(), before);
    let text = redraft(&["batch", files.input.to_str().unwrap(), files.output.to_str().unwrap()]);
    assert_eq!(text.out, "answered 4 of 4 requests, 4 before this run\n");
}

/// Numbers that look random.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[cfg(unix)]
#[test]
fn a_run_that_is_killed_goes_on_without_loss_and_without_doubles() {
    let mut lines = sums(40);
    lines.insert(7, "no request".into());
    let files = Files::new(&lines);
    let whole = files.output.with_file_name("whole.jsonl");
    assert_eq!(redraft(&files.args(&whole, &["--parallel", "3"])).code, Some(1));
    let whole = answers(&whole);
    assert_eq!(whole.len(), 41);
    let mut state = 7;
    let mut killed = 0;
    for round in 0.. {
        let size = || fs::metadata(&files.output).map_or(0, |m| m.len());
        let from = size();
        let mut child = files.start();
        // Some moment after it has begun to write.
        while size() == from && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random(&mut state) as u64 % 20_000));
        child.kill().unwrap();
        if child.wait().unwrap().code().is_some() {
            break;
        }
        killed += 1;
        let text = fs::read(&files.output).unwrap();
        if text.is_empty() {
            continue;
        }
        // A machine that ends leaves a part of the last line.
        let last =
            text.len() - text[..text.len() - 1].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let cut = random(&mut state) % last;
        if round % 2 == 0 {
            fs::OpenOptions::new()
                .write(true)
                .open(&files.output)
                .unwrap()
                .set_len((text.len() - cut) as u64)
                .unwrap();
        }
    }
    assert!(killed > 0);
    assert_eq!(files.answers(), whole);
    assert_eq!(files.run(&[]).code, Some(1), "one line is no request");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_what_is_being_made_and_the_rest_goes_on_later() {
    let files = Files::new(&sums(400));
    let mut child = files.start();
    while fs::read(&files.output).is_ok_and(|text| !text.contains(&b'\n')) || !files.output.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let some = files.answers();
    assert!((1..400).contains(&some.len()), "{}", some.len());
    assert_eq!(files.run(&[]).code, Some(0));
    let all = files.answers();
    assert_eq!(all.len(), 400);
    assert!(some.iter().all(|(id, told)| all[id] == *told));
}

#[test]
fn processes_share_a_file() {
    let mut lines = sums(7);
    // Empty lines count for nobody.
    lines.insert(2, String::new());
    let files = Files::new(&lines);
    let all = files.output.with_file_name("all.jsonl");
    assert_eq!(redraft(&files.args(&all, &[])).code, Some(0));
    let mut parts = BTreeMap::new();
    for (i, n) in [(1, 3), (2, 2), (3, 2)] {
        let (path, shard) = (files.output.with_file_name(format!("{i}.jsonl")), format!("{i}/3"));
        assert_eq!(redraft(&files.args(&path, &["--shard", &shard])).code, Some(0));
        let part = answers(&path);
        assert_eq!(part.len(), n);
        assert!(part.contains_key(&format!("sum-{}", i - 1)));
        parts.extend(part);
    }
    assert_eq!(parts, answers(&all));
    let other = redraft(&files.args(&files.output.with_file_name("1.jsonl"), &["--shard", "2/3"]));
    assert!(other.code == Some(2) && other.err.contains("another shard"), "{}", other.err);
    for wrong in ["0/3", "4/3", "1", "1/0", "a/b"] {
        let done = files.run(&["--shard", wrong]);
        assert!(done.code == Some(2) && done.err.contains("--shard"), "{}", done.err);
    }
}

#[test]
fn lines_that_are_no_requests_are_told_and_the_others_answered() {
    let chat = |more: Value| {
        let mut line = json!({"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": question("Hi", 0)});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line.to_string()
    };
    let deep = format!("{{\"custom_id\": {}1{}}}", "[".repeat(500), "]".repeat(500));
    let cases = [
        ("{", "not JSON"),
        ("[1]", "expected a JSON object"),
        ("5", "expected a JSON object"),
        ("\u{0}", "not JSON"),
        (&deep, "not JSON"),
        (&chat(json!({"custom_id": "method", "method": "GET"})), "method: expected \"POST\""),
        (
            &chat(json!({"custom_id": "url", "url": "/v1/embeddings"})),
            "url: expected /v1/chat/completions or",
        ),
        (&chat(json!({"custom_id": "long", "method": "x".repeat(5000)})), "x… (5002 bytes)"),
        (&chat(json!({"custom_id": "long-url", "url": "x".repeat(5000)})), "x… (5002 bytes)"),
        (&chat(json!({"custom_id": "body", "body": [1]})), "body: expected an object"),
        (&chat(json!({"custom_id": "more", "bodie": 1})), "bodie: this field is not supported"),
        (&chat(json!({"custom_id": "stream", "body": {"messages": [], "stream": true}})), "not streamed"),
    ];
    let mut lines: Vec<String> = cases.iter().map(|(line, _)| line.to_string()).collect();
    lines.push(chat(json!({"custom_id": "refused", "body": {"messages": 5}})));
    lines.push(chat(json!({"custom_id": "good"})));
    let files = Files::new(&lines);
    // Bytes that are no text.
    let mut bytes = fs::read(&files.input).unwrap();
    bytes.extend_from_slice(b"{\"custom_id\": \"\xff\"}\n");
    fs::write(&files.input, bytes).unwrap();
    let done = files.run(&[]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    let all = files.answers();
    assert_eq!(all.len(), cases.len() + 3);
    for (i, (line, why)) in cases.iter().enumerate() {
        let told = all.values().find(|t| t["error"]["line"] == i + 1).unwrap();
        let message = told["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("line {}: ", i + 1)) && message.contains(why),
            "{line}: {message}"
        );
        assert_eq!((&told["response"], &told["error"]["code"]), (&Value::Null, &json!("invalid_request")));
    }
    assert!(all["15"]["custom_id"].is_null());
    let refused = &all["refused"]["response"];
    assert_eq!(
        (&refused["status_code"], &refused["body"]["error"]["param"]),
        (&json!(400), &json!("messages"))
    );
    assert_eq!(all["good"]["response"]["status_code"], 200);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&report["answered"], &report["failed"]), (&json!(1), &json!(cases.len() + 2)));
}

#[test]
fn requests_that_cannot_be_told_apart_are_refused_before_anything_runs() {
    let with = |id: Value| json!({"custom_id": id, "method": "POST"}).to_string();
    let cases = [
        (
            vec![with(json!("a")), String::new(), with(json!("a"))],
            "in.jsonl, line 3: an earlier line has the custom_id \"a\"",
        ),
        (
            vec![with(json!("a")), json!({"method": "POST"}).to_string()],
            "line 2: expected a custom_id that is a text of at most 1024 bytes, found none",
        ),
        (vec![with(json!(5))], "line 1: expected a custom_id that is a text of at most 1024 bytes, found 5"),
        (vec![with(json!("x".repeat(1025)))], "x… (1027 bytes)"),
        (vec![with(json!(""))], "of at most 1024 bytes, found \"\""),
        (vec![String::new()], "has no requests"),
    ];
    for (lines, why) in cases {
        let files = Files::new(&lines);
        let done = files.run(&[]);
        assert!(done.code == Some(2) && done.err.contains(why), "{}", done.err);
        assert!(!files.output.exists());
    }
}

#[test]
fn answers_to_something_else_are_left_as_they_are() {
    let files = Files::new(&sums(2));
    assert_eq!(files.run(&[]).code, Some(0));
    let good = fs::read_to_string(&files.output).unwrap();
    let first = good.lines().next().unwrap();
    let changed = |from: &str, to: &str| {
        assert!(first.contains(from));
        format!("{}\n", first.replacen(from, to, 1))
    };
    let id = serde_json::from_str::<Value>(first).unwrap()["custom_id"].as_str().unwrap().to_owned();
    let cases = [
        ("some text".into(), "expected an answer of this command"),
        ("some text\n".into(), "expected an answer of this command"),
        ("{\"id\": \"batch_req_".into(), "expected an answer of this command"),
        ("\n".into(), "expected an answer of this command"),
        ("{}\n".into(), "expected an answer of this command"),
        (format!("{good}{{\"x\": 1}}\n"), "line 3, is left as it is"),
        (changed("\"error\":null", "\"err\":null"), "expected an answer of this command"),
        (changed("\"response\":{", "\"response\":null,\"x\":{"), "expected an answer of this command"),
        (changed(&id, "other"), "it answers the custom_id \"other\", which is not in the input"),
        (format!("{good}{first}\n"), "once more"),
    ];
    for (text, why) in cases {
        fs::write(&files.output, &text).unwrap();
        let done = files.run(&[]);
        assert!(done.code == Some(2) && done.err.contains(why), "{text}: {}", done.err);
        assert_eq!(fs::read_to_string(&files.output).unwrap(), text);
    }
    fs::write(&files.output, &good).unwrap();
    let done = files.run(&["--numerics", "exact"]);
    assert!(
        done.code == Some(2) && done.err.contains("another model, or with other options"),
        "{}",
        done.err
    );
    // The same header, another weight.
    let (model, other) = (files.input.with_file_name("a.gguf"), files.input.with_file_name("b.gguf"));
    fs::copy(mini(), &model).unwrap();
    let gguf = redraft::gguf::Gguf::open(&model, &Default::default()).unwrap();
    let mut bytes = gguf.bytes().to_vec();
    bytes[gguf.tensor("token_embd.weight").unwrap().offset as usize + 40] ^= 1;
    fs::write(&other, bytes).unwrap();
    let path = files.output.with_file_name("models.jsonl");
    let with = |model: &Path| redraft(&files.args(&path, &["-m", model.to_str().unwrap()]));
    assert!(matches!(with(&model).code, Some(0 | 1)));
    let before = fs::read(&path).unwrap();
    assert!(matches!(with(&model).code, Some(0 | 1)));
    let done = with(&other);
    assert!(done.code == Some(2) && done.err.contains("answers of another model"), "{}", done.err);
    assert_eq!(fs::read(&path).unwrap(), before);

    fs::write(&files.input, sums(2).join("\n").replace("seed", "sEEd")).unwrap();
    let done = files.run(&[]);
    assert!(done.code == Some(2) && done.err.contains("asks something else in the input"), "{}", done.err);
    assert_eq!(fs::read_to_string(&files.output).unwrap(), good);

    let same = redraft(&files.args(&files.input, &[]));
    assert!(same.code == Some(2) && same.err.contains("also an input"), "{}", same.err);
}

#[test]
fn two_processes_do_not_write_one_file() {
    let files = Files::new(&sums(1));
    let held = fs::File::create(&files.output).unwrap();
    held.lock().unwrap();
    let done = files.run(&[]);
    assert!(done.code == Some(2) && done.err.contains("is being written by another process"), "{}", done.err);
    held.unlock().unwrap();
    assert_eq!(files.run(&[]).code, Some(0));
}
