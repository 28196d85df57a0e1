//! `POST /v1/responses`, in the form of OpenAI's API of that name, without anything that the server would have to keep.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::response::Response;
use redraft::chat::{Content, Delta, Message, ToolCall};
use redraft::constrain::{Function, Language};
use serde_json::{Map, Value, json};

use crate::app::{App, unix_seconds};
use crate::conversation::{Choice, Common, Conversation, Held, Tool, json_schema};
use crate::error::ApiError;
use crate::facts::Facts;
use crate::fields::{Drafts, Fields};
use crate::reply::{Form, aside, diffusion, named, send};
use crate::worker::Done;

/// Fields of a request that an answer repeats, and what they are where nobody says.
fn repeated() -> [(&'static str, Value); 9] {
    [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", true.into()),
        ("temperature", Value::Null),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", "auto".into()),
        ("tools", json!([])),
        ("top_p", Value::Null),
    ]
}

/// Answers a request.
pub(crate) async fn answer(app: Arc<App>, body: Value) -> Result<Response, ApiError> {
    let facts = Arc::clone(&app.facts);
    let reading = move || {
        let repeated = repeated().map(|(name, neutral)| {
            (name.to_owned(), body.get(name).filter(|v| !v.is_null()).cloned().unwrap_or(neutral))
        });
        Ok((repeated, read(body, &facts)?))
    };
    let (repeated, (conversation, stream)) = aside(reading).await?;
    let (works, places) = conversation.prepare(&app).await?;
    let form = Responses {
        id: app.next_id("resp"),
        model: app.facts.id.clone(),
        created: unix_seconds(),
        repeated: repeated.into_iter().collect(),
        told: 0,
        output: Vec::new(),
        open: None,
    };
    let answers = app.ask(works, places).await?;
    send(form, answers, stream).await
}

/// Reads a request, and whether it wants a stream.
fn read(body: Value, facts: &Facts) -> Result<(Conversation, bool), ApiError> {
    let mut fields = Fields::new(body, "")?;
    let format = text(&mut fields)?;
    let (tools, calls) = tools(&mut fields, facts)?;
    let (held, own) = Held::one(format, (&tools, calls), facts)?;
    let common = Common::take(&mut fields, facts, own, &["temperature", "top_p"])?;
    let instructions = fields.string("instructions")?;
    let mut messages: Vec<Message> =
        instructions.map(|text| Message::new("system", text.as_str())).into_iter().collect();
    match fields.take("input") {
        Some(Value::String(text)) => messages.push(Message::new("user", text.as_str())),
        Some(Value::Array(all)) if !all.is_empty() => {
            let mut names = BTreeMap::new();
            for (i, item) in all.into_iter().enumerate() {
                add((&mut messages, &mut names), Fields::new(item, &format!("input[{i}]"))?)?;
            }
        }
        _ => return Err(fields.error("input", "expected a text or a list of at least one item")),
    }
    let max_tokens = fields.count("max_output_tokens", usize::MAX)?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    for name in ["user", "safety_identifier", "prompt_cache_key"] {
        fields.string(name)?;
    }
    if fields.take("metadata").is_some_and(|m| !m.is_object()) {
        return Err(fields.error("metadata", "expected an object"));
    }
    for name in ["store", "background"] {
        fields.only(name, &[false.into()])?;
    }
    fields.only("include", &[json!([])])?;
    fields.only("truncation", &["disabled".into()])?;
    fields.only("service_tier", &["auto".into(), "default".into()])?;
    fields.only("top_logprobs", &[0.into()])?;
    fields.finish()?;
    Ok((
        Conversation {
            messages,
            tools,
            thinking: None,
            held,
            max_tokens,
            n: 1,
            drafts: Drafts::None,
            common,
            length: "max_output_tokens",
            history: "input",
        },
        stream,
    ))
}

/// `text.format`.
fn text(fields: &mut Fields) -> Result<Option<Held>, ApiError> {
    let Some(text) = fields.take("text") else { return Ok(None) };
    let mut text = Fields::new(text, "text")?;
    let format = text.take("format");
    text.only("verbosity", &["medium".into()])?;
    text.finish()?;
    let Some(format) = format else { return Ok(None) };
    let mut format = Fields::new(format, "text.format")?;
    let language = match format.string("type")?.as_deref() {
        Some("text") => None,
        Some("json_object") => Some(Language::JsonObject),
        Some("json_schema") => Some(json_schema(&mut format)?),
        _ => return Err(format.error("type", "expected text, json_object or json_schema")),
    };
    format.finish()?;
    Ok(language.map(|language| Held { language, field: "text.format" }))
}

/// `tools`, `tool_choice` and `parallel_tool_calls`.
fn tools(fields: &mut Fields, facts: &Facts) -> Result<(Option<Value>, Option<Held>), ApiError> {
    let tools = fields.list("tools", |path, t| tool(Fields::new(t, path)?))?;
    let choice = match fields.take("tool_choice") {
        None => Choice::Auto,
        Some(Value::String(choice)) if choice == "auto" => Choice::Auto,
        Some(Value::String(choice)) if choice == "none" => Choice::None,
        Some(Value::String(choice)) if choice == "required" => Choice::Any,
        Some(choice @ Value::Object(_)) => {
            let mut choice = Fields::new(choice, "tool_choice")?;
            let kind = choice.string("type")?;
            kind.filter(|t| t == "function").ok_or_else(|| choice.error("type", "expected function"))?;
            let name = choice.needed("name")?;
            choice.finish()?;
            Choice::One(name)
        }
        Some(_) => {
            let expected = "expected auto, none, required or {\"type\": \"function\", \"name\": …}";
            return Err(fields.error("tool_choice", expected));
        }
    };
    let several = fields.flag("parallel_tool_calls")?;
    choice.of(tools, (several, "parallel_tool_calls"), facts)
}

fn tool(mut fields: Fields) -> Result<Tool, ApiError> {
    let kind = fields.string("type")?;
    kind.filter(|t| t == "function").ok_or_else(|| fields.error("type", "expected function"))?;
    let name = fields.needed("name")?;
    let description = fields.string("description")?;
    let parameters = fields.take("parameters");
    let strict = fields.flag("strict")?.unwrap_or(false).then(|| fields.name("strict"));
    fields.finish()?;
    let mut function = Map::from_iter([("name".to_owned(), Value::from(name.clone()))]);
    function.extend(description.map(|d| ("description".to_owned(), d.into())));
    function.extend(parameters.clone().map(|p| ("parameters".to_owned(), p)));
    let shown = json!({"type": "function", "function": function});
    Ok(Tool { function: Function { name, parameters }, shown, strict })
}

/// Adds an item of `input`; calls belong to the message of the assistant before them, as templates have it. `names`: of the calls so
/// far, by id.
fn add(
    (messages, names): (&mut Vec<Message>, &mut BTreeMap<String, String>),
    mut item: Fields,
) -> Result<(), ApiError> {
    let kind = item.string("type")?;
    item.string("id")?;
    item.only("status", &["completed".into(), "incomplete".into(), "in_progress".into()])?;
    match kind.as_deref() {
        None | Some("message") => {
            let roles = ["system", "developer", "user", "assistant"];
            let expected = format!("one of {}", roles.join(", "));
            let role =
                item.read("role", &expected, |v| roles.iter().find(|r| Some(**r) == v.as_str()).copied())?;
            let role = role.ok_or_else(|| item.error("role", format_args!("expected {expected}")))?;
            let text = content(&mut item)?;
            messages.push(Message::new(if role == "developer" { "system" } else { role }, text.as_str()));
        }
        Some("function_call") => {
            let (id, name) = (item.needed("call_id")?, item.needed("name")?);
            let arguments = item.read("arguments", "a JSON object as a string", |v| {
                serde_json::from_str::<Map<String, Value>>(v.as_str()?).ok()
            })?;
            let function = json!({"name": name, "arguments": arguments.unwrap_or_default()});
            let call = json!({"id": id, "type": "function", "function": function});
            names.insert(id, name);
            match messages.last_mut().filter(|m| m.role == "assistant") {
                Some(Message { tool_calls: Some(Value::Array(calls)), .. }) => calls.push(call),
                Some(message) => message.tool_calls = Some(json!([call])),
                None => messages.push(Message {
                    tool_calls: Some(json!([call])),
                    ..Message::new("assistant", Content::None)
                }),
            }
        }
        Some("function_call_output") => {
            let id = item.needed("call_id")?;
            let name = names.get(&id).cloned();
            let name = name.ok_or_else(|| item.error("call_id", "no function_call before it has this id"))?;
            let output = item.needed("output")?;
            let message = Message::new("tool", output.as_str());
            messages.push(Message { tool_call_id: Some(id), name: Some(name), ..message });
        }
        Some("reasoning") => {
            // Thoughts are no part of the history.
            item.take("summary");
            item.take("content");
        }
        Some(_) => {
            let expected = "expected message, function_call, function_call_output or reasoning";
            return Err(item.error("type", expected));
        }
    }
    item.finish()
}

/// Text, or parts of text one after another.
fn content(item: &mut Fields) -> Result<String, ApiError> {
    let path = item.name("content");
    match item.take("content") {
        Some(Value::String(text)) => Ok(text),
        Some(Value::Array(parts)) => {
            let part = |(i, part)| {
                let mut part = Fields::new(part, &format!("{path}[{i}]"))?;
                let kind = part.string("type")?;
                if !kind.is_some_and(|t| t == "input_text" || t == "output_text") {
                    let message = "expected input_text or output_text: this model reads nothing else";
                    return Err(part.error("type", message));
                }
                let text = part.needed("text")?;
                part.only("annotations", &[json!([])])?;
                part.only("logprobs", &[json!([])])?;
                part.finish()?;
                Ok(text)
            };
            parts.into_iter().enumerate().map(part).collect()
        }
        _ => Err(item.error("content", "expected a text or a list of parts")),
    }
}

/// The form of answers.
struct Responses {
    id: String,
    model: String,
    created: u64,
    repeated: Map<String, Value>,
    /// Events so far.
    told: usize,
    /// Items so far.
    output: Vec<Value>,
    /// The text of the item that a stream has begun and not ended, and whether it is a thought.
    open: Option<(String, bool)>,
}

fn usage(done: &Done) -> Value {
    json!({"input_tokens": done.prompt_tokens, "input_tokens_details": {"cached_tokens": done.cached_tokens},
        "output_tokens": done.completion_tokens, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": done.prompt_tokens + done.completion_tokens})
}

impl Responses {
    /// The name of the next item.
    fn name(&self, prefix: &str) -> String {
        format!("{prefix}_{}_{}", self.id.trim_start_matches("resp-"), self.output.len())
    }

    fn part(thought: bool, text: &str) -> Value {
        match thought {
            true => json!({"type": "reasoning_text", "text": text}),
            false => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
        }
    }

    /// A message, or a thought.
    fn said(&self, text: Option<&str>, thought: bool) -> Value {
        let status = if text.is_some() { "completed" } else { "in_progress" };
        let content: Vec<Value> = text.map(|text| Self::part(thought, text)).into_iter().collect();
        match thought {
            true => {
                json!({"id": self.name("rs"), "type": "reasoning", "summary": [], "content": content, "status": status})
            }
            false => {
                json!({"id": self.name("msg"), "type": "message", "role": "assistant", "status": status, "content": content})
            }
        }
    }

    fn called(&self, call: &ToolCall, arguments: &str, status: &str) -> Value {
        json!({"id": self.name("fc"), "type": "function_call", "call_id": self.name("call"), "name": call.name,
            "arguments": arguments, "status": status})
    }

    fn response(&self, done: Option<&Done>) -> Value {
        let cut = done.is_some_and(|d| d.finish == "length");
        let status = match done {
            None => "in_progress",
            Some(_) if cut => "incomplete",
            Some(_) => "completed",
        };
        let details = if cut { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        let mut response = json!({"id": self.id, "object": "response", "created_at": self.created, "status": status,
            "error": null, "incomplete_details": details, "model": self.model, "output": self.output,
            "previous_response_id": null, "store": false, "truncation": "disabled", "usage": done.map(usage)});
        if let Value::Object(response) = &mut response {
            response.extend(self.repeated.clone());
            response.extend(done.map(|d| ("diffusion".to_owned(), diffusion(d))));
        }
        response
    }

    /// An event, with its number.
    fn event(&mut self, kind: &str, more: Value) -> Bytes {
        let mut event = json!({"type": format!("response.{kind}"), "sequence_number": self.told});
        if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
            event.extend(more);
        }
        self.told += 1;
        named(&event)
    }

    /// Names of the events of a text, and of its part.
    fn events(thought: bool) -> &'static str {
        if thought { "reasoning_text" } else { "output_text" }
    }

    /// Ends the text that is open.
    fn close(&mut self) -> Vec<Bytes> {
        let Some((text, thought)) = self.open.take() else { return Vec::new() };
        let (item, at) = (self.said(Some(&text), thought), self.output.len());
        let place = |more: Value| {
            let mut place = json!({"item_id": item["id"], "output_index": at, "content_index": 0});
            if let (Value::Object(place), Value::Object(more)) = (&mut place, more) {
                place.extend(more);
            }
            place
        };
        let (ended, part) =
            (place(json!({"text": text})), place(json!({"part": Self::part(thought, &text)})));
        let told = vec![
            self.event(&format!("{}.done", Self::events(thought)), ended),
            self.event("content_part.done", part),
            self.event("output_item.done", json!({"output_index": at, "item": item})),
        ];
        self.output.push(item);
        told
    }

    /// Adds to the text that is open, or to a new one.
    fn say(&mut self, text: &str, thought: bool) -> Vec<Bytes> {
        let mut told = Vec::new();
        if self.open.as_ref().is_none_or(|(_, open)| *open != thought) {
            told = self.close();
            self.open = Some((String::new(), thought));
            let (item, at) = (self.said(None, thought), self.output.len());
            let part = json!({"item_id": item["id"], "output_index": at, "content_index": 0, "part": Self::part(thought, "")});
            told.push(self.event("output_item.added", json!({"output_index": at, "item": item})));
            told.push(self.event("content_part.added", part));
        }
        if let Some((so_far, _)) = &mut self.open {
            so_far.push_str(text);
        }
        let id = self.said(None, thought)["id"].clone();
        let mut delta =
            json!({"item_id": id, "output_index": self.output.len(), "content_index": 0, "delta": text});
        if !thought {
            delta["logprobs"] = json!([]);
        }
        told.push(self.event(&format!("{}.delta", Self::events(thought)), delta));
        told
    }

    fn call(&mut self, call: &ToolCall) -> Vec<Bytes> {
        let mut told = self.close();
        let arguments = Value::Object(call.arguments.clone()).to_string();
        let (begun, item) =
            (self.called(call, "", "in_progress"), self.called(call, &arguments, "completed"));
        let (id, at) = (item["id"].clone(), self.output.len());
        let place = json!({"item_id": id, "output_index": at, "delta": arguments});
        let whole = json!({"item_id": id, "output_index": at, "name": call.name, "arguments": arguments});
        told.push(self.event("output_item.added", json!({"output_index": at, "item": begun})));
        told.push(self.event("function_call_arguments.delta", place));
        told.push(self.event("function_call_arguments.done", whole));
        told.push(self.event("output_item.done", json!({"output_index": at, "item": item})));
        self.output.push(item);
        told
    }
}

impl Form for Responses {
    fn whole(&mut self, all: &[Box<Done>]) -> Value {
        let Some(done) = all.first() else { return Value::Null };
        if !done.reasoning.is_empty() {
            self.output.push(self.said(Some(&done.reasoning), true));
        }
        if !done.text.is_empty() {
            self.output.push(self.said(Some(&done.text), false));
        }
        for call in &done.tool_calls {
            let arguments = Value::Object(call.arguments.clone()).to_string();
            self.output.push(self.called(call, &arguments, "completed"));
        }
        self.response(Some(done))
    }

    fn begin(&mut self, _n: usize) -> Vec<Bytes> {
        let response = json!({"response": self.response(None)});
        vec![self.event("created", response.clone()), self.event("in_progress", response)]
    }

    fn delta(&mut self, _index: usize, delta: Delta) -> Vec<Bytes> {
        match delta {
            Delta::Text(text) => self.say(&text, false),
            Delta::Reasoning(text) => self.say(&text, true),
            Delta::ToolCall(call) => self.call(&call),
        }
    }

    fn done(&mut self, _index: usize, done: &Done) -> Vec<Bytes> {
        let mut told = self.close();
        let kind = if done.finish == "length" { "incomplete" } else { "completed" };
        let response = json!({"response": self.response(Some(done))});
        told.push(self.event(kind, response));
        told
    }

    fn end(&mut self, _all: &[Box<Done>]) -> Vec<Bytes> {
        Vec::new()
    }

    fn failed(&mut self, e: &ApiError) -> Bytes {
        let event = json!({"type": "error", "sequence_number": self.told, "code": e.code, "message": e.message, "param": e.param});
        named(&event)
    }
}
