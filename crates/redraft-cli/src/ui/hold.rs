//! Holds the terminal while a picture or a line editor is on it, and gives it back in order: at the end, in a
//! panic, when the program is suspended, and when a signal ends it.
//!
//! While a picture is shown typed keys are not echoed: an Enter would move the picture under its own feet.
//! Ctrl-C and Ctrl-Z keep their meaning, and what was typed goes to whoever reads next.

use std::io::{self, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::live::{SHOW_CURSOR, SYNC_END, WRAP_ON};
use super::theme::RESET;

/// A picture is on the terminal.
static PICTURE: AtomicBool = AtomicBool::new(false);
/// A line editor is at work.
static EDITOR: AtomicBool = AtomicBool::new(false);
/// The program goes on while the shell has the terminal.
static BACKGROUND: AtomicBool = AtomicBool::new(false);
/// How often the program was suspended and went on.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// Keeps the terminal for a picture until it is dropped.
pub(crate) struct Hold(());

impl Hold {
    /// Takes hold.
    pub(crate) fn new() -> Hold {
        if !PICTURE.swap(true, SeqCst) {
            BACKGROUND.store(!modes::silence(), SeqCst);
        }
        Hold(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if PICTURE.swap(false, SeqCst) {
            modes::restore();
        }
        BACKGROUND.store(false, SeqCst);
    }
}

/// Keeps the terminal for a line editor, which changes its modes and changes them back, until it is dropped.
pub(crate) struct Editing(());

impl Editing {
    /// Remembers how the terminal is.
    pub(crate) fn new() -> Editing {
        modes::remember();
        EDITOR.store(true, SeqCst);
        Editing(())
    }
}

impl Drop for Editing {
    fn drop(&mut self) {
        if EDITOR.swap(false, SeqCst) {
            modes::restore();
        }
    }
}

/// How often the program was suspended and went on: whoever draws then finds another screen.
pub(crate) fn epoch() -> u64 {
    EPOCH.load(SeqCst)
}

/// Whether the shell has the terminal.
pub(crate) fn in_background() -> bool {
    // Not every shell announces that it gave the terminal back.
    if BACKGROUND.load(SeqCst) && modes::in_foreground() {
        continued();
    }
    BACKGROUND.load(SeqCst)
}

/// Whether there is anything to give back. Without it nothing here waits for stdout, which may be a pipe that
/// nobody reads.
fn held() -> bool {
    PICTURE.load(SeqCst) || EDITOR.load(SeqCst)
}

/// Brings the terminal back to order: in a panic, or before the program ends otherwise.
pub(crate) fn restore() {
    if held() {
        let mut out = io::stdout().lock();
        give_back(&mut out);
        PICTURE.store(false, SeqCst);
        EDITOR.store(false, SeqCst);
    }
}

/// As [`restore`], while other threads may be writing to a terminal that is stopped: does what can be done within
/// a moment.
pub(crate) fn restore_soon() {
    if held() {
        modes::restore();
        let (done, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            restore();
            // Nobody waits any longer.
            let _ = done.send(());
        });
        let _ = wait.recv_timeout(std::time::Duration::from_millis(500));
    }
}

/// The picture stays where it is, and what follows starts below it. Errors have nobody left to tell.
fn give_back(out: &mut StdoutLock<'_>) {
    if PICTURE.load(SeqCst) {
        modes::restore();
        if !BACKGROUND.load(SeqCst) {
            let _ = write!(out, "{SYNC_END}{WRAP_ON}{RESET}\r\n{SHOW_CURSOR}");
            let _ = out.flush();
        }
    } else if EDITOR.load(SeqCst) {
        modes::restore();
        // Without bracketed paste.
        let _ = write!(out, "\x1b[?2004l{RESET}\r\n");
        let _ = out.flush();
    }
}

/// Gives the terminal back, stops the program with `stop`, and takes hold of the terminal again when it goes on.
/// Nothing is written meanwhile.
#[cfg(unix)]
pub(crate) fn suspended(stop: impl FnOnce()) {
    if !held() {
        stop();
        EPOCH.fetch_add(1, SeqCst);
        return;
    }
    let mut out = io::stdout().lock();
    give_back(&mut out);
    stop();
    continued();
}

/// The program goes on, after it was suspended or in the foreground after it was in the background.
pub(crate) fn continued() {
    if PICTURE.load(SeqCst) {
        // No frame is written meanwhile.
        let _out = io::stdout().lock();
        BACKGROUND.store(!modes::silence(), SeqCst);
        EPOCH.fetch_add(1, SeqCst);
    }
}

#[cfg(unix)]
mod modes {
    use std::io::{IsTerminal as _, stdout};
    use std::sync::{Mutex, PoisonError};

    use rustix::process::getpgrp;
    use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

    /// Modes of the terminal before.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    /// A process in the background that changes the terminal is stopped by the system.
    pub(super) fn in_foreground() -> bool {
        tcgetpgrp(stdout()).is_ok_and(|group| group == getpgrp())
    }

    pub(super) fn remember() {
        let modes = if in_foreground() { tcgetattr(stdout()).ok() } else { None };
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = modes;
    }

    /// Switches the echo off. False when the terminal belongs to another process.
    pub(super) fn silence() -> bool {
        remember();
        if let Some(before) = &*BEFORE.lock().unwrap_or_else(PoisonError::into_inner) {
            let mut silent = before.clone();
            silent.local_modes.remove(LocalModes::ECHO);
            // A terminal that refuses echoes.
            let _ = tcsetattr(stdout(), OptionalActions::Now, &silent);
        }
        !stdout().is_terminal() || in_foreground()
    }

    pub(super) fn restore() {
        let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before.filter(|_| in_foreground()) {
            // A terminal that is gone needs no modes.
            let _ = tcsetattr(stdout(), OptionalActions::Now, &before);
        }
    }
}

#[cfg(not(unix))]
mod modes {
    pub(super) fn remember() {}

    pub(super) fn in_foreground() -> bool {
        true
    }

    pub(super) fn silence() -> bool {
        true
    }

    pub(super) fn restore() {}
}
