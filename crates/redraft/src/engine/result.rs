//! What comes out of a pass.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redraft_compute::op::STATS;
use redraft_compute::{Observer, TapData, TapKey, Val, WeightId, WeightTable};

use super::TapSink;
use crate::importance::ImportanceCollector;

/// What a pass with sampling computed, per position of the canvas. Where a position was not to be predicted, argmax and
/// sample are what stands there and the numbers are 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CanvasResult {
    /// Most likely ids.
    pub argmax: Vec<u32>,
    /// Drawn ids.
    pub sample: Vec<u32>,
    /// Largest logit.
    pub max: Vec<f32>,
    /// Log-sum-exp of the logits.
    pub lse: Vec<f32>,
    /// Entropy in nats.
    pub entropy: Vec<f32>,
    /// Logit of the argmax; empty where nobody asked.
    pub first: Vec<f32>,
    /// Largest logit of another id; empty where nobody asked.
    pub second: Vec<f32>,
    /// Logit of the sample; empty where nobody asked.
    pub sampled: Vec<f32>,
    /// Logits that ids are drawn from, before top-k and top-p, `[canvas, V]`; empty where nobody asked.
    pub logits: Vec<f32>,
}

impl CanvasResult {
    /// Takes away what was predicted for positions that are not open.
    pub(super) fn without(mut self, ids: &[u32], open: &[bool]) -> CanvasResult {
        for i in (0..open.len()).filter(|&i| !open[i]) {
            for id in [&mut self.argmax, &mut self.sample] {
                id[i] = ids[i];
            }
            for number in [&mut self.max, &mut self.lse, &mut self.entropy] {
                number[i] = 0.0;
            }
        }
        self
    }

    /// Puts the rows of predicted positions to their places in the canvas.
    pub(super) fn spread(self, ids: &[u32], open: &[bool]) -> CanvasResult {
        fn place<T: Copy>(rows: Vec<T>, open: &[bool], closed: impl Fn(usize) -> T) -> Vec<T> {
            if rows.is_empty() {
                return rows;
            }
            let mut rows = rows.into_iter();
            let at = |(i, &open): (usize, &bool)| match open {
                true => rows.next().unwrap_or_else(|| closed(i)),
                false => closed(i),
            };
            open.iter().enumerate().map(at).collect()
        }
        let number = |rows| place(rows, open, |_| 0.0);
        let vocab_len = self.logits.len() / open.iter().filter(|&&open| open).count().max(1);
        let rows = self.logits.chunks_exact(vocab_len.max(1)).collect();
        let none = vec![0.0; vocab_len];
        CanvasResult {
            argmax: place(self.argmax, open, |i| ids[i]),
            sample: place(self.sample, open, |i| ids[i]),
            max: number(self.max),
            lse: number(self.lse),
            entropy: number(self.entropy),
            first: number(self.first),
            second: number(self.second),
            sampled: number(self.sampled),
            logits: place(rows, open, |_| &none).concat(),
        }
    }
}

/// What an output of a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// Maximum, log-sum-exp, entropy.
    Statistics,
    Argmax,
    Sample,
    /// The logits of both, and the second largest one.
    Worth,
    Logits,
}

/// Joins a sink with the outputs of a pass.
pub(super) struct Watch<'a> {
    pub(super) sink: &'a mut dyn TapSink,
    /// Of the pass, and of its first sequence, which is the one that is looked at.
    pub(super) rows: [usize; 2],
    /// Of which result each output is a part.
    pub(super) outputs: Vec<(usize, Output)>,
    pub(super) results: Vec<CanvasResult>,
    /// What collects importance data, and the weights that are meant.
    pub(super) products: Option<(&'a mut ImportanceCollector, &'a WeightTable)>,
}

impl Observer for Watch<'_> {
    fn wants(&self, key: TapKey) -> bool {
        self.sink.wants(key)
    }

    fn tap(&mut self, key: TapKey, val: Val, data: TapData<'_>) {
        let [all, own] = self.rows;
        match val.rows() == all {
            true => self.sink.tap(key, val.first_rows(own), data.first(own * val.cols())),
            false => self.sink.tap(key, val, data),
        }
    }

    fn output(&mut self, index: usize, _val: Val, data: TapData<'_>) {
        let Some(&(result, output)) = self.outputs.get(index) else { return };
        let Some(r) = self.results.get_mut(result) else { return };
        let reals: Vec<f32> = match data {
            TapData::F32(x) => x.to_vec(),
            TapData::F64(x) => x.iter().map(|&x| x as f32).collect(),
            // Ids come out of a vocabulary that fits i32.
            TapData::I32(x) => {
                let picks = if output == Output::Argmax { &mut r.argmax } else { &mut r.sample };
                return picks.extend(x.iter().map(|&id| id as u32));
            }
        };
        match output {
            Output::Statistics => {
                for &[max, lse, entropy, _] in reals.as_chunks::<STATS>().0 {
                    r.max.push(max);
                    r.lse.push(lse);
                    r.entropy.push(entropy);
                }
            }
            Output::Worth => {
                for &[first, second, sampled] in reals.as_chunks().0 {
                    r.first.push(first);
                    r.second.push(second);
                    r.sampled.push(sampled);
                }
            }
            Output::Logits => r.logits = reals,
            Output::Argmax | Output::Sample => {}
        }
    }

    fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        self.sink.interrupt()
    }

    fn wants_products(&self) -> bool {
        self.products.is_some()
    }

    fn product(&mut self, weight: WeightId, x: TapData<'_>, experts: Option<&[i32]>) {
        if let Some((collector, weights)) = &mut self.products
            && let Ok(weight) = weights.get(weight)
        {
            collector.add(weight, x, experts);
        }
    }

    fn times_ops(&self) -> bool {
        self.sink.times_ops()
    }

    fn timed(&mut self, index: usize, time: Duration) {
        self.sink.timed(index, time);
    }
}
