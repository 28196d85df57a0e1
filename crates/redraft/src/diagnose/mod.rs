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
mod judge;
#[cfg(test)]
mod matrix;
mod rounding;
mod suspects;
mod weights;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redraft_compute::{ComputeError, Precision};
use redraft_gguf::Gguf;
use serde::Serialize;

pub use error::{Apart, Sum};
pub(crate) use faults::Applied;
pub use faults::{Fault, Mistake, Pass};
use judge::judge;
pub(crate) use rounding::Elsewhere;
pub use rounding::Rounding;

use crate::arch::Reading;
use crate::trace::{Elements, TraceFile, in_pass, like, place, split_layer};
use crate::{Error, LoadOptions, Model};

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

impl Running<'_> {
    /// The model that computes so, and the mistake it has.
    ///
    /// # Errors
    /// Those of [`Model::from_gguf`].
    fn open(
        self,
        gguf: &Gguf,
        base: &LoadOptions,
        truth: Precision,
        has_cache: bool,
    ) -> Result<(Model, Option<Arc<Applied>>), Error> {
        let (rounding, mistake) = match self {
            Running::Truth => (None, None),
            Running::Floor(rounding) => (Some(rounding), None),
            Running::Fault(mistake, rounding) => (Some(rounding), Some(mistake)),
            Running::FaultTruth(mistake) => (None, Some(mistake)),
        };
        let exact = || LoadOptions { precision: truth, ..Rounding::F32.options(base, has_cache) };
        let options = rounding.map_or_else(exact, |r| r.options(base, has_cache));
        let (mut model, applied) = match mistake {
            None => (Model::from_gguf(gguf.clone(), &options)?, None),
            Some(mistake) => {
                let (model, applied) = Applied::open(gguf, &options, mistake)?;
                (model, Some(applied))
            }
        };
        model.rounding = rounding.map(|r| r.elsewhere(has_cache)).unwrap_or_default();
        Ok((model, applied))
    }
}

/// One tap.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tap {
    /// Name in their file.
    pub name: String,
    /// Their distance from the truth.
    pub theirs: Apart,
    /// The distances of honest programs from the truth, with what chance may add.
    pub floors: BTreeMap<Rounding, Apart>,
    /// Theirs over the floor of the rounding they are judged by.
    pub ratio: f64,
    /// Rows.
    pub rows: usize,
    /// Rows that are further away than twice the limit.
    pub far_rows: usize,
    /// Whether [`ratio`](Self::ratio) is also that of the furthest row: not behind a router, where a hair's breadth sends
    /// single tokens to other experts.
    pub rows_count: bool,
    /// The sum of all elements, where theirs shows it and not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<Sum>,
}

impl Tap {
    /// Theirs over the floor of a kind of rounding that was run; infinite for others.
    pub fn ratio_by(&self, rounding: Rounding) -> f64 {
        self.floors.get(&rounding).map_or(f64::INFINITY, |&f| self.theirs.ratio(f, self.rows_count))
    }

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
    /// It cannot be told: honest programs are as far from each other, since tokens are near the border between two experts
    /// in a pass that has few of them.
    Undecided {
        /// Where theirs, or an honest program, is furthest away.
        at: String,
        /// How far theirs is there, relative to the truth.
        theirs: f64,
        /// How far an honest program is.
        honest: f64,
    },
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
    if let Some(known) = subject.known.filter(|k| !k.is_in(has_cache)) {
        let what = format!(
            "a model {} a cache of keys and values is not computed in {}",
            if has_cache { "with" } else { "without" },
            known.name()
        );
        return Err(theirs.wrong(what));
    }
    if subject.kinds().is_empty() {
        let what = "numbers that were computed in f32 are as good as a truth in f32: --truth f64 judges them";
        return Err(theirs.wrong(what.into()));
    }
    let wanted = with_normed(theirs);
    let mut run = |what: Running<'_>| {
        progress(what);
        let fits = |e: Error| match e {
            Error::ContextOverflow { prompt, answer, context } => theirs.wrong(format!(
                "its passes have {} tokens, and the model's context {context}",
                prompt.saturating_add(answer)
            )),
            e => e,
        };
        let (mut model, applied) = what.open(gguf, &settings.options, settings.truth, has_cache)?;
        match (like(&mut model, &wanted, settings.interrupt.clone()), applied) {
            // A model whose numbers overflow did not make theirs.
            (Err(Error::Compute(ComputeError::NotFinite { .. })), Some(_)) => Ok(None),
            (found, Some(applied)) => found.map(|found| applied.changed().then_some(found)).map_err(fits),
            (found, None) => found.map(Some).map_err(fits),
        }
    };
    judge(theirs, &faults, &subject, &mut run)
}

/// What is judged, and how.
struct Subject {
    n_layers: usize,
    has_cache: bool,
    /// The first layer with experts: behind its router single tokens may go to other experts in an honest program.
    router: Option<usize>,
    /// Channels of the residual stream.
    width: usize,
    truth: Precision,
    limit: f64,
    known: Option<Rounding>,
}

impl Subject {
    fn of(model: &Model, settings: &Settings) -> Subject {
        let layer = |name: &str| name.split('.').nth(1)?.parse().ok();
        Subject {
            n_layers: model.shape().n_layers,
            has_cache: model.shape().reading != Reading::Whole,
            router: model.weights.iter().filter(|w| w.experts > 1).filter_map(|w| layer(&w.name)).min(),
            width: model.shape().d_model,
            truth: settings.truth,
            limit: settings.limit,
            known: settings.rounding,
        }
    }

    /// The kinds of rounding that there are: none of a cache where there is none, and none that is as fine as the truth.
    fn kinds(&self) -> Vec<Rounding> {
        let told = |r: &Rounding| {
            let finer = *r != Rounding::F32 || self.truth == Precision::F64;
            finer && r.is_in(self.has_cache) && self.known.is_none_or(|k| k == *r)
        };
        Rounding::ALL.into_iter().filter(told).collect()
    }

    fn behind_router(&self, tap: &str) -> bool {
        self.router.is_some_and(|layer| {
            let choice = format!("ffn_moe_topk-{layer}");
            place(tap) > place(&in_pass(split_layer(tap).0, &choice))
        })
    }

    /// Whether each row of a tap must be right, and not only most of them.
    fn rows_count(&self, tap: &str) -> bool {
        !self.behind_router(tap)
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
