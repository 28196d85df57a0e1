// What a device makes of operations that the contract rests on; one case an invocation, bits in and out.
struct P {
    op: u32,
    zero: u32,
    n: u32,
    kind: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> a: array<u32>;
@group(0) @binding(3) var<storage, read> b: array<u32>;
@group(0) @binding(4) var<storage, read> c: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<u32>;

// a * b + c rounded once, as far as sums of rounded parts can tell: what a fused operation gives.
fn fused(x: f32, y: f32, z: f32) -> f32 {
    let product = o(x * y);
    let xs = o(x * 4097.0);
    let xh = o(xs - o(xs - x));
    let xl = o(x - xh);
    let ys = o(y * 4097.0);
    let yh = o(ys - o(ys - y));
    let yl = o(y - yh);
    let lost = o(o(o(o(xh * yh) - product) + o(xh * yl)) + o(xl * yh)) + o(xl * yl);
    let sum = o(product + z);
    let part = o(sum - product);
    let rest = o(product - o(sum - part)) + o(z - part);
    return sum + o(o(lost) + o(rest));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.n {
        return;
    }
    let x = bitcast<f32>(a[i]);
    let y = bitcast<f32>(b[i]);
    let z = bitcast<f32>(c[i]);
    var r = 0.0;
    switch p.kind {
        case 0u: {
            r = o(x * y) + z;
        }
        case 1u: {
            r = o(x + y) - y;
        }
        // What a sum lost.
        case 2u: {
            let s = o(x + y);
            let part = o(s - x);
            r = o(x - o(s - part)) + o(y - part);
        }
        case 3u: {
            r = exponential(x);
        }
        case 4u: {
            r = logarithm(x);
        }
        case 5u: {
            r = reciprocal(x);
        }
        case 6u: {
            r = reciprocal_root(x);
        }
        case 7u: {
            r = hyperbolic_tangent(x);
        }
        case 8u: {
            r = gelu(x);
        }
        case 9u: {
            r = f32(bitcast<i32>(a[i]));
        }
        case 10u: {
            r = from_f16(a[i]);
        }
        case 11u: {
            r = bitcast<f32>(to_f16(x));
        }
        case 12u: {
            r = round_bf16(x);
        }
        case 13u: {
            r = bitcast<f32>(u32(dot4(a[i], b[i])));
        }
        case 14u: {
            r = bitcast<f32>(u32(bitcast<i32>(a[i]) * bitcast<i32>(b[i]) + (bitcast<i32>(c[i]) >> 3u)));
        }
        case 15u: {
            r = bitcast<f32>(u32(code_of(x, y)));
        }
        case 16u: {
            r = fused(x, y, z);
        }
        default: {
            r = floor(x);
        }
    }
    out[i] = bitcast<u32>(r);
}
