//! RND1's sampler (`diffusion_sample` of its repository).
//!
//! Without a bound, after each of `N` steps the `int(total * left / N)` open positions of the *largest* entropy stay
//! masked and the others are revealed. With one, positions are taken by falling probability of their token while the sum
//! of the entropies of those taken, less the largest of them, is at most the bound (Ben-Hamu, Gat, Severo, Nolte and
//! Karrer, "Accelerated sampling from masked diffusion models via entropy bounded unmasking", 2025); the first always is.
//! The last step reveals all. Nothing that was revealed changes. The sequence ends with one token of padding.

use super::masks::{self, Draw, best, reveal};
use super::{Ask, Decision, ParamSpec, Params, Range, Sampler, SamplerSpec, StepView};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "entropy-bound-monotone",
    about: "keep the positions of the largest entropy masked, or reveal up to a bound on the entropy",
    masks: true,
    reserved: 1,
    params: &masks::and::<9>(
        masks::ALL,
        &[ParamSpec {
            name: "entropy_bound",
            flag: "entropy-bound",
            doc: "a step reveals positions while their entropies sum up to at most this beyond the largest (nats); 0 \
                  reveals as many in each step",
            default: 0.0,
            range: Range::Float { min: 0.0, max: 1e6 },
            gguf_key: None,
        }],
    ),
    create: |params, _| Box::new(Monotone::new(params)),
};

struct Monotone {
    steps: usize,
    bound: f32,
    draw: Draw,
    /// For each step how many positions stay masked. Steps that would reveal none are left out.
    keep: Vec<usize>,
}

impl Monotone {
    fn new(p: &Params) -> Monotone {
        let bound = p.get("entropy_bound") as f32;
        let ask = Ask { worth: bound > 0.0, ..Ask::default() };
        let steps = p.int("steps");
        Monotone { steps, bound, draw: Draw::new(p, ask), keep: Vec::new() }
    }

    /// Open positions by falling probability, up to the bound.
    fn bounded(&self, view: &StepView<'_>) -> Vec<usize> {
        let p = |i: usize| if view.open[i] { self.draw.probability(view, i) } else { 0.0 };
        let score: Vec<f64> = (0..view.canvas.len()).map(p).collect();
        let (mut sum, mut largest) = (0.0f32, 0.0f32);
        let within = |&i: &usize| {
            sum += view.entropy[i];
            largest = largest.max(view.entropy[i]);
            sum - largest <= self.bound
        };
        best(&score, view.open, usize::MAX).into_iter().take_while(within).collect()
    }
}

impl Sampler for Monotone {
    fn max_steps(&self) -> usize {
        self.keep.len()
    }

    fn ask(&self, _step: usize) -> Ask {
        self.draw.ask()
    }

    fn begin(&mut self, open: &[bool], _before: usize) {
        let len = masks::count(open);
        let steps = if self.steps == 0 { len } else { self.steps };
        self.keep.clear();
        let mut left = len;
        for step in 1..=steps {
            let rate = ((steps - step) as f64 / steps as f64) as f32;
            let keep = (len as f32 * rate) as usize;
            if keep < left || self.bound > 0.0 || step == steps {
                self.keep.push(keep);
                left = keep;
            }
        }
    }

    fn step(&mut self, view: StepView<'_>) -> Decision {
        let last = view.step + 1 >= self.keep.len();
        // Positions of the largest entropy, the lower position first among equals, stay.
        let entropy: Vec<f64> = view.entropy.iter().map(|&h| f64::from(h)).collect();
        let hardest = best(&entropy, view.open, usize::MAX);
        let chosen = match self.keep.get(view.step) {
            Some(&keep) if !last && self.bound == 0.0 => hardest.into_iter().skip(keep).collect(),
            Some(_) if !last => self.bounded(&view),
            _ => hardest,
        };
        let score: Vec<f64> = entropy.iter().map(|h| -h).collect();
        reveal(&view, self.draw.tokens(&view), &chosen, &score, last)
    }
}

#[cfg(test)]
mod tests {
    use super::super::masks::tests::{params, reveals};
    use super::*;

    const P: [f64; 6] = [0.9, 0.6, 0.99, 0.8, 0.51, 0.7];

    #[test]
    fn the_hardest_stay_masked() {
        let mut s = Monotone::new(&params(&SPEC, &[("steps", 3.0)]));
        assert_eq!(reveals(&mut s, &P, &[0.5; 6]), [[0, 2], [3, 5], [1, 4]]);
        let mut s = Monotone::new(&params(&SPEC, &[("steps", 4.0)]));
        let counts: Vec<usize> = reveals(&mut s, &P, &[0.5; 6]).iter().map(Vec::len).collect();
        assert_eq!(counts, [2, 1, 2, 1], "int(6 * 3/4) = 4 stay, then 3, then 1");
    }

    /// Entropies 0.056, 0.325, 0.5, 0.611, 0.673, 0.693 by falling probability: beyond the largest the sums are 0, 0.056,
    /// 0.381, 0.881 ...
    #[test]
    fn a_bound_lets_several_through_and_one_always() {
        let run =
            |bound| reveals(&mut Monotone::new(&params(&SPEC, &[("entropy_bound", bound)])), &P, &[0.5; 6]);
        assert_eq!(run(0.4), [vec![0, 2, 3], vec![5], vec![1], vec![4]]);
        assert_eq!(run(1e-9).len(), 6);
        assert_eq!(run(100.0), [vec![0, 1, 2, 3, 4, 5]]);
    }
}
