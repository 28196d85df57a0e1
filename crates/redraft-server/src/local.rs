//! Answers for this process itself, without a network: the same paths, and the same answers.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use redraft::Model;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::app::App;
use crate::chat::MOST_CHOICES;
use crate::error::ApiError;
use crate::facts::Facts;
use crate::worker::{Message, Worker};
use crate::{Config, ServerError, routes, runtime};

/// What is to be answered: a path that takes POST, and the body.
#[derive(Debug, Clone)]
pub struct Ask<T> {
    /// As `/v1/chat/completions`.
    pub path: String,
    /// JSON.
    pub body: Vec<u8>,
    /// Comes back with the answer.
    pub tag: T,
}

/// What a client would get.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Of HTTP.
    pub status: u16,
    /// The answer or the error.
    pub body: Value,
}

/// Who asks, and is told.
pub trait Client {
    /// What comes back with an answer.
    type Tag: Send + 'static;
    /// Why nothing more is to be answered.
    type Error: From<ServerError>;

    /// The next request; none after the last one.
    ///
    /// # Errors
    /// Ends everything.
    fn next(&mut self) -> Result<Option<Ask<Self::Tag>>, Self::Error>;

    /// An answer, as soon as it is complete.
    ///
    /// # Errors
    /// Ends everything.
    fn answered(&mut self, tag: Self::Tag, answer: Answer) -> Result<(), Self::Error>;
}

/// A model that answers requests of this process as [`Server`](crate::Server) answers those of others.
pub struct Local {
    runtime: Runtime,
    service: TowerToHyperService<Router>,
    app: Arc<App>,
    interrupt: Arc<AtomicBool>,
    model: Option<JoinHandle<()>>,
}

impl Local {
    /// Starts the thread of the model. Of `config` count `parallel`, `cache_bytes`, `context_len` and `max_body_bytes`.
    ///
    /// # Errors
    /// The model has no canvas or a chat template that cannot be read; the system gives no threads.
    pub fn start(model: Model, config: Config) -> Result<Local, ServerError> {
        let facts = Facts::new(&model, config.context_len)?;
        let parallel = config.parallel.max(1);
        // Every request in flight has its places, whatever it asks for.
        let places = (2 * parallel).saturating_mul(MOST_CHOICES);
        let config = Config {
            parallel,
            max_queue: places,
            api_key: None,
            timeout: Duration::MAX,
            max_body_bytes: config.max_body_bytes,
            cache_bytes: config.cache_bytes,
            context_len: config.context_len,
            ..Config::default()
        };
        let interrupt = Arc::new(AtomicBool::new(false));
        let (app, inbox) = App::new(facts, (config, false));
        let worker = Worker::new(model, &app, inbox, Arc::clone(&interrupt));
        let runtime = runtime()?;
        let model = worker.spawn(()).map_err(ServerError::Start)?;
        let service = TowerToHyperService::new(routes::router(&app));
        Ok(Local { runtime, service, app, interrupt, model: Some(model) })
    }

    /// Asks until the client has nothing more to ask and all is answered. Up to twice [`Config::parallel`] requests are in
    /// flight, so that one is ready when an answer ends; answers come in the order in which they are complete.
    ///
    /// # Errors
    /// Those of the client; [`ServerError::Panicked`].
    pub fn answer_all<C: Client>(&mut self, client: &mut C) -> Result<(), C::Error> {
        let Local { runtime, service, app, .. } = self;
        let most = 2 * app.config.parallel;
        runtime.block_on(async {
            let mut flying = JoinSet::new();
            let mut more = true;
            loop {
                while more && flying.len() < most {
                    match client.next()? {
                        None => more = false,
                        Some(Ask { path, body, tag }) => {
                            let answer = answer(service, &path, body);
                            flying.spawn(async move { (tag, answer.await) });
                        }
                    }
                }
                let Some(done) = flying.join_next().await else { return Ok(()) };
                let (tag, (answer, is_closing)) = done.map_err(|_| ServerError::Panicked)?;
                // Nobody ends this but its owner.
                if is_closing {
                    return Err(ServerError::Panicked.into());
                }
                client.answered(tag, answer)?;
            }
        })
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.interrupt.store(true, Ordering::Relaxed);
        self.app.end();
        if let Some(model) = self.model.take() {
            // That it panicked was told where an answer was missing.
            let _ = model.join();
        }
    }
}

/// Reads requests as a server does, up to their prompts, and computes nothing.
pub struct Reader {
    runtime: Runtime,
    service: TowerToHyperService<Router>,
    app: Arc<App>,
    prompts: Arc<Mutex<Vec<Vec<u32>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// For requests to a model. Of `config` count `context_len` and `max_body_bytes`.
    ///
    /// # Errors
    /// The model has no canvas or a chat template that cannot be read; the system gives no threads.
    pub fn new(model: &Model, config: Config) -> Result<Reader, ServerError> {
        let facts = Facts::new(model, config.context_len)?;
        let config = Config { api_key: None, max_queue: MOST_CHOICES, ..config };
        let (app, inbox) = App::new(facts, (config, false));
        let prompts = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&prompts);
        // A request is answered with an error once all that is to be done for it is dropped.
        let work = move || {
            while let Ok(Message::Ask(job)) = inbox.recv() {
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(job.work.prompt);
            }
        };
        let thread =
            std::thread::Builder::new().name("reader".into()).spawn(work).map_err(ServerError::Start)?;
        let service = TowerToHyperService::new(routes::router(&app));
        Ok(Reader { runtime: runtime()?, service, app, prompts, thread: Some(thread) })
    }

    /// The prompts of a request, one for each answer that it asks for.
    ///
    /// # Errors
    /// What a client would be told.
    pub fn prompts(&mut self, path: &str, body: Vec<u8>) -> Result<Vec<Vec<u32>>, Answer> {
        let (answer, _) = self.runtime.block_on(answer(&self.service, path, body));
        let prompts = std::mem::take(&mut *self.prompts.lock().unwrap_or_else(PoisonError::into_inner));
        if prompts.is_empty() { Err(answer) } else { Ok(prompts) }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.app.end();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

/// The answer, and whether it says that the thread of the model has ended, which not every form of bodies does.
fn answer(
    service: &TowerToHyperService<Router>,
    path: &str,
    body: Vec<u8>,
) -> impl Future<Output = (Answer, bool)> + Send + 'static {
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json").body(Body::from(body));
    let answered = request.map(|request| service.call(request));
    async move {
        let failed = |message: &str| Answer {
            status: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
            body: ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).body(),
        };
        let Ok(answered) = answered else { return (failed("this is no path"), false) };
        let Ok(response) = answered.await;
        let is_closing = response.extensions().get::<ApiError>().is_some_and(ApiError::is_closing);
        let status = response.status().as_u16();
        let answer = match to_bytes(response.into_body(), usize::MAX).await {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(body) => Answer { status, body },
                Err(_) => failed("the answer is no JSON: a stream was asked for"),
            },
            Err(_) => failed("the answer broke off"),
        };
        (answer, is_closing)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_end_of_the_model_is_told_in_every_form() {
        let model = Model::embedded(&redraft::LoadOptions::default()).unwrap();
        let facts = Facts::new(&model, None).unwrap();
        let (app, inbox) = App::new(facts, (Config::default(), false));
        let service = TowerToHyperService::new(routes::router(&app));
        let body = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 2});
        let closed = |path: &str, body: &Value| {
            runtime().unwrap().block_on(answer(&service, path, body.to_string().into_bytes())).1
        };
        assert!(!closed("/v1/messages", &json!({})));
        drop(inbox);
        assert!(closed("/v1/messages", &body) && closed("/v1/chat/completions", &body));
        assert!(!closed("/v1/messages", &json!({})));
    }
}
