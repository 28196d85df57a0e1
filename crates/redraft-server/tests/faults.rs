//! Clients that go away, and requests that are broken in every place: the server answers others as before, and what was taken
//! is given back.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{Read as _, Write as _};

use common::{chat, connect, metric, raw, request, start, until};
use redraft_server::Config;
use serde_json::{Value, json};

const JSON: &str = "content-type: application/json\r\n";
const PATH: &str = "/v1/chat/completions";

fn question(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "What is 7 + 8?"}], "max_tokens": 40});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Everything but what depends on time and company.
fn choices(address: std::net::SocketAddr) -> Value {
    let response = chat(address, &question(json!({"seed": 3})));
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["choices"].clone()
}

#[test]
fn a_client_may_go_at_every_event() {
    let server = start(Config { parallel: 2, ..Config::default() });
    let address = server.address;
    let before = choices(address);
    // Steps that change nothing go on until somebody ends them.
    let endless = json!({"stream": true, "stream_options": {"include_drafts": true, "include_usage": true},
        "max_tokens": 400, "diffusion": {"steps": 4096, "confidence": 0}});
    let short =
        json!({"stream": true, "stream_options": {"include_drafts": true, "include_usage": true}, "n": 2});
    for (more, ends) in [(short, true), (endless, false)] {
        let mut ended = 0;
        for n in 0..24 {
            let mut stream = connect(address);
            stream
                .write_all(&request("POST", PATH, JSON, question(more.clone()).to_string().as_bytes()))
                .unwrap();
            // As many events, and a part of the next one.
            let mut seen = Vec::new();
            let mut byte = [0];
            while seen.windows(2).filter(|w| *w == b"\n\n").count() < n
                && stream.read(&mut byte).unwrap() == 1
            {
                seen.push(byte[0]);
            }
            ended += usize::from(seen.ends_with(b"data: [DONE]\n\n"));
            drop(stream);
        }
        until(address, "redraft_batch_running", 0.0);
        until(address, "redraft_queue_waiting", 0.0);
        assert_eq!(choices(address), before);
        // Some of the short ones are read to their end, none of the others.
        assert_eq!((ended > 0, ended < 24), (ends, true), "{ended}");
    }
    assert_eq!(metric(address, "redraft_rejects_total{kind=\"queue_full\"}"), 0.0);
}

#[test]
fn requests_may_end_at_every_byte() {
    let server = start(Config::default());
    let whole = request("POST", PATH, JSON, question(json!({"max_tokens": 2})).to_string().as_bytes());
    for n in 0..whole.len() {
        let mut stream = connect(server.address);
        stream.write_all(&whole[..n]).unwrap();
        if n % 3 == 0 {
            // The other direction stays open: what is there must be an error.
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{n}: {answer:?}");
        }
    }
    assert_eq!(raw(server.address, &whole).status, 200);
    until(server.address, "redraft_batch_running", 0.0);
}

#[test]
fn bodies_may_be_wrong_at_every_byte() {
    let server = start(Config::default());
    let body = question(json!({"max_tokens": 2, "stop": ["a"], "diffusion": {"steps": 2}})).to_string();
    let mut statuses = std::collections::BTreeMap::new();
    for at in 0..body.len() {
        for byte in [0xff, 0, b'"', b'{', b'9', b'\\'] {
            let mut body = body.clone().into_bytes();
            body[at] = byte;
            let response = raw(server.address, &request("POST", PATH, JSON, &body));
            *statuses.entry(response.status).or_insert(0) += 1;
            assert!(
                response.status == 200 || response.json()["error"]["message"].is_string(),
                "{}",
                response.text()
            );
        }
    }
    assert!(
        statuses.keys().all(|s| [200, 400].contains(s)) && statuses[&200] > 0 && statuses[&400] > 0,
        "{statuses:?}"
    );
}

#[test]
fn numbers_lists_and_schemas_may_be_huge() {
    let server = start(Config::default());
    let status = |more: Value| chat(server.address, &question(more)).status;
    for n in [json!(u64::MAX), json!(1e300), json!(-1), json!(9), json!(0.5)] {
        for field in ["n", "max_tokens"].iter().filter(|f| **f == "n" || n != 9) {
            assert_eq!(status(json!({*field: n})), 400, "{field} {n}");
        }
    }
    assert_eq!(status(json!({"seed": u64::MAX, "n": 2, "max_tokens": 2})), 200, "seeds go round");
    // JSON is read up to a depth of 128.
    let nested = |depth: usize| {
        (0..depth).fold(json!({"type": "null"}), |inner, i| match i % 2 {
            0 => json!({"type": "array", "items": inner, "maxItems": 1}),
            _ => json!({"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": false}),
        })
    };
    let format = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}});
    for depth in [10, 40, 60] {
        let answer = chat(server.address, &question(format(nested(depth))));
        assert!([200, 400].contains(&answer.status), "{depth}: {}", answer.text());
    }
    assert_eq!(status(format(nested(200))), 400);
    let loops = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
    assert_eq!(status(format(loops)), 400);
    let wide: Value = (0..20_000)
        .map(|i| (format!("k{i}"), json!({"type": "string"})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let answer = chat(server.address, &question(format(json!({"type": "object", "properties": wide}))));
    assert!([200, 400].contains(&answer.status), "{}", answer.text());
    let messages: Value = (0..20_000).map(|_| json!({"role": "user", "content": "x"})).collect();
    assert_eq!(status(json!({"messages": messages})), 400, "longer than the context");
    assert_eq!(status(json!({"stop": vec!["x"; 5]})), 400);
    // A head of a megabyte, in one line and in many.
    let one = format!("x: {}\r\n", "y".repeat(1 << 20));
    let many: String = (0..20_000).map(|i| format!("x-{i}: {}\r\n", "y".repeat(40))).collect();
    for headers in [one, many] {
        assert_eq!(raw(server.address, &request("GET", "/health", &headers, b"")).status, 431);
    }
    until(server.address, "redraft_batch_running", 0.0);
}
