//! Files that a person names: what is read from them, and how they are written.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use redraft::trace::{NameMap, TraceFile};

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

/// Writes a file in one go: under another name first, so that there is never half of it. What is no regular file is
/// written to as it is.
///
/// # Errors
/// With the file's name.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let about = || format!("cannot write {}", path.display());
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return std::fs::write(path, bytes).with_context(about);
    }
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
/// When `output` is one of the `others`, by whatever path.
pub(crate) fn refuse_overwriting(output: &Path, others: &[Option<&Path>]) -> anyhow::Result<()> {
    if std::fs::metadata(output).is_ok_and(|m| !m.is_file()) {
        return Ok(()); // a device loses nothing
    }
    let target = place(output);
    for other in others.iter().flatten() {
        anyhow::ensure!(
            place(other) != target,
            "{} is also an input or another output of this command: write to another file",
            output.display()
        );
    }
    Ok(())
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
/// `output` is a folder, or is to be in one that is not there.
pub(crate) fn refuse_no_place(output: &Path) -> anyhow::Result<()> {
    let name = output.display();
    anyhow::ensure!(!output.is_dir(), "cannot write {name}: it is a folder, expected the name of a file");
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    anyhow::ensure!(folder.is_dir(), "cannot write {name}: there is no folder {}", folder.display());
    Ok(())
}

/// What would be replaced is better said before the work, too. A link to nothing is in the way as well.
///
/// # Errors
/// `output` is there, and not to be replaced by `force`.
pub(crate) fn refuse_existing(output: &Path, force: bool) -> anyhow::Result<()> {
    let is_there = std::fs::symlink_metadata(output).is_ok();
    anyhow::ensure!(force || !is_there, "{} exists: --force replaces it", output.display());
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
