//! Where random numbers come from.

use redraft_compute::rng;

use crate::arch::Noise;

/// The random numbers of a generation. Each call is a function of its arguments, never of earlier calls.
pub trait Draws {
    /// Noise that canvas `canvas` starts with.
    fn initial(&self, canvas: usize, len: usize) -> Vec<u32>;

    /// Numbers in (0, 1) that pick a token per position by inverse CDF.
    fn uniform(&self, canvas: usize, step: usize, len: usize) -> Vec<f64>;

    /// Fresh noise for the positions that are not accepted.
    fn renoise(&self, canvas: usize, step: usize, len: usize) -> Vec<u32>;

    /// Numbers in (0, 1) by which samplers that choose positions at random choose them.
    fn choice(&self, canvas: usize, step: usize, len: usize) -> Vec<f64>;

    /// Whether these are the numbers of a recording: it has its own for every canvas, whatever the profile.
    fn recorded(&self) -> bool {
        false
    }

    /// Recorded samples that replace the drawn ones, where a recording holds no uniform numbers.
    fn sampled(&self, _canvas: usize, _step: usize) -> Option<Vec<u32>> {
        None
    }
}

/// What a canvas of `len` positions begins with.
pub fn first_canvas(noise: Noise, draws: &dyn Draws, canvas: usize, len: usize) -> Vec<u32> {
    match noise {
        Noise::Uniform => draws.initial(canvas, len),
        Noise::Mask(id) => vec![id; len],
    }
}

/// The counter-based generator: Philox 4x32-10 addressed by (seed, canvas, step, position, draw).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Philox {
    /// The seed.
    pub seed: u64,
    /// Ids are drawn from `0..vocab_len`.
    pub vocab_len: u32,
}

impl Draws for Philox {
    fn initial(&self, canvas: usize, len: usize) -> Vec<u32> {
        (0..len as u32).map(|p| rng::initial_id(self.seed, canvas as u32, p, self.vocab_len)).collect()
    }

    fn uniform(&self, canvas: usize, step: usize, len: usize) -> Vec<f64> {
        (0..len as u32).map(|p| rng::uniform(self.seed, canvas as u32, step as u32, p)).collect()
    }

    fn renoise(&self, canvas: usize, step: usize, len: usize) -> Vec<u32> {
        let id = |p| rng::renoise_id(self.seed, canvas as u32, step as u32, p, self.vocab_len);
        (0..len as u32).map(id).collect()
    }

    fn choice(&self, canvas: usize, step: usize, len: usize) -> Vec<f64> {
        (0..len as u32).map(|p| rng::choice(self.seed, canvas as u32, step as u32, p)).collect()
    }
}
