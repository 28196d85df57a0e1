//! What is wrong with a model file, and what can be done about it. `docs/doctor.md` lists verdicts and findings.
//!
//! A check is a function from a file to findings, and one line in a list of this file. A finding may carry edits of
//! metadata. They are applied in memory before the model is loaded, so that the verdict is about the repaired file.

mod damage;
mod diffusion;
mod figures;
mod repair;
mod template;
mod tensors;
mod tokens;
mod unknown;

use std::path::Path;

use redraft_gguf::{Gguf, GgufError, Metadata, OpenOptions, Value};
use serde::Serialize;

pub use self::figures::{Figures, Roofline};
pub use self::repair::Repair;

use crate::arch::{ArchSpec, Shape, arch_of};
use crate::tokenizer::{Tokenizer, TokenizerParts, find_pre, key, pre_of_vocabulary};
use crate::weights::WeightLoader;
use crate::{Error, LoadOptions, Model};

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// It runs as it is.
    Supported,
    /// It runs, and metadata should be corrected.
    SupportedWithFixes,
    /// Its architecture is known, and what it says of itself cannot be run.
    LoadsButDecodeUnsupported,
    /// A backend has no kernel for the type of a tensor.
    BackendKernelGap,
    /// A diffusion model of an unknown architecture.
    NeedsArchSupport,
    /// Something else than a diffusion model.
    NotADiffusionModel,
    /// The file is broken or incomplete.
    Damaged,
}

impl Verdict {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Supported => "SUPPORTED",
            Verdict::SupportedWithFixes => "SUPPORTED_WITH_FIXES",
            Verdict::LoadsButDecodeUnsupported => "LOADS_BUT_DECODE_UNSUPPORTED",
            Verdict::BackendKernelGap => "BACKEND_KERNEL_GAP",
            Verdict::NeedsArchSupport => "NEEDS_ARCH_SUPPORT",
            Verdict::NotADiffusionModel => "NOT_A_DIFFUSION_MODEL",
            Verdict::Damaged => "DAMAGED",
        }
    }

    /// Whether the model can be run.
    pub fn is_supported(self) -> bool {
        matches!(self, Verdict::Supported | Verdict::SupportedWithFixes)
    }
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Note,
    /// Answers may be worse, or other programs may read the file in another way.
    Warning,
    /// The file cannot be run.
    Error,
}

/// A change of metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// Sets a key.
    Set(&'static str, Value),
    /// Takes a key away.
    Remove(&'static str),
}

impl Edit {
    fn apply(&self, meta: &mut Metadata) {
        match self {
            Edit::Set(key, value) => meta.set(*key, value.clone()),
            Edit::Remove(key) => _ = meta.remove(key),
        }
    }
}

/// How a finding is put right.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fix {
    /// What is changed, in words.
    pub what: String,
    /// The changes.
    #[serde(skip)]
    pub edits: Vec<Edit>,
}

/// One thing to say about a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name of the kind.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What it is, one sentence.
    pub what: String,
    /// Key, tensor or byte offset.
    #[serde(rename = "where")]
    pub place: String,
    /// How it is put right by metadata alone.
    pub fix: Option<Fix>,
    /// The verdict that an error leads to.
    #[serde(skip)]
    pub verdict: Option<Verdict>,
}

impl Finding {
    fn new(
        id: &'static str,
        severity: Severity,
        place: impl Into<String>,
        what: impl Into<String>,
    ) -> Finding {
        Finding { id, severity, what: what.into(), place: place.into(), fix: None, verdict: None }
    }

    fn note(id: &'static str, place: impl Into<String>, what: impl Into<String>) -> Finding {
        Finding::new(id, Severity::Note, place, what)
    }

    fn warning(id: &'static str, place: impl Into<String>, what: impl Into<String>) -> Finding {
        Finding::new(id, Severity::Warning, place, what)
    }

    fn error(
        id: &'static str,
        verdict: Verdict,
        place: impl Into<String>,
        what: impl Into<String>,
    ) -> Finding {
        Finding { verdict: Some(verdict), ..Finding::new(id, Severity::Error, place, what) }
    }

    fn fixed(self, what: impl Into<String>, edits: Vec<Edit>) -> Finding {
        Finding { fix: Some(Fix { what: what.into(), edits }), ..self }
    }
}

/// How much is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Look for NaN and infinity in all weights, not in small tensors alone.
    pub deep: bool,
    /// Measure this machine's peak for the expected time of a step; takes less than a second.
    pub roofline: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The verdict.
    pub verdict: Verdict,
    /// `general.architecture`.
    pub architecture: Option<String>,
    /// Everything there is to say, the worst first.
    pub findings: Vec<Finding>,
    /// Memory and time, for a file that runs.
    pub figures: Option<Figures>,
    /// The file with corrected metadata, where there is something to correct.
    #[serde(skip)]
    pub repair: Option<Repair>,
}

impl Report {
    fn new(architecture: Option<String>, mut findings: Vec<Finding>, figures: Option<Figures>) -> Report {
        let bad = findings.iter().filter_map(|f| f.verdict).max();
        let fixes = findings.iter().any(|f| f.fix.is_some());
        let good = if fixes { Verdict::SupportedWithFixes } else { Verdict::Supported };
        findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
        Report { verdict: bad.unwrap_or(good), architecture, findings, figures, repair: None }
    }

    /// The finding of that kind.
    pub fn finding(&self, id: &str) -> Option<&Finding> {
        self.findings.iter().find(|f| f.id == id)
    }
}

/// What checks look at.
struct Patient<'a> {
    gguf: &'a Gguf,
    meta: &'a Metadata,
    spec: &'static ArchSpec,
    /// As the file states them.
    parts: Option<TokenizerParts>,
    /// As it would be with the right way of splitting; none where its vocabulary is damaged.
    tokenizer: Option<Tokenizer>,
    /// What the vocabulary, or else the architecture, says of `tokenizer.ggml.pre`.
    pre: Option<&'static str>,
    options: Options,
}

impl<'a> Patient<'a> {
    fn new(gguf: &'a Gguf, spec: &'static ArchSpec, options: Options) -> Patient<'a> {
        let parts = TokenizerParts::from_gguf(gguf.metadata()).ok();
        let pre = parts.as_ref().and_then(|p| pre_of_vocabulary(&p.tokens)).or(spec.pre);
        let tokenizer = parts.clone().and_then(|mut parts| {
            if parts.pre.as_deref().and_then(find_pre).is_none() {
                parts.pre = pre.map(str::to_owned);
            }
            Tokenizer::from_parts(parts).ok()
        });
        Patient { gguf, meta: gguf.metadata(), spec, parts, tokenizer, pre, options }
    }
}

/// A check of what the file says.
type HeaderCheck = fn(&Patient<'_>, &mut Vec<Finding>);

/// A check against the sizes that the architecture reads from the file.
type LoadedCheck = fn(&Patient<'_>, &Shape, &mut Vec<Finding>);

/// Checks that need no loaded weights.
const HEADER: &[HeaderCheck] = &[
    tokens::types,
    tokens::ends,
    tokens::begin,
    tokens::outside,
    tokens::kind,
    tokens::pre,
    template::foreign,
    diffusion::shift,
    diffusion::sampler_keys,
    tensors::experts,
    tensors::fallback,
    tensors::not_finite,
];

/// Checks of a file whose architecture could read it.
const LOADED: &[LoadedCheck] = &[diffusion::canvas_length, diffusion::mask_token];

/// Examines a file, or all files of a split model.
///
/// # Errors
/// [`Error::Gguf`] when the file cannot be read at all. Whatever is wrong inside it is a finding.
pub fn examine(path: &Path, options: Options) -> Result<Report, Error> {
    match Gguf::open(path, &OpenOptions::default()) {
        Ok(gguf) => Ok(examine_gguf(&gguf, options)),
        Err(e @ (GgufError::Open { .. } | GgufError::Memory { .. })) => Err(e.into()),
        Err(e) => Ok(Report::new(None, vec![damage::of_file(&e)], None)),
    }
}

/// Examines a parsed file.
pub fn examine_gguf(gguf: &Gguf, options: Options) -> Report {
    let meta = gguf.metadata();
    let architecture = meta.opt_str("general.architecture").ok().flatten().map(str::to_owned);
    let spec = match arch_of(meta) {
        Ok(spec) if spec.sampler.is_some() => spec,
        Ok(spec) => return Report::new(architecture, unknown::autoregressive(gguf, spec.name), None),
        Err(e) => return Report::new(architecture, unknown::findings(gguf, &e), None),
    };
    let patient = Patient::new(gguf, spec, options);
    let mut findings = Vec::new();
    HEADER.iter().for_each(|check| check(&patient, &mut findings));
    let mut fixed = meta.clone();
    apply(&findings, &mut fixed);
    let before = findings.len();
    match shape(&gguf.with_metadata(fixed.clone()), spec) {
        Ok(shape) => LOADED.iter().for_each(|check| check(&patient, &shape, &mut findings)),
        Err(e) => {
            let gaps = tensors::kernel_gaps(gguf, &e);
            if gaps.is_empty() {
                findings.push(damage::of_model(&e));
            }
            findings.extend(gaps);
        }
    }
    apply(&findings[before..], &mut fixed);

    let mut figures = None;
    if findings.iter().all(|f| f.verdict.is_none()) {
        match Model::from_gguf(gguf.with_metadata(fixed.clone()), &LoadOptions::default()) {
            Err(e) => findings.push(damage::of_model(&e)),
            Ok(mut model) => {
                // What is still assumed in spite of all edits.
                let assumed = model.notes().iter().map(|note| Finding::note("assumed", "", note));
                findings.extend(assumed);
                findings.extend(tensors::unused(model.unused_tensors()));
                match Figures::of(&mut model, options.roofline) {
                    Ok(found) => {
                        findings.extend(found.too_large());
                        figures = Some(found);
                    }
                    Err(e) => findings.push(damage::of_model(&e)),
                }
            }
        }
    }
    let mut report = Report::new(architecture, findings, figures);
    if report.verdict == Verdict::SupportedWithFixes {
        report.repair = Some(Repair::new(gguf, fixed));
    }
    report
}

fn apply(findings: &[Finding], meta: &mut Metadata) {
    let edits = findings.iter().filter_map(|f| f.fix.as_ref()).flat_map(|fix| &fix.edits);
    edits.for_each(|edit| edit.apply(meta));
}

/// Sizes of the model, with all weights found and of the right shape.
fn shape(gguf: &Gguf, spec: &ArchSpec) -> Result<Shape, Error> {
    let mut loader = WeightLoader::new(gguf);
    let arch = (spec.load)(gguf, &mut loader, &mut Vec::new())?;
    loader.finish()?;
    Ok(arch.shape().clone())
}

#[cfg(test)]
mod tests;
