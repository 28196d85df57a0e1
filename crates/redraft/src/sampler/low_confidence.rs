//! LLaDA's `low_confidence`: block after block, the tokens of the highest probability are revealed first (and those of low
//! confidence masked again). See [`Blocks`].

use super::masks::{self, Blocks, Draw};
use super::{Ask, SamplerSpec};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "low-confidence",
    about: "block after block, reveal the tokens of the highest probability first",
    masks: true,
    reserved: 0,
    params: masks::BLOCKS,
    create: |params, _| {
        // The confidence in a drawn token is its probability at temperature 1.
        let ask = Ask { raw_stats: true, worth: true, ..Ask::default() };
        Box::new(Blocks::new(params, ask, Draw::probability, masks::planned()))
    },
};
