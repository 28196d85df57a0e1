//! LLaDA2.0 and 2.1: Ling 2 (Bailing MoE v2) that reads block by block. Experts are chosen by sigmoid within the best groups,
//! with a bias, beside one that all tokens use. Fact sheet: `docs/models/llada2.md`.

use std::fmt::Display;

use redraft_compute::op::{ExpertGroups, RopeStyle, RouterScore, Routing};

use super::masked::{self, Canvas, Family};
use super::{ArchSpec, Hyper};
use crate::Error;
use crate::layers::ExpertsKind;
use crate::sampler::THRESHOLD;

pub(super) const SPEC: ArchSpec = ArchSpec {
    name: FAMILY.name,
    about: "LLaDA2: Ling 2 with a block-causal mask, experts in groups",
    load: |gguf, w, notes| {
        // Half of a head rotates. The other programs take a missing key for a whole one, so nothing is assumed.
        Hyper::new(gguf.metadata(), FAMILY.name).size(ROTATED, 1 << 16)?;
        masked::load(&FAMILY, gguf, w, notes)
    },
    sampler: Some(&THRESHOLD),
    // Of the model card. A block is revealed as one, however long it is.
    defaults: &[("threshold", 0.95), ("block_length", 0.0)],
    tap_names: masked::TAP_NAMES,
    presets: crate::synth::LLADA2,
};

const ROTATED: &str = "rope.dimension_count";

const FAMILY: Family = Family {
    name: "llada2",
    rope: RopeStyle::Neox,
    bias: false,
    head_norms: true,
    experts: Some(experts),
    shifted: false,
    canvas: Canvas::Block(32),
};

/// Of `expert_gating_func`.
const SIGMOID: usize = 2;

/// What a file leaves out and is taken from the published models.
struct Assumed<'a> {
    h: &'a Hyper<'a>,
    /// Keys and values, for a note.
    said: Vec<String>,
}

impl Assumed<'_> {
    fn or<T: Display>(&mut self, name: &str, found: Option<T>, published: T) -> T {
        found.unwrap_or_else(|| {
            self.said.push(format!("{} {published}", self.h.key(name)));
            published
        })
    }
}

fn experts(h: &Hyper<'_>, notes: &mut Vec<String>) -> Result<ExpertsKind, Error> {
    if h.opt_count("expert_gating_func", usize::MAX)?.is_some() {
        h.equal("expert_gating_func", SIGMOID)?;
    }
    let n = h.size("expert_count", 1 << 16)?;
    let d_expert = h.size("expert_feed_forward_length", 1 << 24)?;
    // What files may leave out is the same in all published models.
    let mut a = Assumed { h, said: Vec::new() };
    let groups = a.or("expert_group_count", h.opt_count("expert_group_count", n)?, 8);
    let used = a.or("expert_group_used_count", h.opt_count("expert_group_used_count", groups)?, 4);
    let lead = a.or("leading_dense_block_count", h.opt_count("leading_dense_block_count", 1 << 16)?, 1);
    let n_shared = a.or("expert_shared_count", h.opt_count("expert_shared_count", 1 << 16)?, 1);
    let renormalize = a.or("expert_weights_norm", h.opt_flag("expert_weights_norm")?, true);
    let shared_ff = h.opt_size("expert_shared_feed_forward_length", 1 << 24)?;
    let d_shared = match n_shared {
        0 => d_expert,
        _ => a.or("expert_shared_feed_forward_length", shared_ff, d_expert),
    };
    if groups == 0 || !n.is_multiple_of(groups) || n / groups < 2 {
        let expected = format!("a divisor of the {n} experts that leaves two a group");
        return Err(h.wrong("expert_group_count", expected, groups));
    }
    if !(1..=groups).contains(&used) {
        return Err(h.wrong("expert_group_used_count", format!("1..={groups}"), used));
    }
    if !a.said.is_empty() {
        notes.push(format!("the file does not say everything of its experts; taking {}", a.said.join(", ")));
    }
    let top_k = h.size("expert_used_count", n / groups * used)?;
    Ok(ExpertsKind {
        n,
        d_expert,
        routing: Routing {
            top_k,
            score: RouterScore::Sigmoid,
            bias: None,
            groups: (used < groups).then_some(ExpertGroups { n: groups, used }),
            // One weight alone is never divided by itself.
            renormalize: renormalize && top_k > 1,
            expert_scale: None,
        },
        biased: true,
        scale: Some(h.positive("expert_weights_scale")?.into()),
        shared: (n_shared > 0).then_some(d_shared.saturating_mul(n_shared)),
        dense: (lead, if lead > 0 { h.size("feed_forward_length", 1 << 24)? } else { 0 }),
    })
}
