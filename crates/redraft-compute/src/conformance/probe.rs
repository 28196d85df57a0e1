//! How far a device keeps to the contract: what its operations give, and a part of the suite.

use super::report::Failure;
use super::runner::Suite;
use crate::backend::{BackendOptions, BackendSpec, Check};
use crate::{Capabilities, ComputeError, Numerics};

/// Cases of each op and mode in a probe.
const EACH: usize = 4;

/// What may be said of the results of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// It runs, and its bits differ.
    Approx,
    /// The bits of the contract in `fast` with quantized weights; products in f32 differ.
    ExactQuant,
    /// The bits of the contract.
    Exact,
}

impl Class {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "EXACT",
            Class::ExactQuant => "EXACT-QUANT",
            Class::Approx => "APPROX",
        }
    }

    /// Whether results of a mode have the bits of the contract.
    ///
    /// ```
    /// use redraft_compute::{Numerics, conformance::Class};
    ///
    /// assert!(Class::ExactQuant.covers(Numerics::Fast) && !Class::ExactQuant.covers(Numerics::Exact));
    /// assert!(!Class::Approx.covers(Numerics::Fast));
    /// ```
    pub fn covers(self, numerics: Numerics) -> bool {
        match self {
            Class::Exact => true,
            Class::ExactQuant => numerics == Numerics::Fast,
            Class::Approx => false,
        }
    }
}

/// What a probe found.
#[derive(Debug, Clone)]
pub struct Probe {
    /// What follows from it.
    pub class: Class,
    /// The device as it ran.
    pub capabilities: Capabilities,
    /// Digests of the cases, as [`Report`](super::Report) has them.
    pub digest: u64,
    /// In `fast`.
    pub fast_digest: u64,
    /// Operations against the host.
    pub checks: Vec<Check>,
    /// Cases of the suite that were run.
    pub cases: usize,
    /// Those that differ.
    pub failures: Vec<Failure>,
}

impl Probe {
    /// Probes a device: a fraction of a second where it is fast.
    ///
    /// # Errors
    /// When the device cannot be had, or fails.
    pub fn new(spec: &BackendSpec, options: &BackendOptions) -> Result<Probe, ComputeError> {
        let checks = (spec.probe)(options)?;
        let suite = Suite::part(EACH)?;
        let report = suite.check(spec, options)?;
        let class = class(&checks, &report.failures);
        Ok(Probe {
            class,
            capabilities: report.capabilities,
            digest: report.digest,
            fast_digest: report.fast_digest,
            checks,
            cases: suite.len(),
            failures: report.failures,
        })
    }

    /// The first thing that is wrong.
    pub fn first_failure(&self) -> Option<String> {
        let check = self.checks.iter().find(|c| !c.passed).map(|c| format!("{}: {}", c.name, c.said));
        check.or_else(|| self.failures.first().map(ToString::to_string))
    }
}

fn class(checks: &[Check], failures: &[Failure]) -> Class {
    if checks.iter().any(|c| !c.passed) {
        return Class::Approx;
    }
    // What f32 products make of activations alone: `fast` has none with quantized weights.
    let dense = |f: &Failure| f.numerics == Numerics::Exact && matches!(f.op, "MatMul" | "MoeExperts");
    match failures.iter().all(dense) {
        _ if failures.is_empty() => Class::Exact,
        true => Class::ExactQuant,
        false => Class::Approx,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_difference_is_enough() {
        let fails = |op, numerics| Failure { op, numerics, case: String::new(), difference: String::new() };
        let check = |passed| Check { name: "exp", passed, said: String::new() };
        assert_eq!(class(&[check(true)], &[]), Class::Exact);
        assert_eq!(class(&[check(true)], &[fails("MatMul", Numerics::Exact)]), Class::ExactQuant);
        assert_eq!(class(&[check(true)], &[fails("MatMul", Numerics::Fast)]), Class::Approx);
        assert_eq!(class(&[check(true)], &[fails("RmsNorm", Numerics::Exact)]), Class::Approx);
        assert_eq!(class(&[check(true), check(false)], &[]), Class::Approx);
    }
}
