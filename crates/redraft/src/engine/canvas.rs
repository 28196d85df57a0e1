//! Canvas passes: one or several sequences in one program.
//!
//! Sequences that share a pass share the unpacking of the layers' weights, and have the bits that they have alone: what looks
//! at more than one row looks at rows of one sequence. Soft embeddings, and heads whose logits are not made as a whole, are
//! computed sequence by sequence.

use std::ops::Range;

use redraft_compute::op::{Distribution, Factor, Logits, Penalty, STATS, Segment};
use redraft_compute::{ComputeError, InputData, KeptId, Kind, KvType, ProgramBuilder, TapKey, Val};

use super::cache::{self, Reads};
use super::pass::{self, CanvasPass, Previous, Sampling, TapSink, as_input};
use super::result::{CanvasResult, Output};
use super::{BlockCache, Place, Session};
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

/// Bidirectional pass over a canvas after what `session` holds. The cache stays as it is, unless the first step of a
/// [block](CanvasPass::block) fills it.
///
/// # Errors
/// Those of [`canvas_passes`].
pub fn canvas_pass(
    model: &mut Model,
    session: &Session,
    pass: CanvasPass<'_>,
    sink: &mut dyn TapSink,
) -> Result<CanvasResult, Error> {
    let mut results = canvas_passes(model, &[(session, pass)], sink)?;
    Ok(results.pop().unwrap_or_default())
}

/// Bidirectional passes over canvases after what their sessions hold, in one program: each has the bits that it has alone.
/// `sink` looks at the rows of the first one, and at the raw logits of all.
///
/// # Errors
/// An id outside the vocabulary; as many open or decided positions or uniform numbers as the canvas has not; more than a temperature
/// asked of a model that has no mask token; guidance asked of one whose prompt is in the cache; a block of a model that does not
/// read whole sequences, that does not lie in the canvas, with guidance, outside which a later step is to predict, or beside other
/// sequences; those of the ops, naming layer and tap.
pub fn canvas_passes(
    model: &mut Model,
    passes: &[(&Session, CanvasPass<'_>)],
    sink: &mut dyn TapSink,
) -> Result<Vec<CanvasResult>, Error> {
    let mut all = Sequences::default();
    for &(session, pass) in passes {
        all.add(model, session, pass)?;
    }
    if let Some(one) = all.list.iter().find(|s| s.pass.block.is_some() && passes.len() > 1) {
        return Err(Error::Request {
            what: "steps of blocks with a cache in one pass".into(),
            expected: "one".into(),
            found: format!("{} beside {:?}", passes.len() - 1, one.pass.block),
        });
    }
    all.run(model, sink)
}

/// One sequence of a pass.
struct Sequence<'a> {
    session: &'a Session,
    /// What is asked; a block with a cache of nothing is none.
    pass: CanvasPass<'a>,
    /// Scale of the guidance, and the mask token. The sequence is read twice then, the second time with its prompt masked.
    guidance: Option<(f64, u32)>,
    /// What is read, and what the cache holds after it.
    reads: Reads,
    /// The cache is filled anew.
    begins: bool,
    /// Its first row of the pass.
    row: usize,
    /// Rows of one reading.
    rows: usize,
    /// Its first segment.
    segment: usize,
    /// Positions of the canvas whose logits are wanted, `R` of them: what is not asked for costs a product with the
    /// vocabulary. A model that will be told of this prediction is told of that of all positions.
    positions: Vec<usize>,
    /// Uniform numbers of these.
    uniform: Vec<f64>,
    /// The model will be told of this prediction.
    told: bool,
}

impl Sequence<'_> {
    /// Tokens before its canvas.
    fn first(&self) -> usize {
        self.session.tokens().len() + self.pass.lead.len()
    }

    /// The rows of the pass that predict its positions. The first position of a sequence has no row before it and keeps its own.
    fn predicting(&self, shifted: bool) -> Vec<u32> {
        let shifted = usize::from(shifted && self.pass.sampling.is_some());
        let row = |i: &usize| (self.pass.lead.len() + i).saturating_sub(shifted) - self.reads.rows.start;
        self.positions.iter().map(|i| (self.row + row(i)) as u32).collect()
    }

    /// What weighs on its logits.
    fn penalties(&self) -> Option<&super::Penalties> {
        self.pass.penalties.filter(|p| self.pass.sampling.is_some() && !p.is_none(self.first()))
    }

    /// Those at a temperature.
    fn penalty(&self, temperature: f64) -> Option<Penalty> {
        let p = self.penalties()?;
        let decided = |i: &usize| self.pass.decided.get(*i).is_some_and(|&decided| decided);
        let here = (0..self.pass.ids.len()).filter(decided).map(|i| self.pass.ids[i]);
        let seen = self.session.tokens().iter().chain(self.pass.lead).copied().chain(here);
        let first = self.first();
        let place = |i: &usize| Place { at: first + i, own: decided(i).then(|| self.pass.ids[*i]) };
        let places: Vec<_> = self.positions.iter().map(place).collect();
        Some(p.on(seen, &places, temperature))
    }
}

/// The sequences of a pass, with what is common to them.
#[derive(Default)]
struct Sequences<'a> {
    list: Vec<Sequence<'a>>,
    ids: Vec<i32>,
    segments: Vec<Segment>,
}

impl<'a> Sequences<'a> {
    /// Checks and appends one.
    fn add(&mut self, model: &Model, session: &'a Session, pass: CanvasPass<'a>) -> Result<(), Error> {
        let guidance = check(model, &pass)?;
        let pass = CanvasPass { block: pass.block.filter(|step| step.cache != BlockCache::None), ..pass };
        let shape = model.shape();
        let n_past = session.tokens().len();
        let mut ids = as_input(pass.lead, shape.vocab_len, "prompt")?;
        ids.extend(as_input(pass.ids, shape.vocab_len, "canvas")?);
        ids.extend(as_input(pass.tail, shape.vocab_len, "tail")?);
        let reads = match pass.block {
            None => Reads { rows: 0..ids.len(), cached: n_past, fill: None },
            Some(step) => step.reads(pass.lead.len(), ids.len(), shape.shifted),
        };
        let begins = pass.block.is_some_and(|step| step.first);
        let (row, rows) = (self.ids.len(), reads.rows.len());
        self.ids.extend_from_slice(&ids[reads.rows.clone()]);
        let segment = self.segments.len();
        self.segments.push(Segment { n_past: if begins { 0 } else { reads.cached }, rows });
        if let Some((_, mask)) = guidance {
            self.ids.extend_from_within(row..);
            self.ids[row + rows..][..pass.lead.len()].fill(mask as i32);
            self.segments.push(self.segments[segment]);
        }
        let told = pass.sampling.is_some() && pass.keep && shape.self_conditioning;
        let open = |i: &usize| told || pass.open.is_none_or(|open| open[*i]);
        let positions: Vec<usize> = (0..pass.ids.len()).filter(open).collect();
        let uniform = pass.sampling.map_or(Vec::new(), |s| positions.iter().map(|&i| s.uniform[i]).collect());
        self.list.push(Sequence {
            session,
            pass,
            guidance,
            reads,
            begins,
            row,
            rows,
            segment,
            positions,
            uniform,
            told,
        });
        Ok(())
    }

    fn run(&self, model: &mut Model, sink: &mut dyn TapSink) -> Result<Vec<CanvasResult>, Error> {
        let mut b = ProgramBuilder::batch(&model.weights, &self.segments);
        b.set_numerics(model.numerics);
        b.set_flash(model.rounding.flash);
        let mistake = model.mistake.clone();
        b.set_rewrite(mistake.as_ref().and_then(|m| m.of_pass(Pass::Canvas)));
        let mut inputs = vec![InputData::Int(&self.ids)];
        let ids = b.input("ids", 1, Kind::Int)?;
        let mut previous = Vec::new();
        for s in &self.list {
            if let Some(of) = s.previous(model, &mut b, &mut inputs)? {
                previous.push((s.row, of));
            }
        }
        let first = |s: &Sequence<'_>| {
            let first = s.session.tokens().len() + s.reads.rows.start;
            mistake.as_ref().map_or(first, |m| m.first_position(Pass::Canvas, first))
        };
        let tables = self.tables(model, first);
        inputs.extend(tables.iter().map(|t| InputData::F64(t)));
        let step = self.list.iter().find(|s| s.pass.block.is_some() && s.reads.cached > 0);
        let hidden = match step {
            Some(s) => model.arch.block_step(&mut b, ids, s.reads.fill.as_deref())?,
            // Nothing is outside the block.
            None => model.arch.canvas(&mut b, ids, &previous)?,
        }; // [T, d_model]
        let outputs = self.heads(model, &mut b, hidden, &mut inputs, sink)?;
        let program = b.finish();
        let seqs: Vec<_> = self
            .list
            .iter()
            .flat_map(|s| vec![s.session.seq(); 1 + usize::from(s.guidance.is_some())])
            .collect();
        for s in self.list.iter().filter(|s| s.begins) {
            model.backend.seq_truncate(s.session.seq(), 0)?;
        }
        let results = pass::run(model, &seqs, (&program, &inputs), outputs, self.list.len(), sink)?;
        for s in self.list.iter().filter(|s| s.begins) {
            model.backend.seq_truncate(s.session.seq(), s.reads.cached)?;
        }
        let placed = |(result, s): (CanvasResult, &Sequence<'_>)| match s.pass.open {
            Some(open) if s.told => result.without(s.pass.ids, open),
            Some(open) => result.spread(s.pass.ids, open),
            None => result,
        };
        Ok(results.into_iter().zip(&self.list).map(placed).collect())
    }

    /// The inputs that depend on positions only, of all rows.
    fn tables(&self, model: &Model, first: impl Fn(&Sequence<'_>) -> usize) -> Vec<Vec<f64>> {
        let mut tables: Vec<Vec<f64>> = Vec::new();
        for s in &self.list {
            for _ in 0..1 + usize::from(s.guidance.is_some()) {
                pass::append(
                    &mut tables,
                    model.arch.position_inputs(first(s), s.rows, model.rounding.angles),
                );
            }
        }
        tables
    }

    /// Logits, statistics and samples. They are computed tile by tile; the logits as a whole are made for those who look at them,
    /// and where ids are taken out of them, they are guided or penalties weigh on them: of all sequences in one product with
    /// the vocabulary. Returns whose the outputs are, in order.
    fn heads<'b>(
        &'b self,
        model: &Model,
        b: &mut ProgramBuilder,
        hidden: Val,
        inputs: &mut Vec<InputData<'b>>,
        sink: &dyn TapSink,
    ) -> Result<Vec<(usize, Output)>, Error> {
        let shape = model.shape();
        let head = model.arch.head();
        let watched = sink.wants(TapKey { name: "logits", layer: None });
        let raw = |s: &Sequence<'_>| {
            let masked = s.pass.sampling.is_some() && matches!(shape.noise, Noise::Mask(_));
            masked || s.penalties().is_some() || s.pass.sampling.is_some_and(|s| s.ask.logits) || watched
        };
        let rows: Vec<Vec<u32>> = self.list.iter().map(|s| s.predicting(shape.shifted)).collect();
        let made: Vec<u32> =
            self.list.iter().zip(&rows).filter(|(s, _)| raw(s)).flat_map(|(_, rows)| rows).copied().collect();
        let take =
            |b: &mut ProgramBuilder, rows: &[u32]| match rows.iter().copied().eq(0..hidden.rows() as u32) {
                true => Ok(hidden),
                false => b.take_rows(hidden, rows.to_vec()),
            };
        let logits = match self.list.iter().any(raw) {
            true => {
                let x = take(b, &made)?;
                let logits = b.head(x, head)?;
                b.tap("logits", logits);
                Some(logits)
            }
            false => None,
        };
        let mut outputs = Vec::new();
        let mut from = 0;
        for (index, (s, rows)) in self.list.iter().zip(&rows).enumerate() {
            let raw = match logits.filter(|_| raw(s)) {
                Some(all) if all.rows() == rows.len() => Some(all),
                Some(all) => {
                    let own: Range<u32> = from as u32..(from + rows.len()) as u32;
                    from += rows.len();
                    Some(b.take_rows(all, own.collect())?) // [R, V]
                }
                None => None,
            };
            let Some(Sampling { ask, .. }) = s.pass.sampling else { continue };
            let u = b.input_rows("u", rows.len(), 1, Kind::Real)?;
            inputs.push(InputData::F64(&s.uniform));
            let made = match (shape.noise, raw) {
                (Noise::Mask(mask), Some(mut logits)) => {
                    if let Some((scale, _)) = s.guidance {
                        let unguided = rows.iter().map(|row| s.rows as u32 + row).collect();
                        let without = b.take_rows(hidden, unguided)?; // [R, d_model]
                        let without = b.head(without, head)?; // [R, V]
                        logits = guided(b, logits, without, scale)?;
                    }
                    sampled(b, logits, u, &ask, mask, &|t| s.penalty(t))?
                }
                _ => {
                    let own = if s.told || raw.is_none() { Some(take(b, rows)?) } else { None }; // [R, d_model]
                    let scale = 1.0 / ask.temperature;
                    let mut shown = None;
                    let logits = match (raw, own, s.penalty(ask.temperature)) {
                        (Some(raw), _, Some(penalty)) => {
                            let scaled = b.scale(raw, Factor::Const(scale))?;
                            let x = b.penalize(scaled, penalty)?;
                            if s.told {
                                b.keep(s.segment, x, LOGITS);
                            }
                            shown = Some(x);
                            b.logits(x, None, 1.0)
                        }
                        (Some(raw), ..) if ask.logits => {
                            let x = b.scale(raw, Factor::Const(scale))?;
                            shown = Some(x);
                            b.logits(x, None, 1.0)
                        }
                        // The same bits either way.
                        (Some(raw), ..) => b.logits(raw, None, scale),
                        (None, own, _) => b.logits(own.unwrap_or(hidden), Some(head), scale),
                    };
                    let (of, argmax) = b.token_stats(logits)?;
                    let sample = b.token_sample(of, u)?;
                    if let (true, Some(own)) = (s.told, own) {
                        b.keep(s.segment, own, HIDDEN);
                        b.keep(s.segment, of.stats, STATISTICS);
                        b.keep(s.segment, of.tiles, TILES);
                    }
                    let mut made = vec![
                        (of.stats, Output::Statistics),
                        (argmax, Output::Argmax),
                        (sample, Output::Sample),
                    ];
                    if let Some(x) = shown.filter(|_| ask.logits) {
                        made.push((b.pick_stats(x, argmax, sample)?, Output::Worth));
                        made.push((x, Output::Logits));
                    }
                    made
                }
            };
            for (v, output) in made {
                b.output(v);
                outputs.push((index, output));
            }
        }
        Ok(outputs)
    }
}

impl<'a> Sequence<'a> {
    /// Appends what the model is told of its previous prediction.
    fn previous<'b>(
        &'b self,
        model: &Model,
        b: &mut ProgramBuilder,
        inputs: &mut Vec<InputData<'b>>,
    ) -> Result<Option<Distribution>, Error> {
        let (vocab_len, at) = (model.shape().vocab_len, self.segment);
        let tiles = 2 * Logits::tiles(vocab_len);
        Ok(match self.pass.previous {
            Previous::None => None,
            Previous::Kept { temperature } => {
                let hidden = b.kept(at, HIDDEN, self.rows, model.shape().d_model)?;
                let stats = b.kept(at, STATISTICS, self.rows, STATS)?;
                let tiles = b.kept(at, TILES, self.rows, tiles)?;
                let logits = b.logits(hidden, Some(model.arch.head()), 1.0 / temperature);
                Some(Distribution { logits, stats, tiles })
            }
            Previous::KeptLogits => {
                let logits = b.kept(at, LOGITS, self.rows, vocab_len)?;
                let stats = b.kept(at, STATISTICS, self.rows, STATS)?;
                let tiles = b.kept(at, TILES, self.rows, tiles)?;
                Some(Distribution { logits: b.logits(logits, None, 1.0), stats, tiles })
            }
            Previous::Given(x) => {
                inputs.push(InputData::F64(x));
                let x = b.input_rows("sc_logits", self.rows, vocab_len, Kind::Real)?;
                Some(b.token_stats(b.logits(x, None, 1.0))?.0)
            }
        })
    }
}

/// Whether a pass can be done, and with which guidance: its scale and the mask token.
fn check(model: &Model, pass: &CanvasPass<'_>) -> Result<Option<(f64, u32)>, Error> {
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
    match pass.block.filter(|step| step.cache != BlockCache::None) {
        Some(step) => cache::check(model, pass, step, ask.cfg_scale)?,
        None => check_kv_type(model)?,
    }
    let plain = Ask { temperature: ask.temperature, logits: ask.logits, ..Ask::default() };
    match model.shape().noise {
        Noise::Uniform if ask != plain => Err(Error::Request {
            what: "what a sampler asks of a model that has no mask token".into(),
            expected: "a temperature and logits alone".into(),
            found: format!("{ask:?}"),
        }),
        Noise::Mask(mask) if ask.cfg_scale > 0.0 => {
            check_guidance(model)?;
            Ok(Some((ask.cfg_scale, mask)))
        }
        _ => Ok(None),
    }
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

/// `without + (scale + 1) (with - without)`.
fn guided(b: &mut ProgramBuilder, with: Val, without: Val, scale: f64) -> Result<Val, ComputeError> {
    let minus = b.scale(without, Factor::Const(-1.0))?;
    let away = b.add(with, minus)?;
    let away = b.scale(away, Factor::Const(scale + 1.0))?;
    b.add(without, away)
}

/// Appends temperature, penalties, restrictions and the statistics of `logits` `[R, V]`. Returns what are to be outputs.
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
) -> Result<Vec<(Val, Output)>, ComputeError> {
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
    let mut outputs = vec![(stats, Output::Statistics), (argmax, Output::Argmax), (sample, Output::Sample)];
    // Nobody asks for the logits alone.
    if ask.worth || ask.logits {
        let worth = b.pick_stats(counted, argmax, sample)?;
        outputs.push((worth, Output::Worth));
    }
    if ask.logits {
        let drawn_from = b.restrict(scaled, &[mask], 0, 1.0)?;
        outputs.push((drawn_from, Output::Logits));
    }
    Ok(outputs)
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

    use super::*;
    use crate::engine::Penalties;
    use crate::{LoadOptions, Model};

    /// A sequence of the test: its session, what is read before its canvas, and the canvas.
    struct One {
        number: usize,
        session: Session,
        lead: Vec<u32>,
        ids: Vec<u32>,
        temperature: f64,
        penalties: Penalties,
    }

    fn one(model: &mut Model, number: usize, prompt: usize, len: usize) -> One {
        let shape = model.shape().clone();
        let id = |i: usize| (20 + (i + number) * 37 % (shape.vocab_len - 40)) as u32;
        let cached = shape.cached(prompt);
        let mut session = model.session().unwrap();
        if cached > 0 {
            session.extend(model, &(0..cached).map(id).collect::<Vec<_>>(), &mut ()).unwrap();
        }
        let len = if shape.reading == Reading::Whole { len } else { shape.canvas_len.min(len) };
        let mut ids: Vec<u32> = (prompt..prompt + len).map(id).collect();
        if let Noise::Mask(mask) = shape.noise {
            ids.iter_mut().step_by(2).for_each(|id| *id = mask);
        }
        let lead = (cached..prompt).map(id).collect();
        One {
            number,
            session,
            lead,
            ids,
            temperature: 0.6 + 0.1 * number as f64,
            penalties: Penalties::default(),
        }
    }

    /// Step `step` of these sequences; one that is `new` is told of no step before.
    fn step(model: &mut Model, all: &[One], step: usize, new: Option<usize>) -> Vec<CanvasResult> {
        let uniform = [0.3, 0.9, 0.01, 0.5, 0.77].repeat(20);
        let shape = model.shape().clone();
        let tell = |one: &One| step > 0 && shape.self_conditioning && new != Some(one.number);
        let ask = |one: &One| Ask {
            temperature: one.temperature,
            cfg_scale: if shape.can_be_guided() && one.number == 1 { 1.5 } else { 0.0 },
            worth: matches!(shape.noise, Noise::Mask(_)),
            ..Ask::default()
        };
        let passes: Vec<(&Session, CanvasPass<'_>)> = all
            .iter()
            .map(|one| {
                let uniform = &uniform[one.number..one.number + one.ids.len()];
                let previous = match (tell(one), one.penalties.is_none(0)) {
                    (true, true) => Previous::Kept { temperature: one.temperature },
                    (true, false) => Previous::KeptLogits,
                    (false, _) => Previous::None,
                };
                let pass = CanvasPass {
                    lead: &one.lead,
                    previous,
                    sampling: Some(Sampling { ask: ask(one), uniform }),
                    penalties: Some(&one.penalties),
                    ..CanvasPass::new(&one.ids)
                };
                (&one.session, pass)
            })
            .collect();
        canvas_passes(model, &passes, &mut ()).unwrap()
    }

    /// Every model whose file is in the testdata: sequences that share a pass have the bits that they have alone, in the first
    /// step and in the next, which is told of it; guided ones, ones with penalties and ones that join later among them.
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
            let mut sequences = || {
                let mut all =
                    [one(&mut model, 0, 9, 8), one(&mut model, 1, 40, 12), one(&mut model, 2, 1, 3)];
                all[2].penalties = Penalties { presence: 0.9, repetition: 1.3, ..Penalties::default() };
                all
            };
            let (together, alone) = (sequences(), sequences());
            let late = Some(0);
            for n in 0..2 {
                let together = step(&mut model, &together, n, late);
                for (i, result) in together.iter().enumerate() {
                    assert!(!result.argmax.is_empty() && result.lse.iter().all(|x| x.is_finite()));
                    let only = step(&mut model, &alone[i..=i], n, late).remove(0);
                    assert!(*result == only, "{}: sequence {i}, step {n}", file.display());
                }
            }
        }
        assert!(names.len() >= 9, "{names:?}");
    }
}
