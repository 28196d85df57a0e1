//! Measuring errors in units in the last place, for the tests of this module.

/// The largest error seen.
#[derive(Default)]
pub(crate) struct Report {
    worst: f64,
    at: f32,
    count: u64,
}

/// Size of the last place of an f32 near `x`, for normal numbers.
fn ulp(x: f64) -> f64 {
    let exponent = (x.to_bits() >> 52 & 0x7FF) as i32 - 1023;
    2f64.powi(exponent.max(-126) - 23)
}

impl Report {
    /// Compares a result with the truth.
    pub(crate) fn add(&mut self, x: f32, found: f32, truth: f64) {
        let error = (f64::from(found) - truth).abs() / ulp(truth);
        self.count += 1;
        if error > self.worst || error.is_nan() {
            (self.worst, self.at) = (error, x);
        }
    }

    /// Fails when the worst error is above `bound`; prints what was measured.
    pub(crate) fn at_most(&self, name: &str, bound: f64) {
        println!("{name}: {:.4} ulp at {:e}, {} inputs, bound {bound}", self.worst, self.at, self.count);
        assert!(self.count > 0, "{name}: nothing was compared");
        assert!(self.worst <= bound, "{name}: {} ulp at {:e} is above {bound}", self.worst, self.at);
    }
}

/// Bit patterns spread over all floats: every 1009th (a prime, so that all low bits occur), and the
/// neighbourhood of every power of two.
pub(crate) fn grid() -> impl Iterator<Item = u32> {
    let powers = (0..512u32).flat_map(|e| (0..33).map(move |i| (e << 23).wrapping_add(i).wrapping_sub(16)));
    (0..=u32::MAX).step_by(1009).chain(powers)
}
