//! Files of other programs: taps and logits in forms that are not ours. What a file is, its content says, not its
//! name. Numbers without any form are read where a map says what they are.

mod eval_callback;
mod map;
mod npz;
mod raw;
mod zip;

use std::path::Path;

use redraft_gguf::{Bytes, OpenOptions, Shown};

pub use map::NameMap;

use super::TraceFile;
use crate::Error;

/// A form of file.
struct Form {
    /// For people.
    name: &'static str,
    /// Whether content is of this form, or means to be.
    is: fn(&[u8]) -> bool,
    /// Reads content; the name is that of the file.
    read: fn(&[u8], &str) -> Result<TraceFile, Error>,
}

/// All forms, the one that is recognized most surely first.
const FORMS: &[Form] = &[
    Form { name: "safetensors", is: is_safetensors, read: TraceFile::parse },
    Form { name: "NumPy's npz", is: npz::is_npz, read: npz::read },
    Form { name: "NumPy's npy", is: npz::is_npy, read: npz::read_one },
    Form { name: "text of llama-eval-callback", is: eval_callback::is, read: eval_callback::read },
];

/// Names of other programs for what has one name here; they count where the file lacks that.
const ALIASES: [(&str, &str); 3] = [("result_output", "logits"), ("embd", "inp_embd"), ("inp_tokens", "ids")];

/// Files of a folder that are read.
const MAX_FILES: usize = 4096;

/// Bytes that the tensors of a folder may take beside eight times those of its files, as much as packed numbers unpack to.
const ROOM: u64 = 256 << 20;

fn is_safetensors(bytes: &[u8]) -> bool {
    let header = bytes.first_chunk().map(|&n| u64::from_le_bytes(n));
    bytes.get(8) == Some(&b'{') && header.is_some_and(|n| n <= bytes.len() as u64 - 8)
}

impl TraceFile {
    /// Reads a file of any form, or a folder of such files, and gives its tensors our names.
    ///
    /// # Errors
    /// [`Error::Gguf`] when it cannot be opened, [`Error::Golden`] when it is damaged, of no form that is known, or
    /// does not fit the map.
    pub fn open_any(path: &Path, map: &NameMap) -> Result<TraceFile, Error> {
        let name = path.display().to_string();
        let mut file = if path.is_dir() {
            folder(path, map)?
        } else {
            let bytes = Bytes::open(path, &OpenOptions::default())?;
            let found = read(&bytes, &name, map);
            bytes.check()?;
            found?.ok_or_else(|| unknown(&name))?
        };
        file.name = name;
        finish(file, map)
    }

    /// As [`open_any`](Self::open_any), from memory.
    ///
    /// # Errors
    /// As there.
    pub fn parse_any(bytes: &[u8], name: &str, map: &NameMap) -> Result<TraceFile, Error> {
        let file = read(bytes, name, map)?.ok_or_else(|| unknown(name))?;
        finish(file, map)
    }
}

/// The last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn unknown(name: &str) -> Error {
    let forms: Vec<&str> = FORMS.iter().map(|form| form.name).collect();
    let problem = format!(
        "expected one of {}; what a file of raw f32 numbers holds, a map says: --map with {{\"{}\": \"logits\"}}",
        forms.join(", "),
        Shown(file_name(name)),
    );
    Error::Golden { file: name.to_string(), problem }
}

/// A file by its form; none where it has none and the map does not name it, without the folder.
fn read(bytes: &[u8], name: &str, map: &NameMap) -> Result<Option<TraceFile>, Error> {
    if let Some(form) = FORMS.iter().find(|form| (form.is)(bytes)) {
        return (form.read)(bytes, name).map(Some);
    }
    map.renamed(file_name(name)).is_some().then(|| raw::read(bytes, name)).transpose()
}

/// All files of a folder, in the order of their names.
fn folder(path: &Path, map: &NameMap) -> Result<TraceFile, Error> {
    let wrong = |problem: String| Error::Golden { file: path.display().to_string(), problem };
    let entries = std::fs::read_dir(path).map_err(|e| wrong(format!("cannot be listed: {e}")))?;
    let (mut paths, mut all) = (Vec::new(), TraceFile::default());
    for entry in entries {
        let path = entry.map_err(|e| wrong(format!("cannot be listed: {e}")))?.path();
        if path.is_file() {
            paths.push(path);
        } else {
            let kind = if path.is_dir() { "is a folder" } else { "is no regular file" };
            let name = path.display().to_string();
            all.notes.push(format!("{} {kind}: not read", Shown(file_name(&name))));
        }
        if paths.len() + all.notes.len() > MAX_FILES {
            return Err(wrong(format!("expected a folder of at most {MAX_FILES} files")));
        }
    }
    paths.sort();
    let (mut read_bytes, mut taken) = (0u64, 0u64);
    for path in &paths {
        let bytes = Bytes::open(path, &OpenOptions::default())?;
        read_bytes = read_bytes.saturating_add(bytes.len() as u64);
        let name = path.display().to_string();
        let found = read(&bytes, &name, map)?;
        bytes.check()?;
        let Some(found) = found else {
            let key = file_name(&name);
            all.notes.push(format!("{key} is of no known form and not in the map: not read"));
            continue;
        };
        all.notes.extend(found.notes);
        all.given.extend(found.given);
        all.metadata.extend(found.metadata);
        for (name, tensor) in found.tensors {
            if all.tensors.contains_key(&name) {
                return Err(wrong(format!("two of its files hold a tensor {}", Shown(&name))));
            }
            taken = taken.saturating_add(8 * tensor.data.len() as u64);
            all.tensors.insert(name, tensor);
        }
        if taken > read_bytes.saturating_mul(8).saturating_add(ROOM) {
            return Err(wrong(format!(
                "its files of {read_bytes} bytes unpack to more than {taken} bytes: leave in it what is to be judged"
            )));
        }
    }
    if all.tensors.is_empty() {
        return Err(wrong(
            "none of its files could be read as tensors: --map says what raw f32 files hold".into(),
        ));
    }
    Ok(all)
}

/// Our names in the place of theirs.
fn finish(mut file: TraceFile, map: &NameMap) -> Result<TraceFile, Error> {
    map.apply(&mut file)?;
    for (theirs, ours) in ALIASES {
        if file.tensors.contains_key(theirs) && !file.tensors.contains_key(ours) {
            file.rename(theirs, ours);
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Elements, Given};

    #[test]
    fn content_says_what_a_file_is() {
        let mut ours = TraceFile::default();
        ours.insert("result_output", vec![1, 2], Elements::F32(vec![1.0, 2.0]));
        let none = NameMap::default();
        let read = TraceFile::parse_any(&ours.to_bytes(), "x.npz", &none).unwrap();
        assert_eq!(read.tensors["logits"].shape, [1, 2], "whatever the file is called");
        let error = TraceFile::parse_any(b"\0\0\x80?\0\0\0@", "a/logits.bin", &none).unwrap_err().to_string();
        assert!(error.contains("{\"logits.bin\": \"logits\"}") && error.contains("npz"), "{error}");
        let map = NameMap::parse(r#"{"*.bin": "*"}"#, "m").unwrap();
        let raw = TraceFile::parse_any(b"\0\0\x80?\0\0\0@", "a/logits.bin", &map).unwrap();
        assert_eq!(raw.tensors["logits"].data, Elements::F32(vec![1.0, 2.0]));
        assert_eq!(raw.given["logits"], Given::Flat);
        let error = TraceFile::parse_any(b"12345", "logits.bin", &map).unwrap_err().to_string();
        assert!(error.contains("5 bytes"), "{error}");
    }

    /// Zeros, which pack well: each file is within the bound of a file.
    #[test]
    fn what_a_folder_unpacks_to_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..5 {
            std::fs::write(dir.path().join(format!("{i}.npz")), npz::tests::archive(i, &[8 << 20])).unwrap();
        }
        let error = TraceFile::open_any(dir.path(), &NameMap::default()).unwrap_err().to_string();
        assert!(error.contains("unpack to more than"), "{error}");
    }

    #[test]
    fn a_folder_is_read_file_by_file() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
        let open = |map: &str| TraceFile::open_any(dir.path(), &NameMap::parse(map, "m").unwrap());
        put("README", b"about");
        assert!(open("{}").unwrap_err().to_string().contains("none of its files"));
        put("logits.bin", &1f32.to_le_bytes());
        put("l3.bin", &[0; 8]);
        let file = open(r#"{"logits.bin": "logits", "l*.bin": "l_out-*"}"#).unwrap();
        let lens: Vec<_> = file.tensors.iter().map(|(n, t)| (n.as_str(), t.data.len())).collect();
        assert_eq!(lens, [("l_out-3", 2), ("logits", 1)]);
        assert_eq!(file.notes, ["README is of no known form and not in the map: not read"]);
        let mut ours = TraceFile::default();
        ours.insert("l3.bin", vec![1], Elements::F32(vec![1.0]));
        put("z.safetensors", &ours.to_bytes());
        assert!(open(r#"{"*.bin": "*"}"#).unwrap_err().to_string().contains("two of its files"));
    }
}
