// Ops on single elements: `n` of them, one an invocation.
struct P {
    op: u32,
    zero: u32,
    n: u32,
    // What is done, and with what.
    kind: u32,
    a: f32,
    b: f32,
    first: u32,
    count: u32,
    // Where y begins.
    y_at: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> y: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.n {
        return;
    }
    let value = x[i];
    var r = value;
    switch p.kind {
        // Scale.
        case 0u: {
            r = flush(value * p.a);
        }
        // Add, from element `first` on.
        case 1u: {
            if i >= p.first && i - p.first < p.count {
                r = flush(value + y[p.y_at + i - p.first]);
            }
        }
        // Glu: gelu, silu.
        case 2u: {
            r = flush(gelu(value) * y[i]);
        }
        case 3u: {
            r = flush(silu(value) * y[i]);
        }
        // Softcap.
        case 4u: {
            r = flush(p.a * hyperbolic_tangent(o(value * p.b)));
        }
        // Rounding to f16 and to bfloat16.
        case 5u: {
            r = round_f16(value);
        }
        default: {
            r = round_bf16(value);
        }
    }
    out[i] = r;
    if p.op != 0xffffffffu {
        note(i, r);
    }
}
