//! What the samplers of masked-diffusion models share: parameters, what is asked of the model, and how many positions
//! a step reveals. A sampler says how sure it is of a position, and the surest are revealed first.

use redraft_compute::math::host::{exp, ln};
use redraft_compute::math::reduce::sum;

use super::penalties::PENALTIES;
use super::{Ask, Decision, ParamSpec, Params, Range, Sampler, StepView, Stop};

pub(super) const STEPS: ParamSpec = ParamSpec {
    name: "steps",
    flag: "steps",
    doc: "denoising steps of a canvas; 0 takes as many as it has tokens",
    default: 0.0,
    range: Range::Int { min: 0, max: 65536 },
    gguf_key: None,
};
pub(super) const TEMPERATURE: ParamSpec = ParamSpec {
    name: "temperature",
    flag: "temperature",
    doc: "logits are divided by it before a token is drawn; 0 takes the most likely one",
    default: 0.0,
    range: Range::Float { min: 0.0, max: 100.0 },
    gguf_key: None,
};
pub(super) const TOP_K: ParamSpec = ParamSpec {
    name: "top_k",
    flag: "top-k",
    doc: "only so many of the most likely tokens can be drawn; 0 is all",
    default: 0.0,
    range: Range::Int { min: 0, max: 1 << 20 },
    gguf_key: None,
};
pub(super) const TOP_P: ParamSpec = ParamSpec {
    name: "top_p",
    flag: "top-p",
    doc: "only the most likely tokens that have this probability together can be drawn; 1 is all",
    default: 1.0,
    range: Range::Float { min: 1e-6, max: 1.0 },
    gguf_key: None,
};
pub(super) const CFG_SCALE: ParamSpec = ParamSpec {
    name: "cfg_scale",
    flag: "cfg-scale",
    doc: "classifier-free guidance: how far predictions are moved away from those without the prompt, at twice the \
          time; 0 is none",
    default: 0.0,
    range: Range::Float { min: 0.0, max: 100.0 },
    gguf_key: None,
};
pub(super) const EPS: ParamSpec = ParamSpec {
    name: "eps",
    flag: "eps",
    doc: "time at which the schedule ends, which begins at 1",
    default: 1e-3,
    range: Range::Float { min: 1e-6, max: 0.5 },
    gguf_key: None,
};
pub(super) const ALG_TEMP: ParamSpec = ParamSpec {
    name: "alg_temp",
    flag: "alg-temp",
    doc: "positions are drawn by their confidence divided by it; 0 takes the surest",
    default: 0.0,
    range: Range::Float { min: 0.0, max: 100.0 },
    gguf_key: None,
};
pub(super) const BLOCK_LENGTH: ParamSpec = ParamSpec {
    name: "block_length",
    flag: "block-length",
    doc: "positions are revealed in blocks of so many from left to right, the last may be shorter; 0 takes the canvas for \
          one",
    default: 32.0,
    range: Range::Int { min: 0, max: 65536 },
    gguf_key: None,
};
pub(super) const END_LAST: ParamSpec = ParamSpec {
    name: "end_last",
    flag: "end-last",
    doc: "1 reveals predicted ends of the answer after everything else, against answers that end at once",
    default: 0.0,
    range: Range::Int { min: 0, max: 1 },
    gguf_key: None,
};

/// The probability above which tokens are revealed at once.
pub(super) const fn threshold(default: f64) -> ParamSpec {
    ParamSpec {
        name: "threshold",
        flag: "threshold",
        doc: "tokens of a higher probability are revealed at once",
        default,
        range: Range::Float { min: 0.0, max: 1.0 },
        gguf_key: None,
    }
}

/// The probability above which a revealed token gives way to another one.
pub(super) const fn edit_threshold(default: f64) -> ParamSpec {
    ParamSpec {
        name: "edit_threshold",
        flag: "edit-threshold",
        doc: "a revealed token is replaced where another one has a higher probability than this",
        default,
        range: Range::Float { min: 0.0, max: 1.0 },
        gguf_key: None,
    }
}
pub(super) const POST_STEPS: ParamSpec = ParamSpec {
    name: "post_steps",
    flag: "post-steps",
    doc: "steps of edits alone at most, after all positions are revealed",
    default: 16.0,
    range: Range::Int { min: 0, max: 65536 },
    gguf_key: None,
};

/// Parameters of all samplers of masks.
pub(super) const ALL: &[ParamSpec] = &and::<8>(&[STEPS, TEMPERATURE, TOP_K, TOP_P, CFG_SCALE], PENALTIES);

/// Parameters of samplers by [`Timesteps`] that rank positions.
pub(super) const TIMESTEPS: &[ParamSpec] = &and::<10>(ALL, &[EPS, ALG_TEMP]);

/// Parameters of samplers by [`Blocks`], as far as all have them.
pub(super) const BLOCKS: &[ParamSpec] = &and::<10>(ALL, &[BLOCK_LENGTH, END_LAST]);

/// Some parameters and some more, `N` in all.
pub(super) const fn and<const N: usize>(some: &[ParamSpec], more: &[ParamSpec]) -> [ParamSpec; N] {
    assert!(some.len() + more.len() == N, "the number of parameters");
    let mut all = [STEPS; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < some.len() { some[i] } else { more[i - some.len()] };
        i += 1;
    }
    all
}

/// How tokens are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draw {
    pub(super) temperature: f64,
    ask: Ask,
}

impl Draw {
    /// `ask` says what else is wanted.
    pub(super) fn new(p: &Params, ask: Ask) -> Draw {
        let temperature = p.get("temperature");
        let scale = if temperature > 0.0 { temperature } else { 1.0 };
        let ask = Ask {
            temperature: scale,
            top_k: p.int("top_k"),
            top_p: p.get("top_p"),
            cfg_scale: p.get("cfg_scale"),
            ..ask
        };
        Draw { temperature, ask }
    }

    pub(super) fn ask(&self) -> Ask {
        self.ask
    }

    /// The tokens that may be revealed.
    pub(super) fn tokens<'a>(&self, view: &StepView<'a>) -> &'a [u32] {
        if self.temperature > 0.0 { view.sample } else { view.argmax }
    }

    /// Probability of the token at a position, for which [`Ask::worth`] must be asked.
    pub(super) fn probability(&self, view: &StepView<'_>, i: usize) -> f64 {
        let logit = if self.temperature > 0.0 { view.sampled[i] } else { view.first[i] };
        exp(f64::from(logit) - f64::from(view.lse[i]))
    }
}

/// Open positions by falling score, the lower position first among equals; `k` of them at most.
pub(super) fn best(score: &[f64], open: &[bool], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..score.len()).filter(|&i| open[i]).collect();
    order.sort_by(|&a, &b| score[b].total_cmp(&score[a]));
    order.truncate(k);
    order
}

/// The decision that reveals `chosen`. `last`: it was the last step that was planned.
pub(super) fn reveal(
    view: &StepView<'_>,
    tokens: &[u32],
    chosen: &[usize],
    score: &[f64],
    last: bool,
) -> Decision {
    let mut accepted = vec![false; view.canvas.len()];
    let mut canvas = view.canvas.to_vec();
    for &i in chosen {
        accepted[i] = true;
        canvas[i] = tokens[i];
    }
    let predicted = (0..canvas.len()).filter(|&i| view.is_predicted(i));
    let entropy: Vec<f32> = predicted.map(|i| view.entropy[i]).collect();
    let mean_entropy = sum(&entropy) * (1.0 / entropy.len().max(1) as f64) as f32;
    let done = chosen.len() == count(view.open);
    let stop = match (last, done) {
        (true, true) => Some(Stop::Complete),
        (true, false) => Some(Stop::MaxSteps),
        (false, true) => Some(Stop::Converged),
        (false, false) => None,
    };
    let confidence =
        score.iter().zip(view.open).map(|(&s, &open)| if open { s as f32 } else { 0.0 }).collect();
    Decision { accepted, canvas, confidence, mean_entropy, stop }
}

/// How many positions of a canvas, or of a part of it, are open.
pub(super) fn count(open: &[bool]) -> usize {
    open.iter().filter(|&&open| open).count()
}

/// How many of `n` positions each of `steps` steps reveals that share them evenly, the first ones one more where they do not
/// divide; 0 steps are as many as positions, and there are no more.
pub(super) fn even(n: usize, steps: usize) -> Vec<usize> {
    let steps = if steps == 0 { n } else { steps.min(n) };
    (0..steps).map(|i| n / steps + usize::from(i < n % steps)).collect()
}

/// How sure a sampler is of a position.
pub(super) type Score = fn(&Draw, &StepView<'_>, usize) -> f64;

/// Dream's schedule: time falls from 1 to `eps` in equal steps, and of the open positions a step from `t` to `s` reveals
/// the share `1 - s / t`, the last step all.
pub(super) struct Timesteps {
    steps: usize,
    eps: f64,
    alg_temp: f64,
    draw: Draw,
    /// None: each position is revealed by chance.
    score: Option<Score>,
    /// For each step of this canvas the share of the open positions that it reveals, and how many these are. Where
    /// positions have scores, steps that would reveal none are left out: the next one would see the same.
    plan: Vec<(f32, usize)>,
}

impl Timesteps {
    pub(super) fn new(p: &Params, score: Option<Score>, worth: bool) -> Timesteps {
        let ask = Ask { top_p_first: true, worth, ..Ask::default() };
        let alg_temp = if score.is_some() { p.get("alg_temp") } else { 0.0 };
        let (steps, eps) = (p.int("steps"), p.get("eps"));
        Timesteps { steps, eps, alg_temp, draw: Draw::new(p, ask), score, plan: Vec::new() }
    }

    /// The time before a step: a line from 1 to `eps`, rounded to f32 as tensors of times are.
    fn time(&self, step: usize, steps: usize) -> f32 {
        match step >= steps {
            true => self.eps as f32,
            false => (1.0 + step as f64 * ((self.eps - 1.0) / steps as f64)) as f32,
        }
    }

    /// Draws `k` positions without replacement by soft-max of `score / alg_temp`: those with the largest
    /// `score / alg_temp - ln(-ln u)`.
    fn perturbed(&self, score: &[f64], choice: &[f64]) -> Vec<f64> {
        score.iter().zip(choice).map(|(&s, &u)| s / self.alg_temp - ln(-ln(u))).collect()
    }
}

impl Sampler for Timesteps {
    fn max_steps(&self) -> usize {
        self.plan.len()
    }

    fn ask(&self, _step: usize) -> Ask {
        self.draw.ask()
    }

    fn begin(&mut self, open: &[bool], _before: usize) {
        let mut left = count(open);
        let steps = if self.steps == 0 { left } else { self.steps };
        self.plan.clear();
        for step in 0..steps {
            let share = 1.0 - self.time(step + 1, steps) / self.time(step, steps);
            let k = if step + 1 == steps { left } else { (left as f32 * share) as usize };
            if k > 0 || self.score.is_none() {
                self.plan.push((share, k));
                left -= k;
            }
        }
    }

    fn step(&mut self, view: StepView<'_>) -> Decision {
        let n = view.canvas.len();
        let last = view.step + 1 >= self.plan.len();
        let (share, k) = self.plan.get(view.step).copied().unwrap_or((1.0, n));
        let (score, chosen): (Vec<f64>, Vec<usize>) = match self.score {
            None => {
                let hit = |i: &usize| view.open[*i] && (last || view.choice[*i] < f64::from(share));
                (Vec::new(), (0..n).filter(hit).collect())
            }
            Some(score) => {
                let of = |i| if view.open[i] { score(&self.draw, &view, i) } else { 0.0 };
                let score: Vec<f64> = (0..n).map(of).collect();
                let chosen = match self.alg_temp > 0.0 {
                    true => best(&self.perturbed(&score, view.choice), view.open, k),
                    false => best(&score, view.open, k),
                };
                (score, chosen)
            }
        };
        reveal(&view, self.draw.tokens(&view), &chosen, &score, last)
    }
}

/// How many of the surest positions of a block a step reveals at least, whatever was planned, by their falling scores.
pub(super) type Reach = Box<dyn Fn(&[f64]) -> usize + Send>;

/// As many as were planned.
pub(super) fn planned() -> Reach {
    Box::new(|_| 0)
}

/// LLaDA's schedule: blocks from left to right, each with its share of the steps; how many positions each step reveals
/// at least is fixed when the canvas begins, evenly, the first steps of a block one more where it does not come out
/// even. Where a canvas is the rest of a block of the model, blocks are counted from the start of that one.
pub(super) struct Blocks {
    steps: usize,
    block_length: usize,
    end_last: bool,
    draw: Draw,
    score: Score,
    reach: Reach,
    /// Positions of a block, and those of the first that come before the canvas.
    grid: (usize, usize),
    /// For each step the end of its block and how many positions it reveals.
    plan: Vec<(usize, usize)>,
    /// The next of them. Those of a block that was done earlier are left out.
    next: usize,
}

impl Blocks {
    /// `ask` says what is wanted beside the parameters.
    pub(super) fn new(p: &Params, ask: Ask, score: Score, reach: Reach) -> Blocks {
        let (steps, block_length) = (p.int("steps"), p.int("block_length"));
        let (end_last, draw) = (p.get("end_last") > 0.0, Draw::new(p, ask));
        Blocks { steps, block_length, end_last, draw, score, reach, grid: (1, 0), plan: Vec::new(), next: 0 }
    }
}

impl Sampler for Blocks {
    fn max_steps(&self) -> usize {
        self.plan.len()
    }

    fn ask(&self, _step: usize) -> Ask {
        self.draw.ask()
    }

    fn begin(&mut self, open: &[bool], before: usize) {
        let all = before + open.len();
        let block_length = if self.block_length == 0 { all.max(1) } else { self.block_length };
        let blocks = all.div_ceil(block_length);
        self.grid = (block_length, before);
        self.plan.clear();
        self.next = 0;
        for b in before / block_length..blocks {
            let begin = b * block_length;
            let end = all.min(begin + block_length);
            let mut left = count(&open[begin.max(before) - before..end - before]);
            // Those of the prompt count; given ones do not.
            let m = before.saturating_sub(begin) + left;
            // The steps are spread over the blocks; a block takes one at least, and none that would reveal nothing.
            let share = (b + 1) * self.steps / blocks - b * self.steps / blocks;
            let steps = if self.steps == 0 { 0 } else { share.max(1) };
            for k in even(m, steps) {
                if left > 0 {
                    self.plan.push((end - before, k));
                    left = left.saturating_sub(k);
                }
            }
        }
    }

    /// The block of the first open position.
    fn block(&self, open: &[bool]) -> std::ops::Range<usize> {
        let (len, before) = self.grid;
        let first = open.iter().position(|&open| open).unwrap_or(0);
        let begin = (before + first) / len * len;
        begin.saturating_sub(before)..(begin + len - before).min(open.len())
    }

    fn step(&mut self, view: StepView<'_>) -> Decision {
        let n = view.canvas.len();
        let first = view.open.iter().position(|&open| open).unwrap_or(n);
        while self.plan.get(self.next).is_some_and(|&(end, _)| end <= first) {
            self.next += 1;
        }
        let (end, k) = self.plan.get(self.next).copied().unwrap_or((n, usize::MAX));
        self.next += 1;
        let tokens = self.draw.tokens(&view);
        let score: Vec<f64> = (0..n)
            .map(|i| match () {
                () if !view.open[i] || i >= end => 0.0,
                () if self.end_last && view.end_ids.contains(&tokens[i]) => -1.0,
                () => (self.score)(&self.draw, &view, i),
            })
            .collect();
        let in_block: Vec<bool> = view.open.iter().enumerate().map(|(i, &open)| open && i < end).collect();
        let mut chosen = best(&score, &in_block, usize::MAX);
        let falling: Vec<f64> = chosen.iter().map(|&i| score[i]).collect();
        chosen.truncate(k.max((self.reach)(&falling)));
        reveal(&view, tokens, &chosen, &score, self.next >= self.plan.len())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Runs a sampler over a canvas of masks (id 0) whose predictions never change, and returns what each step reveals.
    pub(crate) fn reveals(sampler: &mut dyn Sampler, probability: &[f64], choice: &[f64]) -> Vec<Vec<usize>> {
        let n = probability.len();
        let argmax: Vec<u32> = (1..=n as u32).collect();
        let max: Vec<f32> = probability.iter().map(|&p| ln(p) as f32).collect();
        // The rest of the probability is with one other token.
        let second: Vec<f32> = probability.iter().map(|&p| ln(1.0 - p) as f32).collect();
        let entropy: Vec<f32> =
            probability.iter().map(|&p| -(p * ln(p) + (1.0 - p) * ln(1.0 - p)) as f32).collect();
        let (lse, mut canvas, mut out) = (vec![0.0; n], vec![0; n], Vec::new());
        sampler.begin(&vec![true; n], 0);
        for step in 0..100 {
            let open: Vec<bool> = canvas.iter().map(|&id| id == 0).collect();
            let d = sampler.step(StepView {
                step,
                canvas: &canvas,
                open: &open,
                argmax: &argmax,
                sample: &argmax,
                first: &max,
                lse: &lse,
                entropy: &entropy,
                second: &second,
                sampled: &max,
                choice,
                ..StepView::default()
            });
            out.push((0..n).filter(|&i| d.accepted[i]).collect());
            for i in 0..n {
                assert_eq!(d.canvas[i], if d.accepted[i] { argmax[i] } else { canvas[i] });
                assert!(!d.accepted[i] || open[i], "what is revealed stays");
            }
            canvas = d.canvas;
            if d.stop.is_some() {
                return out;
            }
        }
        panic!("no end")
    }

    pub(crate) fn params(spec: &super::super::SamplerSpec, overrides: &[(&str, f64)]) -> Params {
        let overrides: Vec<_> = overrides.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        spec.params(&redraft_gguf::Metadata::new(), &overrides).unwrap()
    }

    #[test]
    fn blocks_spread_steps_and_positions() {
        let spec = super::super::sampler("low-confidence").unwrap();
        let blocks =
            |p: &[(&str, f64)], score: Score| Blocks::new(&params(spec, p), Ask::default(), score, planned());
        let mut s = blocks(&[("steps", 5.0), ("block_length", 4.0)], |_, _, i| i as f64);
        // Ten positions are blocks of 4, 4 and 2, with 1, 2 and 2 steps.
        let got = reveals(&mut s, &[0.5; 10], &[0.5; 10]);
        assert_eq!(got, [vec![0, 1, 2, 3], vec![6, 7], vec![4, 5], vec![9], vec![8]]);
        let mut s = blocks(&[("steps", 1.0), ("block_length", 4.0)], |_, _, i| i as f64);
        assert_eq!(reveals(&mut s, &[0.5; 5], &[0.5; 5]).len(), 2, "one step a block at least");
        let mut s = blocks(&[("block_length", 3.0)], |_, _, i| -(i as f64));
        assert_eq!(reveals(&mut s, &[0.5; 4], &[0.5; 4]), [[0], [1], [2], [3]], "one a step");
    }

    #[test]
    fn blocks_are_those_of_the_first_open_position() {
        let spec = super::super::sampler("low-confidence").unwrap();
        let of = |len| (spec.create)(&params(spec, &[("block_length", len)]), &super::super::PROFILES[0]);
        let mut s = of(4.0);
        let mut at = |before: usize, n: usize, first: usize| {
            s.begin(&vec![true; n], before);
            s.block(&(0..n).map(|i| i >= first).collect::<Vec<_>>())
        };
        assert_eq!([at(0, 10, 0), at(0, 10, 3), at(0, 10, 4), at(0, 10, 9)], [0..4, 0..4, 4..8, 8..10]);
        assert_eq!([at(3, 7, 0), at(3, 7, 1), at(6, 4, 0), at(6, 4, 3)], [0..1, 1..5, 0..2, 2..4]);
        let mut whole = of(0.0);
        whole.begin(&[true; 5], 0);
        assert_eq!(whole.block(&[false, true, false, true, true]), 0..5);
    }

    /// How many positions each step of a canvas reveals whose open positions are given.
    fn counts(name: &str, parameters: &[(&str, f64)], open: &[bool], before: usize) -> Vec<usize> {
        let spec = super::super::sampler(name).unwrap();
        let mut s = (spec.create)(&params(spec, parameters), &super::super::PROFILES[0]);
        s.begin(open, before);
        let (n, mut open, mut out) = (open.len(), open.to_vec(), Vec::new());
        for step in 0..100 {
            // Of what is decided nothing is predicted.
            let ids: Vec<u32> = open.iter().map(|&o| if o { 7 } else { 0 }).collect();
            let block = s.block(&open);
            let d = s.step(StepView {
                step,
                canvas: &vec![0; n],
                open: &open,
                argmax: &ids,
                sample: &ids,
                first: &vec![-0.1; n],
                lse: &vec![0.0; n],
                entropy: &vec![0.5; n],
                second: &vec![-3.0; n],
                sampled: &vec![-0.1; n],
                choice: &vec![0.5; n],
                ..StepView::default()
            });
            assert!((0..n).all(|i| block.contains(&i) || !d.accepted[i]), "{name}: {block:?} {d:?}");
            assert!(
                (0..n).all(|i| open[i] || !d.accepted[i] && d.canvas[i] == 0),
                "{name}: what is given stays"
            );
            out.push(d.n_accepted());
            (0..n).for_each(|i| open[i] &= !d.accepted[i]);
            if d.stop.is_some() {
                assert_eq!(count(&open), 0, "{name}");
                return out;
            }
        }
        panic!("no end")
    }

    #[test]
    fn given_positions_are_decided_already() {
        // Five of ten are open.
        let open = [false, true, true, false, false, false, true, true, true, false];
        assert_eq!(counts("low-confidence", &[], &open, 0), [1; 5]);
        let blocks = [("block_length", 4.0)];
        assert_eq!(counts("low-confidence", &blocks, &open, 0), [1; 5]);
        // Blocks of 2, 2 and 1 open positions with 1, 2 and 2 steps.
        let five = [("block_length", 4.0), ("steps", 5.0)];
        assert_eq!(counts("low-confidence", &five, &open, 0), [2, 1, 1, 1]);
        // A block that the prompt begins counts its tokens, but not what is given: 3 in two steps, one of which is open.
        let four = [("block_length", 4.0), ("steps", 4.0)];
        assert_eq!(counts("low-confidence", &four, &[false, true, true, true], 2), [1, 1, 1]);
        assert_eq!(counts("threshold", &[("threshold", 0.5)], &open, 0), [5]);
        assert_eq!(counts("joint-threshold", &[("threshold", 1.0), ("post_steps", 0.0)], &open, 0), [1; 5]);
        assert_eq!(
            counts("joint-threshold", &[("threshold", 1.0), ("post_steps", 0.0), ("steps", 2.0)], &open, 0),
            [3, 2]
        );
        assert_eq!(counts("entropy-bound-monotone", &[("steps", 2.0)], &open, 0), [3, 2], "int(5 / 2) stay");
        assert_eq!(counts("maskgit-plus", &[("steps", 2.0)], &open, 0), [2, 3], "int(5 * 0.4995)");
        assert_eq!(counts("maskgit-plus", &[], &open, 0).iter().sum::<usize>(), 5);
    }

    #[test]
    fn steps_that_reveal_nothing_are_left_out() {
        let spec = super::super::sampler("entropy").unwrap();
        let mut s = (spec.create)(&params(spec, &[("steps", 64.0)]), &super::super::PROFILES[0]);
        let got = reveals(&mut *s, &[0.9, 0.6, 0.8], &[0.5; 3]);
        assert_eq!(got, [vec![0], vec![1, 2]], "61 steps have a share of less than one position");
        let spec = super::super::sampler("origin").unwrap();
        let mut s = (spec.create)(&params(spec, &[("steps", 64.0)]), &super::super::PROFILES[0]);
        s.begin(&[true; 3], 0);
        assert_eq!(s.max_steps(), 64, "chance is given each of its steps");
    }

    /// t = 1, 0.75025, 0.5005, 0.25075, 0.001: shares 0.24975, 0.3329, 0.499, 1.
    #[test]
    fn time_falls_and_the_surest_go_first() {
        let spec = super::super::sampler("maskgit-plus").unwrap();
        let mut s = (spec.create)(&params(spec, &[("steps", 4.0)]), &super::super::PROFILES[0]);
        let got = reveals(&mut *s, &[0.9, 0.6, 0.8, 0.7, 0.6, 0.95, 0.5, 0.55], &[0.5; 8]);
        // 8 * 0.24975 = 1, 7 * 0.3329 = 2, 5 * 0.499 = 2, the rest.
        assert_eq!(got, [vec![5], vec![0, 2], vec![1, 3], vec![4, 6, 7]]);
    }

    #[test]
    fn positions_can_be_drawn_by_confidence() {
        let spec = super::super::sampler("maskgit-plus").unwrap();
        let first = |alg_temp, u: [f64; 4]| {
            let p = params(spec, &[("steps", 4.0), ("alg_temp", alg_temp)]);
            reveals(&mut *(spec.create)(&p, &super::super::PROFILES[0]), &[0.9, 0.8, 0.6, 0.5], &u)[0].clone()
        };
        assert_eq!(first(0.0, [0.1, 0.1, 0.1, 0.99]), [0]);
        // -ln(-ln u) is 4.6 at 0.99 and -0.83 at 0.1: enough at a temperature of 1, not at 0.01.
        assert_eq!(first(1.0, [0.1, 0.1, 0.1, 0.99]), [3]);
        assert_eq!(first(0.01, [0.1, 0.1, 0.1, 0.99]), [0]);
    }

    /// A schedule that runs to its end leaves nothing over; one that is done earlier needed less.
    #[test]
    fn the_last_planned_step_completes_a_canvas() {
        let step = |name: &str, parameters: &[(&str, f64)]| {
            let spec = super::super::sampler(name).unwrap();
            let mut s = (spec.create)(&params(spec, parameters), &super::super::PROFILES[0]);
            s.begin(&[true; 2], 0);
            s.step(StepView {
                canvas: &[0, 0],
                open: &[true, true],
                argmax: &[9, 5],
                first: &[-0.1, -0.1],
                lse: &[0.0, 0.0],
                entropy: &[0.5, 1.5],
                choice: &[0.5, 0.5],
                ..StepView::default()
            })
            .stop
        };
        for name in ["low-confidence", "random", "entropy", "origin", "entropy-bound-monotone"] {
            assert_eq!(step(name, &[("steps", 1.0)]), Some(Stop::Complete), "{name}");
        }
        assert_eq!(step("low-confidence", &[]), None);
        assert_eq!(
            step("threshold", &[("threshold", 0.5)]),
            Some(Stop::Converged),
            "one of two planned steps"
        );
    }

    #[test]
    fn ends_can_wait() {
        let spec = super::super::sampler("low-confidence").unwrap();
        let mut s = (spec.create)(&params(spec, &[("end_last", 1.0)]), &super::super::PROFILES[0]);
        s.begin(&[true; 2], 0);
        let view = StepView {
            canvas: &[0, 0],
            open: &[true, true],
            argmax: &[9, 5],
            first: &[-0.1, -2.0],
            lse: &[0.0, 0.0],
            entropy: &[0.5, 1.5],
            end_ids: &[9],
            ..StepView::default()
        };
        let d = s.step(view);
        assert_eq!((d.canvas, d.mean_entropy, d.stop), (vec![0, 5], 1.0, None));
    }
}
