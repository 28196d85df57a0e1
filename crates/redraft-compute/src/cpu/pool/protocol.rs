//! The state of the pool's regions, and a proof by exhaustion that its protocol is sound.

/// The state of regions in one word: workers inside, whether one is open, and a count of regions. The steps of the
/// protocol are functions on it, so that a test can go through every order of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Word(pub(super) usize);

impl Word {
    /// More than [`MAX_THREADS`](super::MAX_THREADS).
    pub(super) const INSIDE: usize = 0xffff;
    pub(super) const OPEN: usize = 0x1_0000;
    pub(super) const EPOCH: usize = 0x2_0000;

    /// Workers that have joined and not left.
    pub(super) fn inside(self) -> usize {
        self.0 & Word::INSIDE
    }

    /// Which region it is. The count may wrap: a worker that slept through all of them misses one.
    pub(super) fn epoch(self) -> usize {
        self.0 / Word::EPOCH
    }

    /// The next region, open. The last one must be closed and empty.
    pub(super) fn opened(self) -> Word {
        Word((self.0 & !Word::OPEN).wrapping_add(Word::EPOCH) | Word::OPEN)
    }

    /// A worker more, if a region is open that is not `seen`.
    pub(super) fn joined(self, seen: usize) -> Option<Word> {
        (self.0 & Word::OPEN != 0 && self.epoch() != seen).then_some(Word(self.0 + 1))
    }
}

/// Every order of the steps of a caller that opens three regions and of two workers, each step one atomic
/// operation: nobody reads a closure that is being written, no region ends before those who joined it, and
/// nobody sleeps for ever.
#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Word;

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
