// The functions of docs/numerics.md, sections 2, 3 and 5, and what every kernel begins with.
//
// `o` stands around each result that a compiler could otherwise merge with its neighbours: products that are added, sums that
// are subtracted from. In SPIR-V the decoration NoContraction does that and `o` is nothing; where a driver compiles this text
// itself, `o` hides its argument behind a zero that only the host knows.

// What a kernel finds wrong, one word for each op: the least 2 * element + (1 if it is NaN).
@group(0) @binding(1) var<storage, read_write> status: array<atomic<u32>>;

const LANES = 16u;
const INFINITY_BITS = 0x7f800000u;
const MAGNITUDE = 0x7fffffffu;

fn flush(x: f32) -> f32 {
    return select(x, 0.0, (bitcast<u32>(x) & MAGNITUDE) < 0x26800000u);
}

fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & INFINITY_BITS) != INFINITY_BITS;
}

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & MAGNITUDE) > INFINITY_BITS;
}

fn infinity() -> f32 {
    return bitcast<f32>(INFINITY_BITS | p.zero);
}

fn nan() -> f32 {
    return bitcast<f32>(0x7fc00000u | p.zero);
}

// Element `i` of the result of the op is `x`.
fn note(i: u32, x: f32) {
    if !is_finite(x) {
        atomicMin(&status[p.op], 2u * i + select(0u, 1u, is_nan(x)));
    }
}

fn larger(a: f32, b: f32) -> f32 {
    return select(a, b, a < b);
}

fn exponential(x: f32) -> f32 {
    let low = bitcast<f32>(0xc20aa122u);
    let high = bitcast<f32>(0x42b17217u);
    var t = select(high, x, x < high);
    t = select(low, t, low < t);
    let n = floor(o(t * bitcast<f32>(0x3fb8aa3bu)) + 0.5);
    let r = o(t - o(n * bitcast<f32>(0x3f318000u))) - o(n * bitcast<f32>(0xb95e8083u));
    var y = bitcast<f32>(0x39506967u);
    y = o(y * r) + bitcast<f32>(0x3ab743ceu);
    y = o(y * r) + bitcast<f32>(0x3c088908u);
    y = o(y * r) + bitcast<f32>(0x3d2aa9c1u);
    y = o(y * r) + bitcast<f32>(0x3e2aaaaau);
    y = o(y * r) + 0.5;
    let q = o(r + o(y * o(r * r))) + 1.0;
    y = bitcast<f32>(bitcast<u32>(q) + (bitcast<u32>(i32(n)) << 23u));
    y = select(y, 0.0, x < low);
    y = select(y, infinity(), high < x);
    return select(y, x, is_nan(x));
}

fn logarithm(x: f32) -> f32 {
    let t = bitcast<i32>(x) + (0x3f800000 - 0x3f3504f3);
    let e = f32((t >> 23u) - 127);
    let f = bitcast<f32>((t & 0x007fffff) + 0x3f3504f3) - 1.0;
    let z = o(f * f);
    var y = bitcast<f32>(0x3d9021bbu);
    y = o(y * f) + bitcast<f32>(0xbdebd1b8u);
    y = o(y * f) + bitcast<f32>(0x3def251au);
    y = o(y * f) + bitcast<f32>(0xbdfe5d4fu);
    y = o(y * f) + bitcast<f32>(0x3e11e9bfu);
    y = o(y * f) + bitcast<f32>(0xbe2aae50u);
    y = o(y * f) + bitcast<f32>(0x3e4cceacu);
    y = o(y * f) + bitcast<f32>(0xbe7ffffcu);
    y = o(y * f) + bitcast<f32>(0x3eaaaaaau);
    y = o(y * o(f * z));
    y = o(y + o(e * bitcast<f32>(0xb95e8083u))) - o(z * 0.5);
    y = o(f + o(y)) + o(e * bitcast<f32>(0x3f318000u));
    let bits = bitcast<i32>(x);
    // Below the normal numbers, or not a number.
    y = select(y, nan(), bits < 0x00800000 || is_nan(x));
    return select(y, x, bits == 0x7f800000);
}

fn reciprocal(x: f32) -> f32 {
    var y = bitcast<f32>(0x7ef311c7u - bitcast<u32>(x));
    y = o(y * o(2.0 - o(x * y)));
    y = o(y * o(2.0 - o(x * y)));
    y = o(y * o(2.0 - o(x * y)));
    return y + o(y * o(1.0 - o(x * y)));
}

fn reciprocal_root(x: f32) -> f32 {
    let h = o(0.5 * x);
    var y = bitcast<f32>(0x5f3759dfu - (bitcast<u32>(x) >> 1u));
    y = o(y * o(1.5 - o(o(h * y) * y)));
    y = o(y * o(1.5 - o(o(h * y) * y)));
    y = o(y * o(1.5 - o(o(h * y) * y)));
    return y + o(y * o(0.5 - o(o(h * y) * y)));
}

fn hyperbolic_tangent(raw: f32) -> f32 {
    let x = flush(raw);
    let sign = bitcast<u32>(x) & 0x80000000u;
    let a = bitcast<f32>(bitcast<u32>(x) & MAGNITUDE);
    let z = o(x * x);
    var y = bitcast<f32>(0xbbbaf0eau);
    y = o(y * z) + bitcast<f32>(0x3ca9134eu);
    y = o(y * z) + bitcast<f32>(0xbd5c1e2du);
    y = o(y * z) + bitcast<f32>(0x3e088393u);
    y = o(y * z) + bitcast<f32>(0xbeaaaa99u);
    let small = x + o(x * o(z * y));
    let c = select(a, 10.0, 10.0 < a);
    let r = reciprocal(exponential(o(c + c)) + 1.0);
    let large = bitcast<f32>(bitcast<u32>(1.0 - o(r + r)) | sign);
    return select(large, small, a < 0.625);
}

fn sigmoid(x: f32) -> f32 {
    let e = exponential(bitcast<f32>(bitcast<u32>(x) | 0x80000000u));
    let r = reciprocal(1.0 + e);
    return select(r, o(e * r), x < 0.0);
}

fn silu(raw: f32) -> f32 {
    let x = flush(raw);
    return flush(x * sigmoid(x));
}

fn gelu(raw: f32) -> f32 {
    let x = flush(raw);
    let u = o(x * (bitcast<f32>(0x3fcc422au) + o(bitcast<f32>(0x3d922279u) * o(x * x))));
    return flush(x * sigmoid(u));
}

// act: 0 gelu, 1 silu.
fn activation(act: u32, x: f32) -> f32 {
    if act == 0u {
        return gelu(x);
    }
    return silu(x);
}

// The number of a 16-bit float.
fn from_f16(h: u32) -> f32 {
    let sign = (h & 0x8000u) << 16u;
    let magnitude = h & 0x7fffu;
    var bits = (magnitude << 13u) + (112u << 23u);
    if magnitude >= 0x7c00u {
        bits += 112u << 23u;
    }
    if magnitude < 0x400u {
        // A multiple of 2^-24, below 2^-14: an integer of ten bits.
        bits = bitcast<u32>(f32(magnitude) * bitcast<f32>(0x33800000u));
    }
    return bitcast<f32>(bits | sign);
}

// The bits of the 16-bit float nearest to a finite number of magnitude 65504 at most, ties to even.
fn to_f16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & MAGNITUDE;
    let exponent = magnitude >> 23u;
    if exponent >= 113u {
        let m = magnitude - (112u << 23u);
        return sign | ((m + 0xfffu + ((m >> 13u) & 1u)) >> 13u);
    }
    if exponent < 102u {
        return sign;
    }
    // A multiple of 2^-24.
    let m = (magnitude & 0x7fffffu) | 0x800000u;
    let shift = 126u - exponent;
    return sign | ((m + (1u << (shift - 1u)) - 1u + ((m >> shift) & 1u)) >> shift);
}

fn clamp_f16(x: f32) -> f32 {
    let y = select(x, 65504.0, 65504.0 < x);
    return select(y, -65504.0, y < -65504.0);
}

// Rounded to a bfloat16; infinities and NaN stay what they are.
fn round_bf16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let rounded = bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u);
    return select(x, rounded, is_finite(x));
}

// Rounded to a 16-bit float; too large ones become the largest, infinities and NaN stay what they are.
fn round_f16(x: f32) -> f32 {
    if !is_finite(x) {
        return x;
    }
    return from_f16(to_f16(clamp_f16(x)));
}

// The scale of codes of 8 bits whose largest magnitude is `peak`, and its reciprocal.
fn code_scale(peak: f32) -> vec2<f32> {
    let scale = flush(peak * bitcast<f32>(0x3c010204u));
    if is_nan(scale) || bitcast<f32>(227u << 23u) < scale {
        return vec2(infinity(), 0.0);
    }
    if scale == 0.0 {
        return vec2(0.0, 0.0);
    }
    return vec2(scale, reciprocal(scale));
}

fn code_of(x: f32, inverse: f32) -> i32 {
    return bitcast<i32>(o(x * inverse) + 12582912.0) - 0x4b400000;
}

// The place of an invocation among all of a grid of up to three dimensions of workgroups of 256.
fn linear(group: vec3<u32>, groups: vec3<u32>, at: u32) -> u32 {
    return ((group.z * groups.y + group.y) * groups.x + group.x) * 256u + at;
}
// One list of ids in all rows of logits that were copied; one id of one row an invocation.
struct P {
    op: u32,
    zero: u32,
    // Rows times ids.
    n: u32,
    ids: u32,
    cols: u32,
    // 0: a bias for each id. 1: ids that were seen. 2: banned ids. 3: ids that are banned in some rows. 4: ids that are looked at.
    kind: u32,
    // Of the rows in the list of rows.
    row_at: u32,
    more: f32,
    less: f32,
    presence: f32,
    never: f32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
// 0: biases. 1: for each row the id that does not count. 3: for each row whether.
@group(0) @binding(3) var<storage, read> list: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.n {
        return;
    }
    let row = i / p.ids;
    let id = ids[i % p.ids];
    if id >= p.cols {
        return;
    }
    let to = row * p.cols + id;
    var x = out[to];
    switch p.kind {
        case 0u: {
            x = flush(x + bitcast<f32>(list[i % p.ids]));
        }
        case 1u: {
            if list[p.row_at + row] == id {
                return;
            }
            x = flush(o(x * select(p.less, p.more, x < 0.0)) - p.presence);
        }
        case 2u: {
            x = p.never;
        }
        case 3u: {
            if list[p.row_at + row] == 0u {
                return;
            }
            x = p.never;
        }
        default: {
            note(to, x);
            return;
        }
    }
    out[to] = x;
}
fn o(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ p.zero);
}
