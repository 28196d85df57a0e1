//! What happens when a mapped file becomes shorter than its map.
//!
//! The system then has no bytes for the pages beyond the new end and sends SIGBUS to a thread that touches one,
//! which ends the process. [`guard_maps`] installs a handler that puts pages of zeros in their place and marks
//! the map as damaged: the computation goes on over zeros, and [`Bytes::check`](crate::Bytes::check), which the
//! callers ask before they trust a result, turns the mark into an error that names the file. The same happens
//! when the disk cannot deliver a page.
//!
//! The handler uses atomics, `mmap` and `sigaction` only, so it may run at any instruction. Faults outside the
//! maps of this crate go to whatever handled them before.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The addresses of one map. Regions are never freed, because the handler may look at them at any time; those
/// of maps that are gone are used again.
struct Slot {
    used: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    damaged: AtomicBool,
    next: OnceLock<Box<Slot>>,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            used: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            damaged: AtomicBool::new(false),
            next: OnceLock::new(),
        }
    }
}

static SLOTS: Slot = Slot::new();

/// The registration of a map, for as long as the map exists.
pub(super) struct Region(&'static Slot);

impl Region {
    /// Registers the addresses of a map.
    pub(super) fn new(map: &[u8]) -> Region {
        let mut slot = &SLOTS;
        while slot.used.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            slot = slot.next.get_or_init(|| Box::new(Slot::new()));
        }
        let start = map.as_ptr() as usize;
        slot.damaged.store(false, Ordering::Release);
        slot.end.store(start + map.len(), Ordering::Release);
        slot.start.store(start, Ordering::Release);
        Region(slot)
    }

    /// Whether a page of the map could not be delivered.
    pub(super) fn is_damaged(&self) -> bool {
        self.0.damaged.load(Ordering::Acquire)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
        self.0.start.store(0, Ordering::Release);
        self.0.used.store(false, Ordering::Release);
    }
}

#[cfg(unix)]
#[allow(unsafe_code)] // signals
mod handler {
    use std::io;
    use std::ptr::{null, null_mut};

    use libc::{c_int, c_void, siginfo_t};

    use super::*;

    /// What handled SIGBUS before.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
    static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

    pub(super) fn install() -> io::Result<()> {
        let old = action(null())?;
        if BEFORE.set(old).is_err() {
            return Ok(());
        }
        // SAFETY: takes a constant and returns a number.
        if let Ok(n @ 1..) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) {
            PAGE_BYTES.store(n, Ordering::Relaxed);
        }
        // SAFETY: all zeros is a valid value of this C struct: no flags, an empty mask.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = on_sigbus as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        action(&new).map(|_| ())
    }

    /// Replaces the action of SIGBUS, unless `new` is null, and returns the one before.
    fn action(new: *const libc::sigaction) -> io::Result<libc::sigaction> {
        // SAFETY: all zeros is a valid value of this C struct.
        let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `new` is null or points to a complete action, `old` to a place for one.
        if unsafe { libc::sigaction(libc::SIGBUS, new, &raw mut old) } == 0 {
            Ok(old)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    extern "C" fn on_sigbus(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
        // SAFETY: with SA_SIGINFO the system passes a valid record; for SIGBUS it holds an address.
        let address = unsafe { (*info).si_addr() } as usize;
        if replace_page(address) {
            return;
        }
        // Not ours: with the action from before, the instruction faults again and is handled as it would
        // have been.
        if let Some(before) = BEFORE.get() {
            // SAFETY: `before` is a complete action; sigaction may be called in a handler.
            unsafe { libc::sigaction(libc::SIGBUS, before, null_mut()) };
        }
    }

    /// Puts zeros in place of a map from the page of `address` on. The file has nothing behind its new end, so
    /// one fault is enough for all pages. False when the address is in no map or the system refuses.
    fn replace_page(address: usize) -> bool {
        let mut slot = &SLOTS;
        loop {
            let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
            if start != 0 && (start..end).contains(&address) {
                let page = address & !(PAGE_BYTES.load(Ordering::Relaxed) - 1);
                let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED;
                let at = page as *mut c_void;
                // SAFETY: the range lies in a map that this crate owns and that exists as long as its slot is
                // filled; a thread is reading it at this moment. Its pages are read-only before and after. mmap
                // is a plain system call and touches nothing of this process but the page tables.
                let got = unsafe { libc::mmap(at, end - page, libc::PROT_READ, flags, -1, 0) };
                slot.damaged.store(got == at, Ordering::Release);
                return got == at;
            }
            match slot.next.get() {
                Some(next) => slot = next,
                None => return false,
            }
        }
    }
}

/// Makes files that are cut short while they are mapped an error instead of the end of the process: installs a
/// handler of SIGBUS for the whole process, so it is a program's decision and not the library's. Without it, or
/// where maps have no such signal, [`Bytes::check`](crate::Bytes::check) still finds a file that became shorter,
/// if it is asked before the missing part is touched. Windows refuses to shorten a mapped file.
///
/// # Errors
///
/// What the system says when it refuses the handler.
pub fn guard_maps() -> std::io::Result<()> {
    #[cfg(unix)]
    handler::install()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again() {
        let bytes = [0u8; 8];
        let slot = {
            let (a, b) = (Region::new(&bytes), Region::new(&bytes[2..]));
            assert!(!std::ptr::eq(a.0, b.0));
            assert_eq!(b.0.end.load(Ordering::Relaxed) - b.0.start.load(Ordering::Relaxed), 6);
            b.0.damaged.store(true, Ordering::Relaxed);
            assert!(b.is_damaged() && !a.is_damaged());
            std::ptr::from_ref(b.0)
        };
        // Other tests of this process map files too: some slot is free, and it may be this one.
        let again: Vec<Region> = (0..64).map(|_| Region::new(&bytes)).collect();
        assert!(again.iter().any(|r| std::ptr::eq(r.0, slot)));
        assert!(again.iter().all(|r| !r.is_damaged()));
    }
}
