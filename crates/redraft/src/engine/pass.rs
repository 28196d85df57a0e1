//! One forward pass: builds the program, runs it, reads the results.

use std::time::Duration;

use redraft_compute::op::{Distribution, Logits, STATS};
use redraft_compute::{
    InputData, Kind, Observer, Program, ProgramBuilder, SeqId, Slot, TapData, TapKey, Val,
};

use super::Session;
use crate::{Error, Model};

/// What stays in the backend from one step to the next: the final hidden states, and the statistics of the logits that
/// the head makes of them. The logits themselves are computed again where they are needed.
const HIDDEN: Slot = Slot(0);
const STATISTICS: Slot = Slot(1);
const TILES: Slot = Slot(2);

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

    /// Asked between ops; `true` ends the pass with [`Error::Interrupted`].
    fn interrupted(&self) -> bool {
        false
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
    /// Those of these processed logits, `[canvas, V]`.
    Given(&'a [f64]),
}

/// A canvas pass.
#[derive(Debug, Clone, Copy)]
pub struct CanvasPass<'a> {
    /// Token ids, as many as the canvas is long.
    pub ids: &'a [u32],
    /// The previous prediction.
    pub previous: Previous<'a>,
    /// Temperature and the uniform numbers to sample with; without them only taps are computed.
    pub sampling: Option<(f64, &'a [f64])>,
}

/// What a pass with sampling computed, per position.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CanvasResult {
    /// Most likely ids.
    pub argmax: Vec<u32>,
    /// Drawn ids.
    pub sample: Vec<u32>,
    /// Largest processed logit.
    pub max: Vec<f32>,
    /// Log-sum-exp of the processed logits.
    pub lse: Vec<f32>,
    /// Entropy in nats.
    pub entropy: Vec<f32>,
}

/// Joins a sink with the outputs of a pass.
struct Watch<'a> {
    sink: &'a mut dyn TapSink,
    result: CanvasResult,
}

/// Index of the argmax among the outputs of a pass.
const ARGMAX: usize = 1;

impl Observer for Watch<'_> {
    fn wants(&self, key: TapKey) -> bool {
        self.sink.wants(key)
    }

    fn tap(&mut self, key: TapKey, val: Val, data: TapData<'_>) {
        self.sink.tap(key, val, data);
    }

    fn output(&mut self, index: usize, _val: Val, data: TapData<'_>) {
        let r = &mut self.result;
        let mut stats = |[max, lse, entropy, _]: [f32; STATS]| {
            r.max.push(max);
            r.lse.push(lse);
            r.entropy.push(entropy);
        };
        match data {
            TapData::F32(x) => x.as_chunks().0.iter().for_each(|&row| stats(row)),
            TapData::F64(x) => x.as_chunks().0.iter().for_each(|row| stats(row.map(|x: f64| x as f32))),
            // Ids come out of a vocabulary that fits i32.
            TapData::I32(x) if index == ARGMAX => r.argmax.extend(x.iter().map(|&id| id as u32)),
            TapData::I32(x) => r.sample.extend(x.iter().map(|&id| id as u32)),
        }
    }

    fn interrupted(&self) -> bool {
        self.sink.interrupted()
    }

    fn times_ops(&self) -> bool {
        self.sink.times_ops()
    }

    fn timed(&mut self, index: usize, time: Duration) {
        self.sink.timed(index, time);
    }
}

fn as_input(ids: &[u32], vocab_len: usize, what: &str) -> Result<Vec<i32>, Error> {
    let id = |&id: &u32| {
        i32::try_from(id).ok().filter(|_| (id as usize) < vocab_len).ok_or_else(|| Error::Request {
            what: format!("token id in the {what}"),
            expected: format!("0..{vocab_len}"),
            found: id.to_string(),
        })
    };
    ids.iter().map(id).collect()
}

fn run(
    model: &mut Model,
    seq: SeqId,
    program: &Program,
    inputs: &[InputData<'_>],
    sink: &mut dyn TapSink,
) -> Result<CanvasResult, Error> {
    sink.begin(program);
    let mut watch = Watch { sink, result: CanvasResult::default() };
    // Before, so that a file that became shorter is not touched; after, because a result over weights that were
    // no longer there is none, whatever it says.
    model.gguf().check()?;
    let done = model.backend.run(program, seq, inputs, &mut watch);
    model.gguf().check()?;
    match done {
        Ok(()) => Ok(watch.result),
        Err(redraft_compute::ComputeError::Interrupted) => Err(Error::Interrupted),
        Err(e) => Err(e.into()),
    }
}

/// Causal pass over `ids` at positions `n_past..`; extends the cache.
pub(crate) fn prompt(
    model: &mut Model,
    seq: SeqId,
    n_past: usize,
    ids: &[u32],
    sink: &mut dyn TapSink,
) -> Result<(), Error> {
    let ids = as_input(ids, model.shape().vocab_len, "prompt")?;
    let mut b = ProgramBuilder::new(&model.weights, n_past, ids.len());
    b.set_numerics(model.numerics);
    let v = b.input("ids", 1, Kind::Int)?;
    let hidden = model.arch.prompt(&mut b, v)?;
    // Nothing reads the final norm of a prompt pass but a trace.
    if sink.wants(TapKey { name: "result_norm", layer: None }) {
        model.arch.result_norm(&mut b, hidden)?;
    }
    let tables = model.arch.position_inputs(n_past, ids.len());
    let mut inputs = vec![InputData::Int(&ids)];
    inputs.extend(tables.iter().map(|t| InputData::F64(t)));
    run(model, seq, &b.finish(), &inputs, sink)?;
    Ok(())
}

/// Bidirectional pass over a canvas after what `session` holds; the cache stays as it is.
///
/// # Errors
/// An id outside the vocabulary; those of the ops, naming layer and tap.
pub fn canvas_pass(
    model: &mut Model,
    session: &Session,
    pass: CanvasPass<'_>,
    sink: &mut dyn TapSink,
) -> Result<CanvasResult, Error> {
    let vocab_len = model.shape().vocab_len;
    let n_past = session.tokens().len();
    let ids = as_input(pass.ids, vocab_len, "canvas")?;
    let mut b = ProgramBuilder::new(&model.weights, n_past, ids.len());
    b.set_numerics(model.numerics);
    let mut inputs = Vec::new();
    let v = b.input("ids", 1, Kind::Int)?;
    inputs.push(InputData::Int(&ids));
    let head = model.arch.head();
    let previous = match pass.previous {
        Previous::None => None,
        Previous::Kept { temperature } => {
            let hidden = b.kept(HIDDEN, model.shape().d_model)?;
            let stats = b.kept(STATISTICS, STATS)?;
            let tiles = b.kept(TILES, 2 * Logits::tiles(vocab_len))?;
            Some(Distribution { logits: b.logits(hidden, Some(head), 1.0 / temperature), stats, tiles })
        }
        Previous::Given(x) => {
            inputs.push(InputData::F64(x));
            let x = b.input("sc_logits", vocab_len, Kind::Real)?;
            Some(b.token_stats(b.logits(x, None, 1.0))?.0)
        }
    };
    let tables = model.arch.position_inputs(n_past, ids.len());
    inputs.extend(tables.iter().map(|t| InputData::F64(t)));
    let hidden = model.arch.canvas(&mut b, v, previous)?; // [T, n]
    let raw = match sink.wants(TapKey { name: "logits", layer: None }) {
        true => {
            let raw = b.head(hidden, head)?; // [T, V]
            b.tap("logits", raw);
            Some(raw)
        }
        false => None,
    };
    if let Some((temperature, u)) = pass.sampling {
        let scale = 1.0 / temperature;
        // The same bits either way.
        let logits = match raw {
            Some(raw) => b.logits(raw, None, scale),
            None => b.logits(hidden, Some(head), scale),
        };
        let u_in = b.input("u", 1, Kind::Real)?;
        inputs.push(InputData::F64(u));
        let (of, argmax) = b.token_stats(logits)?;
        let sample = b.token_sample(of, u_in)?;
        [of.stats, argmax, sample].into_iter().for_each(|v| b.output(v));
        b.keep(hidden, HIDDEN);
        b.keep(of.stats, STATISTICS);
        b.keep(of.tiles, TILES);
    }
    run(model, session.seq(), &b.finish(), &inputs, sink)
}
