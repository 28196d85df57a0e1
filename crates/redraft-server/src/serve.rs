//! Connections: taking them, bounding them, ending them in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::app::App;
use crate::routes;

/// How often somebody looks whether the server is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes of the head of a request at most, and what is read ahead of a body.
const HEAD_BYTES: usize = 32 << 10;

/// Time for what was answered to reach its clients, once all is computed.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves until `stop` is set; then answers what has been asked, for `grace` at most. After that `interrupt` ends it.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    stop: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
) {
    let router = routes::router(&app);
    let most = app.config.max_connections;
    let connections = Arc::new(Semaphore::new(most));
    let (closing, closed) = watch::channel(false);
    let mut look = tokio::time::interval(LOOK);
    while !stop.load(Ordering::Relaxed) {
        let accepted = tokio::select! {
            _ = look.tick() => continue,
            accepted = accept(&listener, &connections) => accepted,
        };
        if let Some((stream, permit)) = accepted {
            let service = TowerToHyperService::new(router.clone());
            let (time, closed) = (app.config.header_timeout, closed.clone());
            tokio::spawn(async move {
                connection(stream, service, time, closed).await;
                drop(permit);
            });
        }
    }
    drop(listener);
    app.close();
    // Nobody listens where there are no connections.
    let _ = closing.send(true);
    let places = u32::try_from(app.config.places()).unwrap_or(u32::MAX);
    if tokio::time::timeout(app.config.grace, app.places.acquire_many(places)).await.is_err() {
        interrupt.store(true, Ordering::Relaxed);
    }
    app.end();
    let all = connections.acquire_many(u32::try_from(most).unwrap_or(u32::MAX));
    let _ = tokio::time::timeout(LAST_WORDS, all).await;
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(_) => {
            // No more files, or a client that left at once: the former takes a while to get better.
            tokio::time::sleep(LOOK).await;
            None
        }
    }
}

async fn connection(
    stream: TcpStream,
    service: TowerToHyperService<axum::Router>,
    header_timeout: Duration,
    mut closed: watch::Receiver<bool>,
) {
    // Events are small, and each is wanted at once.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // What a connection ends with concerns its client alone.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closed.wait_for(|closed| *closed) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
