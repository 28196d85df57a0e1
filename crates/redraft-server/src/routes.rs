//! Paths, and what every request has to pass.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::metrics::Answered;
use crate::reply::{Shared, aside};
use crate::{chat, completions, messages, models, page, responses};

/// The API in the form of OpenAPI 3.1.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// A body that takes longer to arrive is given up.
const BODY: Duration = Duration::from_secs(30);

/// What paths begin with whose errors have another form.
const MESSAGES: &str = "/v1/messages";

/// Paths that need no key.
const PUBLIC: [&str; 2] = ["/health", "/ready"];

/// All paths of the server but those of the page, with what answers them.
fn paths() -> [(&'static str, MethodRouter<Arc<App>>); 11] {
    let openapi = || async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) };
    [
        ("/health", get(async || Json(json!({"status": "ok"})))),
        ("/ready", get(ready)),
        ("/metrics", get(metrics)),
        ("/openapi.json", get(openapi)),
        ("/v1/models", get(async |State(app): Shared| Json(models::list(&app)))),
        ("/v1/models/{*id}", get(model)),
        ("/v1/chat/completions", post(api(chat::answer))),
        ("/v1/completions", post(api(completions::answer))),
        ("/v1/messages", post(api(messages::answer))),
        ("/v1/messages/count_tokens", post(api(messages::count))),
        ("/v1/responses", post(api(responses::answer))),
    ]
}

pub(crate) fn router(app: &Arc<App>) -> Router {
    let page = page::routes(Router::new());
    paths()
        .into_iter()
        .fold(page, |router, (path, route)| router.route(path, route))
        .method_not_allowed_fallback(async || {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path has another method: /openapi.json says which",
            )
        })
        .fallback(async || {
            ApiError::new(StatusCode::NOT_FOUND, "there is no such path: /openapi.json lists them")
        })
        .layer(from_fn_with_state(Arc::clone(app), gate))
        .with_state(Arc::clone(app))
}

/// Counts a request, and refuses it where it may not pass.
async fn gate(State(app): Shared, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let messages = request.uri().path().starts_with(MESSAGES);
    let response = match admitted(&app, &request, &path) {
        Ok(()) => next.run(request).await,
        Err(e) => e.into_response(),
    };
    let answered = Answered { path, status: response.status().as_u16() };
    app.metrics.requests.get_or_create(&answered).inc();
    let mut response = response;
    if messages && let Some(e) = response.extensions().get::<ApiError>() {
        let id = app.next_id("req");
        let body = messages::error(e, &id);
        let (mut parts, _) = response.into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.headers.extend(HeaderValue::try_from(id).map(|id| (HeaderName::from_static("request-id"), id)));
        response = Response::from_parts(parts, Body::from(body.to_string()));
    }
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

fn admitted(app: &App, request: &Request, path: &str) -> Result<(), ApiError> {
    if app.local_names_only {
        // Else a page of another origin could reach this server under a name of its own.
        let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok());
        if !host.is_some_and(is_local) {
            let message = "this server answers to localhost and loopback addresses only";
            return Err(ApiError::new(StatusCode::FORBIDDEN, message));
        }
    }
    let Some(key) = &app.config.api_key else { return Ok(()) };
    if PUBLIC.contains(&path) || page::is_page(path) {
        return Ok(());
    }
    let headers = request.headers();
    let bearer = headers.get(header::AUTHORIZATION).and_then(|v| v.as_bytes().strip_prefix(b"Bearer "));
    let given = [bearer, headers.get("x-api-key").map(HeaderValue::as_bytes)];
    match given.into_iter().flatten().any(|given| same(key.as_bytes(), given)) {
        true => Ok(()),
        false => {
            app.metrics.rejected("key");
            let message =
                "expected the key of this server, as in `Authorization: Bearer KEY` or `x-api-key: KEY`";
            Err(ApiError::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key"))
        }
    }
}

/// Whether a Host header names this machine to itself.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Compares in a time that depends on the length of what was given alone.
fn same(key: &[u8], given: &[u8]) -> bool {
    let mut differ = key.len() ^ given.len();
    for (i, byte) in given.iter().enumerate() {
        let own = key.get(i % key.len().max(1)).copied().unwrap_or(0);
        differ |= usize::from(std::hint::black_box(own ^ byte));
    }
    std::hint::black_box(differ) == 0
}

/// The body of a request as JSON.
async fn json_body(app: &App, request: Request) -> Result<Value, ApiError> {
    let (parts, body) = request.into_parts();
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    // Pages of other origins can send the simple types without being asked.
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let message = "expected a body of the type application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let most = app.config.max_body_bytes;
    let too_large =
        || ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("expected a body of at most {most} bytes"));
    let announced =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|n| n > most as u64) {
        return Err(too_large());
    }
    let bytes = match tokio::time::timeout(BODY, read(body, most)).await {
        Err(_) => {
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"));
        }
        Ok(bytes) => bytes.map_err(|_| too_large())?,
    };
    aside(move || {
        serde_json::from_slice(&bytes).map_err(|e| ApiError::field("body", format_args!("not JSON: {e}")))
    })
    .await
}

/// What comes of a body that breaks off is read by nobody; so each error is one of its length.
async fn read(body: Body, most: usize) -> Result<axum::body::Bytes, axum::Error> {
    to_bytes(body, most).await
}

/// What answers the bodies of an API.
fn api<A, F>(
    answer: A,
) -> impl Fn(Shared, Request) -> Pin<Box<dyn Future<Output = Result<Response, ApiError>> + Send>> + Clone
where
    A: Fn(Arc<App>, Value) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    move |State(app), request| {
        let answer = answer.clone();
        Box::pin(async move {
            let body = json_body(&app, request).await?;
            answer(app, body).await
        })
    }
}

async fn model(State(app): Shared, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    models::one(&app, &id).map(Json)
}

async fn ready(State(app): Shared) -> Result<Json<Value>, ApiError> {
    if app.is_closing() { Err(ApiError::closing()) } else { Ok(Json(json!({"status": "ready"}))) }
}

async fn metrics(State(app): Shared) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.metrics.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_names() {
        assert!(same(b"secret", b"secret"));
        for other in [&b"secre"[..], b"secrets", b"secretsecret", b"", b"Secret"] {
            assert!(!same(b"secret", other));
        }
        for local in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]:80", "[::1]"] {
            assert!(is_local(local), "{local}");
        }
        for other in ["example.com", "localhost.example.com:80", "10.0.0.1", "[::2]", "", "127.0.0.1.nip.io"]
        {
            assert!(!is_local(other), "{other}");
        }
    }

    #[test]
    fn the_description_has_the_paths_of_the_server() {
        let openapi: Value = serde_json::from_str(OPENAPI).unwrap();
        let described = openapi["paths"].as_object().unwrap();
        let all = ["/"].into_iter().chain(paths().map(|(path, _)| path));
        let all: Vec<String> = all.map(|p| p.replace("{*id}", "{id}")).collect();
        assert_eq!(described.keys().collect::<Vec<_>>(), all.iter().collect::<Vec<_>>());
        for (path, methods) in described {
            let asked = methods.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>();
            let posts = ["/v1/chat/", "/v1/completions", "/v1/messages", "/v1/responses"];
            let method = if posts.iter().any(|p| path.starts_with(p)) { "post" } else { "get" };
            assert_eq!(asked, [method], "{path}");
            if method == "post" {
                let mut told = vec!["200", "400", "401", "404", "413", "415", "429", "503", "504"];
                // Nothing is computed there.
                told.retain(|status| *status != "504" || !path.ends_with("count_tokens"));
                let responses = methods["post"]["responses"].as_object().unwrap();
                assert_eq!(responses.keys().collect::<Vec<_>>(), told, "{path}");
            }
        }
    }
}
