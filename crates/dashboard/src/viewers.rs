//! The viewers of the page: who gets which events.
//!
//! In: snapshots and events of the manager, new viewers. Out: bytes in the queue of each viewer. A viewer whose queue is full is
//! dropped, and its browser connects again when it can. Nobody waits for a viewer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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

/// The page's state and its viewers.
pub(super) struct ViewerHub {
    state: PageState,
    viewers: Vec<Viewer>,
}

impl ViewerHub {
    pub(super) fn new(state: PageState) -> Self {
        Self { state, viewers: Vec::new() }
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
        self.viewers.push(Viewer { queue, connection, has_state });
        Some(ResponseBody::Events(receiver))
    }

    /// The whole state as one JSON object, for programs.
    pub(super) fn state_json(&mut self) -> Option<Bytes> {
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
