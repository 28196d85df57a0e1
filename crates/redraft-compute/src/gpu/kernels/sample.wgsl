// Samples of rows of logits by inverse CDF, one row a workgroup: the tile by the running sum of shares, then the id in it by
// the running sum of weights. One invocation adds, all compute the weights.
struct P {
    op: u32,
    zero: u32,
    rows: u32,
    vocab: u32,
    tiles: u32,
    // Where the rows begin, and the factor on those of x.
    x_at: u32,
    stats_at: u32,
    tiles_at: u32,
    u_at: u32,
    out_at: u32,
    by: f32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> stats: array<f32>;
@group(0) @binding(4) var<storage, read> tiles: array<f32>;
@group(0) @binding(5) var<storage, read> u: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<u32>;

const TILE = 1024u;

var<workgroup> place: u32;
var<workgroup> weights: array<f32, 1024>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let row = (group.z * groups.y + group.y) * groups.x + group.x;
    // The same for all invocations.
    if row >= p.rows {
        return;
    }
    let maxima = p.tiles_at + 2u * row * p.tiles;
    let shares = maxima + p.tiles;
    var running = 0.0;
    var goal = 0.0;
    if at == 0u {
        var total = 0.0;
        for (var t = 0u; t < p.tiles; t++) {
            total = total + tiles[shares + t];
        }
        goal = o(u[p.u_at + row] * total);
        // Where no tile reaches the goal: the last one with a share.
        var tile = 0u;
        var before = 0.0;
        for (var t = 0u; t < p.tiles; t++) {
            let share = tiles[shares + t];
            let after = o(before + share);
            if goal <= after {
                tile = t;
                running = before;
                break;
            }
            if 0.0 < share {
                tile = t;
                running = before;
            }
            before = after;
        }
        place = tile;
    }
    workgroupBarrier();
    let first = place * TILE;
    let n = min(TILE, p.vocab - first);
    let top = tiles[maxima + place];
    let f = exponential(o(top - stats[p.stats_at + 4u * row]));
    for (var i = at; i < n; i += 256u) {
        let v = flush(x[p.x_at + row * p.vocab + first + i] * p.by);
        weights[i] = o(exponential(o(v - top)) * f);
    }
    workgroupBarrier();
    if at == 0u {
        // Where rounding keeps the sum below the goal: the last id with a weight.
        var found = 0u;
        for (var i = 0u; i < n; i++) {
            running = running + weights[i];
            if goal <= running {
                found = i;
                break;
            }
            if 0.0 < weights[i] {
                found = i;
            }
        }
        out[p.out_at + row] = first + found;
    }
}
