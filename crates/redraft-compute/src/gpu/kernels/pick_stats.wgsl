// The logit of the argmax, the largest logit of another id, and the logit of the sample. One workgroup takes one row.
struct P {
    op: u32,
    zero: u32,
    cols: u32,
    // Where the picks and the results begin.
    argmax_at: u32,
    sample_at: u32,
    out_at: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> argmax: array<u32>;
@group(0) @binding(4) var<storage, read> sample: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

var<workgroup> most: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let row = group.x;
    let begin = row * p.cols;
    let best = min(argmax[p.argmax_at + row], p.cols - 1u);
    var m = bitcast<f32>(0xff7fffffu);
    for (var v = at; v < p.cols; v += 256u) {
        if v != best || p.cols == 1u {
            m = larger(m, x[begin + v]);
        }
    }
    most[at] = m;
    for (var half = 128u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if at < half {
            most[at] = larger(most[at], most[at + half]);
        }
    }
    workgroupBarrier();
    if at == 0u {
        put(3u * row, x[begin + best]);
        put(3u * row + 1u, most[0]);
        put(3u * row + 2u, x[begin + min(sample[p.sample_at + row], p.cols - 1u)]);
    }
}

fn put(i: u32, r: f32) {
    out[p.out_at + i] = r;
    note(i, r);
}
