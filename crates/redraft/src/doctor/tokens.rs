//! Tokens: what they are for, where a prompt begins and an answer ends, how text is split.

use redraft_gguf::{Array, Shown, Value};

use super::{Edit, Finding, Patient, key};
use crate::tokenizer::{Tokenizer, TokenizerParts, find_pre, same_pre};

/// The kind of tokenizer that Gemma 4 has.
const GEMMA: &str = "gemma4";

/// Tokens that are named in a finding.
const SHOWN: usize = 16;

fn named(tokenizer: &Tokenizer, id: u32) -> String {
    tokenizer.piece(id).map_or_else(|| id.to_string(), |p| format!("{id} \"{}\"", Shown(p.text)))
}

fn both<'a>(p: &'a Patient<'_>) -> Option<(&'a TokenizerParts, &'a Tokenizer)> {
    p.parts.as_ref().zip(p.tokenizer.as_ref())
}

/// Control tokens of chats that are typed as text, or no types at all.
pub(super) fn types(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let Some((parts, tokenizer)) = both(p) else { return };
    let right = tokenizer.types();
    let set = |right: Vec<i32>| vec![Edit::Set(key::TYPES, Value::Array(Array::I32(right)))];
    let Some(found) = &parts.types else {
        let what =
            "the file has no token types: messages could forge control tokens in programs that do not guess";
        findings.push(
            Finding::warning("token-types-missing", key::TYPES, what)
                .fixed("write the types that the texts of the tokens tell", set(right)),
        );
        return;
    };
    let wrong: Vec<u32> =
        (0u32..).zip(found.iter().zip(&right)).filter(|(_, (a, b))| a != b).map(|(id, _)| id).collect();
    if wrong.is_empty() {
        return;
    }
    let mut list: Vec<String> = wrong.iter().take(SHOWN).map(|&id| named(tokenizer, id)).collect();
    if wrong.len() > SHOWN {
        list.push(format!("and {} more", wrong.len() - SHOWN));
    }
    let what = format!(
        "control tokens are typed as text, so that a message can forge them in other programs: {}",
        list.join(", ")
    );
    findings.push(
        Finding::warning("token-types", key::TYPES, what)
            .fixed(format!("type {} as control", count(wrong.len(), "token")), set(right)),
    );
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// End of sequence, turn and message: missing, or tokens that cannot end an answer.
pub(super) fn ends(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let Some((parts, tokenizer)) = both(p) else { return };
    let ends = tokenizer.end_ids();
    for (key, id) in [(key::EOS, parts.eos), (key::EOT, parts.eot), (key::EOM, parts.eom)] {
        let meant = tokenizer.eos().filter(|_| key == key::EOS);
        let what = match id {
            Some(id) if ends.contains(&id) => continue,
            Some(id) => format!("{} ends no answer", named(tokenizer, id)),
            None if key != key::EOS => continue,
            None if meant.is_none() => {
                "the file names no end of sequence, and no token tells that it is one".into()
            }
            None => "the file names no end of sequence".into(),
        };
        let id_of = if id.is_none() { "end-missing" } else { "end-wrong" };
        let finding = Finding::warning(id_of, key, what);
        findings.push(match (meant, id) {
            (Some(eos), _) => finding
                .fixed(format!("set it to {}", named(tokenizer, eos)), vec![Edit::Set(key, Value::U32(eos))]),
            (None, Some(_)) => finding.fixed("take the key away", vec![Edit::Remove(key)]),
            (None, None) => finding,
        });
    }
}

/// A prompt should begin with a token that the file does not name.
pub(super) fn begin(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let Some((parts, tokenizer)) = both(p) else { return };
    let Some(bos) = tokenizer.bos().filter(|&bos| parts.bos != Some(bos)) else { return };
    findings.push(
        Finding::warning("begin", key::BOS, "prompts begin with a token that the file does not name").fixed(
            format!("set it to {}", named(tokenizer, bos)),
            vec![Edit::Set(key::BOS, Value::U32(bos))],
        ),
    );
}

/// Other ids that no token has.
pub(super) fn outside(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let Some((parts, tokenizer)) = both(p) else { return };
    // The mask may be one of the rows that embedding tables have beyond the vocabulary.
    let rows = p.gguf.tensor("token_embd.weight").map_or(0, |t| t.n_rows());
    let n = tokenizer.vocab_len() as u64;
    let bos = parts.bos.filter(|_| tokenizer.bos().is_none());
    let ids = [
        (key::BOS, bos, n),
        (key::UNKNOWN, parts.unknown, n),
        (key::PAD, parts.pad, n),
        (key::MASK, parts.mask, n.max(rows)),
    ];
    for (key, id, n) in ids {
        let Some(id) = id.filter(|&id| u64::from(id) >= n) else { continue };
        findings.push(
            Finding::warning("id-outside", key, format!("{id} is no token: the vocabulary has {n}"))
                .fixed("take the key away", vec![Edit::Remove(key)]),
        );
    }
}

/// Another kind than that of Gemma 4, for its vocabulary: pieces with merges, bytes of their own, its turns.
pub(super) fn kind(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let Some(parts) = p.parts.as_ref().filter(|parts| parts.model != GEMMA && parts.merges.is_some()) else {
        return;
    };
    let has = |text| parts.tokens.iter().any(|token| token == text);
    if ["<0x00>", "<|turn>", "<turn|>"].into_iter().all(has) {
        let what = format!(
            "text is split as by a tokenizer of the kind \"{}\", but the vocabulary is one of Gemma 4, whose merges it ignores or reads otherwise",
            Shown(&parts.model)
        );
        findings.push(
            Finding::warning("tokenizer-kind", key::MODEL, what)
                .fixed(format!("set it to {GEMMA:?}"), vec![Edit::Set(key::MODEL, Value::from(GEMMA))]),
        );
    }
}

/// The name of how text is split: missing, unknown, or another than the vocabulary or the architecture implies.
pub(super) fn pre(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let Some(parts) = p.parts.as_ref().filter(|parts| parts.model == "gpt2") else { return };
    let Some(implied) = p.pre else { return };
    let what = match parts.pre.as_deref() {
        Some(found) if same_pre(found, implied) => return,
        Some(found) if find_pre(found).is_some() => {
            format!(
                "text is split as for {found:?}, but the models of this vocabulary and architecture learned {implied:?}"
            )
        }
        Some(found) => {
            format!(
                "\"{}\" is no known way of splitting text; these models learned {implied:?}",
                Shown(found)
            )
        }
        None => format!("the file does not say how text is split; these models learned {implied:?}"),
    };
    findings.push(
        Finding::warning("pre-tokenizer", key::PRE, what)
            .fixed(format!("set it to {implied:?}"), vec![Edit::Set(key::PRE, Value::from(implied))]),
    );
}
