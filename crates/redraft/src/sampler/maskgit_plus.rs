//! Dream's `maskgit_plus`: the tokens of the highest probability are revealed first. See [`Timesteps`].

use super::SamplerSpec;
use super::masks::{self, Timesteps};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "maskgit-plus",
    about: "reveal the tokens of the highest probability first",
    masks: true,
    reserved: 0,
    params: masks::TIMESTEPS,
    create: |params, _| Box::new(Timesteps::new(params, Some(masks::Draw::probability), true)),
};
