//! Progress of long file work, on stderr.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of bytes with rate and time left; nothing when `shown` is false.
pub(crate) struct Bytes(ProgressBar);

impl Bytes {
    pub(crate) fn new(what: &str, total: u64, shown: bool) -> Bytes {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
        if !shown {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_string());
        Bytes(bar)
    }

    /// So many bytes are done, of so many.
    pub(crate) fn set(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// Takes the bar away. Returns how long it took.
    pub(crate) fn finish(self) -> Duration {
        let elapsed = self.0.elapsed();
        self.0.finish_and_clear();
        elapsed
    }
}

/// A time: milliseconds below a second.
pub(crate) fn human_time(t: Duration) -> String {
    let s = t.as_secs_f64();
    if s < 1.0 { format!("{:.1} ms", s * 1e3) } else { format!("{s:.2} s") }
}

/// `1 step`, `2 steps`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A number of tries, of so many; nothing when `shown` is false.
pub(crate) struct Count(ProgressBar);

impl Count {
    pub(crate) fn new(what: &str, shown: bool) -> Count {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        if !shown {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template("{msg} {pos}/{len}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_string());
        Count(bar)
    }

    /// So many are done, of so many.
    pub(crate) fn set(&self, done: usize, total: usize) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
    }

    /// Takes the count away.
    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }
}

/// Requests that are answered, of so many, with rate and time left; nothing when `shown` is false.
pub(crate) struct Requests(ProgressBar);

impl Requests {
    /// `done` were answered before.
    pub(crate) fn new(total: usize, done: usize, shown: bool) -> Requests {
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr_with_hz(4));
        if !shown {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) =
            ProgressStyle::with_template("[{bar:30}] {pos}/{len} requests, {per_sec}, {eta} left")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_position(done as u64);
        bar.reset_eta();
        Requests(bar)
    }

    /// So many are answered.
    pub(crate) fn set(&self, done: usize) {
        self.0.set_position(done as u64);
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }
}

/// Bytes in the largest binary unit that leaves a number of at least 1.
pub(crate) fn human_bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut x = n as f64;
    let mut unit = "B";
    for u in UNITS {
        if x < 1024.0 {
            break;
        }
        (x, unit) = (x / 1024.0, u);
    }
    if x < 10.0 { format!("{x:.2} {unit}") } else { format!("{x:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_are_readable() {
        assert_eq!(human_time(Duration::from_micros(1540)), "1.5 ms");
        assert_eq!(human_time(Duration::from_millis(1540)), "1.54 s");
        assert_eq!((counted(1, "thread"), counted(2, "thread")), ("1 thread".into(), "2 threads".into()));
    }

    #[test]
    fn bytes_are_readable() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (19_200_096, "18.3 MiB"),
            (17 << 30, "17.0 GiB"),
        ];
        for (n, want) in cases {
            assert_eq!(human_bytes(n), want);
        }
    }
}
