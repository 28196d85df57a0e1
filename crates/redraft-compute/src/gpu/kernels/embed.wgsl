// Rows of a table times a constant, one element an invocation; rows that another slab of the table has are left alone.
struct P {
    op: u32,
    zero: u32,
    n: u32,
    cols: u32,
    stride: u32,
    kind: u32,
    heads_at: u32,
    subs_at: u32,
    unit_log: u32,
    sub_log: u32,
    mins: u32,
    // Rows of the table that the slab has.
    first: u32,
    count: u32,
    by: f32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read> w: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.n {
        return;
    }
    let id = ids[i / p.cols];
    if id < p.first || id - p.first >= p.count {
        return;
    }
    let r = flush(weight(id - p.first, i % p.cols) * p.by);
    out[i] = r;
    note(i, r);
}
