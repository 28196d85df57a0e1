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
// Leaves the logits of a row that are among the `top_k` largest, and of these the most likely ones that have the probability
// `top_p` together (docs/numerics.md, Restrict). One workgroup takes one row. The ids are walked in pieces, one to a dispatch,
// since drivers end what takes long; what is known of a row stands in `state` between them.
struct P {
    op: u32,
    zero: u32,
    rows: u32,
    cols: u32,
    // 0: no limit.
    top_k: u32,
    top_p: f32,
    // 0: top_k. 1: the bound of probability. 2: a piece. 3: what is left is taken out.
    phase: u32,
    never: f32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
// Of each row: key and id of the last one that is kept, in the order of falling logits and rising ids; ids that were not walked;
// whether it is done; the sum before the next one; the bound; the largest logit.
@group(0) @binding(3) var<storage, read_write> state: array<u32>;

const STATE = 8u;
const SIZE = 256u;
// Ids that are sorted at once.
const PIECE = 1024u;

var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> keys: array<u32, 1024>;
var<workgroup> ids: array<u32, 1024>;
var<workgroup> lanes: array<f32, 16>;
var<workgroup> found: atomic<u32>;
// What the first invocation tells the others.
var<workgroup> told: array<u32, 4>;

// Larger for larger numbers.
fn key_of(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    return bits ^ select(0x80000000u, 0xffffffffu, (bits >> 31u) == 1u);
}

fn of_key(key: u32) -> f32 {
    return bitcast<f32>(key ^ select(0xffffffffu, 0x80000000u, (key >> 31u) == 1u));
}

// Whether an id comes behind `key`, `id` in the order of falling logits and rising ids.
fn behind(k: u32, v: u32, key: u32, id: u32) -> bool {
    return k < key || (k == key && v > id);
}

// The key of place `n` (from 1) among the ids behind `key`, `id`; of how many there are, and how many have this key: told[0..2].
fn select_key(begin: u32, at: u32, wanted: u32, key: u32, id: u32) {
    var prefix = 0u;
    var mask = 0u;
    var n = wanted;
    for (var shift = 24u; ; shift -= 8u) {
        atomicStore(&counts[at], 0u);
        workgroupBarrier();
        for (var v = at; v < p.cols; v += SIZE) {
            let k = key_of(x[begin + v]);
            if (k & mask) == prefix && behind(k, v, key, id) {
                atomicAdd(&counts[(k >> shift) & 255u], 1u);
            }
        }
        workgroupBarrier();
        if at == 0u {
            var b = 255u;
            var left = n;
            while b > 0u && atomicLoad(&counts[b]) < left {
                left -= atomicLoad(&counts[b]);
                b--;
            }
            told[0] = prefix | (b << shift);
            told[1] = left;
            told[2] = atomicLoad(&counts[b]);
        }
        workgroupBarrier();
        prefix = told[0];
        n = told[1];
        mask |= 255u << shift;
        workgroupBarrier();
        if shift == 0u {
            break;
        }
    }
}

// The id of place `wanted` (from 1) among those with the key `border` behind `key`, `id`: told[3].
fn select_id(begin: u32, at: u32, wanted: u32, border: u32, key: u32, id: u32) {
    var prefix = 0u;
    var mask = 0u;
    var n = wanted;
    for (var shift = 24u; ; shift -= 8u) {
        atomicStore(&counts[at], 0u);
        workgroupBarrier();
        for (var v = at; v < p.cols; v += SIZE) {
            if (v & mask) == prefix && key_of(x[begin + v]) == border && behind(border, v, key, id) {
                atomicAdd(&counts[(v >> shift) & 255u], 1u);
            }
        }
        workgroupBarrier();
        if at == 0u {
            var b = 0u;
            var left = n;
            while b < 255u && atomicLoad(&counts[b]) < left {
                left -= atomicLoad(&counts[b]);
                b++;
            }
            told[3] = prefix | (b << shift);
            told[1] = left;
        }
        workgroupBarrier();
        prefix = told[3];
        n = told[1];
        mask |= 255u << shift;
        workgroupBarrier();
        if shift == 0u {
            break;
        }
    }
}

// Logits below the one of place `top_k`.
fn largest(begin: u32, at: u32) {
    select_key(begin, at, p.top_k, 0xffffffffu, 0u);
    let least = of_key(told[0]);
    for (var v = at; v < p.cols; v += SIZE) {
        if x[begin + v] < least {
            x[begin + v] = p.never;
        }
    }
}

fn bound_of(begin: u32, at: u32, to: u32) {
    select_key(begin, at, 1u, 0xffffffffu, 0u);
    let most = of_key(told[0]);
    workgroupBarrier();
    if at < LANES {
        var sum = 0.0;
        for (var v = at; v < p.cols; v += LANES) {
            sum = sum + exponential(o(x[begin + v] - most));
        }
        lanes[at] = sum;
    }
    for (var half = 8u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if at < half {
            lanes[at] = lanes[at] + lanes[at + half];
        }
    }
    workgroupBarrier();
    if at == 0u {
        state[to] = 0xffffffffu;
        state[to + 1u] = 0u;
        state[to + 2u] = p.cols;
        state[to + 3u] = 0u;
        state[to + 4u] = 0u;
        state[to + 5u] = bitcast<u32>(p.top_p * lanes[0]);
        state[to + 6u] = bitcast<u32>(most);
    }
}

fn piece(begin: u32, at: u32, to: u32) {
    let key = state[to];
    let id = state[to + 1u];
    let left = state[to + 2u];
    // The same for all invocations.
    if state[to + 3u] != 0u || left == 0u {
        return;
    }
    select_key(begin, at, min(PIECE, left), key, id);
    let border = told[0];
    let wanted = told[1];
    let all = wanted == told[2];
    workgroupBarrier();
    // Of the ids with the border's key the lowest, as many as there is room for.
    var limit = 0xffffffffu;
    if !all {
        select_id(begin, at, wanted, border, key, id);
        limit = told[3];
        workgroupBarrier();
    }
    if at == 0u {
        atomicStore(&found, 0u);
    }
    for (var i = at; i < PIECE; i += SIZE) {
        keys[i] = 0u;
        ids[i] = 0xffffffffu;
    }
    workgroupBarrier();
    for (var v = at; v < p.cols; v += SIZE) {
        let k = key_of(x[begin + v]);
        if behind(k, v, key, id) && (k > border || (k == border && v <= limit)) {
            let to = atomicAdd(&found, 1u);
            if to < PIECE {
                keys[to] = k;
                ids[to] = v;
            }
        }
    }
    workgroupBarrier();
    let n = min(atomicLoad(&found), PIECE);
    for (var size = 2u; size <= PIECE; size *= 2u) {
        for (var step = size / 2u; step > 0u; step /= 2u) {
            for (var i = at; i < PIECE; i += SIZE) {
                let j = i ^ step;
                if j > i {
                    let later = behind(keys[i], ids[i], keys[j], ids[j]);
                    if later == ((i & size) == 0u) {
                        let tk = keys[i];
                        keys[i] = keys[j];
                        keys[j] = tk;
                        let ti = ids[i];
                        ids[i] = ids[j];
                        ids[j] = ti;
                    }
                }
            }
            workgroupBarrier();
        }
    }
    if at == 0u {
        walk(to, n);
    }
}

// Takes sorted ids while the sum before them is not above the bound.
fn walk(to: u32, n: u32) {
    let most = bitcast<f32>(state[to + 6u]);
    let bound = bitcast<f32>(state[to + 5u]);
    var before = bitcast<f32>(state[to + 4u]);
    var taken = 0u;
    while taken < n && before <= bound {
        before = before + exponential(o(of_key(keys[taken]) - most));
        taken++;
    }
    if taken > 0u {
        state[to] = keys[taken - 1u];
        state[to + 1u] = ids[taken - 1u];
    }
    state[to + 2u] -= taken;
    state[to + 3u] = select(0u, 1u, before > bound);
    state[to + 4u] = bitcast<u32>(before);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let begin = group.x * p.cols;
    let to = group.x * STATE;
    switch p.phase {
        case 0u: {
            largest(begin, at);
        }
        case 1u: {
            bound_of(begin, at, to);
        }
        case 2u: {
            piece(begin, at, to);
        }
        default: {
            for (var v = at; v < p.cols; v += SIZE) {
                if behind(key_of(x[begin + v]), v, state[to], state[to + 1u]) {
                    x[begin + v] = p.never;
                }
            }
        }
    }
}
fn o(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ p.zero);
}
