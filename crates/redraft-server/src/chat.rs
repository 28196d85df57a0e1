//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::response::Response;
use redraft::chat::{Content, Message};
use redraft::constrain::{Function, Language};
use redraft::sampler::SamplerSpec;
use serde_json::{Map, Value};

use crate::app::App;
use crate::conversation::{Choice, Common, Conversation, Held, Tool, json_schema};
use crate::error::ApiError;
use crate::facts::Facts;
use crate::fields::{Fields, Stream, kind, stops};
use crate::openai::OpenAi;
use crate::reply::{aside, send};

/// Choices of one request at most.
pub(crate) const MOST_CHOICES: usize = 8;

/// Most likely tokens that are told beside each token at most.
const MOST_LOGPROBS: usize = 20;

/// Who may speak.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Answers a request.
pub(crate) async fn answer(app: Arc<App>, body: Value) -> Result<Response, ApiError> {
    let facts = Arc::clone(&app.facts);
    let (chat, stream) = aside(move || read(body, &facts)).await?;
    let (works, places) = chat.prepare(&app).await?;
    let form = OpenAi::new(&app, true, stream, String::new());
    let answers = app.ask(works, places).await?;
    send(form, answers, stream.on).await
}

/// Reads a request.
fn read(body: Value, facts: &Facts) -> Result<(Conversation, Stream), ApiError> {
    let mut fields = Fields::new(body, "")?;
    let format = language(&mut fields)?;
    let (tools, calls) = tools(&mut fields, facts)?;
    let (held, own) = Held::one(format, (&tools, calls), facts)?;
    let mut common = openai(&mut fields, facts, own)?;
    let stream = Stream::take(&mut fields)?;
    let n = fields.count("n", MOST_CHOICES)?.unwrap_or(1);
    let messages = messages(&mut fields)?;
    let most = fields.count("max_completion_tokens", usize::MAX)?;
    let legacy = fields.count("max_tokens", usize::MAX)?;
    if most.is_some() && legacy.is_some() && most != legacy {
        return Err(fields.error("max_tokens", "max_completion_tokens says something else"));
    }
    let logprobs = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.natural("top_logprobs", MOST_LOGPROBS)?;
    if top.is_some_and(|top| top > 0) && !logprobs {
        return Err(fields.error("top_logprobs", "allowed only with logprobs = true"));
    }
    common.logprobs = logprobs.then_some(top.unwrap_or(0));
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
    fields.only("store", &[false.into()])?;
    fields.only("modalities", &[serde_json::json!(["text"])])?;
    fields.finish()?;
    let (max_tokens, drafts) = (most.or(legacy), stream.drafts);
    // The older name where nobody says the newer one: both are known.
    let length = if most.is_some() { "max_completion_tokens" } else { "max_tokens" };
    let history = "messages";
    let conversation =
        Conversation { messages, tools, thinking, held, max_tokens, n, drafts, common, length, history };
    Ok((conversation, stream))
}

/// What both of OpenAI's older ways to ask for text have.
pub(crate) fn openai(
    fields: &mut Fields,
    facts: &Facts,
    own: &'static SamplerSpec,
) -> Result<Common, ApiError> {
    let known = ["temperature", "top_p", "top_k", "presence_penalty"];
    let mut common = Common::take(fields, facts, own, &known)?;
    common.stop = stops(fields, "stop", 4)?;
    common.bias = bias(fields, facts.shape.vocab_len)?;
    fields.string("user")?;
    fields.only("frequency_penalty", &[0.into()])?;
    Ok(common)
}

/// `logit_bias`: an object of token ids and numbers.
fn bias(fields: &mut Fields, vocab_len: usize) -> Result<Vec<(u32, f64)>, ApiError> {
    let id = |name: &str| name.parse::<u32>().ok().filter(|&id| (id as usize) < vocab_len);
    let x = |x: &Value| x.as_f64().filter(|x| (-100.0..=100.0).contains(x));
    let expected = format!("an object of token ids below {vocab_len}, each once, with numbers in -100..=100");
    let bias = fields.read("logit_bias", &expected, |v| {
        v.as_object()?.iter().map(|(name, value)| Some((id(name)?, x(value)?))).collect::<Option<Vec<_>>>()
    })?;
    let mut bias = bias.unwrap_or_default();
    bias.sort_unstable_by_key(|&(id, _)| id);
    // Names can differ and be the same number.
    match bias.windows(2).all(|w| w[0].0 < w[1].0) {
        true => Ok(bias),
        false => Err(fields.error("logit_bias", format_args!("expected {expected}"))),
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
        text += &part.needed("text")?;
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
    let name = function.needed("name")?;
    let arguments = function.read("arguments", "a JSON object as a string", |v| match v {
        Value::String(text) => serde_json::from_str::<Map<String, Value>>(text).ok(),
        Value::Object(map) => Some(map.clone()),
        _ => None,
    })?;
    function.finish()?;
    let function = serde_json::json!({"name": name, "arguments": arguments.unwrap_or_default()});
    Ok(serde_json::json!({"id": id, "type": "function", "function": function}))
}

/// What the reply must be: `response_format`, or `structured_outputs`, which vLLM has.
fn language(fields: &mut Fields) -> Result<Option<Held>, ApiError> {
    let format = response_format(fields)?.map(|language| Held { language, field: "response_format" });
    let Some(given) = fields.take("structured_outputs") else { return Ok(format) };
    let mut given = Fields::new(given, "structured_outputs")?;
    let schema = given.take("json").map(|schema| match schema {
        Value::String(text) => serde_json::from_str(&text)
            .map(Language::JsonSchema)
            .map_err(|e| given.error("json", format_args!("expected a JSON schema: {e}"))),
        schema => Ok(Language::JsonSchema(schema)),
    });
    let regex = given.string("regex")?.map(Language::Regex);
    let texts =
        |v: &Value| v.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<_>>();
    let choice = given.read("choice", "a list of texts", texts)?.map(Language::Choices);
    let mut all: Vec<Language> = schema.transpose()?.into_iter().chain(regex).chain(choice).collect();
    given.finish()?;
    let (Some(language), true) = (all.pop(), all.is_empty()) else {
        return Err(fields.error("structured_outputs", "expected one of json, regex and choice"));
    };
    match format {
        Some(_) => Err(fields.error("structured_outputs", "not together with response_format")),
        None => Ok(Some(Held { language, field: "structured_outputs" })),
    }
}

/// `response_format`.
fn response_format(fields: &mut Fields) -> Result<Option<Language>, ApiError> {
    let Some(format) = fields.take("response_format") else { return Ok(None) };
    let mut format = Fields::new(format, "response_format")?;
    let kind = format.string("type")?.unwrap_or_default();
    let language = match kind.as_str() {
        "text" => None,
        "json_object" => Some(Language::JsonObject),
        "json_schema" => {
            let given = format.take("json_schema").unwrap_or_default();
            let mut given = Fields::new(given, "response_format.json_schema")?;
            let schema = json_schema(&mut given)?;
            given.finish()?;
            Some(schema)
        }
        _ => return Err(format.error("type", "expected text, json_object or json_schema")),
    };
    format.finish()?;
    Ok(language)
}

/// `tools`, `tool_choice` and `parallel_tool_calls`: what goes into the prompt, and what the reply is held to.
fn tools(fields: &mut Fields, facts: &Facts) -> Result<(Option<Value>, Option<Held>), ApiError> {
    let tools = fields.list("tools", tool)?;
    let choice = match fields.take("tool_choice") {
        None => Choice::Auto,
        Some(choice) => match choice.as_str() {
            Some("auto") => Choice::Auto,
            Some("none") => Choice::None,
            Some("required") => Choice::Any,
            _ => {
                let wrong = || {
                    let expected = "expected auto, none, required or {\"type\": \"function\", \"function\": {\"name\": …}}";
                    ApiError::field("tool_choice", expected)
                };
                let mut choice = Fields::new(choice, "tool_choice").map_err(|_| wrong())?;
                choice.string("type")?.filter(|t| t == "function").ok_or_else(wrong)?;
                let mut function =
                    Fields::new(choice.take("function").ok_or_else(wrong)?, "tool_choice.function")?;
                let name = function.string("name")?.ok_or_else(wrong)?;
                function.finish()?;
                choice.finish()?;
                Choice::One(name)
            }
        },
    };
    let several = fields.flag("parallel_tool_calls")?;
    choice.of(tools, (several, "parallel_tool_calls"), facts)
}

/// A tool, whose description goes into the prompt as it is.
fn tool(path: &str, shown: Value) -> Result<Tool, ApiError> {
    let wrong = || {
        let expected = "expected {\"type\": \"function\", \"function\": {\"name\": …}}";
        ApiError::field(path, expected)
    };
    let mut tool = Fields::new(shown.clone(), path)?;
    tool.string("type")?.filter(|t| t == "function").ok_or_else(wrong)?;
    let mut function = Fields::new(tool.take("function").ok_or_else(wrong)?, &tool.name("function"))?;
    tool.finish()?;
    let name = function.string("name")?.ok_or_else(wrong)?;
    function.string("description")?;
    let parameters = function.take("parameters");
    let strict = function.flag("strict")?.unwrap_or(false).then(|| function.name("strict"));
    function.finish()?;
    Ok(Tool { function: Function { name, parameters }, shown, strict })
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
        assert_eq!(super::read(body(), &facts).map(|_| ()).map_err(param), Err("tools".into()));
        facts.calls = Some("gemma4");
        let works = |facts: &Facts| super::read(body(), facts).unwrap().0.works(facts);
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
