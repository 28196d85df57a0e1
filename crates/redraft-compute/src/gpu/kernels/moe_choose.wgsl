// The experts of a row and their weights, one row an invocation.
@group(0) @binding(2) var<storage, read> probs: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read> scale: array<f32>;
@group(0) @binding(5) var<storage, read_write> free: array<u32>;
@group(0) @binding(6) var<storage, read_write> ids: array<u32>;
@group(0) @binding(7) var<storage, read_write> weights: array<f32>;

fn choice(row: u32, e: u32) -> f32 {
    let c = probs[row * p.experts + e];
    if p.biased == 0u {
        return c;
    }
    return c + bias[e];
}

// The largest of experts `first` to `end` that is free, the lower one among equals; `end` if there is none.
fn largest(row: u32, first: u32, end: u32) -> u32 {
    var best = end;
    var most = 0.0;
    for (var e = first; e < end; e++) {
        if free[row * p.stride + e] != 0u {
            let c = choice(row, e);
            if best == end || most < c {
                best = e;
                most = c;
            }
        }
    }
    return best;
}

// Leaves the experts of the groups that are used.
fn open_groups(row: u32) {
    let size = p.experts / p.groups;
    let flags = row * p.stride + p.experts;
    for (var n = 0u; n < p.used; n++) {
        var best = p.groups;
        var most = 0.0;
        for (var g = 0u; g < p.groups; g++) {
            if free[flags + g] != 0u {
                let first = largest(row, g * size, (g + 1u) * size);
                free[row * p.stride + first] = 0u;
                let second = largest(row, g * size, (g + 1u) * size);
                free[row * p.stride + first] = 1u;
                let worth = choice(row, first) + choice(row, second);
                if best == p.groups || most < worth {
                    best = g;
                    most = worth;
                }
            }
        }
        free[flags + best] = 0u;
    }
    for (var e = 0u; e < p.experts; e++) {
        free[row * p.stride + e] = 1u - free[flags + e / size];
    }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x;
    if row >= p.rows {
        return;
    }
    if p.groups != 0u {
        open_groups(row);
    }
    var sum = 0.0;
    for (var slot = 0u; slot < p.top_k; slot++) {
        var best = largest(row, 0u, p.experts);
        // There is always one.
        best = min(best, p.experts - 1u);
        free[row * p.stride + best] = 0u;
        ids[row * p.top_k + slot] = best;
        sum = sum + probs[row * p.experts + best];
    }
    if p.sigmoid != 0u {
        sum = sum + bitcast<f32>(0x1e3ce508u);
    }
    let inverse = reciprocal(sum);
    for (var slot = 0u; slot < p.top_k; slot++) {
        let at = row * p.top_k + slot;
        let e = ids[at];
        var weight = probs[row * p.experts + e];
        if p.renormalize != 0u {
            weight = o(weight * inverse);
        }
        if p.scaled != 0u {
            weight = weight * scale[e];
        }
        weight = flush(weight);
        weights[at] = weight;
        note(at, weight);
    }
}
