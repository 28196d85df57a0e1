//! Keys and values in the types of the cache ([`KvType`](crate::KvType)), 16 at a time.
//!
//! A row of 16 numbers is one channel of 16 keys (`columns`: a scale belongs to a lane and to a run of rows) or 16
//! channels of one value (`rows`: a scale belongs to a row).

use crate::cpu::vector::{Isa, LANES, Row16};
use crate::kv::{I8_LIMIT, KV_RUN};
use crate::math::{self, Lanes};

/// Rounds to f16.
#[inline(always)]
pub(crate) fn to_f16<S: Isa>(s: S, x: &[Row16], out: &mut [[u16; LANES]]) {
    assert_eq!(x.len(), out.len(), "arguments of one length");
    for (x, out) in x.iter().zip(out) {
        *out = s.low_halves(math::f16_code(s.load(x)));
    }
}

/// Numbers of f16.
#[inline(always)]
pub(crate) fn from_f16<S: Isa>(s: S, x: &[[u16; LANES]], out: &mut [Row16]) {
    assert_eq!(x.len(), out.len(), "arguments of one length");
    for (x, out) in x.iter().zip(out) {
        let code = s.load_int(&x.map(i32::from));
        s.store(math::f16_value(code), out);
    }
}

/// Within the range of the codes' scales.
#[inline(always)]
fn limit<S: Isa>(s: S, x: S::V) -> S::V {
    let (low, high) = (s.splat(-I8_LIMIT), s.splat(I8_LIMIT));
    let x = x.select_lt(high, x, high);
    x.select_lt(low, low, x)
}

#[inline(always)]
fn size<V: Lanes>(x: V) -> V {
    use crate::math::IntLanes;
    let bits = x.to_bits();
    V::from_bits(bits.and(bits.splat(0x7FFF_FFFF)))
}

/// 8-bit codes of a run of channels of 16 keys, and the scales of the keys.
#[inline(always)]
pub(crate) fn to_i8_columns<S: Isa>(s: S, x: &[Row16], codes: &mut [[i8; LANES]], scales: &mut Row16) {
    assert_eq!(x.len(), codes.len(), "arguments of one length");
    let mut peak = s.splat(0.0);
    for x in x {
        peak = peak.max(size(limit(s, s.load(x))));
    }
    let (scale, inverse) = math::int8_scales(peak);
    s.store(scale, scales);
    for (x, code) in x.iter().zip(codes) {
        *code = s.low_bytes(math::int8_code(limit(s, s.load(x)), inverse));
    }
}

/// 8-bit codes of a run of channels of values, `x[half][value]` 16 channels, and the scales of the values.
#[inline(always)]
pub(crate) fn to_i8_rows<S: Isa>(s: S, x: [&[Row16]; 2], codes: [&mut [[i8; LANES]]; 2], scales: &mut [f32]) {
    let n = scales.len();
    let [low, high] = codes;
    assert!(x.iter().all(|x| x.len() == n) && low.len() == n && high.len() == n, "arguments of one length");
    for i in 0..n {
        let a = limit(s, s.load(&x[0][i]));
        let b = limit(s, s.load(&x[1][i]));
        let peak = s.largest(size(a).max(size(b)));
        let (scale, inverse) = math::int8_scales(peak);
        scales[i] = scale;
        low[i] = s.low_bytes(math::int8_code(a, s.splat(inverse)));
        high[i] = s.low_bytes(math::int8_code(b, s.splat(inverse)));
    }
}

/// Numbers of the codes of channels `first..` of 16 keys; `scales` has a row for each run of channels.
#[inline(always)]
pub(crate) fn from_i8_columns<S: Isa>(
    s: S,
    codes: &[[i8; LANES]],
    scales: &[Row16],
    first: usize,
    out: &mut [Row16],
) {
    assert_eq!(codes.len(), out.len(), "arguments of one length");
    for (i, (code, out)) in codes.iter().zip(out).enumerate() {
        let scale = s.load(&scales[(first + i) / KV_RUN]);
        s.store(s.load_i8(code).mul(scale), out);
    }
}

/// Numbers of the codes of 16 channels of values.
#[inline(always)]
pub(crate) fn from_i8_rows<S: Isa>(s: S, codes: &[[i8; LANES]], scales: &[f32], out: &mut [Row16]) {
    assert!(codes.len() == out.len() && scales.len() == out.len(), "arguments of one length");
    for i in 0..out.len() {
        s.store(s.load_i8(&codes[i]).mul(s.splat(scales[i])), &mut out[i]);
    }
}
