//! Models that are split into several files.
//!
//! llama.cpp's `gguf-split` names them `NAME-00001-of-00005.gguf` and writes into each file its number
//! (`split.no`, from 0), how many there are (`split.count`) and how many tensors all have together
//! (`split.tensors.count`). The model's own metadata stand in the first file only, which may have no tensors.
//! Any one of the files opens all of them; each is checked against its name and against the first.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::reader::{ALIGNMENT_KEY, Gguf, Parsed, parse};
use crate::{Bytes, GgufError, Metadata, OpenOptions, Shown, Value, memory};

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// The name of one file of a split model: `STEM-00001-of-00005.gguf`.
///
/// ```
/// use redraft_gguf::SplitName;
///
/// let name = SplitName::parse("model-Q8_0-00002-of-00005.gguf").unwrap();
/// assert_eq!((name.stem, name.no, name.count), ("model-Q8_0", 1, 5));
/// assert_eq!(name.sibling(4).to_string(), "model-Q8_0-00005-of-00005.gguf");
/// assert!(SplitName::parse("model-Q8_0.gguf").is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitName<'a> {
    /// What stands before the numbers.
    pub stem: &'a str,
    /// Number of the file, counted from 0; the name counts from 1.
    pub no: u16,
    /// Number of files.
    pub count: u16,
}

impl<'a> SplitName<'a> {
    /// Reads a file name; `None` when it is not of this form.
    pub fn parse(file_name: &'a str) -> Option<SplitName<'a>> {
        /// `-` (or `-of-`) and five digits at the end of a text.
        fn number<'t>(text: &'t str, before: &str) -> Option<(&'t str, u16)> {
            let at = text.len().checked_sub(5).filter(|&at| text.is_char_boundary(at))?;
            let (rest, digits) = text.split_at(at);
            let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
            Some((rest.strip_suffix(before)?, number))
        }
        let (rest, count) = number(file_name.strip_suffix(".gguf")?, "-of-")?;
        let (stem, no) = number(rest, "-")?;
        (1..=count).contains(&no).then(|| SplitName { stem, no: no - 1, count })
    }

    /// The name of another file of the same model.
    pub fn sibling(self, no: u16) -> SplitName<'a> {
        SplitName { no, ..self }
    }
}

impl std::fmt::Display for SplitName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.stem, suffix(self.no, self.count))
    }
}

fn suffix(no: u16, count: u16) -> String {
    format!("-{:05}-of-{count:05}.gguf", u32::from(no) + 1)
}

/// What a file says of its place.
struct Place {
    no: u16,
    count: u16,
    /// Tensors in all files.
    tensors: Option<u64>,
}

impl Place {
    /// `None` when the file is a whole model.
    fn of(metadata: &Metadata) -> Result<Option<Place>, GgufError> {
        let number = |key| -> Result<Option<u16>, GgufError> {
            let found = metadata.opt_u64(key)?;
            let out_of_range =
                |x: u64| GgufError::OutOfRange { key: key.to_owned(), expected: "u16", found: x.into() };
            found.map(|x| u16::try_from(x).map_err(|_| out_of_range(x))).transpose()
        };
        let Some(count) = number(COUNT)?.filter(|&n| n > 1) else { return Ok(None) };
        let no = number(NO)?.ok_or_else(|| GgufError::MissingKey { key: NO.to_owned(), expected: "u16" })?;
        Ok(Some(Place { no, count, tensors: metadata.opt_u64(TENSORS)? }))
    }
}

/// Opens the file at `path`, and its siblings when it is one of several.
pub(crate) fn open(path: &Path, opts: &OpenOptions) -> Result<Gguf, GgufError> {
    let opened = parse(Bytes::open(path, opts)?)?;
    let Some(place) = Place::of(&opened.metadata)? else {
        return Gguf::of_files(vec![(Some(path.to_path_buf()), opened)]);
    };
    let name = path.file_name().and_then(|n| n.to_str()).and_then(SplitName::parse);
    let Some(name) = name else {
        let expected = suffix(place.no, place.count);
        let Place { no, count, .. } = place;
        return Err(GgufError::ShardName { path: path.to_path_buf(), no, count, expected });
    };
    let sibling = |no: u16| path.with_file_name(name.sibling(no).to_string());
    check_place(path, &name, &opened.metadata, &sibling)?;

    let paths: Vec<PathBuf> =
        (0..name.count).map(|no| if no == name.no { path.into() } else { sibling(no) }).collect();
    let mut total = 0u64;
    for (no, path) in (0..).zip(&paths) {
        match std::fs::metadata(path) {
            Ok(m) => total = total.saturating_add(m.len()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(GgufError::ShardMissing { path: path.clone(), no, count: name.count });
            }
            Err(source) => return Err(GgufError::Open { path: path.clone(), source }),
        }
    }
    if !opts.mmap {
        // Together, so that reading does not fail at the last of many gigabytes.
        memory::check(path, total.saturating_sub(opened.bytes.len() as u64), None)?;
    }

    let mut opened = Some(opened);
    let mut files = Vec::new();
    for (no, path) in (0..).zip(paths) {
        let parsed = match opened.take_if(|_| no == name.no) {
            Some(parsed) => parsed,
            None => {
                let in_file = |source| GgufError::Shard { path: path.clone(), source: Box::new(source) };
                let parsed = parse(Bytes::open(&path, opts)?).map_err(in_file)?;
                check_place(&path, &name.sibling(no), &parsed.metadata, &sibling)?;
                parsed
            }
        };
        files.push((Some(path), parsed));
    }
    check_together(path, &files)?;
    let mut gguf = Gguf::of_files(files)?;
    // What was joined is no longer one of several: a copy of its metadata must not say so.
    gguf.forget(&[NO, COUNT, TENSORS]);
    Ok(gguf)
}

/// Checks a file's metadata against its name.
fn check_place(
    path: &Path,
    name: &SplitName<'_>,
    metadata: &Metadata,
    sibling: &dyn Fn(u16) -> PathBuf,
) -> Result<(), GgufError> {
    let mismatch = |key: &str, expected: u16, found: String| {
        Err(GgufError::ShardMismatch {
            path: path.to_path_buf(),
            key: key.to_owned(),
            expected: expected.to_string(),
            found,
        })
    };
    let place = Place::of(metadata)
        .map_err(|source| GgufError::Shard { path: path.to_path_buf(), source: Box::new(source) })?;
    let Some(place) = place else {
        return mismatch(COUNT, name.count, metadata.get(COUNT).map_or("nothing".to_owned(), describe));
    };
    if place.count != name.count {
        return mismatch(COUNT, name.count, place.count.to_string());
    }
    if place.no == name.no {
        return Ok(());
    }
    let of = if place.no < name.count {
        format!("{}, the number of {}", place.no, sibling(place.no).display())
    } else {
        place.no.to_string()
    };
    mismatch(NO, name.no, of)
}

/// Checks that the files say the same about their model, and that they have all tensors and each once.
fn check_together(path: &Path, files: &[(Option<PathBuf>, Parsed)]) -> Result<(), GgufError> {
    let here = |i: usize| files[i].0.clone().unwrap_or_default();
    let first = &files[0].1.metadata;
    for (i, (_, file)) in files.iter().enumerate().skip(1) {
        for (key, value) in file.metadata.iter().filter(|(k, _)| *k != NO && *k != ALIGNMENT_KEY) {
            // Writers differ in the integer type.
            let same = |a: &Value, b: &Value| {
                a == b || (a.as_integer().is_some() && a.as_integer() == b.as_integer())
            };
            match first.get(key) {
                Some(expected) if !same(expected, value) => {
                    return Err(GgufError::ShardMismatch {
                        path: here(i),
                        key: key.to_owned(),
                        expected: describe(expected),
                        found: describe(value),
                    });
                }
                _ => {}
            }
        }
    }
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (i, (_, file)) in files.iter().enumerate() {
        for t in &file.tensors {
            if let Some(before) = seen.insert(&t.name, i).filter(|&before| before != i) {
                return Err(GgufError::ShardTensor {
                    tensor: t.name.clone(),
                    first: here(before),
                    second: here(i),
                });
            }
        }
    }
    match Place::of(first)?.and_then(|p| Some((p.count, p.tensors?))) {
        Some((count, expected)) if expected != seen.len() as u64 => Err(GgufError::ShardTensors {
            path: path.to_path_buf(),
            count,
            expected,
            found: seen.len() as u64,
        }),
        _ => Ok(()),
    }
}

/// A metadata value in a message.
fn describe(value: &Value) -> String {
    match value {
        Value::String(s) => format!("\"{}\"", Shown(s)),
        Value::Bool(b) => b.to_string(),
        Value::F32(x) => x.to_string(),
        Value::F64(x) => x.to_string(),
        other => other.as_integer().map_or_else(|| other.type_name(), |x| x.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_gguf_split_writes_them() {
        let cases = [
            ("m-00001-of-00002.gguf", Some(("m", 0, 2))),
            ("m-00002-of-00002.gguf", Some(("m", 1, 2))),
            ("-00001-of-00001.gguf", Some(("", 0, 1))),
            ("a-00001-of-00002-00003-of-00004.gguf", Some(("a-00001-of-00002", 2, 4))),
            ("m-65535-of-65535.gguf", Some(("m", 65_534, 65_535))),
            ("m-00000-of-00002.gguf", None),
            ("m-00003-of-00002.gguf", None),
            ("m-00001-of-65536.gguf", None),
            ("m-0001-of-0002.gguf", None),
            ("m-+0001-of-00002.gguf", None),
            ("m-00001-of-00002.GGUF", None),
            ("m-00001of-00002.gguf", None),
            ("m-00001-of-é0002.gguf", None),
            (".gguf", None),
            ("", None),
        ];
        for (name, want) in cases {
            let found = SplitName::parse(name);
            assert_eq!(found.map(|n| (n.stem, n.no, n.count)), want, "{name}");
            if let Some(found) = found {
                assert_eq!(found.to_string(), name);
            }
        }
    }
}
