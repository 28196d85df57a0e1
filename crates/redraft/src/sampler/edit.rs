//! Fills masks, replaces what stands, and deletes and inserts positions: the decoding of LLaDA2.2 as SGLang has it
//! (`JointThresholdInDel`, read in public code).
//!
//! Two tokens are commands. DELETE takes its position away; what follows moves to the left, and masks fill the end of the
//! canvas. SPLIT puts a mask before what stands at its position; what follows moves to the right, and the end of the canvas
//! falls off. Masks that the canvas began with are *original*, wherever they move; the others are *introduced*.

use std::collections::{BTreeMap, BTreeSet};

use redraft_compute::math::reduce::sum;
use redraft_compute::op::RESTRICTED;
use redraft_gguf::Metadata;

use super::masks::{self, Draw};
use super::{Ask, Decision, ParamSpec, Params, Range, Sampler, SamplerSpec, StepView, Stop};

/// Ids of commands. 0 is none: it is no command in any vocabulary.
const fn command(name: &'static str, flag: &'static str, doc: &'static str, key: &'static str) -> ParamSpec {
    let range = Range::Int { min: 0, max: u32::MAX };
    ParamSpec { name, flag, doc, default: 0.0, range, gguf_key: Some(key) }
}

/// The keys of the tokens that delete and insert.
pub(crate) const DELETE_KEY: &str = "diffusion.delete_token_id";
pub(crate) const SPLIT_KEY: &str = "diffusion.split_token_id";

/// Whether a file says which tokens delete and insert: it is of a model that was trained to.
pub(crate) fn names_commands(meta: &Metadata) -> bool {
    [DELETE_KEY, SPLIT_KEY].into_iter().all(|key| meta.contains(key))
}

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "edit",
    about: "reveal tokens, replace them, delete and insert positions where the model asks for it",
    masks: true,
    reserved: 0,
    params: &masks::and::<13>(
        masks::ALL,
        &[
            masks::threshold(0.5),
            masks::edit_threshold(0.0),
            masks::POST_STEPS,
            command("delete_token", "delete-token", "id of the token that deletes its position", DELETE_KEY),
            command(
                "split_token",
                "split-token",
                "id of the token that inserts a mask before its position",
                SPLIT_KEY,
            ),
        ],
    ),
    create: |params, _| Box::new(Edit::new(params)),
};

struct Edit {
    steps: usize,
    threshold: f64,
    edit_threshold: f64,
    post_steps: usize,
    delete: u32,
    split: u32,
    draw: Draw,
    /// Original masks that each step reveals at least; once there is no plan left, one.
    plan: Vec<usize>,
    /// Steps before the one that has to end it, whatever is left.
    limit: usize,
    /// Whether what stands at a position was an original mask, or is one.
    original: Vec<bool>,
    /// Steps without original masks, so far.
    edits: usize,
    /// Canvases that went into a step.
    seen: BTreeSet<Vec<u32>>,
    /// What was written at each position.
    written: BTreeMap<usize, BTreeSet<u32>>,
}

impl Edit {
    fn new(p: &Params) -> Edit {
        Edit {
            steps: p.int("steps"),
            threshold: p.get("threshold"),
            edit_threshold: p.get("edit_threshold"),
            post_steps: p.int("post_steps"),
            delete: p.get("delete_token") as u32,
            split: p.get("split_token") as u32,
            draw: Draw::new(p, Ask { worth: true, edit: true, logits: true, ..Ask::default() }),
            plan: Vec::new(),
            limit: 0,
            original: Vec::new(),
            edits: 0,
            seen: BTreeSet::new(),
            written: BTreeMap::new(),
        }
    }

    fn is_command(&self, id: u32) -> bool {
        id == self.delete || id == self.split
    }

    /// Masks to be filled, of which `original` are original ones: those that are likely enough, or as many of the likeliest
    /// that an original one is among them; all where there are no original ones.
    fn filled(&self, view: &StepView<'_>, p: &[f64], original: usize) -> Vec<usize> {
        let mut order = masks::best(p, view.open, usize::MAX);
        if original > 0 {
            let introduced = order.len() - original;
            let least = self.plan.get(view.step).copied().unwrap_or(1).max(1) + introduced;
            let likely = order.iter().take_while(|&&i| p[i] > self.threshold).count();
            order.truncate(likely.max(least));
        }
        order
    }

    /// `canvas` without the commands that `tokens` writes into it, and which of its positions hold what was an original mask.
    fn carried_out(&self, canvas: &[u32], tokens: &[u32], mask: u32) -> (Vec<u32>, Vec<bool>) {
        let mut out = Vec::with_capacity(canvas.len() + 1);
        for ((&token, &old), &original) in tokens.iter().zip(canvas).zip(&self.original) {
            if token == self.split {
                out.extend([(mask, false), (old, original)]);
            } else if token != self.delete {
                out.push((token, original));
            }
        }
        out.resize(canvas.len(), (mask, false));
        out.into_iter().unzip()
    }
}

/// The most likely id of a row of logits that is not one of `without`; none where nothing else can be.
fn most_likely(row: &[f32], without: impl Fn(u32) -> bool) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (id, &x) in (0..).zip(row) {
        if f64::from(x) > RESTRICTED / 2.0 && best.is_none_or(|(_, most)| x > most) && !without(id) {
            best = Some((id, x));
        }
    }
    best.map(|(id, _)| id)
}

impl Sampler for Edit {
    fn max_steps(&self) -> usize {
        self.limit + 1
    }

    fn ask(&self, _: usize) -> Ask {
        self.draw.ask()
    }

    fn begin(&mut self, open: &[bool], before: usize) {
        let len = open.len();
        self.plan = masks::even(len, self.steps);
        self.limit = before + len + self.post_steps;
        self.original.clear();
        self.edits = 0;
        self.seen.clear();
        self.written.clear();
    }

    fn step(&mut self, view: StepView<'_>) -> Decision {
        let n = view.canvas.len();
        let vocab_len = view.logits.len() / n.max(1);
        let row = |i: usize| &view.logits[i * vocab_len..][..vocab_len];
        if self.original.is_empty() {
            self.original = view.open.to_vec();
        }
        let mut tokens = self.draw.tokens(&view).to_vec();
        let p: Vec<f64> = (0..n).map(|i| self.draw.probability(&view, i)).collect();
        let original = (0..n).filter(|&i| view.open[i] && self.original[i]).count();
        self.edits += usize::from(original == 0);
        let mut filled = self.filled(&view, &p, original);
        let left = (0..n).filter(|i| view.open[*i] && self.original[*i] && !filled.contains(i)).count();
        // The last step fills all masks and carries no command out.
        let last = view.step >= self.limit
            || match self.post_steps {
                0 => left == 0,
                most => self.edits >= most,
            };
        if last {
            filled = (0..n).filter(|&i| view.open[i]).collect();
        }
        let mut write = vec![false; n];
        filled.iter().for_each(|&i| write[i] = true);
        for i in (0..n).filter(|&i| !view.open[i]) {
            write[i] = tokens[i] != view.canvas[i] && p[i] > self.edit_threshold;
        }
        if last {
            let commands: Vec<usize> = (0..n).filter(|&i| write[i] && self.is_command(tokens[i])).collect();
            for i in commands {
                match most_likely(row(i), |id| self.is_command(id)) {
                    Some(id) => tokens[i] = id,
                    // Nothing but commands may be drawn.
                    None => write[i] = false,
                }
            }
        } else if self.seen.contains(view.canvas) {
            // What was here before would come again: the least likely change becomes one that was not made yet.
            let changes = (0..n).filter(|&i| write[i] && tokens[i] != view.canvas[i]);
            if let Some(i) = changes.reduce(|least, i| if p[i] < p[least] { i } else { least }) {
                let written = self.written.get(&i);
                let other = most_likely(row(i), |id| written.is_some_and(|ids| ids.contains(&id)));
                tokens[i] = other.unwrap_or(tokens[i]);
            }
        }
        self.seen.insert(view.canvas.to_vec());
        for i in (0..n).filter(|&i| write[i]) {
            self.written.entry(i).or_default().insert(tokens[i]);
        }
        let settled = !write.contains(&true);
        let tokens: Vec<u32> = (0..n).map(|i| if write[i] { tokens[i] } else { view.canvas[i] }).collect();
        let (canvas, moved) = self.carried_out(view.canvas, &tokens, view.mask);
        self.original = moved;
        Decision {
            accepted: canvas.iter().zip(view.canvas).map(|(new, old)| new != old).collect(),
            canvas,
            confidence: p.iter().map(|&p| p as f32).collect(),
            mean_entropy: sum(view.entropy) * (1.0 / n.max(1) as f64) as f32,
            stop: match (settled, last) {
                (true, _) => Some(Stop::Converged),
                (false, true) => Some(Stop::MaxSteps),
                (false, false) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::PROFILES;
    use crate::sampler::masks::tests::params;

    const MASK: u32 = 0;
    const DELETE: u32 = 1;
    const SPLIT: u32 = 2;

    fn sampler(p: &[(&str, f64)]) -> Box<dyn Sampler> {
        let commands = [("delete_token", f64::from(DELETE)), ("split_token", f64::from(SPLIT))];
        let mut s = (SPEC.create)(&params(&SPEC, &[&commands[..], p].concat()), &PROFILES[0]);
        s.begin(&[true; 6], 0);
        s
    }

    /// A step on `canvas` in which each position has up to three candidates, of `p` and of a third and a ninth of it.
    fn step(s: &mut dyn Sampler, at: usize, canvas: &[u32], rows: &[(&[u32], f64)]) -> Decision {
        let mut logits = vec![-20.0f32; 12 * canvas.len()];
        for (i, (ids, p)) in rows.iter().enumerate() {
            for (k, &id) in ids.iter().enumerate() {
                logits[12 * i + id as usize] = (p / 3f64.powi(k as i32)).ln() as f32;
            }
        }
        // The mask is never drawn.
        logits.iter_mut().step_by(12).for_each(|x| *x = RESTRICTED as f32);
        let first: Vec<f32> = rows.iter().map(|(_, p)| p.ln() as f32).collect();
        let argmax: Vec<u32> = rows.iter().map(|(ids, _)| ids[0]).collect();
        let open: Vec<bool> = canvas.iter().map(|&id| id == MASK).collect();
        s.step(StepView {
            step: at,
            canvas,
            open: &open,
            argmax: &argmax,
            sample: &argmax,
            lse: &vec![0.0; canvas.len()],
            entropy: &vec![0.5; canvas.len()],
            first: &first,
            second: &first,
            sampled: &first,
            logits: &logits,
            mask: MASK,
            ..StepView::default()
        })
    }

    const SURE: f64 = 0.9;

    /// The end of the canvas is filled with masks, which are introduced, and what moves keeps what it is.
    #[test]
    fn positions_are_deleted_and_inserted() {
        let mut s = sampler(&[]);
        let all =
            [(&[5][..], SURE), (&[DELETE], SURE), (&[6], SURE), (&[SPLIT], SURE), (&[7], 0.1), (&[8], SURE)];
        // The fourth is split before it says anything: one mask is new, one is original, as is the fifth, which waits.
        let d = step(&mut *s, 0, &[MASK; 6], &all);
        assert_eq!((d.canvas, d.stop), (vec![5, 6, MASK, MASK, MASK, 8], None));
        assert_eq!(d.accepted, [true, true, false, false, false, true]);
        // One new mask, so two are filled at least; 6 is deleted, and a mask comes to the end.
        let some =
            [(&[5][..], SURE), (&[DELETE], SURE), (&[7], 0.2), (&[9], 0.3), (&[10], 0.1), (&[8], SURE)];
        let d = step(&mut *s, 1, &[5, 6, MASK, MASK, MASK, 8], &some);
        assert_eq!(d.canvas, [5, 7, 9, MASK, 8, MASK]);
        // The last of the first masks, and with it the new one. What falls off the end is gone.
        let some =
            [(&[SPLIT][..], SURE), (&[7], SURE), (&[9], SURE), (&[10], 0.3), (&[8], SURE), (&[11], 0.2)];
        let d = step(&mut *s, 2, &[5, 7, 9, MASK, 8, MASK], &some);
        assert_eq!(d.canvas, [MASK, 5, 7, 9, 10, 8]);
        // Only new masks are left: all are filled, and then nothing changes.
        let some = [(&[3][..], 0.1), (&[5], SURE), (&[7], SURE), (&[9], SURE), (&[10], SURE), (&[8], SURE)];
        let d = step(&mut *s, 3, &[MASK, 5, 7, 9, 10, 8], &some);
        assert_eq!((&d.canvas, d.stop), (&vec![3, 5, 7, 9, 10, 8], None));
        let d = step(&mut *s, 4, &[3, 5, 7, 9, 10, 8], &some);
        assert_eq!((d.canvas, d.stop), (vec![3, 5, 7, 9, 10, 8], Some(Stop::Converged)));
    }

    #[test]
    fn the_last_step_carries_no_command_out() {
        let commands = [
            (&[DELETE, SPLIT, 5][..], SURE),
            (&[SPLIT, 6], SURE),
            (&[7], SURE),
            (&[8], 0.1),
            (&[9], SURE),
            (&[10], SURE),
        ];
        // Without steps for edits that is the step that fills the last mask of the beginning; the new one goes with it.
        let mut s = sampler(&[("post_steps", 0.0), ("threshold", 0.05)]);
        let d = step(&mut *s, 0, &[MASK; 6], &commands);
        assert_eq!((d.canvas, d.stop), (vec![5, 6, 7, 8, 9, 10], Some(Stop::MaxSteps)));
        // With one it is the first that has no such masks.
        let mut s = sampler(&[("post_steps", 1.0), ("threshold", 0.05)]);
        let fill = [11, 11, 11, 11, 11, 11].map(|id| [id]);
        let d = step(&mut *s, 0, &[MASK; 6], &fill.each_ref().map(|ids| (&ids[..], SURE)));
        assert_eq!((d.canvas, d.stop), (vec![11; 6], None));
        let d = step(&mut *s, 1, &[11; 6], &commands);
        assert_eq!((d.canvas, d.stop), (vec![5, 6, 7, 8, 9, 10], Some(Stop::MaxSteps)));
        // And it comes in any case: six positions, two steps for edits.
        for (at, stop) in [(7, None), (8, Some(Stop::MaxSteps))] {
            let mut s = sampler(&[("post_steps", 2.0), ("threshold", 1.0)]);
            let d = step(&mut *s, at, &[MASK; 6], &[(&[SPLIT, 5][..], SURE); 6]);
            assert_eq!((d.stop, s.max_steps()), (stop, 9));
            assert_eq!(d.canvas, if stop.is_some() { [5; 6] } else { [MASK; 6] });
        }
    }

    /// Two tokens that want to be each other: the second time the least likely change takes what was not written there yet.
    #[test]
    fn a_canvas_that_comes_again_takes_another_way() {
        let mut s = sampler(&[]);
        let same = [(&[5][..], SURE), (&[5], SURE), (&[5], SURE), (&[5], SURE)];
        let there = [&[(&[5, 6, 7][..], 0.8), (&[5, 6], SURE)][..], &same].concat();
        let back = [&[(&[6, 5, 7][..], 0.8), (&[6, 5], SURE)][..], &same].concat();
        let mut canvas = step(&mut *s, 0, &[MASK; 6], &there).canvas;
        for (at, (rows, want)) in [(&back, [6, 6]), (&there, [5, 5]), (&back, [7, 6])].into_iter().enumerate()
        {
            canvas = step(&mut *s, at + 1, &canvas, rows).canvas;
            assert_eq!(canvas[..2], want, "step {at}");
        }
    }
}
