// The sum of the products of four bytes with sign.
fn dot4(a: u32, b: u32) -> i32 {
    var sum = 0;
    for (var i = 0u; i < 32u; i += 8u) {
        sum += extractBits(i32(a), i, 8u) * extractBits(i32(b), i, 8u);
    }
    return sum;
}
