//! `redraft inspect`: what is in a GGUF file, whether or not its architecture is known here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use redraft::arch::ARCHS;
use redraft::file_type_name;
use redraft::gguf::{Array, DType, Gguf, Shown, Value, codec};
use serde::{Serialize, Serializer};

use crate::exit::Exit;
use crate::model::open_file;
use crate::out::Out;
use crate::ui::progress::human_bytes;
use crate::ui::table::table;

/// Elements of an array that are shown without --full.
const FIRST: usize = 6;
/// Characters of a string that are shown without --full.
const LONGEST: usize = 72;

/// Show what is in a GGUF file: header, metadata, tensors, types, sizes.
///
/// Works on every GGUF file, whether or not redraft can run its architecture. One file of a split model
/// (NAME-00001-of-00005.gguf) shows the whole model.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft inspect model.gguf\n  \
    redraft inspect --full model.gguf | less\n  \
    redraft inspect --json model.gguf | jq .types")]
pub(crate) struct Args {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Show long arrays and texts completely.
    #[arg(long)]
    full: bool,
}

/// What there is to say about a file.
#[derive(Debug, Serialize)]
struct Report<'a> {
    file: String,
    /// The files of a split model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<File>,
    /// Of all files together.
    bytes: u64,
    version: u32,
    alignment: u64,
    data_offset: u64,
    architecture: Option<String>,
    /// Whether this program can run the architecture.
    supported: bool,
    name: Option<String>,
    file_type: String,
    parameters: u64,
    tensor_bytes: u64,
    bits_per_weight: f64,
    metadata: Vec<Entry<'a>>,
    types: Vec<Type>,
    tensors: Vec<Tensor>,
}

#[derive(Debug, Serialize)]
struct File {
    file: String,
    bytes: u64,
    alignment: u64,
    data_offset: u64,
    tensors: usize,
}

#[derive(Debug, Serialize)]
struct Entry<'a> {
    key: &'a str,
    #[serde(rename = "type")]
    kind: String,
    /// Number of elements, for arrays.
    #[serde(skip_serializing_if = "Option::is_none")]
    len: Option<usize>,
    /// For arrays without --full, the first elements.
    value: Start<'a, Value>,
}

#[derive(Debug, Serialize)]
struct Type {
    #[serde(rename = "type")]
    name: String,
    tensors: usize,
    elements: u64,
    /// Of a type that is not known, with the padding behind each tensor.
    bytes: u64,
    /// Whether the size of its blocks is known.
    known: bool,
    /// Whether this program can compute with it.
    supported: bool,
}

#[derive(Debug, Serialize)]
struct Tensor {
    name: String,
    #[serde(rename = "type")]
    dtype: String,
    shape: Vec<u64>,
    /// Which file of a split model has the data, counted from 0 as in `files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<usize>,
    offset: u64,
    bytes: u64,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let gguf = open_file(&args.file, out)?;
    let report = inspect(&args.file, &gguf, args.full);
    if out.json {
        out.object(&report)?
    } else {
        out.text(&text(&report, args.full))?
    };
    Ok(Exit::Done)
}

fn inspect<'a>(path: &Path, gguf: &'a Gguf, full: bool) -> Report<'a> {
    let meta = gguf.metadata();
    let stated = |key| meta.opt_str(key).ok().flatten().map(str::to_string);
    let architecture = stated("general.architecture");
    let mut types: BTreeMap<DType, Type> = BTreeMap::new();
    for t in gguf.tensors() {
        let entry = types.entry(t.dtype).or_insert_with(|| Type {
            name: t.dtype.to_string(),
            tensors: 0,
            elements: 0,
            bytes: 0,
            known: t.dtype.info().is_some(),
            supported: codec(t.dtype).is_some(),
        });
        entry.tensors += 1;
        // Tensors of an unknown type may claim any shape.
        entry.elements = entry.elements.saturating_add(t.n_elements());
        entry.bytes += t.n_bytes;
    }
    let parameters = types.values().fold(0u64, |n, t| n.saturating_add(t.elements));
    let tensor_bytes: u64 = types.values().map(|t| t.bytes).sum();
    let files: Vec<File> = gguf
        .files()
        .iter()
        .map(|f| File {
            file: f.path.as_ref().map_or_else(String::new, |p| p.display().to_string()),
            bytes: f.bytes.len() as u64,
            alignment: f.alignment,
            data_offset: f.data_offset,
            tensors: f.n_tensors,
        })
        .collect();
    let split = files.len() > 1;
    Report {
        file: path.display().to_string(),
        bytes: files.iter().map(|f| f.bytes).sum(),
        files: if split { files } else { Vec::new() },
        version: gguf.version(),
        alignment: gguf.alignment(),
        data_offset: gguf.data_offset(),
        supported: architecture.as_ref().is_some_and(|a| ARCHS.iter().any(|s| s.name == a)),
        architecture,
        name: stated("general.name"),
        file_type: file_type_name(gguf),
        parameters,
        tensor_bytes,
        bits_per_weight: (tensor_bytes as f64 * 8e3 / parameters.max(1) as f64).round() / 1e3,
        metadata: meta.iter().map(|(key, value)| entry(key, value, full)).collect(),
        types: types.into_values().collect(),
        tensors: gguf
            .tensors()
            .iter()
            .map(|t| Tensor {
                name: t.name.clone(),
                dtype: t.dtype.to_string(),
                shape: t.dims.clone(),
                file: split.then_some(t.file),
                offset: t.offset,
                bytes: t.n_bytes,
            })
            .collect(),
    }
}

fn entry<'a>(key: &'a str, value: &'a Value, full: bool) -> Entry<'a> {
    let len = match value {
        Value::Array(a) => Some(a.len()),
        _ => None,
    };
    let take = if full { usize::MAX } else { FIRST };
    Entry { key, kind: value.type_name(), len, value: Start { of: value, take } }
}

/// A value with the first elements of its arrays, written without a copy: with --full the arrays of a small file
/// would otherwise take a hundred times its size.
#[derive(Debug)]
struct Start<'a, T> {
    of: &'a T,
    take: usize,
}

impl Serialize for Start<'_, Value> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.of {
            Value::U8(x) => x.serialize(s),
            Value::I8(x) => x.serialize(s),
            Value::U16(x) => x.serialize(s),
            Value::I16(x) => x.serialize(s),
            Value::U32(x) => x.serialize(s),
            Value::I32(x) => x.serialize(s),
            Value::F32(x) => float(*x).serialize(s),
            Value::Bool(x) => x.serialize(s),
            Value::String(x) => x.serialize(s),
            Value::Array(of) => Start { of, take: self.take }.serialize(s),
            Value::U64(x) => x.serialize(s),
            Value::I64(x) => x.serialize(s),
            Value::F64(x) => x.serialize(s),
        }
    }
}

impl Serialize for Start<'_, Array> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let take = self.take;
        match self.of {
            Array::U8(x) => s.collect_seq(x.iter().take(take)),
            Array::I8(x) => s.collect_seq(x.iter().take(take)),
            Array::U16(x) => s.collect_seq(x.iter().take(take)),
            Array::I16(x) => s.collect_seq(x.iter().take(take)),
            Array::U32(x) => s.collect_seq(x.iter().take(take)),
            Array::I32(x) => s.collect_seq(x.iter().take(take)),
            Array::F32(x) => s.collect_seq(x.iter().take(take).map(|x| float(*x))),
            Array::Bool(x) => s.collect_seq(x.iter().take(take)),
            Array::Str(x) => s.collect_seq(x.iter().take(take)),
            Array::Array(x) => s.collect_seq(x.iter().take(take).map(|of| Start { of, take })),
            Array::U64(x) => s.collect_seq(x.iter().take(take)),
            Array::I64(x) => s.collect_seq(x.iter().take(take)),
            Array::F64(x) => s.collect_seq(x.iter().take(take)),
        }
    }
}

/// The shortest decimal that stands for an f32, not the digits of its f64; none for what JSON has no number for.
fn float(x: f32) -> Option<f64> {
    x.to_string().parse::<f64>().ok().filter(|x| x.is_finite())
}

/// The report in words and tables.
fn text(r: &Report<'_>, full: bool) -> String {
    let name = |s: &str| if full { s.to_string() } else { Shown(s).to_string() };
    let known = match (&r.architecture, r.supported) {
        (None, _) => "not stated".into(),
        (Some(a), true) => format!("{} (supported)", Shown(a)),
        (Some(a), false) => {
            let names: Vec<&str> = ARCHS.iter().map(|a| a.name).collect();
            format!("{} (not supported; redraft runs {})", Shown(a), names.join(", "))
        }
    };
    let facts = [
        ("file", format!("{} ({}, {} bytes)", r.file, human_bytes(r.bytes), r.bytes)),
        (
            "format",
            format!("GGUF version {}, alignment {}, data at {}", r.version, r.alignment, r.data_offset),
        ),
        ("architecture", known),
        ("name", r.name.as_ref().map_or_else(|| "not stated".into(), |n| Shown(n).to_string())),
        ("type", format!("{}, {:.2} bits per weight", r.file_type, r.bits_per_weight)),
        (
            "parameters",
            format!("{} in {} tensors ({})", r.parameters, r.tensors.len(), human_bytes(r.tensor_bytes)),
        ),
    ];
    let mut s = String::new();
    facts.iter().for_each(|(name, value)| s.push_str(&format!("{name:<13} {value}\n")));

    if !r.files.is_empty() {
        s.push_str(&format!("\nfiles ({})\n", r.files.len()));
        let rows: Vec<Vec<String>> = (1..)
            .zip(&r.files)
            .map(|(i, f): (usize, _)| {
                vec![i.to_string(), f.tensors.to_string(), human_bytes(f.bytes), f.file.clone()]
            })
            .collect();
        s.push_str(&table(&["", "tensors", "size", "file"], &[0, 1, 2], &rows));
    }

    s.push_str(&format!("\nmetadata ({})\n", r.metadata.len()));
    let rows: Vec<Vec<String>> =
        r.metadata.iter().map(|e| vec![name(e.key), e.kind.clone(), shown(e, full)]).collect();
    s.push_str(&table(&["key", "type", "value"], &[], &rows));

    s.push_str("\nblock types\n");
    let percent = |bytes: u64| format!("{:.1} %", bytes as f64 * 100.0 / r.tensor_bytes.max(1) as f64);
    let rows: Vec<Vec<String>> = r
        .types
        .iter()
        .map(|t| {
            let note = match (t.known, t.supported) {
                (_, true) => "",
                (true, false) => "cannot be computed with",
                (false, false) => "not a known type: its sizes are the room up to the next tensor",
            };
            let numbers =
                [t.tensors.to_string(), t.elements.to_string(), human_bytes(t.bytes), percent(t.bytes)];
            [vec![t.name.clone()], numbers.to_vec(), vec![note.into()]].concat()
        })
        .collect();
    s.push_str(&table(&["type", "tensors", "elements", "size", "share", ""], &[1, 2, 3, 4], &rows));

    s.push_str(&format!("\ntensors ({})\n", r.tensors.len()));
    let shape = |t: &Tensor| t.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
    let rows: Vec<Vec<String>> = r
        .tensors
        .iter()
        .map(|t| {
            let mut row =
                vec![name(&t.name), t.dtype.clone(), shape(t), human_bytes(t.bytes), t.offset.to_string()];
            row.extend(t.file.map(|f| (f + 1).to_string()));
            row
        })
        .collect();
    let heading = ["name", "type", "shape", "size", "offset", "file"];
    let columns = if r.files.is_empty() { 5 } else { 6 };
    s.push_str(&table(&heading[..columns], &[3, 4, 5], &rows));
    s
}

/// JSON on one line with a space after each comma.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }
}

/// A value on one line. Strings look as in JSON, so that their ends and newlines can be seen.
fn shown(e: &Entry<'_>, full: bool) -> String {
    let mut text = Vec::new();
    let mut json = serde_json::Serializer::with_formatter(&mut text, Spaced);
    e.value.serialize(&mut json).expect("numbers and texts have a form in JSON, and memory takes it");
    let mut text = String::from_utf8(text).expect("JSON is UTF-8");
    if e.len.is_some_and(|n| n > e.value.take) {
        text.truncate(text.len() - 1);
        text.push_str(", …]");
    }
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) if !full => {
            text.truncate(at);
            text.push('…');
        }
        _ => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_abbreviated() {
        let a = Value::Array(Array::F32(vec![0.1; 9]));
        let e = entry("k", &a, false);
        assert_eq!(shown(&e, false), "[0.1, 0.1, 0.1, 0.1, 0.1, 0.1, …]");
        assert_eq!((e.kind.as_str(), e.len), ("array of 9 f32", Some(9)));
        assert_eq!(shown(&entry("k", &a, true), true).matches("0.1").count(), 9);
        let long = Value::from("é".repeat(100).as_str());
        assert!(shown(&entry("k", &long, false), false).ends_with("é…"));
    }
}
