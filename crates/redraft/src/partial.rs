//! A file that appears under its name when it is complete, and otherwise not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A file called as it will be called, with `.partial` added. It is removed unless it is finished.
pub(crate) struct Partial {
    pub(crate) file: File,
    path: PathBuf,
    target: PathBuf,
    replace: bool,
    finished: bool,
}

impl Partial {
    /// Begins the file that will be called `path`, of `needed` bytes. With `replace` it takes the place of what is there.
    ///
    /// # Errors
    /// Those of the file system; [`ErrorKind::AlreadyExists`] where `path` is no regular file, since the rename at the end
    /// must not replace a device or a pipe, where it is there and not to be replaced, a link to nothing included, and where
    /// a file with the added name is there; [`ErrorKind::StorageFull`] where there is not enough room.
    pub(crate) fn create(path: &Path, replace: bool, needed: u64) -> io::Result<Partial> {
        let target = path.to_owned();
        if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "exists and is not a regular file"));
        }
        refuse_existing(path, replace)?;
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
        let partial = Partial { file, path, target, replace, finished: false };
        // Asked when there is a file: where none can be, there is no room either, and that is not the reason.
        match free_bytes(&partial.target).filter(|&free| free < needed) {
            None => Ok(partial),
            Some(free) => {
                let what = format!("not enough room: {needed} bytes are needed, {free} are free");
                Err(io::Error::new(ErrorKind::StorageFull, what))
            }
        }
    }

    /// Where it is until it is finished.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Those of the file system; [`ErrorKind::AlreadyExists`] where something came there meanwhile that is not to be
    /// replaced.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        refuse_existing(&self.target, self.replace)?;
        fs::rename(&self.path, &self.target)?;
        self.finished = true;
        Ok(())
    }
}

/// A link to nothing is a file in the way, too: the rename would take its place.
fn refuse_existing(path: &Path, replace: bool) -> io::Result<()> {
    match !replace && fs::symlink_metadata(path).is_ok() {
        true => Err(io::Error::new(ErrorKind::AlreadyExists, "exists: --force replaces it")),
        false => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_unless_it_is_to_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let names = || {
            let entries = fs::read_dir(dir.path()).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        Partial::create(&path, false, 1).unwrap().finish().unwrap();
        let kind = |r: io::Result<Partial>| r.err().map(|e| e.kind());
        assert_eq!(kind(Partial::create(&path, false, 1)), Some(ErrorKind::AlreadyExists));
        assert_eq!(kind(Partial::create(dir.path(), true, 1)), Some(ErrorKind::AlreadyExists));
        assert_eq!(kind(Partial::create(&path, true, u64::MAX)), Some(ErrorKind::StorageFull));
        assert_eq!(names(), ["a"]);
        let partial = Partial::create(&path, true, 1).unwrap();
        assert_eq!(kind(Partial::create(&path, true, 1)), Some(ErrorKind::AlreadyExists), "another run");
        partial.finish().unwrap();
        // One that comes while another is written.
        let other = dir.path().join("b");
        let partial = Partial::create(&other, false, 1).unwrap();
        fs::write(&other, b"theirs").unwrap();
        assert_eq!(partial.finish().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!((names(), fs::read(&other).unwrap()), (vec!["a".into(), "b".into()], b"theirs".to_vec()));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_nothing_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("nothing"), &path).unwrap();
        let e = Partial::create(&path, false, 1).err().unwrap();
        assert_eq!(e.to_string(), "exists: --force replaces it");
        Partial::create(&path, true, 1).unwrap().finish().unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }
}
