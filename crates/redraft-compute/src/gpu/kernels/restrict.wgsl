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
