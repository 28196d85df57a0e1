// Weights of 16 bits, two in a word, the lower one first: `p.stride` words a row. `p.kind` is 0 for f16, 1 for bfloat16.
fn weight(row: u32, k: u32) -> f32 {
    let bits = (w[row * p.stride + k / 2u] >> (16u * (k & 1u))) & 0xffffu;
    if p.kind == 0u {
        return flush(from_f16(bits));
    }
    return flush(bitcast<f32>(bits << 16u));
}
