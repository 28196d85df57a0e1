// Leaves the logits of a row that are among the `top_k` largest, and of these the most likely ones that have the probability
// `top_p` together (docs/numerics.md, Restrict). One workgroup takes one row.
struct P {
    op: u32,
    zero: u32,
    rows: u32,
    cols: u32,
    // 0: no limit.
    top_k: u32,
    top_p: f32,
    // Whether there is a limit by probability.
    nucleus: u32,
    never: f32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

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
var<workgroup> before: f32;

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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let begin = group.x * p.cols;
    if p.top_k != 0u {
        select_key(begin, at, p.top_k, 0xffffffffu, 0u);
        let least = of_key(told[0]);
        for (var v = at; v < p.cols; v += SIZE) {
            if x[begin + v] < least {
                x[begin + v] = p.never;
            }
        }
        storageBarrier();
        workgroupBarrier();
    }
    if p.nucleus == 0u {
        return;
    }
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
    let bound = p.top_p * lanes[0];
    if at == 0u {
        before = 0.0;
    }
    // The last id that is kept, in the order of falling logits and rising ids.
    var key = 0xffffffffu;
    var id = 0u;
    var left = p.cols;
    loop {
        if left == 0u {
            break;
        }
        select_key(begin, at, min(PIECE, left), key, id);
        let border = told[0];
        // Of those with the border's key only as many as there is room for are sorted with the others.
        let all = told[1] == told[2] || left <= PIECE;
        let strict = !all;
        workgroupBarrier();
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
            if behind(k, v, key, id) && (k > border || (!strict && k == border)) {
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
            var i = 0u;
            while i < n && before <= bound {
                before = before + exponential(o(of_key(keys[i]) - most));
                key = keys[i];
                id = ids[i];
                i++;
            }
            var taken = i;
            if strict && i == n {
                // Many ids of one logit, from the lowest on.
                let e = exponential(o(of_key(border) - most));
                for (var v = 0u; v < p.cols && before <= bound; v++) {
                    if key_of(x[begin + v]) == border && behind(border, v, key, id) {
                        before = before + e;
                        key = border;
                        id = v;
                        taken++;
                    }
                }
            }
            told[0] = key;
            told[1] = id;
            told[2] = taken;
            told[3] = select(0u, 1u, before > bound);
        }
        workgroupBarrier();
        key = told[0];
        id = told[1];
        left -= min(told[2], left);
        let done = told[3] == 1u;
        workgroupBarrier();
        if done {
            break;
        }
    }
    for (var v = at; v < p.cols; v += SIZE) {
        if behind(key_of(x[begin + v]), v, key, id) {
            x[begin + v] = p.never;
        }
    }
}
