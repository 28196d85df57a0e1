//! The header metadata of trace files: what was run, and how.

use std::collections::BTreeMap;

use redraft::Model;
use redraft::arch::{Reading, Shape};
use redraft::engine::{BlockCache, Request};
use redraft::sampler::{PromptWindow, json_number};
use redraft::trace::golden_name;
use serde_json::{Map, Value, json};

use crate::version::VERSION;

/// Who sees whom.
fn mask_rule(shape: &Shape, window: PromptWindow) -> String {
    let keys = match (shape.reading, window) {
        (Reading::Whole, _) => return "prompt and canvas bidirectional".into(),
        (Reading::Blocks, _) => {
            return format!("block-causal, blocks of {} from the start of the sequence", shape.canvas_len);
        }
        (_, PromptWindow::Exclusive) => "W-1",
        (_, PromptWindow::Inclusive) => "W",
    };
    format!(
        "prompt causal, canvas bidirectional over prompt and canvas; sliding layers of a canvas see the last \
         {keys} prompt tokens of a window W"
    )
}

/// What all traces say.
pub(crate) fn common(model: &Model) -> BTreeMap<String, String> {
    let c = model.backend().capabilities();
    let facts = [
        ("model", model.name().to_string()),
        ("model_sha256_header", model.sha256_header()),
        ("architecture", model.arch().name.to_string()),
        ("backend", c.backend.to_string()),
        ("numerics", model.numerics().name().to_string()),
        ("kv_type", model.kv_type().name().to_string()),
        ("precision", c.precision.name().to_string()),
        ("mask_rule", mask_rule(model.shape(), PromptWindow::default())),
        ("redraft_version", VERSION.to_string()),
    ];
    facts.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
}

/// What the trace of a generation says: also the seed and `config`, the settings under the names that other
/// programs know, from which `trace --like` repeats it.
pub(crate) fn generation(model: &Model, request: &Request, seed: u64) -> BTreeMap<String, String> {
    let mut config = Map::new();
    for (name, value) in request.params.iter() {
        config.insert(golden_name(name).to_string(), json_number(value));
    }
    config.insert("eos".into(), json!(request.end_ids));
    if !request.ban.is_empty() {
        config.insert("ban".into(), json!(request.ban));
    }
    let mut facts = common(model);
    facts.insert("mask_rule".into(), mask_rule(model.shape(), request.profile.window));
    facts.insert("sampler".into(), request.sampler.name.into());
    facts.insert("profile".into(), request.profile.name.into());
    facts.insert("max_tokens".into(), request.max_tokens.to_string());
    if request.cache != BlockCache::None {
        facts.insert("cache".into(), request.cache.name().into());
    }
    facts.insert("seed".into(), seed.to_string());
    facts.insert("self_conditioning".into(), request.self_conditioning.to_string());
    facts.insert("config".into(), Value::Object(config).to_string());
    facts
}
