// In a text that a driver compiles as it likes.
fn o(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ p.zero);
}
