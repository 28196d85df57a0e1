//! The chat template.

use redraft_gguf::Value;

use super::{Edit, Finding, Patient, key};
use crate::chat::{BuiltinTemplate, ChatTemplate};
use crate::tokenizer::markers_in;

/// A template that cannot be read, or speaks in markers of another family of models.
pub(super) fn foreign(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let Some(tokenizer) = &p.tokenizer else { return };
    let fitting = BuiltinTemplate::fitting(tokenizer);
    let Some(source) = tokenizer.chat_template() else {
        let what = format!("the file has no chat template; the built-in one {:?} is used", fitting.name);
        findings.push(Finding::note("template-missing", key::CHAT_TEMPLATE, what));
        return;
    };
    let (id, what) = match ChatTemplate::from_source(source) {
        Err(e) => ("template-broken", format!("the chat template cannot be read: {e}")),
        Ok(_) => {
            let unknown: Vec<&str> = markers_in(source).filter(|m| tokenizer.token_id(m).is_none()).collect();
            let own = fitting.markers.iter().any(|m| source.contains(m));
            if unknown.is_empty() || own || fitting.markers.is_empty() {
                return;
            }
            let what = format!(
                "the chat template is of another family: the vocabulary has no {}, but {}",
                unknown.join(", "),
                fitting.markers.join(", ")
            );
            ("template-foreign", what)
        }
    };
    findings.push(Finding::warning(id, key::CHAT_TEMPLATE, what).fixed(
        format!("write the built-in template {:?} ({})", fitting.name, fitting.about),
        vec![Edit::Set(key::CHAT_TEMPLATE, Value::from(fitting.source))],
    ));
}
