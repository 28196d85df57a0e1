//! What the server refuses, and how it ends.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use common::{Response, chat, connect, get, metric, model, parse, post, raw, request, start, until};
use redraft_server::{Config, Server, ServerError};
use serde_json::{Value, json};

const JSON: &str = "content-type: application/json\r\n";

fn hi(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The status and the field of an error, whose body must have its form.
fn refused(response: &Response) -> (u16, String) {
    let body = response.json();
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "{body}");
    assert!(error["type"].is_string() && error.as_object().unwrap().len() == 4, "{body}");
    (response.status, error["param"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn fields_are_honoured_or_refused_by_name() {
    let server = start(Config::default());
    let part = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
    let cases = [
        (json!({}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "robot", "content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content"),
        (json!({"messages": [{"role": "user", "content": "x", "mood": 1}]}), "messages[0].mood"),
        (part(json!({"type": "image_url", "image_url": {"url": "x"}})), "messages[0].content[0].type"),
        (part(json!({"type": "text", "text": "x", "y": 1})), "messages[0].content[0].y"),
        (hi(json!({"seed": -1})), "seed"),
        (hi(json!({"seed": 1.5})), "seed"),
        (hi(json!({"n": 0})), "n"),
        (hi(json!({"n": 9})), "n"),
        (hi(json!({"stop": ""})), "stop"),
        (hi(json!({"stop": ["a", "b", "c", "d", "e"]})), "stop"),
        (hi(json!({"stop": [1]})), "stop"),
        (hi(json!({"max_tokens": 0})), "max_tokens"),
        (hi(json!({"max_tokens": 1_000_000_000_000_000u64})), "max_tokens"),
        (hi(json!({"max_tokens": 5, "max_completion_tokens": 6})), "max_tokens"),
        (hi(json!({"temperature": "hot"})), "temperature"),
        (hi(json!({"temperature": -1})), "temperature"),
        (hi(json!({"top_p": 0.5})), "top_p"),
        (hi(json!({"frequency_penalty": 0.5})), "frequency_penalty"),
        (hi(json!({"top_k": 5})), "top_k"),
        (hi(json!({"logprobs": 1})), "logprobs"),
        (hi(json!({"top_logprobs": 2})), "top_logprobs"),
        (hi(json!({"logprobs": true, "top_logprobs": 21})), "top_logprobs"),
        (hi(json!({"logit_bias": {"x": 1}})), "logit_bias"),
        (hi(json!({"logit_bias": {"5": 101}})), "logit_bias"),
        (hi(json!({"logit_bias": {"4000000": 1}})), "logit_bias"),
        (hi(json!({"logit_bias": {"5": 1, "05": 2}})), "logit_bias"),
        (hi(json!({"structured_outputs": {}})), "structured_outputs"),
        (hi(json!({"structured_outputs": {"regex": "a", "choice": ["b"]}})), "structured_outputs"),
        (hi(json!({"structured_outputs": {"grammar": "root ::= x"}})), "structured_outputs.grammar"),
        (hi(json!({"structured_outputs": {"json": "{"}})), "structured_outputs.json"),
        (hi(json!({"structured_outputs": {"regex": "("}})), "structured_outputs"),
        (hi(json!({"structured_outputs": {"choice": [1]}})), "structured_outputs.choice"),
        (
            hi(json!({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}})),
            "structured_outputs",
        ),
        (hi(json!({"grammar": "root ::= x"})), "grammar"),
        (hi(json!({"guided_regex": "x"})), "guided_regex"),
        (hi(json!({"stream": "yes"})), "stream"),
        (hi(json!({"stream_options": {}})), "stream_options"),
        (hi(json!({"stream": true, "stream_options": {"x": 1}})), "stream_options.x"),
        (
            hi(json!({"stream": true, "stream_options": {"include_alternatives": true}})),
            "stream_options.include_alternatives",
        ),
        (hi(json!({"response_format": {"type": "xml"}})), "response_format.type"),
        (hi(json!({"response_format": {"type": "json_schema"}})), "response_format.json_schema"),
        (
            hi(json!({"response_format": {"type": "json_schema", "json_schema": {}}})),
            "response_format.json_schema.schema",
        ),
        (hi(json!({"response_format": {"type": "json_object"}, "max_tokens": 1})), "max_tokens"),
        (hi(json!({"tools": 5})), "tools"),
        (hi(json!({"tools": [{"type": "function"}]})), "tools[0]"),
        (
            hi(json!({"tools": [{"type": "function", "function": {"name": "f", "x": 1}}]})),
            "tools[0].function.x",
        ),
        (hi(json!({"tool_choice": {"type": "function"}})), "tool_choice"),
        (hi(json!({"tool_choice": "required"})), "tool_choice"),
        (hi(json!({"metadata": 5})), "metadata"),
        (hi(json!({"user": 5})), "user"),
        (hi(json!({"diffusion": 5})), "diffusion"),
        (hi(json!({"diffusion": {"sampler": "none"}})), "diffusion.sampler"),
        (hi(json!({"diffusion": {"sampler": "random"}})), "diffusion.sampler"),
        (hi(json!({"diffusion": {"stepz": 5}})), "diffusion.stepz"),
        (hi(json!({"diffusion": {"steps": 0}})), "diffusion.steps"),
        (hi(json!({"diffusion": {"steps": 2.5}})), "diffusion.steps"),
        (hi(json!({"reasoning_effort": "low"})), "reasoning_effort"),
        (hi(json!({"chat_template_kwargs": {"x": 1}})), "chat_template_kwargs.x"),
        (hi(json!({"unheard_of": null, "of": 1})), "of"),
        (json!([1]), "body"),
    ];
    for (body, field) in &cases {
        let found = refused(&chat(server.address, body));
        assert_eq!(found, (400, field.to_string()), "{body}");
    }
    let cases = [
        (json!({}), "prompt"),
        (json!({"prompt": ""}), ""),
        (json!({"prompt": [1, "x"]}), "prompt"),
        (json!({"prompt": [4_000_000]}), "prompt"),
        (json!({"prompt": "x", "best_of": 2}), "best_of"),
        (json!({"prompt": "x", "logprobs": 6}), "logprobs"),
        (json!({"prompt": "x", "logprobs": 1, "echo": true}), "logprobs"),
        (json!({"prompt": "x", "logprobs": 1, "suffix": "y"}), "logprobs"),
        (json!({"prompt": [1], "suffix": "x"}), "suffix"),
        (json!({"prompt": "x", "messages": []}), "messages"),
    ];
    for (body, field) in &cases {
        let response = post(server.address, "/v1/completions", body);
        if field.is_empty() {
            // A begin of sequence is a prompt for models that have one.
            assert_eq!(response.status, 200, "{}", response.text());
        } else {
            assert_eq!(refused(&response), (400, field.to_string()), "{body}");
        }
    }
    assert_eq!(refused(&chat(server.address, &hi(json!({"model": "gpt"})))), (404, "model".into()));
    // The demo model's template knows of no tools.
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    assert_eq!(refused(&chat(server.address, &hi(json!({"tools": [tool]})))), (400, "tools".into()));
    let without = chat(server.address, &hi(json!({"max_tokens": 4}))).json();
    let none = hi(json!({"tools": [tool], "tool_choice": "none", "max_tokens": 4}));
    assert_eq!(chat(server.address, &none).json()["choices"], without["choices"]);
    assert_eq!(
        chat(server.address, &hi(json!({"tools": [], "tool_choice": "auto", "max_tokens": 4}))).json()["choices"]
            [0]["message"],
        without["choices"][0]["message"]
    );
}

#[test]
fn hostile_requests_are_answered_in_order() {
    let server = start(Config { max_body_bytes: 10_000, ..Config::default() });
    let address = server.address;
    let send = |headers: &str, body: &[u8]| {
        refused(&raw(address, &request("POST", "/v1/chat/completions", headers, body)))
    };
    assert_eq!(
        send(JSON, b"{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\xfe\"}]}"),
        (400, "body".into())
    );
    assert_eq!(send(JSON, b"{"), (400, "body".into()));
    assert_eq!(send(JSON, b""), (400, "body".into()));
    let deep = [b"{\"a\":".repeat(1000), b"1".to_vec(), b"}".repeat(1000)].concat();
    assert_eq!(send(JSON, &deep), (400, "body".into()));
    assert_eq!(send(JSON, &[b'['; 9000]), (400, "body".into()));
    assert_eq!(send(JSON, &vec![b' '; 20_000]).0, 413);
    assert_eq!(send("", b"{}").0, 415);
    assert_eq!(send("content-type: text/plain\r\n", b"{}").0, 415);
    // A body that does not say how long it is.
    let mut chunked = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
        content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_vec();
    for _ in 0..20 {
        chunked.extend_from_slice(b"400\r\n");
        chunked.extend_from_slice(&[b' '; 1024]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(refused(&raw(address, &chunked)).0, 413);
    assert_eq!(refused(&get(address, "/v1/chat/completions")).0, 405);
    assert_eq!(refused(&post(address, "/v1/models", &json!({}))).0, 405);
    assert_eq!(refused(&get(address, "/v2")).0, 404);
    let other = b"GET /v1/models HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert_eq!(refused(&raw(address, other)).0, 403);
    assert_eq!(raw(address, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").status, 403);
    let long = format!("x: {}\r\n", "y".repeat(500_000));
    assert_eq!(raw(address, &request("GET", "/health", &long, b"")).status, 431);
    assert_eq!(raw(address, b"\x16\x03\x01\x00\xa5\x01\x00\x00\r\n\r\n").status, 400);
    // Answers go to no page of another origin.
    let cross = raw(address, &request("GET", "/v1/models", "origin: http://evil.example\r\n", b""));
    assert!(cross.header("access-control-allow-origin").is_none());
    assert_eq!(get(address, "/health").status, 200);
}

#[test]
fn keys_are_asked_for() {
    let server = start(Config { api_key: Some("k3y".into()), ..Config::default() });
    let with = |path: &str, header: &str| raw(server.address, &request("GET", path, header, b""));
    assert_eq!(refused(&with("/v1/models", "")).0, 401);
    assert_eq!(refused(&with("/v1/models", "authorization: Bearer k3x\r\n")).0, 401);
    assert_eq!(refused(&with("/v1/models", "authorization: k3y\r\n")).0, 401);
    assert_eq!(refused(&with("/metrics", "")).0, 401);
    assert_eq!(refused(&with("/nothing", "")).0, 401);
    assert_eq!(refused(&chat(server.address, &hi(json!({})))).0, 401);
    assert_eq!(with("/v1/models", "authorization: Bearer k3y\r\n").status, 200);
    for path in ["/", "/page/page.js", "/health", "/ready"] {
        assert_eq!(with(path, "").status, 200, "{path}");
    }
}

#[test]
fn addresses_of_networks_need_a_key() {
    let bind = |config| Server::bind(model(), "0.0.0.0:0", config).map(drop);
    assert!(matches!(bind(Config::default()), Err(ServerError::Open { .. })));
    assert!(bind(Config { open: true, ..Config::default() }).is_ok());
    assert!(bind(Config { api_key: Some("k".into()), ..Config::default() }).is_ok());
    let empty = Config { api_key: Some(String::new()), ..Config::default() };
    assert!(matches!(bind(empty), Err(ServerError::Config { .. })));
}

/// An answer that takes a while: many steps that cannot converge.
fn long() -> Value {
    hi(
        json!({"max_tokens": 256, "stream": true, "diffusion": {"steps": 4096, "confidence": 0, "stability": 4096}}),
    )
}

/// Asks and reads the head of the answer only.
fn begin(address: SocketAddr, body: &Value) -> std::net::TcpStream {
    let mut stream = connect(address);
    let body = body.to_string();
    stream.write_all(&request("POST", "/v1/chat/completions", JSON, body.as_bytes())).unwrap();
    let mut start = [0; 15];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    stream
}

#[test]
fn places_are_bounded_and_given_back() {
    let server = start(Config { parallel: 1, max_queue: 1, ..Config::default() });
    let address = server.address;
    let running = begin(address, &long());
    // The second waits, without a word yet.
    let mut waiting = connect(address);
    let body = hi(json!({"max_tokens": 3})).to_string();
    waiting.write_all(&request("POST", "/v1/chat/completions", JSON, body.as_bytes())).unwrap();
    until(address, "redraft_queue_waiting", 1.0);
    let third = chat(address, &hi(json!({})));
    assert_eq!(refused(&third), (429, String::new()));
    assert_eq!(third.header("retry-after"), Some("1"));
    assert_eq!(refused(&chat(address, &hi(json!({"n": 3})))), (400, "n".into()));
    // The one that runs goes away: its place is the next one's.
    drop(running);
    let mut all = Vec::new();
    waiting.read_to_end(&mut all).unwrap();
    assert_eq!(parse(&all).json()["usage"]["completion_tokens"], 3);
    until(address, "redraft_batch_running", 0.0);
    assert_eq!(metric(address, "redraft_rejects_total{kind=\"gone\"}"), 1.0);
    // The same of one that is not told in parts.
    let mut whole = long();
    whole["stream"] = false.into();
    let mut running = connect(address);
    running.write_all(&request("POST", "/v1/chat/completions", JSON, whole.to_string().as_bytes())).unwrap();
    until(address, "redraft_batch_running", 1.0);
    drop(running);
    until(address, "redraft_batch_running", 0.0);
    assert_eq!(metric(address, "redraft_rejects_total{kind=\"gone\"}"), 2.0);
    // One that waits goes away, too.
    let running = begin(address, &long());
    let mut waiting = connect(address);
    waiting.write_all(&request("POST", "/v1/chat/completions", JSON, body.as_bytes())).unwrap();
    until(address, "redraft_queue_waiting", 1.0);
    drop(waiting);
    until(address, "redraft_queue_waiting", 0.0);
    drop(running);
    until(address, "redraft_batch_running", 0.0);
}

#[test]
fn answers_have_their_time() {
    let server = start(Config { timeout: Duration::from_millis(300), parallel: 1, ..Config::default() });
    let mut body = long();
    body["stream"] = false.into();
    assert_eq!(refused(&chat(server.address, &body)).0, 504);
    let mut all = Vec::new();
    begin(server.address, &long()).read_to_end(&mut all).unwrap();
    let text = String::from_utf8_lossy(&all);
    assert!(text.contains("\"code\":\"timeout\"") && !text.contains("[DONE]"), "{text}");
    assert_eq!(chat(server.address, &hi(json!({"max_tokens": 1}))).status, 200);
}

#[test]
fn slow_heads_are_given_up() {
    let server = start(Config { header_timeout: Duration::from_millis(200), ..Config::default() });
    let mut slow = connect(server.address);
    slow.write_all(b"GET /health HTTP/1.1\r\nhost: ").unwrap();
    let mut all = Vec::new();
    // It comes to an end without the rest of the head.
    let _ = slow.read_to_end(&mut all);
    assert!(!String::from_utf8_lossy(&all).contains("200 OK"));
}

#[test]
fn running_answers_end_before_the_server_does() {
    let mut server = start(Config::default());
    let body = hi(
        json!({"max_tokens": 40, "stream": true, "diffusion": {"steps": 60, "confidence": 0, "stability": 60}}),
    );
    let mut running = begin(server.address, &body);
    server.end();
    let mut all = Vec::new();
    running.read_to_end(&mut all).unwrap();
    assert!(String::from_utf8_lossy(&all).contains("data: [DONE]"));
    assert!(std::net::TcpStream::connect(server.address).is_err());

    // One that takes too long is told so.
    let mut server = start(Config { grace: Duration::from_millis(100), ..Config::default() });
    let mut running = begin(server.address, &long());
    server.end();
    let mut all = Vec::new();
    running.read_to_end(&mut all).unwrap();
    let text = String::from_utf8_lossy(&all);
    assert!(text.contains("shutting_down") && !text.contains("[DONE]"), "{text}");
}
