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
//! thread that opened it. A panic in any participant ends the region and is raised again in the caller.
//! The unsafe code here is the hand-over of a borrowed closure to the workers and of disjoint parts of one
//! output to several threads; both are wrapped so that the rest of the crate needs none.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

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
            // Announce the park, then look again: either the waker sees the flag, or we see its store.
            self.parked.store(true, Ordering::SeqCst);
            while !ready() {
                thread::park();
            }
            self.parked.store(false, Ordering::SeqCst);
        }
    }

    /// Wakes the thread if it is parked; call it after the store that makes it ready.
    fn wake(&self) {
        if self.parked.load(Ordering::SeqCst)
            && let Some(t) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner)
        {
            t.unpark();
        }
    }
}

/// The state of regions in one word: workers inside, whether one is open, and a count of regions. The steps of the
/// protocol are functions on it, so that a test can go through every order of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Word(usize);

impl Word {
    /// More than [`MAX_THREADS`].
    const INSIDE: usize = 0xffff;
    const OPEN: usize = 0x1_0000;
    const EPOCH: usize = 0x2_0000;

    /// Workers that have joined and not left.
    fn inside(self) -> usize {
        self.0 & Word::INSIDE
    }

    /// Which region it is. The count may wrap: a worker that slept through all of them misses one.
    fn epoch(self) -> usize {
        self.0 / Word::EPOCH
    }

    /// The next region, open. The last one must be closed and empty.
    fn opened(self) -> Word {
        Word((self.0 & !Word::OPEN).wrapping_add(Word::EPOCH) | Word::OPEN)
    }

    /// A worker more, if a region is open that is not `seen`.
    fn joined(self, seen: usize) -> Option<Word> {
        (self.0 & Word::OPEN != 0 && self.epoch() != seen).then_some(Word(self.0 + 1))
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
        Pool { shared, handles, busy: AtomicBool::new(false) }
    }

    /// Number of participants.
    pub(crate) fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `f(participant)` on this thread and on those that are free, at most once on each, and returns when
    /// all calls have. The closure must take its work from something shared: a single call does all of it
    /// where nobody else comes.
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
        shared.word.store(closed.opened().0, Ordering::SeqCst);
        shared.workers.iter().for_each(Sleeper::wake);

        let own = catch_unwind(AssertUnwindSafe(|| f(0)));
        shared.word.fetch_and(!Word::OPEN, Ordering::SeqCst);
        shared.caller.wait(|| Word(shared.word.load(Ordering::SeqCst)).inside() == 0);
        let theirs = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = own.err().or(theirs) {
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
                f(thread, i, now);
            }
        };
        if n <= 1 { work(0) } else { self.run(&work) }
    }

    /// Calls `f(participant, i, &mut items[i])` for each item.
    pub(crate) fn items<T: Send>(&self, items: &mut [T], f: impl Fn(usize, usize, &mut T) + Sync) {
        let base = Base(items.as_mut_ptr());
        self.each(items.len(), |thread, i| {
            // SAFETY: `i` is below `items.len()` and is handed out once, so this is the only reference to
            // the item; `items` stays borrowed for the whole region.
            let item = unsafe { &mut *base.at(i) };
            f(thread, i, item);
        });
    }

    /// Calls `f(participant, tile)` for each tile of `out`, cut as the grid says.
    ///
    /// # Panics
    /// When the grid does not fit `out`.
    pub(crate) fn tiles<T: Send>(
        &self,
        out: &mut [T],
        grid: Grid<'_>,
        f: impl Fn(usize, Tile<'_, T>) + Sync,
    ) {
        let Grid { cols, bands, tile_cols } = grid;
        assert!(bands.windows(2).all(|w| w[0] <= w[1]), "row bands are ascending");
        assert!(bands.last().is_none_or(|&end| end * cols <= out.len()), "the grid fits the output");
        let across = cols.div_ceil(tile_cols.max(1));
        let base = Base(out.as_mut_ptr());
        let place = |i: usize| (i / across, i % across * tile_cols);
        self.each_ahead(bands.len().saturating_sub(1) * across, |thread, i, next| {
            let (band, col) = place(i);
            let (row, end) = (bands[band], bands[band + 1]);
            let tile = Tile {
                base: base.at(row * cols + col),
                stride: cols,
                band,
                row,
                rows: end - row,
                col,
                cols: tile_cols.min(cols - col),
                next: next.map(|i| {
                    let (band, col) = place(i);
                    Place { band, col, cols: tile_cols.min(cols - col) }
                }),
                life: PhantomData,
            };
            f(thread, tile);
        });
    }

    /// Calls `f(participant, first row, rows)` for bands of whole rows of `out`, about `grain` elements each.
    pub(crate) fn rows<T: Send>(
        &self,
        out: &mut [T],
        cols: usize,
        grain: usize,
        f: impl Fn(usize, usize, &mut [T]) + Sync,
    ) {
        if out.is_empty() || cols == 0 {
            return;
        }
        let per = grain.div_ceil(cols).max(1);
        let mut bands: Vec<&mut [T]> = out.chunks_mut(per * cols).collect();
        self.items(&mut bands, |thread, i, band| f(thread, i * per, band));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.workers.iter().for_each(Sleeper::wake);
        for h in self.handles.drain(..) {
            // A worker catches the panics of its regions, so it cannot fail to end.
            let _ = h.join();
        }
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
            *shared.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
        }
        if Word(shared.word.fetch_sub(1, Ordering::SeqCst)).inside() == 1 {
            shared.caller.wake();
        }
    }
}

/// A pointer that several threads may copy; who uses it says why that is sound.
struct Base<T>(*mut T);

// SAFETY: the pointer is only turned into references to disjoint elements (see `items` and `Tile`), and the
// elements are Send.
unsafe impl<T: Send> Sync for Base<T> {}

impl<T> Base<T> {
    /// The address of element `i`, which must lie inside the slice or at its end.
    fn at(&self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

/// How an output `[rows, cols]` is cut into tiles: into bands of rows at the given boundaries (`[0, rows]`
/// for one band), and each band into `tile_cols` columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid<'a> {
    /// Columns of the output.
    pub(crate) cols: usize,
    /// Ascending row boundaries.
    pub(crate) bands: &'a [usize],
    /// Columns of a tile; the last one of a band may be narrower.
    pub(crate) tile_cols: usize,
}

/// Where a tile lies: its band, its first column and the number of columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) band: usize,
    pub(crate) col: usize,
    pub(crate) cols: usize,
}

/// One tile of an output, owned by one participant.
pub(crate) struct Tile<'a, T> {
    base: *mut T,
    stride: usize,
    /// Index of the band.
    pub(crate) band: usize,
    /// First row.
    pub(crate) row: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    /// First column.
    pub(crate) col: usize,
    /// Number of columns.
    pub(crate) cols: usize,
    /// The tile that this participant gets next.
    pub(crate) next: Option<Place>,
    life: PhantomData<&'a mut [T]>,
}

impl<T> Tile<'_, T> {
    /// Row `r` of the tile, counted from its first.
    pub(crate) fn row_mut(&mut self, r: usize) -> &mut [T] {
        assert!(r < self.rows, "row {r} of a tile of {}", self.rows);
        // SAFETY: `Pool::tiles` checked that the grid fits the slice, tiles do not overlap, each tile is
        // made once, and `&mut self` allows one row at a time; the slice outlives `'a`.
        unsafe { std::slice::from_raw_parts_mut(self.base.wrapping_add(r * self.stride), self.cols) }
    }

    /// All rows of a tile as wide as the output.
    pub(crate) fn whole(&mut self) -> &mut [T] {
        assert_eq!(self.cols, self.stride, "the tile is as wide as the output");
        // SAFETY: as in `row_mut`; rows of full width follow each other without gaps.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.rows * self.stride) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_is_written_once_for_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            let pool = Pool::new(threads);
            for (rows, cols, tile) in [(1, 1, 1), (5, 33, 16), (7, 16, 16), (3, 40, 64), (4, 0, 16)] {
                let mut out = vec![0u32; rows * cols];
                for _ in 0..50 {
                    let bands = [0, rows / 2, rows / 2, rows];
                    pool.tiles(&mut out, Grid { cols, bands: &bands, tile_cols: tile }, |_, mut t| {
                        for r in 0..t.rows {
                            let (row, col) = (t.row + r, t.col);
                            for (c, x) in t.row_mut(r).iter_mut().enumerate() {
                                *x += (row * cols + col + c) as u32;
                            }
                        }
                    });
                }
                assert!(out.iter().enumerate().all(|(i, &x)| x == 50 * i as u32), "{threads} {rows}x{cols}");
            }
        }
    }

    #[test]
    fn rows_cover_everything_and_nested_regions_run_inline() {
        let pool = Pool::new(3);
        let mut out = vec![0u64; 1000];
        pool.rows(&mut out, 10, 25, |_, row, band| {
            let total = AtomicUsize::new(0);
            pool.each(10, |_, i| {
                total.fetch_add(i, Ordering::Relaxed);
            });
            for (i, x) in band.iter_mut().enumerate() {
                *x += (row * 10 + i) as u64 + total.load(Ordering::Relaxed) as u64;
            }
        });
        assert!(out.iter().enumerate().all(|(i, &x)| x == i as u64 + 45));
    }

    #[test]
    fn a_tile_names_the_next_one_of_its_thread() {
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            let mut out = vec![0; 7 * 10];
            let grid = Grid { cols: 10, bands: &[0, 3, 7], tile_cols: 4 };
            let promised: Vec<Mutex<Option<[usize; 3]>>> = (0..threads).map(|_| Mutex::new(None)).collect();
            pool.tiles(&mut out, grid, |thread, mut tile| {
                (0..tile.rows).for_each(|r| tile.row_mut(r).iter_mut().for_each(|x| *x += 1));
                let next = tile.next.map(|t| [t.band, t.col, t.cols]);
                let before = std::mem::replace(&mut *promised[thread].lock().unwrap(), next);
                assert!(before.is_none_or(|b| b == [tile.band, tile.col, tile.cols]));
            });
            assert!(promised.iter().all(|p| p.lock().unwrap().is_none()), "a promised tile never came");
            assert!(out.iter().all(|&x| x == 1));
        }
    }

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

    /// Every order of the steps of a caller that opens three regions and of two workers, each step one atomic
    /// operation: nobody reads a closure that is being written, no region ends before those who joined it, and
    /// nobody sleeps for ever.
    mod protocol {
        use std::collections::HashSet;

        use super::super::Word;

        const WORKERS: usize = 2;
        const REGIONS: u8 = 3;

        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        enum Caller {
            Write,
            Open,
            Wake(usize),
            Work,
            Close,
            Look,
            Announce,
            LookAgain,
            Park,
            Stop,
            WakeLast(usize),
            Done,
        }

        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        enum Worker {
            Look,
            Announce,
            LookAgain,
            Park,
            Join,
            Read,
            Leave,
            WakeCaller,
            Done,
        }

        /// Somebody who may park: whether it said so, and whether a wake-up waits for it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        struct Bed {
            parked: bool,
            token: bool,
        }

        impl Bed {
            fn wake(&mut self) {
                self.token |= self.parked;
            }
        }

        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        struct State {
            word: Word,
            /// Region whose closure is stored; none between a return of `run` and the next one.
            closure: Option<u8>,
            region: u8,
            stop: bool,
            caller: Caller,
            caller_bed: Bed,
            workers: [Worker; WORKERS],
            beds: [Bed; WORKERS],
            seen: [usize; WORKERS],
        }

        impl State {
            fn caller(mut self) -> Option<State> {
                let empty = self.word.inside() == 0;
                self.caller = match self.caller {
                    Caller::Write => {
                        assert!(
                            empty && self.word.0 & Word::OPEN == 0,
                            "a closure is written under a worker: {self:?}"
                        );
                        self.closure = Some(self.region);
                        Caller::Open
                    }
                    Caller::Open => {
                        self.word = self.word.opened();
                        Caller::Wake(0)
                    }
                    Caller::Wake(WORKERS) => Caller::Work,
                    Caller::Wake(i) => {
                        self.beds[i].wake();
                        Caller::Wake(i + 1)
                    }
                    Caller::Work => Caller::Close,
                    Caller::Close => {
                        self.word = Word(self.word.0 & !Word::OPEN);
                        Caller::Look
                    }
                    Caller::Look | Caller::LookAgain if empty => {
                        self.caller_bed.parked = false;
                        self.closure = None;
                        self.region += 1;
                        if self.region == REGIONS { Caller::Stop } else { Caller::Write }
                    }
                    Caller::Look => Caller::Announce,
                    Caller::Announce => {
                        self.caller_bed.parked = true;
                        Caller::LookAgain
                    }
                    Caller::LookAgain => Caller::Park,
                    Caller::Park if self.caller_bed.token => {
                        self.caller_bed.token = false;
                        Caller::LookAgain
                    }
                    Caller::Park => return None,
                    Caller::Stop => {
                        self.stop = true;
                        Caller::WakeLast(0)
                    }
                    Caller::WakeLast(WORKERS) => Caller::Done,
                    Caller::WakeLast(i) => {
                        self.beds[i].wake();
                        Caller::WakeLast(i + 1)
                    }
                    Caller::Done => return None,
                };
                Some(self)
            }

            fn worker(mut self, i: usize) -> Option<State> {
                let ready = self.stop || self.word.joined(self.seen[i]).is_some();
                self.workers[i] = match self.workers[i] {
                    Worker::Look | Worker::LookAgain if ready => {
                        self.beds[i].parked = false;
                        if self.stop { Worker::Done } else { Worker::Join }
                    }
                    Worker::Look => Worker::Announce,
                    Worker::Announce => {
                        self.beds[i].parked = true;
                        Worker::LookAgain
                    }
                    Worker::LookAgain => Worker::Park,
                    Worker::Park if self.beds[i].token => {
                        self.beds[i].token = false;
                        Worker::LookAgain
                    }
                    Worker::Park => return None,
                    Worker::Join => match self.word.joined(self.seen[i]) {
                        Some(word) => {
                            self.word = word;
                            self.seen[i] = word.epoch();
                            Worker::Read
                        }
                        None => Worker::Look,
                    },
                    Worker::Read => {
                        assert_eq!(self.closure, Some(self.region), "a closure of another region: {self:?}");
                        assert_eq!(self.seen[i], usize::from(self.region) + 1);
                        Worker::Leave
                    }
                    Worker::Leave => {
                        let last = self.word.inside() == 1;
                        self.word = Word(self.word.0 - 1);
                        if last { Worker::WakeCaller } else { Worker::Look }
                    }
                    Worker::WakeCaller => {
                        self.caller_bed.wake();
                        Worker::Look
                    }
                    Worker::Done => return None,
                };
                Some(self)
            }
        }

        #[test]
        fn every_order_of_its_steps_is_sound_and_ends() {
            let start = State {
                word: Word(0),
                closure: None,
                region: 0,
                stop: false,
                caller: Caller::Write,
                caller_bed: Bed::default(),
                workers: [Worker::Look; WORKERS],
                beds: [Bed::default(); WORKERS],
                seen: [0; WORKERS],
            };
            let (mut found, mut todo, mut ends) = (HashSet::from([start]), vec![start], 0);
            while let Some(state) = todo.pop() {
                let workers = (0..WORKERS).map(|i| state.worker(i));
                let next: Vec<State> = workers.chain([state.caller()]).flatten().collect();
                if next.is_empty() {
                    let done = state.caller == Caller::Done && state.workers == [Worker::Done; WORKERS];
                    assert!(done, "all sleep: {state:?}");
                    ends += 1;
                }
                todo.extend(next.into_iter().filter(|&s| found.insert(s)));
            }
            assert!(ends > 0 && found.len() > 10_000, "{ends} ends, {} states", found.len());
        }
    }
}
