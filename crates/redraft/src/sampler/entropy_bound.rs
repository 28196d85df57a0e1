//! The entropy-bound sampler of DiffusionGemma (transformers' `EntropyBoundSampler` and
//! `StableAndConfidentStoppingCriteria`).
//!
//! Every step draws one id per position from the processed logits. Positions are sorted by entropy, and one
//! is accepted when the entropies of the strictly easier ones sum up to at most the bound; the easiest is
//! always accepted. All others become fresh noise: nothing is frozen, acceptance is decided anew each step.
//! The canvas is done when its argmax has not changed for `stability` steps and its mean entropy is below
//! `confidence`; what is committed is the argmax of the last step. Other implementations differ in the last
//! sentence: see [`Profile`].

use std::collections::VecDeque;

use redraft_compute::math::reduce::sum;

use super::masks::{self, count};
use super::penalties::PENALTIES;
use super::{
    Ask, Decision, ParamSpec, Params, Profile, Range, Sampler, SamplerSpec, Stability, StepView, Stop,
};

/// Metadata keys of the parameters.
pub(crate) mod key {
    pub(crate) const MAX_STEPS: &str = "diffusion.eb_max_steps";
    pub(crate) const T_MIN: &str = "diffusion.eb_t_min";
    pub(crate) const T_MAX: &str = "diffusion.eb_t_max";
    pub(crate) const ENTROPY_BOUND: &str = "diffusion.eb_entropy_bound";
    pub(crate) const STABILITY: &str = "diffusion.eb_stability_threshold";
    pub(crate) const CONFIDENCE: &str = "diffusion.eb_confidence_threshold";
}

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "entropy-bound",
    about: "accept the easiest positions up to a bound on their summed entropy, re-noise the rest",
    masks: false,
    reserved: 0,
    params: &masks::and::<9>(
        &[
            ParamSpec {
                name: "steps",
                flag: "steps",
                doc: "denoising steps of a canvas at most",
                default: 48.0,
                range: Range::Int { min: 1, max: 4096 },
                gguf_key: Some(key::MAX_STEPS),
            },
            ParamSpec {
                name: "t_min",
                flag: "t-min",
                doc: "temperature that the schedule approaches at the last step",
                default: 0.4,
                range: Range::Float { min: 0.001, max: 100.0 },
                gguf_key: Some(key::T_MIN),
            },
            ParamSpec {
                name: "t_max",
                flag: "t-max",
                doc: "temperature of the first step",
                default: 0.8,
                range: Range::Float { min: 0.001, max: 100.0 },
                gguf_key: Some(key::T_MAX),
            },
            ParamSpec {
                name: "entropy_bound",
                flag: "entropy-bound",
                doc: "positions are accepted while the entropies of the easier ones sum up to at most this (nats)",
                default: 0.1,
                range: Range::Float { min: 0.0, max: 1e6 },
                gguf_key: Some(key::ENTROPY_BOUND),
            },
            ParamSpec {
                name: "stability",
                flag: "stability",
                doc: "steps for which the argmax must not change before a canvas can be done; 0 asks for none",
                default: 1.0,
                range: Range::Int { min: 0, max: 4096 },
                gguf_key: Some(key::STABILITY),
            },
            ParamSpec {
                name: "confidence",
                flag: "confidence",
                doc: "mean entropy below which a stable canvas is done (nats)",
                default: 0.005,
                range: Range::Float { min: 0.0, max: 1e6 },
                gguf_key: Some(key::CONFIDENCE),
            },
        ],
        PENALTIES,
    ),
    create: |params, profile| Box::new(EntropyBound::new(params, profile)),
};

struct EntropyBound {
    steps: usize,
    t_min: f64,
    t_max: f64,
    bound: f32,
    stability: usize,
    confidence: f32,
    profile: &'static Profile,
    /// Argmax canvases of the last `stability` steps of this canvas.
    history: VecDeque<Vec<u32>>,
}

impl EntropyBound {
    fn new(p: &Params, profile: &'static Profile) -> EntropyBound {
        EntropyBound {
            steps: p.int("steps"),
            t_min: p.get("t_min"),
            t_max: p.get("t_max"),
            bound: p.get("entropy_bound") as f32,
            stability: p.int("stability"),
            confidence: p.get("confidence") as f32,
            profile,
            history: VecDeque::new(),
        }
    }

    /// Stable sort by entropy, ties by position; the running sum is exclusive and in f32. Of the open positions only.
    fn accept(&self, entropy: &[f32], open: &[bool]) -> Vec<bool> {
        let mut order: Vec<usize> = (0..entropy.len()).filter(|&i| open[i]).collect();
        order.sort_by(|&a, &b| entropy[a].total_cmp(&entropy[b]));
        let mut accepted = vec![false; entropy.len()];
        let mut before = 0.0f32;
        for i in order {
            if before > self.bound {
                break;
            }
            accepted[i] = true;
            before += entropy[i];
        }
        accepted
    }

    /// Whether the argmax is as stable as the profile wants it; remembers it.
    fn stable(&mut self, view: &StepView<'_>) -> bool {
        if self.stability == 0 {
            return true;
        }
        match self.profile.stability {
            Stability::Canvas => view.argmax == view.canvas,
            Stability::ArgmaxHistory => {
                let full = self.history.len() >= self.stability;
                let stable = full && self.history.iter().all(|h| h == view.argmax);
                self.history.push_back(view.argmax.to_vec());
                if full {
                    self.history.pop_front();
                }
                stable
            }
        }
    }

    fn confident(&self, mean_entropy: f32) -> bool {
        match self.profile.confidence_inclusive {
            true => mean_entropy <= self.confidence,
            false => mean_entropy < self.confidence,
        }
    }
}

impl Sampler for EntropyBound {
    fn max_steps(&self) -> usize {
        self.steps
    }

    fn ask(&self, step: usize) -> Ask {
        let left = self.steps.saturating_sub(step) as f64;
        let temperature = self.t_min + (self.t_max - self.t_min) * (left / self.steps as f64);
        Ask { temperature, ..Ask::default() }
    }

    fn begin(&mut self, _open: &[bool], _before: usize) {
        self.history.clear();
    }

    fn step(&mut self, view: StepView<'_>) -> Decision {
        let accepted = self.accept(view.entropy, view.open);
        let pick = |(i, &ok): (usize, &bool)| match () {
            () if !view.open[i] => view.canvas[i],
            () if ok => view.sample[i],
            () => view.renoise[i],
        };
        let canvas = accepted.iter().enumerate().map(pick).collect();
        // Given positions have entropies of 0, and the sum of the others is that of all.
        let mean_entropy = sum(view.entropy) * (1.0 / count(view.open).max(1) as f64) as f32;
        let converged = self.stable(&view) && self.confident(mean_entropy);
        let stop = if converged {
            Some(Stop::Converged)
        } else {
            (view.step + 1 >= self.steps).then_some(Stop::MaxSteps)
        };
        Decision { accepted, canvas, confidence: Vec::new(), mean_entropy, stop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(overrides: &[(&str, f64)]) -> EntropyBound {
        with_profile("hf", overrides)
    }

    fn with_profile(name: &str, overrides: &[(&str, f64)]) -> EntropyBound {
        let overrides: Vec<_> = overrides.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        let params = SPEC.params(&redraft_gguf::Metadata::new(), &overrides).unwrap();
        EntropyBound::new(&params, crate::sampler::profile(name).unwrap())
    }

    /// Eight positions by hand: sorted entropies are 0 (p3), 0.05 (p1), 0.05 (p6), 0.3 (p0), 1 (p2) …; the
    /// sums before each are 0, 0, 0.05, 0.1, 0.4, so with a bound of 0.1 four are accepted.
    #[test]
    fn accepts_while_the_easier_ones_stay_below_the_bound() {
        let entropy = [0.3, 0.05, 1.0, 0.0, 2.0, 3.0, 0.05, 1.5];
        let accepted = sampler(&[]).accept(&entropy, &[true; 8]);
        assert_eq!(accepted, [true, true, false, true, false, false, true, false]);
    }

    /// What is given takes no part: of the open positions alone the mean entropy is 0.25, and one is accepted.
    #[test]
    fn given_positions_take_no_part() {
        let mut s = sampler(&[("stability", 0.0), ("confidence", 0.3)]);
        let d = s.step(StepView {
            canvas: &[7, 8, 9, 6],
            open: &[false, true, true, false],
            argmax: &[7, 2, 3, 6],
            sample: &[7, 2, 3, 6],
            entropy: &[0.0, 0.375, 0.125, 0.0],
            renoise: &[5; 4],
            ..Default::default()
        });
        assert_eq!((d.accepted, d.canvas), (vec![false, false, true, false], vec![7, 5, 3, 6]));
        assert_eq!((d.mean_entropy, d.stop), (0.25, Some(Stop::Converged)));
    }

    #[test]
    fn the_easiest_position_is_accepted_whatever_the_bound() {
        let accepted = sampler(&[("entropy_bound", 0.0)]).accept(&[5.0, 4.0, 4.0, 6.0], &[true; 4]);
        assert_eq!(accepted, [false, true, false, false], "ties go to the lower position");
    }

    #[test]
    fn stops_when_stable_and_confident_only() {
        let mut s = sampler(&[("steps", 4.0), ("confidence", 0.5)]);
        let renoise = [9, 9];
        let mut step = |step, argmax: &[u32], entropy: &[f32]| {
            s.step(StepView {
                step,
                canvas: &renoise,
                open: &[true; 2],
                argmax,
                sample: argmax,
                entropy,
                renoise: &renoise,
                ..Default::default()
            })
            .stop
        };
        assert_eq!(step(0, &[1, 2], &[0.1, 0.1]), None, "nothing to compare the first step with");
        assert_eq!(step(1, &[1, 3], &[0.1, 0.1]), None, "the argmax changed");
        assert_eq!(step(2, &[1, 3], &[0.6, 0.6]), None, "stable but not confident");
        assert_eq!(step(3, &[1, 3], &[0.6, 0.6]), Some(Stop::MaxSteps));
        s.begin(&[], 0);
        let first = s.step(StepView {
            step: 0,
            canvas: &renoise,
            open: &[true; 2],
            argmax: &[1, 3],
            sample: &[1, 3],
            entropy: &[0.1, 0.1],
            renoise: &renoise,
            ..Default::default()
        });
        assert_eq!(first.stop, None, "a new canvas starts without history");
        let view = StepView {
            step: 1,
            canvas: &renoise,
            open: &[true; 2],
            argmax: &[1, 3],
            sample: &[1, 3],
            entropy: &[0.1, 0.1],
            renoise: &renoise,
            ..Default::default()
        };
        assert_eq!(s.step(view).stop, Some(Stop::Converged));
    }

    #[test]
    fn stability_zero_asks_for_confidence_alone() {
        let mut s = sampler(&[("stability", 0.0), ("confidence", 0.5)]);
        let view = StepView {
            step: 0,
            canvas: &[7],
            open: &[true],
            argmax: &[1],
            sample: &[1],
            entropy: &[0.1],
            renoise: &[7],
            ..Default::default()
        };
        assert_eq!(s.step(view).stop, Some(Stop::Converged));
    }

    /// The same scripted steps under each profile. Two positions, mean entropies 0.25, 0.25, 0.5 and a
    /// threshold of 0.25 (exact in binary), so that only `<=` takes them. The argmax is [1, 2], [1, 3], [1, 3].
    #[test]
    fn profiles_stop_where_their_implementation_does() {
        let steps: [(&[u32], &[u32], f32); 3] =
            [(&[7, 8], &[1, 2], 0.25), (&[1, 3], &[1, 3], 0.25), (&[1, 9], &[1, 3], 0.5)];
        let run = |profile, confidence| {
            let mut s = with_profile(profile, &[("steps", 9.0), ("confidence", confidence)]);
            let step = |(i, &(canvas, argmax, h)): (usize, &(&[u32], &[u32], f32))| {
                let view = StepView {
                    step: i,
                    canvas,
                    open: &[true; 2],
                    argmax,
                    sample: argmax,
                    entropy: &[h, h],
                    renoise: &[5, 5],
                    ..Default::default()
                };
                s.step(view).stop.is_some()
            };
            steps.iter().enumerate().map(step).collect::<Vec<_>>()
        };
        // The second step's argmax is the canvas that went in, and its entropy is the threshold itself.
        assert_eq!(run("jax", 0.25), [false, true, false]);
        // Only the third step's argmax is that of the step before; it is not confident.
        assert_eq!(run("hf", 0.25), [false, false, false]);
        assert_eq!(run("llamacpp", 0.25), [false, false, false]);
        // With a threshold above all entropies what remains is stability.
        assert_eq!(run("jax", 1.0), [false, true, false]);
        assert_eq!(run("hf", 1.0), [false, false, true]);
        assert_eq!(run("llamacpp", 1.0), [false, false, true]);
    }

    #[test]
    fn the_first_step_has_t_max_and_the_last_one_step_above_t_min() {
        let s = sampler(&[("steps", 4.0)]);
        let t: Vec<f64> = (0..4).map(|i| s.ask(i).temperature).collect();
        for (have, want) in t.iter().zip([0.8, 0.7, 0.6, 0.5]) {
            assert!((have - want).abs() < 1e-15, "{t:?}");
        }
    }

    #[test]
    fn parameters_out_of_range_are_named() {
        let meta = redraft_gguf::Metadata::new();
        let e = SPEC.params(&meta, &[("steps".into(), 0.0)]).unwrap_err().to_string();
        assert_eq!(e, "steps: expected an integer in 1..=4096, found 0");
        let e = SPEC.params(&meta, &[("temperature".into(), 1.0)]).unwrap_err().to_string();
        assert!(e.contains("entropy_bound") && e.contains("found temperature"), "{e}");
    }
}
