//! The viewers of the page: who gets which events.
//!
//! In: snapshots and events of the manager, new viewers. Out: bytes in the queue of each viewer, and for the manager whether there are
//! any. A viewer whose queue is full is dropped, and its browser connects again when it can. Nobody waits for a viewer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use control::ManagerSnapshot;
use hyper::body::{Body, Frame, SizeHint};
use manager::ManagerEvent;
use tokio::sync::mpsc;

use super::connections::ConnectionHandle;
use super::page_state::PageState;

/// Browsers at a time.
pub(super) const MAX_VIEWERS: usize = 32;
/// Events in a viewer's queue; one comes each second.
const QUEUE_EVENTS: usize = 8;
/// What a browser is told first: to connect again after two seconds.
const GREETING: Bytes = Bytes::from_static(b"retry: 2000\n\n");
/// A comment, so that a proxy or a browser does not take a silent connection for a broken one.
const HEARTBEAT: Bytes = Bytes::from_static(b": alive\n\n");

struct Viewer {
    queue: mpsc::Sender<Bytes>,
    connection: Arc<ConnectionHandle>,
    has_state: bool,
}

/// A viewer shows with each snapshot that it is there; a program that asks for the state may ask again within this time.
const LOOK_DURATION: Duration = Duration::from_secs(5);

/// When somebody looked last. The manager's thread reads it, so that it makes snapshots only for those who look.
#[derive(Default)]
pub(super) struct LastLook(Mutex<Option<Instant>>);

impl LastLook {
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// True if somebody looks, or did a moment ago.
    pub(super) fn is_recent(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at.elapsed() < LOOK_DURATION)
    }
}

/// The page's state and its viewers.
pub(super) struct ViewerHub {
    state: PageState,
    viewers: Vec<Viewer>,
    last_look: Arc<LastLook>,
}

impl ViewerHub {
    pub(super) fn new(state: PageState, last_look: Arc<LastLook>) -> Self {
        Self { state, viewers: Vec::new(), last_look }
    }

    /// Adds a viewer; none if there are too many.
    pub(super) fn add(&mut self, connection: Arc<ConnectionHandle>) -> Option<ResponseBody> {
        self.viewers.retain(|viewer| !viewer.queue.is_closed());
        if self.viewers.len() >= MAX_VIEWERS {
            return None;
        }
        let (queue, receiver) = mpsc::channel(QUEUE_EVENTS);
        let whole = self.state.whole();
        let has_state = whole.is_some();
        for bytes in [Some(GREETING), whole].into_iter().flatten() {
            let _ = queue.try_send(bytes); // The queue has room for both.
        }
        connection.mark_as_viewer();
        self.last_look.note();
        self.viewers.push(Viewer { queue, connection, has_state });
        Some(ResponseBody::Events(receiver))
    }

    /// The whole state as one JSON object, for programs.
    pub(super) fn state_json(&mut self) -> Option<Bytes> {
        self.last_look.note();
        let event = self.state.whole()?;
        let from = event.windows(6).position(|window| window == b"data: ")? + 6;
        Some(event.slice(from..event.len().saturating_sub(1)))
    }

    pub(super) fn handle_event(&mut self, at_ms: u64, event: &ManagerEvent) {
        self.state.handle_event(at_ms, event);
    }

    pub(super) fn handle_missing_events(&mut self, at_ms: u64, events: u64) {
        self.state.handle_missing_events(at_ms, events);
    }

    /// Passes on what a snapshot changed.
    pub(super) fn handle_snapshot(&mut self, at_ms: u64, snapshot: ManagerSnapshot) {
        self.viewers.retain(|viewer| !viewer.queue.is_closed());
        if !self.viewers.is_empty() {
            self.last_look.note();
        }
        let change = self.state.handle_snapshot(at_ms, snapshot, self.viewers.len());
        for viewer in &mut self.viewers {
            let bytes = if viewer.has_state { change.clone() } else { self.state.whole() };
            viewer.has_state = true;
            if let Some(bytes) = bytes {
                viewer.send(bytes);
            }
        }
    }

    /// Shows the viewers that the connection is alive.
    pub(super) fn heartbeat(&mut self) {
        self.viewers.iter_mut().for_each(|viewer| viewer.send(HEARTBEAT));
    }
}

impl Viewer {
    fn send(&mut self, bytes: Bytes) {
        if self.queue.try_send(bytes).is_err() {
            self.connection.evict(); // It would miss a change, so it must begin anew.
        }
    }
}

/// The body of a response.
pub(super) enum ResponseBody {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(receiver) => {
                receiver.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manager::status::ManagerStatus;
    use std::net::SocketAddr;

    fn hub() -> ViewerHub {
        ViewerHub::new(PageState::new(SocketAddr::from(([127, 0, 0, 1], 4797))), Arc::default())
    }

    fn snapshot() -> ManagerSnapshot {
        ManagerSnapshot { status: ManagerStatus::default(), uptime: Duration::ZERO, connections: 0 }
    }

    /// True if the connection has been told to end.
    fn is_evicted(connection: &ConnectionHandle) -> bool {
        let mut evicted = std::pin::pin!(connection.evicted());
        evicted.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    fn next_event(body: &mut ResponseBody) -> Option<String> {
        let ResponseBody::Events(receiver) = body else { panic!("events") };
        receiver.try_recv().ok().map(|bytes| String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[test]
    fn a_viewer_that_does_not_read_is_dropped_and_others_are_not() {
        let mut hub = hub();
        let (slow, quick) = (Arc::new(ConnectionHandle::default()), Arc::new(ConnectionHandle::default()));
        let _unread = hub.add(slow.clone()).expect("a place");
        let mut read = hub.add(quick.clone()).expect("a place");
        for at in 0..20 {
            hub.handle_snapshot(at, snapshot());
            while next_event(&mut read).is_some() {}
        }
        assert!(is_evicted(&slow) && !is_evicted(&quick));
    }

    #[test]
    fn an_early_viewer_gets_the_state_with_the_first_snapshot_and_then_changes() {
        let mut hub = hub();
        let mut body = hub.add(Arc::default()).expect("a place");
        assert_eq!(next_event(&mut body).as_deref(), Some("retry: 2000\n\n"));
        assert_eq!(next_event(&mut body), None);
        hub.handle_snapshot(1, snapshot());
        assert!(next_event(&mut body).is_some_and(|event| event.starts_with("event: state\n")));
        hub.handle_snapshot(2, snapshot());
        assert!(next_event(&mut body).is_some_and(|event| event.starts_with("event: change\n")));
        hub.heartbeat();
        assert_eq!(next_event(&mut body).as_deref(), Some(": alive\n\n"));
    }

    #[test]
    fn the_number_of_viewers_is_limited_and_closed_ones_make_room() {
        let mut hub = hub();
        let mut bodies: Vec<_> = (0..MAX_VIEWERS).map(|_| hub.add(Arc::default()).expect("a place")).collect();
        assert!(hub.add(Arc::default()).is_none());
        bodies.pop();
        assert!(hub.add(Arc::default()).is_some());
    }
}
