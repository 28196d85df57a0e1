//! What all requests share, and the way from a request to its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Config;
use crate::error::ApiError;
use crate::facts::Facts;
use crate::metrics::Metrics;
use crate::worker::{Job, Message, Update, Work};

/// The state of the server.
pub(crate) struct App {
    pub(crate) facts: Arc<Facts>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) config: Config,
    /// Only requests whose Host header names a loopback address are answered.
    pub(crate) local_names_only: bool,
    /// When it began, in seconds since 1970.
    pub(crate) created: u64,
    inbox: Sender<Message>,
    /// One for each answer that runs or waits.
    pub(crate) places: Arc<Semaphore>,
    closing: AtomicBool,
    answered: AtomicU64,
}

/// Answers to one request, as they come about.
pub(crate) struct Answers {
    pub(crate) updates: UnboundedReceiver<(usize, Update)>,
    /// Drafts that were sent and not read.
    pub(crate) unread: Arc<AtomicUsize>,
    pub(crate) n: usize,
}

pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

impl App {
    /// The state, and where requests arrive that are to be answered.
    pub(crate) fn new(
        facts: Facts,
        (config, local_names_only): (Config, bool),
    ) -> (Arc<App>, Receiver<Message>) {
        let (inbox, asked) = channel();
        let app = App {
            facts: Arc::new(facts),
            metrics: Arc::new(Metrics::new()),
            places: Arc::new(Semaphore::new(config.places())),
            config,
            local_names_only,
            created: unix_seconds(),
            inbox,
            closing: AtomicBool::new(false),
            answered: AtomicU64::new(0),
        };
        (Arc::new(app), asked)
    }

    /// No new request is taken any more.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Tells the thread of the model that nothing more will come.
    pub(crate) fn end(&self) {
        // A thread that has ended needs not be told.
        let _ = self.inbox.send(Message::End);
    }

    /// A name for the next answer.
    pub(crate) fn next_id(&self, prefix: &str) -> String {
        format!("{prefix}-{:x}-{:x}", self.created, self.answered.fetch_add(1, Ordering::Relaxed))
    }

    /// Places for `n` answers, before anything is done for them.
    ///
    /// # Errors
    /// They are taken; the server ends.
    pub(crate) fn places(&self, n: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        if self.is_closing() {
            self.metrics.rejected("closing");
            return Err(ApiError::closing());
        }
        if n > self.config.places() {
            return Err(ApiError::field("n", format_args!("expected at most {}", self.config.places())));
        }
        let permits = Arc::clone(&self.places).try_acquire_many_owned(u32::try_from(n).unwrap_or(u32::MAX));
        permits.map_err(|_| {
            self.metrics.rejected("queue_full");
            ApiError::busy()
        })
    }

    /// Asks for answers in these places, and waits for the first to begin.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(crate) async fn ask(
        &self,
        works: Vec<Work>,
        mut places: OwnedSemaphorePermit,
    ) -> Result<Answers, ApiError> {
        let (updates, receiver) = unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let n = works.len();
        let deadline = Instant::now().checked_add(self.config.timeout);
        for (index, work) in works.into_iter().enumerate() {
            let place = places.split(1).ok_or_else(ApiError::busy)?;
            let (updates, unread) = (updates.clone(), Arc::clone(&unread));
            let job = Job { work, index, updates, unread, deadline, _place: place };
            self.inbox.send(Message::Ask(Box::new(job))).map_err(|_| ApiError::closing())?;
        }
        drop(updates);
        let mut answers = Answers { updates: receiver, unread, n };
        match answers.next().await {
            Some((_, Update::Started)) => Ok(answers),
            Some((_, Update::Failed(e))) => Err(e),
            _ => Err(ApiError::closing()),
        }
    }
}

impl Answers {
    /// The next update, and of which answer.
    pub(crate) async fn next(&mut self) -> Option<(usize, Update)> {
        let (index, update) = self.updates.recv().await?;
        if matches!(update, Update::Draft(_)) {
            self.unread.fetch_sub(1, Ordering::Relaxed);
        }
        Some((index, update))
    }
}
