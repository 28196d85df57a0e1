//! From `tokenizer.json` and the files beside it to the keys `tokenizer.*`.
//!
//! The vocabulary is written as llama.cpp writes it: one text per row of the embedding, with the type of each, and
//! `[PAD7]` of type *unused* where the tokenizer has no token 7. The whole `tokenizer.json` goes along, since the
//! keys leave its normalizer out.

use std::collections::HashMap;

use redraft_gguf::{Array, Metadata, Shown, StrArray};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value as Json;

use super::config::Config;
use crate::arch::MASK_TEXTS;
use crate::tokenizer::{TokenKind, key, pre};

/// The files.
#[derive(Debug, Default)]
pub(super) struct TokenizerFiles {
    /// `tokenizer.json`.
    pub(super) tokenizer: String,
    /// `tokenizer_config.json`; null without one.
    pub(super) config: Json,
    /// `chat_template.jinja` or `chat_template.json`'s.
    pub(super) template: Option<String>,
}

/// What an architecture and the caller say.
pub(super) struct Wanted<'a> {
    /// Rows of the embedding.
    pub(super) rows: usize,
    /// The architecture's name of the pre-tokenizer, among those that split alike.
    pub(super) pre: &'a str,
    /// The caller's, whatever the file says.
    pub(super) forced_pre: Option<&'a str>,
    /// Whether prompts begin with that token, where it is not as the tokenizer says.
    pub(super) add_bos: Option<bool>,
}

/// `tokenizer.json`, the parts that matter.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    pre_tokenizer: Json,
    #[serde(default)]
    post_processor: Json,
    model: Bpe,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct Bpe {
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Text(String),
}

/// What kind of model a `tokenizer.json` has.
#[derive(Deserialize)]
struct Kind {
    model: KindOfModel,
}

#[derive(Deserialize)]
struct KindOfModel {
    r#type: Option<String>,
    merges: Option<IgnoredAny>,
}

/// Adds the keys `tokenizer.*`. What had to be assumed is added to the notes.
///
/// # Errors
/// What is wrong with the files, all at once.
pub(super) fn add_tokenizer(
    meta: &mut Metadata,
    files: TokenizerFiles,
    settings: &Config,
    wanted: &Wanted<'_>,
    notes: &mut Vec<String>,
) -> Result<(), Vec<String>> {
    let file = parse(&files.tokenizer).map_err(|e| vec![e])?;
    let mut problems = Vec::new();
    // Byte-level vocabularies spell bytes as characters; the others fall back to tokens for bytes.
    let by_bytes = !file.model.byte_fallback;
    meta.set(key::MODEL, if by_bytes { "gpt2" } else { "gemma4" });
    if by_bytes {
        match pre_name(&file, wanted) {
            Ok(name) => meta.set(key::PRE, name),
            Err(e) => problems.push(e),
        }
    }
    let vocab = match Vocab::new(&file, wanted.rows, !by_bytes) {
        Ok(vocab) => vocab,
        Err(e) => {
            problems.extend(e);
            return Err(problems);
        }
    };
    let merges = merges(&file.model.merges).unwrap_or_else(|e| {
        problems.push(e);
        StrArray::new()
    });
    let text = |(i, t): (usize, &Option<&str>)| t.map_or_else(|| format!("[PAD{i}]"), str::to_owned);
    meta.set(key::TOKENS, Array::Str(vocab.texts.iter().enumerate().map(text).collect()));
    if !by_bytes {
        meta.set(key::SCORES, Array::F32(vec![-1000.0; wanted.rows]));
    }
    meta.set(key::TYPES, Array::I32(vocab.types.clone()));
    meta.set(key::MERGES, Array::Str(merges));
    let named = vocab.named(&files.config, settings, notes, &mut problems);
    named.into_iter().for_each(|(key, id)| meta.set(key, id));
    match template(&files) {
        Ok((template, others)) => {
            if let Some(text) = template {
                meta.set(key::CHAT_TEMPLATE, text);
            }
            for (name, text) in others {
                meta.set(format!("{}.{name}", key::CHAT_TEMPLATE), text);
            }
        }
        Err(e) => problems.push(e),
    }
    if !by_bytes {
        meta.set(key::ADD_SPACE_PREFIX, false);
    }
    let stated = files.config.get("add_bos_token").and_then(Json::as_bool);
    meta.set(
        key::ADD_BOS,
        wanted.add_bos.or(stated).unwrap_or_else(|| begins_with_bos(&file.post_processor)),
    );
    meta.set(key::TOKENIZER_JSON, files.tokenizer);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn parse(text: &str) -> Result<File, String> {
    let wrong = |e: serde_json::Error| format!("tokenizer.json cannot be read: {e}");
    let Kind { model } = serde_json::from_str(text).map_err(wrong)?;
    match model.r#type.as_deref() {
        // Old files leave the type out.
        Some("BPE") => {}
        None if model.merges.is_some() => {}
        other => {
            let found = other.unwrap_or("nothing");
            return Err(format!("tokenizer.json: `model.type`: expected \"BPE\", found {}", Shown(found)));
        }
    }
    serde_json::from_str(text).map_err(wrong)
}

/// The name in `tokenizer.ggml.pre`.
fn pre_name(file: &File, wanted: &Wanted<'_>) -> Result<String, String> {
    let other = |found: &str| {
        Err(format!(
            "tokenizer.json: its way of splitting text has no name here: {}; `--pre NAME` says which of the known ones \
             to take",
            Shown(found)
        ))
    };
    if let Some(name) = wanted.forced_pre {
        return match pre::find(name) {
            Some(_) => Ok(name.into()),
            None => Err(format!("--pre: expected one of {}, found {}", pre::names().join(", "), Shown(name))),
        };
    }
    let steps = match &file.pre_tokenizer["pretokenizers"] {
        Json::Array(steps) => steps.as_slice(),
        _ => std::slice::from_ref(&file.pre_tokenizer),
    };
    let is = |step: &Json, name: &str| step["type"] == name;
    let gpt2 = pre::gpt2_pattern();
    let pattern = match steps {
        [bytes] if is(bytes, "ByteLevel") => match bytes["use_regex"].as_bool() {
            None | Some(true) => gpt2.as_str(),
            Some(false) => return other("none at all"),
        },
        [split, bytes] if is(split, "Split") && is(bytes, "ByteLevel") => {
            let isolated = split["behavior"] == "Isolated" && split["invert"] != true;
            match split["pattern"]["Regex"].as_str() {
                Some(pattern) if isolated && bytes["use_regex"] == false => pattern,
                _ => return other(&file.pre_tokenizer.to_string()),
            }
        }
        _ => return other(&file.pre_tokenizer.to_string()),
    };
    match pre::of_pattern(pattern, file.model.ignore_merges, wanted.pre) {
        Some(name) => Ok(name.into()),
        None => other(pattern),
    }
}

fn merges(merges: &[Merge]) -> Result<StrArray, String> {
    let mut out = StrArray::new();
    for merge in merges {
        match merge {
            Merge::Text(text) => out.push(text),
            Merge::Pair(left, right) if left.contains(' ') || right.contains(' ') => {
                return Err(format!(
                    "tokenizer.json: the merge of {} and {} cannot be written, since a space would divide it",
                    Shown(left),
                    Shown(right)
                ));
            }
            Merge::Pair(left, right) => out.push(&format!("{left} {right}")),
        }
    }
    Ok(out)
}

/// Texts and types by id.
struct Vocab<'a> {
    texts: Vec<Option<&'a str>>,
    types: Vec<i32>,
    ids: HashMap<&'a str, u32>,
}

impl<'a> Vocab<'a> {
    fn new(file: &'a File, rows: usize, byte_tokens: bool) -> Result<Vocab<'a>, Vec<String>> {
        let mut problems = Vec::new();
        let mut vocab = Vocab {
            texts: vec![None; rows],
            types: vec![TokenKind::Unused.to_gguf(); rows],
            ids: HashMap::with_capacity(file.model.vocab.len()),
        };
        // In the order of the ids, so that the same file gives the same error.
        let mut model: Vec<(u32, &str)> =
            file.model.vocab.iter().map(|(text, &id)| (id, text.as_str())).collect();
        model.sort_unstable();
        let is_byte = |text: &str| {
            let digits = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
            byte_tokens && digits.is_some_and(|d| d.len() == 2 && u8::from_str_radix(d, 16).is_ok())
        };
        let plain = |(id, text)| {
            (id, text, if is_byte(text) { TokenKind::Byte.to_gguf() } else { TokenKind::Normal.to_gguf() })
        };
        let added = file.added_tokens.iter().map(|a| {
            (
                a.id,
                a.content.as_str(),
                if a.special { TokenKind::Control.to_gguf() } else { TokenKind::UserDefined.to_gguf() },
            )
        });
        for (id, text, kind) in model.into_iter().map(plain).chain(added) {
            let Some(place) = vocab.texts.get_mut(id as usize) else {
                problems.push(format!(
                    "tokenizer.json: token {id}, {}, is outside the {rows} rows of the embedding",
                    Shown(text)
                ));
                continue;
            };
            if place.is_some_and(|there| there != text) {
                problems.push(format!(
                    "tokenizer.json: token {id} is both {} and {}",
                    Shown(place.unwrap_or_default()),
                    Shown(text)
                ));
            }
            *place = Some(text);
            vocab.types[id as usize] = kind;
            vocab.ids.insert(text, id);
        }
        problems.truncate(10);
        if problems.is_empty() { Ok(vocab) } else { Err(problems) }
    }

    /// The tokens that the files name for something, by their keys.
    fn named(
        &self,
        config: &Json,
        settings: &Config,
        notes: &mut Vec<String>,
        problems: &mut Vec<String>,
    ) -> Vec<(&'static str, u32)> {
        let rows = self.texts.len();
        let mut ids = |name: &str| {
            let all = ids(settings, name);
            for id in all.iter().filter(|&&id| id as usize >= rows) {
                let wrong = format!("config.json: `{name}`: expected an id below {rows}, found {id}");
                if !problems.contains(&wrong) {
                    problems.push(wrong);
                }
            }
            all
        };
        let mut found = Vec::new();
        for (name, key) in [
            ("bos", key::BOS),
            ("eos", key::EOS),
            ("unk", key::UNKNOWN),
            ("pad", key::PAD),
            ("mask", key::MASK),
        ] {
            let token = &config[format!("{name}_token")];
            let text = token.as_str().or_else(|| token["content"].as_str());
            let by_text = text.and_then(|t| {
                let id = self.ids.get(t).copied();
                if id.is_none() {
                    let what =
                        format!("tokenizer_config.json: `{name}_token` is {}, which is no token", Shown(t));
                    notes.push(format!("{what}; taking what config.json says"));
                }
                id
            });
            let stated = ids(&format!("{name}_token_id")).first().copied();
            let mask =
                || MASK_TEXTS.iter().find_map(|t| self.ids.get(t).copied()).filter(|_| key == key::MASK);
            // What is masked is the model's matter, the rest the tokenizer's.
            let id = if key == key::MASK { stated.or(by_text) } else { by_text.or(stated) };
            if let Some(id) = id.or_else(mask) {
                found.push((key, id));
            }
        }
        // More ends of an answer than one.
        let eos = found.iter().find(|(k, _)| *k == key::EOS).map(|f| f.1);
        let mut more = ids("eos_token_id");
        more.retain(|&id| Some(id) != eos);
        more.dedup();
        if more.len() > 2 {
            notes.push(format!(
                "{} tokens end an answer; the file names the end of sequence and the first two",
                more.len() + 1
            ));
        }
        found.extend([key::EOT, key::EOM].into_iter().zip(more));
        found
    }
}

/// Ids of a setting at most.
const MAX_ENDS: usize = 64;

/// Ids of a setting that is one number or several: all that the generation's settings have, and those of the model's.
fn ids(settings: &Config, name: &str) -> Vec<u32> {
    let generation = format!("generation.{name}");
    let text = format!("text_config.{name}");
    let mut all = Vec::new();
    for path in [generation.as_str(), name, text.as_str()] {
        let Some((_, found)) = settings.get(&[path]) else { continue };
        let one = std::slice::from_ref(found);
        let list = found.as_array().map_or(one, Vec::as_slice);
        for id in list.iter().take(MAX_ENDS).filter_map(Json::as_u64).filter_map(|id| u32::try_from(id).ok())
        {
            if !all.contains(&id) {
                all.push(id);
            }
        }
    }
    all
}

/// A template and its name.
type Named = (String, String);

/// The template for chats, and others with their names.
fn template(files: &TokenizerFiles) -> Result<(Option<String>, Vec<Named>), String> {
    let stated = &files.config["chat_template"];
    let mut others = Vec::new();
    let mut default = stated.as_str().map(str::to_owned);
    for entry in stated.as_array().into_iter().flatten() {
        let (Some(name), Some(text)) = (entry["name"].as_str(), entry["template"].as_str()) else {
            return Err(
                "tokenizer_config.json: an entry of `chat_template` has no `name` or no `template`".into()
            );
        };
        match name {
            "default" => default = Some(text.into()),
            _ => others.push((
                name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect(),
                text.into(),
            )),
        }
    }
    Ok((files.template.clone().or(default), others))
}

/// Whether the tokenizer puts the begin-of-sequence token before a text: what its post-processor begins with.
fn begins_with_bos(processor: &Json) -> bool {
    let one = std::slice::from_ref(processor);
    let steps = processor["processors"].as_array().map_or(one, Vec::as_slice);
    steps.iter().any(|s| s["type"] == "TemplateProcessing" && !s["single"][0]["SpecialToken"].is_null())
}
