//! This process's signals, as something to wait for instead of something that strikes.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Those that ask a process to end.
pub const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals that wait until they are asked for.
pub struct SignalQueue {
    descriptor: SignalFd,
}

impl SignalQueue {
    /// From here on these signals wait. To be called before any thread is started: later threads inherit it.
    pub fn take_over(signals: impl IntoIterator<Item = Signal>) -> nix::Result<Self> {
        let mut taken = SigSet::empty();
        signals.into_iter().for_each(|signal| taken.add(signal));
        taken.thread_block()?;
        let descriptor = SignalFd::with_flags(&taken, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { descriptor })
    }

    /// The next signal that has come.
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
