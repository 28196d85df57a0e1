// The sum of the products of four bytes with sign, by an instruction where there is one.
fn dot4(a: u32, b: u32) -> i32 {
    return dot4I8Packed(a, b);
}
