//! LLaDA's `low_confidence`: block after block, the tokens of the highest probability are revealed first (and those of low
//! confidence masked again). See [`Blocks`].

use super::SamplerSpec;
use super::masks::{self, Blocks};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "low-confidence",
    about: "block after block, reveal the tokens of the highest probability first",
    masks: true,
    reserved: 0,
    params: masks::BLOCKS,
    create: |params, _| Box::new(Blocks::new(params, masks::Draw::probability, true)),
};
