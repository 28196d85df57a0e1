//! Signals. Ctrl-C: the first one asks the computation to stop, inside a pass too, the last one ends the program.
//! Whatever ends or suspends the program, the terminal is given back in order first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use anyhow::Context as _;

use crate::exit::Exit;
use crate::ui::hold;

/// Nothing is computed: a request to stop ends the program.
static IDLE: AtomicBool = AtomicBool::new(false);
/// The program was asked to end, not only to stop what it computes.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Requests to stop since the flag was last taken down.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// A flag that the first Ctrl-C (or a request to terminate) sets; the second one ends the program.
///
/// # Errors
/// The system refuses a handler.
pub(crate) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    watch(2)
}

/// Like [`flag`] for a program that goes on after a computation was stopped: only the third Ctrl-C for the same
/// computation ends it.
///
/// # Errors
/// The system refuses a handler.
pub(crate) fn patient_flag() -> anyhow::Result<Arc<AtomicBool>> {
    watch(3)
}

/// Takes the flag down for the next computation.
pub(crate) fn clear(flag: &AtomicBool) {
    ASKED.store(0, SeqCst);
    flag.store(ENDING.load(SeqCst), SeqCst);
}

/// Whether the program was asked to end.
pub(crate) fn ending() -> bool {
    ENDING.load(SeqCst)
}

/// While it lives nothing is computed, and a request to stop ends the program.
pub(crate) struct Idle(());

impl Idle {
    /// From now on.
    pub(crate) fn new() -> Idle {
        IDLE.store(true, SeqCst);
        Idle(())
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        IDLE.store(false, SeqCst);
    }
}

/// Somebody asked to stop.
fn asked(flag: &AtomicBool, to_end: bool, last: usize) {
    if to_end {
        ENDING.store(true, SeqCst);
    }
    flag.store(true, SeqCst);
    let n = ASKED.fetch_add(1, SeqCst) + 1;
    if n >= last || IDLE.load(SeqCst) {
        hold::restore_soon();
        // The computation did not come to a point where it could stop, or there is none.
        #[allow(clippy::exit)]
        std::process::exit(Exit::Interrupted.code().into());
    }
}

#[cfg(unix)]
fn watch(last: usize) -> anyhow::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    let mut signals = Signals::new([SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP])
        .context("cannot watch for Ctrl-C")?;
    let watch = move || {
        // A suspension that ended here is announced once more.
        let mut resumed = false;
        for signal in signals.forever() {
            match signal {
                SIGTSTP if has_a_shell() => {
                    hold::suspended(|| {
                        let _ = emulate_default_handler(SIGTSTP);
                    });
                    resumed = true;
                }
                SIGTSTP => {}
                SIGCONT if std::mem::take(&mut resumed) => {}
                SIGCONT => hold::continued(),
                SIGQUIT => {
                    hold::restore_soon();
                    // Ends the program, with a core file where the system writes one.
                    let _ = emulate_default_handler(SIGQUIT);
                }
                _ => asked(&seen, signal != SIGINT, last),
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).context("cannot watch for Ctrl-C")?;
    Ok(flag)
}

/// Whether a shell is there to let the program go on. The system would not stop it otherwise.
#[cfg(unix)]
fn has_a_shell() -> bool {
    use rustix::process::{getppid, getsid};
    getppid().is_some_and(|parent| matches!((getsid(Some(parent)), getsid(None)), (Ok(a), Ok(b)) if a == b))
}

/// Ctrl-Z at the prompt, where it is a key like others: stops the whole process group, as the terminal would.
#[cfg(unix)]
pub(crate) fn suspend_group() {
    let before = hold::epoch();
    if !has_a_shell() {
        return;
    }
    if rustix::process::kill_current_process_group(rustix::process::Signal::TSTP).is_ok() {
        // The thread above stops the program; the line editor must not take the terminal before that.
        for _ in 0..200 {
            if hold::epoch() != before {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// There is no such thing.
#[cfg(not(unix))]
pub(crate) fn suspend_group() {}

#[cfg(not(unix))]
fn watch(last: usize) -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    ctrlc::set_handler(move || asked(&seen, false, last)).context("cannot watch for Ctrl-C")?;
    Ok(flag)
}
