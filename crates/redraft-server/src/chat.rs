//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::response::Response;
use redraft::chat::{Content, Message};
use redraft::constrain::Language;
use redraft::sampler::SamplerSpec;
use serde_json::{Map, Value};

use crate::app::App;
use crate::error::ApiError;
use crate::facts::Facts;
use crate::fields::{Fields, Sampling, Stream, kind, stops};
use crate::reply::{Reply, aside};
use crate::worker::Work;

/// Choices of one request at most.
pub(crate) const MOST_CHOICES: usize = 8;

/// Who may speak.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// A request that has been read, and not yet been made a prompt of.
struct Chat {
    messages: Vec<Message>,
    tools: Option<Value>,
    thinking: Option<bool>,
    language: Option<Language>,
    max_tokens: Option<usize>,
    n: usize,
    stream: Stream,
    common: Common,
}

/// What both ways to ask for text have.
pub(crate) struct Common {
    pub(crate) sampling: Sampling,
    pub(crate) seed: u64,
    pub(crate) stop: Vec<String>,
}

impl Common {
    /// `own`: the sampler where nobody asks for another.
    pub(crate) fn take(
        fields: &mut Fields,
        facts: &Facts,
        own: &'static SamplerSpec,
    ) -> Result<Common, ApiError> {
        if let Some(model) = fields.string("model")?
            && model != facts.id
        {
            let e = fields.error("model", "this server has no such model; /v1/models says which it has");
            return Err(ApiError { status: axum::http::StatusCode::NOT_FOUND, ..e }.code("model_not_found"));
        }
        let seed = fields.read("seed", "a whole number from 0 on", Value::as_u64)?.unwrap_or(0);
        let stop = stops(fields)?;
        let sampling = Sampling::take(fields, &facts.fit(), own)?;
        fields.string("user")?;
        fields.only("frequency_penalty", &[0.into()])?;
        fields.only("logit_bias", &[Value::Object(Map::new())])?;
        Ok(Common { sampling, seed, stop })
    }

    /// The work for each choice, in turn with the seeds from the one that was asked for.
    pub(crate) fn works(self, n: usize, one: impl Fn(u64, &Common) -> Work) -> Vec<Work> {
        (0..n as u64).map(|i| one(self.seed.wrapping_add(i), &self)).collect()
    }
}

/// Answers a request.
pub(crate) async fn answer(app: Arc<App>, body: Value) -> Result<Response, ApiError> {
    let chat = Chat::read(body, &app.facts)?;
    let places = app.places(chat.n)?;
    let stream = chat.stream;
    let facts = Arc::clone(&app.facts);
    // The places go along, so that no more is prepared at once than there are.
    let (works, places) = aside(move || Ok((chat.works(&facts)?, places))).await?;
    let reply = Reply::new(&app, true, stream, String::new());
    let answers = app.ask(works, places).await?;
    reply.send(answers).await
}

impl Chat {
    fn read(body: Value, facts: &Facts) -> Result<Chat, ApiError> {
        let mut fields = Fields::new(body, "")?;
        let common = Common::take(&mut fields, facts, facts.own)?;
        let stream = Stream::take(&mut fields)?;
        let n = fields.count("n", MOST_CHOICES)?.unwrap_or(1);
        let messages = messages(&mut fields)?;
        let most = fields.count("max_completion_tokens", usize::MAX)?;
        let legacy = fields.count("max_tokens", usize::MAX)?;
        if most.is_some() && legacy.is_some() && most != legacy {
            return Err(fields.error("max_tokens", "max_completion_tokens says something else"));
        }
        let language = language(&mut fields)?;
        let tools = tools(&mut fields, facts)?;
        if tools.is_some() && language.is_some() {
            let message = "not together with tools: a reply of that form cannot call one";
            return Err(fields.error("response_format", message));
        }
        let mut thinking = None;
        if let Some(options) = fields.take("chat_template_kwargs") {
            let mut options = Fields::new(options, "chat_template_kwargs")?;
            thinking = options.flag("enable_thinking")?;
            options.finish()?;
        }
        if let Some(metadata) = fields.take("metadata")
            && !metadata.is_object()
        {
            return Err(fields.error("metadata", "expected an object"));
        }
        for (name, neutral) in [("logprobs", false), ("store", false), ("parallel_tool_calls", true)] {
            fields.only(name, &[neutral.into()])?;
        }
        fields.only("modalities", &[serde_json::json!(["text"])])?;
        fields.finish()?;
        let max_tokens = most.or(legacy);
        Ok(Chat { messages, tools, thinking, language, max_tokens, n, stream, common })
    }

    /// Makes a prompt of the messages, and compiles the form of the reply.
    fn works(self, facts: &Facts) -> Result<Vec<Work>, ApiError> {
        let mut options = facts.options.clone();
        options.enable_thinking = self.thinking;
        let mut prompt = facts.template.render(&self.messages, &options).map_err(redraft::Error::from)?;
        if let Some(tools) = self.tools {
            options.tools = Some(tools);
            let with = facts.template.render(&self.messages, &options).map_err(redraft::Error::from)?;
            if with == prompt {
                return Err(ApiError::field("tools", "the chat template of this model leaves tools out"));
            }
            prompt = with;
        }
        let prompt = facts.tokenizer.encode_prompt(&prompt).map_err(redraft::Error::from)?;
        let constraint = self.language.map(|language| facts.constraint(language)).transpose()?;
        let (max_tokens, drafts) = (self.max_tokens, self.stream.drafts);
        Ok(self.common.works(self.n, |seed, common| Work {
            prompt: prompt.clone(),
            max_tokens,
            seed,
            sampler: common.sampling.sampler,
            overrides: common.sampling.overrides.clone(),
            constraint: constraint.clone(),
            stop: common.stop.clone(),
            drafts,
            chat: true,
            fill: None,
        }))
    }
}

/// `messages`, with contents as text.
fn messages(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let all = match fields.take("messages") {
        Some(Value::Array(all)) if !all.is_empty() => all,
        _ => return Err(fields.error("messages", "expected a list of at least one message")),
    };
    all.into_iter().enumerate().map(|(i, m)| message(Fields::new(m, &format!("messages[{i}]"))?)).collect()
}

fn message(mut fields: Fields) -> Result<Message, ApiError> {
    let expected = format!("one of {}", ROLES.join(", "));
    let role = fields.read("role", &expected, |v| ROLES.iter().find(|r| Some(**r) == v.as_str()).copied())?;
    let role = role.ok_or_else(|| fields.error("role", format_args!("expected {expected}")))?;
    let content = content(&mut fields)?;
    let tool_calls = match fields.take("tool_calls") {
        None => None,
        Some(Value::Array(calls)) if role == "assistant" => {
            let name = fields.name("tool_calls");
            let call = |(i, c)| call(Fields::new(c, &format!("{name}[{i}]"))?);
            Some(Value::Array(calls.into_iter().enumerate().map(call).collect::<Result<_, ApiError>>()?))
        }
        Some(_) => return Err(fields.error("tool_calls", "expected a list, in a message of the assistant")),
    };
    let calls = tool_calls.as_ref().and_then(Value::as_array).is_some_and(|c| !c.is_empty());
    if content == Content::None && !calls {
        return Err(fields.error("content", "expected text"));
    }
    let message = Message {
        // Templates know the older name.
        role: if role == "developer" { "system" } else { role }.into(),
        content,
        tool_calls,
        tool_call_id: fields.string("tool_call_id")?,
        name: fields.string("name")?,
        reasoning_content: fields.string("reasoning_content")?,
        extra: Map::new(),
    };
    fields.only("refusal", &[])?;
    fields.finish()?;
    Ok(message)
}

/// Text, or parts of text one after another.
fn content(fields: &mut Fields) -> Result<Content, ApiError> {
    let parts = match fields.take("content") {
        None => return Ok(Content::None),
        Some(Value::String(text)) => return Ok(Content::Text(text)),
        Some(Value::Array(parts)) => parts,
        Some(other) => {
            let message = format!("expected a text or a list of parts, found {}", kind(&other));
            return Err(fields.error("content", message));
        }
    };
    let mut text = String::new();
    for (i, part) in parts.into_iter().enumerate() {
        let mut part = Fields::new(part, &format!("{}[{i}]", fields.name("content")))?;
        part.read("type", "text, since this model reads nothing else", |v| (v == "text").then_some(()))?
            .ok_or_else(|| part.error("type", "expected text"))?;
        text += &part.string("text")?.ok_or_else(|| part.error("text", "expected a string"))?;
        part.finish()?;
    }
    Ok(Content::Text(text))
}

/// A call of an earlier answer, with its arguments as an object, which is what templates expect.
fn call(mut fields: Fields) -> Result<Value, ApiError> {
    let id = fields.string("id")?;
    fields.only("type", &["function".into()])?;
    let function = fields.take("function").unwrap_or_default();
    let mut function = Fields::new(function, &fields.name("function"))?;
    fields.finish()?;
    let name = function.string("name")?.ok_or_else(|| function.error("name", "expected a string"))?;
    let arguments = function.read("arguments", "a JSON object as a string", |v| match v {
        Value::String(text) => serde_json::from_str::<Map<String, Value>>(text).ok(),
        Value::Object(map) => Some(map.clone()),
        _ => None,
    })?;
    function.finish()?;
    let function = serde_json::json!({"name": name, "arguments": arguments.unwrap_or_default()});
    Ok(serde_json::json!({"id": id, "type": "function", "function": function}))
}

/// `response_format`.
fn language(fields: &mut Fields) -> Result<Option<Language>, ApiError> {
    let Some(format) = fields.take("response_format") else { return Ok(None) };
    let mut format = Fields::new(format, "response_format")?;
    let kind = format.string("type")?.unwrap_or_default();
    let language = match kind.as_str() {
        "text" => None,
        "json_object" => Some(Language::JsonObject),
        "json_schema" => {
            let given = format.take("json_schema").unwrap_or_default();
            let mut given = Fields::new(given, "response_format.json_schema")?;
            given.string("name")?;
            given.string("description")?;
            // Replies are always valid under the schema.
            given.flag("strict")?;
            let schema =
                given.take("schema").ok_or_else(|| given.error("schema", "expected a JSON schema"))?;
            given.finish()?;
            Some(Language::JsonSchema(schema))
        }
        _ => return Err(format.error("type", "expected text, json_object or json_schema")),
    };
    format.finish()?;
    Ok(language)
}

/// `tools` and `tool_choice`.
fn tools(fields: &mut Fields, facts: &Facts) -> Result<Option<Value>, ApiError> {
    let tools = match fields.take("tools") {
        None => None,
        Some(Value::Array(tools)) if tools.is_empty() => None,
        Some(tools @ Value::Array(_)) => Some(tools),
        Some(other) => {
            return Err(fields.error("tools", format_args!("expected a list, found {}", kind(&other))));
        }
    };
    for (i, tool) in tools.iter().flat_map(|t| t.as_array().into_iter().flatten()).enumerate() {
        let named = tool["type"] == "function" && tool["function"]["name"].is_string();
        if !named {
            let message = "expected {\"type\": \"function\", \"function\": {\"name\": …}}";
            return Err(fields.error(&format!("tools[{i}]"), message));
        }
    }
    let choice = fields.take("tool_choice");
    match choice.as_ref().map(|c| c.as_str()) {
        None | Some(Some("auto")) => {}
        Some(Some("none")) => return Ok(None),
        _ => {
            let message = "expected auto or none: this server cannot make a model call a tool";
            return Err(fields.error("tool_choice", message));
        }
    }
    if tools.is_some() && !facts.reads_calls {
        return Err(fields.error("tools", "this model has no form for calls that this server can read"));
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(message_: Value) -> Result<Message, ApiError> {
        message(Fields::new(message_, "messages[0]").unwrap())
    }

    #[test]
    fn tools_are_part_of_the_prompt_or_refused() {
        let model = redraft::Model::embedded(&redraft::LoadOptions::default()).unwrap();
        let mut facts = Facts::new(&model, None).unwrap();
        let body = || {
            let tool = json!({"type": "function", "function": {"name": "weather"}});
            json!({"messages": [{"role": "user", "content": "x"}], "tools": [tool], "max_tokens": 3})
        };
        let param = |e: ApiError| e.param.unwrap();
        assert_eq!(Chat::read(body(), &facts).map(|_| ()).map_err(param), Err("tools".into()));
        facts.reads_calls = true;
        let works = |facts: &Facts| Chat::read(body(), facts).unwrap().works(facts);
        assert_eq!(works(&facts).map(|_| ()).map_err(param), Err("tools".into()));
        let source = "{% for t in tools %}tool: {{ t.function.name }};{% endfor %}{{ messages[0].content }}";
        facts.template = redraft::chat::ChatTemplate::from_source(source).unwrap();
        let works = works(&facts).unwrap();
        assert_eq!(facts.tokenizer.decode(&works[0].prompt, false), "tool: weather;x");
        assert_eq!((works.len(), works[0].max_tokens), (1, Some(3)));
    }

    #[test]
    fn messages_become_what_templates_expect() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let m = read(json!({"role": "developer", "content": parts, "name": null})).unwrap();
        assert_eq!((m.role.as_str(), m.content), ("system", Content::Text("ab".into())));
        let call =
            json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\": [1]}"}});
        let m = read(json!({"role": "assistant", "content": null, "tool_calls": [call]})).unwrap();
        let calls = m.tool_calls.unwrap();
        assert_eq!(calls[0]["function"]["arguments"], json!({"x": [1]}));
        let m = read(json!({"role": "tool", "content": "5", "tool_call_id": "c"})).unwrap();
        assert_eq!(m.tool_call_id.as_deref(), Some("c"));
        let cases = [
            (json!({"role": "user", "content": "x", "tool_calls": []}), "messages[0].tool_calls"),
            (json!({"role": "assistant", "content": null, "tool_calls": []}), "messages[0].content"),
            (
                json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}),
                "messages[0].tool_calls[0].function.arguments",
            ),
            (
                json!({"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]}),
                "messages[0].tool_calls[0].type",
            ),
        ];
        for (message, field) in cases {
            assert_eq!(read(message.clone()).unwrap_err().param.as_deref(), Some(field), "{message}");
        }
    }
}
