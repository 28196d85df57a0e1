//! A folder as `transformers` saves a model: settings, tokenizer, and tensors in one safetensors file or several.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use redraft_gguf::{Bytes, DType, GgufError, OpenOptions, Shown};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value as Json;

use super::config::Config;
use super::slow_tokenizer::SlowTokenizer;
use super::tokenizer_json::TokenizerFiles;
use crate::Error;

/// Longest file of JSON or text; the largest in use has 35 million bytes.
const MAX_TEXT: u64 = 64 << 20;

/// The shards of a model and what is in which.
const INDEX: &str = "model.safetensors.index.json";

/// The file of a model in one piece.
const SINGLE: &str = "model.safetensors";

/// The files of a checkpoint.
#[derive(Debug, Clone, Copy)]
pub enum Checkpoint<'a> {
    /// In a folder.
    Folder(&'a Path),
    /// In memory, by their names.
    Memory(&'a BTreeMap<String, Bytes>),
}

impl Checkpoint<'_> {
    /// The folder, for messages.
    pub(super) fn path(self) -> PathBuf {
        match self {
            Checkpoint::Folder(dir) => dir.to_path_buf(),
            Checkpoint::Memory(_) => "checkpoint".into(),
        }
    }

    fn has(self, name: &str) -> bool {
        match self {
            Checkpoint::Folder(dir) => dir.join(name).is_file(),
            Checkpoint::Memory(files) => files.contains_key(name),
        }
    }

    fn map(self, name: &str) -> Result<Bytes, GgufError> {
        match self {
            Checkpoint::Folder(dir) => Bytes::open(&dir.join(name), &OpenOptions::default()),
            Checkpoint::Memory(files) => Ok(files.get(name).cloned().unwrap_or_else(|| Vec::new().into())),
        }
    }

    /// The bytes of a file, and one more than the limit where it is longer; None where there is none.
    fn read(self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let dir = match self {
            Checkpoint::Folder(dir) => dir,
            Checkpoint::Memory(files) => return Ok(files.get(name).map(|b| b.to_vec())),
        };
        let path = dir.join(name);
        let read = || match std::fs::metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            // Reading a pipe might never end.
            Ok(data) if !data.is_file() => Err(std::io::Error::new(ErrorKind::InvalidInput, "it is no file")),
            Err(e) => Err(e),
            Ok(_) => {
                let mut bytes = Vec::new();
                File::open(&path)?.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
                Ok(Some(bytes))
            }
        };
        read().map_err(|source| Error::Io { path: path.clone(), source })
    }

    /// What is there instead of safetensors files.
    fn instead(self) -> String {
        let Checkpoint::Folder(dir) = self else { return String::new() };
        let Ok(entries) = std::fs::read_dir(dir) else { return String::new() };
        let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
        let ends = [".bin", ".pt", ".pth", ".safetensors", ".gguf"];
        let mut weights: Vec<String> = names.filter(|n| ends.iter().any(|end| n.ends_with(end))).collect();
        weights.sort();
        weights.truncate(3);
        match weights.is_empty() {
            true => String::new(),
            false => format!("; found {}", Shown(&weights.join(", "))),
        }
    }
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// Extents, the contiguous one last.
    pub(super) shape: Vec<u64>,
    pub(super) dtype: DType,
    pub(super) bytes: Bytes,
}

/// What a folder holds.
#[derive(Debug, Default)]
pub(super) struct Folder {
    pub(super) config: Config,
    /// By name.
    pub(super) tensors: BTreeMap<String, Source>,
    /// The files that the tensors are in.
    shards: Vec<Bytes>,
}

impl Folder {
    /// Reads everything but the tensors' elements, which are mapped. The tokenizer's files are apart: they go into the
    /// metadata.
    ///
    /// # Errors
    /// What is wrong with the files, all at once; those of reading.
    pub(super) fn open(dir: Checkpoint<'_>) -> Result<(Folder, TokenizerFiles), Error> {
        let mut problems = Vec::new();
        let config = json(dir, "config.json", &mut problems)?;
        if config.is_none() && problems.is_empty() {
            problems.push("config.json is missing: expected a folder as `transformers` saves a model".into());
        }
        let generation = json(dir, "generation_config.json", &mut problems)?.unwrap_or_default();
        let tokenizer_config = json(dir, "tokenizer_config.json", &mut problems)?.unwrap_or_default();
        let tokenizer = match text(dir, "tokenizer.json", &mut problems)? {
            Some(text) => text,
            None => slow_tokenizer(dir, &tokenizer_config, &mut problems)?,
        };
        let mut template = text(dir, "chat_template.jinja", &mut problems)?;
        if template.is_none() {
            let file = json(dir, "chat_template.json", &mut problems)?.unwrap_or_default();
            template = file["chat_template"].as_str().map(str::to_owned);
        }
        let mut folder =
            Folder { config: Config::new(config.unwrap_or_default(), generation), ..Folder::default() };
        let tokenizer = TokenizerFiles { tokenizer, config: tokenizer_config, template };
        folder.open_shards(dir, &mut problems)?;
        if problems.is_empty() { Ok((folder, tokenizer)) } else { Err(unusable(dir, problems)) }
    }

    fn open_shards(&mut self, dir: Checkpoint<'_>, problems: &mut Vec<String>) -> Result<(), Error> {
        let before = problems.len();
        let Some(index) = text(dir, INDEX, problems)? else {
            if problems.len() > before {
                return Ok(());
            }
            if !dir.has(SINGLE) {
                problems.push(format!("there is neither {SINGLE} nor {INDEX}{}", dir.instead()));
                return Ok(());
            }
            return self.open_shard(dir, SINGLE, problems);
        };
        let index = match parse_index(&index) {
            Ok(index) => index,
            Err(e) => {
                problems.push(e);
                return Ok(());
            }
        };
        let mut files: Vec<&str> = index.values().map(String::as_str).collect();
        files.sort_unstable();
        files.dedup();
        for name in &files {
            if dir.has(name) {
                self.open_shard(dir, name, problems)?;
            } else {
                problems.push(format!("{INDEX} names {}, which is missing", Shown(name)));
            }
        }
        if problems.len() == before {
            let lost = index.iter().filter(|(name, _)| !self.tensors.contains_key(*name));
            problems.extend(lost.map(|(name, file)| {
                format!("{INDEX} says that {} is in {}, which has no such tensor", Shown(name), Shown(file))
            }));
        }
        Ok(())
    }

    fn open_shard(
        &mut self,
        dir: Checkpoint<'_>,
        name: &str,
        problems: &mut Vec<String>,
    ) -> Result<(), Error> {
        let bytes = dir.map(name)?;
        match tensors(&bytes) {
            Ok(found) => {
                for (tensor, source) in found {
                    match source {
                        Ok(source) if !self.tensors.contains_key(&tensor) => {
                            self.tensors.insert(tensor, source);
                        }
                        Ok(_) => problems.push(format!("{name}: {} is in another file, too", Shown(&tensor))),
                        Err(found) => problems.push(format!(
                            "{name}: {} has the type {found}: expected BF16, F16 or F32",
                            Shown(&tensor)
                        )),
                    }
                }
            }
            Err(e) => problems.push(format!("{name}: {e}")),
        }
        bytes.check()?;
        self.shards.push(bytes);
        Ok(())
    }

    /// Whether all files are still as long as they were.
    ///
    /// # Errors
    /// As for [`Bytes::check`].
    pub(super) fn check(&self) -> Result<(), GgufError> {
        self.shards.iter().try_for_each(Bytes::check)
    }
}

/// Lines of an error at most.
const MAX_LINES: usize = 50;

/// The error of a folder.
pub(super) fn unusable(dir: Checkpoint<'_>, mut problems: Vec<String>) -> Error {
    let more = problems.len().saturating_sub(MAX_LINES);
    if more > 0 {
        problems.truncate(MAX_LINES);
        problems.push(format!("… and {more} more"));
    }
    Error::Checkpoint { folder: dir.path(), problems }
}

/// A tensor, or the name of a type that is none of weights.
type Found = Result<Source, String>;

/// The tensors of a safetensors file; an error is what is wrong with it.
pub(super) fn tensors(bytes: &Bytes) -> Result<Vec<(String, Found)>, String> {
    // Checks that the tensors follow each other and fill the file.
    let (header_len, header) = SafeTensors::read_metadata(bytes).map_err(|e| {
        format!("no whole safetensors file ({e}); its {} bytes may be a part of it", bytes.len())
    })?;
    let data = bytes.slice(8 + header_len..).ok_or("it ends in its header")?;
    let mut out = Vec::new();
    for name in header.offset_keys() {
        let Some(info) = header.info(&name) else { continue };
        let dtype = match info.dtype {
            Dtype::F32 => Ok(DType::F32),
            Dtype::F16 => Ok(DType::F16),
            Dtype::BF16 => Ok(DType::BF16),
            other => Err(format!("{other:?}")),
        };
        let source = match (dtype, data.slice(info.data_offsets.0..info.data_offsets.1)) {
            (Ok(dtype), Some(bytes)) => {
                Ok(Source { shape: info.shape.iter().map(|&n| n as u64).collect(), dtype, bytes })
            }
            (Err(other), _) => Err(other),
            (_, None) => return Err(format!("{} is outside of it", Shown(&name))),
        };
        out.push((name, source));
    }
    Ok(out)
}

/// Files by the tensors in them.
pub(super) fn parse_index(text: &str) -> Result<BTreeMap<String, String>, String> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_str(text).map_err(|e| format!("{INDEX} cannot be read: {e}"))?;
    let outside =
        |name: &&String| name.contains(['/', '\\', ':', '\0']) || matches!(name.as_str(), "" | "." | "..");
    match index.weight_map.values().find(outside) {
        Some(name) => Err(format!("{INDEX}: {} is no name of a file in the folder", Shown(name))),
        None => Ok(index.weight_map),
    }
}

/// `tokenizer.json` from what some checkpoints have in its place; empty with a problem.
fn slow_tokenizer(dir: Checkpoint<'_>, config: &Json, problems: &mut Vec<String>) -> Result<String, Error> {
    let before = problems.len();
    let vocab = json(dir, "vocab.json", problems)?;
    let merges = text(dir, "merges.txt", problems)?;
    let added = json(dir, "added_tokens.json", problems)?.unwrap_or_default();
    let (Some(vocab), Some(merges)) = (vocab, merges) else {
        if problems.len() == before {
            problems
                .push("tokenizer.json is missing, and so are vocab.json and merges.txt in its place".into());
        }
        return Ok(String::new());
    };
    let whole = SlowTokenizer { vocab, merges: &merges, config, added: &added }.whole();
    Ok(whole.unwrap_or_else(|e| {
        problems.push(e);
        String::new()
    }))
}

fn json(dir: Checkpoint<'_>, name: &str, problems: &mut Vec<String>) -> Result<Option<Json>, Error> {
    let Some(text) = text(dir, name, problems)? else { return Ok(None) };
    Ok(serde_json::from_str(&text).map_err(|e| problems.push(format!("{name} cannot be read: {e}"))).ok())
}

/// A file as text; None where there is none.
fn text(dir: Checkpoint<'_>, name: &str, problems: &mut Vec<String>) -> Result<Option<String>, Error> {
    let Some(bytes) = dir.read(name)? else { return Ok(None) };
    if bytes.len() as u64 > MAX_TEXT {
        problems.push(format!("{name}: expected at most {MAX_TEXT} bytes, found more"));
        return Ok(None);
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(e) => {
            problems.push(format!("{name} is not UTF-8 at byte {}", e.utf8_error().valid_up_to()));
            Ok(None)
        }
    }
}
