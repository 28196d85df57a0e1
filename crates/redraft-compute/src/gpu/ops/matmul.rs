//! Products with weights.

use std::ops::Range;

use super::super::cx::{Cx, NO_SLOT, rows as rows_of, words};
use super::super::device::{Device, View};
use super::super::kernels::Kernel;
use super::super::weights::{Form, Slab, Stored};
use super::rows::{self, Element};
use crate::numerics::Half;
use crate::op::MatMul;
use crate::{ComputeError, Numerics};

/// How a kernel finds the numbers of a row: `stride`, `kind`, `heads_at`, `subs_at`, `unit_log`, `sub_log`, `mins`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format([u32; 7]);

impl Format {
    pub(super) fn of<B>(stored: &Stored<B>) -> Format {
        let stride = stored.stride as u32;
        Format(match stored.form {
            Form::F32 | Form::Half(Half::F16) => [stride, 0, 0, 0, 0, 0, 0],
            Form::Half(Half::Bf16) => [stride, 1, 0, 0, 0, 0, 0],
            Form::Block(b) => [
                stride,
                b.kind,
                b.heads_at,
                b.subs_at,
                b.units.len.ilog2(),
                b.units.sub_len.ilog2(),
                u32::from(b.units.mins),
            ],
        })
    }

    pub(super) fn words(self) -> [u32; 7] {
        self.0
    }
}

/// Rows of activations as a kernel takes them beside a weight.
pub(super) struct Operand<B> {
    buffer: B,
    bytes: u64,
    kernel: Kernel,
    /// `x_stride`, `x_scales`, `x_sums` of the kernel.
    packed: [u32; 3],
}

impl<B: Clone> Operand<B> {
    /// `x` is `[rows, cols of the weight]`, `n` rows.
    pub(super) fn new<D: Device<Buffer = B>>(
        cx: &mut Cx<'_, D>,
        stored: &Stored<B>,
        numerics: Numerics,
        (x, n, cols): (&B, usize, usize),
    ) -> Result<Operand<B>, ComputeError> {
        let plain = |buffer: B, kernel| Operand {
            buffer,
            bytes: 4 * (n * cols).max(1) as u64,
            kernel,
            packed: [0; 3],
        };
        match (stored.form, numerics) {
            (Form::F32, _) => Ok(plain(x.clone(), Kernel::MatmulF32)),
            (Form::Half(_), Numerics::Exact) => Ok(plain(x.clone(), Kernel::MatmulHalf)),
            (Form::Block(_), Numerics::Exact) => Ok(plain(x.clone(), Kernel::MatmulBlock)),
            (Form::Half(half), Numerics::Fast) => {
                let what = match half {
                    Half::F16 => Element::RoundF16,
                    Half::Bf16 => Element::RoundBf16,
                };
                let rounded = cx.temporary(4 * (n * cols) as u64)?;
                let none = cx.nothing();
                let views = [words(x, n * cols), words(&none, 1), words(&rounded, n * cols)];
                rows::element(cx, what, views, n * cols, NO_SLOT)?;
                Ok(plain(rounded, Kernel::MatmulHalf))
            }
            (Form::Block(block), Numerics::Fast) => {
                let units = cols / block.units.len;
                let (scales, sums) = (cols / 4, cols / 4 + units);
                let stride = sums + cols / 16;
                let packed = cx.temporary(4 * (n * stride) as u64)?;
                let parameters = [
                    NO_SLOT,
                    0,
                    (n * units) as u32,
                    cols as u32,
                    block.units.len as u32,
                    stride as u32,
                    scales as u32,
                    sums as u32,
                ];
                let views = [words(x, n * cols), words(&packed, n * stride)];
                cx.each(Kernel::Quantize, &views, &parameters, n * units)?;
                Ok(Operand {
                    buffer: packed,
                    bytes: 4 * (n * stride).max(1) as u64,
                    kernel: Kernel::MatmulInt8,
                    packed: [stride, scales, sums].map(|x| x as u32),
                })
            }
        }
    }
}

/// Where the rows of a product come from and go to, and what happens to its numbers.
pub(super) struct Product<'a, B> {
    /// Rows of x, of each expert at most.
    pub(super) rows: usize,
    /// First row of x.
    pub(super) x_at: usize,
    /// Rows of each matrix that take part.
    pub(super) outs: Range<usize>,
    pub(super) y: View<'a, B>,
    /// Columns of y, and that of the first output.
    pub(super) y_cols: usize,
    pub(super) y_at: usize,
    pub(super) bias: Option<&'a B>,
    pub(super) head: Option<HeadEnd>,
    /// The slot of the result of the op.
    pub(super) slot: u32,
    pub(super) groups: Option<Groups<'a, B>>,
}

/// What becomes of the products of a head.
#[derive(Clone, Copy)]
pub(super) struct HeadEnd {
    pub(super) cap: Option<f64>,
    pub(super) by: f32,
}

/// Rows by experts.
pub(super) struct Groups<'a, B> {
    /// Pairs of token and slot, by expert.
    pub(super) pairs: &'a B,
    pub(super) n_pairs: usize,
    /// Where each expert's begin, and the end.
    pub(super) starts: &'a B,
    pub(super) experts: usize,
    /// Pairs that share a row of x.
    pub(super) x_div: usize,
}

impl<B> Clone for Groups<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Groups<'_, B> {}

/// Rows and columns of a workgroup's part.
const TILE: usize = 64;

/// Multiply-accumulate operations that go to a device at once, at most: a small fraction of a second on the slowest.
pub(super) const AT_ONCE: u64 = 8 << 30;

/// Asks for a product of rows with a weight.
pub(super) fn product<D: Device>(
    cx: &mut Cx<'_, D>,
    stored: &Stored<D::Buffer>,
    cols: usize,
    x: &Operand<D::Buffer>,
    p: &Product<'_, D::Buffer>,
) -> Result<(), ComputeError> {
    if p.rows == 0 {
        return Ok(());
    }
    // Columns of output that one dispatch makes.
    let each = (AT_ONCE / (p.rows * cols).max(1) as u64).max(1) as usize;
    let each = each.next_multiple_of(TILE);
    for slab in &stored.slabs {
        let (first, end) = (p.outs.start.max(slab.rows[0]), p.outs.end.min(slab.rows[0] + slab.rows[1]));
        let mut from = first;
        while from < end {
            let to = end.min(from + each);
            dispatch(cx, stored, slab, cols, x, p, from..to)?;
            from = to;
        }
    }
    Ok(())
}

/// Rows `outs` of the matrices of a slab.
fn dispatch<D: Device>(
    cx: &mut Cx<'_, D>,
    stored: &Stored<D::Buffer>,
    slab: &Slab<D::Buffer>,
    cols: usize,
    x: &Operand<D::Buffer>,
    p: &Product<'_, D::Buffer>,
    outs: Range<usize>,
) -> Result<(), ComputeError> {
    let none = cx.nothing();
    let mut mode = 0;
    let (mut by, mut cap, mut inverse) = (0.0f32, 0.0f32, 0.0f32);
    if p.bias.is_some() {
        mode |= 1;
    }
    if let Some(head) = p.head {
        mode |= 2;
        by = head.by;
        if let Some(c) = head.cap {
            mode |= 4;
            (cap, inverse) = (c as f32, (1.0 / c) as f32);
        }
    }
    let mut parameters = vec![p.slot, 0, p.rows as u32, outs.len() as u32, cols as u32];
    parameters.extend(Format::of(stored).words());
    parameters.extend([p.y_cols as u32, (p.y_at + outs.start - p.outs.start) as u32, p.x_at as u32]);
    parameters.push(p.groups.map_or(1, |g| g.x_div as u32));
    parameters.extend(x.packed);
    parameters.extend([
        u32::from(p.groups.is_some()),
        slab.experts[0] as u32,
        slab.rows[1] as u32,
        (outs.start - slab.rows[0]) as u32,
        mode,
        by.to_bits(),
        cap.to_bits(),
        inverse.to_bits(),
        u32::from(p.slot != NO_SLOT),
    ]);
    let (pairs, starts) = match p.groups {
        Some(g) => (words(g.pairs, g.n_pairs), words(g.starts, g.experts + 1)),
        None => (words(&none, 1), words(&none, 1)),
    };
    let views = [
        View { buffer: &x.buffer, at: 0, bytes: x.bytes },
        View { buffer: &slab.buffer, at: 0, bytes: slab.bytes },
        p.bias.map_or(words(&none, 1), |b| words(b, p.outs.len())),
        pairs,
        starts,
        p.y,
    ];
    let z = if p.groups.is_some() { slab.experts[1] } else { 1 };
    let groups = [outs.len().div_ceil(TILE) as u32, p.rows.div_ceil(TILE) as u32, z as u32];
    let macs = p.groups.map_or(p.rows, |g| g.n_pairs) * outs.len() * cols;
    cx.dispatch(x.kernel, &views, &parameters, groups, macs as u64)
}

pub(super) fn matmul<D: Device>(cx: &mut Cx<'_, D>, o: &MatMul) -> Result<(), ComputeError> {
    let stored = cx.gpu.stored(o.w)?;
    let bias = o.bias.map(|b| cx.gpu.vector(b)).transpose()?;
    let (x, out) = (cx.value(o.x), cx.value(o.out));
    let operand = Operand::new(cx, &stored, o.numerics, (&x, o.x.rows(), o.x.cols()))?;
    let cols = o.out.cols();
    for part in cx.parts(o.out.rows(), cols)? {
        let slot = cx.slot(o.out, part.start * cols)?;
        let p = Product {
            rows: part.len(),
            x_at: part.start,
            outs: 0..cols,
            y: rows_of(&out, &part, cols),
            y_cols: cols,
            y_at: 0,
            bias: bias.as_ref(),
            head: None,
            slot,
            groups: None,
        };
        product(cx, &stored, o.x.cols(), &operand, &p)?;
    }
    Ok(())
}
