//! Waits for descriptors.

use std::io;
use std::time::Duration;

use nix::poll::{PollFd, PollTimeout, poll};

/// Waits for any of these. The time is rounded up to whole milliseconds, so that a deadline has passed when it returns.
pub(super) fn poll_descriptors(fds: &mut [PollFd<'_>], wait: Duration) -> io::Result<()> {
    let millis = wait.as_micros().div_ceil(1_000).min(60_000) as u16;
    match poll(fds, PollTimeout::from(millis)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
