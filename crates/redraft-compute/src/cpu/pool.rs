//! The thread pool: one forward pass opens hundreds of parallel regions, most of them shorter than a
//! millisecond, so handing over a region must cost about a microsecond.
//!
//! 1. `N - 1` workers wait for a region to open; the caller is participant 0.
//! 2. [`Pool::run`] stores the region's closure, opens the region and takes part itself. A worker that sees the
//!    region open joins it.
//! 3. When the caller finds no work left it closes the region and waits for those who *joined*. A worker whose
//!    core was busy with something else joins late or not at all, and nobody waits for it: with a busy core
//!    more threads are no slower than fewer.
//! 4. Waiting is a spin with a time limit, then a park: the spin makes neighbouring regions cheap, the limit
//!    keeps a waiting thread from burning the core that the working thread needs.
//! 5. Work is split into *tiles of the result*, each computed by exactly one participant; participants take
//!    the next tile from a shared counter. A sum is never split, so neither the number of threads nor the
//!    order in which tiles are taken can change a bit.
//!
//! A region that is opened while another one runs (nested, or from a second thread) runs inline on the
//! thread that opened it. A panic in any participant ends the region and is raised again in the caller; a request to
//! leave early goes the same way.
//! The unsafe code here is the hand-over of a borrowed closure to the workers and of disjoint parts of one
//! output to several threads; both are wrapped so that the rest of the crate needs none.
#![allow(unsafe_code)]

mod protocol;
mod tiles;

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::host::LeftEarly;
use protocol::Word;
pub(crate) use tiles::Grid;

/// How long a thread spins before it parks. Regions of one pass follow each other within some 10 µs.
const SPIN: Duration = Duration::from_micros(200);

/// Most threads of a pool. More than a machine has cores only makes regions wait for each other.
pub const MAX_THREADS: usize = 256;

/// Spin iterations between two looks at the clock.
const SPINS_PER_LOOK: u32 = 64;

/// The closure of a region, called once per participant with the participant's number.
type Region<'a> = &'a (dyn Fn(usize) + Sync + 'a);

/// A thread that may be parked, and whether it is.
struct Sleeper {
    parked: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper { parked: AtomicBool::new(false), thread: Mutex::new(None) }
    }

    /// Names the thread that will wait here.
    fn register(&self) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
    }

    /// Returns when `ready` holds; `ready` becomes true only before a [`wake`](Self::wake).
    fn wait(&self, ready: impl Fn() -> bool) {
        let start = Instant::now();
        while !ready() {
            for _ in 0..SPINS_PER_LOOK {
                if ready() {
                    return;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() < SPIN {
                continue;
            }
            // Announce the park, then look again: either the waker sees the flag, or we see its store. Here and in
            // the wakers it is a swap, not a store: QEMU 7.2 lets an Arm load pass a store before it (both SeqCst,
            // which Arm forbids), and then neither sees the other and this thread sleeps for ever.
            self.parked.swap(true, Ordering::SeqCst);
            while !ready() {
                thread::park();
            }
            self.parked.store(false, Ordering::SeqCst);
        }
    }

    /// Wakes the thread if it is parked; call it after the read-modify-write that makes it ready.
    fn wake(&self) {
        if self.parked.load(Ordering::SeqCst)
            && let Some(t) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner)
        {
            t.unpark();
        }
    }
}

struct Shared {
    /// A [`Word`].
    word: AtomicUsize,
    /// The open region. Written by the caller only while none is open and no worker is inside.
    region: UnsafeCell<Option<Region<'static>>>,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    caller: Sleeper,
    workers: Vec<Sleeper>,
}

// SAFETY: `region` is the only field that is not already Sync. The caller writes it while the word says that no
// region is open and no worker inside; workers read it between joining, which an open region allows only, and
// leaving; the word is changed by SeqCst operations, so writes and reads never overlap.
unsafe impl Sync for Shared {}

/// A fixed set of threads that run one region at a time.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
    /// Held while a region runs; a region that finds it held runs inline.
    busy: AtomicBool,
    /// Set from elsewhere to leave regions before their work is done.
    leave: Option<Arc<AtomicBool>>,
}

/// Threads that the machine allows this process: the standard library counts the cores of its affinity mask and,
/// on Linux, no more than the quotas of its cgroups (version 1 and 2) pay for.
pub(crate) fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl Pool {
    /// A pool of `threads` participants, the caller included. Where the system refuses threads there are
    /// fewer; results do not depend on it.
    pub(crate) fn new(threads: usize) -> Pool {
        let workers = threads.clamp(1, MAX_THREADS) - 1;
        let shared = Arc::new(Shared {
            word: AtomicUsize::new(0),
            region: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
            caller: Sleeper::new(),
            workers: (0..workers).map(|_| Sleeper::new()).collect(),
        });
        let handles = (0..workers).map_while(|i| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("redraft-{}", i + 1)).spawn(move || work(&shared, i)).ok()
        });
        let handles = handles.collect();
        Pool { shared, handles, busy: AtomicBool::new(false), leave: None }
    }

    /// From now on regions are left by unwinding with [`LeftEarly`], between two pieces of work, when this flag is set.
    pub(crate) fn watch(&mut self, leave: Option<Arc<AtomicBool>>) {
        self.leave = leave;
    }

    /// Unwinds if the flag is set.
    fn go_on(&self) {
        if self.leave.as_ref().is_some_and(|leave| leave.load(Ordering::Relaxed)) {
            resume_unwind(Box::new(LeftEarly));
        }
    }

    /// Number of participants.
    pub(crate) fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `f(participant)` on this thread and on those that are free, at most once on each, and returns when
    /// all calls have. The closure must take its work from something shared: a single call does all of it
    /// where nobody else comes.
    ///
    /// A region inside another one is participant 0 on whatever thread opens it, and so may be several of them at a
    /// time. So its closure must not use buffers that belong to participants: those of participant 0 may be held by
    /// another thread, or by this one, which would wait for ever.
    pub(crate) fn run(&self, f: Region<'_>) {
        if self.handles.is_empty() || self.busy.swap(true, Ordering::Acquire) {
            return f(0);
        }
        let shared = &*self.shared;
        shared.caller.register();
        // SAFETY: the lifetime is extended only until the end of this call: it returns or unwinds after the
        // region is closed and no worker is inside, and a worker touches the closure only while it is inside.
        let region: Region<'static> = unsafe { std::mem::transmute::<Region<'_>, Region<'static>>(f) };
        // SAFETY: `busy` makes this the only caller, and between regions no worker reads (see `Shared`).
        unsafe { *shared.region.get() = Some(region) };
        // Between regions nobody else changes the word.
        let closed = Word(shared.word.load(Ordering::SeqCst));
        shared.word.swap(closed.opened().0, Ordering::SeqCst);
        shared.workers.iter().for_each(Sleeper::wake);

        let own = catch_unwind(AssertUnwindSafe(|| f(0)));
        shared.word.fetch_and(!Word::OPEN, Ordering::SeqCst);
        shared.caller.wait(|| Word(shared.word.load(Ordering::SeqCst)).inside() == 0);
        let theirs = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.busy.store(false, Ordering::Release);
        let mut kept = own.err();
        theirs.into_iter().for_each(|payload| keep(&mut kept, payload));
        if let Some(payload) = kept {
            resume_unwind(payload);
        }
    }

    /// Calls `f(participant, i)` for each `i` in `0..n`, each exactly once.
    pub(crate) fn each(&self, n: usize, f: impl Fn(usize, usize) + Sync) {
        if n <= 1 {
            // Nothing to share: waking the others would cost more than small ops take.
            return (0..n).for_each(|i| f(0, i));
        }
        let next = AtomicUsize::new(0);
        self.run(&|thread| {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    return;
                }
                self.go_on();
                f(thread, i);
            }
        });
    }

    /// Like [`each`](Self::each), but a participant takes each `i` one call before its turn: `f(participant, i, next)`
    /// knows what this participant does next and can have the memory fetch it meanwhile.
    fn each_ahead(&self, n: usize, f: impl Fn(usize, usize, Option<usize>) + Sync) {
        let next = AtomicUsize::new(0);
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < n);
        let work = |thread: usize| {
            let mut now = take();
            while let Some(i) = now {
                now = take();
                self.go_on();
                f(thread, i, now);
            }
        };
        if n <= 1 { work(0) } else { self.run(&work) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.swap(true, Ordering::SeqCst);
        self.shared.workers.iter().for_each(Sleeper::wake);
        for h in self.handles.drain(..) {
            // A worker catches the panics of its regions, so it cannot fail to end.
            let _ = h.join();
        }
    }
}

/// Keeps the first panic of a region; one that only says that the region was left early gives way to any other.
fn keep(kept: &mut Option<Box<dyn Any + Send>>, payload: Box<dyn Any + Send>) {
    if kept.as_ref().is_none_or(|k| k.is::<LeftEarly>()) {
        *kept = Some(payload);
    }
}

/// The loop of worker `i`, participant `i + 1`.
fn work(shared: &Shared, i: usize) {
    shared.workers[i].register();
    // The count of regions starts at 0 and moves before the first one opens.
    let mut seen = 0;
    loop {
        let joinable = || Word(shared.word.load(Ordering::SeqCst)).joined(seen).is_some();
        shared.workers[i].wait(|| shared.stop.load(Ordering::SeqCst) || joinable());
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let join = |word| Word(word).joined(seen).map(|w| w.0);
        let Ok(before) = shared.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join) else {
            continue; // closed meanwhile
        };
        seen = Word(before).epoch();
        // SAFETY: this worker is inside an open region, so the caller has written the closure and will not write it
        // again before the worker leaves below.
        let region = unsafe { *shared.region.get() };
        if let Some(f) = region
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(i + 1)))
        {
            keep(&mut shared.panic.lock().unwrap_or_else(PoisonError::into_inner), payload);
        }
        if Word(shared.word.fetch_sub(1, Ordering::SeqCst)).inside() == 1 {
            shared.caller.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        for threads in [1, 2, 4] {
            let pool = Pool::new(threads);
            for bad in 0..8 {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    pool.each(8, |_, i| assert!(i != bad, "tile {i} failed"));
                }));
                let payload = caught.unwrap_err();
                let text = payload.downcast_ref::<String>().map_or("", String::as_str);
                assert_eq!(text, format!("tile {bad} failed"), "{threads} threads");
            }
            let sum = AtomicUsize::new(0);
            pool.each(100, |_, i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 4950);
        }
    }

    #[test]
    fn a_region_is_left_early_where_somebody_asks_for_it() {
        for threads in [1, 2, 4] {
            let mut pool = Pool::new(threads);
            let (leave, done) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
            pool.watch(Some(Arc::clone(&leave)));
            let region = |pool: &Pool| {
                catch_unwind(AssertUnwindSafe(|| {
                    pool.each(1000, |_, i| {
                        leave.fetch_or(i == 10, Ordering::Relaxed);
                        done.fetch_add(1, Ordering::Relaxed);
                    });
                }))
            };
            assert!(region(&pool).unwrap_err().is::<LeftEarly>(), "{threads} threads");
            assert!(done.swap(0, Ordering::Relaxed) < 1000);
            pool.watch(None);
            region(&pool).unwrap();
            assert_eq!(done.into_inner(), 1000);
        }
    }

    #[test]
    fn parked_workers_wake_up() {
        let pool = Pool::new(2);
        for _ in 0..5 {
            let came = [(); 2].map(|()| AtomicBool::new(false));
            pool.run(&|thread| {
                came[thread].store(true, Ordering::SeqCst);
                // Nobody waits for a worker that has not come, so this one does.
                while thread == 0 && !came[1].load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            });
            thread::sleep(SPIN * 3);
        }
    }

    /// Regions whose ends, and pauses between them, fall around the moment in which a waiting thread parks.
    #[test]
    fn nobody_sleeps_for_ever() {
        let spin = |time: Duration| {
            let start = Instant::now();
            while start.elapsed() < time {
                std::hint::spin_loop();
            }
        };
        let pool = Pool::new(2);
        for round in 0..4000u32 {
            let late = SPIN + Duration::from_nanos(u64::from(round * 37 % 12_000));
            let came = AtomicBool::new(false);
            pool.run(&|thread| {
                if thread == 1 {
                    came.store(true, Ordering::SeqCst);
                    spin(late);
                }
                while !came.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            });
            spin(late);
        }
    }
}
