//! Dream's `origin`: in each step every masked position is revealed by chance, whatever the model thinks of it. See
//! [`Timesteps`].

use super::SamplerSpec;
use super::masks::{self, Timesteps};

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "origin",
    about: "reveal positions by chance, as the schedule says on average",
    masks: true,
    reserved: 0,
    params: &masks::and::<9>(masks::ALL, &[masks::EPS]),
    create: |params, _| Box::new(Timesteps::new(params, None, false)),
};
