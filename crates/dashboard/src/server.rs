//! The HTTP server of the page, in a thread of its own.
//!
//! In: connections of browsers, and what the manager's thread observes. Out: pages and events. The manager's thread only puts
//! events and a snapshot into a bounded queue. Connections are limited in number, in the size of a request and in time, so browsers
//! cannot use up memory or descriptors.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control::{ManagerObserver, ManagerSnapshot};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use manager::ManagerEvent;
use tokio::sync::mpsc;

use super::access::WebToken;
use super::connections::ConnectionTable;
use super::page_state::PageState;
use super::requests::{self, RequestContext};
use super::viewers::ViewerHub;

/// Interval between two snapshots.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// Observations that wait for the page's thread.
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
    queue: mpsc::Sender<Observation>,
    next_snapshot: Instant,
    missed_events: u64,
}

enum Observation {
    Event(u64, ManagerEvent),
    Missing(u64, u64),
    Snapshot(u64, Box<ManagerSnapshot>),
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
        let hub = Mutex::new(ViewerHub::new(PageState::new(manager)));
        let context = Arc::new(RequestContext { token, hub });
        let run = move || runtime.block_on(run(listener, observations, context));
        std::thread::Builder::new().name("pleach-web".to_owned()).spawn(run).map_err(unusable)?;
        Ok(Self { address, queue, next_snapshot: Instant::now(), missed_events: 0 })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl ManagerObserver for Dashboard {
    fn status_due(&self) -> Instant {
        self.next_snapshot
    }

    fn observe_status(&mut self, snapshot: ManagerSnapshot) {
        self.next_snapshot = Instant::now() + SNAPSHOT_INTERVAL;
        if self.missed_events > 0 && self.queue.try_send(Observation::Missing(now_ms(), self.missed_events)).is_ok() {
            self.missed_events = 0;
        }
        // If the page's thread is behind, it gets the next one.
        let _ = self.queue.try_send(Observation::Snapshot(now_ms(), Box::new(snapshot)));
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

async fn run(listener: TcpListener, observations: mpsc::Receiver<Observation>, context: Arc<RequestContext>) {
    match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => {
            tokio::spawn(accept(listener, context.clone()));
        }
        Err(error) => tracing::error!(target: "pleach::web", "the web page is not served: {error}"),
    }
    observe(observations, context).await;
}

/// Passes observations to the viewers until the manager ends.
async fn observe(mut observations: mpsc::Receiver<Observation>, context: Arc<RequestContext>) {
    let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
    loop {
        let observation = tokio::select! {
            observation = observations.recv() => match observation {
                Some(observation) => Some(observation),
                None => return,
            },
            _ = heartbeat.tick() => None,
        };
        let mut hub = context.hub.lock().unwrap_or_else(PoisonError::into_inner);
        match observation {
            Some(Observation::Event(at_ms, event)) => hub.handle_event(at_ms, &event),
            Some(Observation::Missing(at_ms, events)) => hub.handle_missing_events(at_ms, events),
            Some(Observation::Snapshot(at_ms, snapshot)) => hub.handle_snapshot(at_ms, *snapshot),
            None => hub.heartbeat(),
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
