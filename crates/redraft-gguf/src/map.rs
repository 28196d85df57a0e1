//! From a file to bytes: shared, immutable, sliceable without copying.
//!
//! A model file is mapped into memory where possible, so that weights stay in the page cache and are read
//! when they are first used. Some file systems refuse mappings, and a mapped file that is cut short by
//! another program kills the process at the next access; for those cases a file can be read into memory
//! instead, and nothing above this module sees the difference.

use std::fs::File;
use std::io::Read;
use std::ops::{Bound, Deref, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::GgufError;

/// How a file is brought into memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    /// Map the file (the default) instead of reading all of it. A mapped file must not be changed or cut
    /// short while it is in use.
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
    Vec(Arc<Vec<u8>>),
    Map(Arc<Mmap>),
}

impl Bytes {
    /// The bytes of a file.
    ///
    /// # Errors
    ///
    /// [`GgufError::Open`] when the file cannot be opened, mapped or read.
    pub fn open(path: &Path, opts: &OpenOptions) -> Result<Bytes, GgufError> {
        let bytes = if opts.mmap { map(path) } else { read(path) };
        bytes.map_err(|source| GgufError::Open { path: path.to_path_buf(), source })
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

    /// Asks the operating system to bring the bytes into memory soon. Page faults on first use read a file
    /// several times more slowly than this. A hint only: it does nothing for bytes that are not mapped and
    /// on systems without such a call, and never fails.
    pub fn prefetch(&self) {
        #[cfg(unix)]
        if let Owner::Map(map) = &self.owner {
            // A hint may be refused; the bytes are then read when they are used.
            let _ = map.advise_range(memmap2::Advice::WillNeed, self.start, self.len);
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.owner {
            Owner::Static(s) => s,
            Owner::Vec(v) => v,
            Owner::Map(m) => m,
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
        Bytes { start: 0, len: v.len(), owner: Owner::Vec(Arc::new(v)) }
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

#[allow(unsafe_code)] // the only place of the crate: mapping a file is unsafe by nature
fn map(path: &Path) -> std::io::Result<Bytes> {
    let file = File::open(path)?;
    // A mapping of length zero is an error on some systems; an empty file needs none.
    if file.metadata()?.len() == 0 {
        return read(path);
    }
    // SAFETY: the map is read-only and private to this process, and is only handed out as `&[u8]` that
    // borrows from the owner. What remains is the documented condition of `OpenOptions::mmap`: that nobody
    // changes or cuts short the file meanwhile. Bytes that change under the reader cannot break a Rust
    // invariant kept here, because text is validated and copied when the header is parsed and tensor data
    // are plain numbers of which every bit pattern is valid.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Bytes { start: 0, len: map.len(), owner: Owner::Map(Arc::new(map)) })
}

fn read(path: &Path) -> std::io::Result<Bytes> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    // The exact capacity avoids a doubling copy at the end of a file of many gigabytes; the length is only
    // a hint, so a file without one (a pipe) is read all the same.
    if let Ok(len) = usize::try_from(file.metadata()?.len()) {
        bytes.try_reserve_exact(len).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
    }
    file.read_to_end(&mut bytes)?;
    Ok(Bytes::from(bytes))
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
            mapped.prefetch();
            assert_eq!(&mapped[..], content);
            assert_eq!(&read[..], content);
            assert_eq!(mapped.is_mapped(), !content.is_empty());
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let err = Bytes::open(Path::new("no/such/file.gguf"), &OpenOptions::default()).unwrap_err();
        assert!(err.to_string().starts_with("cannot read no/such/file.gguf: "), "{err}");
    }
}
