//! From a file to bytes: shared, immutable, sliceable without copying.
//!
//! A model file is mapped into memory where possible, so that weights stay in the page cache and are read
//! when they are first used. Where a file system refuses maps, or the caller does not want one, the file is
//! read into memory instead, and nothing above this module sees the difference. A mapped file that another
//! program cuts short is found by [`Bytes::check`]; see [`guard_maps`] for what protects the time between.

mod guard;

use std::fs::File;
use std::io::Read;
use std::ops::{Bound, Deref, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

pub use self::guard::guard_maps;

use self::guard::Region;
use crate::{GgufError, memory};

/// How a file is brought into memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    /// Map the file (the default) instead of reading all of it; it is read all the same where the file system
    /// refuses ([`Bytes::map_refused`] says so). A mapped file must not be changed while it is in use; one that
    /// is cut short is found by [`Bytes::check`].
    pub mmap: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { mmap: true }
    }
}

/// Shared immutable bytes: a mapped file, a vector or a static slice.
///
/// Cloning and slicing cost a reference count; the memory is released with the last clone.
///
/// ```
/// use redraft_gguf::Bytes;
///
/// let all = Bytes::from(vec![1, 2, 3, 4]);
/// let tail = all.slice(2..).unwrap();
/// assert_eq!(&tail[..], &[3, 4]);
/// assert!(all.slice(3..9).is_none());
/// ```
#[derive(Clone)]
pub struct Bytes {
    owner: Owner,
    start: usize,
    len: usize,
}

#[derive(Clone)]
enum Owner {
    Static(&'static [u8]),
    Vec(Arc<Loaded>),
    Map(Arc<Mapped>),
}

/// Bytes in memory of this process.
struct Loaded {
    bytes: Vec<u8>,
    /// What the system said to mapping the file.
    refused: Option<String>,
}

/// A mapped file. The fields are dropped in this order: addresses that are registered belong to the map.
struct Mapped {
    region: Region,
    map: Mmap,
    file: File,
    path: PathBuf,
}

impl Bytes {
    /// The bytes of a file.
    ///
    /// # Errors
    ///
    /// [`GgufError::Open`] when the file cannot be opened or read or is no regular file, [`GgufError::Memory`] when it has to be read
    /// and is larger than the memory that is available.
    pub fn open(path: &Path, opts: &OpenOptions) -> Result<Bytes, GgufError> {
        Bytes::open_with(path, opts, map)
    }

    /// [`open`](Self::open) with another way to map, for tests.
    fn open_with(
        path: &Path,
        opts: &OpenOptions,
        map: impl FnOnce(&File) -> std::io::Result<Mmap>,
    ) -> Result<Bytes, GgufError> {
        let io = |source| GgufError::Open { path: path.to_path_buf(), source };
        // A pipe would wait for a writer, and a device has no end. Asked before opening, which waits already.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            let what = "not a regular file";
            return Err(io(std::io::Error::new(std::io::ErrorKind::InvalidInput, what)));
        }
        let file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let mut refused = None;
        // A map of length zero is an error on some systems; an empty file needs none.
        if opts.mmap && len > 0 {
            match map(&file) {
                Ok(map) => {
                    let (region, len) = (Region::new(&map), map.len());
                    let mapped = Mapped { map, region, file, path: path.to_path_buf() };
                    return Ok(Bytes { start: 0, len, owner: Owner::Map(Arc::new(mapped)) });
                }
                Err(e) => refused = Some(e.to_string()),
            }
        }
        memory::check(path, len, refused.as_deref())?;
        let bytes = read(file, len).map_err(io)?;
        Ok(Bytes { start: 0, len: bytes.len(), owner: Owner::Vec(Arc::new(Loaded { bytes, refused })) })
    }

    /// Asks whether all bytes are still there. Bytes of a mapped file are only what they were when this says so
    /// *after* they were read; it costs one system call.
    ///
    /// # Errors
    ///
    /// [`GgufError::FileCut`] when the file is shorter than its map, [`GgufError::FileLost`] when a part of it
    /// could not be delivered.
    pub fn check(&self) -> Result<(), GgufError> {
        let Owner::Map(m) = &self.owner else { return Ok(()) };
        let (path, expected) = (m.path.clone(), m.map.len() as u64);
        match m.file.metadata() {
            Ok(now) if now.len() < expected => Err(GgufError::FileCut { path, expected, found: now.len() }),
            Err(source) => Err(GgufError::Open { path, source }),
            Ok(_) if m.region.is_damaged() => Err(GgufError::FileLost { path }),
            Ok(_) => Ok(()),
        }
    }

    /// What the system said when the file should have been mapped and had to be read instead.
    pub fn map_refused(&self) -> Option<&str> {
        match &self.owner {
            Owner::Vec(v) => v.refused.as_deref(),
            Owner::Static(_) | Owner::Map(_) => None,
        }
    }

    /// The part of the bytes in `range`, sharing the memory; `None` when it reaches beyond the end.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Option<Bytes> {
        let from = match range.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&n) => n.checked_add(1)?,
            Bound::Excluded(&n) => n,
            Bound::Unbounded => self.len,
        };
        if from > to || to > self.len {
            return None;
        }
        Some(Bytes { owner: self.owner.clone(), start: self.start + from, len: to - from })
    }

    /// True when the bytes are a mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::Map(_))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.owner {
            Owner::Static(s) => s,
            Owner::Vec(v) => &v.bytes,
            Owner::Map(m) => &m.map,
        };
        &all[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(v: Vec<u8>) -> Bytes {
        Bytes { start: 0, len: v.len(), owner: Owner::Vec(Arc::new(Loaded { bytes: v, refused: None })) }
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(s: &'static [u8]) -> Bytes {
        Bytes { start: 0, len: s.len(), owner: Owner::Static(s) }
    }
}

/// For `include_bytes!`.
impl<const N: usize> From<&'static [u8; N]> for Bytes {
    fn from(s: &'static [u8; N]) -> Bytes {
        Bytes::from(&s[..])
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.owner {
            Owner::Static(_) => "static",
            Owner::Vec(_) => "owned",
            Owner::Map(_) => "mapped",
        };
        write!(f, "Bytes({} {kind})", self.len)
    }
}

#[allow(unsafe_code)] // mapping a file is unsafe by nature
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the map is read-only and private to this process, and is only handed out as `&[u8]` that
    // borrows from the owner. What remains is the documented condition of `OpenOptions::mmap`: that nobody
    // changes the file meanwhile. Bytes that change under the reader cannot break a Rust invariant kept here,
    // because text is validated and copied when the header is parsed and tensor data are plain numbers of
    // which every bit pattern is valid.
    unsafe { Mmap::map(file) }
}

fn read(mut file: File, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The exact capacity avoids a doubling copy at the end of a file of many gigabytes; the length is only
    // a hint: files under /proc have none, and are read all the same.
    if let Ok(len) = usize::try_from(len) {
        bytes.try_reserve_exact(len).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
    }
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_nest_and_refuse_what_is_outside() {
        let all = Bytes::from(b"0123456789");
        let mid = all.slice(2..8).unwrap();
        assert_eq!(&mid[..], b"234567");
        assert_eq!(&mid.slice(1..=2).unwrap()[..], b"34");
        assert_eq!(&mid.slice(6..).unwrap()[..], b"");
        assert!(mid.slice(..7).is_none());
        assert!(mid.slice(7..).is_none());
        assert!(mid.slice(..=usize::MAX).is_none());
        let backwards = (Bound::Included(3), Bound::Excluded(2));
        assert!(mid.slice(backwards).is_none());
    }

    #[test]
    fn map_and_read_give_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        for content in [&b""[..], b"x", b"some bytes of a file"] {
            let path = dir.path().join("f");
            std::fs::write(&path, content).unwrap();
            let mapped = Bytes::open(&path, &OpenOptions { mmap: true }).unwrap();
            let read = Bytes::open(&path, &OpenOptions { mmap: false }).unwrap();
            assert_eq!(&mapped[..], content);
            assert_eq!(&read[..], content);
            assert_eq!(mapped.is_mapped(), !content.is_empty());
        }
    }

    /// What a file system without maps does.
    #[test]
    fn a_file_that_cannot_be_mapped_is_read_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"content").unwrap();
        let refuse = |_: &File| Err(std::io::Error::other("no maps here"));
        let bytes = Bytes::open_with(&path, &OpenOptions { mmap: true }, refuse).unwrap();
        assert_eq!((&bytes[..], bytes.is_mapped()), (&b"content"[..], false));
        assert_eq!(bytes.slice(1..3).unwrap().map_refused(), Some("no maps here"));
        bytes.check().unwrap();
        let asked = Bytes::open_with(&path, &OpenOptions { mmap: false }, refuse).unwrap();
        assert_eq!(asked.map_refused(), None, "nobody tried");
        assert_eq!(Bytes::open(&path, &OpenOptions::default()).unwrap().map_refused(), None);
    }

    #[test]
    fn a_mapped_file_that_became_shorter_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let bytes = Bytes::open(&path, &OpenOptions::default()).unwrap();
        let part = bytes.slice(5..9).unwrap();
        part.check().unwrap();
        let shorter = std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(9_999);
        if shorter.is_err() {
            return; // a system that refuses to shorten a mapped file
        }
        let e = part.check().unwrap_err();
        assert!(matches!(e, GgufError::FileCut { expected: 10_000, found: 9_999, .. }), "{e:?}");
        assert!(e.to_string().starts_with(&path.display().to_string()), "{e}");
        let grown = std::fs::write(&path, vec![2; 20_000]);
        assert!(grown.is_ok() && bytes.check().is_ok(), "what was mapped is there again");
    }

    #[test]
    fn a_missing_file_is_named() {
        let err = Bytes::open(Path::new("no/such/file.gguf"), &OpenOptions::default()).unwrap_err();
        assert!(err.to_string().starts_with("cannot read no/such/file.gguf: "), "{err}");
    }
}
