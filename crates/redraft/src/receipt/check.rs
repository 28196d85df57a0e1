//! Runs a receipt again and finds what differs first.

use std::ops::ControlFlow;

use super::{ModelDigests, Receipt, StepRecorder, text_of};
use crate::engine::{Event, Generation};
use crate::tokenizer::Tokenizer;

/// Where a repetition departs from its receipt.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// What differs, with its place.
    pub what: String,
    /// What the receipt says.
    pub receipt: String,
    /// What is found here.
    pub here: String,
    /// What that means.
    pub meaning: String,
}

impl Difference {
    fn new(
        what: impl Into<String>,
        receipt: impl ToString,
        here: impl ToString,
        meaning: &str,
    ) -> Difference {
        Difference {
            what: what.into(),
            receipt: receipt.to_string(),
            here: here.to_string(),
            meaning: meaning.to_string(),
        }
    }
}

/// What differs first between the model of a receipt and the one at hand. Its name plays no part.
pub fn model_difference(receipt: &ModelDigests, here: &ModelDigests) -> Option<Difference> {
    let another = "this is another model, or another conversion of it";
    let weights = "hyper-parameters and vocabulary are the same, the weights are not: another quantization \
                   run, or a damaged file";
    let rows = [
        ("architecture", receipt.architecture.clone(), here.architecture.clone(), another),
        ("SHA-256 of the header", receipt.sha256_header.clone(), here.sha256_header.clone(), another),
        ("length of the file", receipt.file_bytes.to_string(), here.file_bytes.to_string(), weights),
        ("SHA-256 of the file", receipt.sha256_file.clone(), here.sha256_file.clone(), weights),
    ];
    let (what, a, b, meaning) = rows.into_iter().find(|(_, a, b, _)| a != b)?;
    Some(Difference::new(format!("model: {what}"), a, b, meaning))
}

/// Compares an answer with a receipt while it is generated.
pub struct Check<'a> {
    receipt: &'a Receipt,
    recorder: StepRecorder,
    difference: Option<Difference>,
}

impl<'a> Check<'a> {
    /// Nothing is generated yet.
    pub fn new(receipt: &'a Receipt) -> Check<'a> {
        Check { receipt, recorder: StepRecorder::default(), difference: None }
    }

    /// Looks at an event; breaks at the first difference.
    pub fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        self.recorder.event(event);
        self.difference = match event {
            Event::Prompt { .. } => None,
            Event::Step(s) => self.step(s.canvas, s.step),
            Event::Commit { canvas, .. } => self.commit(*canvas),
        };
        if self.difference.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn step(&self, canvas: usize, step: usize) -> Option<Difference> {
        let here = &self.recorder.canvases()[canvas].steps[step];
        let place = format!("canvas {}, step {}", canvas + 1, step + 1);
        let Some(recorded) = self.receipt.canvases.get(canvas) else {
            let (n, more) = (self.receipt.canvases.len(), canvas + 1);
            let meaning = "the answer goes on where the receipt's ended, although all steps were equal: the \
                           receipt is not complete";
            return Some(Difference::new("number of canvases", n, format!("at least {more}"), meaning));
        };
        let Some(want) = recorded.steps.get(step) else {
            let meaning = "the sampler goes on where the receipt's stopped, although all steps were equal: \
                           another stop rule";
            let n = recorded.steps.len();
            return Some(Difference::new(
                place + ": number of steps",
                n,
                format!("at least {}", step + 1),
                meaning,
            ));
        };
        let input = if step == 0 {
            "the canvas of noise differs: another seed or another generator"
        } else {
            "what went in differs, although the step before was equal"
        };
        let logits = "the same ids went in and the model made other numbers of them: arithmetic or weights";
        let decision =
            "the model's numbers are the same and the sampler decided otherwise: its rule or its draws";
        let rows = [
            ("canvas that went in", &want.canvas, &here.canvas, input),
            ("logits", &want.logits, &here.logits, logits),
            ("decision", &want.decision, &here.decision, decision),
        ];
        let (what, a, b, meaning) = rows.into_iter().find(|(_, a, b, _)| a != b)?;
        Some(Difference::new(format!("{place}: {what}"), a, b, meaning))
    }

    fn commit(&self, canvas: usize) -> Option<Difference> {
        let here = &self.recorder.canvases()[canvas];
        let want = self.receipt.canvases.get(canvas)?;
        let place = format!("canvas {}", canvas + 1);
        let meaning = "all steps so far were equal and the canvas was done earlier: another stop rule";
        if want.steps.len() != here.steps.len() {
            let (a, b) = (want.steps.len(), here.steps.len());
            return Some(Difference::new(place + ": number of steps", a, b, meaning));
        }
        let word = |s: &Option<String>| s.clone().unwrap_or_else(|| "none".to_string());
        (want.stop != here.stop)
            .then(|| Difference::new(place + ": reason to stop", word(&want.stop), word(&here.stop), meaning))
    }

    /// The first difference, `answer` included where generation came to its end; `tokenizer` is that of the model.
    pub fn finish(self, answer: Option<&Generation>, tokenizer: &Tokenizer) -> Option<Difference> {
        if self.difference.is_some() {
            return self.difference;
        }
        let (want, here) = (self.receipt, answer?);
        let steps = "all steps were equal, and what was made of them is not";
        let n = (want.canvases.len(), here.canvases.len());
        let full = |d: &Option<String>| d.clone().unwrap_or_else(|| "none".to_string());
        let rows = [
            ("number of canvases", n.0.to_string(), n.1.to_string()),
            ("finish reason", want.finish_reason.clone(), here.finish.name().to_string()),
            ("ids of the answer", format!("{:?}", want.ids), format!("{:?}", here.ids)),
            // People read the text and not the ids: it must not say anything else.
            ("text of the answer", want.text.clone(), text_of(&here.ids, tokenizer)),
            ("digest of the ids", want.digest.ids.clone(), here.digests.ids.clone()),
            ("digest of the logits", want.digest.logits.clone(), here.digests.logits.clone()),
            ("digest of all logits", full(&want.digest.full), full(&here.digests.full)),
        ];
        let (what, a, b) = rows.into_iter().find(|(_, a, b)| a != b)?;
        Some(Difference::new(what, a, b, steps))
    }
}
