// What the kernels of a router share. `free` has for each row a flag for each expert, then one for each group.
struct P {
    op: u32,
    zero: u32,
    rows: u32,
    experts: u32,
    top_k: u32,
    // 0: soft-max; 1: each by itself.
    sigmoid: u32,
    biased: u32,
    // 0: none.
    groups: u32,
    used: u32,
    renormalize: u32,
    scaled: u32,
    // Where findings about probabilities go.
    op_of_probs: u32,
    // Blocks of rows, and how many experts each opens.
    blocks: u32,
    capacity: u32,
    // Words of a row of `free`.
    stride: u32,
}

@group(0) @binding(0) var<uniform> p: P;
