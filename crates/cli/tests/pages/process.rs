//! What the browser needs of the tests that it is shared with.

use std::time::Duration;

/// Longest time to wait for something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
