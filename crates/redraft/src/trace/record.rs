//! Recorders: taps of passes, and the steps of a generation.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redraft_compute::{Op, Program, TapData, TapKey, Val};

use super::{Elements, TraceFile};
use crate::Error;
use crate::engine::{Event, StepEvent, TapSink};
use crate::sampler::Stop;

/// Which taps to record.
#[derive(Debug, Clone, Default)]
pub struct TapFilter {
    /// Names or patterns with `*`; empty takes all.
    pub names: Vec<String>,
    /// Layers; none takes all. Taps outside layers always pass.
    pub layers: Option<std::ops::RangeInclusive<usize>>,
}

impl TapFilter {
    /// Whether a tap passes.
    pub fn wants(&self, key: TapKey) -> bool {
        let layer = key.layer.is_none_or(|l| self.layers.as_ref().is_none_or(|r| r.contains(&l)));
        let full = key.to_string();
        layer && (self.names.is_empty() || self.names.iter().any(|n| glob(n, &full) || glob(n, key.name)))
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any run of characters.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.find(middle) {
                Some(at) => rest = &rest[at + str::len(middle)..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |end| rest.ends_with(end))
}

/// Records the taps of passes into a file.
pub struct PassRecorder<F> {
    /// What was recorded.
    pub file: TraceFile,
    /// Put before every name: `enc/`, `dec/`.
    pub prefix: String,
    /// Decides by full name and key.
    pub wants: F,
    /// The key masks of attention layers to write, as `(layer, columns)`; columns are the last keys.
    pub masks: Vec<(usize, usize)>,
    /// Names of taps in the file where they are others, each with the tap's own.
    pub names: &'static [(&'static str, &'static str)],
    /// Set from elsewhere to stop, inside a pass too.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl<F: Fn(&str, TapKey) -> bool> PassRecorder<F> {
    /// A recorder without passes yet.
    pub fn new(wants: F) -> PassRecorder<F> {
        PassRecorder {
            file: TraceFile::default(),
            prefix: String::new(),
            wants,
            masks: Vec::new(),
            names: &[],
            interrupt: None,
        }
    }

    /// Name in the file. Logits belong to the case, not to a pass.
    /// None for a tap whose name stands for another one in the file.
    fn name(&self, key: TapKey) -> Option<String> {
        if key.name == "logits" {
            return Some("logits".into());
        }
        let name = match self.names.iter().find(|(_, own)| *own == key.name) {
            Some((name, _)) => name,
            None if self.names.iter().any(|(name, _)| *name == key.name) => return None,
            None => key.name,
        };
        Some(format!("{}{}", self.prefix, TapKey { name, ..key }))
    }
}

impl<F: Fn(&str, TapKey) -> bool> TapSink for PassRecorder<F> {
    fn begin(&mut self, program: &Program) {
        for (i, op) in program.ops().iter().enumerate() {
            let (Op::Attention(a), Some(layer)) = (op, program.layer_of(i)) else { continue };
            let Some(&(_, columns)) = self.masks.iter().find(|m| m.0 == layer) else { continue };
            // Passes that are recorded are over one sequence.
            let Some(segment) = a.segments.iter().next() else { continue };
            let (rows, total) = (segment.rows, segment.n_past + segment.rows);
            let first = total.saturating_sub(columns);
            let seen = |row| {
                let keys = a.mask.visible(segment, row);
                (first..total).map(move |key| u8::from(keys.contains(&key)))
            };
            let mask: Vec<u8> = (0..rows).flat_map(seen).collect();
            self.file.insert(
                format!("{}kq_visible-{layer}", self.prefix),
                vec![rows, total - first],
                Elements::U8(mask),
            );
        }
    }

    fn wants(&self, key: TapKey) -> bool {
        self.name(key).is_some_and(|name| (self.wants)(&name, key))
    }

    fn tap(&mut self, key: TapKey, val: Val, data: TapData<'_>) {
        let data = match data {
            TapData::F32(x) => Elements::F32(x.to_vec()),
            TapData::F64(x) => Elements::F64(x.to_vec()),
            TapData::I32(x) => Elements::I32(x.to_vec()),
        };
        let Some(name) = self.name(key) else { return };
        self.file.insert(name, vec![val.rows(), val.cols()], data);
    }

    fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        self.interrupt.clone()
    }
}

/// Records the steps of a generation, one row per step.
#[derive(Debug, Default)]
pub struct GenerationRecorder {
    /// Steps (over all canvases) whose raw logits are recorded.
    pub(super) logits_steps: Vec<usize>,
    steps: usize,
    /// Steps of the first canvas, and its positions.
    first: (usize, usize),
    canvas_len: usize,
    ints: Vec<(&'static str, Vec<i32>)>,
    masks: Vec<u8>,
    stops: Vec<i32>,
    entropy: Vec<f32>,
    mean_entropy: Vec<f32>,
    temperature: Vec<f32>,
    u: Vec<f64>,
    choice: Vec<f64>,
    open: Vec<u8>,
    confidence: Vec<f32>,
    init: Vec<i32>,
    raw_logits: Vec<f32>,
}

/// Row fields of ids, in the order of [`GenerationRecorder::step`].
const ID_FIELDS: [&str; 5] = ["canvas_in", "canvas_out", "argmax", "denoiser", "renoise"];
/// Scalar fields.
const SCALAR_FIELDS: [&str; 3] = ["canvas_index", "step_left", "n_prefix"];

impl GenerationRecorder {
    /// Notes what an event shows.
    pub fn event(&mut self, event: &Event<'_>) {
        if let Event::Step(s) = event {
            self.step(s);
        }
    }

    fn step(&mut self, s: &StepEvent<'_>) {
        if self.ints.is_empty() {
            self.ints = ID_FIELDS.iter().chain(&SCALAR_FIELDS).map(|n| (*n, Vec::new())).collect();
        }
        self.canvas_len = s.canvas_in.len();
        if s.canvas == 0 {
            self.first = (self.first.0 + 1, self.canvas_len);
        }
        let r = s.result;
        for (field, ids) in
            self.ints.iter_mut().zip([s.canvas_in, &s.decision.canvas, &r.argmax, &r.sample, s.renoise])
        {
            field.1.extend(ids.iter().map(|&id| id as i32));
        }
        let scalars = [s.canvas, s.steps_max - s.step, s.n_prefix];
        for (field, x) in self.ints[ID_FIELDS.len()..].iter_mut().zip(scalars) {
            field.1.push(x as i32);
        }
        if s.step == 0 {
            self.init.extend(s.canvas_in.iter().map(|&id| id as i32));
        }
        self.masks.extend(s.decision.accepted.iter().map(|&a| u8::from(a)));
        self.stops.push(match s.decision.stop {
            Some(Stop::Converged) => 1,
            Some(Stop::Complete) => 2,
            // Steps of edits can be used up before those that were planned.
            Some(Stop::MaxSteps) if s.step + 1 < s.steps_max => 3,
            // As goldens of other programs have it: their last step is the one that has no step left.
            Some(Stop::MaxSteps) | None => 0,
        });
        self.entropy.extend(&r.entropy);
        self.mean_entropy.push(s.decision.mean_entropy);
        self.temperature.push(s.temperature as f32);
        self.u.extend(s.uniform);
        self.choice.extend(s.choice);
        self.open.extend(s.open.into_iter().flatten().map(|&o| u8::from(o)));
        self.confidence.extend(&s.decision.confidence);
        if let Some(x) = s.logits.filter(|_| self.logits_steps.contains(&self.steps)) {
            self.raw_logits.extend(x.iter().map(|&x| x as f32));
        }
        self.steps += 1;
    }

    /// The recording, with the prompt and what was committed after it. All rows have the length of a canvas: where the
    /// first one is the rest of a block, the end of the prompt stands before it in its rows, and `n_lead` says how
    /// much.
    pub fn finish(self, prompt: &[u32], committed: &[u32]) -> TraceFile {
        let mut f = TraceFile::default();
        let (n, c) = (self.steps, self.canvas_len);
        let lead = &prompt[prompt.len().saturating_sub(c - self.first.1.min(c))..];
        let lead: Vec<i32> = lead.iter().map(|&id| id as i32).collect();
        let widen = Widen { rows: self.first.0, len: self.first.1, by: lead.len() };
        for (name, x) in self.ints.into_iter().filter(|(_, x)| !x.is_empty()) {
            match SCALAR_FIELDS.contains(&name) {
                true => f.insert(name, vec![n], Elements::I32(x)),
                false => f.insert(name, vec![n, c], Elements::I32(widen.with(x, &lead))),
            }
        }
        f.insert("accepted", vec![n, c], Elements::U8(widen.by(self.masks, 0)));
        f.insert("stop", vec![n], Elements::I32(self.stops));
        f.insert("entropy", vec![n, c], Elements::F32(widen.by(self.entropy, 0.0)));
        f.insert("mean_entropy", vec![n], Elements::F32(self.mean_entropy));
        f.insert("temperature", vec![n], Elements::F32(self.temperature));
        // Nothing is drawn by the numbers of positions that are none of the canvas.
        f.insert("u", vec![n, c], Elements::F64(widen.by(self.u, 0.5)));
        let open = widen.by(self.open, 0);
        if open.len() == n * c {
            f.insert("open", vec![n, c], Elements::U8(open));
        }
        // Samplers that draw positions, and those that have a measure of their own.
        let choice = widen.by(self.choice, 0.5);
        if choice.len() == n * c {
            f.insert("choice", vec![n, c], Elements::F64(choice));
        }
        let confidence = widen.by(self.confidence, 0.0);
        if confidence.len() == n * c {
            f.insert("confidence", vec![n, c], Elements::F32(confidence));
        }
        let init = Widen { rows: 1, ..widen }.with(self.init, &lead);
        f.insert("init_canvas", vec![init.len() / c.max(1), c], Elements::I32(init));
        if widen.by > 0 {
            f.insert("n_lead", vec![1], Elements::I32(vec![widen.by as i32]));
        }
        let ids = |x: &[u32]| Elements::I32(x.iter().map(|&id| id as i32).collect());
        f.insert("prompt_ids", vec![prompt.len()], ids(prompt));
        let sequence = [prompt, committed].concat();
        f.insert("sequence", vec![sequence.len()], ids(&sequence));
        f
    }

    /// As [`finish`](Self::finish), with the raw logits of the steps that were asked for.
    ///
    /// # Errors
    /// [`Error::Golden`] of `golden`, which asked for them, where they are not `vocab_len` for each position.
    pub(super) fn finish_with_logits(
        mut self,
        golden: &TraceFile,
        vocab_len: usize,
        prompt: &[u32],
        committed: &[u32],
    ) -> Result<TraceFile, Error> {
        let c = self.canvas_len;
        let raw = std::mem::take(&mut self.raw_logits);
        let steps: Vec<i32> =
            self.logits_steps.iter().filter(|&&s| s < self.steps).map(|&s| s as i32).collect();
        let mut f = self.finish(prompt, committed);
        if !steps.is_empty() {
            golden.check_rows("raw_logits", raw.len(), steps.len() * c, vocab_len)?;
            f.insert("raw_logits", vec![steps.len(), c, vocab_len], Elements::F32(raw));
            f.insert("raw_logits_step", vec![steps.len()], Elements::I32(steps));
        }
        Ok(f)
    }
}

/// Puts something before each of the first `rows` rows, which have `len` elements, so that they are as long as the
/// others.
#[derive(Debug, Clone, Copy)]
struct Widen {
    rows: usize,
    len: usize,
    by: usize,
}

impl Widen {
    /// These elements, `by` of them.
    fn with<T: Copy>(self, x: Vec<T>, lead: &[T]) -> Vec<T> {
        if self.by == 0 || x.is_empty() {
            return x;
        }
        let (narrow, wide) = x.split_at(x.len().min(self.rows * self.len));
        let widened = narrow.chunks(self.len).flat_map(|row| lead.iter().chain(row));
        widened.chain(wide).copied().collect()
    }

    /// The same element as often as needed.
    fn by<T: Copy>(self, x: Vec<T>, element: T) -> Vec<T> {
        self.with(x, &vec![element; self.by])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CanvasResult;
    use crate::sampler::Decision;

    /// Two positions and a vocabulary of three.
    #[test]
    fn raw_logits_that_do_not_fit_are_an_error() {
        let finish = |logits: &[f64]| {
            let mut r = GenerationRecorder { logits_steps: vec![0, 4], ..GenerationRecorder::default() };
            let result = CanvasResult {
                argmax: vec![7, 8],
                sample: vec![7, 8],
                entropy: vec![0.5; 2],
                ..CanvasResult::default()
            };
            let decision = Decision {
                accepted: vec![true; 2],
                canvas: vec![7, 8],
                confidence: Vec::new(),
                mean_entropy: 0.5,
                stop: None,
            };
            r.event(&Event::Step(StepEvent {
                canvas: 0,
                step: 0,
                steps_max: 2,
                n_prefix: 1,
                temperature: 1.0,
                canvas_in: &[5, 6],
                predicted: &[true; 2],
                uniform: &[0.5; 2],
                renoise: &[5, 6],
                open: None,
                fixed: &[],
                choice: &[],
                result: &result,
                decision: &decision,
                logits: Some(logits),
            }));
            r.finish_with_logits(&TraceFile { name: "g".into(), ..TraceFile::default() }, 3, &[1], &[7, 8])
        };
        let f = finish(&[0.25; 6]).unwrap();
        assert_eq!(f.tensors["raw_logits"].shape, [1, 2, 3]);
        assert_eq!(f.tensors["raw_logits_step"].data, Elements::I32(vec![0]), "a step 4 never came");
        for n in [0, 3, 4, 9] {
            let e = finish(&vec![0.25; n]).unwrap_err().to_string();
            assert!(e.contains("raw_logits: expected 2 rows of 3 elements"), "{e}");
        }
    }

    #[test]
    fn filters_take_names_patterns_and_layers() {
        let key = |name, layer| TapKey { name, layer };
        let f = TapFilter { names: vec!["l_out".into(), "Q*_pos-1".into(), "ffn*topk".into()], layers: None };
        assert!(f.wants(key("l_out", Some(7))));
        assert!(f.wants(key("Qcur_pos", Some(1))) && !f.wants(key("Qcur_pos", Some(2))));
        assert!(f.wants(key("ffn_moe_topk", Some(0))) && !f.wants(key("ffn_moe_out", Some(0))));
        let f = TapFilter { names: Vec::new(), layers: Some(1..=2) };
        assert!(
            f.wants(key("logits", None)) && f.wants(key("l_out", Some(2))) && !f.wants(key("l_out", Some(3)))
        );
        assert!(
            glob("*", "anything")
                && glob("a*b*c", "axxbyyc")
                && !glob("a*b*c", "axxcyyb")
                && !glob("ab", "abc")
        );
    }
}
