//! The ops: how each is cut into tiles for the threads and into calls of kernels.

pub(super) mod attention;
pub(super) mod embed;
pub(super) mod experts;
pub(super) mod int_panel;
pub(super) mod logits;
pub(super) mod matmul;
pub(super) mod operand;
pub(super) mod packed;
pub(super) mod panel;
pub(super) mod rows;
