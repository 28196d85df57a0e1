//! The operations that canonical functions may use, for one number or a vector of numbers.

/// `f32` lanes: one number, or a vector of them that behaves like that many numbers side by side.
///
/// Each arithmetic operation is rounded once, to nearest even; an implementation must not fuse a
/// multiplication with an addition. All methods take `self`, also those that only make a constant: a vector
/// type can then treat the value in hand as the proof that its instructions exist.
pub trait Lanes: Copy {
    /// The same lanes as 32-bit integers.
    type Int: IntLanes;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self;
    /// `self + o`.
    fn add(self, o: Self) -> Self;
    /// `self - o`.
    fn sub(self, o: Self) -> Self;
    /// `self * o`.
    fn mul(self, o: Self) -> Self;
    /// The largest integer not above `self`.
    fn floor(self) -> Self;
    /// `if self < o { yes } else { no }`; a NaN on either side takes `no`.
    fn select_lt(self, o: Self, yes: Self, no: Self) -> Self;
    /// `if a < b { yes } else { no }`, `a` and `b` signed. Takes `self` as `yes`.
    fn if_int_lt(self, a: Self::Int, b: Self::Int, no: Self) -> Self;
    /// The bits.
    fn to_bits(self) -> Self::Int;
    /// The number with these bits.
    fn from_bits(bits: Self::Int) -> Self;
    /// An integral number as an integer. The canonical functions call it for |x| < 2^24 only, where all
    /// hardware conversions agree.
    fn to_int(self) -> Self::Int;
    /// An integer as a number, rounded to nearest, ties to even. The canonical functions call it for
    /// |i| < 2^24 only, where it is exact; larger integers are the sums of integer products.
    fn from_int(i: Self::Int) -> Self;

    /// `if self < o { o } else { self }`: a NaN in `o` is ignored, and of two zeros `self` is taken.
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        self.select_lt(o, o, self)
    }
}

/// 32-bit integer lanes; sums and differences wrap.
pub trait IntLanes: Copy {
    /// `i` in every lane.
    fn splat(self, i: i32) -> Self;
    /// `self + o`.
    fn add(self, o: Self) -> Self;
    /// `self - o`.
    fn sub(self, o: Self) -> Self;
    /// `self & o`.
    fn and(self, o: Self) -> Self;
    /// `self | o`.
    fn or(self, o: Self) -> Self;
    /// `self ^ o`.
    fn xor(self, o: Self) -> Self;
    /// `self << N`.
    fn shl<const N: i32>(self) -> Self;
    /// `self >> N`, zeros shifted in.
    fn shr<const N: i32>(self) -> Self;
}

impl Lanes for f32 {
    type Int = i32;

    #[inline(always)]
    fn splat(self, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn add(self, o: f32) -> f32 {
        self + o
    }
    #[inline(always)]
    fn sub(self, o: f32) -> f32 {
        self - o
    }
    #[inline(always)]
    fn mul(self, o: f32) -> f32 {
        self * o
    }
    #[inline(always)]
    fn floor(self) -> f32 {
        f32::floor(self)
    }
    #[inline(always)]
    fn select_lt(self, o: f32, yes: f32, no: f32) -> f32 {
        if self < o { yes } else { no }
    }
    #[inline(always)]
    fn if_int_lt(self, a: i32, b: i32, no: f32) -> f32 {
        if a < b { self } else { no }
    }
    #[inline(always)]
    fn to_bits(self) -> i32 {
        f32::to_bits(self) as i32
    }
    #[inline(always)]
    fn from_bits(bits: i32) -> f32 {
        f32::from_bits(bits as u32)
    }
    #[inline(always)]
    fn to_int(self) -> i32 {
        self as i32
    }
    #[inline(always)]
    fn from_int(i: i32) -> f32 {
        i as f32
    }
}

impl IntLanes for i32 {
    #[inline(always)]
    fn splat(self, i: i32) -> i32 {
        i
    }
    #[inline(always)]
    fn add(self, o: i32) -> i32 {
        self.wrapping_add(o)
    }
    #[inline(always)]
    fn sub(self, o: i32) -> i32 {
        self.wrapping_sub(o)
    }
    #[inline(always)]
    fn and(self, o: i32) -> i32 {
        self & o
    }
    #[inline(always)]
    fn or(self, o: i32) -> i32 {
        self | o
    }
    #[inline(always)]
    fn xor(self, o: i32) -> i32 {
        self ^ o
    }
    #[inline(always)]
    fn shl<const N: i32>(self) -> i32 {
        self << N
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> i32 {
        (self as u32 >> N) as i32
    }
}

/// Horner's scheme over coefficients from the highest power down: `(c0 * x + c1) * x + c2 …`, each
/// multiplication and each addition rounded.
#[inline(always)]
pub(crate) fn horner<V: Lanes, const N: usize>(x: V, c: [f32; N]) -> V {
    let mut y = x.splat(c[0]);
    for &c in &c[1..] {
        y = y.mul(x).add(x.splat(c));
    }
    y
}
