//! Attention as other programs round it that keep no cache: flash attention over keys and values in f16.

use redraft_gguf::{f16_to_f32, f32_to_f16};

use super::{HostReal, OpCx};
use crate::math;
use crate::op::{Attention, Flash};

/// For each row and query head, over the visible keys `j` of the pass, keys and values in f16:
///
/// 1. `s = q·k[j] * scale`, where `q` is in f16 with [`Flash::F16`].
/// 2. Where `s` is above the maximum so far, sums are multiplied by `exp(old - s)`; else the key counts `exp(s - max)` times.
/// 3. That many times `v[j]` and 1 are added; the sum of values is in f16 after each step with [`Flash::F16`].
///
/// `out` is the sum of the values over that of the factors. These are llama.cpp's steps for one query on a CPU; scores, factors
/// and their sum are in f32. `out` is `[rows, n_heads * head_dim]`.
pub(crate) fn attention<R: HostReal, C>(o: &Attention, flash: Flash, cx: &mut OpCx<'_, R, C>) {
    let mut out = cx.take_real(o.out);
    let d = o.head_dim;
    let (width, kv_width, group) = (o.n_heads * d, o.n_kv_heads * d, o.n_heads / o.n_kv_heads);
    let narrow = |v| cx.real(v).iter().map(|x| half(x.to_f64() as f32)).collect::<Vec<f32>>();
    let (keys, values) = (narrow(o.k), narrow(o.v));
    let queries = match flash {
        Flash::F16 => narrow(o.q),
        Flash::F32 => cx.real(o.q).iter().map(|x| x.to_f64() as f32).collect(),
    };
    let scale = o.scale as f32;
    let mut sums = vec![0.0f32; d];
    for (segment, span) in o.segments.spans() {
        let of = |j: usize, head: usize| {
            let at = (span.start + j) * kv_width + head / group * d;
            at..at + d
        };
        for row in 0..segment.rows {
            for head in 0..o.n_heads {
                let at = (span.start + row) * width + head * d;
                let q = &queries[at..at + d];
                let (mut max, mut total) = (f32::NEG_INFINITY, 0.0f32);
                sums.fill(0.0);
                for j in o.mask.visible(segment, row) {
                    let key = &keys[of(j, head)];
                    let s = dot(q, key) * scale;
                    let mut factor = 1.0;
                    if s > max {
                        let shrink = math::exp(max - s);
                        sums.iter_mut().for_each(|x| *x = stored(*x * shrink, flash));
                        (max, total) = (s, total * shrink);
                    } else {
                        factor = math::exp(s - max);
                    }
                    for (x, v) in sums.iter_mut().zip(&values[of(j, head)]) {
                        *x = stored(*x + v * factor, flash);
                    }
                    total += factor;
                }
                for (out, x) in out[at..at + d].iter_mut().zip(&sums) {
                    *out = R::from_f32(x / total);
                }
            }
        }
    }
    cx.put_real(o.out, out);
}

/// In 16 partial sums.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    for (a, b) in a.chunks(16).zip(b.chunks(16)) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum()
}

/// What is left of a sum where it is kept.
fn stored(x: f32, flash: Flash) -> f32 {
    if flash == Flash::F16 { half(x) } else { x }
}

/// `x` in f16.
fn half(x: f32) -> f32 {
    f16_to_f32(f32_to_f16(x))
}
