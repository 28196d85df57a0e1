// In SPIR-V and MSL of ours nothing needs hiding.
fn o(x: f32) -> f32 {
    return x;
}
