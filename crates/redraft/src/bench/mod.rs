//! Measurements: how long a pass takes and where the time goes, and the speed of single kernels.
//!
//! Everything here returns numbers; what is printed and how often is the caller's choice. A *step* is one canvas
//! pass, whatever its canvas, over a prompt that is cached already.

mod kernels;
mod parts;
mod planned;
mod step;

pub use kernels::{KERNEL_TOKENS, KERNEL_TYPES, Kernel, kernel};
pub use parts::{Part, Parts, Work};
pub use planned::planned;
pub use redraft_compute::cpu::peak::process_cpu_seconds;
pub use step::{Outputs, StepBench, StepOptions, StepTime};

/// The value in the middle; the mean of the two in the middle of an even number. None of nothing.
///
/// ```
/// use redraft::bench::median;
///
/// assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
/// assert_eq!(median(&[4.0, 1.0]), Some(2.5));
/// assert_eq!(median(&[]), None);
/// ```
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mid = sorted.len() / 2;
    let upper = *sorted.get(mid)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[mid - 1] + upper) / 2.0 })
}
