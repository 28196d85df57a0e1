//! Reveals as many tokens at once as their probabilities vouch for: with `n` tokens of falling probability `c`, the
//! more they are the surer the last one has to be (Wu, Zhang, Xue, Liu, Diao, Zhu, Luo, Han and Xie, "Fast-dLLM", 2025,
//! section 3.3: the largest `n` with `(n + 1) (1 - c[n]) < factor`). See [`Blocks`].

use super::masks::{self, Blocks, Draw};
use super::{Ask, ParamSpec, Range, SamplerSpec};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "dynamic-threshold",
    about: "block after block, reveal as many tokens as their probabilities vouch for together",
    masks: true,
    reserved: 0,
    params: &masks::and::<11>(
        masks::BLOCKS,
        &[ParamSpec {
            name: "factor",
            flag: "factor",
            doc: "as many tokens n are revealed at once as keep n + 1 times the doubt in the least likely of them below it",
            default: 1.0,
            range: Range::Float { min: 0.0, max: 1e6 },
            gguf_key: None,
        }],
    ),
    create: |params, _| {
        let factor = params.get("factor");
        // The confidence in a drawn token is its probability at temperature 1.
        let ask = Ask { raw_stats: true, worth: true, ..Ask::default() };
        // The product rises with n.
        let vouched = move |(i, p): &(usize, &f64)| (i + 2) as f64 * (1.0 - **p) < factor;
        let reach = move |p: &[f64]| p.iter().enumerate().take_while(vouched).count();
        Box::new(Blocks::new(params, ask, Draw::probability, Box::new(reach)))
    },
};

#[cfg(test)]
mod tests {
    use super::super::masks::tests::{params, reveals};
    use super::*;
    use crate::sampler::PROFILES;

    /// Products by falling probability: 2 * 0.01, 3 * 0.1, 4 * 0.2, 5 * 0.3, 6 * 0.4, 7 * 0.49.
    #[test]
    fn the_more_tokens_the_surer_they_have_to_be() {
        let run = |factor| {
            let p = params(&SPEC, &[("factor", factor)]);
            let probability = [0.9, 0.6, 0.99, 0.8, 0.51, 0.7];
            reveals(&mut *(SPEC.create)(&p, &PROFILES[0]), &probability, &[0.5; 6])
        };
        // Then 2 * 0.3 and 3 * 0.4; 2 * 0.49.
        assert_eq!(run(1.0), [vec![0, 2, 3], vec![5], vec![1], vec![4]]);
        assert_eq!(run(0.0).len(), 6, "one always");
        assert_eq!(run(2.0), [vec![0, 2, 3, 5], vec![1, 4]], "then 2 * 0.4 and 3 * 0.49");
        assert_eq!(run(1e6).len(), 1);
    }
}
