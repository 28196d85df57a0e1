//! What this machine can do at most: the clock of a core, and multiply-accumulate operations a second of each level
//! in registers alone, without a load, a scale or an unpacked weight.
//!
//! The canonical bits forbid fused multiplication and addition, so the peak in f32 is that of pairs of one
//! multiplication and one addition. Kernels are judged by their part of these figures.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::CpuLevel;

/// How long one measurement runs.
const RUN: Duration = Duration::from_millis(20);

/// Measurements, of which the best counts: whatever disturbs makes slower.
const RUNS: usize = 7;

/// Does a number of rounds and returns how many multiply-accumulate operations (or additions) they were.
pub(super) type Loop = fn(u64) -> u64;

/// The loops of a level.
#[derive(Clone, Copy)]
pub(super) struct Loops {
    /// `a = a + x * y` in f32, each operation rounded.
    pub(super) f32: Loop,
    /// `a = a + x * y` of bytes, with sums in the form in which the level's kernels make them.
    pub(super) int8: Loop,
}

/// A safe function around one that is compiled for a feature.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! compiled {
    ($(#[$doc:meta])* $name:ident, $feature:literal, $macs:expr, |$rounds:ident| $body:block) => {
        $(#[$doc])*
        fn $name(rounds: u64) -> u64 {
            #[target_feature(enable = $feature)]
            fn compiled($rounds: u64) $body
            // SAFETY: reached through `loops` only, whose caller has found the level and so its features.
            unsafe { compiled(rounds) };
            rounds * $macs
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use compiled;

/// `dependent_adds`: additions of registers, each of which needs the one before, with the instruction that adds `{y}`
/// to `{x}`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! dependent_adds {
    ($add:literal) => {
        pub(in crate::cpu) fn dependent_adds(rounds: u64) -> u64 {
            let mut x = 0u64;
            for _ in 0..rounds {
                // SAFETY: adds two registers, of which one is given back; touches no memory and no stack.
                unsafe {
                    asm!(".rept 64", $add, ".endr", x = inout(reg) x, y = in(reg) 3u64, options(nomem, nostack));
                }
            }
            black_box(x);
            rounds * 64
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use dependent_adds;

/// Multiply-accumulate operations a second of a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// Threads that computed at the same time.
    pub threads: usize,
    /// In f32, in 10^9.
    pub f32_gmacs: f64,
    /// Of bytes, in 10^9.
    pub int8_gmacs: f64,
}

/// Measures a level of this machine with `threads` threads at the same time. Takes some 0.3 s.
///
/// # Panics
/// When this machine lacks the level.
pub fn peak(level: CpuLevel, threads: usize) -> Peak {
    assert!(level.is_available(), "this machine has the level {}", level.name());
    let Loops { f32, int8 } = loops(level);
    Peak { threads, f32_gmacs: best(f32, threads) / 1e9, int8_gmacs: best(int8, threads) / 1e9 }
}

/// The clock of the core in GHz, by additions that depend on each other: each takes one cycle. None where no such
/// loop is written for the processor.
pub fn clock_ghz() -> Option<f64> {
    adds().map(|adds| best(adds, 1) / 1e9)
}

/// The best rate of some runs.
fn best(work: Loop, threads: usize) -> f64 {
    let rounds = calibrate(work);
    (0..RUNS).map(|_| rate(work, threads, rounds)).fold(0.0, f64::max)
}

/// Rounds that take about [`RUN`].
fn calibrate(work: Loop) -> u64 {
    let mut rounds = 1 << 10;
    loop {
        let start = Instant::now();
        black_box(work(rounds));
        let took = start.elapsed();
        if took >= RUN / 4 || rounds >= 1 << 40 {
            let runs = RUN.as_secs_f64() / took.as_secs_f64().max(1e-9);
            return ((rounds as f64 * runs) as u64).max(1);
        }
        rounds *= 2;
    }
}

/// Operations a second of all threads together, each in the time that it computed: on a shared machine that is less
/// than the clock says.
fn rate(work: Loop, threads: usize, rounds: u64) -> f64 {
    let start = Barrier::new(threads);
    let one = || {
        start.wait();
        let (begin, busy) = (Instant::now(), thread_cpu_seconds());
        let operations = black_box(work(rounds));
        let busy = thread_cpu_seconds().zip(busy).map(|(after, before)| after - before);
        operations as f64 / busy.filter(|&s| s > 0.0).unwrap_or_else(|| begin.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let own = one();
        // A thread of this loop has nothing to fail at.
        own + others.into_iter().map(|t| t.join().unwrap_or(0.0)).sum::<f64>()
    })
}

/// Seconds that this thread has computed so far; none where the system does not tell.
pub fn thread_cpu_seconds() -> Option<f64> {
    #[cfg(unix)]
    return Some(seconds(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)));
    #[cfg(not(unix))]
    None
}

/// Seconds that all threads of this process have computed so far; none where the system does not tell. On a machine
/// that is shared with other work they say more than the clock.
pub fn process_cpu_seconds() -> Option<f64> {
    #[cfg(unix)]
    return Some(seconds(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime)));
    #[cfg(not(unix))]
    None
}

#[cfg(unix)]
fn seconds(t: rustix::time::Timespec) -> f64 {
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn loops(level: CpuLevel) -> Loops {
    #[cfg(target_arch = "x86_64")]
    if let Some(found) = super::x86::peak::loops(level) {
        return found;
    }
    #[cfg(target_arch = "aarch64")]
    if let Some(found) = super::aarch64::peak::loops(level) {
        return found;
    }
    let _ = level;
    Loops { f32: scalar_f32, int8: scalar_int8 }
}

fn adds() -> Option<Loop> {
    #[cfg(target_arch = "x86_64")]
    return Some(super::x86::peak::dependent_adds);
    #[cfg(target_arch = "aarch64")]
    return Some(super::aarch64::peak::dependent_adds);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    None
}

/// Elements of the portable loops.
const WIDE: usize = 64;

/// What the compiler makes of plain code for the target.
fn scalar_f32(rounds: u64) -> u64 {
    let (mut sums, y) = ([0f32; WIDE], black_box([0.5f32; WIDE]));
    for _ in 0..rounds {
        let x = black_box(1.0f32);
        for (a, y) in sums.iter_mut().zip(&y) {
            *a += x * y;
        }
    }
    black_box(sums);
    rounds * WIDE as u64
}

/// The same for bytes with sums of 32 bits.
fn scalar_int8(rounds: u64) -> u64 {
    let (mut sums, y) = ([0i32; WIDE], black_box([3i8; WIDE]));
    for _ in 0..rounds {
        let x = black_box(5i8);
        for (a, y) in sums.iter_mut().zip(&y) {
            *a = a.wrapping_add(i32::from(x) * i32::from(*y));
        }
    }
    black_box(sums);
    rounds * WIDE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_loops_that_count_their_operations() {
        for level in CpuLevel::available() {
            let Loops { f32, int8 } = loops(level);
            for work in [f32, int8] {
                assert_eq!(work(0), 0, "{}", level.name());
                let one = work(1);
                assert!(one > 0 && work(7) == 7 * one, "{}", level.name());
            }
        }
        if let Some(adds) = adds() {
            assert_eq!((adds(1), adds(5)), (64, 320));
        }
    }
}
