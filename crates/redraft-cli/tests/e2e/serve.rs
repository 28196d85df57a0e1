//! `redraft serve`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{command, json, redraft};

#[test]
fn what_is_served_is_what_run_answers() {
    let args = ["serve", "--port", "0", "-t", "1", "--json"];
    let mut server = command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let address = listening(&mut server);
    let body = r#"{"messages": [{"role": "user", "content": "What is 7 + 8?"}], "seed": 5}"#;
    let mut stream = post(&address, body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, answer) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let answer: Value = serde_json::from_str(answer).unwrap();
    let run = json(&["run", "--seed", "5", "-t", "1", "What is 7 + 8?"]);
    assert_eq!(answer["choices"][0]["message"]["content"], run["text"]);
    assert_eq!(answer["choices"][0]["diffusion"]["digest"], run["digest"]);
    assert_eq!(answer["usage"]["total_tokens"], run["usage"]["total_tokens"]);
    // Somebody who waits for nothing does not keep it from ending.
    assert!(Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

/// The address of a server that was started with `--json`.
fn listening(server: &mut std::process::Child) -> String {
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let listening: Value = serde_json::from_str(&line).unwrap();
    listening["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned()
}

fn post(address: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

#[test]
fn a_server_that_is_killed_ends_its_streams_and_starts_again_at_its_place() {
    let mut server =
        command(&["serve", "--port", "0", "-t", "1", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let address = listening(&mut server);
    let endless = r#"{"messages": [{"role": "user", "content": "Hi"}], "stream": true, "max_tokens": 400,
        "stream_options": {"include_drafts": true}, "diffusion": {"steps": 4096, "confidence": 0}}"#;
    let mut stream = BufReader::new(post(&address, endless));
    let mut seen = String::new();
    while !seen.contains("\"positions\"") {
        assert!(stream.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
    // The client hears that it was not the end.
    let _ = stream.read_to_string(&mut seen);
    assert!(!seen.contains("[DONE]"));

    let port = address.rsplit(':').next().unwrap();
    let again = ["serve", "--port", port, "-t", "1", "--json"];
    let mut server = command(&again).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(listening(&mut server), address);
    let mut answer = String::new();
    let question = r#"{"messages": [{"role": "user", "content": "What is 7 + 8?"}], "seed": 5}"#;
    post(&address, question).read_to_string(&mut answer).unwrap();
    let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let run = json(&["run", "--seed", "5", "-t", "1", "What is 7 + 8?"]);
    assert_eq!(answer["choices"][0]["diffusion"]["digest"], run["digest"]);
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn networks_need_a_key() {
    let done = redraft(&["serve", "--host", "0.0.0.0", "--port", "0"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("REDRAFT_API_KEY") && done.err.contains("--no-auth"), "{}", done.err);
    let done = redraft(&["serve", "--parallel", "0"]);
    assert!(done.code == Some(2) && done.err.contains("--parallel"), "{}", done.err);
}
