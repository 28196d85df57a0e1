//! LLaDA's `random`: block after block, positions are revealed in random order. See [`Blocks`].

use super::SamplerSpec;
use super::masks::{self, Blocks};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "random",
    about: "block after block, reveal positions in random order",
    masks: true,
    reserved: 0,
    params: masks::BLOCKS,
    create: |params, _| Box::new(Blocks::new(params, |_, view, i| view.choice[i], false)),
};
