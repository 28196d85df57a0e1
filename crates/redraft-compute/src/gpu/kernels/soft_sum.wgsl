// Soft embeddings: rows of a table times probabilities, sequential over the ids that a group of 64 rows needs; an id that a row
// does not need has the probability +0 there, which changes no bit. A workgroup makes 64 rows x 64 columns, an invocation 4 x 4.
// Ids come in ranges, one a dispatch; between them the sums are in `out`.
struct P {
    op: u32,
    zero: u32,
    rows: u32,
    cols: u32,
    stride: u32,
    kind: u32,
    heads_at: u32,
    subs_at: u32,
    unit_log: u32,
    sub_log: u32,
    mins: u32,
    vocab: u32,
    // The first row of the table that the slab has.
    slab_at: u32,
    // The ids of the range, and whether it is the first, the last.
    begin: u32,
    end: u32,
    opens: u32,
    closes: u32,
    // Where the rows begin in `out`.
    out_at: u32,
    by: f32,
    // Whether numbers of the table are rounded to bfloat16.
    rounds: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> probabilities: array<f32>;
@group(0) @binding(3) var<storage, read> ids: array<u32>;
@group(0) @binding(4) var<storage, read> w: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

const GROUP = 64u;
const STEP = 16u;
var<workgroup> xs: array<f32, 1024>;
var<workgroup> ws: array<f32, 1024>;

// How many of the first `count` ids of the list at `list` are below `id`.
fn below(list: u32, count: u32, id: u32) -> u32 {
    var low = 0u;
    var high = count;
    while low < high {
        let middle = (low + high) / 2u;
        if ids[list + middle] < id {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let list = group.y * (p.vocab + 1u) + 1u;
    let count = ids[list - 1u];
    let first = below(list, count, p.begin);
    let last = below(list, count, p.end);
    let row0 = group.y * GROUP;
    let col0 = group.x * GROUP;
    let tx = at & 15u;
    let ty = at >> 4u;
    var acc: array<array<f32, 4>, 4>;
    if p.opens == 0u {
        for (var i = 0u; i < 4u; i++) {
            for (var j = 0u; j < 4u; j++) {
                let row = row0 + ty * 4u + i;
                let col = col0 + tx * 4u + j;
                if row < p.rows && col < p.cols {
                    acc[i][j] = out[p.out_at + row * p.cols + col];
                }
            }
        }
    }
    for (var k0 = first; k0 < last; k0 += STEP) {
        // Neighbours read neighbours: ids of a row, columns of an id.
        for (var i = 0u; i < 4u; i++) {
            let k = at & 15u;
            let m = (at >> 4u) + 16u * i;
            var a = 0.0;
            if k0 + k < last && row0 + m < p.rows {
                a = probabilities[(row0 + m) * p.vocab + ids[list + k0 + k]];
            }
            xs[k * GROUP + m] = a;
        }
        for (var i = 0u; i < 4u; i++) {
            let n = at & 63u;
            let k = (at >> 6u) + 4u * i;
            var b = 0.0;
            if k0 + k < last && col0 + n < p.cols {
                b = weight(ids[list + k0 + k] - p.slab_at, col0 + n);
                if p.rounds != 0u {
                    b = round_bf16(b);
                }
            }
            ws[k * GROUP + n] = b;
        }
        workgroupBarrier();
        for (var k = 0u; k < min(STEP, last - k0); k++) {
            var b: array<f32, 4>;
            for (var j = 0u; j < 4u; j++) {
                b[j] = ws[k * GROUP + tx * 4u + j];
            }
            for (var i = 0u; i < 4u; i++) {
                let a = xs[k * GROUP + ty * 4u + i];
                for (var j = 0u; j < 4u; j++) {
                    acc[i][j] = acc[i][j] + o(a * b[j]);
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) {
            let row = row0 + ty * 4u + i;
            let col = col0 + tx * 4u + j;
            if row < p.rows && col < p.cols {
                var r = acc[i][j];
                if p.closes != 0u {
                    r = flush(r * p.by);
                    note(row * p.cols + col, r);
                }
                out[p.out_at + row * p.cols + col] = r;
            }
        }
    }
}
