//! Answers of a quantized file beside those of the file that it was made from.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redraft::engine::{Philox, Request};
use redraft::evaluate::{Distance, Evaluation};
use redraft::gguf::Gguf;
use redraft::{LoadOptions, Model, file_type_name};
use serde::Serialize;

use super::{Args, Report, bits_per_weight, threads};
use crate::args::prompt::{TemplateArgs, asked, prompts};
use crate::out::Out;
use crate::ui::progress::{Count, human_bytes};
use crate::ui::table::table;

/// What is asked where nobody says.
const QUESTIONS: &str = include_str!("questions.txt");

/// How far answers are from those of the input.
#[derive(Debug, Serialize)]
pub(super) struct Answers {
    max_tokens: usize,
    #[serde(flatten)]
    distance: Distance,
}

/// The model that was given, and what it is asked.
pub(super) struct Judge {
    source: Model,
    options: LoadOptions,
    prompts: Vec<Vec<u32>>,
    max_tokens: usize,
    stop: Arc<AtomicBool>,
}

impl Judge {
    /// None for a file that cannot answer, with a warning; that is an error where prompts were given.
    pub(super) fn new(
        args: &Args,
        gguf: &Gguf,
        stop: &Arc<AtomicBool>,
        out: Out,
    ) -> anyhow::Result<Option<Judge>> {
        let asked = match &args.prompts {
            Some(path) => prompts(path)?,
            None => asked(QUESTIONS)?,
        };
        let options = LoadOptions { threads: Some(threads(args)), ..LoadOptions::default() };
        let source = Model::from_gguf(gguf.clone(), &options);
        let source = match source.and_then(|model| model.sampler().map(|_| ()).map(|()| model)) {
            Ok(model) => model,
            Err(e) if args.prompts.is_none() => {
                out.warn(&format!("answers are not compared, this file gives none: {e}"));
                return Ok(None);
            }
            Err(e) => return Err(anyhow::Error::new(e).context(args.input.display().to_string())),
        };
        let (prompts, warnings) = TemplateArgs::default().all_ids(&asked, &source, false)?;
        warnings.iter().for_each(|w| out.warn(w));
        Ok(Some(Judge { source, options, prompts, max_tokens: args.max_tokens, stop: Arc::clone(stop) }))
    }

    /// Asks both models everything. Each prompt has a stream of noise of its own. The input answers anew for each type:
    /// the logits of all its steps, which the other one follows, have gigabytes, and so have all types at once.
    pub(super) fn judge(&mut self, name: &str, made: Gguf, out: Out) -> anyhow::Result<Answers> {
        let mut made = Model::from_gguf(made, &self.options)?;
        let bar = Count::new(&format!("{name}: prompts"), !out.quiet && out.err_terminal);
        let mut evaluation = Evaluation::default();
        for (i, prompt) in self.prompts.iter().enumerate() {
            bar.set(i, self.prompts.len());
            let mut request = Request::new(&self.source, prompt.clone(), self.max_tokens)?;
            request.interrupt = Some(Arc::clone(&self.stop));
            let draws = Philox { seed: i as u64, vocab_len: self.source.shape().vocab_len as u32 };
            evaluation.ask([&mut self.source, &mut made], &request, &draws)?;
        }
        bar.finish();
        Ok(Answers { max_tokens: self.max_tokens, distance: evaluation.distance() })
    }
}

/// Distances of types, beside size; nothing where no answers were compared.
pub(super) fn text(gguf: &Gguf, reports: &[Report]) -> String {
    let compared = || reports.iter().filter_map(|r| Some((r, &r.answers.as_ref()?.distance)));
    let Some((first, d)) = compared().next() else { return String::new() };
    let size = |bytes: u64, bits: f64| [human_bytes(bytes), format!("{bits:.2}")];
    let data = gguf.tensors().iter().fold(0u64, |n, t| n.saturating_add(t.n_bytes));
    let mut rows = vec![vec![format!("{} (input)", file_type_name(gguf).to_lowercase())]];
    rows[0].extend(size(first.bytes_before, bits_per_weight(gguf, data)));
    rows[0].extend(["-"; 7].map(String::from));
    rows[0].push(format!("{:.2}", d.steps_per_canvas[0]));
    for (r, d) in compared() {
        let mut row = vec![r.recipe.clone()];
        row.extend(size(r.bytes, r.bits_per_weight));
        row.extend([d.kl_mean, d.kl_first_step, d.kl_last_step, d.kl_max].map(|x| format!("{x:.1e}")));
        let shares = [d.argmax_agree_percent, d.equal_positions_percent, d.equal_answers_percent];
        row.extend(shares.map(|x| format!("{x:.2} %")));
        row.push(format!("{:.2}", d.steps_per_canvas[1]));
        rows.push(row);
    }
    let heading = [
        "type",
        "size",
        "bits",
        "KL mean",
        "first step",
        "last step",
        "KL max",
        "same argmax",
        "same tokens",
        "same answers",
        "steps",
    ];
    format!("\n{} answers:\n{}", d.answers, table(&heading, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &rows))
}
