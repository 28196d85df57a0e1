//! One forward pass: builds the program, runs it, reads the results.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redraft_compute::op::{Distribution, Factor, Logits, Penalty, STATS, Segment};
use redraft_compute::{
    ComputeError, InputData, KeptId, Kind, KvType, Program, ProgramBuilder, SeqId, TapData, TapKey, Val,
};

use super::cache::{self, Reads};
use super::result::{CanvasResult, Watch};
use super::{BlockCache, BlockStep, Penalties, Place, Session};
use crate::arch::{Noise, Reading};
use crate::diagnose::Pass;
use crate::sampler::Ask;
use crate::{Error, Model};

/// What stays in the backend from one step to the next: the final hidden states, and the statistics of the logits that
/// the head makes of them. The logits themselves are computed again where they are needed.
const HIDDEN: KeptId = KeptId(0);
const STATISTICS: KeptId = KeptId(1);
const TILES: KeptId = KeptId(2);
/// Logits that penalties weigh on, which the head alone does not give again.
const LOGITS: KeptId = KeptId(3);

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
    seqs: &[SeqId],
    program: &Program,
    inputs: &[InputData<'_>],
    sink: &mut dyn TapSink,
) -> Result<CanvasResult, Error> {
    sink.begin(program);
    let rows = [program.rows(), program.segments().iter().next().map_or(0, |s| s.rows)];
    let mut watch = Watch { sink, rows, result: CanvasResult::default() };
    // Before, so that a file that became shorter is not touched; after, because a result over weights that were
    // no longer there is none, whatever it says.
    model.gguf().check()?;
    let done = model.backend.run(program, seqs, inputs, &mut watch);
    model.gguf().check()?;
    match done {
        Ok(()) => Ok(watch.result),
        Err(ComputeError::Interrupted) => Err(Error::Interrupted),
        Err(e) => Err(e.into()),
    }
}

/// Pass over `ids` after the cached `past`; extends the cache. Returns the most likely next token where the model
/// [predicts it here](crate::arch::Shape::predicts_next), under these penalties; it never is the mask token.
pub(crate) fn prompt(
    model: &mut Model,
    seq: SeqId,
    (past, new): (&[u32], &[u32]),
    penalties: &Penalties,
    sink: &mut dyn TapSink,
) -> Result<Option<u32>, Error> {
    let n_past = past.len();
    let ids = as_input(new, model.shape().vocab_len, "prompt")?;
    let mut b = ProgramBuilder::new(&model.weights, n_past, ids.len());
    b.set_numerics(model.numerics);
    let mistake = model.mistake.clone();
    b.set_rewrite(mistake.as_ref().and_then(|m| m.of_pass(Pass::Prompt)));
    let v = b.input("ids", 1, Kind::Int)?;
    let hidden = model.arch.prompt(&mut b, v)?;
    let predicts = model.shape().predicts_next() && !ids.is_empty();
    // Nothing else reads the final norm of a prompt pass but a trace.
    if predicts || sink.wants(TapKey { name: "result_norm", layer: None }) {
        let normed = model.arch.result_norm(&mut b, hidden)?; // [T, d_model]
        if predicts {
            let last = b.take_rows(normed, vec![ids.len() as u32 - 1])?;
            let mut logits = b.head(last, model.arch.head())?; // [1, V]
            let next = Place { at: n_past + ids.len(), own: None };
            if !penalties.is_none(next.at) {
                let seen = past.iter().chain(new).copied();
                logits = b.penalize(logits, penalties.on(seen, &[next], 1.0))?;
            }
            if let Noise::Mask(mask) = model.shape().noise {
                logits = b.restrict(logits, &[mask], 0, 1.0)?;
            }
            let (of, argmax) = b.token_stats(b.logits(logits, None, 1.0))?;
            [of.stats, argmax].into_iter().for_each(|v| b.output(v));
        }
    }
    let first_position = mistake.map_or(n_past, |m| m.first_position(Pass::Prompt, n_past));
    let tables = model.arch.position_inputs(first_position, ids.len());
    let mut inputs = vec![InputData::Int(&ids)];
    inputs.extend(tables.iter().map(|t| InputData::F64(t)));
    Ok(run(model, &[seq], &b.finish(), &inputs, sink)?.argmax.first().copied())
}

/// Bidirectional pass over a canvas after what `session` holds. The cache stays as it is, unless the first step of a
/// [block](CanvasPass::block) fills it.
///
/// # Errors
/// An id outside the vocabulary; as many open or decided positions or uniform numbers as the canvas has not; more than a temperature
/// asked of a model that has no mask token; guidance asked of one whose prompt is in the cache; a block of a model that does not
/// read whole sequences, that does not lie in the canvas, with guidance, or outside which a later step is to predict; those of the
/// ops, naming layer and tap.
pub fn canvas_pass(
    model: &mut Model,
    session: &Session,
    pass: CanvasPass<'_>,
    sink: &mut dyn TapSink,
) -> Result<CanvasResult, Error> {
    let len = |what: &str, found: usize| match found == pass.ids.len() {
        true => Ok(()),
        false => Err(Error::Request {
            what: format!("{what} of a canvas"),
            expected: format!("one for each of {} positions", pass.ids.len()),
            found: found.to_string(),
        }),
    };
    pass.open.map_or(Ok(()), |open| len("open positions", open.len()))?;
    len("decided positions", if pass.decided.is_empty() { pass.ids.len() } else { pass.decided.len() })?;
    pass.sampling.map_or(Ok(()), |s| len("uniform numbers", s.uniform.len()))?;
    let ask = pass.sampling.map(|s| s.ask).unwrap_or_default();
    // A cache of nothing is none.
    let block = pass.block.filter(|step| step.cache != BlockCache::None);
    let pass = CanvasPass { block, ..pass };
    match block {
        Some(step) => cache::check(model, &pass, step, ask.cfg_scale)?,
        None => check_kv_type(model)?,
    }
    let plain = Ask { temperature: ask.temperature, logits: ask.logits, ..Ask::default() };
    match model.shape().noise {
        Noise::Uniform if ask != plain => {
            return Err(Error::Request {
                what: "what a sampler asks of a model that has no mask token".into(),
                expected: "a temperature alone (and the logits)".into(),
                found: format!("{ask:?}"),
            });
        }
        Noise::Mask(mask) if ask.cfg_scale > 0.0 => {
            check_guidance(model)?;
            return one_pass(model, session, pass, Some((ask.cfg_scale, mask)), sink);
        }
        _ => {}
    }
    one_pass(model, session, pass, None, sink)
}

/// A type of keys and values that changes nothing is a mistake.
pub(super) fn check_kv_type(model: &Model) -> Result<(), Error> {
    if model.shape().reading != Reading::Whole || model.kv_type() == KvType::F32 {
        return Ok(());
    }
    Err(Error::Request {
        what: "type of the KV cache".into(),
        expected: "f32: this model reads prompt and answer in one pass, and has a cache only where the steps of a block \
                   share one (--cache prefix or dual)"
            .into(),
        found: model.kv_type().name().into(),
    })
}

/// Whether guidance is possible.
pub(super) fn check_guidance(model: &Model) -> Result<(), Error> {
    if model.shape().can_be_guided() {
        return Ok(());
    }
    Err(Error::Request {
        what: "classifier-free guidance (cfg_scale)".into(),
        expected: "0, or a model that keeps no prompt in a cache".into(),
        found: model.arch().name.into(),
    })
}

/// `guidance`: its scale and the mask token. The sequence is read twice then, the second time with its prompt masked, in
/// one pass, so that weights are unpacked once for both.
fn one_pass(
    model: &mut Model,
    session: &Session,
    pass: CanvasPass<'_>,
    guidance: Option<(f64, u32)>,
    sink: &mut dyn TapSink,
) -> Result<CanvasResult, Error> {
    let shape = model.shape();
    let (vocab_len, shifted) = (shape.vocab_len, shape.shifted && pass.sampling.is_some());
    let n_past = session.tokens().len();
    let mut ids = as_input(pass.lead, vocab_len, "prompt")?;
    ids.extend(as_input(pass.ids, vocab_len, "canvas")?);
    ids.extend(as_input(pass.tail, vocab_len, "tail")?);
    let Reads { rows: read, cached, fill } = match pass.block {
        None => Reads { rows: 0..ids.len(), cached: n_past, fill: None },
        Some(step) => step.reads(pass.lead.len(), ids.len(), shape.shifted),
    };
    let mut ids = ids[read.clone()].to_vec();
    let own = ids.len();
    let begins = pass.block.is_some_and(|step| step.first);
    let mut segments = vec![Segment { n_past: if begins { 0 } else { cached }, rows: own }];
    if let Some((_, mask)) = guidance {
        ids.extend_from_within(..);
        ids[own..][..pass.lead.len()].fill(mask as i32);
        segments.push(segments[0]);
    }
    let mut b = ProgramBuilder::batch(&model.weights, &segments);
    b.set_numerics(model.numerics);
    let mistake = model.mistake.clone();
    b.set_rewrite(mistake.as_ref().and_then(|m| m.of_pass(Pass::Canvas)));
    let mut inputs = Vec::new();
    let v = b.input("ids", 1, Kind::Int)?;
    inputs.push(InputData::Int(&ids));
    let head = model.arch.head();
    let previous = match pass.previous {
        Previous::None => None,
        Previous::Kept { temperature } => {
            let hidden = b.kept(0, HIDDEN, ids.len(), model.shape().d_model)?;
            let stats = b.kept(0, STATISTICS, ids.len(), STATS)?;
            let tiles = b.kept(0, TILES, ids.len(), 2 * Logits::tiles(vocab_len))?;
            Some(Distribution { logits: b.logits(hidden, Some(head), 1.0 / temperature), stats, tiles })
        }
        Previous::KeptLogits => {
            let logits = b.kept(0, LOGITS, ids.len(), vocab_len)?;
            let stats = b.kept(0, STATISTICS, ids.len(), STATS)?;
            let tiles = b.kept(0, TILES, ids.len(), 2 * Logits::tiles(vocab_len))?;
            Some(Distribution { logits: b.logits(logits, None, 1.0), stats, tiles })
        }
        Previous::Given(x) => {
            inputs.push(InputData::F64(x));
            let x = b.input("sc_logits", vocab_len, Kind::Real)?;
            Some(b.token_stats(b.logits(x, None, 1.0))?.0)
        }
    };
    let first = n_past + read.start;
    let first = mistake.map_or(first, |m| m.first_position(Pass::Canvas, first));
    let mut tables = model.arch.position_inputs(first, own);
    tables.iter_mut().filter(|_| guidance.is_some()).for_each(|t| t.extend_from_within(..));
    inputs.extend(tables.iter().map(|t| InputData::F64(t)));
    let all = match pass.block {
        Some(_) if cached > 0 => model.arch.block_step(&mut b, v, fill.as_deref())?,
        // Nothing is outside the block.
        _ => model.arch.canvas(&mut b, v, previous)?,
    }; // [T, d_model]

    // The rows whose logits are wanted, R of them: what is not asked for costs a product with the vocabulary. A model
    // that will be told of this prediction is told of that of all positions.
    let told = pass.sampling.is_some() && pass.keep && model.shape().self_conditioning;
    let open = |i: usize| told || pass.open.is_none_or(|open| open[i]);
    let positions: Vec<usize> = (0..pass.ids.len()).filter(|&i| open(i)).collect();
    // The first position of a sequence has no row before it and keeps its own.
    let row = |i: &usize| ((pass.lead.len() + i).saturating_sub(usize::from(shifted)) - read.start) as u32;
    let rows: Vec<u32> = positions.iter().map(row).collect();
    let unguided: Vec<u32> = rows.iter().map(|row| own as u32 + row).collect();
    let hidden = match rows.iter().copied().eq(0..ids.len() as u32) {
        true => all,
        false => b.take_rows(all, rows)?, // [R, d_model]
    };
    // Statistics and samples are computed tile by tile. The logits as a whole are made for those who look at them, and
    // where ids are taken out of them, they are guided or penalties weigh on them.
    let noise = model.shape().noise;
    let masked = pass.sampling.is_some() && matches!(noise, Noise::Mask(_));
    let first = n_past + pass.lead.len();
    let penalties = pass.penalties.filter(|p| pass.sampling.is_some() && !p.is_none(first));
    let logits = pass.sampling.is_some_and(|s| s.ask.logits);
    let raw =
        match masked || logits || penalties.is_some() || sink.wants(TapKey { name: "logits", layer: None }) {
            true => {
                let raw = b.head(hidden, head)?; // [R, V]
                b.tap("logits", raw);
                Some(raw)
            }
            false => None,
        };
    let uniform: Vec<f64>;
    match pass.sampling {
        None => {}
        Some(Sampling { ask, uniform: u }) => {
            uniform = positions.iter().map(|&i| u[i]).collect();
            let u = b.input_rows("u", positions.len(), 1, Kind::Real)?;
            inputs.push(InputData::F64(&uniform));
            let decided = |i: &usize| pass.decided.get(*i).is_some_and(|&decided| decided);
            let penalty = |temperature| {
                penalties.map(|p| {
                    let here = (0..pass.ids.len()).filter(decided).map(|i| pass.ids[i]);
                    let seen = session.tokens().iter().chain(pass.lead).copied().chain(here);
                    let place = |i: &usize| Place { at: first + i, own: decided(i).then(|| pass.ids[*i]) };
                    let places: Vec<_> = positions.iter().map(place).collect();
                    p.on(seen, &places, temperature)
                })
            };
            match (noise, raw) {
                (Noise::Mask(mask), Some(mut logits)) => {
                    if let Some((scale, _)) = guidance {
                        let without = b.take_rows(all, unguided)?; // [R, d_model]
                        let without = b.head(without, head)?; // [R, V]
                        logits = guided(&mut b, logits, without, scale)?;
                    }
                    sampled(&mut b, logits, u, &ask, mask, &penalty)?;
                }
                _ => {
                    let scale = 1.0 / ask.temperature;
                    let mut shown = None;
                    let logits = match (raw, penalty(ask.temperature)) {
                        (Some(raw), Some(penalty)) => {
                            let scaled = b.scale(raw, Factor::Const(scale))?;
                            let x = b.penalize(scaled, penalty)?;
                            if told {
                                b.keep(0, x, LOGITS);
                            }
                            shown = Some(x);
                            b.logits(x, None, 1.0)
                        }
                        (Some(raw), None) if ask.logits => {
                            let x = b.scale(raw, Factor::Const(scale))?;
                            shown = Some(x);
                            b.logits(x, None, 1.0)
                        }
                        // The same bits either way.
                        (Some(raw), None) => b.logits(raw, None, scale),
                        (None, _) => b.logits(hidden, Some(head), scale),
                    };
                    let (of, argmax) = b.token_stats(logits)?;
                    let sample = b.token_sample(of, u)?;
                    [of.stats, argmax, sample].into_iter().for_each(|v| b.output(v));
                    if let Some(x) = shown.filter(|_| ask.logits) {
                        let worth = b.pick_stats(x, argmax, sample)?;
                        [worth, x].into_iter().for_each(|v| b.output(v));
                    }
                    if told {
                        b.keep(0, hidden, HIDDEN);
                        b.keep(0, of.stats, STATISTICS);
                        b.keep(0, of.tiles, TILES);
                    }
                }
            }
        }
    }
    let program = b.finish();
    if begins {
        model.backend.seq_truncate(session.seq(), 0)?;
    }
    let seqs = vec![session.seq(); segments.len()];
    let result = run(model, &seqs, &program, &inputs, sink)?;
    if begins {
        model.backend.seq_truncate(session.seq(), cached)?;
    }
    Ok(match pass.open {
        Some(open) if told => result.without(pass.ids, open),
        Some(open) => result.spread(pass.ids, open),
        None => result,
    })
}

/// `without + (scale + 1) (with - without)`.
fn guided(b: &mut ProgramBuilder, with: Val, without: Val, scale: f64) -> Result<Val, ComputeError> {
    let minus = b.scale(without, Factor::Const(-1.0))?;
    let away = b.add(with, minus)?;
    let away = b.scale(away, Factor::Const(scale + 1.0))?;
    b.add(without, away)
}

/// Appends temperature, penalties, restrictions and the statistics of `logits` `[R, V]`, which become outputs.
///
/// The mask token is never picked. How sure the model is of what is picked counts it: that is what the reference
/// programs' samplers do, which could pick it, too.
fn sampled(
    b: &mut ProgramBuilder,
    logits: Val,
    u: Val,
    ask: &Ask,
    mask: u32,
    penalty: &dyn Fn(f64) -> Option<Penalty>,
) -> Result<(), ComputeError> {
    let penalized = |b: &mut ProgramBuilder, x: Val, temperature: f64| match penalty(temperature) {
        Some(penalty) => b.penalize(x, penalty),
        None => Ok(x),
    };
    let scaled = match ask.temperature == 1.0 {
        true => logits,
        false => b.scale(logits, Factor::Const(1.0 / ask.temperature))?,
    }; // [R, V]
    let scaled = penalized(b, scaled, ask.temperature)?;
    let counted = match (ask.raw_stats, ask.temperature == 1.0) {
        (true, true) => scaled,
        (true, false) => penalized(b, logits, 1.0)?,
        (false, _) => restricted(b, scaled, &[], ask)?,
    };
    let (of, _) = b.token_stats(b.logits(counted, None, 1.0))?;
    let stats = of.stats;
    let allowed = restricted(b, scaled, &[mask], ask)?;
    let (of, argmax) = b.token_stats(b.logits(allowed, None, 1.0))?;
    let sample = b.token_sample(of, u)?;
    [stats, argmax, sample].into_iter().for_each(|v| b.output(v));
    // Nobody asks for the logits alone.
    if ask.worth || ask.logits {
        let worth = b.pick_stats(counted, argmax, sample)?;
        b.output(worth);
    }
    if ask.logits {
        let drawn_from = b.restrict(scaled, &[mask], 0, 1.0)?;
        b.output(drawn_from);
    }
    Ok(())
}

/// Leaves those ids of `x` `[R, V]` that are asked for, without those of `ban`.
fn restricted(b: &mut ProgramBuilder, x: Val, ban: &[u32], ask: &Ask) -> Result<Val, ComputeError> {
    match (ask.top_k, ask.top_p) {
        (0, 1.0) if ban.is_empty() => Ok(x),
        (k, p) if k > 0 && p < 1.0 && ask.top_p_first => {
            let x = b.restrict(x, ban, 0, p)?;
            b.restrict(x, &[], k, 1.0)
        }
        (k, p) => b.restrict(x, ban, k, p),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use redraft_compute::Observer;

    use super::*;
    use crate::LoadOptions;

    /// Keeps the bits of the only output.
    struct Keep(Vec<u32>);

    impl Observer for Keep {
        fn output(&mut self, _: usize, _: Val, data: TapData<'_>) {
            if let TapData::F32(x) = data {
                self.0 = x.iter().map(|x| x.to_bits()).collect();
            }
        }
    }

    /// Raw logits of canvases of several sequences in one pass: of each what is cached before it, and its ids.
    fn logits(model: &mut Model, sequences: &[(Vec<i32>, Vec<i32>)]) -> Vec<u32> {
        let mut seqs = Vec::new();
        for (before, _) in sequences {
            let session = model.session().unwrap();
            if !before.is_empty() {
                let ids: Vec<u32> = before.iter().map(|&id| id as u32).collect();
                prompt(model, session.seq(), (&[], &ids), &Penalties::default(), &mut ()).unwrap();
            }
            seqs.push(session.seq());
        }
        let segments: Vec<Segment> =
            sequences.iter().map(|(before, ids)| Segment { n_past: before.len(), rows: ids.len() }).collect();
        let mut b = ProgramBuilder::batch(&model.weights, &segments);
        b.set_numerics(model.numerics);
        let v = b.input("ids", 1, Kind::Int).unwrap();
        let hidden = model.arch.canvas(&mut b, v, None).unwrap();
        let y = b.head(hidden, model.arch.head()).unwrap();
        b.output(y);
        let ids: Vec<i32> = sequences.iter().flat_map(|(_, ids)| ids).copied().collect();
        let mut tables: Vec<Vec<f64>> = Vec::new();
        for s in &segments {
            for (i, table) in model.arch.position_inputs(s.n_past, s.rows).into_iter().enumerate() {
                match tables.get_mut(i) {
                    Some(all) => all.extend(table),
                    None => tables.push(table),
                }
            }
        }
        let mut inputs = vec![InputData::Int(&ids)];
        inputs.extend(tables.iter().map(|t| InputData::F64(t)));
        let mut keep = Keep(Vec::new());
        model.backend.run(&b.finish(), &seqs, &inputs, &mut keep).unwrap();
        seqs.into_iter().for_each(|seq| model.backend.seq_free(seq));
        keep.0
    }

    /// Every model whose file is in the testdata: sequences that share a pass have the bits that they have alone.
    #[test]
    fn a_batch_has_the_bits_of_single_passes() {
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
        let list =
            |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().map(|e| e.unwrap().path());
        let files = list(testdata).flat_map(|folder| list(folder.join("models")));
        let mut names = std::collections::BTreeSet::new();
        for file in files {
            let mut model = Model::open(&file, &LoadOptions::default()).unwrap();
            names.insert(model.arch().name);
            let shape = model.shape().clone();
            let id = |i: usize| (20 + i * 37 % (shape.vocab_len - 40)) as i32;
            // Prompts of different lengths, as far as they are cached, and canvases.
            let sequence = |n: usize, len: usize| {
                let cached = shape.cached(n);
                let len = if shape.reading == Reading::Whole { n + len } else { shape.canvas_len.min(len) };
                (
                    (0..cached).map(id).collect::<Vec<_>>(),
                    (cached..cached + len).map(|i| id(i + n)).collect::<Vec<_>>(),
                )
            };
            let all = [sequence(9, 8), sequence(40, 12), sequence(1, 3)];
            let together = logits(&mut model, &all);
            let alone: Vec<u32> =
                all.iter().flat_map(|one| logits(&mut model, std::slice::from_ref(one))).collect();
            assert!(!alone.is_empty() && together == alone, "{}", file.display());
        }
        assert!(names.len() >= 9, "{names:?}");
    }
}
