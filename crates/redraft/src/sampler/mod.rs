//! Samplers: which positions of a canvas are accepted, what the others become, when a canvas is done.
//! One file each, and the list [`SAMPLERS`].

mod dynamic_threshold;
mod edit;
mod entropy;
mod entropy_bound;
mod entropy_bound_monotone;
mod joint_threshold;
mod low_confidence;
mod maskgit_plus;
mod masks;
mod origin;
mod penalties;
mod profile;
mod random;
mod threshold;
mod topk_margin;

use std::collections::BTreeMap;

use redraft_gguf::Metadata;
use serde_json::{Map, Value};

pub(crate) use self::edit::{DELETE_KEY, SPEC as EDIT, SPLIT_KEY, names_commands};
pub(crate) use self::entropy::SPEC as ENTROPY;
pub(crate) use self::entropy_bound::{SPEC as ENTROPY_BOUND, key as entropy_bound_key};
pub(crate) use self::entropy_bound_monotone::SPEC as ENTROPY_BOUND_MONOTONE;
pub(crate) use self::low_confidence::SPEC as LOW_CONFIDENCE;
pub(crate) use self::penalties::unsaid;
pub use self::profile::{Commit, PROFILES, Profile, PromptWindow, Stability, profile};
pub(crate) use self::threshold::SPEC as THRESHOLD;
use crate::Error;

/// What a parameter may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// An integer in `min..=max`.
    Int {
        /// Smallest.
        min: u32,
        /// Largest.
        max: u32,
    },
    /// A number in `min..=max`.
    Float {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
}

impl Range {
    /// Whether a parameter may be `x`.
    ///
    /// ```
    /// use redraft::sampler::Range;
    ///
    /// let steps = Range::Int { min: 1, max: 48 };
    /// assert!(steps.contains(48.0) && !steps.contains(1.5) && !steps.contains(f64::NAN));
    /// ```
    pub fn contains(self, x: f64) -> bool {
        match self {
            Range::Int { min, max } => x.fract() == 0.0 && (f64::from(min)..=f64::from(max)).contains(&x),
            Range::Float { min, max } => (min..=max).contains(&x),
        }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Range::Int { min, max } => write!(f, "an integer in {min}..={max}"),
            Range::Float { min, max } => write!(f, "a number in {min}..={max}"),
        }
    }
}

/// One parameter of a sampler. Flags, JSON fields and docs are derived from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParamSpec {
    /// Name in JSON and in traces.
    pub name: &'static str,
    /// Flag on the command line, without dashes.
    pub flag: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Value when neither the file nor the user says.
    pub default: f64,
    /// Values that make sense.
    pub range: Range,
    /// Metadata key that overrides the default.
    pub gguf_key: Option<&'static str>,
}

/// Values of all parameters of one sampler.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Params(BTreeMap<&'static str, f64>);

impl Params {
    /// Value of a parameter. All parameters of the sampler's list are present.
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(f64::NAN)
    }

    /// Value of an integer parameter.
    pub fn int(&self, name: &str) -> usize {
        self.get(name) as usize
    }

    /// As JSON, in alphabetical order.
    pub fn to_json(&self) -> Map<String, Value> {
        self.iter().map(|(name, x)| (name.to_string(), json_number(x))).collect()
    }

    /// Name and value in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.0.iter().map(|(k, v)| (*k, *v))
    }
}

/// A number as JSON, integers without a point.
pub fn json_number(x: f64) -> Value {
    if x.fract() == 0.0 && x.abs() < 9e15 { Value::from(x as i64) } else { Value::from(x) }
}

/// What a step computed, one entry per position of the canvas.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepView<'a> {
    /// Step, counted from 0.
    pub step: usize,
    /// Canvas that went in.
    pub canvas: &'a [u32],
    /// Positions that are not decided yet. Of the others nothing was computed, unless [`Ask::edit`]: the numbers are 0, and
    /// argmax and sample are what stands there. With a [`BlockCache`](crate::engine::BlockCache) that also holds of open
    /// positions outside the [block](Sampler::block).
    pub open: &'a [bool],
    /// Most likely ids under the processed logits; never the mask token.
    pub argmax: &'a [u32],
    /// Ids drawn from the processed distribution; never the mask token.
    pub sample: &'a [u32],
    /// Log-sum-exp of the logits, all ids counted.
    pub lse: &'a [f32],
    /// Entropy of the distribution in nats, all ids counted.
    pub entropy: &'a [f32],
    /// Logit of the argmax, which is not the largest one where that is the mask token's; empty unless [`Ask::worth`].
    pub first: &'a [f32],
    /// Largest logit of another id; empty unless [`Ask::worth`].
    pub second: &'a [f32],
    /// Logit of the sample; empty unless [`Ask::worth`].
    pub sampled: &'a [f32],
    /// Logits that ids are drawn from, before top-k and top-p, `[canvas, V]`; empty unless [`Ask::logits`].
    pub logits: &'a [f32],
    /// The mask token; 0 in canvases of random tokens.
    pub mask: u32,
    /// Fresh uniform ids, for positions that are not accepted.
    pub renoise: &'a [u32],
    /// Numbers in (0, 1) for samplers that choose positions at random.
    pub choice: &'a [f64],
    /// Ids that end an answer.
    pub end_ids: &'a [u32],
}

impl StepView<'_> {
    /// Whether a position is open and was predicted: the mask token never is.
    pub(crate) fn is_predicted(&self, i: usize) -> bool {
        self.open[i] && self.argmax[i] != self.mask
    }
}

/// What a sampler wants of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask {
    /// Logits are divided by it.
    pub temperature: f64,
    /// Ids that can be drawn, the most likely ones; 0 is all.
    pub top_k: usize,
    /// Of those, the most likely ones that have this probability together; 1 is all.
    pub top_p: f64,
    /// The other way round: `top_p` of all, and of those `top_k`.
    pub top_p_first: bool,
    /// Classifier-free guidance: logits are `u + (cfg_scale + 1) (c - u)`, where `u` are those without the prompt; 0 is
    /// none.
    pub cfg_scale: f64,
    /// All numbers but argmax and sample are those of the logits before temperature and restriction.
    pub raw_stats: bool,
    /// [`StepView::first`], [`StepView::second`] and [`StepView::sampled`] are wanted.
    pub worth: bool,
    /// Decided positions are predicted, too, and may change.
    pub edit: bool,
    /// [`StepView::logits`] are wanted.
    pub logits: bool,
}

impl Default for Ask {
    fn default() -> Ask {
        Ask {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            top_p_first: false,
            cfg_scale: 0.0,
            raw_stats: false,
            worth: false,
            edit: false,
            logits: false,
        }
    }
}

/// Why a canvas is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The sampler's stop rule.
    Converged,
    /// All positions are decided, by the last step of a schedule that leaves none over.
    Complete,
    /// The last step, which may leave what another one would have changed.
    MaxSteps,
}

impl Stop {
    /// In JSON and receipts.
    pub fn name(self) -> &'static str {
        match self {
            Stop::Converged => "converged",
            Stop::Complete => "complete",
            Stop::MaxSteps => "max_steps",
        }
    }
}

/// What the sampler makes of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Positions whose sample enters the next canvas.
    pub accepted: Vec<bool>,
    /// Next canvas.
    pub canvas: Vec<u32>,
    /// How sure the sampler is of each position, by its own measure: larger is accepted earlier. 0 for positions that
    /// cannot change; empty where it has no such measure.
    pub confidence: Vec<f32>,
    /// Mean entropy in nats.
    pub mean_entropy: f32,
    /// Whether this was the last step of the canvas.
    pub stop: Option<Stop>,
}

impl Decision {
    /// Number of accepted positions.
    pub fn n_accepted(&self) -> usize {
        self.accepted.iter().filter(|&&a| a).count()
    }
}

/// Decides, step by step. One instance serves one canvas after the other.
pub trait Sampler: Send {
    /// Steps of a canvas at most.
    fn max_steps(&self) -> usize;

    /// What it wants of a step.
    fn ask(&self, step: usize) -> Ask;

    /// A new canvas begins, whose `open` positions are to be decided; of models that read block by block the first may
    /// be already. `before`: positions of its block that come before it, where it is the rest of a block.
    fn begin(&mut self, open: &[bool], before: usize);

    /// The part of the canvas in which the next step reveals positions, where `open` ones are left; all of it unless the
    /// sampler goes through the canvas in blocks.
    fn block(&self, open: &[bool]) -> std::ops::Range<usize> {
        0..open.len()
    }

    /// Decides on a step. All slices have the length of the canvas. What is given stays and is never open.
    fn step(&mut self, view: StepView<'_>) -> Decision;
}

/// One entry of [`SAMPLERS`].
pub struct SamplerSpec {
    /// Name on the command line and in JSON.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Whether it decides canvases of masks; else those of random tokens.
    pub masks: bool,
    /// Positions after the answer that hold padding and are never decided.
    pub reserved: usize,
    /// Its parameters.
    pub params: &'static [ParamSpec],
    /// Creates it.
    pub create: fn(&Params, &'static Profile) -> Box<dyn Sampler>,
}

/// All samplers.
pub static SAMPLERS: &[&SamplerSpec] = &[
    &entropy_bound::SPEC,
    &origin::SPEC,
    &maskgit_plus::SPEC,
    &topk_margin::SPEC,
    &entropy::SPEC,
    &low_confidence::SPEC,
    &random::SPEC,
    &threshold::SPEC,
    &dynamic_threshold::SPEC,
    &joint_threshold::SPEC,
    &edit::SPEC,
    &entropy_bound_monotone::SPEC,
];

/// The sampler of that name.
///
/// # Errors
/// [`Error::Request`] with the names that exist.
pub fn sampler(name: &str) -> Result<&'static SamplerSpec, Error> {
    SAMPLERS.iter().find(|s| s.name == name).copied().ok_or_else(|| Error::Request {
        what: "sampler".into(),
        expected: SAMPLERS.iter().map(|s| s.name).collect::<Vec<_>>().join(", "),
        found: name.into(),
    })
}

impl SamplerSpec {
    /// Whether it deletes and inserts positions, so that tokens do not stay at their places.
    pub fn moves(&self) -> bool {
        self.params.iter().any(|p| p.name == "delete_token")
    }

    /// Built-in defaults, then the file's keys, then `overrides`; each checked against its range.
    ///
    /// # Errors
    /// [`Error::Request`] for a name that is no parameter or a value out of range; [`Error::Gguf`] for a
    /// key of another type.
    pub fn params(&self, meta: &Metadata, overrides: &[(String, f64)]) -> Result<Params, Error> {
        let mut values = BTreeMap::new();
        for p in self.params {
            let stored = match (p.gguf_key, p.range) {
                (Some(key), Range::Int { .. }) => meta.opt_u32(key)?.map(f64::from),
                // The file's f32 stands for the decimal it was written from: 0.1, not 0.100000001.
                (Some(key), Range::Float { .. }) => meta.opt_f32(key)?.map(decimal),
                (None, _) => None,
            };
            let given = overrides.iter().rev().find(|(name, _)| name == p.name);
            let value = match (given, stored, p.gguf_key) {
                (Some(&(_, value)), ..) => p.checked(p.name, value)?,
                (None, Some(value), Some(key)) => p.checked(key, value)?,
                _ => p.default,
            };
            values.insert(p.name, value);
        }
        match overrides.iter().find(|(name, _)| !self.params.iter().any(|p| p.name == name)) {
            None => Ok(Params(values)),
            Some((name, _)) => Err(Error::Request {
                what: format!("parameter of the sampler {}", self.name),
                expected: self.params.iter().map(|p| p.name).collect::<Vec<_>>().join(", "),
                found: name.clone(),
            }),
        }
    }
}

impl ParamSpec {
    /// `what` is the parameter or the metadata key that says `x`.
    fn checked(&self, what: &str, x: f64) -> Result<f64, Error> {
        if self.range.contains(x) {
            return Ok(x);
        }
        Err(Error::Request { what: what.into(), expected: self.range.to_string(), found: x.to_string() })
    }
}

/// The shortest decimal that rounds to this f32, as f64.
fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
