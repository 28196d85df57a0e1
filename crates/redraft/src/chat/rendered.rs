//! A rendered chat: its text, and where in it no control token may start.

use super::ControlTokens;

/// The text that a chat template made of messages.
///
/// The template's own markers are control tokens. The same characters inside a message are text, and the prompt
/// knows the difference: it lists the characters that came out of a message and could start a control token.
/// [`Tokenizer::encode_prompt`](crate::tokenizer::Tokenizer::encode_prompt) recognises no control token there.
/// User-defined tokens are recognised everywhere.
///
/// A control token that starts in the template and ends in a message is recognised: templates write
/// `'<|' + role + '|>'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPrompt {
    text: String,
    /// Offsets of the guarded characters, ascending.
    guards: Vec<usize>,
    /// The tokens that were guarded against; `None` when everything in the text is recognised.
    guarded: Option<ControlTokens>,
}

impl RenderedPrompt {
    /// A prompt in which every control token is recognised, wherever it comes from.
    pub fn trusted(text: impl Into<String>) -> RenderedPrompt {
        RenderedPrompt { text: text.into(), guards: Vec::new(), guarded: None }
    }

    /// A prompt whose messages were guarded against `tokens`.
    pub(crate) fn guarded(text: String, guards: Vec<usize>, tokens: ControlTokens) -> RenderedPrompt {
        RenderedPrompt { text, guards, guarded: Some(tokens) }
    }

    /// The text, exactly as the template makes it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Offsets in bytes of the characters that came out of a message and may not start a control token, in
    /// ascending order.
    pub fn guards(&self) -> &[usize] {
        &self.guards
    }

    /// Whether a control token may start at `offset`.
    pub(crate) fn may_be_control(&self, offset: usize) -> bool {
        self.guards.binary_search(&offset).is_err()
    }

    /// A token of `tokens` that messages were not guarded against.
    pub(crate) fn first_unguarded<'a>(&self, tokens: &'a ControlTokens) -> Option<&'a str> {
        self.guarded.as_ref().and_then(|guarded| tokens.first_not_in(guarded))
    }
}
