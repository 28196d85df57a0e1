//! Runs the cases on a backend and compares with the reference.

use std::sync::Arc;

use super::cases::{self, Case, Data, Setup};
use super::report::{Digest, Failure, Report};
use crate::backend::{BackendOptions, BackendSpec};
use crate::program::{Observer, TapData};
use crate::weight::WeightTable;
use crate::{Backend, ComputeError, InputData, Numerics, Val, backend};

/// Bits of one output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bits {
    Real(Vec<u32>),
    Int(Vec<i32>),
    /// f64, which no conforming backend gives.
    Other,
}

/// One output of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) step: usize,
    pub(super) index: usize,
    pub(super) cols: usize,
    pub(super) bits: Bits,
}

/// What came of a case: its outputs, or the text of the error.
pub(super) type Outcome = Result<Vec<Output>, String>;

/// All cases with what the reference made of them.
pub struct Suite {
    cases: Vec<(Case, Setup, Outcome)>,
}

impl Suite {
    /// Builds the cases and runs them on the reference.
    ///
    /// # Errors
    /// When the reference backend cannot be had or a case does not build; neither happens in a sound build.
    pub fn new() -> Result<Suite, ComputeError> {
        Suite::of(cases::all())
    }

    /// At most `each` cases of each op and mode, spread over all that there are.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn part(each: usize) -> Result<Suite, ComputeError> {
        let all = cases::all();
        let mut wanted = vec![false; all.len()];
        for (i, case) in all.iter().enumerate() {
            let alike = |other: &&Case| (other.op, other.numerics) == (case.op, case.numerics);
            let (n, at) = (all.iter().filter(alike).count(), all[..i].iter().filter(alike).count());
            // The first case of each of `each` equal shares.
            wanted[i] = n <= each || at * each % n < each;
        }
        Suite::of(all.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(case, _)| case).collect())
    }

    fn of(cases: Vec<Case>) -> Result<Suite, ComputeError> {
        let reference = backend("reference")?;
        let mut list = Vec::new();
        for case in cases {
            let setup = (case.make)()?;
            let mut b = (reference.create)(&BackendOptions::default(), Arc::clone(&setup.weights))?;
            let expected = run(&setup, b.as_mut());
            list.push((case, setup, expected));
        }
        Ok(Suite { cases: list })
    }

    /// Number of cases.
    pub fn len(&self) -> usize {
        self.cases.len()
    }

    /// Whether there are no cases, which is never so.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// Number of cases that must end in an error: overflow, or an id out of range.
    pub fn errors(&self) -> usize {
        self.cases.iter().filter(|(_, _, expected)| expected.is_err()).count()
    }

    /// Number of cases for each op, in the order of the suite.
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts: Vec<(&'static str, usize)> = Vec::new();
        for (case, _, _) in &self.cases {
            match counts.iter_mut().find(|(op, _)| *op == case.op) {
                Some((_, n)) => *n += 1,
                None => counts.push((case.op, 1)),
            }
        }
        counts
    }

    /// Runs all cases on a backend.
    ///
    /// # Errors
    /// When the backend cannot be created with these options.
    pub fn check(&self, spec: &BackendSpec, options: &BackendOptions) -> Result<Report, ComputeError> {
        let capabilities = (spec.create)(options, Arc::new(WeightTable::default()))?.capabilities();
        let mut report = Report { capabilities, passed: 0, failures: Vec::new(), digest: 0, fast_digest: 0 };
        let (mut exact, mut fast) = (Digest::default(), Digest::default());
        for (case, setup, expected) in &self.cases {
            let mut b = (spec.create)(options, Arc::clone(&setup.weights))?;
            let found = run(setup, b.as_mut());
            match case.numerics {
                Numerics::Exact => exact.outcome(&found),
                Numerics::Fast => fast.outcome(&found),
            }
            match Failure::compare(case, expected, &found) {
                Some(failure) => report.failures.push(failure),
                None => report.passed += 1,
            }
        }
        (report.digest, report.fast_digest) = (exact.finish(), fast.finish());
        Ok(report)
    }
}

/// Runs the steps of a case.
fn run(setup: &Setup, b: &mut dyn Backend) -> Outcome {
    let mut collect = || {
        let seq = b.seq_create(&setup.layout, setup.kv_type)?;
        let mut outputs = Vec::new();
        for (step, (program, inputs)) in setup.steps.iter().enumerate() {
            let inputs: Vec<InputData<'_>> = inputs
                .iter()
                .map(|x| match x {
                    Data::Int(x) => InputData::Int(x),
                    Data::Real(x) => InputData::F32(x),
                })
                .collect();
            let mut collector = Collector { step, outputs: &mut outputs };
            b.run(program, &[seq], &inputs, &mut collector)?;
        }
        Ok(outputs)
    };
    collect().map_err(|e: ComputeError| e.to_string())
}

struct Collector<'a> {
    step: usize,
    outputs: &'a mut Vec<Output>,
}

impl Observer for Collector<'_> {
    fn output(&mut self, index: usize, val: Val, data: TapData<'_>) {
        let bits = match data {
            TapData::F32(x) => Bits::Real(x.iter().map(|x| x.to_bits()).collect()),
            TapData::I32(x) => Bits::Int(x.to_vec()),
            TapData::F64(_) => Bits::Other,
        };
        self.outputs.push(Output { step: self.step, index, cols: val.cols(), bits });
    }
}
