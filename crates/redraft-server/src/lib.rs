//! HTTP server for one model: chat completions, completions with infilling, messages, responses, models, metrics, one page.
//!
//! [`Server`] listens on an address; [`Local`] answers the same requests for this process, without a network.
//!
//! The model belongs to one thread, which makes up to [`Config::parallel`] answers together
//! ([`Batch`](redraft::engine::Batch)); each has the bits that it has alone. Requests wait in a bounded queue, and clients
//! that go away free their place within one step. `docs/server.md` describes the API.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::sync::atomic::AtomicBool;
//!
//! use redraft::{LoadOptions, Model};
//! use redraft_server::{Config, Server};
//!
//! let model = Model::embedded(&LoadOptions::default())?;
//! let server = Server::bind(model, "127.0.0.1:8080", Config::default())?;
//! println!("listening on {}", server.address());
//! let stop = Arc::new(AtomicBool::new(false));
//! server.run(stop)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod app;
mod chat;
mod completions;
mod conversation;
mod draft;
mod error;
mod facts;
mod fields;
mod local;
mod messages;
mod metrics;
mod models;
mod openai;
mod page;
mod pool;
mod reply;
mod responses;
mod routes;
mod scores;
mod serve;
mod worker;
mod writer;

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redraft::Model;

use crate::app::App;
use crate::facts::Facts;
pub use crate::local::{Answer, Ask, Client, Local, Reader};
use crate::worker::Worker;

/// Limits and keys of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Answers that are made together at most.
    pub parallel: usize,
    /// Answers that wait at most; who comes then is told to try again.
    pub max_queue: usize,
    /// What clients must show; none lets everyone in, which is for loopback addresses unless [`open`](Self::open).
    pub api_key: Option<String>,
    /// An address of a network is served without a key.
    pub open: bool,
    /// Time for a request, waiting included.
    pub timeout: Duration,
    /// Time for the answers that are being made when the server is to end.
    pub grace: Duration,
    /// Bytes of keys and values that are kept for prompts to come.
    pub cache_bytes: usize,
    /// Bytes of the body of a request at most.
    pub max_body_bytes: usize,
    /// Connections at most; more wait to be accepted.
    pub max_connections: usize,
    /// Time for the head of a request, and between two requests of a connection.
    pub header_timeout: Duration,
    /// Context length in tokens; none takes the model's.
    pub context_len: Option<usize>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            parallel: 4,
            max_queue: 64,
            api_key: None,
            open: false,
            timeout: Duration::from_secs(600),
            grace: Duration::from_secs(30),
            cache_bytes: 1 << 30,
            max_body_bytes: 4 << 20,
            max_connections: 256,
            header_timeout: Duration::from_secs(15),
            context_len: None,
        }
    }
}

impl Config {
    /// Answers that run or wait at most.
    pub(crate) fn places(&self) -> usize {
        self.parallel.saturating_add(self.max_queue).min(tokio::sync::Semaphore::MAX_PERMITS)
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The model cannot answer.
    #[error(transparent)]
    Model(#[from] redraft::Error),
    /// An address that others can reach, without a key.
    #[error("{address} can be reached by others, and there is no key: give one, or say that none is needed")]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// A limit that lets nothing through.
    #[error("{what}: expected {expected}, found {found}")]
    Config {
        /// Which one.
        what: &'static str,
        /// What would do.
        expected: &'static str,
        /// What was asked for.
        found: usize,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The system gives no threads.
    #[error("cannot start the server: {0}")]
    Start(#[source] std::io::Error),
    /// The thread of the model panicked, which is a bug; what it said is on stderr.
    #[error("the server ended because its computation panicked: please report this")]
    Panicked,
}

/// Where requests are read and answers are written; the model computes elsewhere.
fn runtime() -> Result<tokio::runtime::Runtime, ServerError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name("http").enable_all().build().map_err(ServerError::Start)
}

/// Ends the server where the thread of the model ends, however that comes about.
struct EndAll(Arc<AtomicBool>);

impl Drop for EndAll {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    model: Model,
    facts: Facts,
    config: Config,
    /// Only requests whose Host header names a loopback address are answered.
    local_names_only: bool,
}

impl Server {
    /// Listens on an address.
    ///
    /// # Errors
    /// The address is not to be had, or can be reached by others and there is neither a key nor [`Config::open`]; the model has no
    /// canvas or a chat template that cannot be read.
    pub fn bind(
        model: Model,
        address: impl ToSocketAddrs + std::fmt::Debug,
        config: Config,
    ) -> Result<Server, ServerError> {
        let limits = [
            ("parallel", config.parallel),
            ("max_connections", config.max_connections),
            ("length of the key", config.api_key.as_ref().map_or(1, String::len)),
        ];
        if let Some(&(what, found)) = limits.iter().find(|(_, n)| !(1..=1 << 16).contains(n)) {
            return Err(ServerError::Config { what, expected: "a number in 1..=65536", found });
        }
        let facts = Facts::new(&model, config.context_len)?;
        let name = format!("{address:?}");
        let failed = |source| ServerError::Listen { address: name.clone(), source };
        let all: Vec<SocketAddr> = address.to_socket_addrs().map_err(failed)?.collect();
        let local = all.iter().all(|a| a.ip().is_loopback());
        if let Some(&address) = all.iter().find(|a| !a.ip().is_loopback())
            && config.api_key.is_none()
            && !config.open
        {
            return Err(ServerError::Open { address });
        }
        let local_names_only = local && config.api_key.is_none();
        let listener = TcpListener::bind(&all[..]).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Server { listener, address, model, facts, config, local_names_only })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is set; then answers what has been asked, for [`Config::grace`] at most.
    ///
    /// # Errors
    /// The system gives no threads; the thread of the model panicked.
    pub fn run(self, stop: Arc<AtomicBool>) -> Result<(), ServerError> {
        let Server { listener, model, facts, config, local_names_only, .. } = self;
        let interrupt = Arc::new(AtomicBool::new(false));
        let (app, inbox) = App::new(facts, (config, local_names_only));
        let worker = Worker::new(model, &app, inbox, Arc::clone(&interrupt));
        let runtime = runtime()?;
        let thread = worker.spawn(EndAll(Arc::clone(&stop))).map_err(ServerError::Start)?;
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            serve::serve(listener, app, stop, interrupt).await;
            Ok(())
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        let done = thread.join().map_err(|_| ServerError::Panicked);
        served.map_err(ServerError::Start).and(done)
    }
}
