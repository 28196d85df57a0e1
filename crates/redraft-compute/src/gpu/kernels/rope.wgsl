// Rotary position embedding, one channel an invocation.
struct P {
    op: u32,
    zero: u32,
    n: u32,
    cols: u32,
    head: u32,
    rotated: u32,
    // 0: pairs (i, i + rotated / 2); 1: pairs (2 i, 2 i + 1).
    interleaved: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<f32>;
// Cosines, then sines.
@group(0) @binding(3) var<storage, read> angles: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.n {
        return;
    }
    let c = i % p.head;
    var r = x[i];
    if c < p.rotated {
        let half = p.rotated / 2u;
        let table = (i / p.cols) * p.rotated;
        var pair = c % half;
        var second = c >= half;
        var other = i + half;
        if second {
            other = i - half;
        }
        if p.interleaved != 0u {
            pair = c / 2u;
            second = (c & 1u) == 1u;
            other = i ^ 1u;
            // A head may begin at an odd place.
            if second {
                other = i - 1u;
            } else {
                other = i + 1u;
            }
        }
        let cosine = angles[table + pair];
        let sine = angles[table + half + pair];
        if second {
            r = flush(o(r * cosine) + o(x[other] * sine));
        } else {
            r = flush(o(r * cosine) - o(x[other] * sine));
        }
    }
    out[i] = r;
    note(i, r);
}
