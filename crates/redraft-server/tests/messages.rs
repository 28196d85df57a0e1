//! The form of Anthropic's API.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::net::SocketAddr;

use common::{QUESTION, Response, brief_chat, caller, chat, post, raw, request, start, start_with};
use redraft_server::Config;
use serde_json::{Value, json};

fn ask(question: &str, more: Value) -> Value {
    let mut body = json!({"max_tokens": 60, "messages": [{"role": "user", "content": question}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn send(address: SocketAddr, body: &Value) -> Value {
    let response = post(address, "/v1/messages", body);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// The events of a stream, whose names must be the types of their data.
fn events(response: &Response) -> Vec<Value> {
    assert_eq!(response.status, 200, "{}", response.text());
    let event = |e: &str| {
        let (name, data) = e.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
        data
    };
    response.text().split_terminator("\n\n").map(event).collect()
}

/// The message that a stream builds, as clients put it together.
fn built(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    assert_eq!((&events[0]["type"], &message["stop_reason"]), (&json!("message_start"), &Value::Null));
    let mut json_text = String::new();
    let mut open = None;
    for e in &events[1..] {
        let index = e["index"].as_u64().unwrap_or_default() as usize;
        match e["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!((open, index), (None, message["content"].as_array().unwrap().len()));
                open = Some(index);
                message["content"].as_array_mut().unwrap().push(e["content_block"].clone());
                json_text.clear();
            }
            "content_block_delta" => {
                assert_eq!(open, Some(index));
                let (block, delta) = (&mut message["content"][index], &e["delta"]);
                let (field, more) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", &delta["text"]),
                    "thinking_delta" => ("thinking", &delta["thinking"]),
                    _ => {
                        json_text += delta["partial_json"].as_str().unwrap();
                        block["input"] = serde_json::from_str(&json_text).unwrap();
                        continue;
                    }
                };
                block[field] = format!("{}{}", block[field].as_str().unwrap(), more.as_str().unwrap()).into();
            }
            "content_block_stop" => assert_eq!(open.take(), Some(index)),
            "message_delta" => {
                message["stop_reason"] = e["delta"]["stop_reason"].clone();
                message["stop_sequence"] = e["delta"]["stop_sequence"].clone();
                message["usage"] = e["usage"].clone();
                message["diffusion"] = e["diffusion"].clone();
            }
            _ => assert_eq!((e, open), (&json!({"type": "message_stop"}), None)),
        }
    }
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    message
}

/// The message without what differs between two answers.
fn same(mut message: Value) -> Value {
    for block in message["content"].as_array_mut().unwrap() {
        block.as_object_mut().unwrap().remove("id");
    }
    for name in ["id", "usage"] {
        message.as_object_mut().unwrap().remove(name);
    }
    message
}

#[test]
fn messages_are_answered_as_chats_are() {
    let server = start(Config::default());
    let address = server.address;
    let question = QUESTION;
    let expected = brief_chat(address);
    let text = expected["choices"][0]["message"]["content"].as_str().unwrap();
    let blocks = json!({"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}], "seed": 7});
    let got = send(
        address,
        &ask(
            question,
            json!({"system": "Be brief.", "seed": 7, "cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "x"}}),
        ),
    );
    assert_eq!(got["content"], json!([{"type": "text", "text": text}]));
    assert_eq!((&got["type"], &got["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!((&got["stop_reason"], &got["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    assert_eq!(got["diffusion"], expected["choices"][0]["diffusion"]);
    let usage = &got["usage"];
    let of = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(of("input_tokens") + of("cache_read_input_tokens"), expected["usage"]["prompt_tokens"]);
    assert!(of("cache_read_input_tokens") > 0, "the same prompt came before");
    assert_eq!(usage["output_tokens"], expected["usage"]["completion_tokens"]);
    assert_eq!(same(send(address, &ask(question, blocks.clone()))), same(got.clone()));
    let mut streaming = ask(question, blocks.clone());
    streaming["stream"] = true.into();
    let events = events(&post(address, "/v1/messages", &streaming));
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], expected["usage"]["prompt_tokens"]);
    let built = built(&events);
    assert_eq!(built["usage"]["output_tokens"], usage["output_tokens"]);
    assert_eq!(same(built), same(got));

    let mut counted = ask(question, blocks);
    counted.as_object_mut().unwrap().remove("max_tokens");
    let n = post(address, "/v1/messages/count_tokens", &counted).json();
    assert_eq!(n, json!({"input_tokens": expected["usage"]["prompt_tokens"]}));
    // What the reply must be is not compiled to count.
    counted["output_config"] = json!({"format": {"type": "json_schema", "schema": {"oneOf": []}}});
    assert_eq!(post(address, "/v1/messages/count_tokens", &counted).json(), n);
    counted["temperature"] = 1.into();
    assert_eq!(post(address, "/v1/messages/count_tokens", &counted).status, 400);

    let got = send(address, &ask(question, json!({"max_tokens": 2})));
    assert_eq!((&got["stop_reason"], &got["usage"]["output_tokens"]), (&json!("max_tokens"), &json!(2)));
    let got = send(address, &ask(question, json!({"stop_sequences": ["nowhere", "capital"]})));
    assert_eq!((&got["stop_reason"], &got["stop_sequence"]), (&json!("stop_sequence"), &json!("capital")));
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let format = json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}});
    let got = send(address, &ask(question, format));
    let reply: Value = serde_json::from_str(got["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(reply["n"].is_i64());
}

#[test]
fn tools_are_called_and_their_results_read() {
    let server = start_with(caller(), Config::default());
    let address = server.address;
    let schema =
        json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]});
    let tool = json!({"name": "weather", "description": "x", "input_schema": schema});
    let must = json!({"tools": [tool], "tool_choice": {"type": "tool", "name": "weather"}});
    let got = send(address, &ask("Hi", must.clone()));
    assert_eq!(got["stop_reason"], "tool_use");
    let block = &got["content"][0];
    assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), &json!("weather")));
    assert!(["Oslo", "Rome"].contains(&block["input"]["city"].as_str().unwrap()), "{block}");
    let mut streaming = ask("Hi", must.clone());
    streaming["stream"] = true.into();
    assert_eq!(same(built(&events(&post(address, "/v1/messages", &streaming)))), same(got.clone()));
    let several = json!({"tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}});
    let one = send(address, &ask("Hi", several));
    assert_eq!(one["content"].as_array().unwrap().len(), 1);

    // What stands in the prompt is what stands there in a chat of the other form.
    let call = json!({"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}});
    let of_chat = json!({"max_tokens": 3, "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Let me see", "tool_calls": [call]},
        {"role": "tool", "content": "Error: rain", "tool_call_id": "a", "name": "weather"}, {"role": "user", "content": "So?"}]});
    let expected = chat(address, &of_chat).json();
    let call = json!({"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}});
    let result = json!({"type": "tool_result", "tool_use_id": "a", "is_error": true, "content": [{"type": "text", "text": "rain"}]});
    let body = json!({"max_tokens": 3, "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me see"}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "So?"}]}]});
    let got = send(address, &body);
    assert_eq!(got["diffusion"]["digest"], expected["choices"][0]["diffusion"]["digest"]);
    let n = &expected["usage"]["prompt_tokens"];
    assert_eq!(
        &post(address, "/v1/messages/count_tokens", &json!({"messages": body["messages"]})).json()["input_tokens"],
        n
    );
    // A model that is asked to think ends in its thought, which is the answer then.
    let thinking = send(
        address,
        &ask("Hi", json!({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 5})),
    );
    let plain = send(address, &ask("Hi", json!({"thinking": {"type": "disabled"}, "max_tokens": 5})));
    assert_ne!(thinking["diffusion"]["digest"], plain["diffusion"]["digest"]);
}

#[test]
fn errors_have_the_form_of_the_api() {
    let server = start(Config::default());
    let address = server.address;
    let user = |content: Value| json!({"max_tokens": 5, "messages": [{"role": "user", "content": content}]});
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "x"});
    let cases = [
        (json!({"messages": [{"role": "user", "content": "x"}]}), "max_tokens: "),
        (json!({"max_tokens": 5}), "messages: "),
        (ask("x", json!({"stop": "x"})), "stop: "),
        (ask("x", json!({"presence_penalty": 1})), "presence_penalty: "),
        (ask("x", json!({"top_k": 5})), "top_k: "),
        (ask("x", json!({"container": "x"})), "container: "),
        (ask("x", json!({"tool_choice": {"type": "any"}})), "tool_choice: "),
        (ask("x", json!({"tool_choice": {"type": "tool"}})), "tool_choice.type: "),
        (
            ask("x", json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]})),
            "tools[0].type: ",
        ),
        (ask("x", json!({"tools": [{"name": "f"}]})), "tools[0].input_schema: "),
        (ask("x", json!({"thinking": {"type": "much"}})), "thinking.type: "),
        (ask("x", json!({"system": [{"type": "image"}]})), "system[0].type: "),
        (user(json!([{"type": "image", "source": {}}])), "messages[0].content[0].type: "),
        (user(json!([{"type": "text", "text": "x", "citations": []}])), "messages[0].content[0].citations: "),
        (user(json!([result])), "messages[0].content[0].tool_use_id: "),
        (user(json!([])), "messages[0].content: "),
        (
            json!({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}),
            "messages: ",
        ),
        (json!({"max_tokens": 5, "messages": [{"role": "system", "content": "x"}]}), "messages[0].role: "),
    ];
    for (body, message) in cases {
        let response = post(address, "/v1/messages", &body);
        let e = response.json();
        assert_eq!(
            (response.status, &e["type"], &e["error"]["type"]),
            (400, &json!("error"), &json!("invalid_request_error"))
        );
        assert!(e["error"]["message"].as_str().unwrap().starts_with(message), "{body}: {e}");
        assert_eq!(e["request_id"], response.header("request-id").unwrap());
    }
    let other = post(address, "/v1/messages", &ask("x", json!({"model": "other"})));
    assert_eq!((other.status, &other.json()["error"]["type"]), (404, &json!("not_found_error")));
    let get = raw(address, &request("GET", "/v1/messages", "", b""));
    assert_eq!((get.status, &get.json()["type"]), (405, &json!("error")));
    let broken = raw(address, &request("POST", "/v1/messages", "content-type: application/json\r\n", b"{"));
    assert_eq!(broken.json()["error"]["type"], "invalid_request_error");

    let server = start(Config { api_key: Some("secret".into()), ..Config::default() });
    let send = |key: &str| {
        let headers = format!("content-type: application/json\r\n{key}");
        raw(
            server.address,
            &request("POST", "/v1/messages", &headers, ask("x", json!({})).to_string().as_bytes()),
        )
    };
    for key in ["", "x-api-key: other\r\n", "authorization: secret\r\n"] {
        let refused = send(key);
        assert_eq!((refused.status, &refused.json()["error"]["type"]), (401, &json!("authentication_error")));
    }
    for key in ["x-api-key: secret\r\n", "authorization: Bearer secret\r\n"] {
        assert_eq!(send(key).status, 200);
    }
}
