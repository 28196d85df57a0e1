//! Files that a person names: what is read from them, and how they are written.
//!
//! One policy for all outputs (`docs/recordings.md`, "Files that are written"): none takes the place of an input or of another
//! output, a link to nothing and what is no regular file are in the way, a file appears under its name when it is
//! complete. Model files ([`check_model`]) replace nothing without `--force`; results that a command makes in moments
//! ([`check_result`]) replace a file of their own kind, and no other.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use redraft::gguf::{Gguf, OpenOptions};
use redraft::trace::{NameMap, TraceFile};

use crate::ui::page;

/// Longest file of JSON or text that is read where nothing else sets a limit.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// All bytes of a file of at most `max`.
///
/// # Errors
/// It cannot be read, or has more; with its name.
pub(crate) fn read(path: &Path, max: usize) -> anyhow::Result<Vec<u8>> {
    let about = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(about)?;
    file.take((max as u64).saturating_add(1)).read_to_end(&mut bytes).with_context(about)?;
    anyhow::ensure!(bytes.len() <= max, "{}: expected at most {max} bytes, found more", path.display());
    Ok(bytes)
}

/// What a small result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Taps or the steps of an answer, as safetensors.
    Recording,
    /// Importance data, as GGUF.
    Imatrix,
    /// A page of this program.
    Page,
    /// A receipt, as JSON.
    Receipt,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Recording => "a safetensors file",
            Kind::Imatrix => "importance data",
            Kind::Page => "a page of redraft",
            Kind::Receipt => "a receipt",
        }
    }

    /// Whether a file is of this kind, by what it begins with. An empty one is of any.
    fn is_kind_of(self, path: &Path) -> anyhow::Result<bool> {
        let mut start = Vec::new();
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let len = file.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        file.take(4096).read_to_end(&mut start).with_context(|| format!("cannot read {}", path.display()))?;
        if start.is_empty() {
            return Ok(true);
        }
        let text = String::from_utf8_lossy(&start);
        Ok(match self {
            Kind::Recording => match start.split_first_chunk() {
                Some((n, rest)) => rest.starts_with(b"{") && u64::from_le_bytes(*n) <= len.saturating_sub(8),
                None => false,
            },
            Kind::Imatrix => Gguf::open(path, &OpenOptions::default())
                .is_ok_and(|gguf| gguf.metadata().opt_str("general.type").ok().flatten() == Some("imatrix")),
            Kind::Page => text.contains(page::MARK),
            Kind::Receipt => text.starts_with('{') && text.contains("\"redraft_receipt\""),
        })
    }
}

/// What stands in the way of a small result is better said before the work than after it. `others` are the inputs of
/// the command and its other outputs.
///
/// # Errors
/// As [`refuse_overwriting`] and [`refuse_no_place`]; `path` is a file of another kind.
pub(crate) fn check_result(path: &Path, kind: Kind, others: &[Option<&Path>]) -> anyhow::Result<()> {
    refuse_overwriting(path, others)?;
    refuse_no_place(path)?;
    refuse_another_kind(path, kind)
}

/// The same of a model file, which takes long to make. Nothing is replaced without `force`.
///
/// # Errors
/// As [`refuse_overwriting`] and [`refuse_no_place`]; `path` is there, and not to be replaced.
pub(crate) fn check_model(path: &Path, force: bool, others: &[Option<&Path>]) -> anyhow::Result<()> {
    refuse_overwriting(path, others)?;
    refuse_no_place(path)?;
    anyhow::ensure!(force || !path.exists(), "{} exists: --force replaces it", path.display());
    Ok(())
}

/// Writes a small result in place of none or one of its kind.
///
/// # Errors
/// As [`write()`]; meanwhile a file of another kind came there.
pub(crate) fn write_result(path: &Path, kind: Kind, bytes: &[u8]) -> anyhow::Result<()> {
    refuse_another_kind(path, kind)?;
    write(path, bytes)
}

fn refuse_another_kind(path: &Path, kind: Kind) -> anyhow::Result<()> {
    anyhow::ensure!(
        !path.exists() || kind.is_kind_of(path)?,
        "{} exists and is not {}, as this command writes it: write to another file",
        path.display(),
        kind.name()
    );
    Ok(())
}

/// Writes a file in one go: under another name first, so that there is never half of it.
///
/// # Errors
/// With the file's name; as [`refuse_no_place`].
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let about = || format!("cannot write {}", path.display());
    refuse_no_place(path)?;
    // Through a link the file it points to is replaced, not the link.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let part = target.with_file_name(name);
    let written = std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, &target));
    if written.is_err() {
        // What could not be written is of no use; the error itself is reported.
        let _ = std::fs::remove_file(&part);
    }
    written.with_context(about)
}

/// What a system says about a folder that is mapped as a file helps nobody, and a device may never end.
///
/// # Errors
/// The path is no regular file, where `expected` would do.
pub(crate) fn refuse_special(path: &Path, expected: &str) -> anyhow::Result<()> {
    let Ok(meta) = std::fs::metadata(path) else { return Ok(()) };
    anyhow::ensure!(!meta.is_dir(), "{} is a folder: expected {expected}", path.display());
    anyhow::ensure!(meta.is_file(), "{} is no regular file: expected {expected}", path.display());
    Ok(())
}

/// Taps or logits of any form that is known, with our names where `map`, a file, says so.
///
/// # Errors
/// A file cannot be read or is of no known form; with its name.
pub(crate) fn open_taps(path: &Path, map: &NameMap) -> anyhow::Result<TraceFile> {
    if !path.is_dir() {
        refuse_special(path, "a file of taps, or a folder of such")?;
    }
    Ok(TraceFile::open_any(path, map)?)
}

/// The map of `--map`; without one it is empty.
///
/// # Errors
/// As [`open_taps`].
pub(crate) fn name_map(path: Option<&Path>) -> anyhow::Result<NameMap> {
    let Some(path) = path else { return Ok(NameMap::default()) };
    refuse_special(path, "a file of JSON")?;
    let text = read(path, MAX_BYTES)?;
    Ok(NameMap::parse(&String::from_utf8_lossy(&text), &path.display().to_string())?)
}

/// An output that is also an input would be lost before anybody noticed, and so would one of two outputs.
///
/// # Errors
/// When `output` is one of the `others`, by whatever path or link.
pub(crate) fn refuse_overwriting(output: &Path, others: &[Option<&Path>]) -> anyhow::Result<()> {
    let target = place(output);
    for other in others.iter().flatten() {
        anyhow::ensure!(
            place(other) != target && !same_file(other, output),
            "{} is also an input or another output of this command: write to another file",
            output.display()
        );
    }
    Ok(())
}

/// Whether two paths are one file under several names.
#[cfg(unix)]
fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let id = |path: &Path| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    id(a).is_some_and(|a| Some(a) == id(b))
}

#[cfg(not(unix))]
fn same_file(_: &Path, _: &Path) -> bool {
    false // places are compared, which tells all but hard links
}

/// Where a file is, or where it would be.
fn place(path: &Path) -> PathBuf {
    if let Ok(place) = path.canonicalize() {
        return place;
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_path_buf(),
    }
}

/// What cannot be written is better said before the work than after it.
///
/// # Errors
/// `output` is a folder, a device, a pipe or a link to nothing, or is to be in a folder that is not there.
pub(crate) fn refuse_no_place(output: &Path) -> anyhow::Result<()> {
    let name = output.display();
    match std::fs::metadata(output) {
        Ok(found) if found.is_dir() => {
            anyhow::bail!("cannot write {name}: it is a folder, expected the name of a file")
        }
        // A file that is renamed at the end would take the place of the device itself.
        Ok(found) if !found.is_file() => {
            anyhow::bail!("cannot write {name}: it is no regular file, expected the name of a file")
        }
        Err(_) if std::fs::symlink_metadata(output).is_ok_and(|m| m.is_symlink()) => {
            anyhow::bail!("cannot write {name}: it is a link to nothing, remove it or write to another file")
        }
        _ => {}
    }
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    anyhow::ensure!(folder.is_dir(), "cannot write {name}: there is no folder {}", folder.display());
    Ok(())
}

/// An error about the content of a file, with the file's name unless it says it itself.
pub(crate) fn about_file<E: std::error::Error + Send + Sync + 'static>(
    error: E,
    path: &Path,
) -> anyhow::Error {
    let name = path.display().to_string();
    let named = error.to_string().contains(&name);
    let error = anyhow::Error::new(error);
    if named { error } else { error.context(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_replaces_a_file_of_its_kind_alone() {
        let dir = tempfile::tempdir().unwrap();
        let kinds = [Kind::Recording, Kind::Imatrix, Kind::Page, Kind::Receipt];
        let mut imatrix = redraft::gguf::GgufWriter::new();
        imatrix.metadata_mut().set("general.type", "imatrix");
        let gguf = |w: redraft::gguf::GgufWriter| w.begin(Vec::new()).unwrap().finish().unwrap();
        let mut model = redraft::gguf::GgufWriter::new();
        model.metadata_mut().set("general.type", "model");
        let mut recording = TraceFile::default();
        recording.insert("a", vec![1], redraft::trace::Elements::F32(vec![1.0]));
        let files: [(&str, Vec<u8>, Option<Kind>); 8] = [
            ("taps", recording.to_bytes(), Some(Kind::Recording)),
            ("imatrix", gguf(imatrix), Some(Kind::Imatrix)),
            (
                "page",
                format!("<!DOCTYPE html>\n<html><head>{}</head>", page::MARK).into_bytes(),
                Some(Kind::Page),
            ),
            ("receipt", b"{\n  \"redraft_receipt\": 1}".to_vec(), Some(Kind::Receipt)),
            ("model", gguf(model), None),
            ("foreign", b"<!DOCTYPE html>\n<html><head></head>".to_vec(), None),
            ("json", b"{\"messages\": []}".to_vec(), None),
            ("notes", b"Do not lose this.".to_vec(), None),
        ];
        for (name, bytes, of) in &files {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            for kind in kinds {
                let done = check_result(&path, kind, &[]);
                assert_eq!(done.is_ok(), *of == Some(kind), "{name} {kind:?}: {done:?}");
                if let Err(e) = done {
                    assert!(e.to_string().contains("exists and is not"), "{e}");
                    assert!(write_result(&path, kind, b"x").is_err());
                    assert_eq!(std::fs::read(&path).unwrap(), *bytes, "{name} {kind:?}");
                }
            }
        }
        // Where nothing is, or nothing in it, nothing is lost.
        let empty = dir.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        for kind in kinds {
            check_result(&empty, kind, &[]).unwrap();
            check_result(&dir.path().join("none"), kind, &[]).unwrap();
        }
        write_result(&dir.path().join("page"), Kind::Page, b"new").unwrap();
        assert_eq!(std::fs::read(dir.path().join("page")).unwrap(), b"new");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_are_seen_through() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("input"), "").unwrap();
        std::fs::hard_link(at("input"), at("hard")).unwrap();
        symlink(at("input"), at("soft")).unwrap();
        symlink(at("nothing"), at("dangling")).unwrap();
        symlink(dir.path(), at("folder")).unwrap();
        let input = at("input");
        for name in ["input", "hard", "soft", "folder/input", "folder/hard"] {
            for e in [
                check_result(&at(name), Kind::Page, &[Some(&input)]),
                check_model(&at(name), true, &[Some(&input)]),
            ] {
                let e = e.unwrap_err().to_string();
                assert!(e.contains("also an input"), "{name}: {e}");
            }
        }
        for (path, what) in [
            (at("dangling"), "a link to nothing"),
            ("/dev/null".into(), "no regular file"),
            (at("folder"), "a folder"),
        ] {
            for force in [false, true] {
                let e = check_model(&path, force, &[]).unwrap_err().to_string();
                assert!(e.contains(what), "{e}");
            }
            assert!(check_result(&path, Kind::Page, &[]).unwrap_err().to_string().contains(what));
            assert!(write(&path, b"x").unwrap_err().to_string().contains(what));
        }
        assert!(
            check_model(&at("input"), false, &[]).unwrap_err().to_string().contains("--force replaces it")
        );
        check_model(&at("input"), true, &[]).unwrap();
        // What a link names is replaced, and the link stays.
        write_result(&at("soft"), Kind::Page, b"new").unwrap();
        assert!(std::fs::symlink_metadata(at("soft")).unwrap().is_symlink());
        assert_eq!(std::fs::read(at("input")).unwrap(), b"new");
    }

    #[test]
    fn files_are_read_up_to_a_limit_and_written_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write(&path, b"12345").unwrap();
        write(&path, b"1234").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"1234");
        let e = read(&path, 3).unwrap_err().to_string();
        assert!(e.ends_with("a.txt: expected at most 3 bytes, found more"), "{e}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        let e = read(&dir.path().join("none"), 3).unwrap_err().to_string();
        assert!(e.starts_with("cannot read ") && e.ends_with("none"), "{e}");
    }
}
