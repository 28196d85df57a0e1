//! The judgement: floors, mistakes, a verdict.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use redraft_gguf::Shown;
use sha2::{Digest as _, Sha256};

use super::error::{Apart, Sum, chance, distance, printing_unit, rows_apart, shifted, storage_unit};
use super::rounding::too_good;
use super::{Diagnosis, Fault, Mistake, Rounding, Running, Subject, Tap, Tried, Verdict, suspects};
use crate::Error;
use crate::trace::{
    Elements, Given, Printed, Tensor, TraceFile, has_rows, in_pass, is_input, place, split_layer,
};

/// Runs the passes of a file in some way; nothing where a mistake makes no difference to the program.
pub(super) type RunPasses<'a> = dyn FnMut(Running<'_>) -> Result<Option<TraceFile>, Error> + 'a;

/// Mistakes whose own floors are measured, the ones that come closest.
const CLOSEST: usize = 4;

/// Numbers that are further from the truth than this, relative to it, are not called rounding, however far honest ones are.
const HALF: f64 = 0.5;

/// Honest programs with other noise that are run where tokens may go to other experts: one of the two sides of a border is
/// missed by all of them with a probability of 1/64.
const NOISES: u64 = 6;

pub(super) fn judge(
    theirs: &TraceFile,
    faults: &[Mistake],
    subject: &Subject,
    run: &mut RunPasses<'_>,
) -> Result<Diagnosis, Error> {
    let limit = subject.limit;
    let kinds = subject.kinds();
    let truth = run(Running::Truth)?.unwrap_or_default();
    let (names, skipped) = judged(theirs, &truth)?;
    if names.is_empty() {
        let why = if skipped.is_empty() { String::new() } else { format!(": {}", skipped.join("; ")) };
        return Err(theirs.wrong(format!("it has no result of a pass that this model computes{why}")));
    }
    let mut honest = BTreeMap::new();
    for &rounding in &kinds {
        honest.insert(rounding, run(Running::Floor(rounding))?.unwrap_or_default());
    }
    let view = View::new(theirs, &truth, &names, subject);
    let tap = |name: &String| Tap {
        name: name.clone(),
        theirs: view.theirs_from(&truth, name),
        floors: honest.iter().map(|(&r, own)| (r, view.floor(own, &truth, r, name))).collect(),
        ratio: 0.0,
        rows: 0,
        far_rows: 0,
        rows_count: subject.rows_count(name),
        sum: None,
    };
    let mut taps: Vec<Tap> = names.iter().map(tap).collect();
    let possible: Vec<Rounding> =
        kinds.iter().copied().filter(|r| view.can_be(*r, &honest, &truth)).collect();
    if possible.is_empty() {
        let what = "theirs is nearer to a truth in f32 than any kind of rounding that it can tell: --truth f64 judges it";
        return Err(theirs.wrong(what.into()));
    }
    let rounding = judged_by(&taps, &possible, limit);
    let mut diagnosis = |rounding: Rounding, verdict: Option<Verdict>, tried: Vec<Tried>| {
        for tap in &mut taps {
            let floor = tap.floors[&rounding];
            tap.ratio = tap.ratio_by(rounding);
            tap.sum = view.sum(&tap.name, &truth, &honest[&rounding], floor);
            let far = floor.row_limit(limit);
            let rows = view.rows_from(&truth, &tap.name);
            (tap.rows, tap.far_rows) = (rows.len(), rows.iter().filter(|&&x| x > far).count());
        }
        let verdict = verdict.unwrap_or_else(|| verdict_of(&taps, rounding, limit));
        Diagnosis { verdict, rounding, taps: taps.clone(), skipped: skipped.clone(), tried }
    };
    let plain = diagnosis(rounding, None, Vec::new());
    if matches!(plain.verdict, Verdict::Rounding { .. }) {
        return Ok(plain);
    }
    // Without a rounding the truth.
    let mut result = |fault: &Mistake, rounding: Option<Rounding>| {
        let plain = rounding.and_then(|r| honest.get(&r)).unwrap_or(&truth);
        match (&fault.fault, rounding) {
            (Fault::LogitsShifted(by), _) => Ok(Some(shifted_logits(plain, *by))),
            (Fault::LastLayerNormed, _) => Ok(Some(normed_last(plain, subject.n_layers))),
            (_, Some(rounding)) => run(Running::Fault(fault, rounding)),
            (_, None) => run(Running::FaultTruth(fault)),
        }
    };
    // First by the coarsest floor; then those that come closest by the floors of models that have the mistake, which may
    // be others.
    let coarsest: Vec<Apart> = plain
        .taps
        .iter()
        .map(|t| t.floors.values().copied().fold(Apart { median: 0.0, worst: 0.0 }, Apart::larger))
        .collect();
    let mut all: Vec<(&Mistake, Option<TraceFile>, f64, String)> = Vec::new();
    let mut seen = BTreeSet::new();
    for fault in faults {
        // In some models two mistakes are the same.
        let found = result(fault, Some(Rounding::F32))?;
        if let Some(found) = found.filter(|found| seen.insert(digest(found))) {
            let (worst, at) = view.far(fault, &found, &coarsest);
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
        let mut runs = BTreeMap::from([(Rounding::F32, found.clone())]);
        for &r in &kinds {
            if r != Rounding::F32 {
                runs.insert(r, result(fault, Some(r))?.unwrap_or_default());
            }
            if !view.can_be(r, &runs, &truth) {
                continue;
            }
            let floors: Vec<Apart> =
                names.iter().map(|name| view.floor(&runs[&r], &truth, r, name)).collect();
            let (worst, at) = view.far(fault, &truth, &floors);
            // A mistake that explains little more than rounding does explains nothing, and so does one whose own rounding
            // is as large as the numbers wherever theirs are wrong.
            let without = plain.taps.iter().map(|t| t.ratio_by(r)).fold(0.0, f64::max);
            let tells = |(t, floor): (&Tap, &Apart)| t.ratio_by(r) > limit && limit * floor.median <= HALF;
            let tells = plain.taps.iter().zip(&floors).any(tells);
            if worst <= limit && 2.0 * worst < without && tells {
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
    if let Some((rounding, verdict)) = view.near_the_border(&plain.taps, &possible, &truth, run)? {
        return Ok(diagnosis(rounding, Some(verdict), tried));
    }
    Ok(match explained {
        Some((best, by)) => {
            // First, whatever others are by a coarser floor.
            tried.sort_by_key(|t| *t != best);
            diagnosis(by, Some(Verdict::Fault(best)), tried)
        }
        None => diagnosis(rounding, None, tried),
    })
}

/// What of their results is compared with ours, and how finely.
struct View<'a> {
    theirs: &'a TraceFile,
    names: &'a [String],
    subject: &'a Subject,
    /// Of each tap the error of storing or printing its numbers, and what chance may add.
    finest: BTreeMap<&'a str, (f64, Apart)>,
}

impl<'a> View<'a> {
    fn new(theirs: &'a TraceFile, truth: &TraceFile, names: &'a [String], subject: &'a Subject) -> View<'a> {
        // Rounding to 16 bits or to a few decimals at the end hides what is finer.
        let stored = |name: &String| match printed(theirs, name) {
            Some(p) => part(theirs, truth, name).map_or(0.0, |t| printing_unit(&t, p.half_unit)),
            None => theirs.tensors.get(name).map_or(0.0, storage_unit),
        };
        let each = |name: &'a String| (name.as_str(), (stored(name), chance(theirs.tensors.get(name))));
        View { theirs, names, subject, finest: names.iter().map(each).collect() }
    }

    /// How far theirs is from a result of ours.
    fn theirs_from(&self, found: &TraceFile, name: &str) -> Apart {
        distance(self.theirs.tensors.get(name), part(self.theirs, found, name).as_deref())
    }

    fn rows_from(&self, found: &TraceFile, name: &str) -> Vec<f64> {
        let ours = part(self.theirs, found, name);
        rows_apart(self.theirs.tensors.get(name), ours.as_deref()).unwrap_or_default()
    }

    /// How far two results of ours are from each other, as far as theirs shows them.
    fn apart(&self, a: &TraceFile, b: &TraceFile, name: &str) -> Apart {
        distance(part(self.theirs, a, name).as_deref(), part(self.theirs, b, name).as_deref())
    }

    fn unit(&self, r: Rounding, name: &str) -> f64 {
        r.unit(self.subject.width).max(self.finest.get(name).map_or(0.0, |f| f.0))
    }

    /// The noise floor at a tap: how far an honest program that rounds like `r` is from the truth.
    fn floor(&self, own: &TraceFile, truth: &TraceFile, r: Rounding, name: &str) -> Apart {
        let chance = self.finest.get(name).map_or(Apart { median: 1.0, worst: 1.0 }, |f| f.1);
        self.apart(own, truth, name).floor(self.unit(r, name), chance)
    }

    /// Whether theirs may be of this kind; of it and finer kinds `runs` has an honest program each.
    fn can_be(&self, r: Rounding, runs: &BTreeMap<Rounding, TraceFile>, truth: &TraceFile) -> bool {
        let from = |r: &Rounding, name: &String| runs.get(r).map(|own| self.apart(own, truth, name));
        let each = |name: &String| {
            let own = from(&r, name).unwrap_or(Apart { median: 0.0, worst: 0.0 });
            (self.theirs_from(truth, name), own, self.unit(r, name))
        };
        let beyond = |finer: &Rounding| {
            let of = |name: &String| from(finer, name).map_or(0.0, |apart| apart.median);
            too_good(self.names.iter().map(each), self.names.iter().map(of))
        };
        self.subject.known.is_some() || !r.finer().iter().any(beyond)
    }

    /// Whether honest programs with other noise are as far from the truth as theirs, and an honest run of ours is not: behind
    /// a router, where a token that is near the border between two experts goes to the one or the other.
    fn near_the_border(
        &self,
        taps: &[Tap],
        possible: &[Rounding],
        truth: &TraceFile,
        run: &mut RunPasses<'_>,
    ) -> Result<Option<(Rounding, Verdict)>, Error> {
        let limit = self.subject.limit;
        let finite = |t: &Tap| !t.theirs.median.is_nan() && !t.sum_leaves(limit);
        if self.subject.router.is_none() || !taps.iter().all(finite) {
            return Ok(None);
        }
        for &r in possible {
            let before = |t: &Tap| self.subject.behind_router(&t.name) || t.ratio_by(r) <= limit;
            let first = taps.iter().find(|t| t.ratio_by(r) > limit);
            if !taps.iter().all(before) || first.is_some_and(|t| self.same_experts(truth, &t.name)) {
                continue;
            }
            let mut floors: Vec<Apart> = taps.iter().map(|t| t.floors[&r]).collect();
            for seed in 0..NOISES {
                let fault = Fault::Noise { seed, bits: r.bits() };
                let noise = Mistake { fault, only: None };
                let Some(noisy) = run(Running::Fault(&noise, r))? else { continue };
                for (floor, tap) in floors.iter_mut().zip(taps) {
                    *floor = floor.larger(self.floor(&noisy, truth, r, &tap.name));
                }
                let within = |(t, floor): (&Tap, &Apart)| t.theirs.ratio(*floor, t.rows_count) <= limit;
                if taps.iter().zip(&floors).all(within) {
                    let further =
                        |a: &(&Tap, &Apart), b: &(&Tap, &Apart)| a.0.ratio_by(r).total_cmp(&b.0.ratio_by(r));
                    return Ok(taps.iter().zip(&floors).max_by(further).map(|(t, floor)| {
                        let (at, theirs, honest) = (t.name.clone(), t.theirs.median, floor.median);
                        (r, Verdict::Undecided { at, theirs, honest })
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Whether theirs shows that up to a tap all tokens went to the experts of the truth.
    fn same_experts(&self, truth: &TraceFile, tap: &str) -> bool {
        let is_choice = |name: &str| split_layer(name).1 == "ffn_moe_topk";
        let (pass, _, layer) = split_layer(tap);
        let layer = layer.unwrap_or(self.subject.n_layers.saturating_sub(1));
        let of_rows = |t: &Tensor| {
            let x = t.data.to_i64()?;
            let cols = x.len() / t.shape.first().copied().unwrap_or(1).max(1);
            let sorted = |row: &[i64]| {
                let mut row = row.to_vec();
                row.sort_unstable();
                row
            };
            Some(x.chunks(cols.max(1)).map(sorted).collect::<Vec<_>>())
        };
        let same = |(name, t): (&String, &Tensor)| truth.tensors.get(name).map(of_rows) == Some(of_rows(t));
        let mut before = self.theirs.tensors.iter().filter(|(n, _)| is_choice(n) && place(n) < place(tap));
        self.theirs.tensors.contains_key(&in_pass(pass, &format!("ffn_moe_topk-{layer}"))) && before.all(same)
    }

    /// The largest distance from the result of a model with a mistake, in floors, and where it is.
    fn far(&self, fault: &Mistake, found: &TraceFile, floors: &[Apart]) -> (f64, String) {
        // At the end of shifted logits stands whatever a program puts there.
        let rows = |name| !matches!(fault.fault, Fault::LogitsShifted(_)) && self.subject.rows_count(name);
        let ratios =
            self.names.iter().zip(floors).map(|(name, floor)| {
                (self.theirs_from(found, name).ratio(*floor, rows(name)), name.as_str())
            });
        worst(ratios)
    }

    /// The sum of all elements, where theirs shows it and not all of them.
    fn sum(&self, name: &str, truth: &TraceFile, honest: &TraceFile, floor: Apart) -> Option<Sum> {
        let printed = printed(self.theirs, name)?;
        let of = |file: &TraceFile| file.tensors.get(name).and_then(|t| printed.summed(t));
        let router = self.subject.behind_router(name);
        Some(Sum::of(printed.sum?, &of(truth)?, &of(honest)?, floor.median, router))
    }
}

/// Whether all taps stay within the limit, or which leaves it first.
fn verdict_of(taps: &[Tap], rounding: Rounding, limit: f64) -> Verdict {
    let (worst, at) = worst(taps.iter().map(|tap| (tap.ratio, tap.name.as_str())));
    let Some(tap) = taps.iter().find(|tap| tap.leaves(limit)) else {
        let floor = |tap: &Tap| tap.floors.get(&rounding).map_or(f64::NAN, |f| f.median);
        return match taps.iter().find(|tap| tap.theirs.median > HALF) {
            Some(tap) => {
                Verdict::Undecided { at: tap.name.clone(), theirs: tap.theirs.median, honest: floor(tap) }
            }
            None => Verdict::Rounding { worst, at },
        };
    };
    let usual = suspects::of(&tap.name);
    let (ratio, look_at) = if tap.theirs.median.is_nan() {
        (tap.ratio, "numbers of theirs that are none (NaN) or infinite".into())
    } else if tap.ratio <= limit {
        // Theirs, of which a part is shown: that part is right.
        let what = "the elements that the text does not show, whose sum is wrong; or the token ids";
        (tap.sum.map_or(f64::NAN, |sum| sum.ratio()), what.into())
    } else if tap.theirs.ratio(tap.floors[&rounding], false) <= limit {
        let (far, rows) = (tap.far_rows, tap.rows);
        (
            tap.ratio,
            format!(
                "{far} of its {rows} rows, which alone are wrong (compare --rows worst shows them): {usual}"
            ),
        )
    } else {
        (tap.ratio, usual.into())
    };
    Verdict::Unexplained { first: tap.name.clone(), ratio, look_at }
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
            Some(ours) if t.data.is_int() => {
                if !ours.data.is_int() {
                    return Err(
                        theirs.wrong(format!("tensor {}: expected numbers, found integers", Shown(name)))
                    );
                }
                skipped.push(format!("{name}: integers, which compare judges"));
            }
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

/// The rounding whose floor theirs leaves last; of those that it never leaves the one that fits best, whose floor it reaches
/// and no more; of equal ones the finest.
fn judged_by(taps: &[Tap], kinds: &[Rounding], limit: f64) -> Rounding {
    let ratios = |r: Rounding| taps.iter().map(move |t| t.ratio_by(r));
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
pub(super) fn shifted_logits(file: &TraceFile, by: i8) -> TraceFile {
    let mut out = file.clone();
    for (name, t) in &mut out.tensors {
        if matches!(split_layer(name), (_, "logits" | "result_output", None)) {
            t.data = shifted(t, by);
        }
    }
    out
}

/// A result, with the final norm in the place of the last layer's output.
pub(super) fn normed_last(file: &TraceFile, n_layers: usize) -> TraceFile {
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
