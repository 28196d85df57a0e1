//! Kernels as modules that are ready for a driver.

use super::device::{KernelSpec, fnv};

/// A kernel.
pub(crate) struct Module {
    pub(crate) name: &'static str,
    /// For different devices, from the least on.
    pub(crate) forms: &'static [Form],
}

/// One form of it.
pub(crate) struct Form {
    /// What it is for, in the words of its backend.
    pub(crate) device: &'static str,
    pub(crate) bytes: usize,
    pub(crate) packed: &'static [u8],
}

impl Form {
    /// What a driver is given.
    pub(crate) fn unpack(&self) -> Vec<u8> {
        miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(self.packed, self.bytes)
            .expect("modules are packed where the table is made")
    }
}

/// Whether there is a module for each kernel, in the same order.
pub(crate) const fn complete(modules: &[Module], kernels: &[KernelSpec]) -> bool {
    if modules.len() != kernels.len() {
        return false;
    }
    let mut i = 0;
    while i < modules.len() {
        let (a, b) = (modules[i].name.as_bytes(), kernels[i].name.as_bytes());
        let mut same = a.len() == b.len();
        let mut k = 0;
        while same && k < a.len() {
            same = a[k] == b[k];
            k += 1;
        }
        if !same || modules[i].forms.is_empty() {
            return false;
        }
        i += 1;
    }
    true
}

/// A number for all of them.
pub(crate) fn digest(modules: &[Module]) -> u64 {
    fnv(modules.iter().flat_map(|m| m.forms).flat_map(|f| f.packed).copied())
}
