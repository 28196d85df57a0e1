// Rows of a matrix in any order, one element an invocation.
struct P {
    op: u32,
    zero: u32,
    n: u32,
    cols: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<u32>;
@group(0) @binding(3) var<storage, read> rows: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i < p.n {
        out[i] = x[rows[i / p.cols] * p.cols + i % p.cols];
    }
}
