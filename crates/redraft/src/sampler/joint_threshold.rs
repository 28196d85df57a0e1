//! Reveals tokens that are likely enough and replaces revealed ones by others that are: LLaDA2.1's joint threshold decoding
//! ("LLaDA2.1: Speeding Up Text Diffusion via Token Editing", 2026; `JointThreshold` of SGLang).

use redraft_compute::math::reduce::sum;

use super::masks::{self, Draw};
use super::{Ask, Decision, Params, Sampler, SamplerSpec, StepView, Stop};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "joint-threshold",
    about: "reveal the tokens whose probability exceeds a threshold, and edit those that another one exceeds",
    masks: true,
    reserved: 0,
    params: &masks::and::<11>(
        masks::ALL,
        &[masks::threshold(0.7), masks::edit_threshold(0.5), masks::POST_STEPS],
    ),
    create: |params, _| Box::new(Joint::new(params)),
};

struct Joint {
    steps: usize,
    threshold: f64,
    edit_threshold: f64,
    post_steps: usize,
    draw: Draw,
    /// Positions that each step reveals at least; once there is no plan left, one.
    plan: Vec<usize>,
    /// Steps of edits alone, so far.
    edits: usize,
}

impl Joint {
    fn new(p: &Params) -> Joint {
        Joint {
            steps: p.int("steps"),
            threshold: p.get("threshold"),
            edit_threshold: p.get("edit_threshold"),
            post_steps: p.int("post_steps"),
            // The probabilities that tokens are drawn by; where none is drawn, those of the model.
            draw: Draw::new(
                p,
                Ask { raw_stats: p.get("temperature") == 0.0, worth: true, edit: true, ..Ask::default() },
            ),
            plan: Vec::new(),
            edits: 0,
        }
    }
}

impl Sampler for Joint {
    fn max_steps(&self) -> usize {
        self.plan.len() + self.post_steps
    }

    fn ask(&self, _: usize) -> Ask {
        self.draw.ask()
    }

    fn begin(&mut self, open: &[bool], _before: usize) {
        self.plan = masks::even(masks::count(open), self.steps);
        self.edits = 0;
    }

    fn step(&mut self, view: StepView<'_>) -> Decision {
        let n = view.canvas.len();
        let tokens = self.draw.tokens(&view);
        let p: Vec<f64> = (0..n).map(|i| self.draw.probability(&view, i)).collect();
        let mut revealed = masks::best(&p, view.open, usize::MAX);
        let full = revealed.is_empty();
        let least = self.plan.get(view.step).copied().unwrap_or(1);
        let likely = revealed.iter().take_while(|&&i| p[i] > self.threshold).count();
        revealed.truncate(likely.max(least));
        let mut accepted = vec![false; n];
        revealed.iter().for_each(|&i| accepted[i] = true);
        for i in (0..n).filter(|&i| !view.open[i]) {
            accepted[i] = tokens[i] != view.canvas[i] && p[i] > self.edit_threshold;
        }
        let settled = !accepted.contains(&true);
        // The next step would be one of edits alone.
        let done = full || revealed.len() == view.open.iter().filter(|&&open| open).count();
        self.edits += usize::from(full);
        let stop = match () {
            () if settled => Some(Stop::Converged),
            () if done && self.edits >= self.post_steps => Some(Stop::MaxSteps),
            () => None,
        };
        let canvas = (0..n).map(|i| if accepted[i] { tokens[i] } else { view.canvas[i] }).collect();
        Decision {
            accepted,
            canvas,
            confidence: p.iter().map(|&p| p as f32).collect(),
            mean_entropy: sum(view.entropy) * (1.0 / n.max(1) as f64) as f32,
            stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::PROFILES;
    use crate::sampler::masks::tests::params;

    /// Canvases after each step, from what is predicted in it: ids and their probabilities. 0 is the mask.
    fn run(p: &[(&str, f64)], steps: &[([u32; 4], [f64; 4])]) -> (Vec<Vec<u32>>, Option<Stop>) {
        let mut s = (SPEC.create)(&params(&SPEC, p), &PROFILES[0]);
        assert!(s.ask(0).edit && s.ask(0).worth);
        s.begin(&[true; 4], 0);
        let (mut canvas, mut out) = (vec![0; 4], Vec::new());
        for (step, (ids, p)) in steps.iter().enumerate() {
            let open: Vec<bool> = canvas.iter().map(|&id| id == 0).collect();
            let first: Vec<f32> = p.iter().map(|p| p.ln() as f32).collect();
            let d = s.step(StepView {
                step,
                canvas: &canvas,
                open: &open,
                argmax: ids,
                sample: ids,
                lse: &[0.0; 4],
                entropy: &[0.5; 4],
                first: &first,
                second: &first,
                sampled: &first,
                ..StepView::default()
            });
            let changed: Vec<bool> = canvas.iter().zip(&d.canvas).map(|(a, b)| a != b).collect();
            assert_eq!(changed, d.accepted, "step {step}");
            canvas = d.canvas;
            out.push(canvas.clone());
            assert!(step < s.max_steps());
            if d.stop.is_some() {
                return (out, d.stop);
            }
        }
        (out, None)
    }

    const SURE: [f64; 4] = [0.9; 4];

    #[test]
    fn masks_are_filled_and_tokens_replaced_in_the_same_step() {
        let (canvases, stop) = run(
            &[("threshold", 0.7), ("edit_threshold", 0.5)],
            &[
                ([1, 2, 3, 4], [0.9, 0.3, 0.71, 0.69]),
                // The first changes, the third is not sure enough; none of the masks is likely, so the likeliest goes.
                ([5, 6, 7, 8], [0.6, 0.3, 0.49, 0.4]),
                ([5, 6, 3, 8], [0.9, 0.8, 0.2, 0.9]),
                ([5, 6, 9, 8], [0.9, 0.8, 0.51, 0.9]),
                ([5, 6, 9, 8], SURE),
            ],
        );
        let expected =
            [vec![1, 0, 3, 0], vec![5, 0, 3, 8], vec![5, 6, 3, 8], vec![5, 6, 9, 8], vec![5, 6, 9, 8]];
        assert_eq!(canvases, expected);
        assert_eq!(stop, Some(Stop::Converged), "nothing changed");
    }

    #[test]
    fn edits_end_when_their_steps_are_used_up() {
        let flip = [([1, 2, 3, 4], SURE), ([5, 2, 3, 4], SURE), ([1, 2, 3, 4], SURE), ([5, 2, 3, 4], SURE)];
        let go = |n: f64| run(&[("post_steps", n)], &flip);
        let (canvases, stop) = go(2.0);
        assert_eq!((canvases.len(), &canvases[2][..], stop), (3, &[1, 2, 3, 4][..], Some(Stop::MaxSteps)));
        assert_eq!(go(0.0).0.len(), 1, "no edits at all");
    }

    /// A threshold of 1 reveals by the plan alone, as many as `steps` asks for.
    #[test]
    fn steps_are_the_least_that_is_revealed() {
        let p = [0.9, 0.6, 0.8, 0.7];
        let go = |steps: f64| run(&[("threshold", 1.0), ("steps", steps)], &[([1, 2, 3, 4], p); 6]).0;
        assert_eq!(go(0.0)[..3], [[1, 0, 0, 0], [1, 0, 3, 0], [1, 0, 3, 4]]);
        assert_eq!(go(2.0)[0], [1, 0, 3, 0]);
        assert_eq!(go(1.0)[0], [1, 2, 3, 4]);
    }
}
