//! Measurements: how long a pass takes and where the time goes, and the speed of single kernels.
//!
//! Everything here returns numbers; what is printed and how often is the caller's choice. A *step* is one canvas
//! pass, whatever its canvas, over a prompt that is cached already.

mod kernels;
mod parts;
mod step;

pub use kernels::{KERNEL_TOKENS, KERNEL_TYPES, Kernel, kernel};
pub use parts::{Part, Parts, Work};
pub use step::{Outputs, StepBench, StepOptions, StepTime};

/// CPU seconds that the threads of this process have computed so far; none where the system does not tell. On
/// a machine that is shared with other work they say more than the clock.
pub fn cpu_seconds() -> Option<f64> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let nanoseconds = |task: std::fs::DirEntry| -> Option<f64> {
        std::fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    let sum: f64 = tasks.flatten().filter_map(nanoseconds).sum();
    (sum > 0.0).then_some(sum / 1e9)
}

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
