//! Running single ops in tests: weights and inputs in, results out.

use std::sync::Arc;

use redraft_gguf::{Bytes, DType};

use crate::backend::{Backend, BackendOptions, InputData, KvLayout, Precision};
use crate::program::{Observer, ProgramBuilder, TapData};
use crate::{ComputeError, Kind, KvType, Val, Weight, WeightId, WeightTable};

/// A weight in F32: name, `[experts, rows, cols]`, elements.
pub(crate) type W<'a> = (&'a str, [usize; 3], &'a [f32]);

/// An input or a result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    Real(Vec<f64>),
    Int(Vec<i32>),
}

impl Data {
    pub(crate) fn real(&self) -> &[f64] {
        match self {
            Data::Real(x) => x,
            Data::Int(_) => panic!("integers"),
        }
    }

    pub(crate) fn int(&self) -> &[i32] {
        match self {
            Data::Int(x) => x,
            Data::Real(_) => panic!("reals"),
        }
    }

    pub(crate) fn as_input(&self) -> InputData<'_> {
        match self {
            Data::Real(x) => InputData::F64(x),
            Data::Int(x) => InputData::Int(x),
        }
    }
}

/// Collects outputs.
#[derive(Default)]
pub(crate) struct Outputs(pub(crate) Vec<Data>);

impl Observer for Outputs {
    fn output(&mut self, _index: usize, _val: Val, data: TapData<'_>) {
        self.0.push(match data {
            TapData::F32(x) => Data::Real(x.iter().map(|&x| f64::from(x)).collect()),
            TapData::F64(x) => Data::Real(x.to_vec()),
            TapData::I32(x) => Data::Int(x.to_vec()),
        });
    }
}

pub(crate) fn table(weights: &[W<'_>]) -> (Arc<WeightTable>, Vec<WeightId>) {
    let mut table = WeightTable::default();
    let ids = weights.iter().map(|&(name, [experts, rows, cols], x)| {
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let bytes = Bytes::from(bytes);
        table.add(Weight { name: name.into(), dtype: DType::F32, experts, rows, cols, bytes }).unwrap()
    });
    let ids = ids.collect();
    (Arc::new(table), ids)
}

pub(crate) fn backend(precision: Precision, weights: &Arc<WeightTable>) -> Box<dyn Backend> {
    let options = BackendOptions { precision, ..BackendOptions::default() };
    (super::SPEC.create)(&options, Arc::clone(weights)).unwrap()
}

/// Runs what `build` appends to a program of `rows` rows without a cache; `inputs` are given to it as values.
pub(crate) fn run(
    precision: Precision,
    weights: &[W<'_>],
    rows: usize,
    inputs: &[Data],
    build: impl FnOnce(&mut ProgramBuilder, &[Val], &[WeightId]) -> Result<Vec<Val>, ComputeError>,
) -> Result<Vec<Data>, ComputeError> {
    let (table, ids) = table(weights);
    let mut b = ProgramBuilder::new(&table, 0, rows);
    let mut vals = Vec::new();
    for data in inputs {
        vals.push(match data {
            Data::Real(x) => b.input("x", x.len() / rows, Kind::Real)?,
            Data::Int(x) => b.input("ids", x.len() / rows, Kind::Int)?,
        });
    }
    for v in build(&mut b, &vals, &ids)? {
        b.output(v);
    }
    let mut backend = backend(precision, &table);
    let seq = backend.seq_create(&KvLayout::default(), KvType::F32)?;
    let mut out = Outputs::default();
    let inputs: Vec<InputData<'_>> = inputs.iter().map(Data::as_input).collect();
    backend.run(&b.finish(), &[seq], &inputs, &mut out)?;
    Ok(out.0)
}

/// Deterministic numbers in -1 .. 1.
pub(crate) fn noise(seed: u32, n: usize) -> Vec<f64> {
    (0..n).map(|i| crate::rng::uniform(u64::from(seed), 0, 0, i as u32) * 2.0 - 1.0).collect()
}

/// The same in f32, as weights.
pub(crate) fn noise32(seed: u32, n: usize) -> Vec<f32> {
    noise(seed, n).iter().map(|&x| x as f32).collect()
}

/// The largest difference, relative to the largest element of `b`.
pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let size = b.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs())) / size
}
