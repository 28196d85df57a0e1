//! The form of OpenAI's responses.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::net::SocketAddr;

use common::{QUESTION, brief_chat, caller, chat, post, start, start_with};
use redraft_server::Config;
use serde_json::{Value, json};

fn send(address: SocketAddr, body: &Value) -> Value {
    let response = post(address, "/v1/responses", body);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// The events of a stream, numbered in order.
fn events(address: SocketAddr, body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = true.into();
    let response = post(address, "/v1/responses", &body);
    let all = response.text().split_terminator("\n\n").map(|e| {
        let (name, data) = e.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
        data
    });
    let all: Vec<Value> = all.collect();
    assert!((0..).zip(&all).all(|(i, e)| e["sequence_number"] == i));
    all
}

/// An item without its names.
fn plain(item: &Value) -> Value {
    let mut item = item.clone();
    for name in ["id", "call_id"] {
        item.as_object_mut().unwrap().remove(name);
    }
    item
}

#[test]
fn responses_are_answered_as_chats_are() {
    let server = start(Config::default());
    let address = server.address;
    let question = QUESTION;
    let expected = brief_chat(address);
    let text = &expected["choices"][0]["message"]["content"];
    let body = json!({"input": question, "instructions": "Be brief.", "max_output_tokens": 60, "seed": 7, "store": false});
    let got = send(address, &body);
    assert_eq!((&got["object"], &got["status"]), (&json!("response"), &json!("completed")));
    let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    assert_eq!(got["output"][0]["content"], json!([part]));
    assert_eq!(got["diffusion"], expected["choices"][0]["diffusion"]);
    assert_eq!(got["usage"]["total_tokens"], expected["usage"]["total_tokens"]);
    assert_eq!((&got["instructions"], &got["tool_choice"]), (&json!("Be brief."), &json!("auto")));
    let parts = json!([{"role": "user", "content": [{"type": "input_text", "text": question}]}]);
    let mut listed = body.clone();
    listed["input"] = parts;
    assert_eq!(send(address, &listed)["diffusion"], got["diffusion"]);
    let events = events(address, &body);
    let of =
        |kind: &str| events.iter().filter(|e| e["type"] == format!("response.{kind}")).collect::<Vec<_>>();
    assert_eq!((events[0]["type"].as_str(), of("created").len()), (Some("response.created"), 1));
    let told: String = of("output_text.delta").iter().map(|e| e["delta"].as_str().unwrap()).collect();
    assert_eq!(*text, told);
    assert_eq!(*text, of("output_text.done")[0]["text"]);
    assert_eq!(of("content_part.done")[0]["part"], part);
    let last = &events.last().unwrap()["response"];
    assert_eq!(events.last().unwrap()["type"], "response.completed");
    assert_eq!(last["output"][0], of("output_item.done")[0]["item"]);
    assert_eq!(plain(&last["output"][0]), plain(&got["output"][0]));
    assert_eq!(last["diffusion"], got["diffusion"]);

    let cut = send(address, &json!({"input": question, "max_output_tokens": 2}));
    assert_eq!(cut["status"], "incomplete");
    assert_eq!(cut["incomplete_details"], json!({"reason": "max_output_tokens"}));
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let format = json!({"type": "json_schema", "name": "x", "strict": true, "schema": schema});
    let held = send(
        address,
        &json!({"input": question, "max_output_tokens": 40, "text": {"format": format.clone()}}),
    );
    let reply: Value =
        serde_json::from_str(held["output"][0]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(reply["n"].is_i64());
    // What was said goes back as it came.
    let mut history = vec![json!({"role": "user", "content": question})];
    history.push(json!({"type": "reasoning", "id": "rs_0", "summary": [], "content": []}));
    history.extend(got["output"].as_array().unwrap().iter().cloned());
    history.push(json!({"role": "user", "content": "And of Italy?"}));
    assert_eq!(send(address, &json!({"input": history, "max_output_tokens": 5}))["object"], "response");

    let cases = [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": "x", "previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"input": "x", "store": true}), "store"),
        (json!({"input": "x", "reasoning": {"effort": "low"}}), "reasoning"),
        (json!({"input": "x", "max_tokens": 5}), "max_tokens"),
        (json!({"input": "x", "tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"input": "x", "text": {"format": {"type": "xml"}}}), "text.format.type"),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0].type"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            "input[0].content[0].type",
        ),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}),
            "input[0].call_id",
        ),
        (json!({"input": [{"role": "user", "content": "x", "y": 1}]}), "input[0].y"),
        (json!({"input": "x", "max_output_tokens": 100_000}), "max_output_tokens"),
        (json!({"input": "x", "max_output_tokens": 1, "text": {"format": format}}), "max_output_tokens"),
    ];
    let newer = json!({"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 100_000});
    assert_eq!(chat(address, &newer).json()["error"]["param"], "max_completion_tokens");
    for (body, field) in cases {
        let refused = post(address, "/v1/responses", &body);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(field)), "{body}");
    }
}

#[test]
fn functions_are_called() {
    let server = start_with(caller(), Config::default());
    let address = server.address;
    let schema =
        json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]});
    let tool = json!({"type": "function", "name": "weather", "parameters": schema, "strict": true});
    let body = json!({"input": "Hi", "tools": [tool], "tool_choice": {"type": "function", "name": "weather"}, "max_output_tokens": 60});
    let got = send(address, &body);
    let call = &got["output"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("weather")));
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(["Oslo", "Rome"].contains(&arguments["city"].as_str().unwrap()));
    let events = events(address, &body);
    let last = &events.last().unwrap()["response"]["output"];
    assert_eq!(plain(&last[0]), plain(call));
    let done = events.iter().find(|e| e["type"] == "response.function_call_arguments.done").unwrap();
    assert_eq!(done["arguments"], call["arguments"]);
    assert_eq!(done["item_id"], last[0]["id"]);

    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "rain"});
    let history = json!({"input": [{"role": "user", "content": "Hi"}, call, output], "max_output_tokens": 3});
    let of_chat = json!({"max_tokens": 3, "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": call["arguments"]}}]},
        {"role": "tool", "tool_call_id": "a", "name": "weather", "content": "rain"}]});
    let expected = chat(address, &of_chat).json();
    assert_eq!(send(address, &history)["diffusion"]["digest"], expected["choices"][0]["diffusion"]["digest"]);
    let refused = post(address, "/v1/responses", &json!({"input": "Hi", "tools": [tool]}));
    assert_eq!(refused.json()["error"]["param"], "tools[0].strict");
}
