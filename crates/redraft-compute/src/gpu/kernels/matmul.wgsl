// Sums of f32 products, sequential over k. A workgroup makes 64 x 64 of them, an invocation 4 x 4.
@group(0) @binding(2) var<storage, read> x: array<f32>;

const STEP = 16u;
var<workgroup> xs: array<f32, 1024>;
var<workgroup> ws: array<f32, 1024>;

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
    for (var k0 = 0u; k0 < p.cols; k0 += STEP) {
        let kx = at & 15u;
        let k = k0 + kx;
        for (var i = 0u; i < 4u; i++) {
            let m = (at >> 4u) + 16u * i;
            var a = 0.0;
            var b = 0.0;
            if k < p.cols {
                if span.x + m < span.y {
                    a = x[x_row(span.x + m) * p.cols + k];
                }
                if n0 + m < p.outs {
                    b = weight(w_row(group, n0 + m), k);
                }
            }
            xs[kx * TILE + m] = a;
            ws[kx * TILE + m] = b;
        }
        workgroupBarrier();
        for (var kk = 0u; kk < min(STEP, p.cols - k0); kk++) {
            var b: array<f32, 4>;
            for (var j = 0u; j < 4u; j++) {
                b[j] = ws[kk * TILE + tx * 4u + j];
            }
            for (var i = 0u; i < 4u; i++) {
                let a = xs[kk * TILE + ty * 4u + i];
                for (var j = 0u; j < 4u; j++) {
                    acc[i][j] = acc[i][j] + o(a * b[j]);
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
