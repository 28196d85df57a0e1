//! `redraft serve`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{command, json, redraft};

#[test]
fn what_is_served_is_what_run_answers() {
    let args = ["serve", "--port", "0", "-t", "1", "--json"];
    let mut server = command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let listening: Value = serde_json::from_str(&line).unwrap();
    let address = listening["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let body = r#"{"messages": [{"role": "user", "content": "What is 7 + 8?"}], "seed": 5}"#;
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
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

#[test]
fn networks_need_a_key() {
    let done = redraft(&["serve", "--host", "0.0.0.0", "--port", "0"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("REDRAFT_API_KEY") && done.err.contains("--no-auth"), "{}", done.err);
    let done = redraft(&["serve", "--parallel", "0"]);
    assert!(done.code == Some(2) && done.err.contains("--parallel"), "{}", done.err);
}
