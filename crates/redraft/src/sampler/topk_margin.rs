//! Dream's `topk_margin`: positions at which the most likely token is furthest ahead of the second are revealed first.
//! See [`Timesteps`].

use super::masks::{self, Draw, Timesteps};
use super::{SamplerSpec, StepView};

use redraft_compute::math::host::exp;

pub(crate) static SPEC: SamplerSpec = SamplerSpec {
    name: "topk-margin",
    about: "reveal first where the most likely token is furthest ahead of the second",
    masks: true,
    reserved: 0,
    params: masks::TIMESTEPS,
    create: |params, _| Box::new(Timesteps::new(params, Some(margin), true)),
};

/// Probability of the most likely token less that of the second.
fn margin(_: &Draw, view: &StepView<'_>, i: usize) -> f64 {
    let lse = f64::from(view.lse[i]);
    exp(f64::from(view.first[i]) - lse) - exp(f64::from(view.second[i]) - lse)
}
