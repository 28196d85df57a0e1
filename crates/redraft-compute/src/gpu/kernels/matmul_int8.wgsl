// Products of 8-bit codes, integers within a unit and f32 from unit to unit (docs/numerics.md, section 12). A workgroup
// makes 64 x 64 of them, an invocation 4 x 4; integers come in runs of 16 weights, the shortest that share a scale.
//
// Rows of x are as `quantize` leaves them: codes, four to a word; scales of units; sums of codes of runs of 16.
@group(0) @binding(2) var<storage, read> x: array<u32>;

// Words of codes of a step: 32 weights.
const STEP = 8u;
const RUN = 16u;
var<workgroup> xs: array<u32, 512>;
var<workgroup> ws: array<u32, 512>;
// Scale and minimum of each run of each row of weights, sum of codes of each run of each row of x.
var<workgroup> runs: array<vec2<i32>, 128>;
var<workgroup> sums: array<i32, 128>;

// Four codes from place 4 * quad on.
fn quad_of(row: u32, quad: u32) -> u32 {
    if p.kind == BYTES {
        return w[row * p.stride + quad];
    }
    let nibbles = (w[row * p.stride + quad / 2u] >> (4u * (quad & 1u))) & 0x0f0f0f0fu;
    if p.kind == 0u {
        return nibbles;
    }
    // Less 8: the fourth bit turned over is the sign, which goes to all bits above.
    let signed = nibbles ^ 0x08080808u;
    return signed | ((signed & 0x08080808u) * 30u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let span = rows_of(group);
    // The same for all invocations.
    if span.x >= span.y {
        return;
    }
    let n0 = group.x * TILE;
    let tx = at & 15u;
    let ty = at >> 4u;
    var acc: array<array<f32, 4>, 4>;
    var products: array<array<i32, 4>, 4>;
    var minima: array<array<i32, 4>, 4>;
    let unit_mask = (1u << p.unit_log) - 1u;
    for (var k0 = 0u; k0 < p.cols; k0 += 4u * STEP) {
        let quad = at & 7u;
        let have = k0 + 4u * quad < p.cols;
        for (var i = 0u; i < 2u; i++) {
            let m = (at >> 3u) + 32u * i;
            var a = 0u;
            var b = 0u;
            if have && span.x + m < span.y {
                a = x[x_row(span.x + m) * p.x_stride + k0 / 4u + quad];
            }
            if have && n0 + m < p.outs {
                b = quad_of(w_row(group, n0 + m), k0 / 4u + quad);
            }
            xs[quad * TILE + m] = a;
            ws[quad * TILE + m] = b;
        }
        // 64 rows of weights, then 64 rows of x, two runs each.
        let m = at & 63u;
        let half = (at >> 6u) & 1u;
        let k = k0 + RUN * half;
        if at < 128u {
            var r = vec2(0, 0);
            if k < p.cols && n0 + m < p.outs {
                r = run(w_row(group, n0 + m), k >> p.sub_log);
            }
            runs[half * TILE + m] = r;
        } else if p.mins != 0u {
            var s = 0;
            if k < p.cols && span.x + m < span.y {
                s = i32(x[x_row(span.x + m) * p.x_stride + p.x_sums + k / RUN]);
            }
            sums[half * TILE + m] = s;
        }
        workgroupBarrier();
        for (var r = 0u; r < 2u && k0 + RUN * r < p.cols; r++) {
            for (var i = 0u; i < 4u; i++) {
                let row = ty * 4u + i;
                for (var j = 0u; j < 4u; j++) {
                    let n = tx * 4u + j;
                    var dot = 0;
                    for (var q = 0u; q < 4u; q++) {
                        dot += dot4(xs[(4u * r + q) * TILE + row], ws[(4u * r + q) * TILE + n]);
                    }
                    let s = runs[r * TILE + n];
                    products[i][j] += s.x * dot;
                    if p.mins != 0u {
                        minima[i][j] += s.y * sums[r * TILE + row];
                    }
                }
            }
            let next = k0 + RUN * (r + 1u);
            if (next & unit_mask) == 0u {
                let unit = (next - 1u) >> p.unit_log;
                for (var j = 0u; j < 4u; j++) {
                    let n = n0 + tx * 4u + j;
                    var h = vec2(0.0, 0.0);
                    if n < p.outs {
                        h = head(w_row(group, n), unit);
                    }
                    for (var i = 0u; i < 4u; i++) {
                        let row = span.x + ty * 4u + i;
                        if row < span.y {
                            let dx = bitcast<f32>(x[x_row(row) * p.x_stride + p.x_scales + unit]);
                            acc[i][j] = acc[i][j] + o(o(flush(h.x) * dx) * f32(products[i][j]));
                            if p.mins != 0u {
                                acc[i][j] = o(acc[i][j]) - o(o(flush(h.y) * dx) * f32(minima[i][j]));
                            }
                        }
                        products[i][j] = 0;
                        minima[i][j] = 0;
                    }
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) {
            let row = span.x + ty * 4u + i;
            let n = n0 + tx * 4u + j;
            if row < span.y && n < p.outs {
                put(row, n, acc[i][j]);
            }
        }
    }
}
