// Statistics of tiles of 1024 logits of a row: maximum, sum of exp(x - m), sum of exp(x - m) * (x - m), and the first place of
// the maximum in the tile. Sixteen invocations make one, each with one of the sixteen accumulators of both sums.
struct P {
    op: u32,
    zero: u32,
    rows: u32,
    vocab: u32,
    tiles: u32,
    // Where the rows begin in x, and the factor on them.
    x_at: u32,
    by: f32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<u32>;

const TILE = 1024u;
// Where no logit is the maximum, since none is a number.
const NOWHERE = 0xffffffffu;

var<workgroup> maxima: array<f32, 256>;
var<workgroup> places: array<u32, 256>;
var<workgroup> sums: array<f32, 256>;
var<workgroup> moments: array<f32, 256>;

@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) id: vec3<u32>) {
    let lane = id.x;
    let mine = id.y * LANES;
    let part = ((group.z * groups.y + group.y) * groups.x + group.x) * 16u + id.y;
    let first = (part % p.tiles) * TILE;
    let begin = p.x_at + (part / p.tiles) * p.vocab + first;
    let there = part < p.rows * p.tiles;
    let n = select(0u, min(TILE, p.vocab - first), there);

    // No logit is -0, so that a maximum of zero is +0.
    var m = bitcast<f32>(0xff800000u | p.zero);
    var place = NOWHERE;
    for (var i = lane; i < n; i += LANES) {
        let v = flush(x[begin + i] * p.by);
        if m < v {
            m = v;
            place = i;
        }
    }
    maxima[mine + lane] = m;
    places[mine + lane] = place;
    for (var half = 8u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            let a = maxima[mine + lane];
            let b = maxima[mine + lane + half];
            let at = places[mine + lane + half];
            if a < b || (a == b && at < places[mine + lane]) {
                maxima[mine + lane] = b;
                places[mine + lane] = at;
            }
        }
    }
    workgroupBarrier();
    m = maxima[mine];

    var sum = 0.0;
    var moment = 0.0;
    for (var i = lane; i < n; i += LANES) {
        let d = o(flush(x[begin + i] * p.by) - m);
        let e = exponential(d);
        sum = sum + e;
        moment = moment + o(e * d);
    }
    sums[mine + lane] = sum;
    moments[mine + lane] = moment;
    for (var half = 8u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            sums[mine + lane] = sums[mine + lane] + sums[mine + lane + half];
            moments[mine + lane] = moments[mine + lane] + moments[mine + lane + half];
        }
    }
    if there && lane == 0u {
        parts[4u * part] = bitcast<u32>(m);
        parts[4u * part + 1u] = bitcast<u32>(sums[mine]);
        parts[4u * part + 2u] = bitcast<u32>(moments[mine]);
        parts[4u * part + 3u] = places[mine];
    }
}
