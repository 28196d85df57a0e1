//! Times of canvas passes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redraft_compute::cpu::peak::process_cpu_seconds;
use redraft_compute::{Program, TapKey, rng};

use super::parts::{Part, Parts, Work};
use crate::engine::{CanvasPass, Previous, Sampling, Session, TapSink, canvas_pass};
use crate::{Error, Model};

/// What a step makes of its last hidden state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    /// The logits of all rows, as an engine gives them to a sampler.
    Logits,
    /// Statistics and draws, as a denoising step needs them.
    Draws,
}

/// A step to be measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepOptions {
    /// Positions of the canvas.
    pub rows: usize,
    /// Tokens before it, in the cache where the model has one.
    pub prompt: usize,
    /// What is computed of the result.
    pub outputs: Outputs,
    /// Each step is told what the one before predicted; needs [`Outputs::Draws`].
    pub self_conditioning: bool,
    /// Temperature of the draws: a low one concentrates what the next step is told; needs [`Outputs::Draws`]. None is
    /// 0.8.
    pub temperature: Option<f64>,
    /// Time every op.
    pub parts: bool,
}

/// Temperature of draws where nothing else is asked for.
const TEMPERATURE: f64 = 0.8;

/// How long a step took.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTime {
    /// By the clock, in seconds.
    pub wall_s: f64,
    /// Seconds that all threads together computed, where the system tells.
    pub cpu_s: Option<f64>,
    /// Where the time went, if asked for.
    pub parts: Option<Parts>,
}

/// A model with a cached prompt, ready for steps.
pub struct StepBench {
    model: Model,
    session: Session,
    options: StepOptions,
    /// The part of the prompt that each step reads again.
    lead: Vec<u32>,
    ids: Vec<u32>,
    u: Vec<f64>,
    kept: bool,
    stop: Arc<AtomicBool>,
    /// Seconds of the passes over the prompt.
    pub prompt_s: f64,
}

impl StepBench {
    /// Puts the prompt into the cache. Prompt and canvas are fixed pseudo-random ids.
    ///
    /// # Errors
    /// A length that the model cannot have, self-conditioning that it does not know, what needs draws where there are
    /// none; those of the passes; [`Error::Interrupted`] when `stop` is set.
    pub fn new(
        mut model: Model,
        mut options: StepOptions,
        stop: Arc<AtomicBool>,
    ) -> Result<StepBench, Error> {
        let shape = model.shape();
        let (context, vocab_len) = (shape.context_len, shape.vocab_len as u32);
        let wrong = |what: &str, expected: String, found: String| {
            Err(Error::Request { what: what.into(), expected, found })
        };
        if options.rows == 0 || options.prompt.saturating_add(options.rows) > context {
            let found = format!("{} tokens of prompt and {} rows", options.prompt, options.rows);
            return wrong("prompt and rows", format!("1..={context} positions, the model's context"), found);
        }
        if options.self_conditioning && !shape.self_conditioning {
            return wrong("self-conditioning", "a model that has it".into(), model.arch().name.into());
        }
        if options.outputs == Outputs::Logits {
            let needs_draws = [
                ("self-conditioning", options.self_conditioning),
                ("temperature", options.temperature.is_some()),
            ];
            if let Some((what, _)) = needs_draws.into_iter().find(|(_, asked)| *asked) {
                return wrong(what, "steps with draws".into(), "steps that only make logits".into());
            }
        } else {
            options.temperature.get_or_insert(TEMPERATURE);
        }
        let row = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let ids = (0..row(options.rows)).map(|p| rng::initial_id(0, 0, p, vocab_len)).collect();
        let u = (0..row(options.rows)).map(|p| rng::uniform(0, 0, 0, p)).collect();
        let mut prompt: Vec<u32> =
            (0..row(options.prompt)).map(|p| rng::initial_id(0, 1, p, vocab_len)).collect();
        let lead = prompt.split_off(shape.cached(options.prompt));
        let mut session = model.session()?;
        let start = Instant::now();
        session.set_prompt(&mut model, &prompt, &mut Probe::new(&stop), &mut |_, _| {
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let prompt_s = start.elapsed().as_secs_f64();
        Ok(StepBench { model, session, options, lead, ids, u, kept: false, stop, prompt_s })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What is measured, with the temperature of its draws.
    pub fn options(&self) -> &StepOptions {
        &self.options
    }

    /// One step. The first ones warm up: weights are read, buffers made, and with self-conditioning the first
    /// one has nothing to be told.
    ///
    /// # Errors
    /// Those of the pass.
    pub fn step(&mut self) -> Result<StepTime, Error> {
        let o = self.options;
        let previous = match o.temperature {
            Some(temperature) if o.self_conditioning && self.kept => Previous::Kept { temperature },
            _ => Previous::None,
        };
        let sampling = o.temperature.map(|t| Sampling::at(t, &self.u));
        let pass = CanvasPass { lead: &self.lead, previous, sampling, ..CanvasPass::new(&self.ids) };
        let mut probe = Probe::new(&self.stop);
        probe.logits = o.outputs == Outputs::Logits;
        probe.times_ops = o.parts;
        let (start, busy) = (Instant::now(), process_cpu_seconds());
        canvas_pass(&mut self.model, &self.session, pass, &mut probe)?;
        let wall_s = start.elapsed().as_secs_f64();
        let cpu_s = process_cpu_seconds().zip(busy).map(|(after, before)| after - before);
        self.kept = o.outputs == Outputs::Draws;
        let parts =
            o.parts.then(|| Parts::sum(&probe.plan, &probe.times, [wall_s, cpu_s.unwrap_or_default()]));
        Ok(StepTime { wall_s, cpu_s, parts })
    }
}

/// Asks for logits and times, and for a stop.
struct Probe<'a> {
    stop: &'a Arc<AtomicBool>,
    logits: bool,
    times_ops: bool,
    plan: Vec<(Part, Work)>,
    /// Of each op, by the clock and of computing.
    times: Vec<[f64; 2]>,
    /// CPU seconds at the end of the op before.
    busy: f64,
}

impl Probe<'_> {
    fn new(stop: &Arc<AtomicBool>) -> Probe<'_> {
        Probe { stop, logits: false, times_ops: false, plan: Vec::new(), times: Vec::new(), busy: 0.0 }
    }
}

impl TapSink for Probe<'_> {
    fn begin(&mut self, program: &Program) {
        if self.times_ops {
            self.plan = Parts::plan(program);
            self.times = vec![[0.0; 2]; self.plan.len()];
            self.busy = process_cpu_seconds().unwrap_or_default();
        }
    }

    fn wants(&self, key: TapKey) -> bool {
        self.logits && key == TapKey { name: "logits", layer: None }
    }

    fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(self.stop))
    }

    fn times_ops(&self) -> bool {
        self.times_ops
    }

    fn timed(&mut self, index: usize, time: Duration) {
        let busy = process_cpu_seconds().unwrap_or_default();
        if let Some(t) = self.times.get_mut(index) {
            *t = [time.as_secs_f64(), busy - self.busy];
        }
        self.busy = busy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadOptions;

    fn bench(options: StepOptions) -> Result<StepBench, Error> {
        StepBench::new(Model::embedded(&LoadOptions::default()).unwrap(), options, Arc::default())
    }

    const DRAWS: StepOptions = StepOptions {
        rows: 5,
        prompt: 3,
        outputs: Outputs::Draws,
        self_conditioning: true,
        temperature: None,
        parts: true,
    };

    #[test]
    fn parts_are_those_of_the_model_and_within_the_step() {
        let mut bench = bench(DRAWS).unwrap();
        let first = bench.step().unwrap().parts.unwrap();
        let step = bench.step().unwrap();
        let parts = step.parts.unwrap();
        let names: Vec<&str> = parts.iter().map(|(p, _)| p.name()).collect();
        let all: Vec<&str> = Part::ALL.iter().map(|p| p.name()).collect();
        assert_eq!(names, all);
        assert!(parts.iter().all(|(_, w)| w.seconds >= 0.0), "{parts:?}");
        let between = parts.iter().find(|(p, _)| *p == Part::Between).map_or(f64::NAN, |(_, w)| w.seconds);
        assert!(between < step.wall_s, "{parts:?}");
        let of = |parts: &Parts, part| parts.iter().find(|(p, _)| *p == part).map(|(_, w)| w.macs());
        assert_eq!(of(&first, Part::SoftEmbedding), None, "the first step is told nothing");
        let shape = bench.model().shape();
        let table = (5 * shape.vocab_len * shape.d_model) as u64;
        assert_eq!(of(&parts, Part::Head), Some(table));
        assert_eq!(of(&parts, Part::SoftEmbedding), Some(table));
        assert_eq!(of(&parts, Part::ElementWise), Some(0));
        assert!(of(&parts, Part::Experts) > Some(0) && of(&parts, Part::Attention) > Some(0));
    }

    #[test]
    fn what_a_model_cannot_do_is_refused() {
        let refused = |o: StepOptions| bench(o).map(|_| ()).unwrap_err().to_string();
        let long = refused(StepOptions { prompt: usize::MAX, ..DRAWS });
        assert!(long.starts_with("prompt and rows: expected 1..="), "{long}");
        let none = refused(StepOptions { rows: 0, ..DRAWS });
        assert!(none.contains("0 rows"), "{none}");
        let logits = refused(StepOptions { outputs: Outputs::Logits, ..DRAWS });
        assert!(
            logits.starts_with("self-conditioning") && logits.contains("steps that only make logits"),
            "{logits}"
        );
        let logits = StepOptions { outputs: Outputs::Logits, self_conditioning: false, ..DRAWS };
        let drawn = refused(StepOptions { temperature: Some(0.5), ..logits });
        assert!(drawn.starts_with("temperature: expected steps with draws"), "{drawn}");
        assert_eq!(bench(logits).unwrap().options().temperature, None);
        assert_eq!(bench(DRAWS).unwrap().options().temperature, Some(TEMPERATURE));
    }
}
