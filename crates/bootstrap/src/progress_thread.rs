//! A thread that looks after the network while the user's threads are elsewhere.
//!
//! As long as the user calls the library often enough, the thread only sleeps. When the user is away it runs turns of
//! the engine, and between them waits for something to come. The user's calls pay a few additions for it, and never wait for
//! the thread unless they come back in the middle of a turn.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow};

use super::message_stream::poll_timeout_until;

/// The user is away who has not called for so long.
const IDLE_THRESHOLD: Duration = Duration::from_millis(15);
/// While the user is away, a turn is taken at least so often.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// So many turns in a row without a wait mean that a turn does not take what wakes us.
const MAX_BUSY_POLLS: u32 = 64;
const BUSY_BACKOFF: Duration = Duration::from_millis(1);
const STOP_EVENT: u64 = u64::MAX;

/// Where the user's threads are: inside the library, or elsewhere.
#[derive(Debug, Default)]
pub struct ApplicationActivity {
    calls: AtomicU64,
    inside: AtomicU64,
}

/// A thread of the user is inside the library as long as this lives.
#[derive(Debug)]
pub struct LibraryCallGuard<'a> {
    presence: &'a ApplicationActivity,
}

impl ApplicationActivity {
    /// Nobody is inside.
    pub fn new() -> Self {
        Self::default()
    }

    /// To be held during each call of the user that may take long.
    #[inline]
    pub fn enter(&self) -> LibraryCallGuard<'_> {
        self.inside.fetch_add(1, Ordering::Relaxed);
        self.touch();
        LibraryCallGuard { presence: self }
    }

    /// The user calls, and will be gone again in a moment.
    #[inline]
    pub fn touch(&self) {
        // Two threads at once may count as one call, which is still a call. To add in one step would take longer than all else.
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    fn look(&self) -> ActivitySnapshot {
        ActivitySnapshot { calls: self.calls.load(Ordering::Relaxed), inside: self.inside.load(Ordering::Relaxed) }
    }
}

impl Drop for LibraryCallGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.presence.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct ActivitySnapshot {
    calls: u64,
    inside: u64,
}

impl ActivitySnapshot {
    /// True if no user has been inside between this look and a later one.
    fn is_undisturbed(self, later: Self) -> bool {
        self.calls == later.calls && later.inside == 0
    }
}

/// What the attendant is to do after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgressOutcome {
    /// The next turn at once: there is more to do.
    Again,
    /// The next turn when something comes, or after this time.
    Wait(Duration),
    /// The lock was taken, so a user is back.
    Busy,
}

/// The thread. Dropped, it ends, after the turn in which it may be.
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

impl ProgressThread {
    /// Starts the thread. `attend` takes the engine's lock with `try_lock`, runs one turn without blocking and lets go.
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
    pub fn start(
        presence: Arc<ApplicationActivity>,
        attend: impl FnMut() -> ProgressOutcome + Send + 'static,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP_EVENT))?;
        let shared = Arc::new(ProgressShared { epoll, stop });
        let round = ProgressLoop { shared: Arc::clone(&shared), presence, attend };
        // The new thread inherits the mask: the program's signals are not for it.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let thread = std::thread::Builder::new().name("pleach".to_owned()).spawn(move || round.run());
        mask.thread_set_mask()?;
        Ok(Self { shared, thread: Some(thread?) })
    }

    /// Wakes the thread for this descriptor, while the user is away, whenever it becomes readable. It is forgotten when it is
    /// closed.
    ///
    /// # Errors
    /// The descriptor cannot be waited for, or is watched already.
    pub fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let number = u64::try_from(descriptor.as_raw_fd()).expect("descriptors are not negative");
        Ok(self.shared.epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, number))?)
    }

    /// Does not wake the thread for this one any more.
    ///
    /// # Errors
    /// It was not watched.
    pub fn forget(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
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
    presence: Arc<ApplicationActivity>,
    attend: A,
}

/// Why a wait ended.
#[derive(PartialEq, Eq)]
enum WakeReason {
    Stop,
    Other,
}

impl<A: FnMut() -> ProgressOutcome> ProgressLoop<A> {
    fn run(mut self) {
        let mut seen = self.presence.look();
        while self.doze() == WakeReason::Other {
            let look = self.presence.look();
            if seen.is_undisturbed(look) && self.serve(look) == WakeReason::Stop {
                return;
            }
            seen = self.presence.look();
        }
    }

    /// Takes turns until the user is back.
    fn serve(&mut self, seen: ActivitySnapshot) -> WakeReason {
        let mut restless = 0;
        while seen.is_undisturbed(self.presence.look()) {
            let pause = match (self.attend)() {
                ProgressOutcome::Busy => return WakeReason::Other,
                ProgressOutcome::Again => Duration::ZERO,
                ProgressOutcome::Wait(time) => time.min(MAX_POLL_INTERVAL),
            };
            let began = Instant::now();
            if self.wait_for(began + pause) == WakeReason::Stop {
                return WakeReason::Stop;
            }
            restless = if began.elapsed() < Duration::from_micros(20) { restless + 1 } else { 0 };
            if restless >= MAX_BUSY_POLLS {
                std::thread::sleep(BUSY_BACKOFF);
                restless = 0;
            }
        }
        WakeReason::Other
    }

    /// Waits for anything that is watched.
    fn wait_for(&self, deadline: Instant) -> WakeReason {
        let mut events = [EpollEvent::empty(); 16];
        let count = self.shared.epoll.wait(&mut events, poll_timeout_until(deadline)).unwrap_or(0);
        if events[..count].iter().any(|event| event.data() == STOP_EVENT) || self.is_stopped() {
            return WakeReason::Stop;
        }
        WakeReason::Other
    }

    /// Among many ready descriptors the one that says stop may be left out.
    fn is_stopped(&self) -> bool {
        self.shared.stop.read().is_ok_and(|_| self.shared.stop.write(1).is_ok())
    }

    /// Sleeps for a while, whatever comes.
    fn doze(&self) -> WakeReason {
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

    /// An engine that empties a socket and counts its turns.
    struct Engine {
        socket: UdpSocket,
        turns: u32,
        heard: u32,
    }

    fn engine() -> (Arc<Mutex<Engine>>, UdpSocket) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket.set_nonblocking(true).expect("it can");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        sender.connect(socket.local_addr().expect("bound")).expect("it is there");
        (Arc::new(Mutex::new(Engine { socket, turns: 0, heard: 0 })), sender)
    }

    fn start(engine: &Arc<Mutex<Engine>>, presence: &Arc<ApplicationActivity>) -> ProgressThread {
        let shared = Arc::clone(engine);
        let attendant = ProgressThread::start(Arc::clone(presence), move || {
            let Ok(mut engine) = shared.try_lock() else { return ProgressOutcome::Busy };
            engine.turns += 1;
            while engine.socket.recv(&mut [0; 8]).is_ok() {
                engine.heard += 1;
            }
            ProgressOutcome::Wait(Duration::from_secs(9))
        });
        let attendant = attendant.expect("a thread");
        attendant.watch(engine.lock().expect("nobody panics").socket.as_fd()).expect("a socket");
        attendant
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
    fn what_comes_while_the_user_is_away_is_taken_at_once() {
        let (engine, sender) = engine();
        let presence = Arc::new(ApplicationActivity::new());
        let _attendant = start(&engine, &presence);
        assert!(until(Duration::from_secs(5), || engine.lock().expect("sound").turns > 0));
        for count in 1..=20 {
            sender.send(b"hello").expect("loopback");
            let taken = until(Duration::from_millis(900), || engine.lock().expect("sound").heard == count);
            assert!(taken, "not before the longest wait was over");
        }
    }

    #[test]
    fn while_the_user_is_inside_or_calls_often_the_thread_keeps_away() {
        // On a busy machine the user may be kept from calling for so long that it counts as away.
        let undisturbed = (0..10).any(|_| turns_while_the_user_calls_often() == 0);
        assert!(undisturbed, "many short calls");
    }

    fn turns_while_the_user_calls_often() -> u64 {
        let (engine, sender) = engine();
        let presence = Arc::new(ApplicationActivity::new());
        // Present before the thread is, so that it never finds the user away.
        let inside = presence.enter();
        let _attendant = start(&engine, &presence);
        sender.send(b"hello").expect("loopback");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(engine.lock().expect("sound").turns, 0, "one long call");
        drop(inside);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(100) {
            presence.touch();
        }
        let turns = engine.lock().expect("sound").turns;
        assert!(until(Duration::from_secs(5), || engine.lock().expect("sound").heard == 1), "away at last");
        u64::from(turns)
    }

    #[test]
    fn two_users_are_both_counted() {
        let presence = ApplicationActivity::new();
        let before = presence.look();
        let (one, two) = (presence.enter(), presence.enter());
        drop(one);
        assert_eq!(presence.look().inside, 1);
        drop(two);
        assert!(presence.look().inside == 0 && !before.is_undisturbed(presence.look()));
    }

    #[test]
    fn an_engine_that_does_not_take_what_wakes_it_does_not_burn_a_core() {
        let (engine, sender) = engine();
        sender.send(b"hello").expect("loopback");
        let presence = Arc::new(ApplicationActivity::new());
        let turns = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&turns);
        let attendant = ProgressThread::start(presence, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            ProgressOutcome::Wait(Duration::from_secs(1))
        });
        let attendant = attendant.expect("a thread");
        attendant.watch(engine.lock().expect("sound").socket.as_fd()).expect("a socket");
        std::thread::sleep(Duration::from_millis(200));
        drop(attendant);
        // 64 turns a millisecond at most; unchecked it would be a million.
        let turns = turns.load(Ordering::Relaxed);
        assert!((1..=20_000).contains(&turns), "{turns}");
    }

    #[test]
    fn it_ends_at_once_wherever_it_is() {
        for time in [0, 5, 40] {
            let (engine, _) = engine();
            let attendant = start(&engine, &Arc::new(ApplicationActivity::new()));
            std::thread::sleep(Duration::from_millis(time));
            let began = Instant::now();
            drop(attendant);
            assert!(began.elapsed() < Duration::from_millis(500));
            assert_eq!(Arc::strong_count(&engine), 1, "the thread is gone");
        }
    }

    #[test]
    fn the_programs_signals_are_not_for_it() {
        let (engine, _) = engine();
        let _attendant = start(&engine, &Arc::new(ApplicationActivity::new()));
        let mask = |path: &std::path::Path| {
            let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
            let name = status.lines().find_map(|line| line.strip_prefix("Name:\t")).map(str::to_owned);
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).map(str::to_owned);
            name.zip(mask)
        };
        // A thread gives itself its name, a moment after it was started.
        let began = Instant::now();
        let attendants = loop {
            let tasks = std::fs::read_dir("/proc/self/task").expect("there is a /proc").flatten();
            let found: Vec<_> =
                tasks.filter_map(|task| mask(&task.path())).filter(|(name, _)| name == "pleach").collect();
            if !found.is_empty() || began.elapsed() > Duration::from_secs(10) {
                break found;
            }
        };
        assert!(!attendants.is_empty());
        let wanted = [2, 10, 14, 15, 17].map(|signal| 1_u64 << (signal - 1)); // INT, USR1, ALRM, TERM, CHLD.
        for (_, mask) in attendants {
            let mask = u64::from_str_radix(&mask, 16).expect("a hexadecimal number");
            assert!(wanted.iter().all(|bit| mask & bit != 0), "{mask:x}");
        }
        assert!(!SigSet::thread_get_mask().expect("it has one").contains(nix::sys::signal::Signal::SIGTERM));
    }
}
