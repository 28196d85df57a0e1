//! Reveals all tokens that are likely enough, in each step at least one (`low_confidence_dynamic` of SDAR, the
//! threshold of Fast-dLLM: Wu, Zhang, Xue, Liu, Diao, Zhu, Luo, Han and Xie, "Fast-dLLM", 2025, section 3.3). See
//! [`Blocks`].

use super::masks::{self, Blocks, Draw};
use super::{Ask, SamplerSpec};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "threshold",
    about: "block after block, reveal the tokens whose probability exceeds a threshold",
    masks: true,
    reserved: 0,
    params: &masks::and::<11>(masks::BLOCKS, &[masks::threshold(0.9)]),
    create: |params, _| {
        let threshold = params.get("threshold");
        // The probabilities that tokens are drawn by; where none is drawn, those of the model.
        let ask = Ask { raw_stats: params.get("temperature") == 0.0, worth: true, ..Ask::default() };
        let reach = move |p: &[f64]| p.iter().take_while(|&&p| p > threshold).count();
        Box::new(Blocks::new(params, ask, Draw::probability, Box::new(reach)))
    },
};

#[cfg(test)]
mod tests {
    use super::super::masks::tests::{params, reveals};
    use super::*;
    use crate::sampler::PROFILES;

    const P: [f64; 6] = [0.9, 0.6, 0.99, 0.8, 0.51, 0.7];

    #[test]
    fn likely_tokens_go_at_once_and_one_always() {
        let run =
            |p: &[(&str, f64)]| reveals(&mut *(SPEC.create)(&params(&SPEC, p), &PROFILES[0]), &P, &[0.5; 6]);
        assert_eq!(run(&[("threshold", 0.65)]), [vec![0, 2, 3, 5], vec![1], vec![4]]);
        assert_eq!(run(&[("threshold", 1.0)]).len(), 6);
        assert_eq!(run(&[("threshold", 0.0)]), [[0, 1, 2, 3, 4, 5]]);
        assert_eq!(run(&[("threshold", 0.65), ("steps", 3.0)]), [vec![0, 2, 3, 5], vec![1, 4]], "two a step");
        // The second block begins when the first is done.
        let blocks = run(&[("threshold", 0.65), ("block_length", 3.0)]);
        assert_eq!(blocks, [vec![0, 2], vec![1], vec![3, 5], vec![4]]);
    }
}
