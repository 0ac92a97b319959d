//! The progress engine behind its lock, and how threads wait for it: awake, on one multicast socket, or on all sockets.
//!
//! In: a condition on the engine. Out: the thread returns as soon as the condition holds; every thread that waits drives the engine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use engine::aggregation::{MulticastSocket, ReadySockets};
use engine::network::{LINGER, MAX_LINGER};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use units::Span;

use crate::progress_engine::ProgressEngine;
use crate::receive_backoff::ReceiveBackoff;

/// Whether ranks of this machine share CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CpuSharing {
    /// Each rank has a CPU of its own.
    Dedicated,
    /// There are a few ranks per CPU: one that yields while it waits is faster than one that sleeps and must be woken.
    Shared,
    /// There are many ranks per CPU: a rank that spins keeps others from the work that it waits for.
    Oversubscribed,
}

pub(crate) struct SharedEngine {
    engine: Mutex<ProgressEngine>,
    epoll: Epoll,
    /// Called by threads that wait long ([`crate::Settings::progress_callback`]).
    progress_callback: Option<fn()>,
    cpu_sharing: CpuSharing,
    /// Whether spinning has paid off recently: a credit in the lower 8 bits, and above them the waits that skipped spinning.
    spin_credit: AtomicU32,
    /// Whether to wait on the multicast socket alone.
    receive_backoff: ReceiveBackoff,
}

/// The epoll token of the failure detector. Sockets have their descriptor as token.
const FAILURE_DETECTOR_TOKEN: u64 = u64::MAX;
/// Sockets that one wake-up reports; the next one reports the rest.
const MAX_READY_SOCKETS: usize = 4;

const MAX_SPIN_CREDIT: u32 = 16;
/// Without credit, spinning is tried again after so many waits.
const WAITS_WITHOUT_SPINNING: u32 = 64;
/// Without progress for so long, a waiting thread lets others run, and then sleeps.
const SPIN: Span = Span::from_micros(30);
const YIELD: Span = Span::from_micros(500);
/// Bounded, because another thread may consume the packet that this one sleeps for.
const MAX_SLEEP: Duration = Duration::from_millis(20);
/// The same, where there is a progress callback to call.
const MAX_SLEEP_WITH_CALLBACK: Duration = Duration::from_millis(1);
/// Turns of spinning between two polls of the failure detector.
const TURNS_PER_EVENT_POLL: u32 = 256;

impl SharedEngine {
    pub(crate) fn new(
        engine: ProgressEngine,
        progress_callback: Option<fn()>,
        cpu_sharing: CpuSharing,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        if let Some(detector) = &engine.failure_detector {
            epoll.add(detector.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, FAILURE_DETECTOR_TOKEN))?;
        }
        let shared = Self {
            engine: Mutex::new(engine),
            epoll,
            progress_callback,
            cpu_sharing,
            spin_credit: MAX_SPIN_CREDIT.into(),
            receive_backoff: ReceiveBackoff::new(),
        };
        shared.watch_sockets()?;
        Ok(shared)
    }

    /// Adds every socket of the network to the epoll set that is not in it yet.
    pub(crate) fn watch_sockets(&self) -> io::Result<()> {
        for socket in self.engine().network.sockets() {
            match self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, socket.as_raw_fd() as u64)) {
                Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The engine. A panic while it was locked leaves it usable: its machines keep their own invariants.
    pub(crate) fn engine(&self) -> MutexGuard<'_, ProgressEngine> {
        self.engine.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn try_engine(&self) -> Option<MutexGuard<'_, ProgressEngine>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// The descriptor that becomes readable when there is work.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Drives the engine until `done` returns something: awake at first, if that has paid off recently, then asleep.
    ///
    /// A thread that sleeps makes two system calls per packet: one to wait, one to receive. On an oversubscribed machine they are
    /// most of an operation's cost. If the result can only arrive on one multicast socket, a blocking receive there does both.
    pub(crate) fn wait_for<R>(
        &self,
        multicast_socket: Option<&MulticastSocket>,
        mut done: impl FnMut(&mut ProgressEngine) -> Option<R>,
    ) -> R {
        if let Some(result) = done(&mut self.engine()) {
            return result;
        }
        if self.cpu_sharing != CpuSharing::Oversubscribed
            && let Some(result) = self.wait_spinning(&mut done)
        {
            return result;
        }
        if let Some(result) = multicast_socket.and_then(|socket| self.wait_on_multicast(socket, &mut done)) {
            return result;
        }
        self.wait_on_all_sockets(&mut done)
    }

    // Not inlined: the rare path stays apart from the code that runs with every operation.
    #[inline(never)]
    fn wait_on_all_sockets<R>(&self, done: &mut impl FnMut(&mut ProgressEngine) -> Option<R>) -> R {
        let mut callback_called = self.progress_callback.map(|_| Instant::now());
        loop {
            // By time and not by packet: packets may be frequent, and the callback may take long.
            if callback_called.is_some_and(|called| called.elapsed() >= MAX_SLEEP_WITH_CALLBACK) {
                self.call_progress_callback();
                callback_called = Some(Instant::now());
            }
            let wakeup = self.sleep();
            let mut engine = self.engine();
            match wakeup.sockets() {
                Some(sockets) => {
                    engine.progress_at(ReadySockets::These(sockets));
                }
                None => {
                    engine.progress();
                    engine.poll_events();
                }
            }
            if let Some(result) = done(&mut engine) {
                return result;
            }
        }
    }

    #[inline(never)]
    fn wait_spinning<R>(&self, done: &mut impl FnMut(&mut ProgressEngine) -> Option<R>) -> Option<R> {
        let credit = self.spin_credit.load(Relaxed);
        if credit & 0xff == 0 && credit >> 8 < WAITS_WITHOUT_SPINNING {
            self.spin_credit.store(credit + (1 << 8), Relaxed);
            return None;
        }
        let mut progressed = None;
        let mut turns = 0_u32;
        loop {
            let mut engine = self.engine();
            let was_busy = engine.progress();
            turns += 1;
            if turns.is_multiple_of(TURNS_PER_EVENT_POLL) {
                engine.poll_events();
            }
            if let Some(result) = done(&mut engine) {
                self.spin_credit.store((credit & 0xff).saturating_add(1).min(MAX_SPIN_CREDIT), Relaxed);
                return Some(result);
            }
            // The turn has read the clock.
            let now = engine.network.now();
            drop(engine);
            let idle = now.since(*progressed.get_or_insert(now));
            if was_busy {
                progressed = Some(now);
            } else if idle > YIELD {
                break;
            } else if self.cpu_sharing == CpuSharing::Shared || idle > SPIN {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        self.spin_credit.store((credit & 0xff).saturating_sub(1), Relaxed);
        None
    }

    /// Waits on the multicast socket alone, if results have arrived there recently.
    fn wait_on_multicast<R>(
        &self,
        socket: &MulticastSocket,
        done: &mut impl FnMut(&mut ProgressEngine) -> Option<R>,
    ) -> Option<R> {
        if !self.receive_backoff.may_start() {
            return None;
        }
        while self.receive_backoff.may_continue() {
            let Some(packets) = socket.receive_blocking() else {
                self.receive_backoff.note_timeout();
                self.call_progress_callback();
                return None;
            };
            self.receive_backoff.note_received();
            let mut engine = self.engine();
            engine.progress_at(ReadySockets::Taken(&packets));
            if let Some(result) = done(&mut engine) {
                return Some(result);
            }
        }
        None
    }

    /// Calls the progress callback, if there is one. The engine must not be locked.
    pub(crate) fn call_progress_callback(&self) {
        if let Some(callback) = self.progress_callback {
            callback();
        }
    }

    /// Answers other ranks until none needs this process: until all leave, or for [`LINGER`] after everything sent was acknowledged.
    pub(crate) fn linger(&self, size: u32) {
        self.engine().announce_leaving();
        let began = Instant::now();
        let mut drained = None;
        loop {
            let mut engine = self.engine();
            engine.progress();
            engine.poll_events();
            if engine.may_leave(size) || began.elapsed() > MAX_LINGER {
                return;
            }
            drained = if engine.network.is_drained() { drained.or_else(|| Some(Instant::now())) } else { None };
            drop(engine);
            if drained.is_some_and(|since| since.elapsed() > LINGER) {
                return;
            }
            self.sleep();
        }
    }

    /// Serves the other ranks while this one is their coordinator.
    pub(crate) fn coordinate_until_not_needed(&self, timeout: Duration) {
        let began = Instant::now();
        while self.engine().is_coordinator_needed() && began.elapsed() < timeout {
            self.sleep();
            let mut engine = self.engine();
            engine.progress();
            engine.poll_events();
        }
    }

    /// Sleeps until a packet or an event arrives, or a timer is due.
    fn sleep(&self) -> EngineWakeup {
        let max_sleep = if self.progress_callback.is_some() { MAX_SLEEP_WITH_CALLBACK } else { MAX_SLEEP };
        // Not until the failure detector's next timer: a sleep is short anyway.
        let mut engine = self.engine();
        let has_new_sockets = std::mem::take(&mut engine.has_new_sockets);
        let timeout = engine.network.next_timeout().unwrap_or(max_sleep).min(max_sleep);
        drop(engine);
        if has_new_sockets {
            let _ = self.watch_sockets(); // Otherwise the next sleep is as long as it may be.
        }
        let timeout =
            EpollTimeout::try_from(timeout.as_nanos().div_ceil(1_000_000) as u32).unwrap_or(EpollTimeout::ZERO);
        let mut events = [EpollEvent::empty(); MAX_READY_SOCKETS];
        let mut wakeup = EngineWakeup { sockets: [0; MAX_READY_SOCKETS], count: 0 };
        // After an event of the failure detector, a timeout or a signal, the caller looks at everything.
        let Ok(count) = self.epoll.wait(&mut events, timeout) else { return wakeup };
        if events[..count].iter().all(|event| event.data() != FAILURE_DETECTOR_TOKEN) {
            events[..count]
                .iter()
                .zip(&mut wakeup.sockets)
                .for_each(|(event, socket)| *socket = event.data() as RawFd);
            wakeup.count = count;
        }
        wakeup
    }
}

/// Why a sleep ended.
struct EngineWakeup {
    sockets: [RawFd; MAX_READY_SOCKETS],
    count: usize,
}

impl EngineWakeup {
    /// The ready sockets, if nothing else ended the sleep.
    fn sockets(&self) -> Option<&[RawFd]> {
        (self.count > 0).then(|| &self.sockets[..self.count])
    }
}
