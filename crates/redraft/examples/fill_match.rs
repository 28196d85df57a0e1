//! experiment
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports on the terminal")]
#[path = "questions/mod.rs"]
mod questions;
use questions::{Asker, Question, draws};
use redraft::fill::*;
use redraft::tokenizer::Specials;
use redraft::{LoadOptions, Model};
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut model = Model::embedded(&LoadOptions::default())?;
    let tok = model.tokenizer().clone();
    let end = tok.token_id("<turn|>");
    let asker = Asker::new(&model, None, true)?;
    let mut session = model.session()?;
    let open_end = std::env::args().any(|a| a == "--open");
    let end = if open_end { None } else { end };
    for (i, q) in Question::all()?.iter().enumerate().step_by(8) {
        // the last word (letters or digits)
        let a = q.answer();
        let last = a.rfind(|c: char| c.is_alphanumeric()).unwrap();
        let e = last + a[last..].chars().next().unwrap().len_utf8();
        let s = a[..e]
            .rfind(|c: char| !c.is_alphanumeric())
            .map_or(0, |i| i + a[i..].chars().next().unwrap().len_utf8());
        let word = &a[s..e];
        let base = asker.request(&model, q)?;
        let seg = |len| {
            let mut v = vec![];
            if s > 0 {
                v.push(Segment::Text(a[..s].into()));
            }
            v.push(Segment::Gap(len));
            if e < a.len() {
                v.push(Segment::Text(a[e..].into()));
            }
            v
        };
        let t0 = Template::new(&tok, base.prompt.clone(), &seg(None), Specials::Text)?;
        let spaced = t0.gaps().next().unwrap().spaced;
        let w = if spaced { format!(" {word}") } else { word.to_string() };
        let n = tok.encode_inside(&w, Specials::Text)?.len();
        let d = draws(&model, 0, i);
        let mut line = format!("{}\t{}\t{}\t{n}\t{}", q.task, word, s, e == a.len());
        let ls = find_lengths(
            &mut model,
            &mut session,
            &t0,
            &base,
            Options { gap_max: 12, end },
            &d,
            &mut |_, _| ControlFlow::Continue(()),
        )?;
        for t in &ls.0[0].1 {
            line.push_str(&format!("\t{}|{:.3}|{:.3}|{:.3}|{:.3}", t.len, t.score, t.gap, t.sum, t.first));
        }
        println!("{line}");
    }
    Ok(())
}
