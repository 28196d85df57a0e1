//! A text with gaps as tokens.

use super::{FillError, Lengths, Segment, Tried};
use crate::engine::{Generation, Given, Request, Slot};
use crate::tokenizer::{Specials, Tokenizer};
use crate::{Error, Model};

/// A gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Its tokens; none where that is to be found.
    pub len: Option<usize>,
    /// Its text begins with the space that was written before it.
    pub spaced: bool,
}

/// A text with gaps as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// What comes before the first gap: a prompt, and text.
    prompt: Vec<u32>,
    /// The text of it.
    head: String,
    /// The gaps, and the text after each of them with its tokens.
    gaps: Vec<(Gap, String, Vec<u32>)>,
}

/// A gap that is filled.
#[derive(Debug, Clone, PartialEq)]
pub struct FilledGap {
    /// Its tokens.
    pub ids: Vec<u32>,
    /// Its text, without the space that was written before it.
    pub text: String,
    /// Its first position in the sequence, prompt included.
    pub start: usize,
    /// Tokens of text between it and the next gap.
    pub n_after: usize,
    /// How many of them the canvas held in which it was decided.
    pub n_seen: usize,
    /// The lengths that were tried; none where it was given, and where the gap ends where the model ends it.
    pub tried: Vec<Tried>,
}

/// A text whose gaps are filled.
#[derive(Debug, Clone, PartialEq)]
pub struct Filled {
    /// The whole text.
    pub text: String,
    /// Its gaps.
    pub gaps: Vec<FilledGap>,
}

impl Template {
    /// The tokens of a text, as part of an answer to `prompt`; where that is empty the text is a document of its own, with a
    /// begin of sequence where the vocabulary wants one. Control tokens that are spelled out in the text are recognised
    /// with [`Specials::Parse`].
    ///
    /// A single space before a gap is left to the gap, whose first token then begins with one: that is how most
    /// vocabularies write words. Text is tokenized piece by piece, and never across a gap.
    ///
    /// # Errors
    /// [`FillError::NoGap`]; those of the tokenizer.
    pub fn new(
        tokenizer: &Tokenizer,
        prompt: Vec<u32>,
        segments: &[Segment],
        specials: Specials,
    ) -> Result<Template, Error> {
        let has_spaces = tokenizer.without_space().len() < tokenizer.vocab_len();
        let mut template = Template { prompt, head: String::new(), gaps: Vec::new() };
        for (i, segment) in segments.iter().enumerate() {
            let text = match segment {
                Segment::Gap(len) => {
                    // The text before it has said whether a space is its own.
                    let text = template.last_text();
                    let spaced = has_spaces && text.ends_with(' ') && !text.ends_with("  ");
                    template.gaps.push((Gap { len: *len, spaced }, String::new(), Vec::new()));
                    continue;
                }
                Segment::Text(text) => text.as_str(),
            };
            let gap_follows = matches!(segments.get(i + 1), Some(Segment::Gap(_)));
            let spaced = has_spaces && gap_follows && text.ends_with(' ') && !text.ends_with("  ");
            let own = if spaced { &text[..text.len() - 1] } else { text };
            match template.gaps.last_mut() {
                Some((_, after, ids)) => {
                    *ids = tokenizer.encode_inside(own, specials)?;
                    *after = text.to_string();
                }
                None => {
                    template.head = text.to_string();
                    let ids = match template.prompt.is_empty() {
                        true => tokenizer.encode_raw_prompt(own, specials)?,
                        false => tokenizer.encode(own, specials)?,
                    };
                    template.prompt.extend(ids);
                }
            }
        }
        if template.prompt.is_empty() {
            template.prompt = tokenizer.encode_raw_prompt("", specials)?;
        }
        if template.gaps.is_empty() {
            return Err(FillError::NoGap.into());
        }
        Ok(template)
    }

    fn last_text(&self) -> &str {
        self.gaps.last().map_or(&self.head, |(_, after, _)| after)
    }

    /// The tokens before the first gap.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// The text before the first gap, without a space that is left to it.
    pub fn head(&self) -> &str {
        let spaced = self.gaps().next().is_some_and(|gap| gap.spaced);
        self.head.strip_suffix(' ').filter(|_| spaced).unwrap_or(&self.head)
    }

    /// The gaps, in order.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> + '_ {
        self.gaps.iter().map(|(gap, ..)| *gap)
    }

    /// How many gaps there are.
    pub fn n_gaps(&self) -> usize {
        self.gaps.len()
    }

    /// Tokens of all given text after the first gap.
    pub fn n_fixed(&self) -> usize {
        self.gaps.iter().map(|(_, _, ids)| ids.len()).sum()
    }

    /// Tokens of given text between this gap and the next one.
    pub(super) fn n_after(&self, gap: usize) -> usize {
        self.gaps.get(gap).map_or(0, |(_, _, ids)| ids.len())
    }

    /// Whether the text ends with a gap of free length: that one ends where the model ends it.
    pub fn ends_free(&self) -> bool {
        self.gaps.last().is_some_and(|(gap, _, ids)| gap.len.is_none() && ids.is_empty())
    }

    /// The text up to gap `last` and what follows it until the next one.
    pub(super) fn up_to(&self, last: usize) -> Template {
        Template { gaps: self.gaps[..=last].to_vec(), ..self.clone() }
    }

    /// The request for an answer, with gaps of these lengths; a gap of free length at the end has at most the
    /// `max_tokens` of `base`, and needs none. `end` follows text that ends otherwise.
    pub fn request(&self, base: &Request, lengths: &[Option<usize>], end: Option<u32>) -> Request {
        let mut slots = Vec::new();
        let mut room = 0;
        for ((gap, _, ids), len) in self.gaps.iter().zip(lengths) {
            let first = if gap.spaced { Slot::SpacedGap } else { Slot::Gap };
            match len {
                Some(len) => {
                    slots.extend([first].iter().chain(std::iter::repeat(&Slot::Gap)).take(*len));
                }
                None => {
                    slots.extend(gap.spaced.then_some(first));
                    room = base.max_tokens.saturating_sub(usize::from(gap.spaced));
                }
            }
            slots.extend(ids.iter().map(|&id| Slot::Fixed(id)));
        }
        let open = lengths.last().is_some_and(Option::is_none);
        Request {
            prompt: self.prompt.clone(),
            max_tokens: slots.len().saturating_add(room).max(1),
            given: Given { slots, end: end.filter(|_| !open) },
            ..base.clone()
        }
    }

    /// What an answer to such a request says.
    pub fn filled(&self, model: &Model, request: &Request, lengths: &Lengths, done: &Generation) -> Filled {
        let tokenizer = model.tokenizer();
        let windows = request.given.windows(model.shape(), request.prompt.len(), request.max_tokens);
        let mut text = self.head.clone();
        let mut gaps = Vec::new();
        let mut at = 0;
        for ((gap, after, fixed), (len, tried)) in self.gaps.iter().zip(&lengths.0) {
            let end = len.map_or(done.ids.len(), |len| at + len).min(done.ids.len());
            let ids = done.ids[at.min(end)..end].to_vec();
            let mut own = tokenizer.decode_inside(&ids, false);
            if gap.spaced && own.starts_with(' ') {
                own.remove(0);
            }
            text.push_str(&own);
            text.push_str(after);
            let last = end.saturating_sub(1);
            // They ascend.
            let seen_until =
                windows.get(windows.partition_point(|w| w.end() <= last)).filter(|w| w.start <= last);
            let n_seen = seen_until.map_or(0, |w| (w.start + w.len).saturating_sub(end).min(fixed.len()));
            gaps.push(FilledGap {
                ids,
                text: own,
                start: request.prompt.len() + at,
                n_after: fixed.len(),
                n_seen,
                tried: tried.clone(),
            });
            at = end + fixed.len();
        }
        Filled { text, gaps }
    }
}
