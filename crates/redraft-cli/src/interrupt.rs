//! Ctrl-C: the first one asks the computation to stop between two ops, the second one ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;

use crate::exit::Exit;
use crate::ui::hold;

/// A flag that the first Ctrl-C (or a request to terminate) sets.
///
/// # Errors
/// The system refuses a handler.
pub(crate) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::SeqCst) {
            hold::restore();
            // The computation did not come to a point where it could stop.
            #[allow(clippy::exit)]
            std::process::exit(Exit::Interrupted.code().into());
        }
    })
    .context("cannot watch for Ctrl-C")?;
    Ok(flag)
}
