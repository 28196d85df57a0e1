//! Infilling: text around gaps, which a model fills.
//!
//! A text with gaps ([`parse`]) becomes a [`Template`] of tokens; [`find_lengths`] finds the lengths of gaps that have
//! none; [`Fill::request`] makes a request of which [`generate`] makes an answer, and
//! [`Template::filled`] reads it. [`fill`] does all of that.
//!
//! Text before the first gap is prompt. What follows is canvas, whose given positions hold their token from the first step
//! to the last ([`Given`](crate::engine::Given)).

mod length;
mod template;
mod text;

use std::ops::ControlFlow;

pub use self::length::{Lengths, MAX_TRIED, Tried, find_lengths};
pub use self::template::{Filled, FilledGap, Gap, Template};
pub use self::text::{FillError, MAX_GAP, Segment, parse, print};

use crate::engine::{Draws, Event, Generation, Request, Session, generate};
use crate::{Error, Model};

/// Tokens of a gap of free length at most, where the user does not say.
pub const DEFAULT_GAP_MAX: usize = 32;

/// A text to fill, and how.
#[derive(Clone, Copy)]
pub struct Fill<'a> {
    /// The text.
    pub template: &'a Template,
    /// A request that has everything but the text: its `max_tokens` are those of a gap of free length at the end.
    pub base: &'a Request,
    /// Tokens at most of a gap whose length is to be found.
    pub gap_max: usize,
    /// The token that follows the text where it is complete, so that nothing comes after its last word. Not used where the
    /// text ends with a gap of free length, which ends where the model ends it.
    pub end: Option<u32>,
}

impl Fill<'_> {
    /// The request for the answer, with gaps of these lengths.
    pub fn request(&self, lengths: &Lengths) -> Request {
        self.template.request(self.base, &lengths.of_gaps(), self.end)
    }
}

/// Fills gaps. `trying` hears of lengths that are tried, as a number of so many, and `on_event` of the steps of the answer.
///
/// # Errors
/// Those of [`generate`]; [`Error::Interrupted`] when `trying` or `on_event` breaks.
pub fn fill(
    model: &mut Model,
    session: &mut Session,
    fill: Fill<'_>,
    draws: &dyn Draws,
    trying: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    on_event: &mut dyn FnMut(&Event<'_>) -> ControlFlow<()>,
) -> Result<(Filled, Generation), Error> {
    let lengths = find_lengths(model, session, fill, draws, trying)?;
    let request = fill.request(&lengths);
    let done = generate(model, session, &request, draws, on_event)?;
    Ok((fill.template.filled(model, &request, &lengths, &done), done))
}
