//! What a person sees: the live canvas, progress bars, styles.

pub(crate) mod canvas;
pub(crate) mod hold;
pub(crate) mod live;
pub(crate) mod page;
pub(crate) mod picture;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod theme;
#[cfg(test)]
mod vt;
