// Scores: sums over the channels of a head, sequential; 64 rows and 64 keys of a head to a workgroup.
@group(0) @binding(2) var<storage, read> q: array<f32>;
@group(0) @binding(3) var<storage, read> k: array<f32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;

const TILE = 64u;
const STEP = 16u;
var<workgroup> qs: array<f32, 1024>;
var<workgroup> ks: array<f32, 1024>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let h = group.z;
    let r0 = group.y * TILE;
    let j0 = group.x * TILE;
    let q_cols = p.heads * p.head;
    let kv_head = h / p.share;
    let tx = at & 15u;
    let ty = at >> 4u;
    var acc: array<array<f32, 4>, 4>;
    for (var c0 = 0u; c0 < p.head; c0 += STEP) {
        let cx = at & 15u;
        let c = c0 + cx;
        for (var i = 0u; i < 4u; i++) {
            let m = (at >> 4u) + 16u * i;
            var a = 0.0;
            var b = 0.0;
            if c < p.head {
                if r0 + m < p.rows {
                    a = q[(p.row_at + r0 + m) * q_cols + h * p.head + c];
                }
                if j0 + m < p.keys {
                    b = k[(j0 + m) * p.kv_cols + kv_head * p.head + c];
                }
            }
            qs[cx * TILE + m] = a;
            ks[cx * TILE + m] = b;
        }
        workgroupBarrier();
        for (var cc = 0u; cc < min(STEP, p.head - c0); cc++) {
            var b: array<f32, 4>;
            for (var j = 0u; j < 4u; j++) {
                b[j] = ks[cc * TILE + tx * 4u + j];
            }
            for (var i = 0u; i < 4u; i++) {
                let a = qs[cc * TILE + ty * 4u + i];
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
            let key = j0 + tx * 4u + j;
            if row < p.rows && key < p.keys {
                var s = acc[i][j];
                if p.scaled != 0u {
                    s = s * p.scale;
                }
                scores[(row * p.heads + h) * p.keys + key] = s;
            }
        }
    }
}
