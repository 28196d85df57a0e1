//! `POST /v1/messages`, in the form of Anthropic's API, and `POST /v1/messages/count_tokens`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use redraft::chat::{Content, Delta, Message, ToolCall};
use redraft::constrain::{Function, Language};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::conversation::{Choice, Common, Conversation, Held, Tool};
use crate::error::ApiError;
use crate::facts::Facts;
use crate::fields::{Drafts, Fields, kind, stops};
use crate::reply::{Form, aside, call_id, diffusion, named, send};
use crate::worker::Done;

/// Texts that end an answer at most.
const MOST_STOPS: usize = 16;

/// Answers a request.
pub(crate) async fn answer(app: Arc<App>, body: Value) -> Result<Response, ApiError> {
    let facts = Arc::clone(&app.facts);
    let (conversation, stream) = aside(move || read(body, &facts, true)).await?;
    let (works, places) = conversation.prepare(&app).await?;
    let prompt_tokens = works.first().map_or(0, |w| w.prompt.len());
    let form = Messages {
        id: app.next_id("msg"),
        model: app.facts.id.clone(),
        prompt_tokens,
        open: None,
        blocks: 0,
    };
    let answers = app.ask(works, places).await?;
    send(form, answers, stream).await
}

/// Counts the tokens of a prompt.
pub(crate) async fn count(app: Arc<App>, body: Value) -> Result<Response, ApiError> {
    let facts = Arc::clone(&app.facts);
    let (mut conversation, _) = aside(move || read(body, &facts, false)).await?;
    let places = app.places(1)?;
    let facts = Arc::clone(&app.facts);
    let (prompt, _) = aside(move || Ok((conversation.prompt(&facts)?, places))).await?;
    Ok(Json(json!({"input_tokens": prompt.len()})).into_response())
}

/// Reads a request, and whether it wants a stream. `answers`: it has the fields that say something of the answer.
fn read(body: Value, facts: &Facts, answers: bool) -> Result<(Conversation, bool), ApiError> {
    let mut fields = Fields::new(body, "")?;
    let format = output_format(&mut fields)?;
    let (tools, calls) = tools(&mut fields, facts)?;
    let (held, own) = Held::one(format, (&tools, calls), facts)?;
    let known: &[&str] = if answers { &["temperature", "top_p", "top_k"] } else { &[] };
    let mut common = Common::take(&mut fields, facts, own, known)?;
    let mut messages = system(&mut fields)?;
    let mut names = BTreeMap::new();
    match fields.take("messages") {
        Some(Value::Array(all)) if !all.is_empty() => {
            for (i, message) in all.into_iter().enumerate() {
                messages.extend(turn(Fields::new(message, &format!("messages[{i}]"))?, &mut names)?);
            }
        }
        _ => return Err(fields.error("messages", "expected a list of at least one message")),
    }
    if messages.last().is_some_and(|m| m.role == "assistant") {
        let message = "expected the last one to be the user's: this server does not go on with an answer that has begun";
        return Err(fields.error("messages", message));
    }
    let thinking = thinking(&mut fields)?;
    cached(&mut fields)?;
    let (mut max_tokens, mut stream) = (None, false);
    if answers {
        max_tokens = fields.count("max_tokens", usize::MAX)?;
        if max_tokens.is_none() {
            return Err(fields.error("max_tokens", "expected a whole number of at least 1"));
        }
        common.stop = stops(&mut fields, "stop_sequences", MOST_STOPS)?;
        stream = fields.flag("stream")?.unwrap_or(false);
        if let Some(metadata) = fields.take("metadata") {
            let mut metadata = Fields::new(metadata, "metadata")?;
            metadata.string("user_id")?;
            metadata.finish()?;
        }
        fields.only("service_tier", &["auto".into(), "standard_only".into()])?;
    }
    fields.finish()?;
    Ok((
        Conversation {
            messages,
            tools,
            thinking,
            held,
            max_tokens,
            n: 1,
            drafts: Drafts::None,
            common,
            length: "max_tokens",
            history: "messages",
        },
        stream,
    ))
}

/// `output_config.format`.
fn output_format(fields: &mut Fields) -> Result<Option<Held>, ApiError> {
    let Some(config) = fields.take("output_config") else { return Ok(None) };
    let mut config = Fields::new(config, "output_config")?;
    let format = config.take("format");
    config.finish()?;
    let Some(format) = format else { return Ok(None) };
    let mut format = Fields::new(format, "output_config.format")?;
    format
        .string("type")?
        .filter(|t| t == "json_schema")
        .ok_or_else(|| format.error("type", "expected json_schema"))?;
    let schema = format.take("schema").ok_or_else(|| format.error("schema", "expected a JSON schema"))?;
    format.finish()?;
    Ok(Some(Held { language: Language::JsonSchema(schema), field: "output_config.format" }))
}

/// `tools` and `tool_choice`.
fn tools(fields: &mut Fields, facts: &Facts) -> Result<(Option<Value>, Option<Held>), ApiError> {
    let tools = fields.list("tools", |path, t| tool(Fields::new(t, path)?))?;
    let (mut several, mut choice) = (None, Choice::Auto);
    if let Some(given) = fields.take("tool_choice") {
        let mut given = Fields::new(given, "tool_choice")?;
        let name = given.string("name")?;
        choice = match (given.string("type")?.as_deref(), name) {
            (Some("auto"), None) => Choice::Auto,
            (Some("none"), None) => Choice::None,
            (Some("any"), None) => Choice::Any,
            (Some("tool"), Some(name)) => Choice::One(name),
            _ => {
                let message = "expected auto, any, none, or tool with the name of one";
                return Err(given.error("type", message));
            }
        };
        several = given.flag("disable_parallel_tool_use")?.map(|disable| !disable);
        given.finish()?;
    }
    choice.of(tools, (several, "tool_choice.disable_parallel_tool_use"), facts)
}

fn tool(mut fields: Fields) -> Result<Tool, ApiError> {
    fields.only("type", &["custom".into()])?;
    let name = fields.needed("name")?;
    let description = fields.string("description")?;
    let parameters = fields.take("input_schema");
    let parameters = parameters.ok_or_else(|| fields.error("input_schema", "expected a JSON schema"))?;
    let strict = fields.flag("strict")?.unwrap_or(false).then(|| fields.name("strict"));
    cached(&mut fields)?;
    fields.finish()?;
    let mut function = json!({"name": name, "parameters": parameters});
    if let Some(description) = description {
        function["description"] = description.into();
    }
    let shown = json!({"type": "function", "function": function});
    Ok(Tool { function: Function { name, parameters: Some(parameters) }, shown, strict })
}

/// Keys and values of what was read are kept for the next request anyway.
fn cached(fields: &mut Fields) -> Result<(), ApiError> {
    let Some(control) = fields.take("cache_control") else { return Ok(()) };
    let mut control = Fields::new(control, &fields.name("cache_control"))?;
    control.only("type", &["ephemeral".into()])?;
    control.only("ttl", &["5m".into(), "1h".into()])?;
    control.finish()
}

/// `thinking`: whether the model is asked to think.
fn thinking(fields: &mut Fields) -> Result<Option<bool>, ApiError> {
    let Some(thinking) = fields.take("thinking") else { return Ok(None) };
    let mut thinking = Fields::new(thinking, "thinking")?;
    let on = match thinking.string("type")?.as_deref() {
        Some("enabled") => {
            // What is thought is a part of the answer, whose length is bounded as a whole.
            thinking.count("budget_tokens", usize::MAX)?;
            true
        }
        Some("adaptive") => true,
        Some("disabled") => false,
        _ => return Err(thinking.error("type", "expected enabled, adaptive or disabled")),
    };
    thinking.finish()?;
    Ok(Some(on))
}

/// The text of `name`: a string, or blocks of text, which `between` separates.
fn text_of(fields: &mut Fields, name: &str, between: &str) -> Result<Option<String>, ApiError> {
    let path = fields.name(name);
    match fields.take(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Array(blocks)) => {
            let text = |(i, block)| {
                let mut block = Fields::new(block, &format!("{path}[{i}]"))?;
                match block.string("type")?.as_deref() {
                    Some("text") => text_block(block),
                    _ => Err(block.error("type", "expected text: this model reads nothing else here")),
                }
            };
            let all = blocks.into_iter().enumerate().map(text).collect::<Result<Vec<_>, ApiError>>()?;
            Ok(Some(all.join(between)))
        }
        Some(other) => {
            Err(fields
                .error(name, format_args!("expected a text or a list of blocks, found {}", kind(&other))))
        }
    }
}

/// What is left of a block of text whose type was read.
fn text_block(mut block: Fields) -> Result<String, ApiError> {
    let text = block.needed("text")?;
    cached(&mut block)?;
    block.finish()?;
    Ok(text)
}

fn system(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let text = text_of(fields, "system", "\n\n")?;
    Ok(text.filter(|t| !t.is_empty()).map(|t| Message::new("system", t.as_str())).into_iter().collect())
}

/// A message as those that templates know: results of tools are messages of their own there. `names`: of the calls so far, by id.
fn turn(mut fields: Fields, names: &mut BTreeMap<String, String>) -> Result<Vec<Message>, ApiError> {
    let role = match fields.string("role")?.as_deref() {
        Some("user") => "user",
        Some("assistant") => "assistant",
        _ => return Err(fields.error("role", "expected user or assistant")),
    };
    let blocks = match fields.take("content") {
        Some(Value::String(text)) => vec![json!({"type": "text", "text": text})],
        Some(Value::Array(blocks)) if !blocks.is_empty() => blocks,
        _ => return Err(fields.error("content", "expected a text or a list of at least one block")),
    };
    let path = fields.name("content");
    fields.finish()?;
    let (mut before, mut text, mut thought, mut calls) =
        (Vec::new(), String::new(), String::new(), Vec::new());
    for (i, block) in blocks.into_iter().enumerate() {
        let mut block = Fields::new(block, &format!("{path}[{i}]"))?;
        match (role, block.string("type")?.as_deref()) {
            (_, Some("text")) => text += &text_block(block)?,
            ("user", Some("tool_result")) => before.push(tool_result(block, names)?),
            ("assistant", Some("tool_use")) => calls.push(tool_use(block, names)?),
            ("assistant", Some("thinking")) => {
                thought += &block.string("thinking")?.unwrap_or_default();
                block.string("signature")?;
                block.finish()?;
            }
            _ => {
                let expected =
                    if role == "user" { "text or tool_result" } else { "text, tool_use or thinking" };
                return Err(block
                    .error("type", format_args!("expected {expected}: this model reads nothing else here")));
            }
        }
    }
    let said = !text.is_empty() || !calls.is_empty() || before.is_empty();
    before.extend(said.then(|| Message {
        tool_calls: (!calls.is_empty()).then_some(Value::Array(calls)),
        reasoning_content: Some(thought).filter(|t| !t.is_empty()),
        content: if text.is_empty() { Content::None } else { Content::Text(text) },
        ..Message::new(role, "")
    }));
    Ok(before)
}

fn tool_use(mut block: Fields, names: &mut BTreeMap<String, String>) -> Result<Value, ApiError> {
    let (id, name) = (block.needed("id")?, block.needed("name")?);
    let input = block.read("input", "an object", |v| v.as_object().cloned())?.unwrap_or_default();
    cached(&mut block)?;
    block.finish()?;
    names.insert(id.clone(), name.clone());
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": input}}))
}

fn tool_result(mut block: Fields, names: &BTreeMap<String, String>) -> Result<Message, ApiError> {
    let id = block.needed("tool_use_id")?;
    let name = names.get(&id).cloned();
    let name = name.ok_or_else(|| block.error("tool_use_id", "no tool_use before it has this id"))?;
    let mut text = text_of(&mut block, "content", "\n")?.unwrap_or_default();
    if block.flag("is_error")?.unwrap_or(false) {
        // Templates know no results that failed.
        text.insert_str(0, "Error: ");
    }
    cached(&mut block)?;
    block.finish()?;
    Ok(Message { tool_call_id: Some(id), name: Some(name), ..Message::new("tool", text.as_str()) })
}

/// The form of answers.
struct Messages {
    id: String,
    model: String,
    prompt_tokens: usize,
    /// The type of the block that a stream has begun and not ended.
    open: Option<&'static str>,
    /// Blocks that a stream has begun.
    blocks: usize,
}

/// Why an answer ended.
fn stop_reason(done: &Done) -> &'static str {
    match done.finish {
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        _ if done.stop.is_some() => "stop_sequence",
        _ => "end_turn",
    }
}

/// Tokens; those of the prompt that were cached are counted apart.
fn usage(done: &Done) -> Value {
    json!({"input_tokens": done.prompt_tokens.saturating_sub(done.cached_tokens),
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": done.cached_tokens,
        "output_tokens": done.completion_tokens})
}

impl Messages {
    fn message(&self, content: Vec<Value>, done: Option<&Done>) -> Map<String, Value> {
        let usage = match done {
            Some(done) => usage(done),
            None => json!({"input_tokens": self.prompt_tokens, "output_tokens": 0}),
        };
        let all = [
            ("id", Value::from(self.id.clone())),
            ("type", "message".into()),
            ("role", "assistant".into()),
            ("model", self.model.clone().into()),
            ("content", content.into()),
            ("stop_reason", done.map(stop_reason).into()),
            ("stop_sequence", done.and_then(|d| d.stop.clone()).into()),
            ("usage", usage),
        ];
        all.map(|(k, v)| (k.to_owned(), v)).into_iter().collect()
    }

    fn call(&self, call: &ToolCall, input: Value) -> Value {
        let id = call_id("toolu", &self.id, 0, call);
        json!({"type": "tool_use", "id": id, "name": call.name, "input": input})
    }

    /// Ends the block that is open.
    fn close(&mut self) -> Vec<Bytes> {
        let ended = |_| named(&json!({"type": "content_block_stop", "index": self.blocks - 1}));
        self.open.take().map(ended).into_iter().collect()
    }

    /// Adds to the block that is open, or to a new one.
    fn block(&mut self, kind: &'static str, start: Value, delta: &Value) -> Vec<Bytes> {
        let mut told = Vec::new();
        if self.open != Some(kind) || kind == "tool_use" {
            told = self.close();
            self.open = Some(kind);
            told.push(named(
                &json!({"type": "content_block_start", "index": self.blocks, "content_block": start}),
            ));
            self.blocks += 1;
        }
        let index = self.blocks - 1;
        told.push(named(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
        told
    }
}

impl Form for Messages {
    fn whole(&mut self, all: &[Box<Done>]) -> Value {
        let Some(done) = all.first() else { return Value::Null };
        let mut content = Vec::new();
        if !done.reasoning.is_empty() {
            content.push(json!({"type": "thinking", "thinking": done.reasoning, "signature": ""}));
        }
        if !done.text.is_empty() {
            content.push(json!({"type": "text", "text": done.text}));
        }
        content.extend(done.tool_calls.iter().map(|c| self.call(c, Value::Object(c.arguments.clone()))));
        let mut message = self.message(content, Some(done));
        message.insert("diffusion".into(), diffusion(done));
        Value::Object(message)
    }

    fn begin(&mut self, _n: usize) -> Vec<Bytes> {
        vec![named(&json!({"type": "message_start", "message": self.message(Vec::new(), None)}))]
    }

    fn delta(&mut self, _index: usize, delta: Delta) -> Vec<Bytes> {
        match delta {
            Delta::Text(text) => {
                let start = json!({"type": "text", "text": ""});
                self.block("text", start, &json!({"type": "text_delta", "text": text}))
            }
            Delta::Reasoning(text) => {
                let start = json!({"type": "thinking", "thinking": "", "signature": ""});
                self.block("thinking", start, &json!({"type": "thinking_delta", "thinking": text}))
            }
            Delta::ToolCall(call) => {
                let start = self.call(&call, json!({}));
                let arguments = Value::Object(call.arguments).to_string();
                self.block("tool_use", start, &json!({"type": "input_json_delta", "partial_json": arguments}))
            }
        }
    }

    fn done(&mut self, _index: usize, done: &Done) -> Vec<Bytes> {
        let mut told = self.close();
        let delta = json!({"stop_reason": stop_reason(done), "stop_sequence": done.stop});
        told.push(named(&json!({"type": "message_delta", "delta": delta, "usage": usage(done),
            "diffusion": diffusion(done)})));
        told
    }

    fn end(&mut self, _all: &[Box<Done>]) -> Vec<Bytes> {
        vec![named(&json!({"type": "message_stop"}))]
    }

    fn failed(&mut self, e: &ApiError) -> Bytes {
        named(&error(e, &self.id))
    }

    fn idle(&self) -> Bytes {
        named(&json!({"type": "ping"}))
    }
}

/// An error in the form of this API.
pub(crate) fn error(e: &ApiError, request_id: &str) -> Value {
    let kind = match e.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        s if s.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": e.message}, "request_id": request_id})
}
