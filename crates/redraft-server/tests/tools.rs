//! Replies that must call a tool or be in a language, and how likely tokens were.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{caller, chat, model, post, start, start_with};
use redraft_server::Config;
use serde_json::{Value, json};

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"]});
    let weather =
        json!({"name": "weather", "description": "of a city", "parameters": parameters, "strict": true});
    let now = json!({"name": "now", "parameters": {"type": "object", "properties": {}}});
    json!([{"type": "function", "function": weather}, {"type": "function", "function": now}])
}

fn ask(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}], "tools": tools(), "max_tokens": 80,
        "diffusion": {"steps": 4}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The arguments of a call that must be one of these tools.
fn checked(call: &Value) -> (String, Value) {
    let name = call["function"]["name"].as_str().unwrap().to_owned();
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    match name.as_str() {
        "weather" => {
            assert!(["Oslo", "Rome"].contains(&arguments["city"].as_str().unwrap()), "{arguments}");
            assert!((1..=9).contains(&arguments["days"].as_i64().unwrap()), "{arguments}");
            assert_eq!(arguments.as_object().unwrap().len(), 2);
        }
        "now" => assert_eq!(arguments, json!({})),
        _ => panic!("{call}"),
    }
    (name, arguments)
}

#[test]
fn tools_are_called_where_they_must_be() {
    let server = start_with(caller(), Config::default());
    let get = |more: Value| {
        let response = chat(server.address, &ask(more));
        assert_eq!(response.status, 200, "{}", response.text());
        let choice = response.json()["choices"][0].clone();
        assert_eq!(
            (&choice["finish_reason"], &choice["message"]["content"]),
            (&json!("tool_calls"), &Value::Null)
        );
        choice["message"]["tool_calls"].as_array().unwrap().clone()
    };
    let mut several = 0;
    for seed in 0..3 {
        let calls = get(json!({"tool_choice": "required", "seed": seed}));
        assert!(!calls.is_empty());
        calls.iter().for_each(|c| drop(checked(c)));
        several += usize::from(calls.len() > 1);
        let one = get(json!({"tool_choice": "required", "parallel_tool_calls": false, "seed": seed}));
        assert_eq!(one.len(), 1, "{one:?}");
        let named = json!({"type": "function", "function": {"name": "weather"}});
        let one = get(json!({"tool_choice": named, "seed": seed}));
        assert_eq!((one.len(), checked(&one[0]).0.as_str()), (1, "weather"));
    }
    assert!(several > 0, "random numbers call often where they may");
    // Two answers of one request, and two requests: no two calls have the same id.
    let two = ask(json!({"tool_choice": "required", "n": 2}));
    let ids = || {
        let got = chat(server.address, &two).json();
        let calls = |i: usize| got["choices"][i]["message"]["tool_calls"].as_array().unwrap().clone();
        [calls(0), calls(1)].concat().iter().map(|c| c["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut all = [ids(), ids()].concat();
    let n = all.len();
    all.sort();
    all.dedup();
    assert!(n >= 4 && all.len() == n && all.iter().all(|id| id.starts_with("call_")), "{all:?}");
    let streamed = chat(server.address, &ask(json!({"tool_choice": "required", "stream": true}))).events();
    let calls: Vec<&Value> =
        streamed.iter().filter_map(|e| e["choices"][0]["delta"]["tool_calls"].get(0)).collect();
    let whole = get(json!({"tool_choice": "required"}));
    assert_eq!(calls.len(), whole.len());
    for (i, (call, whole)) in calls.iter().zip(&whole).enumerate() {
        assert_eq!((&call["index"], &call["function"]), (&json!(i), &whole["function"]));
    }

    let refused = |more: Value, field: &str| {
        let response = chat(server.address, &ask(more.clone()));
        assert_eq!(response.status, 400, "{more}");
        assert_eq!(response.json()["error"]["param"], field, "{more}");
    };
    // Nothing is forced, so nothing can be promised.
    refused(json!({}), "tools[0].function.strict");
    refused(json!({"parallel_tool_calls": false}), "parallel_tool_calls");
    refused(json!({"tool_choice": {"type": "function", "function": {"name": "x"}}}), "tool_choice");
    refused(json!({"tool_choice": "required", "tools": []}), "tool_choice");
    refused(json!({"tool_choice": "required", "max_tokens": 3}), "max_tokens");
    let tool = |function: Value| json!([{"type": "function", "function": function}]);
    let wrong = json!({"name": "f", "parameters": {"type": "object", "properties": {"x": {"not": {}}}}});
    refused(json!({"tool_choice": "required", "tools": tool(wrong)}), "tools");
    refused(json!({"tool_choice": "required", "tools": tool(json!({"name": "a b"}))}), "tools");
    refused(
        json!({"tool_choice": "required", "response_format": {"type": "json_object"}}),
        "response_format",
    );
    // Nothing is held to anything where nothing must be called.
    let loose = ask(json!({"tools": tool(json!({"name": "f"})), "max_tokens": 4}));
    assert_eq!(chat(server.address, &loose).status, 200);
}

#[test]
fn replies_are_what_an_expression_or_a_list_says() {
    let server = start(Config::default());
    let get = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 30});
        body["structured_outputs"] = more;
        let response = chat(server.address, &body);
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(get(json!({"choice": ["Rome", "Paris", "London"]})), "Paris");
    let year = get(json!({"regex": "1[89][0-9]{2}!"}));
    assert!(year.len() == 5 && year.starts_with('1') && year.ends_with('!'), "{year}");
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    for schema in [schema.clone(), schema.to_string().into()] {
        let reply: Value = serde_json::from_str(&get(json!({"json": schema}))).unwrap();
        assert!(reply["n"].is_i64(), "{reply}");
    }
}

/// Those of a stream are those of the whole answer; they cost no bit of it. A bias of 100 forces a token.
#[test]
fn tokens_say_how_likely_they_were() {
    let server = start(Config::default());
    let tokenizer = std::sync::Arc::clone(model().tokenizer());
    let body = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 40});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let plain = chat(server.address, &body(json!({}))).json();
    assert_eq!(plain["choices"][0]["logprobs"], Value::Null);
    let asked = json!({"logprobs": true, "top_logprobs": 3});
    let got = chat(server.address, &body(asked.clone())).json();
    let choice = &got["choices"][0];
    assert_eq!(choice["diffusion"]["digest"], plain["choices"][0]["diffusion"]["digest"]);
    let entries = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(got["usage"]["completion_tokens"], entries.len());
    let text: String = entries.iter().map(|e| e["token"].as_str().unwrap()).collect();
    assert_eq!(choice["message"]["content"], text.trim_start_matches(' '));
    let steps = choice["diffusion"]["canvases"][0]["steps"].as_u64().unwrap();
    for e in entries {
        assert_eq!(e["bytes"], json!(e["token"].as_str().unwrap().as_bytes()));
        let logprob = e["logprob"].as_f64().unwrap();
        assert!(logprob <= 0.0 && e["diffusion"]["rescored_logprob"].as_f64().unwrap() <= 0.0);
        assert!((1..=steps).contains(&e["diffusion"]["step"].as_u64().unwrap()));
        let top = e["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert!(top[0]["logprob"].as_f64().unwrap() >= logprob);
        assert!(top.windows(2).all(|w| w[0]["logprob"].as_f64() >= w[1]["logprob"].as_f64()));
    }
    let mut streaming = body(asked);
    streaming["stream"] = true.into();
    let events = chat(server.address, &streaming).events();
    let told: Vec<Value> = events
        .iter()
        .filter_map(|e| e["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(&told, entries);
    // Up to the end of the stop text, as they are counted.
    let stopped = body(json!({"logprobs": true, "stop": "capital"}));
    let got = chat(server.address, &stopped).json();
    let n = got["choices"][0]["logprobs"]["content"].as_array().unwrap().len();
    assert_eq!(got["usage"]["completion_tokens"], n);
    assert!(n > 0 && n < entries.len());

    let prompt = json!({"prompt": "The capital of France is", "max_tokens": 12, "seed": 3, "logprobs": 2});
    let got = post(server.address, "/v1/completions", &prompt).json();
    let logprobs = &got["choices"][0]["logprobs"];
    let tokens = logprobs["tokens"].as_array().unwrap();
    assert_eq!(got["usage"]["completion_tokens"], tokens.len());
    assert_eq!(tokens.iter().map(|t| t.as_str().unwrap()).collect::<String>(), got["choices"][0]["text"]);
    assert_eq!(logprobs["text_offset"][1], tokens[0].as_str().unwrap().chars().count());
    for i in 0..tokens.len() {
        assert_eq!(logprobs["top_logprobs"][i].as_object().unwrap().len(), 2);
        assert!(logprobs["token_logprobs"][i].as_f64().unwrap() <= 0.0);
        assert!(logprobs["diffusion"][i]["rescored_logprob"].as_f64().unwrap() <= 0.0);
    }

    // The token that stood in the middle.
    let texts: Vec<&str> = entries.iter().map(|e| e["token"].as_str().unwrap()).collect();
    let text = texts[texts.len() / 2];
    let len = model().shape().vocab_len as u32;
    let id = (0..len).find(|&id| tokenizer.bytes_of(id) == text.as_bytes()).unwrap();
    let bias = |x: f64| json!({"logit_bias": {id.to_string(): x}, "max_tokens": 5, "logprobs": true});
    let tokens = |body: &Value| -> Vec<String> {
        let got = chat(server.address, body).json();
        let entries = got["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
        entries.iter().map(|e| e["token"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(tokens(&body(bias(100.0))), [text; 5]);
    let mut without = body(bias(-100.0));
    without["max_tokens"] = 40.into();
    let without = tokens(&without);
    assert!(!without.is_empty() && !without.iter().any(|t| t == text), "{without:?}");
}
