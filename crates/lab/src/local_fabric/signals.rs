//! Signals of this process as a queue to poll (signalfd).

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that request termination.
pub const TERMINATION: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Blocked signals, to be read one by one.
pub struct SignalQueue {
    descriptor: SignalFd,
}

impl SignalQueue {
    /// Blocks these signals and queues them. Call it before threads are started, which inherit the mask.
    pub fn take_over(signals: impl IntoIterator<Item = Signal>) -> nix::Result<Self> {
        let mut taken = SigSet::empty();
        signals.into_iter().for_each(|signal| taken.add(signal));
        taken.thread_block()?;
        let descriptor = SignalFd::with_flags(&taken, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { descriptor })
    }

    /// The next pending signal.
    pub fn next(&self) -> Option<Signal> {
        let info = self.descriptor.read_signal().ok()??;
        Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()
    }
}

impl AsFd for SignalQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
