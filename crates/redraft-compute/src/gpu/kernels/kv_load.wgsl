// Rows of a cache as f32, one number an invocation.
struct P {
    op: u32,
    zero: u32,
    n: u32,
    width: u32,
    // First row of the cache and of the result.
    begin: u32,
    to: u32,
    kind: u32,
    stride: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.n {
        return;
    }
    let c = i % p.width;
    let row = (p.begin + i / p.width) * p.stride;
    var r = 0.0;
    if p.kind == 0u {
        r = bitcast<f32>(x[row + c]);
    } else if p.kind == 1u {
        r = flush(from_f16((x[row + c / 2u] >> (16u * (c & 1u))) & 0xffffu));
    } else {
        let code = extractBits(i32(x[row + c / 4u]), 8u * (c & 3u), 8u);
        r = f32(code) * bitcast<f32>(x[row + (p.width + 3u) / 4u + c / 32u]);
    }
    out[p.to * p.width + i] = r;
}
