//! The KV cache of one layer as the host backends keep it.

use crate::host::HostReal;
use crate::{ComputeError, KvType};

/// Keys and values of one layer, of tokens `0..len`.
pub(crate) trait Cache: Send + Sized {
    /// An empty cache for rows of `width` channels.
    fn new(width: usize, kv_type: KvType) -> Self;

    /// Channels of a row.
    fn width(&self) -> usize;

    /// Makes room for tokens up to `len`.
    fn reserve(&mut self, len: usize) -> Result<(), ComputeError>;

    /// Forgets the tokens from `len` on and frees what they took.
    fn truncate(&mut self, len: usize);

    /// May free tokens before `before`.
    fn forget(&mut self, _before: usize) {}

    /// The first token that is still there.
    fn first(&self) -> usize {
        0
    }

    /// Bytes that it holds.
    fn bytes(&self) -> usize;
}

/// Memory for the KV cache that cannot be had.
pub(crate) fn no_room(bytes: usize) -> ComputeError {
    ComputeError::OutOfMemory { what: "the KV cache".into(), bytes }
}

/// Rows `[tokens, width]`, already rounded to the type, for the reference.
#[derive(Debug)]
pub(crate) struct Rows<R> {
    pub(crate) kv_type: KvType,
    pub(crate) width: usize,
    pub(crate) k: Vec<R>,
    pub(crate) v: Vec<R>,
}

impl<R: HostReal> Rows<R> {
    pub(crate) fn append(&mut self, k: &[R], v: &[R]) {
        self.k.extend_from_slice(&self.kv_type.rounded(k, self.width));
        self.v.extend_from_slice(&self.kv_type.rounded(v, self.width));
    }
}

impl<R: HostReal> Cache for Rows<R> {
    fn new(width: usize, kv_type: KvType) -> Rows<R> {
        Rows { kv_type, width, k: Vec::new(), v: Vec::new() }
    }

    fn width(&self) -> usize {
        self.width
    }

    /// An eighth more than asked, so that canvas after canvas does not copy the cache each time.
    fn reserve(&mut self, len: usize) -> Result<(), ComputeError> {
        let needed = len.saturating_mul(self.width);
        for x in [&mut self.k, &mut self.v] {
            if x.capacity() < needed {
                let more = (needed - x.len()).saturating_add(needed / 8);
                x.try_reserve_exact(more).map_err(|_| no_room(more.saturating_mul(size_of::<R>())))?;
            }
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.k.truncate(len.saturating_mul(self.width));
        self.v.truncate(len.saturating_mul(self.width));
    }

    fn bytes(&self) -> usize {
        (self.k.capacity() + self.v.capacity()) * size_of::<R>()
    }
}
