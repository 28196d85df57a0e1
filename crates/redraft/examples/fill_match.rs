//! How often a model fills a gap in a right answer as it was, with the length of the gap and without:
//! `cargo run --release --example fill_match -- [MODEL.gguf] [--every 4] [--gap-max 32]`.
//!
//! Of each answer to the question set of `testdata/redraft-tiny/questions.json` the first and the last word are blanked out,
//! one at a time. A fill is right if the whole text is the answer.

#![allow(clippy::print_stdout, reason = "a program that reports on the terminal")]

#[path = "questions/mod.rs"]
mod questions;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use questions::{Asker, Question, draws};
use redraft::engine::Event;
use redraft::fill::{DEFAULT_GAP_MAX, Fill, Segment, Template, fill};
use redraft::tokenizer::Specials;
use redraft::{LoadOptions, Model};

/// The word of a text that begins at or before `at`, as a range of bytes.
fn word(text: &str, at: usize) -> (usize, usize) {
    let begin = text[..at].rfind(|c: char| !c.is_alphanumeric()).map_or(0, |i| i + 1);
    let end = text[at..].find(|c: char| !c.is_alphanumeric()).map_or(text.len(), |i| at + i);
    (begin, end)
}

#[derive(Default)]
struct Row {
    n: usize,
    given: usize,
    free: usize,
    /// Found lengths that are those of the word.
    lengths: usize,
    tried: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let every: usize = value("--every").map_or(Ok(1), |s| s.parse())?;
    let gap_max = value("--gap-max").map_or(Ok(DEFAULT_GAP_MAX), |s| s.parse())?;
    let options = LoadOptions::default();
    let mut model = match args.first().filter(|a| !a.starts_with("--")) {
        Some(path) => Model::open(Path::new(path), &options)?,
        None => Model::embedded(&options)?,
    };
    let tokenizer = model.tokenizer().clone();
    let end_id = tokenizer.token_id("<turn|>").or(tokenizer.eos());
    let asker = Asker::new(&model, None, true)?;
    let mut session = model.session()?;
    let mut table: BTreeMap<&str, Row> = BTreeMap::new();
    for (i, q) in Question::all()?.iter().enumerate().step_by(every) {
        let answer = q.answer();
        let letters = |c: char| c.is_ascii_alphanumeric();
        let (Some(first), Some(last)) = (answer.find(letters), answer.rfind(letters)) else { continue };
        let base = asker.request(&model, q)?;
        let draws = draws(&model, 0, i);
        for (blank, at) in [("first", first), ("last", last)] {
            let (begin, end) = word(answer, at);
            let digits = answer[begin..end].bytes().all(|b| b.is_ascii_digit());
            let segments = |len| {
                let text = |s: &str| (!s.is_empty()).then(|| Segment::Text(s.into()));
                let parts = [text(&answer[..begin]), Some(Segment::Gap(len)), text(&answer[end..])];
                parts.into_iter().flatten().collect::<Vec<_>>()
            };
            let mut filled = |len| -> Result<_, Box<dyn std::error::Error>> {
                let prompt = base.prompt.clone();
                let template = Template::new(&tokenizer, prompt, &segments(len), Specials::Text)?;
                let spaced = template.gaps().any(|gap| gap.spaced);
                let what = Fill { template: &template, base: &base, gap_max, end: end_id };
                let tries = &mut |_, _| ControlFlow::Continue(());
                let steps = &mut |_: &Event<'_>| ControlFlow::Continue(());
                let (mut filled, _) = fill(&mut model, &mut session, what, &draws, tries, steps)?;
                Ok((filled.text == answer, filled.gaps.remove(0), spaced))
            };
            let (right, gap, spaced) = filled(None)?;
            let own = if spaced { begin - 1 } else { begin };
            let len = tokenizer.encode_inside(&answer[own..end], Specials::Text)?.len();
            let given = filled(Some(len))?.0;
            let kind = match (blank, digits, gap.n_after) {
                (_, _, 0) => "last, and nothing follows",
                ("first", true, _) => "first, a number",
                ("first", ..) => "first, letters",
                (_, true, _) => "last, a number",
                _ => "last, letters",
            };
            for name in [kind, "all"] {
                let row = table.entry(name).or_default();
                row.n += 1;
                row.given += usize::from(given);
                row.free += usize::from(right);
                row.lengths += usize::from(gap.ids.len() == len);
                row.tried += gap.tried.len();
            }
        }
    }
    println!(
        "{:<26} {:>5} {:>12} {:>12} {:>13} {:>6}",
        "blank", "n", "given", "free", "length found", "tries"
    );
    for (name, r) in &table {
        let percent = |x: usize| 100.0 * x as f64 / r.n as f64;
        let (given, free, found) = (percent(r.given), percent(r.free), percent(r.lengths));
        let tries = r.tried as f64 / r.n as f64;
        println!("{name:<26} {:>5} {given:>10.1} % {free:>10.1} % {found:>11.1} % {tries:>6.1}", r.n);
    }
    Ok(())
}
