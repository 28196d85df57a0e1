// Rows of keys or values in the form of a cache (docs/numerics.md, section 13): f32 words; f16, two in a word; codes of 8 bits, four
// in a word, and behind them one scale for each run of 32 channels. One invocation makes one run.
struct P {
    op: u32,
    zero: u32,
    // Runs of all rows.
    runs: u32,
    width: u32,
    // First row of x and of the cache.
    x_at: u32,
    to: u32,
    // 0 f32, 1 f16, 2 codes.
    kind: u32,
    // Words of a row of the cache.
    stride: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;

const RUN = 32u;

fn clamp_code(x: f32) -> f32 {
    let most = bitcast<f32>(227u << 23u);
    let y = select(x, most, most < x);
    return select(y, -most, y < -most);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.runs {
        return;
    }
    let each = (p.width + RUN - 1u) / RUN;
    let row = i / each;
    let run = i % each;
    let begin = (p.x_at + row) * p.width;
    let first = run * RUN;
    let end = min(first + RUN, p.width);
    let to = (p.to + row) * p.stride;
    if p.kind == 0u {
        for (var c = first; c < end; c++) {
            out[to + c] = bitcast<u32>(x[begin + c]);
        }
        return;
    }
    if p.kind == 1u {
        for (var c = first; c < end; c += 2u) {
            var word = to_f16(clamp_f16(x[begin + c]));
            if c + 1u < end {
                word |= to_f16(clamp_f16(x[begin + c + 1u])) << 16u;
            }
            out[to + c / 2u] = word;
        }
        return;
    }
    var peak = 0.0;
    for (var c = first; c < end; c++) {
        let v = clamp_code(x[begin + c]);
        peak = larger(peak, bitcast<f32>(bitcast<u32>(v) & MAGNITUDE));
    }
    let scale = code_scale(peak);
    for (var c = first; c < end; c += 4u) {
        var word = 0u;
        for (var j = 0u; j < 4u && c + j < end; j++) {
            word |= (u32(code_of(clamp_code(x[begin + c + j]), scale.y)) & 0xffu) << (8u * j);
        }
        out[to + c / 4u] = word;
    }
    out[to + (p.width + 3u) / 4u + run] = bitcast<u32>(scale.x);
}
