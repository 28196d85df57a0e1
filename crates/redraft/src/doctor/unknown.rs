//! Files of other architectures: no diffusion model, or one that is not known yet.

use std::collections::BTreeSet;

use redraft_gguf::{Gguf, Metadata, Shown};

use super::{Finding, Verdict};
use crate::Error;
use crate::arch::{ARCHS, ArchSpec};
use crate::tokenizer::{key, markers_in};

/// Parts that are named in a finding.
const SHOWN: usize = 12;

/// A known architecture that writes one token after another, and what says that the file is of another one.
pub(super) fn autoregressive(gguf: &Gguf, arch: &str) -> Vec<Finding> {
    let what = format!(
        "`{arch}` writes one token after another: there is no canvas to denoise. `redraft bench` measures its passes"
    );
    let place = "general.architecture";
    let mut all = vec![Finding::error("autoregressive", Verdict::NotADiffusionModel, place, what)];
    let conditioned = gguf.tensors().iter().find(|t| t.name.starts_with("self_cond_"));
    let mut signs = signs(gguf.metadata(), arch);
    signs.extend(conditioned.map(|t| Shown(&t.name).to_string()));
    if !signs.is_empty() {
        let what = format!(
            "the file has what only diffusion models have: {}; one that was converted under the name of the model it \
             was made from has to be converted again",
            signs.join(", ")
        );
        all.push(Finding::warning("denoises-after-all", place, what));
    }
    all
}

/// What can be said of a file that has no entry in the registry.
pub(super) fn findings(gguf: &Gguf, error: &Error) -> Vec<Finding> {
    let meta = gguf.metadata();
    let place = "general.architecture";
    let Error::UnknownArch { found, .. } = error else {
        return vec![Finding::error("not-text", Verdict::NotADiffusionModel, place, error.to_string())];
    };
    let signs = signs(meta, found);
    if signs.is_empty() {
        let what = format!(
            "`{}` is not known here, and nothing in the file says that it denoises: no diffusion.* key, and \
             attention is causal",
            Shown(found)
        );
        let mut all = vec![Finding::error("autoregressive", Verdict::NotADiffusionModel, place, what)];
        all.extend(masks(meta));
        return all;
    }
    let mut what =
        format!("`{}` has no implementation here; it denoises: {}", Shown(found), signs.join(", "));
    let mut all = Vec::new();
    if let Some((spec, differences)) = nearest(gguf, found) {
        what.push_str(&format!("; the nearest known architecture is `{}` ({})", spec.name, spec.about));
        all.extend(differences);
    }
    all.insert(0, Finding::error("unknown-architecture", Verdict::NeedsArchSupport, place, what));
    all
}

/// What says that a model denoises.
fn signs(meta: &Metadata, arch: &str) -> Vec<String> {
    let mut signs: Vec<String> = meta
        .iter()
        .filter(|(key, _)| key.starts_with("diffusion."))
        .map(|(key, _)| Shown(key).to_string())
        .collect();
    signs.truncate(SHOWN);
    let causal = format!("{arch}.attention.causal");
    // Models that make one vector of a text read both ways, too.
    let pools = meta.contains(&format!("{arch}.pooling_type"));
    if meta.opt_bool(&causal).ok().flatten() == Some(false) && !pools {
        signs.push(format!("{} is false", Shown(&causal)));
    }
    if arch.to_lowercase().contains("diffus") || arch.to_lowercase().contains("dllm") {
        signs.push("its name".into());
    }
    signs
}

/// A mask token in the vocabulary of a model that seems to be autoregressive.
fn masks(meta: &Metadata) -> Option<Finding> {
    let tokens = meta.opt_str_array(key::TOKENS).ok().flatten()?;
    let (id, text) =
        (0u32..).zip(tokens.iter()).find(|(_, t)| t.contains("mask|>") && markers_in(t).next().is_some())?;
    let what = format!(
        "the vocabulary has a mask token, {id} \"{}\": a diffusion model that was converted under the name of the \
         model it was made from has to be converted again",
        Shown(text)
    );
    Some(Finding::note("mask-in-vocabulary", key::TOKENS, what))
}

/// The architecture whose tensors and keys are most like those of the file, and how they differ.
fn nearest(gguf: &Gguf, found: &str) -> Option<(&'static ArchSpec, Vec<Finding>)> {
    let own = Parts::new(gguf.tensors().iter().map(|t| t.name.as_str()), gguf.metadata(), found);
    let known = ARCHS.iter().filter(|a| a.sampler.is_some());
    let plans = known.filter_map(|a| {
        let preset = a.presets.iter().find(|p| p.name.ends_with("tiny")).or(a.presets.last())?;
        let plan = (preset.build)();
        Some((a, Parts::new(plan.tensors.iter().map(|t| t.name.as_str()), &plan.metadata, a.name)))
    });
    // The first of those that are alike.
    let mut best: Option<(f64, &ArchSpec, Parts)> = None;
    for (spec, parts) in plans {
        let likeness = own.likeness(&parts);
        if best.as_ref().is_none_or(|(most, ..)| likeness > *most) {
            best = Some((likeness, spec, parts));
        }
    }
    let (_, spec, parts) = best?;
    let mut findings = Vec::new();
    let mut say = |id, place: &str, what: &str, names: Vec<&String>| {
        if names.is_empty() {
            return;
        }
        let mut list: Vec<String> = names.iter().take(SHOWN).map(|n| Shown(n).to_string()).collect();
        if names.len() > SHOWN {
            list.push(format!("and {} more", names.len() - SHOWN));
        }
        findings.push(Finding::note(id, place, format!("{what}: {}", list.join(", "))));
    };
    let name = spec.name;
    let extra = format!("parts that `{name}` does not have and that would need an implementation");
    say("part-extra", "tensors", &extra, own.tensors.difference(&parts.tensors).collect());
    let missing = format!("tensors of `{name}` that the file does not have");
    say("part-missing", "tensors", &missing, parts.tensors.difference(&own.tensors).collect());
    let extra = format!("hyper-parameters that `{name}` does not know");
    say("key-extra", "metadata", &extra, own.keys.difference(&parts.keys).collect());
    Some((spec, findings))
}

/// Names of tensors with all layers as one, and of hyper-parameters without their prefix.
struct Parts {
    tensors: BTreeSet<String>,
    keys: BTreeSet<String>,
}

impl Parts {
    fn new<'a>(tensors: impl Iterator<Item = &'a str>, meta: &Metadata, arch: &str) -> Parts {
        let general = |name: &str| match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((layer, name)) if layer.bytes().all(|b| b.is_ascii_digit()) => format!("blk.*.{name}"),
            _ => name.to_owned(),
        };
        let own = |key: &str| key.strip_prefix(arch)?.strip_prefix('.').map(str::to_owned);
        Parts {
            tensors: tensors.map(general).collect(),
            keys: meta.iter().filter_map(|(key, _)| own(key)).collect(),
        }
    }

    /// Shared names among all, tensors and keys alike.
    fn likeness(&self, other: &Parts) -> f64 {
        let shared =
            self.tensors.intersection(&other.tensors).count() + self.keys.intersection(&other.keys).count();
        let all = self.tensors.union(&other.tensors).count() + self.keys.union(&other.keys).count();
        shared as f64 / all.max(1) as f64
    }
}
