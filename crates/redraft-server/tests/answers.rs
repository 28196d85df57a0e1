//! What the server answers is what the engine generates.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;

use common::{chat, get, model, post, start, start_with};
use redraft::chat::{AnswerParser, ChatTemplate, Message, RenderOptions};
use redraft::engine::{Generation, Philox, Request, generate};
use redraft::{LoadOptions, Model};
use redraft_server::Config;
use serde_json::{Value, json};

/// What the engine answers alone.
fn alone(model: &mut Model, question: &str, max_tokens: usize, seed: u64) -> (String, Generation, usize) {
    let (template, _) = ChatTemplate::for_tokenizer(model.tokenizer()).unwrap();
    let options =
        RenderOptions { add_generation_prompt: true, ..RenderOptions::for_tokenizer(model.tokenizer()) };
    let prompt = template.render(&[Message::new("user", question)], &options).unwrap();
    let ids = model.tokenizer().encode_prompt(&prompt).unwrap();
    let n = ids.len();
    let request = Request::new(model, ids.clone(), max_tokens).unwrap();
    let mut session = model.session().unwrap();
    let draws = Philox { seed, vocab_len: model.shape().vocab_len as u32 };
    let done = generate(model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(())).unwrap();
    model.close(session);
    let mut parser = AnswerParser::for_tokenizer(model.tokenizer());
    parser.after_prompt(&ids);
    done.ids.iter().for_each(|&id| drop(parser.push(id)));
    (parser.finish().1.text, done, n)
}

fn ask(question: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": question}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn content(events: &[Value], index: usize) -> String {
    let choices = events.iter().flat_map(|e| e["choices"].as_array().unwrap());
    let own = choices.filter(|c| c["index"] == index);
    own.filter_map(|c| c["delta"]["content"].as_str()).collect()
}

#[test]
fn plain_and_streamed_answers_are_those_of_the_engine() {
    let server = start(Config::default());
    let mut model = model();
    let question = "What is the capital of France?";
    let (text, done, n_prompt) = alone(&mut model, question, 60, 7);
    assert!(!text.is_empty());
    let plain = chat(server.address, &ask(question, json!({"seed": 7, "max_tokens": 60})));
    assert_eq!(plain.status, 200, "{}", plain.text());
    let plain = plain.json();
    assert_eq!(plain["object"], "chat.completion");
    assert_eq!(plain["model"], model.name());
    let choice = &plain["choices"][0];
    assert_eq!(choice["message"]["content"], text);
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["finish_reason"], done.finish.name());
    assert_eq!(choice["diffusion"]["digest"]["ids"], done.digests.ids);
    assert_eq!(choice["diffusion"]["digest"]["logits"], done.digests.logits);
    let steps: Vec<usize> = done.canvases.iter().map(|c| c.steps).collect();
    let told = choice["diffusion"]["canvases"].as_array().unwrap().iter();
    assert_eq!(told.map(|c| c["steps"].as_u64().unwrap() as usize).collect::<Vec<_>>(), steps);
    let usage = &plain["usage"];
    assert_eq!(usage["prompt_tokens"], n_prompt);
    assert_eq!(usage["completion_tokens"], done.ids.len());
    assert_eq!(usage["total_tokens"], n_prompt + done.ids.len());

    let options = json!({"seed": 7, "max_completion_tokens": 60, "stream": true,
        "stream_options": {"include_usage": true, "include_drafts": true}});
    let streamed = chat(server.address, &ask(question, options));
    assert_eq!(streamed.status, 200);
    assert!(streamed.header("content-type").unwrap().starts_with("text/event-stream"));
    let events = streamed.events();
    assert!(events.iter().all(|e| e["object"] == "chat.completion.chunk" && e["id"] == events[0]["id"]));
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(content(&events, 0), text);
    let told =
        events.iter().filter(|e| e["choices"][0]["delta"]["content"].as_str().is_some_and(|t| !t.is_empty()));
    assert!(told.count() <= steps.len() + 1, "what is committed at once is one event");
    let last = events.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], done.ids.len());
    // The session that answered before had the same prompt.
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], n_prompt);
    assert!(events[..events.len() - 1].iter().all(|e| e["usage"].is_null()));
    let end = &events[events.len() - 2]["choices"][0];
    assert_eq!(end["finish_reason"], done.finish.name());

    let drafts: Vec<&Value> = events.iter().filter(|e| e.get("diffusion").is_some()).collect();
    assert_eq!(drafts.len(), steps.iter().sum::<usize>());
    for (i, draft) in drafts.iter().enumerate() {
        assert_eq!(draft["choices"][0]["delta"], json!({}));
        let d = &draft["diffusion"];
        assert_eq!((d["canvas"].as_u64(), d["step"].as_u64()), (Some(0), Some(i as u64 + 1)));
        assert!(d["mean_entropy"].as_f64().unwrap() >= 0.0);
        for p in d["positions"].as_array().unwrap() {
            assert!(p["text"].is_string() && p["entropy"].as_f64().unwrap() >= 0.0);
            assert!(["noise", "draft", "accepted", "committed"].contains(&p["state"].as_str().unwrap()));
        }
    }
    let last_picture: String = drafts.last().unwrap()["diffusion"]["positions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["text"].as_str().unwrap())
        .collect();
    assert_eq!(last_picture, text);
}

#[test]
fn alternatives_are_told_where_they_are_asked_for() {
    fn masks() -> Model {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/oracle/models/dream-tiny.F16.gguf");
        Model::open(file.as_ref(), &LoadOptions { threads: Some(1), ..LoadOptions::default() }).unwrap()
    }
    for open in [model as fn() -> Model, masks] {
        let server = start_with(open(), Config::default());
        let question = "Sort 14, 3, 27, 9 in ascending order.";
        let asked = |options: Value| {
            let more = json!({"max_tokens": 20, "seed": 2, "stream": true, "stream_options": options});
            chat(server.address, &ask(question, more)).events()
        };
        let plain = asked(json!({"include_drafts": true}));
        let events = asked(json!({"include_drafts": true, "include_alternatives": true}));
        let (text, done, _) = alone(&mut open(), question, 20, 2);
        for events in [&plain, &events] {
            assert_eq!(content(events, 0), text);
            assert_eq!(events.last().unwrap()["choices"][0]["diffusion"]["digest"], json!(done.digests));
        }
        let drafts = |events: &[Value]| -> Vec<Vec<Value>> {
            let all = events.iter().filter_map(|e| e.get("diffusion"));
            all.map(|d| d["positions"].as_array().unwrap().clone()).collect()
        };
        let (plain, drafts) = (drafts(&plain), drafts(&events));
        assert_eq!(plain.len(), drafts.len());
        let mut n = 0;
        for (plain, told) in plain.iter().flatten().zip(drafts.iter().flatten()) {
            let mut told = told.clone();
            let alternatives = told.as_object_mut().unwrap().remove("alternatives");
            assert_eq!(told, *plain, "nothing else is different");
            // What is decided is not predicted any more.
            let Some(all) = alternatives else {
                assert_eq!(told["state"], "accepted");
                continue;
            };
            n += 1;
            let all = all.as_array().unwrap();
            let p: Vec<f64> = all.iter().map(|a| a["p"].as_f64().unwrap()).collect();
            assert!(
                p.len() == 5 && p.is_sorted_by(|a, b| a >= b) && p[0] > 0.0 && p.iter().sum::<f64>() < 1.001
            );
            if told["state"] == "draft" {
                // Bytes of one character stand together in the canvas, and alone among alternatives.
                if !all[0]["text"].as_str().unwrap().starts_with('⟨') {
                    assert_eq!(all[0]["text"], told["text"]);
                }
                // Less than a nat: one token has most of the probability.
                assert!(p[0] > 0.36, "{told}: {p:?}");
            }
        }
        assert!(n > 0);
    }
}

#[test]
fn sixteen_clients_get_the_answers_of_single_runs() {
    let server = start(Config { parallel: 5, ..Config::default() });
    let mut model = model();
    let question = |i: usize| format!("What is {} + {}?", 7 * i + 3, 5 * i);
    let expected: Vec<_> = (0..16).map(|i| alone(&mut model, &question(i), 10 + 5 * i, i as u64)).collect();
    let address = server.address;
    let clients: Vec<_> = (0..16)
        .map(|i| {
            let body = ask(&question(i), json!({"seed": i, "max_tokens": 10 + 5 * i, "stream": i % 2 == 1}));
            std::thread::spawn(move || chat(address, &body))
        })
        .collect();
    for (i, (client, (text, done, _))) in clients.into_iter().zip(&expected).enumerate() {
        let response = client.join().unwrap();
        let (got, diffusion) = match i % 2 {
            0 => {
                let choice = response.json()["choices"][0].clone();
                (choice["message"]["content"].as_str().unwrap().to_owned(), choice["diffusion"].clone())
            }
            _ => {
                let events = response.events();
                let end = events.last().unwrap()["choices"][0]["diffusion"].clone();
                (content(&events, 0), end)
            }
        };
        assert_eq!(&got, text, "client {i}");
        assert_eq!(diffusion["digest"], json!(done.digests), "client {i}");
    }
}

#[test]
fn choices_stops_and_lengths() {
    let server = start(Config::default());
    let mut model = model();
    let question = "Sort 14, 3, 27, 9 in ascending order.";
    let all = chat(server.address, &ask(question, json!({"n": 3, "seed": 4, "max_tokens": 30}))).json();
    let mut tokens = 0;
    for i in 0..3 {
        let (text, done, _) = alone(&mut model, question, 30, 4 + i as u64);
        assert_eq!(all["choices"][i]["message"]["content"], text);
        assert_eq!(all["choices"][i]["index"], i);
        assert_eq!(all["choices"][i]["diffusion"]["seed"], 4 + i);
        tokens += done.ids.len();
    }
    assert_eq!(all["usage"]["completion_tokens"], tokens);
    let streamed =
        chat(server.address, &ask(question, json!({"n": 3, "seed": 4, "max_tokens": 30, "stream": true})));
    let events = streamed.events();
    for i in 0..3 {
        assert_eq!(content(&events, i), all["choices"][i]["message"]["content"]);
    }

    let (text, whole, _) = alone(&mut model, question, 200, 0);
    // Exactly as many tokens as asked for, and fewer where the answer is shorter.
    for most in [1, 3, whole.ids.len(), whole.ids.len() + 1] {
        let got = chat(server.address, &ask(question, json!({"max_tokens": most}))).json();
        let n = most.min(whole.ids.len());
        assert_eq!(got["usage"]["completion_tokens"], n);
        assert_eq!(got["choices"][0]["message"]["content"], alone(&mut model, question, most, 0).0);
        let finish = if most > whole.ids.len() {
            "stop"
        } else {
            alone(&mut model, question, most, 0).1.finish.name()
        };
        assert_eq!(got["choices"][0]["finish_reason"], finish, "{most}");
    }
    // A stop text in the middle of a canvas.
    let (head, rest) = text.split_at(text.char_indices().nth(4).unwrap().0);
    let stop: String = rest.chars().take(3).collect();
    assert!(!head.contains(&stop));
    for stop in [json!(stop), json!(["not in it", stop])] {
        let got = chat(server.address, &ask(question, json!({"stop": stop}))).json();
        assert_eq!(got["choices"][0]["message"]["content"], head);
        assert_eq!(got["choices"][0]["finish_reason"], "stop");
        assert_eq!(got["choices"][0]["diffusion"]["digest"], Value::Null);
        let n = got["usage"]["completion_tokens"].as_u64().unwrap() as usize;
        let so_far = model.tokenizer().decode(&whole.ids[..n], false);
        let before = model.tokenizer().decode(&whole.ids[..n - 1], false);
        let stop = stop.as_str().map_or_else(|| stop[1].as_str().unwrap().to_owned(), str::to_owned);
        assert!(so_far.contains(&stop) && !before.contains(&stop));
        let got = chat(server.address, &ask(question, json!({"stop": stop, "stream": true})));
        assert_eq!(content(&got.events(), 0), head);
    }
}

#[test]
fn parameters_reach_the_sampler() {
    let server = start(Config::default());
    let more = json!({"temperature": 0.5, "diffusion": {"steps": 3, "entropy_bound": 0.25}, "user": "x", "metadata": {}});
    let got = chat(server.address, &ask("What is 7 + 8?", more)).json();
    let diffusion = &got["choices"][0]["diffusion"];
    let parameters = &diffusion["parameters"];
    assert_eq!(parameters["steps"], 3);
    assert_eq!(parameters["entropy_bound"], 0.25);
    assert_eq!((&parameters["t_min"], &parameters["t_max"]), (&json!(0.5), &json!(0.5)));
    assert!(diffusion["canvases"][0]["steps"].as_u64().unwrap() <= 3);
    let got = chat(server.address, &ask("What is 7 + 8?", json!({"temperature": 0}))).json();
    assert_eq!(got["choices"][0]["diffusion"]["parameters"]["t_max"], 0.001);
    // What a parameter says wins over the field that sets several.
    let more = json!({"temperature": 0.5, "diffusion": {"t_min": 0.1}});
    let got = chat(server.address, &ask("What is 7 + 8?", more)).json();
    let parameters = &got["choices"][0]["diffusion"]["parameters"];
    assert_eq!((&parameters["t_min"], &parameters["t_max"]), (&json!(0.1), &json!(0.5)));
}

#[test]
fn replies_are_of_the_form_that_is_asked_for() {
    let server = start(Config::default());
    let schema = json!({"type": "object", "properties": {"capital": {"enum": ["Paris", "Rome"]}, "n": {"type": "integer"}},
        "required": ["capital", "n"], "additionalProperties": false});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}});
    let body = ask("What is the capital of France?", json!({"response_format": format, "max_tokens": 60}));
    let got = chat(server.address, &body).json();
    let text = got["choices"][0]["message"]["content"].as_str().unwrap();
    let reply: Value = serde_json::from_str(text).unwrap();
    assert!(["Paris", "Rome"].contains(&reply["capital"].as_str().unwrap()));
    assert!(reply["n"].is_number() && reply.as_object().unwrap().len() == 2);
    assert_eq!(got["choices"][0]["finish_reason"], "stop");

    let format =
        json!({"type": "json_schema", "json_schema": {"schema": {"type": "array", "uniqueItems": true}}});
    let got = chat(server.address, &ask("x", json!({"response_format": format})));
    assert_eq!(
        (got.status, &got.json()["error"]["param"]),
        (400, &json!("response_format")),
        "{}",
        got.text()
    );
}

#[test]
fn texts_go_on_and_gaps_are_filled() {
    let server = start(Config::default());
    let mut model = model();
    let prompt = "The capital of France is";
    let ids = model.tokenizer().encode_raw_prompt(prompt, Default::default()).unwrap();
    let request = Request::new(&model, ids.clone(), 12).unwrap();
    let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
    let mut session = model.session().unwrap();
    let done =
        generate(&mut model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(())).unwrap();
    let text = model.tokenizer().decode_inside(&done.ids, false);
    let asks = [json!(prompt), json!(ids)];
    for asked in asks {
        let got =
            post(server.address, "/v1/completions", &json!({"prompt": asked, "max_tokens": 12, "seed": 3}));
        let got = got.json();
        assert_eq!(got["object"], "text_completion");
        assert_eq!(got["choices"][0]["text"], text, "{got}");
        assert_eq!(got["usage"]["completion_tokens"], done.ids.len());
    }
    let echo = json!({"prompt": prompt, "max_tokens": 12, "seed": 3, "echo": true, "stream": true});
    let events = post(server.address, "/v1/completions", &echo).events();
    let told: String = events.iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect();
    assert_eq!(told, format!("{prompt}{text}"));

    let gap = json!({"prompt": "The capital of ", "suffix": " is Paris.", "max_tokens": 3, "seed": 1});
    let got = post(server.address, "/v1/completions", &gap);
    assert_eq!(got.status, 200, "{}", got.text());
    let got = got.json();
    let tokens = got["usage"]["completion_tokens"].as_u64().unwrap();
    assert!((1..=3).contains(&tokens), "{got}");
    let fill = redraft::fill::Template::new(
        model.tokenizer(),
        Vec::new(),
        &redraft::fill::parse("The capital of [[]] is Paris.").unwrap(),
        Default::default(),
    )
    .unwrap();
    let base = Request::new(&model, fill.prompt().to_vec(), 3).unwrap();
    let draws = Philox { seed: 1, ..draws };
    let asked =
        redraft::fill::Fill { template: &fill, base: &base, gap_max: 3, end: model.tokenizer().eos() };
    let go_on = &mut |_: usize, _: usize| ControlFlow::Continue(());
    let filled = redraft::fill::fill(&mut model, &mut session, asked, &draws, go_on, &mut |_| {
        ControlFlow::Continue(())
    });
    let gap = &filled.unwrap().0.gaps[0];
    assert_eq!(got["choices"][0]["text"], gap.text);
    assert_eq!(tokens as usize, gap.ids.len());
    assert_eq!(got["choices"][0]["finish_reason"], "stop");
}

#[test]
fn the_model_describes_itself() {
    let server = start(Config::default());
    let list = get(server.address, "/v1/models").json();
    let id = list["data"][0]["id"].as_str().unwrap();
    let one = get(server.address, &format!("/v1/models/{id}")).json();
    assert_eq!(one["id"], id);
    let sampler = &one["diffusion"]["samplers"][0];
    assert_eq!(sampler["name"], one["diffusion"]["sampler"]);
    let steps = sampler["parameters"].as_array().unwrap().iter().find(|p| p["name"] == "steps").unwrap();
    assert_eq!((&steps["type"], &steps["minimum"]), (&json!("integer"), &json!(1)));
    assert!(steps["default"].as_u64().unwrap() > 0 && steps["description"].is_string());
    assert_eq!(get(server.address, "/v1/models/other").status, 404);
    assert_eq!(get(server.address, "/health").json()["status"], "ok");
    assert_eq!(get(server.address, "/ready").json()["status"], "ready");
    let page = get(server.address, "/");
    assert!(page.text().contains("<html"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; ") && policy.ends_with("frame-ancestors 'none'"),
        "{policy}"
    );
    assert_eq!(get(server.address, "/openapi.json").json()["openapi"], "3.1.0");
    chat(server.address, &ask("Hi", json!({"max_tokens": 2})));
    let metrics = get(server.address, "/metrics");
    let value = |name: &str| -> f64 {
        let line = metrics.text().lines().find(|l| l.strip_prefix(name).is_some_and(|r| r.starts_with(' ')));
        line.unwrap_or_else(|| panic!("{name} in {}", metrics.text()))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    assert_eq!(value("redraft_tokens_total{kind=\"completion\"}"), 2.0);
    assert!(value("redraft_steps_total") >= 1.0 && value("redraft_round_seconds_count") >= 1.0);
    assert_eq!(value("redraft_queue_waiting"), 0.0);
    assert_eq!(value("redraft_http_requests_total{path=\"/v1/models/{*id}\",status=\"404\"}"), 1.0);
}

/// Models that read in blocks or whole, of masks, of which one edits: three clients each.
#[test]
fn models_of_every_kind_are_served() {
    let files = ["block-diffusion/models/sdar-tiny.BF16", "block-diffusion/models/fast-dllm-tiny.BF16"];
    let more =
        ["llada2/models/llada2.2-tiny.BF16", "oracle/models/dream-tiny.F16", "oracle/models/dg-mini.Q8_0"];
    for name in files.iter().chain(&more) {
        let file = format!("{}/../../testdata/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
        let open = || {
            Model::open(file.as_ref(), &LoadOptions { threads: Some(1), ..LoadOptions::default() }).unwrap()
        };
        let mut model = open();
        let server = start_with(open(), Config::default());
        let address = server.address;
        let clients: Vec<_> = (0..3)
            .map(|i| {
                let more = json!({"max_tokens": 9 + i, "seed": i, "stream": true, "stream_options": {"include_drafts": true}});
                let body = ask("a b c", more);
                std::thread::spawn(move || chat(address, &body))
            })
            .collect();
        for (i, client) in clients.into_iter().enumerate() {
            let response = client.join().unwrap();
            assert_eq!(response.status, 200, "{name}: {}", response.text());
            let events = response.events();
            let (text, done, _) = alone(&mut model, "a b c", 9 + i, i as u64);
            assert_eq!(content(&events, 0), text, "{name}");
            let end = &events.last().unwrap()["choices"][0];
            assert_eq!(end["diffusion"]["digest"], json!(done.digests), "{name}");
            let drafts: Vec<&Value> = events.iter().filter_map(|e| e.get("diffusion")).collect();
            assert!(!drafts.is_empty(), "{name}");
            let most = drafts.iter().map(|d| d["positions"].as_array().unwrap().len()).max();
            assert!(most.unwrap() <= 9 + i, "{name}: no more than the client gets");
        }
        let gap = json!({"prompt": "a", "suffix": " c", "max_tokens": 2});
        let got = post(address, "/v1/completions", &gap);
        assert_eq!(got.status, 200, "{name}: {}", got.text());
        assert!((1..=2).contains(&got.json()["usage"]["completion_tokens"].as_u64().unwrap()), "{name}");
    }
}
