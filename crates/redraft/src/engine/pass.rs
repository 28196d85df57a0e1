//! One forward pass: builds the program, runs it, reads the results.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redraft_compute::op::Segment;
use redraft_compute::{ComputeError, InputData, Kind, Program, ProgramBuilder, SeqId, TapData, TapKey, Val};

use super::result::{CanvasResult, Output, Watch};
use super::{BlockStep, Penalties, Place};
use crate::arch::Noise;
use crate::diagnose::Pass;
use crate::sampler::Ask;
use crate::{Error, Model};

/// Looks at taps while a pass runs, and may ask it to stop.
pub trait TapSink {
    /// Called before the ops run.
    fn begin(&mut self, _program: &Program) {}

    /// Whether a tap is wanted.
    fn wants(&self, _key: TapKey) -> bool {
        false
    }

    /// A wanted tap.
    fn tap(&mut self, _key: TapKey, _val: Val, _data: TapData<'_>) {}

    /// A flag that ends the pass with [`Error::Interrupted`] once somebody sets it.
    fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// Whether [`timed`](Self::timed) should be called.
    fn times_ops(&self) -> bool {
        false
    }

    /// How long op `index` of the program took.
    fn timed(&mut self, _index: usize, _time: Duration) {}
}

/// The sink that looks at nothing.
impl TapSink for () {}

/// What a canvas pass is told of the previous prediction.
#[derive(Debug, Clone, Copy)]
pub enum Previous<'a> {
    /// Nothing: the first step, or self-conditioning off.
    None,
    /// The distributions that the last pass of this sequence made, and kept.
    Kept {
        /// The temperature of that pass.
        temperature: f64,
    },
    /// The same of a pass with penalties, which kept the logits.
    KeptLogits,
    /// Those of these processed logits, `[canvas, V]`.
    Given(&'a [f64]),
}

/// A canvas pass.
#[derive(Debug, Clone, Copy)]
pub struct CanvasPass<'a> {
    /// Tokens before the canvas that are not in the cache.
    pub lead: &'a [u32],
    /// Token ids of the canvas.
    pub ids: &'a [u32],
    /// Tokens after the canvas.
    pub tail: &'a [u32],
    /// The positions of the canvas that are to be predicted; none is all.
    pub open: Option<&'a [bool]>,
    /// The previous prediction.
    pub previous: Previous<'a>,
    /// Whether the next pass is told of this prediction ([`Previous::Kept`]), in models that are told of any.
    pub keep: bool,
    /// How to sample; without it only taps are computed, the logits of each row as it comes out of the model.
    pub sampling: Option<Sampling<'a>>,
    /// What weighs on the logits that are sampled from; nothing where there is none.
    pub penalties: Option<&'a Penalties>,
    /// The positions whose tokens count as seen; empty is none of the canvas.
    pub decided: &'a [bool],
    /// In models that read whole sequences, the block whose steps share keys and values; none reads everything. But in its
    /// first step only positions of the block can be open.
    pub block: Option<BlockStep>,
}

impl<'a> CanvasPass<'a> {
    /// A pass over these ids alone, without a previous prediction and without sampling.
    pub fn new(ids: &'a [u32]) -> CanvasPass<'a> {
        CanvasPass {
            lead: &[],
            ids,
            tail: &[],
            open: None,
            previous: Previous::None,
            keep: true,
            sampling: None,
            penalties: None,
            decided: &[],
            block: None,
        }
    }
}

/// How the tokens of a pass are sampled.
#[derive(Debug, Clone, Copy)]
pub struct Sampling<'a> {
    /// What the sampler wants.
    pub ask: Ask,
    /// Uniform numbers, one per position of the canvas.
    pub uniform: &'a [f64],
}

impl<'a> Sampling<'a> {
    /// At a temperature, without anything else.
    pub fn at(temperature: f64, uniform: &'a [f64]) -> Sampling<'a> {
        Sampling { ask: Ask { temperature, ..Ask::default() }, uniform }
    }
}

pub(super) fn as_input(ids: &[u32], vocab_len: usize, what: &str) -> Result<Vec<i32>, Error> {
    let id = |&id: &u32| {
        i32::try_from(id).ok().filter(|_| (id as usize) < vocab_len).ok_or_else(|| Error::Request {
            what: format!("token id in the {what}"),
            expected: format!("0..{vocab_len}"),
            found: id.to_string(),
        })
    };
    ids.iter().map(id).collect()
}

/// Runs a program with its inputs. `outputs`: which of `results` results each of its outputs belongs to, and as what.
pub(super) fn run(
    model: &mut Model,
    seqs: &[SeqId],
    (program, inputs): (&Program, &[InputData<'_>]),
    outputs: Vec<(usize, Output)>,
    results: usize,
    sink: &mut dyn TapSink,
) -> Result<Vec<CanvasResult>, Error> {
    sink.begin(program);
    let rows = [program.rows(), program.segments().iter().next().map_or(0, |s| s.rows)];
    // Before, so that a file that became shorter is not touched; after, because a result over weights that were
    // no longer there is none, whatever it says.
    model.gguf().check()?;
    let products = model.collector.as_mut().map(|c| (c, &*model.weights));
    let results = vec![CanvasResult::default(); results];
    let mut watch = Watch { sink, rows, outputs, results, products };
    let done = model.backend.run(program, seqs, inputs, &mut watch);
    let results = watch.results;
    model.gguf().check()?;
    match done {
        Ok(()) => Ok(results),
        Err(ComputeError::Interrupted) => Err(Error::Interrupted),
        Err(e) => Err(e.into()),
    }
}

/// What a prompt pass reads of a sequence.
pub(super) struct Prompt<'a> {
    pub(super) seq: SeqId,
    /// What is cached.
    pub(super) past: &'a [u32],
    /// What is read, one token at least.
    pub(super) new: &'a [u32],
    /// What weighs on the token after it.
    pub(super) penalties: &'a Penalties,
}

/// One pass over parts of prompts, which extends their caches; each has the bits that it has alone. Returns the most likely
/// next token of each where the model [predicts it here](crate::arch::Shape::predicts_next), under its penalties; it never
/// is the mask token.
pub(super) fn prompts(
    model: &mut Model,
    list: &[Prompt<'_>],
    sink: &mut dyn TapSink,
) -> Result<Vec<Option<u32>>, Error> {
    let shape = model.shape();
    let (mut ids, mut segments, mut tables) = (Vec::new(), Vec::new(), Vec::<Vec<f64>>::new());
    let mistake = model.mistake.clone();
    for p in list {
        ids.extend(as_input(p.new, shape.vocab_len, "prompt")?);
        let n_past = p.past.len();
        segments.push(Segment { n_past, rows: p.new.len() });
        let first = mistake.as_ref().map_or(n_past, |m| m.first_position(Pass::Prompt, n_past));
        append(&mut tables, model.arch.position_inputs(first, p.new.len(), model.rounding.angles));
    }
    let mut b = ProgramBuilder::batch(&model.weights, &segments);
    b.set_numerics(model.numerics);
    b.set_flash(model.rounding.flash);
    b.set_rewrite(mistake.as_ref().and_then(|m| m.of_pass(Pass::Prompt)));
    let v = b.input("ids", 1, Kind::Int)?;
    let hidden = model.arch.prompt(&mut b, v)?;
    let predicts = shape.predicts_next() && !ids.is_empty();
    let mut outputs = Vec::new();
    // Nothing else reads the final norm of a prompt pass but a trace.
    if predicts || sink.wants(TapKey { name: "result_norm", layer: None }) {
        let normed = model.arch.result_norm(&mut b, hidden)?; // [T, d_model]
        let mut end = 0;
        for (i, p) in list.iter().enumerate().filter(|_| predicts) {
            end += p.new.len() as u32;
            let last = b.take_rows(normed, vec![end - 1])?;
            let mut logits = b.head(last, model.arch.head())?; // [1, V]
            let next = Place { at: p.past.len() + p.new.len(), own: None };
            if !p.penalties.is_none(next.at) {
                let seen = p.past.iter().chain(p.new).copied();
                logits = b.penalize(logits, p.penalties.on(seen, &[next], 1.0))?;
            }
            if let Noise::Mask(mask) = shape.noise {
                logits = b.restrict(logits, &[mask], 0, 1.0)?;
            }
            let (_, argmax) = b.token_stats(b.logits(logits, None, 1.0))?;
            b.output(argmax);
            outputs.push((i, Output::Argmax));
        }
    }
    let mut inputs = vec![InputData::Int(&ids)];
    inputs.extend(tables.iter().map(|t| InputData::F64(t)));
    let seqs: Vec<SeqId> = list.iter().map(|p| p.seq).collect();
    let results = run(model, &seqs, (&b.finish(), &inputs), outputs, list.len(), sink)?;
    Ok(results.iter().map(|r| r.argmax.first().copied()).collect())
}

/// Appends the rows of the inputs that depend on positions only.
pub(super) fn append(tables: &mut Vec<Vec<f64>>, own: Vec<Vec<f64>>) {
    for (i, own) in own.into_iter().enumerate() {
        match tables.get_mut(i) {
            Some(all) => all.extend(own),
            None => tables.push(own),
        }
    }
}
