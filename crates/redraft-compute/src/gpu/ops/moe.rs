//! Mixture of experts: router and experts.

use std::ops::Range;
use std::sync::Arc;

use super::super::cx::{Cx, NO_SLOT, rows as rows_of, words};
use super::super::device::Device;
use super::super::kernels::Kernel;
use super::super::weights::Stored;
use super::matmul::{Groups, Operand, Product, product};
use super::rows::{self, Element};
use crate::op::{GateUp, MoeExperts, MoeRoute, RouterScore};
use crate::{ComputeError, WeightId};

pub(super) fn route<D: Device>(cx: &mut Cx<'_, D>, o: &MoeRoute) -> Result<(), ComputeError> {
    let r = &o.routing;
    let (rows, experts) = (o.logits.rows(), o.logits.cols());
    if rows == 0 {
        return Ok(());
    }
    if r.top_k * experts > CHOICES {
        return Err(ComputeError::Unavailable {
            what: "a router that looks through experts so often on",
            name: "this backend".into(),
            available: format!("at most {CHOICES} times, or --backend cpu"),
        });
    }
    let groups = r.groups.map_or(0, |g| g.n);
    let stride = experts + groups;
    let mut vector = |w: Option<WeightId>| match w {
        Some(w) => cx.gpu.vector(w),
        None => Ok(cx.nothing()),
    };
    let (bias, scale) = (vector(r.bias)?, vector(r.expert_scale)?);
    let bias = words(&bias, if r.bias.is_some() { experts } else { 1 });
    let scale = words(&scale, if r.expert_scale.is_some() { experts } else { 1 });
    let free = cx.temporary(4 * (rows * stride) as u64)?;
    let (logits, probs) = (cx.value(o.logits), cx.value(o.probs));
    let (ids, weights) = (cx.value(o.ids), cx.value(o.weights));
    let spans: Vec<Range<usize>> = r.block.map_or(Vec::new(), |b| o.segments.blocks(b.len));
    // Errors name the first result that is wrong.
    let slots = [cx.slot(o.weights, 0)?, cx.slot(o.probs, 0)?];
    let parameters = [
        slots[0],
        0,
        rows as u32,
        experts as u32,
        r.top_k as u32,
        u32::from(r.score == RouterScore::Sigmoid),
        u32::from(r.bias.is_some()),
        groups as u32,
        r.groups.map_or(0, |g| g.used) as u32,
        u32::from(r.renormalize),
        u32::from(r.expert_scale.is_some()),
        slots[1],
        spans.len() as u32,
        r.block.map_or(0, |b| b.capacity) as u32,
        stride as u32,
    ];
    let all_free = words(&free, rows * stride);
    let all_probs = words(&probs, rows * experts);
    let views = [words(&logits, rows * experts), all_probs, all_free];
    cx.each(Kernel::MoeProbs, &views, &parameters, rows)?;
    if !spans.is_empty() {
        let list: Vec<u32> = spans.iter().flat_map(|s| [s.start as u32, s.end as u32]).collect();
        let (list, n) = (cx.constant(&list)?, list.len());
        let worth = cx.temporary(4 * (spans.len() * experts) as u64)?;
        let views = [all_probs, bias, words(&list, n), words(&worth, spans.len() * experts), all_free];
        let cost = (rows * experts + spans.len() * experts * experts) as u64;
        cx.dispatch(Kernel::MoeOpen, &views, &parameters, [spans.len() as u32, 1, 1], cost)?;
    }
    let k = rows * r.top_k;
    let views = [all_probs, bias, scale, all_free, words(&ids, k), words(&weights, k)];
    cx.each(Kernel::MoeChoose, &views, &parameters, rows)
}

/// How often one invocation looks at an expert, at most. No model that is known comes near; what takes longer drivers end, and
/// llvmpipe leaves it without a word.
const CHOICES: usize = 1 << 15;

/// Pairs that are grouped at once: a workgroup goes through all of them twice, and llvmpipe leaves a kernel after some 65,000
/// rounds of its loops.
const PAIRS: usize = 16_384;

/// The three stacks of the experts on the device.
struct Stacks<B> {
    gate: Arc<Stored<B>>,
    up: Arc<Stored<B>>,
    /// Rows of the up projection.
    up_rows: Range<usize>,
    down: Arc<Stored<B>>,
}

pub(super) fn experts<D: Device>(cx: &mut Cx<'_, D>, o: &MoeExperts) -> Result<(), ComputeError> {
    let weights = Arc::clone(&cx.gpu.weights);
    let down = weights.get(o.down)?;
    let (n_experts, ff) = (down.experts, down.cols);
    cx.check_ids("MoeExperts", o.ids, n_experts)?;
    let (gate, up, up_rows) = match o.gate_up {
        GateUp::Fused(w) => (w, w, ff..2 * ff),
        GateUp::Split { gate, up } => (gate, up, 0..ff),
    };
    let stacks =
        Stacks { gate: cx.gpu.stored(gate)?, up: cx.gpu.stored(up)?, up_rows, down: cx.gpu.stored(o.down)? };
    let (k, n) = (o.ids.cols(), o.out.cols());
    let (tokens, widest) = (o.x.rows(), ff.max(n));
    // Tokens of which a kernel can see all pairs; views of them begin where views may.
    let most = (cx.gpu.device.limits().binding / (4 * k * widest).max(1) as u64) as usize;
    let most = most.min(PAIRS / n_experts.div_ceil(256).max(1) / k.max(1));
    let most = if tokens <= most { tokens } else { most / 64 * 64 };
    if most == 0 && tokens > 0 {
        return Err(ComputeError::OutOfMemory {
            what: "a view of the results of 64 tokens on this device".into(),
            bytes: 256 * k * widest,
        });
    }
    let hidden = cx.temporary(4 * (tokens * k * ff) as u64)?;
    let mut first = 0;
    while first < tokens {
        let part = first..tokens.min(first + most);
        first = part.end;
        some_experts(cx, o, &stacks, (n_experts, ff), &part, &hidden)?;
    }
    if cx.keeps_hidden {
        cx.hidden = Some((hidden, tokens * k * ff));
    }
    Ok(())
}

/// The experts of some tokens.
fn some_experts<D: Device>(
    cx: &mut Cx<'_, D>,
    o: &MoeExperts,
    stacks: &Stacks<D::Buffer>,
    (n_experts, ff): (usize, usize),
    part: &Range<usize>,
    all_hidden: &D::Buffer,
) -> Result<(), ComputeError> {
    let (k, cols, n) = (o.ids.cols(), o.x.cols(), o.out.cols());
    let (tokens, pairs) = (part.len(), part.len() * k);
    let (x, ids, weights, out) = (cx.value(o.x), cx.value(o.ids), cx.value(o.weights), cx.value(o.out));
    let starts = cx.temporary(4 * (n_experts + 1) as u64)?;
    let list = cx.temporary(4 * pairs as u64)?;
    let views = [rows_of(&ids, part, k), words(&starts, n_experts + 1), words(&list, pairs)];
    let cost = (2 * pairs * n_experts) as u64;
    let parameters = [NO_SLOT, 0, pairs as u32, n_experts as u32];
    cx.dispatch(Kernel::MoeGroup, &views, &parameters, [1, 1, 1], cost)?;
    let groups = |x_div| Groups { pairs: &list, n_pairs: pairs, starts: &starts, experts: n_experts, x_div };
    // An operand begins with its first row.
    let x = if tokens == o.x.rows() {
        x
    } else {
        let some = cx.temporary(4 * (tokens * cols) as u64)?;
        cx.gpu.device.copy((&x, 4 * (part.start * cols) as u64), (&some, 0), 4 * (tokens * cols) as u64)?;
        some
    };
    let gate_x = Operand::new(cx, &stacks.gate, o.numerics, (&x, tokens, cols))?;
    let up_x = if stacks.up.form == stacks.gate.form {
        None
    } else {
        Some(Operand::new(cx, &stacks.up, o.numerics, (&x, tokens, cols))?)
    };
    let gate = cx.temporary(4 * (pairs * ff) as u64)?;
    let up = cx.temporary(4 * (pairs * ff) as u64)?;
    let of = |outs: Range<usize>, y, y_cols, x_div| Product {
        rows: tokens,
        x_at: 0,
        outs,
        y,
        y_cols,
        y_at: 0,
        bias: None,
        head: None,
        slot: NO_SLOT,
        groups: Some(groups(x_div)),
    };
    product(cx, &stacks.gate, cols, &gate_x, &of(0..ff, words(&gate, pairs * ff), ff, k))?;
    let p = of(stacks.up_rows.clone(), words(&up, pairs * ff), ff, k);
    product(cx, &stacks.up, cols, up_x.as_ref().unwrap_or(&gate_x), &p)?;
    // Those of all tokens are kept for who looks at them.
    let hidden_view = rows_of(all_hidden, &(part.start * k..part.end * k), ff);
    let views = [words(&gate, pairs * ff), words(&up, pairs * ff), hidden_view];
    rows::element(cx, Element::Glu(o.act), views, pairs * ff, NO_SLOT)?;
    let hidden = if tokens == o.x.rows() {
        all_hidden.clone()
    } else {
        let some = cx.temporary(4 * (pairs * ff) as u64)?;
        cx.gpu.device.copy((all_hidden, hidden_view.at), (&some, 0), 4 * (pairs * ff) as u64)?;
        some
    };
    let hidden_x = Operand::new(cx, &stacks.down, o.numerics, (&hidden, pairs, ff))?;
    let y = cx.temporary(4 * (pairs * n) as u64)?;
    product(cx, &stacks.down, ff, &hidden_x, &of(0..n, words(&y, pairs * n), n, 1))?;
    let slot = cx.slot(o.out, part.start * n)?;
    let views = [words(&y, pairs * n), rows_of(&weights, part, k), rows_of(&out, part, n)];
    cx.each(Kernel::MoeCombine, &views, &[slot, 0, (tokens * n) as u32, n as u32, k as u32], tokens * n)
}
