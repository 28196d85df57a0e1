// Activations as 8-bit codes with one scale for each unit of `unit` numbers (docs/numerics.md, section 12). A row becomes
// `stride` words: codes, four to a word; from `scales_at` on the scales of units; from `sums_at` on the sums of the codes of
// runs of 16. One invocation makes one unit.
struct P {
    op: u32,
    zero: u32,
    // Units of all rows.
    units: u32,
    cols: u32,
    unit: u32,
    stride: u32,
    scales_at: u32,
    sums_at: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.units {
        return;
    }
    let each = p.cols / p.unit;
    let row = i / each;
    let unit = i % each;
    let begin = row * p.cols + unit * p.unit;
    // Bits without sign are ordered as the numbers are, and a NaN is above all.
    var peak = 0u;
    for (var k = 0u; k < p.unit; k++) {
        peak = max(peak, bitcast<u32>(x[begin + k]) & MAGNITUDE);
    }
    let scale = code_scale(bitcast<f32>(peak));
    let base = row * p.stride;
    out[base + p.scales_at + unit] = bitcast<u32>(scale.x);
    for (var k = 0u; k < p.unit; k += 16u) {
        var sum = 0;
        for (var q = 0u; q < 4u; q++) {
            var word = 0u;
            for (var j = 0u; j < 4u; j++) {
                // Without a reciprocal all codes are 0, those of numbers that are not finite, too.
                if scale.y != 0.0 {
                    let c = code_of(x[begin + k + 4u * q + j], scale.y);
                    sum += c;
                    word |= (u32(c) & 0xffu) << (8u * j);
                }
            }
            out[base + (unit * p.unit + k) / 4u + q] = word;
        }
        out[base + p.sums_at + (unit * p.unit + k) / 16u] = u32(sum);
    }
}
