//! A file that appears under its name when it is complete, and otherwise not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A file called as it will be called, with `.partial` added. It is removed unless it is finished.
pub(crate) struct Partial {
    pub(crate) file: File,
    path: PathBuf,
    finished: bool,
}

impl Partial {
    /// # Errors
    /// Those of the file system; [`ErrorKind::AlreadyExists`] where `path` is no regular file, since the rename at the end
    /// must not replace a device or a pipe, and where a file with the added name is there.
    pub(crate) fn create(path: &Path) -> io::Result<Partial> {
        if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "exists and is not a regular file"));
        }
        let mut name = path.file_name().ok_or(ErrorKind::InvalidFilename)?.to_owned();
        name.push(".partial");
        let path = path.with_file_name(name);
        // What is there may be another run's, or the very file that is read.
        let file =
            File::options().read(true).write(true).create_new(true).open(&path).map_err(|e| {
                match e.kind() {
                    ErrorKind::AlreadyExists => io::Error::new(
                        e.kind(),
                        format!(
                            "{} is in the way: another run writes it, or one was cut short; remove it then",
                            path.display()
                        ),
                    ),
                    _ => e,
                }
            })?;
        Ok(Partial { file, path, finished: false })
    }

    /// Where it is until it is finished.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed stays under its telling name; the error that led here matters more.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Bytes that are free in the folder of a file; `None` when that cannot be found out.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    fs4::available_space(folder(path)).ok()
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if p != Path::new("") => p,
        _ => Path::new("."),
    }
}
