// Weighted sums of values, sequential over keys; 64 rows and 64 channels of a head to a workgroup. A key that weighs nothing adds
// a zero, which changes no bit. Keys come in ranges of a dispatch each; sums that are not complete stand in `out`.
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> inverses: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

const TILE = 64u;
const STEP = 16u;
var<workgroup> es: array<f32, 1024>;
var<workgroup> vs: array<f32, 1024>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let h = group.z;
    let r0 = group.y * TILE;
    let c0 = group.x * TILE;
    let kv_head = h / p.share;
    let tx = at & 15u;
    let ty = at >> 4u;
    var acc: array<array<f32, 4>, 4>;
    if p.key_first != 0u {
        for (var i = 0u; i < 4u; i++) {
            for (var j = 0u; j < 4u; j++) {
                let row = r0 + ty * 4u + i;
                let c = c0 + tx * 4u + j;
                if row < p.rows && c < p.head {
                    acc[i][j] = out[((p.row_at + row) * p.heads + h) * p.head + c];
                }
            }
        }
    }
    for (var j0 = p.key_first; j0 < p.key_end; j0 += STEP) {
        for (var i = 0u; i < 4u; i++) {
            let jx = at & 15u;
            let m = (at >> 4u) + 16u * i;
            var a = 0.0;
            if j0 + jx < p.key_end && r0 + m < p.rows {
                a = weights[((r0 + m) * p.heads + h) * p.keys + j0 + jx];
            }
            es[jx * TILE + m] = a;
            // Neighbours read neighbouring channels.
            let c = at & 63u;
            let jy = (at >> 6u) + 4u * i;
            var b = 0.0;
            if j0 + jy < p.key_end && c0 + c < p.head {
                b = v[(j0 + jy) * p.kv_cols + kv_head * p.head + c0 + c];
            }
            vs[jy * TILE + c] = b;
        }
        workgroupBarrier();
        for (var jj = 0u; jj < STEP; jj++) {
            var b: array<f32, 4>;
            for (var j = 0u; j < 4u; j++) {
                b[j] = vs[jj * TILE + tx * 4u + j];
            }
            for (var i = 0u; i < 4u; i++) {
                let a = es[jj * TILE + ty * 4u + i];
                for (var j = 0u; j < 4u; j++) {
                    acc[i][j] = acc[i][j] + o(a * b[j]);
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) {
            let row = r0 + ty * 4u + i;
            let c = c0 + tx * 4u + j;
            if row < p.rows && c < p.head {
                let to = ((p.row_at + row) * p.heads + h) * p.head + c;
                if p.key_end < p.keys {
                    out[to] = acc[i][j];
                } else {
                    let r = flush(acc[i][j] * inverses[row * p.heads + h]);
                    out[to] = r;
                    note(to, r);
                }
            }
        }
    }
}
