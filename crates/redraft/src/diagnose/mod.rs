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

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redraft_compute::{ComputeError, KvType, Numerics, Precision};
use redraft_gguf::{Gguf, Shown};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

pub use error::Sum;
pub(crate) use faults::Applied;
pub use faults::{Fault, Mistake, Pass};

use crate::arch::Reading;
use crate::trace::{
    Elements, Given, Printed, Tensor, TraceFile, has_rows, in_pass, is_input, like, place, split_layer,
};
use crate::{Error, LoadOptions, Model};
use error::{distance, printing_unit, shifted, spread, storage_unit};

/// A kind of rounding that honest programs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// f32 throughout.
    F32,
    /// f32 with keys and values in f16, in models that have a cache.
    #[serde(rename = "kv-f16")]
    KvF16,
    /// llama.cpp's: activations of 8 bits beside quantized weights and of 16 bits beside those of 16, keys and values
    /// in f16.
    LlamaCpp,
    /// PyTorch's with tensors in bfloat16.
    Bf16,
}

impl Rounding {
    /// From the finest to the coarsest.
    pub const ALL: [Rounding; 4] = [Rounding::F32, Rounding::KvF16, Rounding::LlamaCpp, Rounding::Bf16];

    /// `f32`, `kv-f16`, `llamacpp`, `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Rounding::F32 => "f32",
            Rounding::KvF16 => "kv-f16",
            Rounding::LlamaCpp => "llamacpp",
            Rounding::Bf16 => "bf16",
        }
    }

    /// How a model computes that rounds like this: with a cache of keys and values or without.
    pub fn computing(self, has_cache: bool) -> (Precision, Numerics, KvType) {
        match self {
            Rounding::KvF16 if has_cache => (Precision::F32, Numerics::Exact, KvType::F16),
            Rounding::F32 | Rounding::KvF16 => (Precision::F32, Numerics::Exact, KvType::F32),
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
            Rounding::F32 | Rounding::KvF16 => 2f64.powi(-24),
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
    /// The distances of honest programs from the truth, in the order of [`Rounding::ALL`]; of taps of few numbers with what
    /// chance may add.
    pub floors: [f64; 4],
    /// Theirs over the floor of the rounding they are judged by.
    pub ratio: f64,
    /// The sum of all elements, where theirs shows it and not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<Sum>,
}

impl Tap {
    /// Whether it is further away than so many floors, or no number; or the sum of its elements is.
    pub fn leaves(&self, limit: f64) -> bool {
        self.ratio > limit || self.ratio.is_nan() || self.sum_leaves(limit)
    }

    /// Whether the sum of all elements, most of which theirs does not show, is further away than they may be. Twice the
    /// limit, since there is one number and no median.
    pub fn sum_leaves(&self, limit: f64) -> bool {
        self.sum.is_some_and(|sum| sum.ratio().is_nan() || sum.ratio() > 2.0 * limit)
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
    let subject = Subject::of(&model, settings);
    let has_cache = subject.has_cache;
    drop(model);
    if subject.kinds().is_empty() {
        let what = "numbers that were computed in f32 are as good as a truth in f32: --truth f64 judges them";
        return Err(theirs.wrong(what.into()));
    }
    let wanted = with_normed(theirs);
    let mut run = |what: Running<'_>| {
        progress(what);
        let (options, fault) = what.how(&settings.options, settings.truth, has_cache);
        let interrupt = settings.interrupt.clone();
        match fault {
            None => like(&mut Model::from_gguf(gguf.clone(), &options)?, &wanted, interrupt).map(Some),
            Some(fault) => {
                let (mut model, applied) = Applied::open(gguf, &options, fault)?;
                match like(&mut model, &wanted, interrupt) {
                    // A model whose numbers overflow did not make theirs.
                    Err(Error::Compute(ComputeError::NotFinite { .. })) => Ok(None),
                    found => Ok(applied.changed().then_some(found?)),
                }
            }
        }
    };
    judge(theirs, &faults, &subject, &mut run)
}

/// What is judged, and how.
struct Subject {
    n_layers: usize,
    has_cache: bool,
    /// Single tokens may go to other experts in an honest program.
    has_experts: bool,
    truth: Precision,
    limit: f64,
    known: Option<Rounding>,
}

impl Subject {
    fn of(model: &Model, settings: &Settings) -> Subject {
        Subject {
            n_layers: model.shape().n_layers,
            has_cache: model.shape().reading != Reading::Whole,
            has_experts: model.weights.iter().any(|w| w.experts > 1),
            truth: settings.truth,
            limit: settings.limit,
            known: settings.rounding,
        }
    }

    /// The kinds of rounding that there are: none of a cache where there is none, and none that is as fine as the truth.
    fn kinds(&self) -> Vec<Rounding> {
        let told = |r: Rounding| match r {
            Rounding::F32 => self.truth == Precision::F64,
            Rounding::KvF16 => self.has_cache,
            Rounding::LlamaCpp | Rounding::Bf16 => true,
        };
        Rounding::ALL.into_iter().filter(|&r| told(r) && self.known.is_none_or(|k| k == r)).collect()
    }
}

/// Runs the passes of a file in some way; nothing where a mistake makes no difference to the program.
type RunPasses<'a> = dyn FnMut(Running<'_>) -> Result<Option<TraceFile>, Error> + 'a;

/// Mistakes whose own floors are measured, the ones that come closest.
const CLOSEST: usize = 4;

fn judge(
    theirs: &TraceFile,
    faults: &[Mistake],
    subject: &Subject,
    run: &mut RunPasses<'_>,
) -> Result<Diagnosis, Error> {
    let &Subject { n_layers, limit, known, .. } = subject;
    let truth = run(Running::Truth)?.unwrap_or_default();
    let (names, skipped) = judged(theirs, &truth)?;
    if names.is_empty() {
        return Err(theirs.wrong("it has no result of a pass that this model computes".into()));
    }
    let mut honest = Vec::new();
    for rounding in Rounding::ALL {
        honest.push(run(Running::Floor(rounding))?.unwrap_or_default());
    }
    let theirs_from = |found: &TraceFile, name: &String| {
        distance(theirs.tensors.get(name), part(theirs, found, name).as_deref())
    };
    let apart = |a: &TraceFile, b: &TraceFile, name: &String| {
        distance(part(theirs, a, name).as_deref(), part(theirs, b, name).as_deref())
    };
    // Rounding to 16 bits or to a few decimals at the end hides what is finer.
    let stored = |name: &String| match printed(theirs, name) {
        Some(p) => part(theirs, &truth, name).map_or(0.0, |t| printing_unit(&t, p.half_unit)),
        None => theirs.tensors.get(name).map_or(0.0, storage_unit),
    };
    let stored: BTreeMap<&String, f64> = names.iter().map(|name| (name, stored(name))).collect();
    let unit = |r: Rounding, name: &String| r.unit().max(stored.get(name).copied().unwrap_or(0.0));
    let chance: BTreeMap<&String, f64> =
        names.iter().map(|name| (name, spread(theirs.tensors.get(name)))).collect();
    let floor = |own: &TraceFile, truth: &TraceFile, r: Rounding, name: &String| {
        apart(own, truth, name).max(unit(r, name)) * chance.get(name).copied().unwrap_or(1.0)
    };
    let tap = |name: &String| Tap {
        name: name.clone(),
        theirs: theirs_from(&truth, name),
        floors: std::array::from_fn(|i| floor(&honest[i], &truth, Rounding::ALL[i], name)),
        ratio: 0.0,
        sum: None,
    };
    let mut taps: Vec<Tap> = names.iter().map(tap).collect();
    let kinds = subject.kinds();
    let is_of = |r: Rounding, own: &TraceFile, truth: &TraceFile| {
        let each = |name: &String| [theirs_from(truth, name), apart(own, truth, name), unit(r, name)];
        known.is_some() || r == Rounding::F32 || !too_good(names.iter().map(each))
    };
    let possible: Vec<Rounding> =
        kinds.iter().copied().filter(|&r| is_of(r, &honest[r as usize], &truth)).collect();
    if possible.is_empty() {
        let what = "theirs is nearer to a truth in f32 than any kind of rounding that it can tell: --truth f64 judges it";
        return Err(theirs.wrong(what.into()));
    }
    let rounding = judged_by(&taps, &possible, limit);
    let sum = |tap: &Tap, rounding: Rounding| {
        // Where a token goes to another expert, it changes the sum and not the median.
        let printed = printed(theirs, &tap.name).filter(|_| !subject.has_experts)?;
        let of = |file: &TraceFile| file.tensors.get(&tap.name).and_then(|t| printed.summed(t));
        Some(Sum::of(
            printed.sum?,
            &of(&truth)?,
            &of(&honest[rounding as usize])?,
            tap.floors[rounding as usize],
        ))
    };
    let mut diagnosis = |rounding: Rounding, verdict: Option<Verdict>, tried: Vec<Tried>| {
        for tap in &mut taps {
            tap.ratio = tap.theirs / tap.floors[rounding as usize];
            tap.sum = sum(tap, rounding);
        }
        let (worst, at) = worst(taps.iter().map(|tap| (tap.ratio, tap.name.as_str())));
        let first = taps.iter().find(|tap| tap.leaves(limit));
        let verdict = verdict.unwrap_or_else(|| match first {
            None => Verdict::Rounding { worst, at },
            // Theirs, of which a part is shown: that part is right.
            Some(tap) if tap.ratio <= limit => Verdict::Unexplained {
                first: tap.name.clone(),
                ratio: tap.sum.map_or(f64::NAN, |sum| sum.ratio()),
                look_at: "the elements that the text does not show: their sum is wrong".into(),
            },
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
            names.iter().zip(floors).map(|(name, floor)| (theirs_from(found, name) / floor, name.as_str()));
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
            if !is_of(r, &own, &truth) {
                continue;
            }
            let floors: Vec<f64> = names.iter().map(|name| floor(&own, &truth, r, name)).collect();
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

/// How theirs was printed, if it was.
fn printed<'a>(theirs: &'a TraceFile, name: &str) -> Option<&'a Printed> {
    match theirs.given.get(name) {
        Some(Given::Printed(p)) => Some(p),
        _ => None,
    }
}

/// What of a tensor of ours theirs shows.
fn part<'a>(theirs: &TraceFile, ours: &'a TraceFile, name: &str) -> Option<Cow<'a, Tensor>> {
    let whole = ours.tensors.get(name)?;
    match printed(theirs, name) {
        Some(p) => p.pick(whole).map(Cow::Owned),
        None => Some(Cow::Borrowed(whole)),
    }
}

/// Their results in execution order that the model computes, and the others with what is wrong with them.
///
/// # Errors
/// [`Error::Golden`] for a tensor that has other rows than the model's, and for numbers without a shape that are not as
/// many.
fn judged(theirs: &TraceFile, truth: &TraceFile) -> Result<(Vec<String>, Vec<String>), Error> {
    let mut names: Vec<&String> = theirs.tensors.keys().collect();
    names.sort_by_key(|name| place(name));
    let (mut judged, mut skipped) = (Vec::new(), Vec::new());
    for name in names {
        let t = &theirs.tensors[name];
        match truth.tensors.get(name) {
            Some(_) if t.data.is_int() => {}
            Some(ours) => match fits(theirs.given.get(name), t, ours) {
                Fit::Yes => judged.push(name.clone()),
                Fit::OtherSize(shape) => {
                    skipped.push(format!("{name}: shape {shape:?}, the model's is {:?}", ours.shape));
                }
                Fit::No => {
                    return Err(theirs.wrong(format!(
                        "tensor {}: expected {} numbers of shape {:?}, found {} of shape {:?}",
                        Shown(name),
                        ours.data.len(),
                        ours.shape,
                        t.data.len(),
                        t.shape
                    )));
                }
            },
            None if is_input(name) => {}
            None => skipped.push(format!("{name}: not a tap of this model")),
        }
    }
    Ok((judged, skipped))
}

/// Whether a tensor of theirs is one of the model's.
enum Fit<'a> {
    Yes,
    /// It is of another size, as a file that is cut to some rows has it: it is left out.
    OtherSize(&'a [usize]),
    /// It says of itself that it is another one.
    No,
}

fn fits<'a>(given: Option<&'a Given>, t: &'a Tensor, ours: &Tensor) -> Fit<'a> {
    let same = t.data.len() == ours.data.len();
    match given {
        Some(Given::Flat) if same => Fit::Yes,
        Some(Given::Flat) => Fit::No,
        Some(Given::Printed(p)) if p.pick(ours).is_some() => Fit::Yes,
        Some(Given::Printed(p)) => Fit::OtherSize(&p.shape),
        None if !same => Fit::OtherSize(&t.shape),
        // `like` has given ours their shape where the rows are as many.
        None if has_rows(&t.shape, ours.shape.first().copied().unwrap_or(1), t.data.len()) => Fit::Yes,
        None => Fit::No,
    }
}

/// Theirs, with the final norm of each pass asked for.
fn with_normed(theirs: &TraceFile) -> TraceFile {
    let mut wanted = theirs.clone();
    let pass = |name: &String| match split_layer(name) {
        (pass, "l_out", Some(_)) => Some(in_pass(pass, "result_norm")),
        _ => None,
    };
    let passes: Vec<String> = theirs.tensors.keys().filter_map(pass).collect();
    for name in passes {
        if !wanted.tensors.contains_key(&name) {
            wanted.insert(name, vec![0], Elements::F32(Vec::new()));
        }
    }
    wanted
}

/// How many times better than a kind of rounding theirs must be not to be of that kind, at the first tap that the kind moves or
/// at most taps: a program does not begin to round in the middle.
const TOO_GOOD: f64 = 10.0;

/// Whether theirs is too good for a kind of rounding. Of each tap in execution order: their distance from the truth, that of an
/// honest program, and the smallest floor there is.
fn too_good(taps: impl Iterator<Item = [f64; 3]>) -> bool {
    let (mut n, mut better, mut first) = (0usize, 0usize, None);
    for [theirs, honest, unit] in taps {
        let here = theirs * TOO_GOOD < honest.max(unit);
        (n, better) = (n + 1, better + usize::from(here));
        if honest > unit {
            first = first.or(Some(here));
        }
    }
    first == Some(true) || 2 * better > n
}

/// The rounding whose floor theirs leaves last; of those that it never leaves the one that fits best, whose floor it reaches
/// and no more; of equal ones the finest.
fn judged_by(taps: &[Tap], kinds: &[Rounding], limit: f64) -> Rounding {
    let ratios = |r: Rounding| taps.iter().map(move |t| t.theirs / t.floors[r as usize]);
    let stays = |r: Rounding| ratios(r).take_while(|&x| x <= limit).count();
    let longest = kinds.iter().map(|&r| stays(r)).max();
    let fit = |r: Rounding| match stays(r) == taps.len() {
        true => ratios(r).fold(f64::MIN_POSITIVE, f64::max).ln().abs(),
        false => 0.0,
    };
    let best = kinds.iter().copied().filter(|&r| Some(stays(r)) == longest);
    best.min_by(|&a, &b| fit(a).total_cmp(&fit(b))).unwrap_or(Rounding::F32)
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
        if matches!(split_layer(name), (_, "logits" | "result_output", None)) {
            t.data = shifted(t, by);
        }
    }
    out
}

/// A result, with the final norm in the place of the last layer's output.
fn normed_last(file: &TraceFile, n_layers: usize) -> TraceFile {
    let mut out = file.clone();
    let last = n_layers.checked_sub(1);
    for (name, t) in &mut out.tensors {
        if let (pass, "l_out", layer) = split_layer(name)
            && layer == last
            && let Some(normed) = file.tensors.get(&in_pass(pass, "result_norm"))
        {
            t.data.clone_from(&normed.data);
        }
    }
    out
}
