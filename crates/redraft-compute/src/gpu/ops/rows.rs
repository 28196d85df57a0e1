//! Ops on single rows and elements.

use super::super::cx::{Cx, rows, words};
use super::super::device::{Device, View};
use super::super::kernels::Kernel;
use super::super::weights::Form;
use super::matmul::Format;
use crate::op::{Activation, Add, Embed, Factor, Glu, RmsNorm, Rope, RopeStyle, Scale, Softcap, TakeRows};
use crate::{ComputeError, Val};

/// What the kernel `element` does.
#[derive(Clone, Copy)]
pub(super) enum Element {
    Scale(f32),
    Add { first: usize, count: usize, y_at: u32 },
    Glu(Activation),
    Softcap { cap: f32, inverse: f32 },
    RoundF16,
    RoundBf16,
}

impl Element {
    /// `kind`, `a`, `b`, `first`, `count`, `y_at` of the kernel.
    fn parameters(self) -> [u32; 6] {
        match self {
            Element::Scale(by) => [0, by.to_bits(), 0, 0, 0, 0],
            Element::Add { first, count, y_at } => [1, 0, 0, first as u32, count as u32, y_at],
            Element::Glu(Activation::GeluTanh) => [2, 0, 0, 0, 0, 0],
            Element::Glu(Activation::Silu) => [3, 0, 0, 0, 0, 0],
            Element::Softcap { cap, inverse } => [4, cap.to_bits(), inverse.to_bits(), 0, 0, 0],
            Element::RoundF16 => [5, 0, 0, 0, 0, 0],
            Element::RoundBf16 => [6, 0, 0, 0, 0, 0],
        }
    }
}

/// Runs the kernel `element` on `n` numbers.
pub(super) fn element<D: Device>(
    cx: &mut Cx<'_, D>,
    what: Element,
    [x, y, out]: [View<'_, D::Buffer>; 3],
    n: usize,
    slot: u32,
) -> Result<(), ComputeError> {
    let mut parameters = vec![slot, 0, n as u32];
    parameters.extend(what.parameters());
    cx.each(Kernel::Element, &[x, y, out], &parameters, n)
}

/// An op on single elements of values of one shape.
fn elements<D: Device>(
    cx: &mut Cx<'_, D>,
    what: Element,
    x: Val,
    y: Option<Val>,
    out: Val,
) -> Result<(), ComputeError> {
    let (xb, ob) = (cx.value(x), cx.value(out));
    let yb = y.map_or_else(|| cx.nothing(), |y| cx.value(y));
    let cols = out.cols();
    for part in cx.parts(out.rows(), cols)? {
        let slot = cx.slot(out, part.start * cols)?;
        let other = if y.is_some() { rows(&yb, &part, cols) } else { words(&yb, 1) };
        let n = part.len() * cols;
        element(cx, what, [rows(&xb, &part, cols), other, rows(&ob, &part, cols)], n, slot)?;
    }
    Ok(())
}

pub(super) fn scale<D: Device>(cx: &mut Cx<'_, D>, o: &Scale) -> Result<(), ComputeError> {
    let by = match o.by {
        Factor::Const(c) => c as f32,
        Factor::Scalar(w) => cx.gpu.numbers(w)?.first().copied().unwrap_or(0.0),
    };
    elements(cx, Element::Scale(by), o.x, None, o.out)
}

pub(super) fn glu<D: Device>(cx: &mut Cx<'_, D>, o: &Glu) -> Result<(), ComputeError> {
    elements(cx, Element::Glu(o.act), o.gate, Some(o.up), o.out)
}

pub(super) fn softcap<D: Device>(cx: &mut Cx<'_, D>, o: &Softcap) -> Result<(), ComputeError> {
    let what = Element::Softcap { cap: o.cap as f32, inverse: (1.0 / o.cap) as f32 };
    elements(cx, what, o.x, None, o.out)
}

pub(super) fn add<D: Device>(cx: &mut Cx<'_, D>, o: &Add) -> Result<(), ComputeError> {
    let (a, b, out) = (cx.value(o.a), cx.value(o.b), cx.value(o.out));
    let cols = o.out.cols();
    let none = cx.nothing();
    for part in cx.parts(o.out.rows(), cols)? {
        let slot = cx.slot(o.out, part.start * cols)?;
        // Rows of b that meet this part.
        let (from, to) = (part.start.max(o.first), part.end.min(o.first + o.b.rows()));
        let met = from.saturating_sub(o.first)..to.max(from).saturating_sub(o.first);
        // They may begin where no view may.
        let (view, y_at) = cx.near(&b, (met.start, met.len(), cols));
        let what = Element::Add { first: (from - part.start) * cols, count: met.len() * cols, y_at };
        let view = if met.is_empty() { words(&none, 1) } else { view };
        element(cx, what, [rows(&a, &part, cols), view, rows(&out, &part, cols)], part.len() * cols, slot)?;
    }
    Ok(())
}

pub(super) fn rms_norm<D: Device>(cx: &mut Cx<'_, D>, o: &RmsNorm) -> Result<(), ComputeError> {
    let (x, out) = (cx.value(o.x), cx.value(o.out));
    let weight = o.weight.map(|w| cx.gpu.vector(w)).transpose()?;
    let none = cx.nothing();
    let inverse = (1.0 / o.group as f64) as f32;
    let cols = o.out.cols();
    for part in cx.parts(o.out.rows(), cols)? {
        let slot = cx.slot(o.out, part.start * cols)?;
        let groups = part.len() * cols / o.group;
        let w = weight.as_ref().map_or(words(&none, 1), |w| words(w, o.group));
        let parameters = [
            slot,
            0,
            groups as u32,
            o.group as u32,
            inverse.to_bits(),
            o.eps.to_bits(),
            u32::from(weight.is_some()),
        ];
        let grid = cx.grid(groups.div_ceil(4))?;
        if grid[2] > 1 {
            return Err(ComputeError::OutOfMemory { what: "a grid of norms".into(), bytes: groups });
        }
        let views = [rows(&x, &part, cols), w, rows(&out, &part, cols)];
        cx.dispatch(Kernel::Norm, &views, &parameters, grid, 8 * (part.len() * cols) as u64)?;
    }
    Ok(())
}

pub(super) fn rope<D: Device>(cx: &mut Cx<'_, D>, o: &Rope) -> Result<(), ComputeError> {
    let (x, table, out) = (cx.value(o.x), cx.value(o.table), cx.value(o.out));
    let cols = o.out.cols();
    let n = o.out.len();
    let slot = cx.slot(o.out, 0)?;
    let parameters = [
        slot,
        0,
        n as u32,
        cols as u32,
        o.head_dim as u32,
        o.n_rot as u32,
        u32::from(o.style == RopeStyle::Interleaved),
    ];
    let views = [words(&x, n), words(&table, o.table.len()), words(&out, n)];
    cx.each(Kernel::Rope, &views, &parameters, n)
}

pub(super) fn take_rows<D: Device>(cx: &mut Cx<'_, D>, o: &TakeRows) -> Result<(), ComputeError> {
    // Of logits there may be more than a kernel can see, so rows are copied one by one.
    let (x, out) = (cx.value(o.x), cx.value(o.out));
    let row = 4 * o.x.cols() as u64;
    if row == 0 {
        return Ok(());
    }
    if row * o.x.rows() as u64 > cx.gpu.device.limits().binding {
        for (i, &r) in o.rows.iter().enumerate() {
            cx.gpu.device.copy((&x, row * u64::from(r)), (&out, row * i as u64), row)?;
        }
        return Ok(());
    }
    let list = cx.constant(&o.rows)?;
    let n = o.out.len();
    let views = [words(&x, o.x.len()), words(&list, o.rows.len()), words(&out, n)];
    cx.each(Kernel::TakeRows, &views, &[super::super::cx::NO_SLOT, 0, n as u32, o.x.cols() as u32], n)
}

pub(super) fn embed<D: Device>(cx: &mut Cx<'_, D>, o: &Embed) -> Result<(), ComputeError> {
    let stored = cx.gpu.stored(o.table)?;
    let rows_of_table = cx.gpu.weights.get(o.table)?.rows;
    // What ops of the program find is an id of the vocabulary; what came from outside may be anything.
    cx.check_ids("Embed", o.ids, rows_of_table)?;
    let (ids, out) = (cx.value(o.ids), cx.value(o.out));
    let n = o.out.len();
    let slot = cx.slot(o.out, 0)?;
    let format = Format::of(&stored);
    let kernel = match stored.form {
        Form::F32 => Kernel::EmbedF32,
        Form::Half(_) => Kernel::EmbedHalf,
        Form::Block(_) => Kernel::EmbedBlock,
    };
    for slab in &stored.slabs {
        let mut parameters = vec![slot, 0, n as u32, o.out.cols() as u32];
        parameters.extend(format.words());
        parameters.extend([slab.rows[0] as u32, slab.rows[1] as u32, (o.scale as f32).to_bits()]);
        let table = View { buffer: &slab.buffer, at: 0, bytes: slab.bytes };
        cx.each(kernel, &[words(&ids, o.ids.len()), table, words(&out, n)], &parameters, n)?;
    }
    Ok(())
}
