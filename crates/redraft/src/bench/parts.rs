//! Which part of a model an op belongs to, and the sums of its parts.

use redraft_compute::cost::macs;
use redraft_compute::{Numerics, Op, Program, WeightId};
use redraft_gguf::DType;

/// A part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Rows of the embedding table.
    Embedding,
    /// The expected embedding of the step before.
    SoftEmbedding,
    /// The block that reads it.
    SelfConditioning,
    /// Products of queries, keys, values and of the result.
    AttentionProjections,
    /// Scores, soft-max, weighted values.
    Attention,
    /// The dense feed-forward branch.
    DenseFfn,
    /// Which experts a token goes to.
    Router,
    /// The feed-forward of experts.
    Experts,
    /// The output head with its soft-cap.
    Head,
    /// Temperature, statistics and draws over the vocabulary.
    Sampling,
    /// Norms, sums, scales, gates, rotations.
    ElementWise,
    /// Inputs, outputs, what is kept: everything between the ops.
    Between,
}

impl Part {
    /// All parts, in the order of a step.
    pub const ALL: &[Part] = &[
        Part::Embedding,
        Part::SoftEmbedding,
        Part::SelfConditioning,
        Part::AttentionProjections,
        Part::Attention,
        Part::DenseFfn,
        Part::Router,
        Part::Experts,
        Part::Head,
        Part::Sampling,
        Part::ElementWise,
        Part::Between,
    ];

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Part::Embedding => "embedding",
            Part::SoftEmbedding => "soft embedding",
            Part::SelfConditioning => "self-conditioning",
            Part::AttentionProjections => "attention projections",
            Part::Attention => "attention",
            Part::DenseFfn => "dense feed-forward",
            Part::Router => "router",
            Part::Experts => "experts",
            Part::Head => "head",
            Part::Sampling => "sampling",
            Part::ElementWise => "norms, element-wise",
            Part::Between => "between ops",
        }
    }

    /// The part of op `index`: by the names of its weights, which are those of the file format, and by what it is.
    fn of(program: &Program, index: usize) -> Part {
        let op = &program.ops()[index];
        match op.name() {
            "Embed" => return Part::Embedding,
            "Attention" | "KvAppend" => return Part::Attention,
            "MoeRoute" => return Part::Router,
            "MoeExperts" => return Part::Experts,
            "Softcap" => return Part::Head,
            "SoftEmbed" => return Part::SoftEmbedding,
            "TokenStats" if op.weights().is_empty() => return Part::Sampling,
            "TokenSample" | "Penalize" | "Restrict" | "PickStats" => return Part::Sampling,
            "RmsNorm" | "Add" | "Scale" | "Glu" | "Rope" => return Part::ElementWise,
            _ => {}
        }
        let name = |id: &WeightId| program.weights().get(*id).map_or("", |w| &w.name[..]);
        let first = op.weights().first().map_or("", name);
        let in_layer = first.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map(|(_, name)| name);
        match in_layer {
            Some(name) if name.starts_with("attn_") => Part::AttentionProjections,
            Some(name) if name.starts_with("ffn_gate_inp") => Part::Router,
            Some(name) if name.starts_with("ffn_") => Part::DenseFfn,
            None if first.starts_with("self_cond") => Part::SelfConditioning,
            None if first.starts_with("output.") || first.starts_with("token_embd.") => Part::Head,
            _ => Part::ElementWise,
        }
    }
}

/// What a part did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Seconds that all threads together computed or waited spinning; 0 where the system does not tell.
    pub cpu_seconds: f64,
    /// Multiply-accumulate operations with activations in int8.
    pub int8_macs: u64,
    /// Multiply-accumulate operations in f32.
    pub f32_macs: u64,
}

impl Work {
    /// Multiply-accumulate operations of both kinds.
    pub fn macs(&self) -> u64 {
        self.int8_macs + self.f32_macs
    }

    fn add(&mut self, other: Work) {
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.int8_macs += other.int8_macs;
        self.f32_macs += other.f32_macs;
    }
}

/// The parts of one step, those that it has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parts(Vec<(Part, Work)>);

impl Parts {
    /// What each op of a program is part of and how much it computes, before it runs.
    pub(super) fn plan(program: &Program) -> Vec<(Part, Work)> {
        let ops = program.ops();
        (0..ops.len())
            .map(|i| {
                let n = macs(program, i);
                let int8 = in_int8(program, &ops[i]);
                let (int8_macs, f32_macs) = if int8 { (n, 0) } else { (0, n) };
                (Part::of(program, i), Work { int8_macs, f32_macs, ..Work::default() })
            })
            .collect()
    }

    /// The sums of a plan whose ops took these seconds, by the clock and of computing, in a step of `whole` of both.
    pub(super) fn sum(plan: &[(Part, Work)], times: &[[f64; 2]], whole: [f64; 2]) -> Parts {
        let mut parts: Vec<(Part, Work)> = Part::ALL.iter().map(|&p| (p, Work::default())).collect();
        let mut rest = whole;
        for (&(part, work), &[seconds, cpu_seconds]) in plan.iter().zip(times) {
            rest = [rest[0] - seconds, rest[1] - cpu_seconds];
            for (_, sum) in parts.iter_mut().filter(|(p, _)| *p == part) {
                sum.add(Work { seconds, cpu_seconds, ..work });
            }
        }
        if let Some((_, between)) = parts.last_mut() {
            [between.seconds, between.cpu_seconds] = rest;
        }
        let present = |part: Part| part == Part::Between || plan.iter().any(|(p, _)| *p == part);
        parts.retain(|(part, _)| present(*part));
        Parts(parts)
    }

    /// In the order of a step.
    pub fn iter(&self) -> impl Iterator<Item = (Part, Work)> + '_ {
        self.0.iter().copied()
    }

    /// The sum of all parts: the step.
    pub fn whole(&self) -> Work {
        let mut sum = Work::default();
        self.0.iter().for_each(|(_, w)| sum.add(*w));
        sum
    }

    /// The parts of the step in the middle of several of the same kind, by their times. Parts of one step add up
    /// to it; medians of single parts would not.
    pub fn middle(mut steps: Vec<Parts>) -> Option<Parts> {
        steps.sort_by(|a, b| a.whole().seconds.total_cmp(&b.whole().seconds));
        (!steps.is_empty()).then(|| steps.swap_remove((steps.len() - 1) / 2))
    }
}

/// Whether the products of an op are those of integers.
fn in_int8(program: &Program, op: &Op) -> bool {
    let changed = |id: &WeightId| program.weights().get(*id).is_ok_and(|w| Numerics::Fast.changes(w.dtype));
    let wide =
        |id: &WeightId| program.weights().get(*id).is_ok_and(|w| matches!(w.dtype, DType::F16 | DType::BF16));
    let weights = op.weights();
    !matches!(op, Op::SoftEmbed(_))
        && op.numerics() == Numerics::Fast
        && weights.first().is_some_and(|w| changed(w) && !wide(w))
}
