//! Dream's `entropy`: positions whose distribution has the least entropy are revealed first. See [`Timesteps`]. (llama.cpp
//! reveals those of the largest entropy first under this name.)

use super::SamplerSpec;
use super::masks::{self, Timesteps};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "entropy",
    about: "reveal positions of the least entropy first",
    masks: true,
    reserved: 0,
    params: masks::TIMESTEPS,
    create: |params, _| {
        Box::new(Timesteps::new(params, Some(|_, view, i| -f64::from(view.entropy[i])), false))
    },
};
