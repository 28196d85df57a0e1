//! Keeping text inside messages from becoming a control token, through whatever a template does to it.
//!
//! 1. A *marker* is chosen: a private character that occurs nowhere in the template or the messages.
//! 2. In every string of the messages and tools each character that could start a control token is put between
//!    two markers: `a <|turn>` becomes `a ‖<‖|turn>`. Markers stand next to characters that are no white space,
//!    so that filters such as `trim` do what they did before.
//! 3. The template is rendered twice, with and without markers. The markers in the first result show which of
//!    the characters in the second came out of a message.
//! 4. The first result without its markers must be the second one, and every marker must have its partner.
//!    Otherwise the template looked at a marked text (it splits an answer at `</think>`, say). Then the strings
//!    that the template itself spells out are left unmarked, unless they could be part of a control token, and
//!    the template is rendered again.
//! 5. If that is of no help either, the messages are refused.
//!
//! Step 4 makes the guard provable per prompt: the text is always the one the template makes of the plain
//! messages, and a prompt is only accepted if each character of a message that could start a control token is
//! known.

use std::sync::Arc;

use serde_json::Value;

/// The control tokens of a vocabulary, as far as messages have to be guarded against them. Cloning is cheap.
///
/// The default stands for an unknown vocabulary in which each control token starts with `<` or `[`.
/// [`RenderOptions::for_tokenizer`](super::RenderOptions::for_tokenizer) has the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlTokens(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    /// The characters that control tokens start with, ascending.
    first_chars: Vec<char>,
    /// The tokens, unless they are not known.
    texts: Option<Vec<String>>,
}

impl Default for ControlTokens {
    fn default() -> ControlTokens {
        ControlTokens(Arc::new(Inner { first_chars: vec!['<', '['], texts: None }))
    }
}

impl ControlTokens {
    /// The control tokens with these texts.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> ControlTokens {
        let texts: Vec<String> = texts.into_iter().filter(|t| !t.is_empty()).map(str::to_owned).collect();
        let mut first_chars: Vec<char> = texts.iter().filter_map(|t| t.chars().next()).collect();
        first_chars.sort_unstable();
        first_chars.dedup();
        ControlTokens(Arc::new(Inner { first_chars, texts: Some(texts) }))
    }

    /// Whether a control token can start with `c`.
    fn starts_with(&self, c: char) -> bool {
        self.0.first_chars.binary_search(&c).is_ok()
    }

    /// A token whose first character `other` does not guard.
    pub(crate) fn first_not_in(&self, other: &ControlTokens) -> Option<&str> {
        let missing = *self.0.first_chars.iter().find(|&&c| !other.starts_with(c))?;
        self.0.texts.iter().flatten().find(|t| t.starts_with(missing)).map(String::as_str)
    }

    /// The ends of `literals` that a template may look for in messages and that cannot be the beginning of a
    /// control token; `None` when the tokens are not known.
    fn harmless<'a>(&self, literals: &'a [String]) -> Option<Vec<&'a str>> {
        let texts = self.0.texts.as_ref()?;
        let tails = literals.iter().flat_map(|literal| {
            literal.char_indices().filter(|&(_, c)| self.starts_with(c)).map(move |(at, _)| &literal[at..])
        });
        let harmless =
            |tail: &&str| !texts.iter().any(|t| t.starts_with(*tail) || tail.starts_with(t.as_str()));
        Some(tails.take(MAX_TAILS).filter(harmless).take(MAX_UNMARKED).collect())
    }
}

/// Ends of strings that are looked at for [`MAX_UNMARKED`].
const MAX_TAILS: usize = 4096;

/// Strings that a template may look for, at most. Each is compared with every guarded character of the
/// messages; templates in use spell out a handful.
const MAX_UNMARKED: usize = 256;

/// How messages are marked.
pub(crate) struct Marking<'a> {
    marker: char,
    tokens: &'a ControlTokens,
    /// Strings at whose start no marker is put.
    unmarked: Vec<&'a str>,
}

impl<'a> Marking<'a> {
    /// Marks everything.
    pub(crate) fn strict(marker: char, tokens: &'a ControlTokens) -> Marking<'a> {
        Marking { marker, tokens, unmarked: Vec::new() }
    }

    /// Leaves alone what the template spells out and no control token contains at its start.
    pub(crate) fn lenient(&self, literals: &'a [String]) -> Option<Marking<'a>> {
        let unmarked = self.tokens.harmless(literals)?;
        (!unmarked.is_empty()).then_some(Marking { marker: self.marker, tokens: self.tokens, unmarked })
    }

    /// Marks all strings in `value`, keys included.
    pub(crate) fn mark(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.mark_text(text)),
            Value::Array(items) => items.iter().map(|v| self.mark(v)).collect(),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(k, v)| (self.mark_text(k), self.mark(v))).collect())
            }
            other => other.clone(),
        }
    }

    fn mark_text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            let marked =
                self.tokens.starts_with(c) && !self.unmarked.iter().any(|u| text[at..].starts_with(u));
            if marked {
                out.extend([self.marker, c, self.marker]);
            } else {
                out.push(c);
            }
        }
        out
    }

    /// Takes the markers out of a rendered text and returns the offsets of the marked characters, if the rest
    /// is `plain` and each marked character still stands between its markers.
    pub(crate) fn unmark(&self, rendered: &str, plain: &str) -> Option<Vec<usize>> {
        let mut guards = Vec::new();
        let mut at = 0; // offset into `plain`
        let mut chars = rendered.chars();
        while let Some(c) = chars.next() {
            let c = if c == self.marker {
                guards.push(at);
                let marked = chars.next().filter(|&c| self.tokens.starts_with(c))?;
                chars.next().filter(|&c| c == self.marker)?;
                marked
            } else {
                c
            };
            if !plain[at..].starts_with(c) {
                return None;
            }
            at += c.len_utf8();
        }
        (at == plain.len()).then_some(guards)
    }
}

/// The text in `value` from where a control token could start.
pub(crate) fn first_dangerous<'v>(value: &'v Value, tokens: &ControlTokens) -> Option<&'v str> {
    match value {
        Value::String(text) => dangerous_part(text, tokens),
        Value::Array(items) => items.iter().find_map(|v| first_dangerous(v, tokens)),
        Value::Object(map) => {
            map.iter().find_map(|(k, v)| dangerous_part(k, tokens).or_else(|| first_dangerous(v, tokens)))
        }
        _ => None,
    }
}

fn dangerous_part<'v>(text: &'v str, tokens: &ControlTokens) -> Option<&'v str> {
    text.find(|c| tokens.starts_with(c)).map(|at| &text[at..])
}

/// A character that occurs in none of `texts`: a noncharacter, which text should not contain anyway, or one
/// for private use.
pub(crate) fn choose_marker<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Option<char> {
    let candidates = ('\u{fdd0}'..='\u{fdef}').chain('\u{f0000}'..='\u{ffffd}');
    // One pass over the texts finds the candidates that are taken.
    let is_candidate =
        |c: &char| ('\u{fdd0}'..='\u{fdef}').contains(c) || ('\u{f0000}'..='\u{ffffd}').contains(c);
    let taken: std::collections::BTreeSet<char> = texts.flat_map(str::chars).filter(is_candidate).collect();
    candidates.into_iter().find(|c| !taken.contains(c))
}

/// All strings in `value`, keys included.
pub(crate) fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(map) => {
            map.iter().flat_map(|(k, v)| std::iter::once(k.as_str()).chain(strings(v))).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MARK: char = '\u{fdd0}';

    #[test]
    fn marks_are_put_and_taken() {
        let tokens = ControlTokens::new(["<bos>", "<|turn>"]);
        let marking = Marking::strict(MARK, &tokens);
        let marked = marking.mark(&json!({"a<b": ["<<", 1, null, "plain"]}));
        assert_eq!(
            marked,
            json!({"a\u{fdd0}<\u{fdd0}b": ["\u{fdd0}<\u{fdd0}\u{fdd0}<\u{fdd0}", 1, null, "plain"]})
        );
        for (rendered, plain, expected) in [
            ("x", "x", Some(vec![])),
            ("é\u{fdd0}<\u{fdd0}b", "é<b", Some(vec![2])),
            ("<\u{fdd0}<\u{fdd0}", "<<", Some(vec![1])),
            ("\u{fdd0}<", "<", None),            // cut behind the character
            ("<\u{fdd0}", "<", None),            // cut before it
            ("\u{fdd0}[\u{fdd0}", "[", None),    // another character
            ("a\u{fdd0}<\u{fdd0}", "ab<", None), // another text
            ("a", "ab", None),
            ("ab", "a", None),
        ] {
            assert_eq!(marking.unmark(rendered, plain), expected, "{rendered:?}");
        }
    }

    #[test]
    fn lenient_marking_spares_only_harmless_literals() {
        let tokens = ControlTokens::new(["<|turn>", "</s>"]);
        let literals: Vec<String> = ["x</think>", "<|", "</s>!", "<think>"].map(String::from).into();
        let marking = Marking::strict(MARK, &tokens).lenient(&literals).unwrap();
        assert_eq!(marking.unmarked, ["</think>", "<think>"]);
        assert_eq!(marking.mark_text("<think>a</think><|"), "<think>a</think>\u{fdd0}<\u{fdd0}|");
        assert!(Marking::strict(MARK, &tokens).lenient(&literals[1..3]).is_none());
    }

    #[test]
    fn the_marker_is_unused() {
        let all: String = ('\u{fdd0}'..='\u{fdef}').collect();
        assert_eq!(choose_marker(["abc"].into_iter()), Some('\u{fdd0}'));
        assert_eq!(choose_marker(["\u{fdd0}", "x\u{fdd1}"].into_iter()), Some('\u{fdd2}'));
        assert_eq!(choose_marker([all.as_str()].into_iter()), Some('\u{f0000}'));
    }
}
