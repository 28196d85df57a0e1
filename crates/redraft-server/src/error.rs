//! Errors in the form that clients of chat APIs expect.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use redraft::Error;
use redraft::compute::ComputeError;
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

impl From<Error> for ApiError {
    fn from(e: Error) -> ApiError {
        match e {
            Error::Request { ref what, .. } => {
                // Sentences begin with the field; only a name alone is one.
                let param = what.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then(|| what.clone());
                ApiError { param, ..ApiError::new(StatusCode::BAD_REQUEST, e.to_string()) }
            }
            Error::ContextOverflow { prompt, answer, context } => ApiError::field(
                "max_tokens",
                format!(
                    "the prompt has {prompt} tokens and the answer up to {answer}, together more than the context of \
                     {context}"
                ),
            )
            .code("context_length_exceeded"),
            Error::Memory { .. } | Error::Compute(ComputeError::OutOfMemory { .. }) => ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "not enough memory for an answer of this length: shorten the prompt or lower max_tokens",
            )
            .code("out_of_memory"),
            Error::Chat(e) => ApiError::field("messages", e),
            Error::Constrain(redraft::constrain::ConstrainError::TooShort { needed, available }) => {
                ApiError::field(
                    "max_tokens",
                    format!("the shortest reply of that form has {needed} tokens, found {available}"),
                )
            }
            Error::Constrain(e) => ApiError::new(StatusCode::BAD_REQUEST, e.to_string()),
            Error::Fill(e) => ApiError::field("suffix", e),
            Error::Tokenizer(e) => ApiError::new(StatusCode::BAD_REQUEST, e.to_string()),
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
        let io = ApiError::from(Error::Io { path: "/secret/model.gguf".into(), source });
        assert_eq!(io.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!io.body().to_string().contains("secret"));
        let steps = Error::Request { what: "steps".into(), expected: "1".into(), found: "0".into() };
        assert_eq!(ApiError::from(steps).param.as_deref(), Some("steps"));
        let e = ApiError::from(Error::ContextOverflow { prompt: 3, answer: 4, context: 5 });
        assert_eq!((e.param.as_deref(), e.code), (Some("max_tokens"), Some("context_length_exceeded")));
    }
}
