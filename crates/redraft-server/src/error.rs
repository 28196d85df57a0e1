//! Errors in the form that clients of chat APIs expect.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use redraft::Error;
use redraft::compute::ComputeError;
use redraft::constrain::ConstrainError;
use serde_json::{Value, json};

/// Seconds after which a client that was turned away may try again.
const RETRY_SECONDS: u32 = 1;

/// What a client is told instead of an answer. Never says where files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The field that is wrong.
    pub(crate) param: Option<String>,
    pub(crate) code: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None }
    }

    /// A field that cannot be honoured.
    pub(crate) fn field(name: impl Into<String>, message: impl std::fmt::Display) -> ApiError {
        let name = name.into();
        let message = format!("{name}: {message}");
        ApiError { param: Some(name), ..ApiError::new(StatusCode::BAD_REQUEST, message) }
    }

    pub(crate) fn code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    /// All places are taken.
    pub(crate) fn busy() -> ApiError {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "all places in the queue are taken: try again later")
            .code("queue_full")
    }

    /// The server ends.
    pub(crate) fn closing() -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down").code("shutting_down")
    }

    /// Whether it says that the server ends.
    pub(crate) fn is_closing(&self) -> bool {
        self.code == Some("shutting_down")
    }

    /// The answer took too long.
    pub(crate) fn timeout() -> ApiError {
        let message = "the answer was not complete within the time that the server gives a request";
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, message).code("timeout")
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            s if s.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The body.
    pub(crate) fn body(&self) -> Value {
        let ApiError { message, param, code, .. } = self;
        json!({"error": {"message": message, "type": self.kind(), "param": param, "code": code}})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        // For APIs that have another form.
        response.extensions_mut().insert(self.clone());
        let headers = response.headers_mut();
        match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, RETRY_SECONDS.into());
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// What a request calls the fields that errors of the engine speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names {
    /// How long an answer may be.
    pub(crate) length: &'static str,
    /// What the prompt is made of.
    pub(crate) history: &'static str,
    /// What the reply must be, where it must be anything.
    pub(crate) language: Option<&'static str>,
}

impl ApiError {
    /// An error of the engine, told to whoever asked with fields of these names.
    pub(crate) fn of(e: Error, names: Names) -> ApiError {
        match e {
            Error::Request { what, expected, found } => {
                let what = match what.as_str() {
                    "max_tokens" => names.length.to_owned(),
                    "prompt" => names.history.to_owned(),
                    _ => what,
                };
                // Sentences begin with the field; only a name alone is one.
                let param = what.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then(|| what.clone());
                let e = Error::Request { what, expected, found };
                ApiError { param, ..ApiError::new(StatusCode::BAD_REQUEST, e.to_string()) }
            }
            Error::ContextOverflow { prompt, answer, context } => ApiError::field(
                names.length,
                format!(
                    "the prompt has {prompt} tokens and the answer up to {answer}, together more than the context of \
                     {context}"
                ),
            )
            .code("context_length_exceeded"),
            Error::Memory { .. } | Error::Compute(ComputeError::OutOfMemory { .. }) => ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "not enough memory for an answer of this length: shorten the prompt or lower {}",
                    names.length
                ),
            )
            .code("out_of_memory"),
            Error::Chat(e) => ApiError::field(names.history, e),
            Error::Constrain(ConstrainError::TooShort { needed, available }) => {
                ApiError::field(
                    names.length,
                    format!("the shortest reply of that form has {needed} tokens, found {available}"),
                )
            }
            Error::Constrain(e @ ConstrainError::Calls { .. }) => ApiError::field("tools", e),
            Error::Constrain(e) => match names.language {
                Some(name) => ApiError::field(name, e),
                None => ApiError::new(StatusCode::BAD_REQUEST, e.to_string()),
            },
            Error::Fill(e) => ApiError::field("suffix", e),
            Error::Tokenizer(e) => ApiError::field(names.history, e),
            Error::Interrupted | Error::Compute(ComputeError::Interrupted) => ApiError::closing(),
            _ => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the model could not compute this answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_unnamed_and_fields_are_named() {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let names = Names { length: "max_output_tokens", history: "input", language: Some("text.format") };
        let of = |e: Error| ApiError::of(e, names);
        let io = of(Error::Io { path: "/secret/model.gguf".into(), source });
        assert_eq!(io.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!io.body().to_string().contains("secret"));
        let steps = Error::Request { what: "steps".into(), expected: "1".into(), found: "0".into() };
        assert_eq!(of(steps).param.as_deref(), Some("steps"));
        let e = of(Error::ContextOverflow { prompt: 3, answer: 4, context: 5 });
        assert_eq!(
            (e.param.as_deref(), e.code),
            (Some("max_output_tokens"), Some("context_length_exceeded"))
        );
        let zero = Error::Request { what: "max_tokens".into(), expected: "1".into(), found: "0".into() };
        assert_eq!(of(zero).message, "max_output_tokens: expected 1, found 0");
        let param = |e: ConstrainError| of(e.into()).param.unwrap();
        assert_eq!(param(ConstrainError::Empty), "text.format");
        assert_eq!(param(ConstrainError::Calls { problem: "x".into() }), "tools");
        assert_eq!(param(ConstrainError::TooShort { needed: 2, available: 1 }), "max_output_tokens");
    }
}
