//! Sequences on a device: their KV caches and kept values.

use std::collections::BTreeMap;

use crate::{KeptId, KvType};

/// Keys and values of one layer.
pub(super) struct Layer<B> {
    pub(super) width: usize,
    /// Keys and values, once there are any.
    pub(super) buffers: Option<[B; 2]>,
    /// Tokens that they have room for.
    pub(super) room: usize,
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
    }

    pub(super) fn bytes(&self) -> usize {
        self.layers.iter().map(|l| 2 * l.room * row_bytes(self.kv_type, l.width)).sum()
    }

    /// Bytes of the buffer of keys, or of values, of a layer.
    pub(super) fn room_bytes(&self, layer: usize) -> u64 {
        let l = &self.layers[layer];
        (row_bytes(self.kv_type, l.width) * l.room) as u64
    }
}
