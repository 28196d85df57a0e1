// Weights as f32: `p.stride` words a row.
fn weight(row: u32, k: u32) -> f32 {
    return bitcast<f32>(w[row * p.stride + k]);
}
