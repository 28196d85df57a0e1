//! Holds the terminal while a picture is on it, and gives it back in order.
//!
//! Meanwhile typed keys are not echoed: an Enter would move the picture under its own feet. Ctrl-C keeps its
//! meaning, and what was typed goes to the shell afterwards.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::live::SHOW_CURSOR;
use super::theme::RESET;

/// Whether the terminal is held and [`restore`] has something to do.
static HELD: AtomicBool = AtomicBool::new(false);

/// Keeps hold of the terminal until it is dropped.
pub(crate) struct Hold(());

impl Hold {
    /// Takes hold.
    pub(crate) fn new() -> Hold {
        if !HELD.swap(true, Ordering::SeqCst) {
            echo::off();
        }
        Hold(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if HELD.swap(false, Ordering::SeqCst) {
            echo::on();
        }
    }
}

/// Brings the terminal back to order from anywhere: a panic, a second Ctrl-C.
pub(crate) fn restore() {
    if HELD.swap(false, Ordering::SeqCst) {
        echo::on();
        let mut out = io::stdout().lock();
        // Nobody is left to tell when the terminal is gone.
        let _ = write!(out, "\x1b[?2026l{RESET}\r\n{SHOW_CURSOR}");
        let _ = out.flush();
    }
}

#[cfg(unix)]
mod echo {
    use std::io::stdout;
    use std::sync::{Mutex, PoisonError};

    use rustix::process::getpgrp;
    use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

    /// Settings of the terminal before.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    pub(super) fn off() {
        // A process in the background that changes the terminal is stopped by the system.
        if tcgetpgrp(stdout()).ok() != Some(getpgrp()) {
            return;
        }
        let Ok(before) = tcgetattr(stdout()) else { return };
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        if tcsetattr(stdout(), OptionalActions::Now, &silent).is_ok() {
            *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        }
    }

    pub(super) fn on() {
        if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A terminal that is gone needs no settings.
            let _ = tcsetattr(stdout(), OptionalActions::Now, &before);
        }
    }
}

#[cfg(not(unix))]
mod echo {
    pub(super) fn off() {}

    pub(super) fn on() {}
}
