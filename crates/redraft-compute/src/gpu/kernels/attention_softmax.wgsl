// Exponentials of the scores of each row and head, and the reciprocals of their sums. Sixteen invocations make one, each with one
// of the sixteen accumulators. Keys that a row does not see weigh nothing.
@group(0) @binding(2) var<storage, read> seen: array<u32>;
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;
@group(0) @binding(4) var<storage, read_write> inverses: array<f32>;

var<workgroup> lanes: array<f32, 64>;

@compute @workgroup_size(16, 4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) id: vec3<u32>) {
    let lane = id.x;
    let g = (group.y * groups.x + group.x) * 4u + id.y;
    let inside = g < p.rows * p.heads;
    let begin = g * p.keys;
    var first = 0u;
    var end = 0u;
    if inside {
        let row = p.seen_at + g / p.heads;
        first = seen[2u * row];
        end = seen[2u * row + 1u];
    }
    var most = bitcast<f32>(0xff7fffffu);
    for (var j = lane; j < p.keys; j += LANES) {
        if j >= first && j < end {
            most = larger(most, scores[begin + j]);
        }
    }
    let at = id.y * LANES + lane;
    lanes[at] = most;
    for (var half = 8u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            lanes[at] = larger(lanes[at], lanes[at + half]);
        }
    }
    workgroupBarrier();
    most = lanes[id.y * LANES];
    workgroupBarrier();
    var sum = 0.0;
    if inside {
        for (var j = lane; j < p.keys; j += LANES) {
            var e = 0.0;
            if j >= first && j < end {
                e = exponential(o(scores[begin + j] - most));
                sum = sum + e;
            }
            scores[begin + j] = e;
        }
    }
    lanes[at] = sum;
    for (var half = 8u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            lanes[at] = lanes[at] + lanes[at + half];
        }
    }
    workgroupBarrier();
    if inside && lane == 0u {
        inverses[g] = reciprocal(lanes[id.y * LANES]);
    }
}
