//! Answers on their way to the client: whole, or as a stream of events, in the form of the API that was asked.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use redraft::chat::{Delta, ToolCall};
use redraft::engine::CanvasReport;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::app::{Answers, App};
use crate::draft::Draft;
use crate::error::ApiError;
use crate::scores::Score;
use crate::worker::{Done, Update};

/// After so long without an event something is sent, so that nothing between here and the client gives up.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A client that takes nothing for so long has gone.
const WRITE: Duration = Duration::from_secs(60);

/// Events that wait for the network.
const EVENTS: usize = 16;

/// The id of a call: clients tell calls of several answers apart by it. `of`: the id of the request's answers, of which this is
/// number `index`.
pub(crate) fn call_id(prefix: &str, of: &str, index: usize, call: &ToolCall) -> String {
    let (of, number) = (of.split_once('-').map_or(of, |(_, of)| of), call.id.trim_start_matches("call_"));
    format!("{prefix}_{of}_{index}_{number}")
}

/// How an API tells answers. Events of a stream are bytes, as many as there is something to tell.
pub(crate) trait Form: Send + 'static {
    /// Answers that are complete.
    fn whole(&mut self, all: &[Box<Done>]) -> Value;

    /// The start of a stream of `n` answers.
    fn begin(&mut self, n: usize) -> Vec<Bytes>;

    /// A canvas between two steps.
    fn draft(&mut self, _index: usize, _draft: &Draft) -> Vec<Bytes> {
        Vec::new()
    }

    /// A piece of an answer.
    fn delta(&mut self, index: usize, delta: Delta) -> Vec<Bytes>;

    /// How likely the tokens of the last pieces were.
    fn scores(&mut self, _index: usize, _scores: &[Score]) -> Vec<Bytes> {
        Vec::new()
    }

    /// The end of an answer.
    fn done(&mut self, index: usize, done: &Done) -> Vec<Bytes>;

    /// The end of the stream.
    fn end(&mut self, all: &[Box<Done>]) -> Vec<Bytes>;

    /// The end of a stream that fails.
    fn failed(&mut self, e: &ApiError) -> Bytes;

    /// What says nothing but that the server still works.
    fn idle(&self) -> Bytes {
        Bytes::from_static(b": still working\n\n")
    }
}

/// Sends answers, each as soon as it can be.
///
/// # Errors
/// One of them failed; in a stream that is an event.
pub(crate) async fn send(
    mut form: impl Form,
    mut answers: Answers,
    stream: bool,
) -> Result<Response, ApiError> {
    if stream {
        return Ok(events(form, answers));
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
    Ok(Json(form.whole(&all)).into_response())
}

fn events(form: impl Form, answers: Answers) -> Response {
    let (events, body) = mpsc::channel::<Result<Bytes, Infallible>>(EVENTS);
    tokio::spawn(tell(form, answers, events));
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(ReceiverStream::new(body))).into_response()
}

/// Writes a stream, as long as somebody reads it.
async fn tell(
    mut form: impl Form,
    mut answers: Answers,
    events: mpsc::Sender<Result<Bytes, Infallible>>,
) -> Option<()> {
    let mut done: Vec<Box<Done>> = Vec::new();
    write(&events, form.begin(answers.n)).await?;
    while done.len() < answers.n {
        let update = tokio::select! {
            // Dropping the answers tells the thread of the model that nobody waits.
            () = events.closed() => return None,
            update = tokio::time::timeout(KEEP_ALIVE, answers.next()) => update,
        };
        let (index, update) = match update {
            Ok(Some(update)) => update,
            Ok(None) => (0, Update::Failed(ApiError::closing())),
            Err(_) => {
                write(&events, vec![form.idle()]).await?;
                continue;
            }
        };
        let told = match update {
            Update::Started => continue,
            Update::Draft(draft) => form.draft(index, &draft),
            Update::Delta(delta) => form.delta(index, delta),
            Update::Scores(scores) => form.scores(index, &scores),
            Update::Done(answer) => {
                let told = form.done(index, &answer);
                done.push(answer);
                told
            }
            Update::Failed(e) => {
                let e = form.failed(&e);
                return write(&events, vec![e]).await;
            }
        };
        write(&events, told).await?;
    }
    let told = form.end(&done);
    write(&events, told).await
}

/// None: the client has gone.
async fn write(events: &mpsc::Sender<Result<Bytes, Infallible>>, told: Vec<Bytes>) -> Option<()> {
    for bytes in told {
        tokio::time::timeout(WRITE, events.send(Ok(bytes))).await.ok()?.ok()?;
    }
    Some(())
}

/// An event that has no name.
pub(crate) fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// An event with a name, which its data have as their type, too.
pub(crate) fn named(value: &Value) -> Bytes {
    let name = value["type"].as_str().unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
}

/// How an answer came about.
pub(crate) fn diffusion(done: &Done) -> Value {
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
