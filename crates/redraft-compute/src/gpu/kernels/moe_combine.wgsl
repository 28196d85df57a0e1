// What the experts of a token say, weighed and added slot after slot; one number an invocation.
struct P {
    op: u32,
    zero: u32,
    n: u32,
    cols: u32,
    top_k: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> y: array<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.n {
        return;
    }
    let token = i / p.cols;
    var sum = 0.0;
    for (var slot = 0u; slot < p.top_k; slot++) {
        let pair = token * p.top_k + slot;
        sum = sum + o(weights[pair] * y[pair * p.cols + i % p.cols]);
    }
    let r = flush(sum);
    out[i] = r;
    note(i, r);
}
