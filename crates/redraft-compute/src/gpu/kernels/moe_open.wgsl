// Experts that the rows of a block may use, one block an invocation: those of the largest worth, which is the most that an expert
// is worth to a row of the block. `spans` has first row and end of each block.
@group(0) @binding(2) var<storage, read> probs: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read> spans: array<u32>;
@group(0) @binding(5) var<storage, read_write> worth: array<f32>;
@group(0) @binding(6) var<storage, read_write> free: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = id.x;
    if block >= p.blocks {
        return;
    }
    let first = spans[2u * block];
    let end = spans[2u * block + 1u];
    let begin = block * p.experts;
    for (var e = 0u; e < p.experts; e++) {
        var most = 0.0;
        for (var row = first; row < end; row++) {
            var c = probs[row * p.experts + e];
            if p.biased != 0u {
                c = c + bias[e];
            }
            if row == first {
                most = c;
            }
            most = larger(most, c);
        }
        worth[begin + e] = most;
        for (var row = first; row < end; row++) {
            free[row * p.stride + e] = 0u;
        }
    }
    for (var n = 0u; n < p.capacity; n++) {
        var best = p.experts;
        for (var e = 0u; e < p.experts; e++) {
            if free[first * p.stride + e] == 0u && (best == p.experts || worth[begin + best] < worth[begin + e]) {
                best = e;
            }
        }
        for (var row = first; row < end; row++) {
            free[row * p.stride + best] = 1u;
        }
    }
}
