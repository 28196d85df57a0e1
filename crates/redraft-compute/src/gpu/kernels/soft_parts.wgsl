// Probabilities with which ids take part in soft embeddings, and in which groups of 64 rows any takes part: one id of a group
// an invocation.
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
    by: f32,
    // Below it an id does not take part.
    cut: f32,
    // Whether probabilities are rounded to bfloat16.
    rounds: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> stats: array<f32>;
@group(0) @binding(4) var<storage, read> tiles: array<f32>;
@group(0) @binding(5) var<storage, read_write> probabilities: array<f32>;
@group(0) @binding(6) var<storage, read_write> flags: array<u32>;

const GROUP = 64u;
const TILE = 1024u;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    let first = i / p.vocab * GROUP;
    if first >= p.rows {
        return;
    }
    let id = i % p.vocab;
    var any = 0u;
    for (var row = first; row < min(first + GROUP, p.rows); row++) {
        let m = stats[p.stats_at + 4u * row];
        let r = reciprocal(stats[p.stats_at + 4u * row + 3u]);
        let top = tiles[p.tiles_at + 2u * row * p.tiles + id / TILE];
        var probability = 0.0;
        if p.cut <= flush(exponential(o(top - m)) * r) {
            let v = flush(x[p.x_at + row * p.vocab + id] * p.by);
            probability = flush(exponential(o(v - m)) * r);
            if p.cut <= probability {
                any = 1u;
            } else {
                probability = 0.0;
            }
        }
        if p.rounds != 0u {
            probability = round_bf16(probability);
        }
        probabilities[row * p.vocab + id] = probability;
    }
    flags[i] = any;
}
