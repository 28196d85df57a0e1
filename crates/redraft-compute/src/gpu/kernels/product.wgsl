// What products with weights share: y = x w^T, of all rows or of those that an expert has.
//
// Grouped by experts (`p.experts` is not 0) a workgroup's z is an expert of the slab; `pairs` lists (token, slot) pairs by
// expert, expert e has those from starts[e] to starts[e + 1].
struct P {
    op: u32,
    zero: u32,
    // Rows of x, at most so many of an expert.
    rows: u32,
    // Rows of the matrix that the slab has.
    outs: u32,
    cols: u32,
    // Of a row of weights, in words.
    stride: u32,
    kind: u32,
    heads_at: u32,
    subs_at: u32,
    unit_log: u32,
    sub_log: u32,
    mins: u32,
    // Columns of y, and the one that the slab begins with.
    y_cols: u32,
    y_at: u32,
    // First row of x.
    x_at: u32,
    // Pairs that share a row of x.
    x_div: u32,
    // Words of a row of packed activations, and where scales and sums begin.
    x_stride: u32,
    x_scales: u32,
    x_sums: u32,
    experts: u32,
    // Of the slab.
    first_expert: u32,
    // Rows from one matrix to the next, and the first that counts.
    expert_rows: u32,
    row_at: u32,
    // 1: + bias. 2: logits, `by` times cap * tanh(y * inverse) (4: there is a cap).
    mode: u32,
    by: f32,
    cap: f32,
    inverse: f32,
    // Whether y is the result of the op.
    last: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(3) var<storage, read> w: array<u32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> pairs: array<u32>;
@group(0) @binding(6) var<storage, read> starts: array<u32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;

// Rows and columns of a workgroup's part of y.
const TILE = 64u;

// Where the rows of a workgroup begin, and where they end.
fn rows_of(group: vec3<u32>) -> vec2<u32> {
    if p.experts == 0u {
        return vec2(group.y * TILE, p.rows);
    }
    let e = p.first_expert + group.z;
    return vec2(starts[e] + group.y * TILE, starts[e + 1u]);
}

fn x_row(row: u32) -> u32 {
    if p.experts == 0u {
        return p.x_at + row;
    }
    return pairs[row] / p.x_div;
}

// The row of the matrix that output `n` of the slab belongs to.
fn w_row(group: vec3<u32>, n: u32) -> u32 {
    return group.z * p.expert_rows + p.row_at + n;
}

fn put(row: u32, n: u32, sum: f32) {
    let column = p.y_at + n;
    var to = row;
    if p.experts != 0u {
        to = pairs[row];
    }
    var out = sum;
    if (p.mode & 1u) != 0u {
        out = out + bias[column];
    }
    out = flush(out);
    if (p.mode & 2u) != 0u {
        // A cap must not hide an overflow.
        let lost = !is_finite(sum);
        if (p.mode & 4u) != 0u {
            out = flush(p.cap * hyperbolic_tangent(o(out * p.inverse)));
        }
        out = flush(out * p.by);
        out = select(out, nan(), lost);
    }
    let i = to * p.y_cols + column;
    y[i] = out;
    if p.last != 0u {
        note(i, out);
    }
}
