//! A domain: everything that its lock protects, and the thread that keeps peers answered while the application computes.
//!
//! The application's calls make progress. A peer that is not answered for long would take this process for lost, so a thread takes
//! over when no call has made progress for a while, and sleeps on the sockets until one does (P-122).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::endpoint_state::EndpointState;
use crate::queues::{Queues, Slots};

/// How often the thread looks whether the application makes progress.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long it sleeps on the sockets in place of the application.
const SLEEP: u16 = 10;

/// What the lock of a domain protects.
#[derive(Default)]
pub(crate) struct DomainState {
    pub(crate) endpoints: Slots<EndpointState>,
    pub(crate) queues: Queues,
}

impl DomainState {
    /// Makes progress on these endpoints.
    pub(crate) fn progress(&mut self, endpoints: &[usize]) {
        for number in endpoints {
            if let Some(endpoint) = self.endpoints.get_mut(*number) {
                endpoint.progress(&mut self.queues);
            }
        }
    }

    /// These endpoints want to be woken through their descriptors; false if one has something to do first.
    pub(crate) fn fall_asleep(&mut self, endpoints: &[usize]) -> bool {
        let asleep =
            |number: &usize| self.endpoints.get_mut(*number).is_none_or(|endpoint| endpoint.port.fall_asleep());
        endpoints.iter().all(asleep)
    }

    /// The same for those that report to a completion queue.
    pub(crate) fn fall_asleep_for(&mut self, queue: usize) -> bool {
        let bound = self.queues.completions.get(queue).map(|found| found.endpoints.clone());
        bound.is_none_or(|bound| self.fall_asleep(&bound))
    }

    /// Makes progress for a completion queue; only if it has nothing to read.
    pub(crate) fn progress_queue(&mut self, queue: usize) {
        let Self { endpoints, queues } = self;
        let Some(found) = queues.completions.get_mut(queue).filter(|found| found.is_empty()) else { return };
        let bound = std::mem::take(&mut found.endpoints);
        for number in &bound {
            if let Some(endpoint) = endpoints.get_mut(*number) {
                endpoint.progress(queues);
            }
        }
        if let Some(found) = queues.completions.get_mut(queue) {
            found.endpoints = bound;
        }
    }
}

/// A domain and its thread.
pub(crate) struct Domain {
    state: Mutex<DomainState>,
    /// Progress calls of the application.
    calls: AtomicU64,
    is_closed: AtomicBool,
    sleeper: (Mutex<()>, Condvar),
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Domain {
    /// A domain without objects.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub(crate) fn open() -> std::io::Result<Arc<Self>> {
        let domain = Arc::new(Self {
            state: Mutex::default(),
            calls: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            sleeper: (Mutex::new(()), Condvar::new()),
            thread: Mutex::new(None),
        });
        let own = Arc::clone(&domain);
        let thread =
            std::thread::Builder::new().name("pleach-fi".into()).spawn(move || abort_on_panic(|| own.attend()))?;
        *domain.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(domain)
    }

    /// Locks the state for a call of the application.
    pub(crate) fn lock(&self) -> MutexGuard<'_, DomainState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call of the application makes progress: the thread need not.
    pub(crate) fn note_call(&self) {
        // Only the thread reads it, and a lost update does no harm.
        self.calls.store(self.calls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.sleeper.1.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join(); // It has no result, and does not panic.
        }
    }

    /// The thread.
    fn attend(&self) {
        let mut seen = self.calls.load(Relaxed);
        while !self.is_closed.load(Relaxed) {
            self.pause(LOOK_EVERY);
            let now = self.calls.load(Relaxed);
            if std::mem::replace(&mut seen, now) != now {
                continue;
            }
            while !self.is_closed.load(Relaxed) && self.calls.load(Relaxed) == seen {
                let descriptors = {
                    let mut state = self.lock();
                    let numbers = state.endpoints.numbers();
                    state.progress(&numbers);
                    if !state.fall_asleep(&numbers) {
                        continue;
                    }
                    descriptors_of(&mut state, &numbers)
                };
                self.sleep_on(&descriptors);
            }
        }
    }

    fn pause(&self, time: Duration) {
        let guard = self.sleeper.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_closed.load(Relaxed) {
            let _ = self.sleeper.1.wait_timeout(guard, time);
        }
    }

    fn sleep_on(&self, descriptors: &[std::os::fd::OwnedFd]) {
        if descriptors.is_empty() {
            return self.pause(Duration::from_millis(SLEEP.into()));
        }
        let mut polled: Vec<PollFd<'_>> =
            descriptors.iter().map(|descriptor| PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)).collect();
        let _ = poll(&mut polled, PollTimeout::from(SLEEP)); // A signal ends the sleep early; that does no harm.
    }
}

/// Runs a thread of this library, and ends the process if it panics. The state that it left half changed must not be used, and nobody
/// would answer the peers.
fn abort_on_panic(work: impl FnOnce()) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    if let Err(panic) = outcome {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        crate::log::log(&format!(
            "internal error in the progress thread, the process ends (please report this): {text}"
        ));
        std::process::abort();
    }
}

/// Copies of the descriptors of these endpoints: an endpoint may be closed while the thread sleeps. One that is not enabled takes no
/// packets, so its descriptor would never let the thread sleep.
fn descriptors_of(state: &mut DomainState, numbers: &[usize]) -> Vec<std::os::fd::OwnedFd> {
    let descriptor = |number: &usize| {
        let endpoint = state.endpoints.get_mut(*number).filter(|endpoint| endpoint.is_enabled)?;
        wait_descriptor(endpoint).try_clone_to_owned().ok()
    };
    numbers.iter().filter_map(descriptor).collect()
}

/// What is readable while packets wait for an endpoint.
pub(crate) fn wait_descriptor(endpoint: &mut EndpointState) -> BorrowedFd<'_> {
    endpoint.port.messenger.transport().udp().endpoint().wait_descriptor()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;
    use crate::endpoint_address::EndpointPath;
    use crate::message_port::MessagePort;

    #[test]
    fn the_thread_does_not_watch_an_endpoint_that_is_not_enabled() {
        let path = EndpointPath { address: "127.0.0.1:0".parse().expect("an address"), prefix: 8 };
        let port = MessagePort::open_at(vec![path]).expect("a port");
        let mut state = DomainState::default();
        let number = state.endpoints.add(EndpointState::new(port, 0, 0));
        assert!(descriptors_of(&mut state, &[number]).is_empty());
        state.endpoints.get_mut(number).expect("just added").is_enabled = true;
        assert_eq!(descriptors_of(&mut state, &[number]).len(), 1);
    }

    const PANICS: &str = "PLEACH_FI_TEST_PANIC";

    /// The process that [`a_panic_of_the_thread_ends_the_process`] watches.
    #[test]
    fn panicking_process() {
        if std::env::var_os(PANICS).is_some() {
            let thread = std::thread::spawn(|| abort_on_panic(|| panic!("slot {} is gone", 7)));
            let _ = thread.join();
        }
    }

    #[test]
    fn a_panic_of_the_thread_ends_the_process() {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", "domain::tests::panicking_process", "--nocapture"]).env(PANICS, "1");
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(6), "{said}");
        assert!(said.contains("internal error in the progress thread") && said.contains("slot 7 is gone"), "{said}");
    }
}
