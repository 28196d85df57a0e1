// Root-mean-square norm of groups of `n` numbers. Sixteen invocations make one, each with one of the sixteen accumulators.
struct P {
    op: u32,
    zero: u32,
    groups: u32,
    n: u32,
    inverse: f32,
    eps: f32,
    // Whether there is a weight.
    weighted: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

var<workgroup> sums: array<f32, 64>;

@compute @workgroup_size(16, 4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) id: vec3<u32>) {
    let lane = id.x;
    let g = (group.y * groups.x + group.x) * 4u + id.y;
    let begin = g * p.n;
    var sum = 0.0;
    if g < p.groups {
        for (var i = lane; i < p.n; i += LANES) {
            let v = x[begin + i];
            sum = sum + o(v * v);
        }
    }
    let at = id.y * LANES + lane;
    sums[at] = sum;
    for (var half = 8u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            sums[at] = sums[at] + sums[at + half];
        }
    }
    workgroupBarrier();
    if g >= p.groups {
        return;
    }
    let r = reciprocal_root(o(sums[id.y * LANES] * p.inverse) + p.eps);
    for (var i = lane; i < p.n; i += LANES) {
        var v = o(x[begin + i] * r);
        if p.weighted != 0u {
            v = v * weight[i];
        }
        v = flush(v);
        out[begin + i] = v;
        note(begin + i, v);
    }
}
