//! Where the reference implementations of a model disagree, as data. Samplers and the loop over canvases read
//! the fields; nothing asks for a profile by name.

use crate::Error;

/// What the answer is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// The most likely tokens of the last step.
    Argmax,
    /// The canvas that the last step leaves: what was accepted, and noise where nothing was.
    Canvas,
}

/// What the argmax of a step is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// The argmax of the steps before, as many as the sampler's parameter says.
    ArgmaxHistory,
    /// The canvas that went into the step.
    Canvas,
}

/// Which prompt tokens a canvas sees in layers with a sliding window of W.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptWindow {
    /// The last W − 1.
    #[default]
    Exclusive,
    /// The last W.
    Inclusive,
}

impl PromptWindow {
    /// Tokens of the prompt that are seen with a window of `window`.
    pub fn keys(self, window: usize) -> usize {
        match self {
            PromptWindow::Exclusive => window.saturating_sub(1),
            PromptWindow::Inclusive => window,
        }
    }
}

/// How one reference implementation does what others do differently.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name on the command line, in JSON and in traces.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// What the answer is made of.
    pub commit: Commit,
    /// What the argmax has to equal.
    pub stability: Stability,
    /// A mean entropy equal to the confidence threshold is confident too.
    pub confidence_inclusive: bool,
    /// The sliding window of a canvas.
    pub window: PromptWindow,
    /// An answer also ends where a token repeats itself, one or two positions apart, six times.
    pub trims_repetition: bool,
    /// Every canvas draws the same random numbers.
    pub reseeds: bool,
}

const HF: Profile = Profile {
    name: "hf",
    about: "transformers",
    commit: Commit::Argmax,
    stability: Stability::ArgmaxHistory,
    confidence_inclusive: false,
    window: PromptWindow::Exclusive,
    trims_repetition: false,
    reseeds: false,
};

const JAX: Profile = Profile {
    name: "jax",
    about: "the JAX library of the model's makers: commits the sampled canvas",
    commit: Commit::Canvas,
    stability: Stability::Canvas,
    confidence_inclusive: true,
    window: PromptWindow::Inclusive,
    ..HF
};

const LLAMACPP: Profile = Profile {
    name: "llamacpp",
    about: "llama.cpp: ends answers at repetitions, draws the same numbers for every canvas",
    trims_repetition: true,
    reseeds: true,
    ..HF
};

/// All profiles; the first is the default.
pub static PROFILES: &[Profile] = &[HF, JAX, LLAMACPP];

/// The profile of that name.
///
/// # Errors
/// [`Error::Request`] with the names that exist.
pub fn profile(name: &str) -> Result<&'static Profile, Error> {
    PROFILES.iter().find(|p| p.name == name).ok_or_else(|| Error::Request {
        what: "profile".into(),
        expected: PROFILES.iter().map(|p| p.name).collect::<Vec<_>>().join(", "),
        found: name.into(),
    })
}

/// Times that a token must follow itself to be a repetition.
const REPEATS: usize = 6;

impl Profile {
    /// The index by which the random numbers of a canvas are drawn.
    pub fn draws_of(&self, canvas: usize) -> usize {
        if self.reseeds { 0 } else { canvas }
    }

    /// Where an answer ends in a canvas: at the first end token, or where a repetition starts before it; neither at the
    /// first `least` positions, where no answer may end. The second value says that it is a repetition.
    pub fn end_of(&self, canvas: &[u32], end_ids: &[u32], least: usize) -> Option<(usize, bool)> {
        let end = (least..canvas.len()).find(|&at| end_ids.contains(&canvas[at]));
        if !self.trims_repetition {
            return end.map(|at| (at, false));
        }
        // As llama.cpp has it: a repetition may reach beyond the end token, but starts two before it or earlier.
        let before = end.unwrap_or(canvas.len()).saturating_sub(1);
        let repeats = |from: usize, stride: usize| {
            let run = canvas[from..].iter().step_by(stride);
            run.take_while(|&&id| id == canvas[from]).count() > REPEATS
        };
        let starts = (least..before).find(|&from| repeats(from, 1) || repeats(from, 2));
        starts.map(|at| (at, true)).or(end.map(|at| (at, false)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_names() {
        assert_eq!(profile("hf").unwrap(), &PROFILES[0]);
        assert_eq!(
            (profile("jax").unwrap().window.keys(16), profile("hf").unwrap().window.keys(16)),
            (16, 15)
        );
        let error = profile("torch").unwrap_err().to_string();
        assert!(error.contains("hf, jax, llamacpp") && error.contains("torch"), "{error}");
    }

    #[test]
    fn repetitions_end_answers_in_one_profile() {
        let (hf, cpp) = (&PROFILES[0], &PROFILES[2]);
        let seven = [1, 2, 5, 5, 5, 5, 5, 5, 5, 3, 9, 4];
        assert_eq!(hf.end_of(&seven, &[9], 0), Some((10, false)));
        assert_eq!(cpp.end_of(&seven, &[9], 0), Some((2, true)), "seven in a row repeat six times");
        let six = [1, 2, 5, 5, 5, 5, 5, 5, 8, 3, 9, 4];
        assert_eq!(cpp.end_of(&six, &[9], 0), Some((10, false)));
        // Every other token: 5 at 1, 3, …, 13.
        let other = [0, 5, 1, 5, 2, 5, 3, 5, 4, 5, 6, 5, 7, 5];
        assert_eq!(cpp.end_of(&other, &[9], 0), Some((1, true)));
        assert_eq!(hf.end_of(&other, &[9], 0), None);
        // The run starts right before the end token, which is too late.
        let late = [1, 5, 9, 5, 9, 5, 9, 5, 9, 5, 9, 5, 9, 5];
        assert_eq!(cpp.end_of(&late, &[9], 0), Some((2, false)));
        assert_eq!(cpp.end_of(&[9; 16], &[9], 0), Some((0, false)), "all end tokens");
        assert_eq!(cpp.end_of(&[], &[9], 0), None);
        // An answer of three tokens at least repeats from its fourth on; of four not often enough, and goes on to
        // its end.
        let eight = [1, 2, 5, 5, 5, 5, 5, 5, 5, 5, 3, 9];
        assert_eq!(
            [2, 3, 4].map(|least| cpp.end_of(&eight, &[9], least)),
            [Some((2, true)), Some((3, true)), Some((11, false))]
        );
        assert_eq!(hf.end_of(&[9, 1, 9], &[9], 1), Some((2, false)));
        assert_eq!(cpp.end_of(&eight, &[9], 99), None);
    }

    #[test]
    fn draws_restart_with_each_canvas_in_one_profile() {
        assert_eq!(PROFILES.iter().map(|p| p.draws_of(3)).collect::<Vec<_>>(), [3, 3, 0]);
    }
}
