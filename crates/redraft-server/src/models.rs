//! `/v1/models`: what the model is, and with which parameters its canvases are denoised.

use redraft::sampler::{ParamSpec, Params, Range, SamplerSpec, json_number as number};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;

/// The list, in the form of chat APIs.
pub(crate) fn list(app: &App) -> Value {
    json!({"object": "list", "data": [short(app)]})
}

fn short(app: &App) -> Value {
    json!({"id": app.facts.id, "object": "model", "created": app.created, "owned_by": "redraft"})
}

/// All about the model.
///
/// # Errors
/// It is another one.
pub(crate) fn one(app: &App, id: &str) -> Result<Value, ApiError> {
    let facts = &app.facts;
    if id != facts.id {
        let e = ApiError::field("model", "this server has no such model; /v1/models says which it has");
        return Err(ApiError { status: axum::http::StatusCode::NOT_FOUND, ..e }.code("model_not_found"));
    }
    let mut model = short(app);
    let samplers: Vec<Value> = facts.samplers.iter().map(|(spec, params)| sampler(spec, params)).collect();
    let more = json!({
        "architecture": facts.architecture,
        "file_type": facts.file_type,
        "numerics": facts.numerics,
        "vocabulary_length": facts.shape.vocab_len,
        "context_length": facts.context_len,
        "canvas_length": facts.shape.canvas_len,
        "diffusion": {"sampler": facts.own.name, "samplers": samplers},
    });
    if let (Value::Object(model), Value::Object(more)) = (&mut model, more) {
        model.extend(more);
    }
    Ok(model)
}

fn sampler(spec: &SamplerSpec, params: &Params) -> Value {
    let parameters: Vec<Value> = spec.params.iter().map(|p| parameter(p, params.get(p.name))).collect();
    json!({"name": spec.name, "description": spec.about, "parameters": parameters})
}

fn parameter(p: &ParamSpec, default: f64) -> Value {
    let (kind, min, max) = match p.range {
        Range::Int { min, max } => ("integer", f64::from(min), f64::from(max)),
        Range::Float { min, max } => ("number", min, max),
    };
    json!({"name": p.name, "description": p.doc, "type": kind, "minimum": number(min), "maximum": number(max),
        "default": number(default)})
}
