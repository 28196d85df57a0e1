// Weights of a block type as integers. A row of `p.stride` words has
//
// * codes: four bytes with sign in a word, or, where `p.kind` is not 16, eight times four bits, to which `p.kind` (0 or 8) was
//   added: of eight neighbours the first four in the lower halves of the bytes, the others in the upper ones;
// * from `p.heads_at` on, for each unit of 2^`p.unit_log` weights, its scale d and, with minima, its scale dmin;
// * from `p.subs_at` on, for each run of 2^`p.sub_log` weights, 16 bits: scale with sign, minimum.
const BYTES = 16u;

fn code(row: u32, k: u32) -> i32 {
    let base = row * p.stride;
    if p.kind == BYTES {
        return extractBits(i32(w[base + k / 4u]), 8u * (k & 3u), 8u);
    }
    let at = 8u * (k & 3u) + (k & 4u);
    return i32(extractBits(w[base + k / 8u], at, 4u)) - i32(p.kind);
}

// Scale and minimum of run `sub` of a row.
fn run(row: u32, sub: u32) -> vec2<i32> {
    let pair = i32(w[row * p.stride + p.subs_at + sub / 2u] >> (16u * (sub & 1u)));
    return vec2(extractBits(pair, 0u, 8u), (pair >> 8u) & 0xff);
}

// d and dmin of unit `unit` of a row.
fn head(row: u32, unit: u32) -> vec2<f32> {
    let at = row * p.stride + p.heads_at + unit * (1u + p.mins);
    if p.mins == 0u {
        return vec2(bitcast<f32>(w[at]), 0.0);
    }
    return vec2(bitcast<f32>(w[at]), bitcast<f32>(w[at + 1u]));
}

fn weight(row: u32, k: u32) -> f32 {
    let h = head(row, k >> p.unit_log);
    let s = run(row, k >> p.sub_log);
    let scaled = o(o(h.x * f32(s.x)) * f32(code(row, k)));
    if p.mins == 0u {
        return flush(scaled);
    }
    return flush(scaled - o(h.y * f32(s.y)));
}
