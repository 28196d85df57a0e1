//! Sequences on a device: their KV caches and kept values.

use std::collections::BTreeMap;

use super::device::Device;
use crate::{ComputeError, KeptId, KvType};

/// Keys and values of one layer.
pub(super) struct Layer<B> {
    pub(super) width: usize,
    /// Keys and values, once there are any.
    pub(super) buffers: Option<[B; 2]>,
    /// Tokens that they have room for.
    room: usize,
}

/// A sequence.
pub(super) struct Seq<B> {
    pub(super) kv_type: KvType,
    pub(super) layers: Vec<Layer<B>>,
    /// Tokens in the cache.
    pub(super) len: usize,
    /// Kept values with the number of their elements.
    pub(super) kept: BTreeMap<KeptId, (B, usize)>,
}

/// Bytes of a row in a cache: whole words.
pub(super) fn row_bytes(kv_type: KvType, width: usize) -> usize {
    kv_type.row_bytes(width).next_multiple_of(4)
}

impl<B: Clone> Seq<B> {
    pub(super) fn new(widths: &[usize], kv_type: KvType) -> Seq<B> {
        let layer = |&width: &usize| Layer { width, buffers: None, room: 0 };
        Seq { kv_type, layers: widths.iter().map(layer).collect(), len: 0, kept: BTreeMap::new() }
    }

    pub(super) fn widths(&self) -> impl Iterator<Item = usize> + '_ {
        self.layers.iter().map(|l| l.width)
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if self.len == 0 {
            self.layers.iter_mut().for_each(|l| (l.buffers, l.room) = (None, 0));
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.layers.iter().map(|l| 2 * l.room * row_bytes(self.kv_type, l.width)).sum()
    }

    /// Makes room for tokens up to `len` in a layer, an eighth more than asked, so that canvas after canvas does not copy the
    /// cache each time.
    pub(super) fn reserve<D: Device<Buffer = B>>(
        &mut self,
        device: &mut D,
        layer: usize,
        len: usize,
    ) -> Result<[B; 2], ComputeError> {
        let (row, have) = (row_bytes(self.kv_type, self.layers[layer].width) as u64, self.len as u64);
        let l = &mut self.layers[layer];
        match &l.buffers {
            Some(buffers) if len <= l.room => Ok(buffers.clone()),
            old => {
                let room = len + len / 8;
                let new = [
                    device.alloc("the KV cache", row * room as u64)?,
                    device.alloc("the KV cache", row * room as u64)?,
                ];
                if let Some(old) = old {
                    for (old, new) in old.iter().zip(&new) {
                        device.copy((old, 0), (new, 0), row * have)?;
                    }
                }
                (l.buffers, l.room) = (Some(new.clone()), room);
                Ok(new)
            }
        }
    }
}
