//! Texts with a known meaning: markers of chats, and which of them begin a prompt or end an answer.
//!
//! Files state what a token is for, and some state it wrongly. What a token *says* decides then; its id never
//! does. One row each, with the models that it belongs to.

/// What a marker does, apart from being a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Begins a sequence.
    Begin,
    /// Ends an answer in every file that has it.
    End,
    /// Ends an answer in files that name no end of sequence.
    EndIfNoneNamed,
    /// Stands for nothing a model says, so that it ends nothing either.
    Filler,
    /// Begins a turn, so that it ends none.
    Opens,
    /// Other structure inside a chat.
    Other,
}

/// All known markers.
const TABLE: &[(&str, Role)] = &[
    // Gemma, all versions. `</s>` is an HTML tag there.
    ("<bos>", Role::Begin),
    ("<eos>", Role::EndIfNoneNamed),
    ("<pad>", Role::Filler),
    ("<unk>", Role::Filler),
    ("<mask>", Role::Filler),
    // Gemma 4 and DiffusionGemma.
    ("<|turn>", Role::Opens),
    ("<turn|>", Role::End),
    ("<|tool>", Role::Other),
    ("<tool|>", Role::Other),
    ("<|tool_call>", Role::Other),
    ("<tool_call|>", Role::Other),
    ("<|tool_response>", Role::End),
    ("<tool_response|>", Role::Other),
    ("<|\"|>", Role::Other),
    ("<|think|>", Role::Other),
    ("<|channel>", Role::Other),
    ("<channel|>", Role::Other),
    ("<|image>", Role::Other),
    ("<image|>", Role::Other),
    ("<|image|>", Role::Other),
    ("<|audio>", Role::Other),
    ("<audio|>", Role::Other),
    ("<|audio|>", Role::Other),
    // Gemma 1 to 3.
    ("<start_of_turn>", Role::Opens),
    ("<end_of_turn>", Role::End),
    // ChatML: Qwen, Dream, RND1, SmolLM.
    ("<|im_start|>", Role::Opens),
    ("<|im_end|>", Role::End),
    ("<|endoftext|>", Role::EndIfNoneNamed),
    // Llama 3 and LLaDA.
    ("<|begin_of_text|>", Role::Begin),
    ("<|end_of_text|>", Role::EndIfNoneNamed),
    ("<|startoftext|>", Role::Begin),
    ("<|start_header_id|>", Role::Opens),
    ("<|end_header_id|>", Role::Other),
    ("<|eot_id|>", Role::End),
    ("<|eom_id|>", Role::End),
    ("<|mdm_mask|>", Role::Filler),
    // LLaDA-MoE, LLaDA 2 and Ling.
    ("<role>", Role::Opens),
    ("</role>", Role::Other),
    ("<|role_end|>", Role::End),
    ("<|mask|>", Role::Filler),
];

/// SentencePiece's names. They are no markers where they are typed as text, since they are HTML as well.
const SENTENCE: (&str, &str) = ("<s>", "</s>");

fn role(text: &str) -> Option<Role> {
    TABLE.iter().find(|(marker, _)| *marker == text).map(|&(_, role)| role)
}

/// True for a text that messages must not be able to turn into a token.
pub(super) fn is_marker(text: &str) -> bool {
    text.starts_with('<') && role(text).is_some()
}

/// True for a text that looks like a marker, known or not: `<|…|>`, `<|…>`, `<…|>`.
pub(super) fn looks_like_marker(text: &str) -> bool {
    let inner = text.strip_prefix('<').and_then(|t| t.strip_suffix('>'));
    is_marker(text) || inner.is_some_and(|t| t.len() > 1 && (t.starts_with('|') || t.ends_with('|')))
}

/// True for a text that ends no answer, whatever a file says.
pub(super) fn ends_nothing(text: &str) -> bool {
    text == SENTENCE.0 || matches!(role(text), Some(Role::Begin | Role::Opens | Role::Filler))
}

/// Texts that begin a sequence.
pub(super) fn begins() -> impl Iterator<Item = &'static str> {
    with(Role::Begin).chain([SENTENCE.0])
}

/// Texts that end an answer in every file that has them.
pub(super) fn ends() -> impl Iterator<Item = &'static str> {
    with(Role::End)
}

/// Texts that end an answer in a file that names no end of sequence; `sentence`: `</s>` is one there.
pub(super) fn ends_if_none_named(sentence: bool) -> impl Iterator<Item = &'static str> {
    with(Role::EndIfNoneNamed).chain(sentence.then_some(SENTENCE.1))
}

/// The known markers that a text has anywhere.
pub(crate) fn spoken(text: &str) -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|&(marker, _)| marker).filter(|marker| text.contains(marker))
}

fn with(wanted: Role) -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(move |(_, role)| *role == wanted).map(|&(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_known_by_their_text() {
        for text in ["<|tool>", "<tool|>", "<|\"|>", "<channel|>", "<|im_end|>", "<role>"] {
            assert!(is_marker(text) && looks_like_marker(text), "{text}");
        }
        for text in ["<s>", "</s>", "<p>", "<|", "|>", "<|>", "<0x41>", "the", ""] {
            assert!(!is_marker(text) && !looks_like_marker(text), "{text}");
        }
        for text in ["<|turn>", "<|im_start|>", "<bos>", "<pad>", "<s>"] {
            assert!(ends_nothing(text), "{text}");
        }
        assert!(!ends_nothing("<turn|>") && !ends_nothing("<|endoftext|>") && !ends_nothing("<end>"));
        assert!(looks_like_marker("<|new|>") && looks_like_marker("<new|>") && !is_marker("<|new|>"));
    }

    #[test]
    fn each_is_listed_once() {
        for (i, (text, _)) in TABLE.iter().enumerate() {
            assert!(TABLE[..i].iter().all(|(t, _)| t != text), "{text}");
            assert!(text.starts_with('<') && text.ends_with('>'), "{text}");
        }
    }
}
