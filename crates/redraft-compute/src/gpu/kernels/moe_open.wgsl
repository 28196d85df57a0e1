// Experts that the rows of a block may use, one block a workgroup: those of the largest worth, which is the most that an expert
// is worth to a row of the block, the lower one first among equals. `spans` has first row and end of each block.
@group(0) @binding(2) var<storage, read> probs: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read> spans: array<u32>;
@group(0) @binding(5) var<storage, read_write> worth: array<f32>;
@group(0) @binding(6) var<storage, read_write> free: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let block = group.x;
    let first = spans[2u * block];
    let end = spans[2u * block + 1u];
    let begin = block * p.experts;
    for (var e = at; e < p.experts; e += 64u) {
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
    }
    storageBarrier();
    for (var e = at; e < p.experts; e += 64u) {
        let mine = worth[begin + e];
        var better = 0u;
        for (var i = 0u; i < p.experts; i++) {
            let other = worth[begin + i];
            if mine < other || (mine == other && i < e) {
                better++;
            }
        }
        let open = select(0u, 1u, better < p.capacity);
        for (var row = first; row < end; row++) {
            free[row * p.stride + e] = open;
        }
    }
}
