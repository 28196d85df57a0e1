//! The entropy-bound sampler of DiffusionGemma (transformers' `EntropyBoundSampler` and
//! `StableAndConfidentStoppingCriteria`).
//!
//! Every step draws one id per position from the processed logits. Positions are sorted by entropy, and one
//! is accepted when the entropies of the strictly easier ones sum up to at most the bound; the easiest is
//! always accepted. All others become fresh noise: nothing is frozen, acceptance is decided anew each step.
//! The canvas is done when its argmax has not changed for `stability` steps and its mean entropy is below
//! `confidence`; what is committed is the argmax of the last step.

use std::collections::VecDeque;

use redraft_compute::math::reduce::sum;

use super::{Decision, ParamSpec, Params, Range, Sampler, SamplerSpec, StepView, Stop};

pub(super) const SPEC: SamplerSpec = SamplerSpec {
    name: "entropy-bound",
    about: "accept the easiest positions up to a bound on their summed entropy, re-noise the rest",
    params: &[
        ParamSpec {
            name: "steps",
            flag: "steps",
            doc: "denoising steps of a canvas at most",
            default: 48.0,
            range: Range::Int { min: 1, max: 4096 },
            gguf_key: Some("diffusion.eb_max_steps"),
        },
        ParamSpec {
            name: "t_min",
            flag: "t-min",
            doc: "temperature that the schedule approaches at the last step",
            default: 0.4,
            range: Range::Float { min: 0.001, max: 100.0 },
            gguf_key: Some("diffusion.eb_t_min"),
        },
        ParamSpec {
            name: "t_max",
            flag: "t-max",
            doc: "temperature of the first step",
            default: 0.8,
            range: Range::Float { min: 0.001, max: 100.0 },
            gguf_key: Some("diffusion.eb_t_max"),
        },
        ParamSpec {
            name: "entropy_bound",
            flag: "entropy-bound",
            doc: "positions are accepted while the entropies of the easier ones sum up to at most this (nats)",
            default: 0.1,
            range: Range::Float { min: 0.0, max: 1e6 },
            gguf_key: Some("diffusion.eb_entropy_bound"),
        },
        ParamSpec {
            name: "stability",
            flag: "stability",
            doc: "steps for which the argmax must not change before a canvas can be done; 0 asks for none",
            default: 1.0,
            range: Range::Int { min: 0, max: 4096 },
            gguf_key: Some("diffusion.eb_stability_threshold"),
        },
        ParamSpec {
            name: "confidence",
            flag: "confidence",
            doc: "mean entropy below which a stable canvas is done (nats)",
            default: 0.005,
            range: Range::Float { min: 0.0, max: 1e6 },
            gguf_key: Some("diffusion.eb_confidence_threshold"),
        },
    ],
    create: |params| Box::new(EntropyBound::new(params)),
};

struct EntropyBound {
    steps: usize,
    t_min: f64,
    t_max: f64,
    bound: f32,
    stability: usize,
    confidence: f32,
    /// Argmax canvases of the last `stability` steps of this canvas.
    history: VecDeque<Vec<u32>>,
}

impl EntropyBound {
    fn new(p: &Params) -> EntropyBound {
        EntropyBound {
            steps: p.int("steps"),
            t_min: p.get("t_min"),
            t_max: p.get("t_max"),
            bound: p.get("entropy_bound") as f32,
            stability: p.int("stability"),
            confidence: p.get("confidence") as f32,
            history: VecDeque::new(),
        }
    }

    /// Stable sort by entropy, ties by position; the running sum is exclusive and in f32.
    fn accept(&self, entropy: &[f32]) -> Vec<bool> {
        let mut order: Vec<usize> = (0..entropy.len()).collect();
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

    /// Whether the argmax equals that of each of the last `stability` steps; remembers it.
    fn stable(&mut self, argmax: &[u32]) -> bool {
        let stable = self.history.len() >= self.stability && self.history.iter().all(|h| h == argmax);
        self.history.push_back(argmax.to_vec());
        if self.history.len() > self.stability {
            self.history.pop_front();
        }
        stable
    }
}

impl Sampler for EntropyBound {
    fn max_steps(&self) -> usize {
        self.steps
    }

    fn temperature(&self, step: usize) -> f64 {
        let left = self.steps.saturating_sub(step) as f64;
        self.t_min + (self.t_max - self.t_min) * (left / self.steps as f64)
    }

    fn begin(&mut self) {
        self.history.clear();
    }

    fn step(&mut self, view: StepView<'_>) -> Decision {
        let accepted = self.accept(view.entropy);
        let pick = |(i, &ok): (usize, &bool)| if ok { view.sample[i] } else { view.renoise[i] };
        let canvas = accepted.iter().enumerate().map(pick).collect();
        let mean_entropy = sum(view.entropy) * (1.0 / view.entropy.len() as f64) as f32;
        let converged = self.stable(view.argmax) && mean_entropy < self.confidence;
        let stop = if converged {
            Some(Stop::Converged)
        } else {
            (view.step + 1 >= self.steps).then_some(Stop::MaxSteps)
        };
        Decision { accepted, canvas, mean_entropy, stop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(overrides: &[(&str, f64)]) -> EntropyBound {
        let overrides: Vec<_> = overrides.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        EntropyBound::new(&SPEC.params(&redraft_gguf::Metadata::new(), &overrides).unwrap())
    }

    /// Eight positions by hand: sorted entropies are 0 (p3), 0.05 (p1), 0.05 (p6), 0.3 (p0), 1 (p2) …; the
    /// sums before each are 0, 0, 0.05, 0.1, 0.4, so with a bound of 0.1 four are accepted.
    #[test]
    fn accepts_while_the_easier_ones_stay_below_the_bound() {
        let entropy = [0.3, 0.05, 1.0, 0.0, 2.0, 3.0, 0.05, 1.5];
        let accepted = sampler(&[]).accept(&entropy);
        assert_eq!(accepted, [true, true, false, true, false, false, true, false]);
    }

    #[test]
    fn the_easiest_position_is_accepted_whatever_the_bound() {
        let accepted = sampler(&[("entropy_bound", 0.0)]).accept(&[5.0, 4.0, 4.0, 6.0]);
        assert_eq!(accepted, [false, true, false, false], "ties go to the lower position");
    }

    #[test]
    fn stops_when_stable_and_confident_only() {
        let mut s = sampler(&[("steps", 4.0), ("confidence", 0.5)]);
        let renoise = [9, 9];
        let mut step = |step, argmax: &[u32], entropy: &[f32]| {
            s.step(StepView { step, argmax, sample: argmax, entropy, renoise: &renoise }).stop
        };
        assert_eq!(step(0, &[1, 2], &[0.1, 0.1]), None, "nothing to compare the first step with");
        assert_eq!(step(1, &[1, 3], &[0.1, 0.1]), None, "the argmax changed");
        assert_eq!(step(2, &[1, 3], &[0.6, 0.6]), None, "stable but not confident");
        assert_eq!(step(3, &[1, 3], &[0.6, 0.6]), Some(Stop::MaxSteps));
        s.begin();
        let first = s.step(StepView {
            step: 0,
            argmax: &[1, 3],
            sample: &[1, 3],
            entropy: &[0.1, 0.1],
            renoise: &renoise,
        });
        assert_eq!(first.stop, None, "a new canvas starts without history");
        let view =
            StepView { step: 1, argmax: &[1, 3], sample: &[1, 3], entropy: &[0.1, 0.1], renoise: &renoise };
        assert_eq!(s.step(view).stop, Some(Stop::Converged));
    }

    #[test]
    fn stability_zero_asks_for_confidence_alone() {
        let mut s = sampler(&[("stability", 0.0), ("confidence", 0.5)]);
        let view = StepView { step: 0, argmax: &[1], sample: &[1], entropy: &[0.1], renoise: &[7] };
        assert_eq!(s.step(view).stop, Some(Stop::Converged));
    }

    #[test]
    fn the_first_step_has_t_max_and_the_last_one_step_above_t_min() {
        let s = sampler(&[("steps", 4.0)]);
        let t: Vec<f64> = (0..4).map(|i| s.temperature(i)).collect();
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
