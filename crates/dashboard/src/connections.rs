//! The open connections of browsers, limited in number: beyond that, the oldest that is no viewer is closed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::viewers::MAX_VIEWERS;

/// Connections at a time. A browser opens up to six.
const MAX_CONNECTIONS: usize = 128;
const _: () = assert!(MAX_VIEWERS < MAX_CONNECTIONS);

/// One connection.
#[derive(Default)]
pub(super) struct ConnectionHandle {
    evicted: Notify,
    is_viewer: AtomicBool,
}

impl ConnectionHandle {
    /// Closes the connection.
    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Returns when the connection must be closed.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Its response goes on for as long as the browser wants.
    pub(super) fn mark_as_viewer(&self) {
        self.is_viewer.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_viewer(&self) -> bool {
        self.is_viewer.load(Ordering::Relaxed)
    }
}

/// All open connections, oldest first.
#[derive(Default)]
pub(super) struct ConnectionTable(Mutex<VecDeque<Arc<ConnectionHandle>>>);

impl ConnectionTable {
    /// Adds a connection, and closes another if there are too many.
    pub(super) fn add(&self) -> Arc<ConnectionHandle> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_CONNECTIONS
            && let Some(oldest) = open.iter().position(|connection| !connection.is_viewer())
            && let Some(connection) = open.remove(oldest)
        {
            connection.evict();
        }
        let connection = Arc::new(ConnectionHandle::default());
        open.push_back(connection.clone());
        connection
    }

    /// Removes a connection that is closed.
    pub(super) fn remove(&self, connection: &Arc<ConnectionHandle>) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| !Arc::ptr_eq(other, connection));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_are_not_closed_for_others() {
        let table = ConnectionTable::default();
        let viewer = table.add();
        viewer.mark_as_viewer();
        let second = table.add();
        for _ in 0..MAX_CONNECTIONS {
            table.add();
        }
        let open = table.0.lock().expect("not poisoned");
        assert_eq!(open.len(), MAX_CONNECTIONS);
        assert!(Arc::ptr_eq(&open[0], &viewer) && !open.iter().any(|other| Arc::ptr_eq(other, &second)));
    }
}
