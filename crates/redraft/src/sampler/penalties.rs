//! Parameters that weigh on logits before any sampler sees them. All samplers have them; what they do is in
//! `engine/penalties.rs`.

use super::{ParamSpec, Range};

const REPETITION: ParamSpec = ParamSpec {
    name: "repetition_penalty",
    flag: "repetition-penalty",
    doc: "logits of tokens of the prompt and of the answer so far are divided by it, or multiplied where they are below 0; \
          1 is none",
    default: 1.0,
    range: Range::Float { min: 0.01, max: 100.0 },
    gguf_key: None,
};
const PRESENCE: ParamSpec = ParamSpec {
    name: "presence_penalty",
    flag: "presence-penalty",
    doc: "what is subtracted from the logits of tokens of the prompt and of the answer so far; 0 is none",
    default: 0.0,
    range: Range::Float { min: -100.0, max: 100.0 },
    gguf_key: None,
};

const MIN_TOKENS: ParamSpec = ParamSpec {
    name: "min_tokens",
    flag: "min-tokens",
    doc: "tokens of the answer at least: ends of the answer are not drawn before, against answers that end at once",
    default: 0.0,
    range: Range::Int { min: 0, max: 1 << 20 },
    gguf_key: None,
};

/// All of them. Their defaults change nothing.
pub(super) const PENALTIES: &[ParamSpec] = &[REPETITION, PRESENCE, MIN_TOKENS];

/// The value of a parameter that a recording need not name: the one that changes nothing, where programs without that
/// parameter write recordings, too.
pub(crate) fn unsaid(name: &str) -> Option<f64> {
    PENALTIES.iter().find(|p| p.name == name).map(|p| p.default)
}
