// What the three kernels of attention share. Scores are `[rows, heads, keys]`; keys are counted from `key_at` on, a multiple of
// 16, so that a key's accumulator is that of its place in the sequence.
struct P {
    op: u32,
    zero: u32,
    rows: u32,
    // First of these rows in q and in the result.
    row_at: u32,
    keys: u32,
    heads: u32,
    // Query heads that share a head of keys and values.
    share: u32,
    head: u32,
    // Columns of keys and values.
    kv_cols: u32,
    scale: f32,
    scaled: u32,
    // First row of these in the list of visible keys.
    seen_at: u32,
    // Keys whose values are added, of all of these.
    key_first: u32,
    key_end: u32,
}

@group(0) @binding(0) var<uniform> p: P;
