//! Keys of diffusion: canvas, mask, shift, parameters of the sampler.

use redraft_gguf::{Metadata, Shown, Value};

use super::{Edit, Finding, Patient, key};
use crate::arch::{CANVAS_LEN, Noise, Reading, SHIFT, Shape};

/// Whether predictions are in the row before: absent where programs disagree, or not what the family does.
pub(super) fn shift(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let Some(family) = p.spec.shifted else { return };
    let what = match p.meta.opt_bool(SHIFT) {
        Ok(Some(found)) if found == family => return,
        // Everybody takes a missing key for true.
        Ok(None) if family => return,
        Ok(None) => format!(
            "the file does not say it; models of this architecture need {family}, and llama.cpp takes true"
        ),
        Ok(Some(found)) => format!("the file says {found}, but models of this architecture need {family}"),
        Err(e) => format!("{e}; models of this architecture need {family}"),
    };
    findings.push(
        Finding::warning("shift-logits", SHIFT, what)
            .fixed(format!("set it to {family}"), vec![Edit::Set(SHIFT, Value::Bool(family))]),
    );
}

/// Keys that say how the sampler works: wrong ones, and the defaults for missing ones.
pub(super) fn sampler_keys(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let Some(sampler) = p.spec.sampler else { return };
    let mut missing = Vec::new();
    for param in sampler.params {
        let Some(key) = param.gguf_key else { continue };
        let Some(value) = p.meta.get(key) else {
            missing.push(format!("{key} {}", param.default));
            continue;
        };
        let mut alone = Metadata::new();
        alone.set(key, value.clone());
        if let Err(e) = sampler.params(&alone, &[]) {
            findings.push(Finding::warning("sampler-key", key, e.to_string()).fixed(
                format!("take the key away, for the default {}", param.default),
                vec![Edit::Remove(key)],
            ));
        }
    }
    if !missing.is_empty() {
        let what =
            format!("the file leaves the sampler {} its defaults: {}", sampler.name, missing.join(", "));
        findings.push(Finding::note("sampler-defaults", "diffusion.*", what));
    }
}

/// Tokens of a canvas, where models have canvases of a fixed length.
pub(super) fn canvas_length(p: &Patient<'_>, shape: &Shape, findings: &mut Vec<Finding>) {
    if shape.reading == Reading::Whole || p.meta.contains(CANVAS_LEN) {
        return;
    }
    let len = shape.canvas_len;
    let edit = u32::try_from(len).map(|len| vec![Edit::Set(CANVAS_LEN, Value::U32(len))]);
    let finding = Finding::warning(
        "canvas-length",
        CANVAS_LEN,
        format!("the file does not say it; taking {len}, as in the published models"),
    );
    findings.push(match edit {
        Ok(edit) => finding.fixed(format!("set it to {len}"), edit),
        Err(_) => finding,
    });
}

/// The mask token, found by its text where the file does not name it.
pub(super) fn mask_token(p: &Patient<'_>, shape: &Shape, findings: &mut Vec<Finding>) {
    let Noise::Mask(id) = shape.noise else { return };
    let stated = p.meta.opt_u32(key::MASK).ok().flatten();
    let text = p.tokenizer.as_ref().and_then(|t| t.piece(id)).map_or("", |piece| piece.text);
    if stated != Some(id) {
        findings.push(
            Finding::warning("mask-token", key::MASK, "the file does not name the token of text to come")
                .fixed(
                    format!("set it to {id} \"{}\"", Shown(text)),
                    vec![Edit::Set(key::MASK, Value::U32(id))],
                ),
        );
    } else if p.tokenizer.as_ref().is_some_and(|t| t.end_ids().contains(&id)) {
        let what = format!(
            "{id} \"{}\" stands for text to come and ends an answer: one of both is wrong",
            Shown(text)
        );
        findings.push(Finding::warning("mask-is-end", key::MASK, what));
    }
}
