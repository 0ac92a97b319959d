//! A thread that makes progress while the application's threads are outside the library.
//!
//! As long as the application calls the library often enough, the thread only sleeps. When the application is away, the thread
//! polls the engine and waits for input between the polls. The application's calls pay a few additions for it, and wait for the
//! thread only if they return in the middle of a poll.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow};

use super::framing::poll_timeout_until;

/// The application is away if it has not called for this long.
const IDLE_THRESHOLD: Duration = Duration::from_millis(15);
/// While the application is away, the engine is polled at least this often.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// This many polls in a row without a wait mean that the engine does not consume the input that wakes the thread.
const MAX_BUSY_POLLS: u32 = 64;
const BUSY_BACKOFF: Duration = Duration::from_millis(1);
const STOP_EVENT: u64 = u64::MAX;

/// Whether the application's threads are inside the library.
#[derive(Debug, Default)]
pub struct ApplicationActivity {
    calls: AtomicU64,
    inside: AtomicU64,
}

/// An application thread is inside the library while this lives.
#[derive(Debug)]
pub struct LibraryCallGuard<'a> {
    activity: &'a ApplicationActivity,
}

impl ApplicationActivity {
    /// No thread is inside.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hold the guard during each call that may take long.
    #[inline]
    pub fn enter(&self) -> LibraryCallGuard<'_> {
        self.inside.fetch_add(1, Ordering::Relaxed);
        self.note_call();
        LibraryCallGuard { activity: self }
    }

    /// Notes a short call.
    #[inline]
    pub fn note_call(&self) {
        // Two threads at once may count as one call, which is still a call. An atomic addition would cost more than all else here.
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    fn snapshot(&self) -> ActivitySnapshot {
        ActivitySnapshot { calls: self.calls.load(Ordering::Relaxed), inside: self.inside.load(Ordering::Relaxed) }
    }
}

impl Drop for LibraryCallGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.activity.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct ActivitySnapshot {
    calls: u64,
    inside: u64,
}

impl ActivitySnapshot {
    /// True if no application thread has been inside between this snapshot and a later one.
    fn is_idle_until(self, later: Self) -> bool {
        self.calls == later.calls && later.inside == 0
    }
}

/// What the thread does after a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgressOutcome {
    /// Poll again at once: there is more to do.
    Again,
    /// Poll again when input arrives, or after this time.
    Wait(Duration),
    /// The lock was taken: the application is back.
    Busy,
}

/// The progress thread. Dropping it stops the thread after its current poll.
#[derive(Debug)]
pub struct ProgressThread {
    shared: Arc<ProgressShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ProgressShared {
    epoll: Epoll,
    stop: EventFd,
}

/// Starts a thread in a process that belongs to the application: its signals are for its own threads.
///
/// # Errors
/// The system has no threads left.
pub fn start_quiet_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // The new thread inherits the mask.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    mask.thread_set_mask()?;
    thread
}

impl ProgressThread {
    /// Starts the thread. `progress` takes the engine's lock with `try_lock`, polls the engine once without blocking and releases it.
    ///
    /// # Errors
    /// The system has no threads or descriptors left.
    pub fn start(
        activity: Arc<ApplicationActivity>,
        progress: impl FnMut() -> ProgressOutcome + Send + 'static,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP_EVENT))?;
        let shared = Arc::new(ProgressShared { epoll, stop });
        let progress_loop = ProgressLoop { shared: Arc::clone(&shared), activity, progress };
        let thread = start_quiet_thread("pleach", move || progress_loop.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// While the application is away, wakes the thread whenever this descriptor becomes readable. Closing the descriptor unwatches
    /// it.
    ///
    /// # Errors
    /// The descriptor cannot be polled, or is watched already.
    pub fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let number = u64::try_from(descriptor.as_raw_fd()).expect("descriptors are not negative");
        Ok(self.shared.epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, number))?)
    }

    /// Stops waking the thread for this descriptor.
    ///
    /// # Errors
    /// The descriptor was not watched.
    pub fn unwatch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.shared.epoll.delete(descriptor)?)
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        let _ = self.shared.stop.write(1);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

struct ProgressLoop<A> {
    shared: Arc<ProgressShared>,
    activity: Arc<ApplicationActivity>,
    progress: A,
}

/// Why a wait ended.
#[derive(PartialEq, Eq)]
enum WakeReason {
    Stop,
    Other,
}

impl<A: FnMut() -> ProgressOutcome> ProgressLoop<A> {
    fn run(mut self) {
        let mut seen = self.activity.snapshot();
        while self.sleep() == WakeReason::Other {
            let now = self.activity.snapshot();
            if seen.is_idle_until(now) && self.poll_while_away(now) == WakeReason::Stop {
                return;
            }
            seen = self.activity.snapshot();
        }
    }

    /// Polls the engine until the application is back.
    fn poll_while_away(&mut self, seen: ActivitySnapshot) -> WakeReason {
        let mut busy_polls = 0;
        while seen.is_idle_until(self.activity.snapshot()) {
            let pause = match (self.progress)() {
                ProgressOutcome::Busy => return WakeReason::Other,
                ProgressOutcome::Again => Duration::ZERO,
                ProgressOutcome::Wait(time) => time.min(MAX_POLL_INTERVAL),
            };
            let began = Instant::now();
            if self.wait_for(began + pause) == WakeReason::Stop {
                return WakeReason::Stop;
            }
            busy_polls = if began.elapsed() < Duration::from_micros(20) { busy_polls + 1 } else { 0 };
            if busy_polls >= MAX_BUSY_POLLS {
                std::thread::sleep(BUSY_BACKOFF);
                busy_polls = 0;
            }
        }
        WakeReason::Other
    }

    /// Waits for any watched descriptor.
    fn wait_for(&self, deadline: Instant) -> WakeReason {
        let mut events = [EpollEvent::empty(); 16];
        let count = self.shared.epoll.wait(&mut events, poll_timeout_until(deadline)).unwrap_or(0);
        if events[..count].iter().any(|event| event.data() == STOP_EVENT) || self.is_stopped() {
            return WakeReason::Stop;
        }
        WakeReason::Other
    }

    /// Among many ready descriptors, `epoll_wait` may omit the stop event.
    fn is_stopped(&self) -> bool {
        self.shared.stop.read().is_ok_and(|_| self.shared.stop.write(1).is_ok())
    }

    /// Sleeps for [`IDLE_THRESHOLD`], whatever arrives.
    fn sleep(&self) -> WakeReason {
        use nix::poll::{PollFd, PollFlags, poll};
        let deadline = Instant::now() + IDLE_THRESHOLD;
        let mut stop = [PollFd::new(self.shared.stop.as_fd(), PollFlags::POLLIN)];
        match poll(&mut stop, poll_timeout_until(deadline)) {
            Ok(1..) => WakeReason::Stop,
            _ => WakeReason::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::Mutex;

    /// An engine that drains a socket and counts its polls.
    struct Engine {
        socket: UdpSocket,
        polls: u32,
        received: u32,
    }

    fn engine() -> (Arc<Mutex<Engine>>, UdpSocket) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket.set_nonblocking(true).expect("nonblocking");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        sender.connect(socket.local_addr().expect("bound")).expect("bound");
        (Arc::new(Mutex::new(Engine { socket, polls: 0, received: 0 })), sender)
    }

    fn start(engine: &Arc<Mutex<Engine>>, activity: &Arc<ApplicationActivity>) -> ProgressThread {
        let shared = Arc::clone(engine);
        let thread = ProgressThread::start(Arc::clone(activity), move || {
            let Ok(mut engine) = shared.try_lock() else { return ProgressOutcome::Busy };
            engine.polls += 1;
            while engine.socket.recv(&mut [0; 8]).is_ok() {
                engine.received += 1;
            }
            ProgressOutcome::Wait(Duration::from_secs(9))
        });
        let thread = thread.expect("a thread");
        thread.watch(engine.lock().expect("not poisoned").socket.as_fd()).expect("a socket");
        thread
    }

    fn until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        while began.elapsed() < limit {
            if is_so() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    #[test]
    fn input_while_the_application_is_away_is_processed_at_once() {
        let (engine, sender) = engine();
        let activity = Arc::new(ApplicationActivity::new());
        let _attendant = start(&engine, &activity);
        assert!(until(Duration::from_secs(5), || engine.lock().expect("not poisoned").polls > 0));
        for count in 1..=20 {
            sender.send(b"hello").expect("loopback");
            let processed =
                until(Duration::from_millis(900), || engine.lock().expect("not poisoned").received == count);
            assert!(processed, "only the poll interval woke the thread");
        }
    }

    #[test]
    fn the_thread_sleeps_while_the_application_is_inside_or_calls_often() {
        // On a busy machine the scheduler may delay the calls for so long that the application counts as away.
        let idle = (0..10).any(|_| polls_while_the_application_calls_often() == 0);
        assert!(idle, "many short calls");
    }

    fn polls_while_the_application_calls_often() -> u64 {
        let (engine, sender) = engine();
        let activity = Arc::new(ApplicationActivity::new());
        // Entered before the thread starts, so that the thread never finds the application away.
        let inside = activity.enter();
        let _attendant = start(&engine, &activity);
        sender.send(b"hello").expect("loopback");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(engine.lock().expect("not poisoned").polls, 0, "one long call");
        drop(inside);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(100) {
            activity.note_call();
        }
        let polls = engine.lock().expect("not poisoned").polls;
        assert!(until(Duration::from_secs(5), || engine.lock().expect("not poisoned").received == 1), "away at last");
        u64::from(polls)
    }

    #[test]
    fn concurrent_calls_are_all_counted() {
        let activity = ApplicationActivity::new();
        let before = activity.snapshot();
        let (one, two) = (activity.enter(), activity.enter());
        drop(one);
        assert_eq!(activity.snapshot().inside, 1);
        drop(two);
        assert!(activity.snapshot().inside == 0 && !before.is_idle_until(activity.snapshot()));
    }

    #[test]
    fn an_engine_that_does_not_consume_its_input_does_not_burn_a_core() {
        let (engine, sender) = engine();
        sender.send(b"hello").expect("loopback");
        let activity = Arc::new(ApplicationActivity::new());
        let polls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&polls);
        let thread = ProgressThread::start(activity, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            ProgressOutcome::Wait(Duration::from_secs(1))
        });
        let thread = thread.expect("a thread");
        thread.watch(engine.lock().expect("not poisoned").socket.as_fd()).expect("a socket");
        std::thread::sleep(Duration::from_millis(200));
        drop(thread);
        // 64 polls per millisecond at most; without the limit it would be a million.
        let polls = polls.load(Ordering::Relaxed);
        assert!((1..=20_000).contains(&polls), "{polls}");
    }

    #[test]
    fn it_stops_at_once_in_every_state() {
        for time in [0, 5, 40] {
            let (engine, _) = engine();
            let thread = start(&engine, &Arc::new(ApplicationActivity::new()));
            std::thread::sleep(Duration::from_millis(time));
            let began = Instant::now();
            drop(thread);
            assert!(began.elapsed() < Duration::from_millis(500));
            assert_eq!(Arc::strong_count(&engine), 1, "the thread has ended");
        }
    }

    #[test]
    fn it_blocks_the_programs_signals() {
        let (engine, _) = engine();
        let _attendant = start(&engine, &Arc::new(ApplicationActivity::new()));
        let mask = |path: &std::path::Path| {
            let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
            let name = status.lines().find_map(|line| line.strip_prefix("Name:\t")).map(str::to_owned);
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).map(str::to_owned);
            name.zip(mask)
        };
        // A thread sets its own name, a moment after it was started.
        let began = Instant::now();
        let threads = loop {
            let tasks = std::fs::read_dir("/proc/self/task").expect("there is a /proc").flatten();
            let found: Vec<_> =
                tasks.filter_map(|task| mask(&task.path())).filter(|(name, _)| name == "pleach").collect();
            if !found.is_empty() || began.elapsed() > Duration::from_secs(10) {
                break found;
            }
        };
        assert!(!threads.is_empty());
        let wanted = [2, 10, 14, 15, 17].map(|signal| 1_u64 << (signal - 1)); // INT, USR1, ALRM, TERM, CHLD.
        for (_, mask) in threads {
            let mask = u64::from_str_radix(&mask, 16).expect("a hexadecimal number");
            assert!(wanted.iter().all(|bit| mask & bit != 0), "{mask:x}");
        }
        assert!(!SigSet::thread_get_mask().expect("it has one").contains(nix::sys::signal::Signal::SIGTERM));
    }
}
