// Statistics of rows of logits from those of their tiles, tile after tile; one row an invocation.
struct P {
    op: u32,
    zero: u32,
    rows: u32,
    tiles: u32,
    // Where the rows begin.
    stats_at: u32,
    tiles_at: u32,
    argmax_at: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> parts: array<u32>;
@group(0) @binding(3) var<storage, read_write> stats: array<f32>;
@group(0) @binding(4) var<storage, read_write> tiles: array<f32>;
@group(0) @binding(5) var<storage, read_write> argmax: array<u32>;

const TILE = 1024u;

fn put(row: u32, i: u32, x: f32) {
    let r = flush(x);
    stats[p.stats_at + 4u * row + i] = r;
    note(4u * row + i, r);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let row = ((group.z * groups.y + group.y) * groups.x + group.x) * 64u + at;
    if row >= p.rows {
        return;
    }
    let begin = 4u * row * p.tiles;
    var m = bitcast<f32>(0xff800000u | p.zero);
    var found = 0u;
    for (var t = 0u; t < p.tiles; t++) {
        let top = bitcast<f32>(parts[begin + 4u * t]);
        if m < top {
            m = top;
            found = t * TILE + parts[begin + 4u * t + 3u];
        }
    }
    // What is not finite in a tile makes the sums of its row not finite, so that `tiles` need not be looked at.
    let to = p.tiles_at + 2u * row * p.tiles;
    var sum = 0.0;
    var moment = 0.0;
    for (var t = 0u; t < p.tiles; t++) {
        let top = bitcast<f32>(parts[begin + 4u * t]);
        let d = o(top - m);
        let f = exponential(d);
        let share = o(bitcast<f32>(parts[begin + 4u * t + 1u]) * f);
        sum = sum + share;
        moment = moment + o(o(f * bitcast<f32>(parts[begin + 4u * t + 2u])) + o(share * d));
        tiles[to + t] = top;
        tiles[to + p.tiles + t] = flush(share);
    }
    let log = logarithm(sum);
    put(row, 0u, m);
    put(row, 1u, m + log);
    put(row, 2u, log - o(moment * reciprocal(sum)));
    put(row, 3u, sum);
    argmax[p.argmax_at + row] = found;
}
