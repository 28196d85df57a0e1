//! LLaDA's `random`: block after block, positions are revealed in random order. See [`Blocks`].

use super::masks::{self, Blocks};
use super::{Ask, SamplerSpec};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "random",
    about: "block after block, reveal positions in random order",
    masks: true,
    reserved: 0,
    params: masks::BLOCKS,
    create: |params, _| {
        let ask = Ask { raw_stats: true, ..Ask::default() };
        Box::new(Blocks::new(params, ask, |_, view, i| view.choice[i], masks::planned()))
    },
};
