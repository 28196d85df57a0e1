// One list of ids in all rows of logits that were copied; one id of one row an invocation.
struct P {
    op: u32,
    zero: u32,
    // Rows times ids.
    n: u32,
    ids: u32,
    cols: u32,
    // 0: a bias for each id. 1: ids that were seen. 2: banned ids. 3: ids that are banned in some rows. 4: ids that are looked at.
    kind: u32,
    // Of the rows in the list of rows.
    row_at: u32,
    more: f32,
    less: f32,
    presence: f32,
    never: f32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
// 0: biases. 1: for each row the id that does not count. 3: for each row whether.
@group(0) @binding(3) var<storage, read> list: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) at: u32) {
    let i = linear(group, groups, at);
    if i >= p.n {
        return;
    }
    let row = i / p.ids;
    let id = ids[i % p.ids];
    if id >= p.cols {
        return;
    }
    let to = row * p.cols + id;
    var x = out[to];
    switch p.kind {
        case 0u: {
            x = flush(x + bitcast<f32>(list[i % p.ids]));
        }
        case 1u: {
            if list[p.row_at + row] == id {
                return;
            }
            x = flush(o(x * select(p.less, p.more, x < 0.0)) - p.presence);
        }
        case 2u: {
            x = p.never;
        }
        case 3u: {
            if list[p.row_at + row] == 0u {
                return;
            }
            x = p.never;
        }
        default: {
            note(to, x);
            return;
        }
    }
    out[to] = x;
}
