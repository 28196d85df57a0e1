//! Whether somebody else's numbers are rounded differently or wrong, and what is wrong with them.
//!
//! 1. The passes that made them are run in f64: the *truth*.
//! 2. They are run again as honest programs round: in canonical f32, as llama.cpp does (8-bit or 16-bit activations, keys
//!    and values in f16), and as PyTorch does with bfloat16. How far these are from the truth at a tap is the *noise floor*
//!    there.
//! 3. Theirs is rounding if at no tap it is further from the truth than a few times the floor of one of these kinds.
//! 4. Else each usual mistake is tried: a model that has it is run, and the one from which theirs is only a floor away at
//!    every tap explains the numbers.

mod error;
mod faults;
#[cfg(test)]
mod matrix;
mod suspects;
mod weights;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redraft_compute::{KvType, Numerics, Precision};
use redraft_gguf::Gguf;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

pub(crate) use faults::Applied;
pub use faults::{Fault, Mistake, Pass};

use crate::arch::Reading;
use crate::trace::{Elements, TraceFile, is_input, like, place};
use crate::{Error, LoadOptions, Model};
use error::{distance, shifted, storage_unit};

/// A kind of rounding that honest programs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// f32 throughout.
    F32,
    /// llama.cpp's: activations of 8 bits beside quantized weights and of 16 bits beside those of 16, keys and values
    /// in f16.
    LlamaCpp,
    /// PyTorch's with tensors in bfloat16.
    Bf16,
}

impl Rounding {
    /// From the finest to the coarsest.
    pub const ALL: [Rounding; 3] = [Rounding::F32, Rounding::LlamaCpp, Rounding::Bf16];

    /// `f32`, `llamacpp`, `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Rounding::F32 => "f32",
            Rounding::LlamaCpp => "llamacpp",
            Rounding::Bf16 => "bf16",
        }
    }

    /// How a model computes that rounds like this: with a cache of keys and values or without.
    pub fn computing(self, has_cache: bool) -> (Precision, Numerics, KvType) {
        match self {
            Rounding::F32 => (Precision::F32, Numerics::Exact, KvType::F32),
            Rounding::LlamaCpp if has_cache => (Precision::F32, Numerics::Fast, KvType::F16),
            Rounding::LlamaCpp => (Precision::F32, Numerics::Fast, KvType::F32),
            Rounding::Bf16 => (Precision::Bf16, Numerics::Exact, KvType::F32),
        }
    }

    /// The same as options of a model.
    pub fn options(self, base: &LoadOptions, has_cache: bool) -> LoadOptions {
        let (precision, numerics, kv_type) = self.computing(has_cache);
        LoadOptions { backend: "auto".into(), precision, numerics: Some(numerics), kv_type, ..base.clone() }
    }

    /// The smallest floor there is: the error of a number that is rounded once. Where a program of ours is exact by chance
    /// (embeddings in 16 bits are in f32), another honest one need not be.
    fn unit(self) -> f64 {
        match self {
            Rounding::F32 => 2f64.powi(-24),
            Rounding::LlamaCpp => 2f64.powi(-12),
            Rounding::Bf16 => 2f64.powi(-9),
        }
    }
}

/// How to diagnose.
#[derive(Clone)]
pub struct Settings {
    /// How files are opened; precision, numerics and types of the cache are chosen here.
    pub options: LoadOptions,
    /// What the truth is computed in: f64, or f32 where the model is so large that f64 would take too long.
    pub truth: Precision,
    /// How many times the floor is still rounding.
    pub limit: f64,
    /// How theirs was computed, where that is known.
    pub rounding: Option<Rounding>,
    /// Set from elsewhere to stop.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// How many times the floor is still rounding. Two honest programs that round at the same places are about equally far
/// from the truth; other orders of sums and other places move that by less than this (`docs/diagnose.md`).
pub const LIMIT: f64 = 3.0;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            options: LoadOptions::default(),
            truth: Precision::F64,
            limit: LIMIT,
            rounding: None,
            interrupt: None,
        }
    }
}

/// What is being run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Running<'a> {
    /// The truth.
    Truth,
    /// A kind of rounding.
    Floor(Rounding),
    /// A mistake, with a kind of rounding.
    Fault(&'a Mistake, Rounding),
    /// A mistake, in the number type of the truth.
    FaultTruth(&'a Mistake),
}

impl<'a> Running<'a> {
    /// How the model computes, and with which mistake.
    fn how(
        self,
        base: &LoadOptions,
        truth: Precision,
        has_cache: bool,
    ) -> (LoadOptions, Option<&'a Mistake>) {
        let exact = || LoadOptions { precision: truth, ..Rounding::F32.options(base, has_cache) };
        match self {
            Running::Truth => (exact(), None),
            Running::Floor(rounding) => (rounding.options(base, has_cache), None),
            Running::Fault(mistake, rounding) => (rounding.options(base, has_cache), Some(mistake)),
            Running::FaultTruth(mistake) => (exact(), Some(mistake)),
        }
    }
}

/// One tap. Distances are relative: the median over the rows of `|a - b| / |b|`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tap {
    /// Name in their file.
    pub name: String,
    /// Their distance from the truth.
    pub theirs: f64,
    /// The distances of honest programs from the truth, in the order of [`Rounding::ALL`].
    pub floors: [f64; 3],
    /// Theirs over the floor of the rounding they are judged by.
    pub ratio: f64,
}

impl Tap {
    /// Whether it is further away than so many floors, or no number.
    pub fn leaves(&self, limit: f64) -> bool {
        self.ratio > limit || self.ratio.is_nan()
    }
}

/// A mistake that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tried {
    /// [`Fault::name`].
    pub fault: String,
    /// In words.
    pub about: String,
    /// The largest distance of theirs from what a model with the mistake computes, over the floor.
    pub worst: f64,
    /// Where that is.
    pub at: String,
}

/// What it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Verdict {
    /// Theirs is rounding.
    Rounding {
        /// The largest ratio.
        worst: f64,
        /// Where it is.
        at: String,
    },
    /// A mistake explains all taps.
    Fault(Tried),
    /// No mistake that is known does.
    Unexplained {
        /// The first tap that leaves the floor.
        first: String,
        /// How far.
        ratio: f64,
        /// What is usually wrong there.
        look_at: String,
    },
}

/// The whole of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// What it is.
    pub verdict: Verdict,
    /// The rounding by which theirs is judged.
    pub rounding: Rounding,
    /// The taps in execution order.
    pub taps: Vec<Tap>,
    /// Their tensors that were not compared, and why.
    pub skipped: Vec<String>,
    /// Mistakes that were tried, the best first; empty where theirs is rounding.
    pub tried: Vec<Tried>,
}

/// Judges `theirs` by the model `gguf`.
///
/// # Errors
/// [`Error::Golden`] where theirs has no inputs or no results of passes; those of the passes; [`Error::Interrupted`].
pub fn diagnose(
    gguf: &Gguf,
    theirs: &TraceFile,
    settings: &Settings,
    progress: &mut dyn FnMut(Running<'_>),
) -> Result<Diagnosis, Error> {
    if ["x_in", "step_left"].iter().any(|n| theirs.tensors.contains_key(*n)) {
        let what = "it is of a whole generation, whose steps follow from each other: give the taps or logits of a pass";
        return Err(theirs.wrong(what.into()));
    }
    let model = Model::from_gguf(gguf.clone(), &settings.options)?;
    let faults = Mistake::all(&model);
    let has_cache = model.shape().reading != Reading::Whole;
    let n_layers = model.shape().n_layers;
    drop(model);
    let wanted = with_normed(theirs);
    let mut run = |what: Running<'_>| {
        progress(what);
        let (options, fault) = what.how(&settings.options, settings.truth, has_cache);
        let interrupt = settings.interrupt.clone();
        match fault {
            None => like(&mut Model::from_gguf(gguf.clone(), &options)?, &wanted, interrupt).map(Some),
            Some(fault) => {
                let (mut model, applied) = Applied::open(gguf, &options, fault)?;
                let found = like(&mut model, &wanted, interrupt)?;
                Ok(applied.changed().then_some(found))
            }
        }
    };
    judge(theirs, &faults, n_layers, (settings.limit, settings.rounding), &mut run)
}

/// Runs the passes of a file in some way; nothing where a mistake makes no difference to the program.
type RunPasses<'a> = dyn FnMut(Running<'_>) -> Result<Option<TraceFile>, Error> + 'a;

/// Mistakes whose own floors are measured, the ones that come closest.
const CLOSEST: usize = 4;

fn judge(
    theirs: &TraceFile,
    faults: &[Mistake],
    n_layers: usize,
    (limit, known): (f64, Option<Rounding>),
    run: &mut RunPasses<'_>,
) -> Result<Diagnosis, Error> {
    let truth = run(Running::Truth)?.unwrap_or_default();
    let (names, skipped) = judged(theirs, &truth);
    if names.is_empty() {
        return Err(theirs.wrong("it has no result of a pass that this model computes".into()));
    }
    let mut honest = Vec::new();
    for rounding in Rounding::ALL {
        honest.push(run(Running::Floor(rounding))?.unwrap_or_default());
    }
    let away =
        |a: &TraceFile, b: &TraceFile, name: &String| distance(a.tensors.get(name), b.tensors.get(name));
    // Rounding to 16 bits at the end hides what is finer.
    let unit = |r: Rounding, name: &String| r.unit().max(theirs.tensors.get(name).map_or(0.0, storage_unit));
    let tap = |name: &String| Tap {
        name: name.clone(),
        theirs: away(theirs, &truth, name),
        floors: std::array::from_fn(|i| away(&honest[i], &truth, name).max(unit(Rounding::ALL[i], name))),
        ratio: 0.0,
    };
    let mut taps: Vec<Tap> = names.iter().map(tap).collect();
    let kinds: Vec<Rounding> = Rounding::ALL.into_iter().filter(|&r| known.is_none_or(|k| k == r)).collect();
    let rounding = known.unwrap_or_else(|| judged_by(&taps, limit));
    let mut diagnosis = |rounding: Rounding, verdict: Option<Verdict>, tried: Vec<Tried>| {
        taps.iter_mut().for_each(|tap| tap.ratio = tap.theirs / tap.floors[rounding as usize]);
        let (worst, at) = worst(taps.iter().map(|tap| (tap.ratio, tap.name.as_str())));
        let first = taps.iter().find(|tap| tap.leaves(limit));
        let verdict = verdict.unwrap_or_else(|| match first {
            None => Verdict::Rounding { worst, at },
            Some(tap) => Verdict::Unexplained {
                first: tap.name.clone(),
                ratio: tap.ratio,
                look_at: suspects::of(&tap.name).into(),
            },
        });
        Diagnosis { verdict, rounding, taps: taps.clone(), skipped: skipped.clone(), tried }
    };
    let plain = diagnosis(rounding, None, Vec::new());
    if matches!(plain.verdict, Verdict::Rounding { .. }) {
        return Ok(plain);
    }
    // Without a rounding the truth.
    let mut result = |fault: &Mistake, rounding: Option<Rounding>| {
        let plain = rounding.map_or(&truth, |r| &honest[r as usize]);
        match (&fault.fault, rounding) {
            (Fault::LogitsShifted(by), _) => Ok(Some(shifted_logits(plain, *by))),
            (Fault::LastLayerNormed, _) => Ok(Some(normed_last(plain, n_layers))),
            (_, Some(rounding)) => run(Running::Fault(fault, rounding)),
            (_, None) => run(Running::FaultTruth(fault)),
        }
    };
    // First by the coarsest floor; then those that come closest by the floors of models that have the mistake, which may
    // be others.
    let coarsest: Vec<f64> = plain.taps.iter().map(|t| t.floors.into_iter().fold(0.0, f64::max)).collect();
    let far = |found: &TraceFile, floors: &[f64]| {
        let ratios =
            names.iter().zip(floors).map(|(name, floor)| (away(theirs, found, name) / floor, name.as_str()));
        worst(ratios)
    };
    let mut all: Vec<(&Mistake, Option<TraceFile>, f64, String)> = Vec::new();
    let mut seen = BTreeSet::new();
    for fault in faults {
        // In some models two mistakes are the same.
        let found = result(fault, Some(Rounding::F32))?;
        if let Some(found) = found.filter(|found| seen.insert(digest(found))) {
            let (worst, at) = far(&found, &coarsest);
            all.push((fault, Some(found), worst, at));
            all.sort_by(|a, b| a.2.total_cmp(&b.2));
            // The logits of all of them would fill the memory.
            all.iter_mut().skip(CLOSEST).for_each(|(_, found, ..)| *found = None);
        }
    }
    let mut tried = Vec::new();
    let mut explained: Option<(Tried, Rounding)> = None;
    for (fault, found, worst, at) in &all {
        let told = |worst, at| Tried { fault: fault.name(), about: fault.to_string(), worst, at };
        let mut here = told(*worst, at.clone());
        let Some(found) = found else {
            tried.push(here);
            continue;
        };
        let truth = result(fault, None)?.unwrap_or_default();
        for &r in &kinds {
            let own = match r {
                Rounding::F32 => found.clone(),
                _ => result(fault, Some(r))?.unwrap_or_default(),
            };
            let floors: Vec<f64> =
                names.iter().map(|name| away(&own, &truth, name).max(unit(r, name))).collect();
            let better = names.iter().zip(&floors).filter(|(n, f)| away(theirs, &truth, n) * TOO_GOOD < **f);
            if known.is_none() && r != Rounding::F32 && 2 * better.count() > names.len() {
                continue;
            }
            let (worst, at) = far(&truth, &floors);
            // A mistake that explains little more than rounding does explains nothing.
            let without = plain.taps.iter().map(|t| t.theirs / t.floors[r as usize]).fold(0.0, f64::max);
            if worst <= limit && 2.0 * worst < without {
                here = told(worst, at);
                // By the finest rounding, which leaves the least to chance.
                let best = |(best, by): &(Tried, Rounding)| (r, worst) < (*by, best.worst);
                if explained.as_ref().is_none_or(best) {
                    explained = Some((here.clone(), r));
                }
                break;
            }
        }
        tried.push(here);
    }
    tried.sort_by(|a, b| a.worst.total_cmp(&b.worst));
    Ok(match explained {
        Some((best, by)) => {
            // First, whatever others are by a coarser floor.
            tried.sort_by_key(|t| *t != best);
            diagnosis(by, Some(Verdict::Fault(best)), tried)
        }
        None => diagnosis(rounding, None, tried),
    })
}

/// Their results in execution order that the model computes, and the others with what is wrong with them.
fn judged(theirs: &TraceFile, truth: &TraceFile) -> (Vec<String>, Vec<String>) {
    let mut names: Vec<&String> = theirs.tensors.keys().collect();
    names.sort_by_key(|name| place(name));
    let (mut judged, mut skipped) = (Vec::new(), Vec::new());
    for name in names {
        let t = &theirs.tensors[name];
        match truth.tensors.get(name) {
            Some(_) if t.data.is_int() => {}
            Some(ours) if ours.data.len() != t.data.len() => {
                skipped.push(format!("{name}: shape {:?}, the model's is {:?}", t.shape, ours.shape));
            }
            Some(_) => judged.push(name.clone()),
            None if is_input(name) => {}
            None => skipped.push(format!("{name}: not a tap of this model")),
        }
    }
    (judged, skipped)
}

/// Theirs, with the final norm of each pass asked for.
fn with_normed(theirs: &TraceFile) -> TraceFile {
    let mut wanted = theirs.clone();
    let pass = |name: &String| {
        let (pass, base) = name.rsplit_once('/').map_or(("", name.as_str()), |(p, b)| (p, b));
        let slash = if pass.is_empty() { "" } else { "/" };
        base.starts_with("l_out-").then(|| format!("{pass}{slash}result_norm"))
    };
    let passes: Vec<String> = theirs.tensors.keys().filter_map(pass).collect();
    for name in passes {
        if !wanted.tensors.contains_key(&name) {
            wanted.insert(name, vec![0], Elements::F32(Vec::new()));
        }
    }
    wanted
}

/// How many times better than a kind of rounding theirs must be at most taps not to be of that kind: a program does not
/// begin to round in the middle.
const TOO_GOOD: f64 = 10.0;

/// The rounding whose floor theirs leaves last; of equal ones the finest.
fn judged_by(taps: &[Tap], limit: f64) -> Rounding {
    let stays = |r: Rounding| taps.iter().take_while(|t| t.theirs <= limit * t.floors[r as usize]).count();
    let too_good = |r: Rounding| {
        let better = taps.iter().filter(|t| t.theirs * TOO_GOOD < t.floors[r as usize]).count();
        r != Rounding::F32 && 2 * better > taps.len()
    };
    let kinds = || Rounding::ALL.into_iter().filter(|&r| !too_good(r));
    let longest = kinds().map(stays).max();
    kinds().find(|&r| Some(stays(r)) == longest).unwrap_or(Rounding::F32)
}

/// Equal for equal results, and for others only by a chance that does not happen.
fn digest(file: &TraceFile) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (name, t) in &file.tensors {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update((t.data.len() as u64).to_le_bytes());
        match &t.data {
            Elements::F32(x) => x.iter().for_each(|x| hash.update(x.to_le_bytes())),
            other => other.to_f64().iter().for_each(|x| hash.update(x.to_le_bytes())),
        }
    }
    hash.finalize().into()
}

/// The largest of them; one that is no number is larger than all others.
fn worst<'a>(taps: impl Iterator<Item = (f64, &'a str)>) -> (f64, String) {
    let worse = |a: (f64, &'a str), b: (f64, &'a str)| if b.0 <= a.0 || a.0.is_nan() { a } else { b };
    let (ratio, name) = taps.fold((-1.0, ""), worse);
    (ratio, name.to_string())
}

/// A result, with rows of logits one position further.
fn shifted_logits(file: &TraceFile, by: i8) -> TraceFile {
    let mut out = file.clone();
    for (name, t) in &mut out.tensors {
        if ["logits", "result_output"].iter().any(|n| name.rsplit('/').next() == Some(n)) {
            t.data = shifted(t, by);
        }
    }
    out
}

/// A result, with the final norm in the place of the last layer's output.
fn normed_last(file: &TraceFile, n_layers: usize) -> TraceFile {
    let mut out = file.clone();
    let last = format!("l_out-{}", n_layers.saturating_sub(1));
    for (name, t) in &mut out.tensors {
        let pass = name.strip_suffix(&last).filter(|p| p.is_empty() || p.ends_with('/'));
        if let Some(normed) = pass.and_then(|pass| file.tensors.get(&format!("{pass}result_norm"))) {
            t.data.clone_from(&normed.data);
        }
    }
    out
}
