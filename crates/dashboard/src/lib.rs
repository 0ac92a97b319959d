//! What operators look at: the manager's status with rates, latencies and lateness, and the web page that shows it.
//!
//! [`ClusterView`] is the status as `pleach top` and the page show it. [`Dashboard`] serves the page in a thread of its own: the
//! manager passes it events and, while somebody looks, a status each second; it never waits for it. The page is read-only.

mod access;
mod connections;
mod history;
mod page_state;
mod requests;
mod server;
mod timeline;
mod view;
mod viewers;

pub use access::{MIN_TOKEN_CHARS, WebToken};
pub use server::{Dashboard, DashboardError};
pub use view::{ClusterView, GroupRow, JobRow, LateRow, LatencyQuantiles, NodeRow, RateMeter, ViewMeter};
