//! Answers in the form of OpenAI's chat completions and completions.

use axum::body::Bytes;
use redraft::chat::{Delta, ToolCall};
use serde_json::{Map, Value, json};

use crate::app::{App, unix_seconds};
use crate::draft::Draft;
use crate::error::ApiError;
use crate::fields::Stream;
use crate::reply::{Form, call_id, data, diffusion};
use crate::scores::{self, Score};
use crate::worker::Done;

/// The form.
pub(crate) struct OpenAi {
    chat: bool,
    stream: Stream,
    /// What comes before each text.
    echo: String,
    base: Map<String, Value>,
    /// Of each answer that is streamed, calls so far and characters of tokens that were told of.
    told: Vec<(usize, usize)>,
}

impl OpenAi {
    pub(crate) fn new(app: &App, chat: bool, stream: Stream, echo: String) -> OpenAi {
        let id = app.next_id(if chat { "chatcmpl" } else { "cmpl" });
        let object = match (chat, stream.on) {
            (false, _) => "text_completion",
            (true, false) => "chat.completion",
            (true, true) => "chat.completion.chunk",
        };
        let base = [
            ("id", Value::from(id)),
            ("object", object.into()),
            ("created", unix_seconds().into()),
            ("model", app.facts.id.clone().into()),
            ("system_fingerprint", app.facts.fingerprint.clone().into()),
        ];
        let base = base.map(|(k, v)| (k.to_owned(), v)).into_iter().collect();
        OpenAi { chat, stream, echo, base, told: Vec::new() }
    }

    /// A call, with an id that no other answer has.
    fn call(&self, index: usize, call: &ToolCall) -> Value {
        let id = self.base.get("id").and_then(Value::as_str).unwrap_or_default();
        ToolCall { id: call_id("call", id, index, call), ..call.clone() }.to_api()
    }

    fn choice(&self, index: usize, done: &Done) -> Value {
        let (finish_reason, diffusion) = (done.finish, diffusion(done));
        let scores = done.scores.as_deref();
        if !self.chat {
            let text = format!("{}{}", self.echo, done.text);
            return json!({"index": index, "text": text, "logprobs": scores.map(|s| scores::of_text(s, 0)),
                "finish_reason": finish_reason, "diffusion": diffusion});
        }
        let silent = done.text.is_empty() && !done.tool_calls.is_empty();
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        message.insert("content".into(), if silent { Value::Null } else { done.text.clone().into() });
        message.insert("refusal".into(), Value::Null);
        if !done.reasoning.is_empty() {
            message.insert("reasoning_content".into(), done.reasoning.clone().into());
        }
        if !done.tool_calls.is_empty() {
            message
                .insert("tool_calls".into(), done.tool_calls.iter().map(|c| self.call(index, c)).collect());
        }
        json!({"index": index, "message": message, "logprobs": scores.map(scores::of_chat),
            "finish_reason": finish_reason, "diffusion": diffusion})
    }

    /// An event of one answer.
    fn chunk(&self, index: usize, delta: Value, done: Option<&Done>) -> Map<String, Value> {
        let finish_reason = done.map(|d| d.finish);
        let (name, delta) = if self.chat { ("delta", delta) } else { ("text", delta) };
        let mut choice =
            json!({"index": index, name: delta, "logprobs": null, "finish_reason": finish_reason});
        if let (Value::Object(choice), Some(done)) = (&mut choice, done) {
            choice.insert("diffusion".into(), diffusion(done));
        }
        let mut chunk = self.base.clone();
        chunk.insert("choices".into(), json!([choice]));
        if self.stream.usage {
            chunk.insert("usage".into(), Value::Null);
        }
        chunk
    }

    /// What says nothing.
    fn empty(&self) -> Value {
        if self.chat { json!({}) } else { "".into() }
    }
}

impl Form for OpenAi {
    fn whole(&mut self, all: &[Box<Done>]) -> Value {
        let choices = all.iter().enumerate().map(|(i, done)| self.choice(i, done));
        let mut body = self.base.clone();
        body.insert("choices".into(), choices.collect());
        body.insert("usage".into(), usage(all));
        Value::Object(body)
    }

    fn begin(&mut self, n: usize) -> Vec<Bytes> {
        self.told = vec![(0, 0); n];
        let first = match self.chat {
            true => json!({"role": "assistant", "content": ""}),
            false if self.echo.is_empty() => return Vec::new(),
            false => self.echo.clone().into(),
        };
        (0..n).map(|index| event(self.chunk(index, first.clone(), None))).collect()
    }

    fn draft(&mut self, index: usize, draft: &Draft) -> Vec<Bytes> {
        let mut chunk = self.chunk(index, self.empty(), None);
        chunk.insert("diffusion".into(), json!(draft));
        vec![event(chunk)]
    }

    fn delta(&mut self, index: usize, delta: Delta) -> Vec<Bytes> {
        let delta = match (delta, self.chat) {
            (Delta::Text(text), true) => json!({"content": text}),
            (Delta::Text(text), false) => text.into(),
            (Delta::Reasoning(text), true) => json!({"reasoning_content": text}),
            (Delta::ToolCall(call), true) => {
                let mut call = self.call(index, &call);
                if let Value::Object(call) = &mut call {
                    call.insert("index".into(), self.told[index].0.into());
                }
                self.told[index].0 += 1;
                json!({"tool_calls": [call]})
            }
            // Texts that go on are not taken apart.
            (_, false) => return Vec::new(),
        };
        vec![event(self.chunk(index, delta, None))]
    }

    fn scores(&mut self, index: usize, scores: &[Score]) -> Vec<Bytes> {
        let offset = self.told[index].1;
        self.told[index].1 += scores::characters(scores);
        let mut chunk = self.chunk(index, self.empty(), None);
        chunk["choices"][0]["logprobs"] =
            if self.chat { scores::of_chat(scores) } else { scores::of_text(scores, offset) };
        vec![event(chunk)]
    }

    fn done(&mut self, index: usize, done: &Done) -> Vec<Bytes> {
        vec![event(self.chunk(index, self.empty(), Some(done)))]
    }

    fn end(&mut self, all: &[Box<Done>]) -> Vec<Bytes> {
        let mut told = Vec::new();
        if self.stream.usage {
            let mut last = self.base.clone();
            last.insert("choices".into(), json!([]));
            last.insert("usage".into(), usage(all));
            told.push(event(last));
        }
        told.push(Bytes::from_static(b"data: [DONE]\n\n"));
        told
    }

    fn failed(&mut self, e: &ApiError) -> Bytes {
        data(&e.body())
    }
}

fn event(chunk: Map<String, Value>) -> Bytes {
    data(&Value::Object(chunk))
}

/// Tokens of all answers to one prompt.
fn usage(all: &[Box<Done>]) -> Value {
    let prompt = all.first().map_or(0, |d| d.prompt_tokens);
    let cached = all.first().map_or(0, |d| d.cached_tokens);
    let completion: usize = all.iter().map(|d| d.completion_tokens).sum();
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached}})
}
