//! The HTTP server of the page, in a thread of its own.
//!
//! In: connections of browsers, and what the manager's thread observes. Out: pages and events. The manager's thread only puts
//! events into a bounded queue, and the newest snapshot into a cell that replaces the one before; while nobody looks, it makes few.
//! Connections are limited in number, in the size of a request and in time, so browsers cannot use up memory or descriptors.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control::{ManagerObserver, ManagerSnapshot};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use manager::ManagerEvent;
use tokio::sync::{Notify, mpsc};

use super::access::WebToken;
use super::connections::ConnectionTable;
use super::page_state::PageState;
use super::requests::{self, RequestContext};
use super::viewers::{LastLook, ViewerHub};

/// Interval between two snapshots while somebody looks.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// The same while nobody does: only the history and the timeline need them.
const UNWATCHED_INTERVAL: Duration = Duration::from_secs(10);
/// Events that wait for the page's thread.
const QUEUE_LENGTH: usize = 1024;
/// Time for the header of a request, and for the next request on an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes and lines of a request's header.
const MAX_HEADER_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// A connection that is no viewer's is closed after this time, however it is used.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);
/// Interval between comments that keep connections alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Pause of accepting after an error, such as no descriptor left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Why a page cannot be served.
#[derive(Debug)]
pub enum DashboardError {
    /// The address is not loopback, and there is no token.
    TokenNeeded {
        /// The address.
        at: SocketAddr,
    },
    /// The address cannot be bound, or there are no resources for the thread.
    Unusable {
        /// The address.
        at: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
}

impl fmt::Display for DashboardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenNeeded { at } => write!(
                f,
                "without a token, every host that can reach {at} could see the page: write one to a file (umask 077; openssl rand \
                 -hex 32 >FILE) and give --web-token-file FILE, or serve the page on loopback (--web {}) and reach it through ssh -L",
                at.port()
            ),
            Self::Unusable { at, error } => write!(f, "cannot serve the page at {at}: {error}; use another --web"),
        }
    }
}

impl std::error::Error for DashboardError {}

/// A page that is served until the process ends. The manager's daemon passes it what happens.
pub struct Dashboard {
    address: SocketAddr,
    has_token: bool,
    queue: mpsc::Sender<Observation>,
    newest: Arc<SnapshotCell>,
    last_snapshot: Option<Instant>,
    last_look: Arc<LastLook>,
    missed_events: u64,
}

enum Observation {
    Event(u64, ManagerEvent),
    Missing(u64, u64),
}

/// The newest snapshot that the page's thread has not taken: a thread that is behind needs no older ones.
#[derive(Default)]
struct SnapshotCell {
    snapshot: Mutex<Option<(u64, ManagerSnapshot)>>,
    is_there: Notify,
}

impl SnapshotCell {
    fn put(&self, at_ms: u64, snapshot: ManagerSnapshot) {
        let before = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).replace((at_ms, snapshot));
        self.is_there.notify_one();
        drop(before); // Not under the lock.
    }

    async fn take(&self) -> (u64, ManagerSnapshot) {
        loop {
            self.is_there.notified().await;
            if let Some(taken) = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return taken;
            }
        }
    }
}

impl Dashboard {
    /// Serves the page of the manager that listens at `manager`. A token is needed off loopback.
    ///
    /// # Errors
    /// If a token is missing, the address cannot be bound, or there are no resources for the thread.
    pub fn serve(at: SocketAddr, token: Option<WebToken>, manager: SocketAddr) -> Result<Self, DashboardError> {
        if token.is_none() && !at.ip().is_loopback() {
            return Err(DashboardError::TokenNeeded { at });
        }
        let unusable = |error| DashboardError::Unusable { at, error };
        let listener = TcpListener::bind(at).map_err(unusable)?;
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let (queue, observations) = mpsc::channel(QUEUE_LENGTH);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unusable)?;
        let has_token = token.is_some();
        let last_look = Arc::new(LastLook::default());
        let hub = Mutex::new(ViewerHub::new(PageState::new(manager), last_look.clone()));
        let context =
            Arc::new(RequestContext { token, port: address.port(), hub, states: Arc::new(AtomicUsize::new(0)) });
        let newest = Arc::new(SnapshotCell::default());
        let cell = newest.clone();
        let run = move || runtime.block_on(run(listener, observations, cell, context));
        std::thread::Builder::new().name("pleach-web".to_owned()).spawn(run).map_err(unusable)?;
        Ok(Self { address, has_token, queue, newest, last_snapshot: None, last_look, missed_events: 0 })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// True if viewers need a token.
    pub fn has_token(&self) -> bool {
        self.has_token
    }
}

impl ManagerObserver for Dashboard {
    fn status_due(&self) -> Instant {
        let interval = if self.last_look.is_recent() { SNAPSHOT_INTERVAL } else { UNWATCHED_INTERVAL };
        self.last_snapshot.map_or_else(Instant::now, |last| last + interval)
    }

    fn observe_status(&mut self, snapshot: ManagerSnapshot) {
        self.last_snapshot = Some(Instant::now());
        if self.missed_events > 0 && self.queue.try_send(Observation::Missing(now_ms(), self.missed_events)).is_ok() {
            self.missed_events = 0;
        }
        self.newest.put(now_ms(), snapshot);
    }

    fn observe_event(&mut self, event: &ManagerEvent) {
        if self.queue.try_send(Observation::Event(now_ms(), event.clone())).is_err() {
            self.missed_events += 1;
        }
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

async fn run(
    listener: TcpListener,
    observations: mpsc::Receiver<Observation>,
    newest: Arc<SnapshotCell>,
    context: Arc<RequestContext>,
) {
    match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => {
            tokio::spawn(accept(listener, context.clone()));
        }
        Err(error) => tracing::error!(target: "pleach::web", "the web page is not served: {error}"),
    }
    observe(observations, &newest, context).await;
}

/// Passes observations to the viewers until the manager ends.
async fn observe(mut observations: mpsc::Receiver<Observation>, newest: &SnapshotCell, context: Arc<RequestContext>) {
    let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
    loop {
        let hub = || context.hub.lock().unwrap_or_else(PoisonError::into_inner);
        // Events first, so that a snapshot shows all that happened before it.
        tokio::select! {
            biased;
            observation = observations.recv() => match observation {
                Some(Observation::Event(at_ms, event)) => hub().handle_event(at_ms, &event),
                Some(Observation::Missing(at_ms, events)) => hub().handle_missing_events(at_ms, events),
                None => return,
            },
            _ = heartbeat.tick() => hub().heartbeat(),
            (at_ms, snapshot) = newest.take() => hub().handle_snapshot(at_ms, snapshot),
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, context: Arc<RequestContext>) {
    let connections = Arc::new(ConnectionTable::default());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve_connection(stream, connections.clone(), context.clone()));
            }
            Err(_) => tokio::time::sleep(ACCEPT_BACKOFF).await,
        }
    }
}

async fn serve_connection(
    stream: tokio::net::TcpStream,
    connections: Arc<ConnectionTable>,
    context: Arc<RequestContext>,
) {
    let handle = connections.add();
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let answer = requests::answer(&context, &handle, request.method(), request.uri(), request.headers());
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let expired = async {
        tokio::time::sleep(CONNECTION_LIFETIME).await;
        while handle.is_viewer() {
            tokio::time::sleep(CONNECTION_LIFETIME).await;
        }
    };
    // Whatever ends first closes the connection. An error is the browser's: it broke off, or sent something else than HTTP.
    tokio::select! {
        _ = connection => {}
        () = handle.evicted() => {}
        () = expired => {}
    }
    connections.remove(&handle);
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager::status::ManagerStatus;

    fn snapshot() -> ManagerSnapshot {
        ManagerSnapshot { status: ManagerStatus::default(), uptime: Duration::ZERO, connections: 0 }
    }

    /// The manager copies its status for each snapshot, and nobody shall pay for a page that nobody sees.
    #[test]
    fn snapshots_are_seldom_until_somebody_looks() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut dashboard = Dashboard::serve(loopback, None, loopback).expect("a port");
        assert!(dashboard.status_due() <= Instant::now(), "the first one is wanted at once");
        dashboard.observe_status(snapshot());
        let wait = |dashboard: &Dashboard| dashboard.status_due().saturating_duration_since(Instant::now());
        assert!(wait(&dashboard) > SNAPSHOT_INTERVAL);
        let mut viewer = std::net::TcpStream::connect(dashboard.address()).expect("it listens");
        std::io::Write::write_all(&mut viewer, b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").expect("sent");
        let began = Instant::now();
        while wait(&dashboard) > SNAPSHOT_INTERVAL {
            assert!(began.elapsed() < Duration::from_secs(5), "a viewer wants to see what is");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_thread_that_is_behind_gets_only_the_newest_snapshot() {
        let cell = SnapshotCell::default();
        (1..=2_000).for_each(|at_ms| cell.put(at_ms, snapshot()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("resources");
        runtime.block_on(async {
            assert_eq!(cell.take().await.0, 2_000);
            assert!(tokio::time::timeout(Duration::from_millis(20), cell.take()).await.is_err(), "there is no other");
            cell.put(7, snapshot());
            assert_eq!(cell.take().await.0, 7);
        });
    }
}
