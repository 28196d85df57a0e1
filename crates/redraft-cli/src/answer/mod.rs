//! An answer: how it is generated and shown, and what is reported of it. Every command that answers goes this way.

mod report;
mod watch;

use std::ops::ControlFlow;
use std::sync::Arc;

use redraft::chat::Answer;
use redraft::engine::{Event, Generation, Philox, Request, Session, generate};
use redraft::{Error, Model};

pub(crate) use self::report::{Report, peak_rss_bytes, warnings};
use self::watch::{Watch, Watched};
use crate::args::prompt::Think;
use crate::out::Out;

/// How an answer is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// As a canvas that changes in place; else as text.
    pub(crate) live: bool,
    /// With the entropy of each part of it.
    pub(crate) entropy: bool,
    /// Where gaps are filled, the text before the first: what is shown is the whole text, on a live canvas only.
    pub(crate) head: Option<&'a str>,
}

/// Generates an answer and shows it as it comes about; `also` sees all events. What was final is taken apart even
/// where the generation did not come to its end.
///
/// # Errors
/// stdout cannot be written to.
pub(crate) fn show(
    model: &mut Model,
    session: &mut Session,
    request: &Request,
    seed: u64,
    view: View<'_>,
    out: Out,
    also: &mut dyn FnMut(&Event<'_>),
) -> anyhow::Result<(Answer, Result<Generation, Error>)> {
    let draws = Philox { seed, vocab_len: model.shape().vocab_len as u32 };
    let mut watch = Watch::new(
        Watched {
            tokenizer: Arc::clone(model.tokenizer()),
            end_ids: request.end_ids.clone(),
            max_tokens: request.max_tokens,
            canvases: model.shape().canvases(request.prompt.len(), request.max_tokens),
            given: request.given.clone(),
            windows: match view.head {
                // Longer ones are an error, before anything is shown of them.
                Some(_) if request.max_tokens <= request.context_len => {
                    request.given.windows(model.shape(), request.prompt.len(), request.max_tokens)
                }
                _ => Vec::new(),
            },
            head: view.head.map(str::to_string),
            noise: model.shape().noise,
            draws,
            profile: request.profile,
            entropy: view.entropy,
        },
        &request.prompt,
        view.live,
        out,
    )?;
    let mut failed = None;
    let done = generate(model, session, request, &draws, &mut |event| {
        also(event);
        match watch.event(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        }
    });
    let finished = watch.finish(done.is_ok());
    if let Some(e) = failed {
        return Err(e);
    }
    Ok((finished?, done))
}

/// What belongs to an answer and is no text of it, for people: on stderr, so that stdout is the answer alone.
pub(crate) fn show_beside(think: Think, answer: &Answer, out: Out) {
    if out.json || out.quiet {
        return;
    }
    if !answer.reasoning.is_empty() && (think == Think::On || out.verbose > 0) {
        out.err(&format!("thought: {}", answer.reasoning));
    }
    for call in &answer.tool_calls {
        let arguments = serde_json::Value::Object(call.arguments.clone());
        out.err(&format!("tool call: {} {arguments}", call.name));
    }
}
