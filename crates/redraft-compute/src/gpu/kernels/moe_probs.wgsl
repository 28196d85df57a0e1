// Probabilities of all experts, one row an invocation; every expert and group is free.
@group(0) @binding(2) var<storage, read> logits: array<f32>;
@group(0) @binding(3) var<storage, read_write> probs: array<f32>;
@group(0) @binding(4) var<storage, read_write> free: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x;
    if row >= p.rows {
        return;
    }
    for (var i = 0u; i < p.stride; i++) {
        free[row * p.stride + i] = 1u;
    }
    let begin = row * p.experts;
    if p.sigmoid != 0u {
        for (var e = 0u; e < p.experts; e++) {
            put(begin + e, flush(sigmoid(logits[begin + e])));
        }
        return;
    }
    var most = logits[begin];
    for (var e = 1u; e < p.experts; e++) {
        most = larger(most, logits[begin + e]);
    }
    var sums: array<f32, 16>;
    for (var e = 0u; e < p.experts; e++) {
        sums[e & 15u] = sums[e & 15u] + exponential(o(logits[begin + e] - most));
    }
    for (var half = 8u; half > 0u; half /= 2u) {
        for (var i = 0u; i < half; i++) {
            sums[i] = sums[i] + sums[i + half];
        }
    }
    let r = reciprocal(sums[0]);
    for (var e = 0u; e < p.experts; e++) {
        put(begin + e, flush(exponential(o(logits[begin + e] - most)) * r));
    }
}

fn put(i: u32, x: f32) {
    probs[i] = x;
    if !is_finite(x) {
        atomicMin(&status[p.op_of_probs], 2u * i + select(0u, 1u, is_nan(x)));
    }
}
