//! What a step computes, without computing it.

use redraft_compute::{Program, SeqId};

use super::parts::{Parts, Work};
use crate::engine::{CanvasPass, Sampling, Session, TapSink, canvas_pass, dry};
use crate::{Error, Model};

/// Multiply-accumulate operations of the first step of a canvas of `rows` tokens without a prompt; no time.
///
/// # Errors
/// Those of building the pass.
pub fn planned(model: &mut Model, rows: usize) -> Result<Work, Error> {
    let (ids, uniform) = (vec![0; rows], vec![0.5; rows]);
    let pass = CanvasPass { sampling: Some(Sampling::at(1.0, &uniform)), ..CanvasPass::new(&ids) };
    let mut sum = Sum(Work::default());
    let (done, _) = dry(model, |model| canvas_pass(model, &Session::new(SeqId(0)), pass, &mut sum));
    done?;
    Ok(sum.0)
}

struct Sum(Work);

impl TapSink for Sum {
    fn begin(&mut self, program: &Program) {
        for (_, work) in Parts::plan(program) {
            self.0.int8_macs = self.0.int8_macs.saturating_add(work.int8_macs);
            self.0.f32_macs = self.0.f32_macs.saturating_add(work.f32_macs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadOptions;

    #[test]
    fn a_step_is_counted_and_grows_with_its_rows() {
        let mut model = Model::embedded(&LoadOptions::default()).unwrap();
        let head = (model.shape().vocab_len * model.shape().d_model) as u64;
        let [one, two] = [1, 2].map(|rows| planned(&mut model, rows).unwrap().macs());
        assert!(one > head, "{one}: at least the output head");
        assert!(two > 2 * head && two >= 2 * one, "{two}: attention grows faster than the rows");
    }
}
