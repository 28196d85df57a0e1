//! Answers in the form of chat APIs: whole, or as a stream of events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use redraft::chat::{Delta, ToolCall};
use redraft::engine::CanvasReport;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::app::{Answers, App, unix_seconds};
use crate::error::ApiError;
use crate::fields::Stream;
use crate::worker::{Done, Update};

/// After so long without an event a comment is sent, so that nothing between here and the client gives up.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A client that takes nothing for so long has gone.
const WRITE: Duration = Duration::from_secs(60);

/// Events that wait for the network.
const EVENTS: usize = 16;

/// How the answers to a request are told.
pub(crate) struct Reply {
    pub(crate) chat: bool,
    pub(crate) stream: Stream,
    /// What comes before each text.
    pub(crate) echo: String,
    base: Map<String, Value>,
}

impl Reply {
    pub(crate) fn new(app: &App, chat: bool, stream: Stream, echo: String) -> Reply {
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
        Reply { chat, stream, echo, base: base.map(|(k, v)| (k.to_owned(), v)).into_iter().collect() }
    }

    /// Sends answers, each as soon as it can be.
    ///
    /// # Errors
    /// One of them failed; in a stream that is an event.
    pub(crate) async fn send(self, mut answers: Answers) -> Result<Response, ApiError> {
        if self.stream.on {
            return Ok(self.events(answers));
        }
        let mut all: Vec<Option<Box<Done>>> = (0..answers.n).map(|_| None).collect();
        while all.iter().any(Option::is_none) {
            match answers.next().await {
                Some((i, Update::Done(done))) => all[i] = Some(done),
                Some((_, Update::Failed(e))) => return Err(e),
                Some(_) => {}
                None => return Err(ApiError::closing()),
            }
        }
        let all: Vec<Box<Done>> = all.into_iter().flatten().collect();
        let choices = all.iter().enumerate().map(|(i, done)| self.choice(i, done));
        let mut body = self.base.clone();
        body.insert("choices".into(), choices.collect());
        body.insert("usage".into(), usage(&all));
        Ok(Json(Value::Object(body)).into_response())
    }

    fn choice(&self, index: usize, done: &Done) -> Value {
        let finish_reason = done.finish;
        if !self.chat {
            let text = format!("{}{}", self.echo, done.text);
            let diffusion = diffusion(done);
            return json!({"index": index, "text": text, "logprobs": null, "finish_reason": finish_reason,
                "diffusion": diffusion});
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
            message.insert("tool_calls".into(), done.tool_calls.iter().map(ToolCall::to_api).collect());
        }
        json!({"index": index, "message": message, "logprobs": null, "finish_reason": finish_reason,
            "diffusion": diffusion(done)})
    }

    fn events(self, mut answers: Answers) -> Response {
        let (events, body) = mpsc::channel::<Result<Bytes, Infallible>>(EVENTS);
        tokio::spawn(async move {
            let mut calls = vec![0usize; answers.n];
            let mut done: Vec<Box<Done>> = Vec::new();
            for index in 0..answers.n {
                let first = match self.chat {
                    true => self.chunk(index, json!({"role": "assistant", "content": ""}), None),
                    false if self.echo.is_empty() => continue,
                    false => self.chunk(index, self.echo.clone().into(), None),
                };
                if !send(&events, data(&Value::Object(first))).await {
                    return;
                }
            }
            while done.len() < answers.n {
                let update = tokio::select! {
                    // Dropping the answers tells the thread of the model that nobody waits.
                    () = events.closed() => return,
                    update = tokio::time::timeout(KEEP_ALIVE, answers.next()) => update,
                };
                let (index, update) = match update {
                    Ok(Some(update)) => update,
                    Ok(None) => (0, Update::Failed(ApiError::closing())),
                    Err(_) => {
                        if !send(&events, Bytes::from_static(b": still working\n\n")).await {
                            return;
                        }
                        continue;
                    }
                };
                let chunk = match update {
                    Update::Started => continue,
                    Update::Draft(draft) => {
                        let empty = if self.chat { json!({}) } else { "".into() };
                        let mut chunk = self.chunk(index, empty, None);
                        chunk.insert("diffusion".into(), json!(draft));
                        chunk
                    }
                    Update::Delta(delta) => match self.delta(delta, &mut calls[index]) {
                        Some(delta) => self.chunk(index, delta, None),
                        None => continue,
                    },
                    Update::Done(answer) => {
                        let empty = if self.chat { json!({}) } else { "".into() };
                        let chunk = self.chunk(index, empty, Some(&answer));
                        done.push(answer);
                        chunk
                    }
                    Update::Failed(e) => {
                        send(&events, data(&e.body())).await;
                        return;
                    }
                };
                if !send(&events, data(&Value::Object(chunk))).await {
                    return;
                }
            }
            if self.stream.usage {
                let mut last = self.base.clone();
                last.insert("choices".into(), json!([]));
                last.insert("usage".into(), usage(&done));
                if !send(&events, data(&Value::Object(last))).await {
                    return;
                }
            }
            send(&events, Bytes::from_static(b"data: [DONE]\n\n")).await;
        });
        let headers =
            [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
        (headers, Body::from_stream(ReceiverStream::new(body))).into_response()
    }

    fn delta(&self, delta: Delta, calls: &mut usize) -> Option<Value> {
        match (delta, self.chat) {
            (Delta::Text(text), true) => Some(json!({"content": text})),
            (Delta::Text(text), false) => Some(text.into()),
            (Delta::Reasoning(text), true) => Some(json!({"reasoning_content": text})),
            (Delta::ToolCall(call), true) => {
                let mut call = call.to_api();
                if let Value::Object(call) = &mut call {
                    call.insert("index".into(), (*calls).into());
                }
                *calls += 1;
                Some(json!({"tool_calls": [call]}))
            }
            // Texts that go on are not taken apart.
            (_, false) => None,
        }
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
}

/// Whether the client is still there.
async fn send(events: &mpsc::Sender<Result<Bytes, Infallible>>, bytes: Bytes) -> bool {
    matches!(tokio::time::timeout(WRITE, events.send(Ok(bytes))).await, Ok(Ok(())))
}

fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// Tokens of all answers to one prompt.
fn usage(all: &[Box<Done>]) -> Value {
    let prompt = all.first().map_or(0, |d| d.prompt_tokens);
    let cached = all.first().map_or(0, |d| d.cached_tokens);
    let completion: usize = all.iter().map(|d| d.completion_tokens).sum();
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached}})
}

/// How an answer came about.
fn diffusion(done: &Done) -> Value {
    let canvas = |c: &CanvasReport| json!({"steps": c.steps, "stop": c.stop.name(), "accepted_per_step": c.accepted_per_step});
    let parameters = done.params.to_json();
    let canvases: Vec<Value> = done.canvases.iter().map(canvas).collect();
    json!({"sampler": done.sampler, "parameters": parameters, "seed": done.seed, "canvases": canvases,
        "digest": done.digests})
}

/// Does work that takes a while without keeping other requests waiting.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let failed =
        |_| ApiError::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "the request could not be read");
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

/// The state that a handler gets.
pub(crate) type Shared = axum::extract::State<Arc<App>>;
