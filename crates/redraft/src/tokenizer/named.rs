//! The tokens that a file names by id, made sense of: where a sequence begins, where an answer ends.
//!
//! Files leave such ids out, or name tokens that cannot be meant. Each fault is repaired by what the tokens say
//! ([`markers`]), with one note.

use super::kinds::Kind;
use super::markers;
use super::parts::{TokenizerParts, key};
use super::vocab::{TokenKind, Vocab};

/// Begin and end.
pub(super) struct Named {
    pub(super) add_bos: bool,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    /// All tokens that end an answer, ascending.
    pub(super) end_ids: Vec<u32>,
}

/// Takes ids outside the vocabulary as absent.
pub(super) fn drop_ids_outside(parts: &mut TokenizerParts, notes: &mut Vec<String>) {
    let n = parts.tokens.len();
    let mut dropped = Vec::new();
    for (key, id) in parts.named_ids_mut() {
        if let Some(outside) = id.filter(|&id| id as usize >= n) {
            dropped.push(format!("\"{key}\" is {outside}"));
            *id = None;
        }
    }
    if !dropped.is_empty() {
        notes.push(format!("{}, but the vocabulary has {n} tokens; taken as absent", dropped.join(", ")));
    }
}

impl Named {
    /// `add_bos` is what the kind does when the file is silent.
    pub(super) fn new(
        parts: &TokenizerParts,
        vocab: &Vocab,
        kind: &Kind,
        add_bos: bool,
        notes: &mut Vec<String>,
    ) -> Named {
        let (add_bos, bos) = begin(parts, vocab, add_bos, notes);
        let (eos, end_ids) = ends(parts, vocab, kind, notes);
        Named { add_bos, bos, eos, end_ids }
    }
}

fn begin(
    parts: &TokenizerParts,
    vocab: &Vocab,
    default: bool,
    notes: &mut Vec<String>,
) -> (bool, Option<u32>) {
    let add_bos = parts.add_bos.unwrap_or(default);
    if !add_bos || parts.bos.is_some() {
        return (add_bos, parts.bos);
    }
    let found = markers::begins().find_map(|text| special(vocab, text));
    notes.push(match found {
        Some(id) => format!(
            "prompts start with the begin-of-sequence token, but \"{}\" is absent; taking {}",
            key::BOS,
            named(vocab, id)
        ),
        None => format!(
            "prompts should start with the begin-of-sequence token, but \"{}\" is absent; they start without",
            key::BOS
        ),
    });
    (found.is_some(), found)
}

/// The end of sequence and all end ids.
fn ends(
    parts: &TokenizerParts,
    vocab: &Vocab,
    kind: &Kind,
    notes: &mut Vec<String>,
) -> (Option<u32>, Vec<u32>) {
    let mut ids = Vec::new();
    let mut eos = None;
    let mut refused = Vec::new();
    for (key, id) in [(key::EOS, parts.eos), (key::EOT, parts.eot), (key::EOM, parts.eom)] {
        let Some(id) = id else { continue };
        let Some(piece) = vocab.piece(id) else { continue };
        let is_text = matches!(piece.kind, TokenKind::Normal | TokenKind::Byte | TokenKind::Unused);
        if markers::ends_nothing(piece.text) || is_text && !looks_like_end(piece.text) {
            refused.push(format!("\"{key}\" is {}", named(vocab, id)));
        } else if piece.text == "</s>" && !kind.sentence_ends {
            refused.push(format!(
                "\"{key}\" is {}, which is an HTML tag in these vocabularies",
                named(vocab, id)
            ));
        } else {
            ids.push(id);
            eos = eos.or((key == key::EOS).then_some(id));
        }
    }
    ids.extend(markers::ends().filter_map(|text| special(vocab, text)));

    let mut assumed = String::new();
    if eos.is_none() {
        let by_text: Vec<u32> =
            markers::ends_if_none_named(kind.sentence_ends).filter_map(|text| special(vocab, text)).collect();
        eos = by_text.first().copied();
        ids.extend(by_text);
        ids.sort_unstable();
        ids.dedup();
        let taken: Vec<String> = ids.iter().map(|&id| named(vocab, id)).collect();
        assumed = if taken.is_empty() {
            "no token is known to end an answer".to_owned()
        } else {
            format!("an answer ends at {}", taken.join(", "))
        };
    }
    match (refused.is_empty(), assumed.is_empty()) {
        (true, true) => {}
        (true, false) => {
            notes.push(format!("the file names no end of sequence (\"{}\"); {assumed}", key::EOS))
        }
        (false, true) => notes.push(format!("{}; not taken as the end of an answer", refused.join(", "))),
        (false, false) => {
            notes.push(format!("{}; not taken as the end of an answer: {assumed}", refused.join(", ")));
        }
    }
    ids.sort_unstable();
    ids.dedup();
    (eos, ids)
}

/// True for texts in the brackets that ends are written in.
fn looks_like_end(text: &str) -> bool {
    let bracketed = |open, close| text.len() > 2 && text.starts_with(open) && text.ends_with(close);
    (bracketed('<', '>') && !text.starts_with("<0x")) || bracketed('[', ']')
}

/// The token with this text, if it is one with a meaning.
fn special(vocab: &Vocab, text: &str) -> Option<u32> {
    let meant =
        |&id: &u32| vocab.piece(id).is_some_and(|p| p.kind.is_control() || p.kind == TokenKind::UserDefined);
    vocab.id(text).filter(meant)
}

/// A token as notes name it.
fn named(vocab: &Vocab, id: u32) -> String {
    vocab.piece(id).map_or_else(|| id.to_string(), |p| format!("{id} ({:?})", p.text))
}
