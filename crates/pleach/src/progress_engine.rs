//! What a process has one of: its network, its lifeline, its word with the manager. Turned by whoever waits.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bootstrap::{FailureDetector, OobTarget, RankEvent};
use control::{ManagerClient, ManagerNotification};
use engine::aggregation::{MulticastSocket, ReadySockets};
use engine::network::{LINGER, LeaderNetwork, MAX_LINGER};
use manager::message::GroupKey;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use serde::{Deserialize, Serialize};
use units::{GroupId, Rank};

use crate::Error;
use crate::receive_backoff::ReceiveBackoff;

/// What ranks tell each other beside operations.
#[derive(Serialize, Deserialize)]
enum RankMessage {
    /// A communicator cannot be used any more, for those who share our memory.
    Verdict { context: u32, disagree: String },
    /// Nor for anybody else: something does not work, or a rank that lives cannot be reached.
    Failed { context: u32, unreachable: Option<u32>, what: String },
    /// A leader does not use a communicator any more; to its first rank.
    Freed { context: u32 },
    /// A rank has done its last operation; to rank 0.
    Leaving,
    /// All have; from rank 0.
    AllLeave,
}

pub(crate) struct ProgressEngine {
    pub network: LeaderNetwork,
    pub lifeline: Option<FailureDetector>,
    /// Our word with the manager, if this process has asked it for anything.
    pub manager: Option<ManagerClient>,
    /// The first rank that was lost.
    lost: Vec<u32>,
    /// Who went in peace, and when.
    left: Vec<(u32, Instant)>,
    verdicts: BTreeMap<GroupId, Error>,
    /// The first rank of each communicator between hosts, in the communicator of all.
    owners: BTreeMap<GroupId, u32>,
    /// The trees that this process asked for, and how many leaders still use them.
    trees: BTreeMap<GroupId, (GroupKey, usize)>,
    /// Who has done its last operation, and whether all have.
    leaving: BTreeSet<u32>,
    all_leave: bool,
}

impl ProgressEngine {
    pub(crate) fn new(network: LeaderNetwork, lifeline: FailureDetector) -> Self {
        Self {
            network,
            lifeline: Some(lifeline),
            manager: None,
            lost: Vec::new(),
            left: Vec::new(),
            verdicts: BTreeMap::new(),
            owners: BTreeMap::new(),
            trees: BTreeMap::new(),
            leaving: BTreeSet::new(),
            all_leave: false,
        }
    }

    /// Does everything that can be done now; true if something was.
    pub(crate) fn turn(&mut self) -> bool {
        self.turn_at(ReadySockets::Any)
    }

    /// The same, where something is known to have come.
    fn turn_at(&mut self, ready: ReadySockets<'_>) -> bool {
        let busy = self.network.turn_at(ready);
        while let Some(context) = self.network.next_departed() {
            if let Some(owner) = self.owners.remove(&context) {
                self.say(OobTarget::Rank(owner), &RankMessage::Freed { context: context.0 });
            }
        }
        busy
    }

    /// The leaders of a communicator come together; its first rank looks after the tree, if it gets one.
    pub(crate) fn enter(&mut self, context: GroupId, leaders: Vec<Rank>, me: Rank) {
        self.owners.insert(context, leaders[0].0);
        self.network.enter(context, leaders, me);
    }

    /// This process asked for a tree that so many leaders use.
    pub(crate) fn own_tree(&mut self, context: GroupId, key: GroupKey, leaders: usize) {
        self.trees.insert(context, (key, leaders));
    }

    /// The tree that this process asked for is not used after all.
    pub(crate) fn disown_tree(&mut self, context: GroupId) {
        if let (Some((key, _)), Some(manager)) = (self.trees.remove(&context), &mut self.manager) {
            let _ = manager.close_group(key); // It goes with the job at the latest.
        }
    }

    fn say(&mut self, to: OobTarget, word: &RankMessage) {
        if let (Some(lifeline), Ok(bytes)) = (&mut self.lifeline, serde_json::to_vec(word)) {
            let _ = lifeline.say(to, &bytes); // Whoever cannot hear it has left or is lost.
        }
    }

    /// Hears what happened to the others.
    pub(crate) fn listen(&mut self) {
        self.hear_manager();
        while let Some(news) = self.lifeline.as_mut().and_then(FailureDetector::turn) {
            match news {
                RankEvent::Lost { rank } => {
                    self.lost.push(rank);
                    self.network.rank_lost(Rank(rank));
                }
                RankEvent::Left { rank } => {
                    self.left.push((rank, Instant::now()));
                    self.network.rank_left(Rank(rank));
                }
                RankEvent::Said { from, bytes } => {
                    if let Ok(word) = serde_json::from_slice(&bytes) {
                        self.hear(from, word);
                    }
                }
            }
        }
    }

    fn hear(&mut self, from: u32, word: RankMessage) {
        match word {
            RankMessage::Verdict { context, disagree } => {
                self.verdicts.entry(GroupId(context)).or_insert(Error::Disagree { what: disagree });
            }
            RankMessage::Failed { context, unreachable, what } => {
                let error = unreachable.map_or(Error::Broken { what }, |rank| Error::RankLost { rank });
                self.verdicts.entry(GroupId(context)).or_insert(error);
            }
            RankMessage::Freed { context } => {
                let context = GroupId(context);
                let Some((key, users)) = self.trees.get_mut(&context) else { return };
                *users = users.saturating_sub(1);
                if *users == 0 {
                    if let Some(manager) = &mut self.manager {
                        let _ = manager.close_group(*key); // It goes with the job at the latest.
                    }
                    self.trees.remove(&context);
                }
            }
            RankMessage::Leaving => {
                self.leaving.insert(from);
            }
            RankMessage::AllLeave => self.all_leave = true,
        }
    }

    /// This process has done its last operation.
    pub(crate) fn begin_to_leave(&mut self, me: u32) {
        if me == 0 {
            self.leaving.insert(0);
        } else {
            self.say(OobTarget::Rank(0), &RankMessage::Leaving);
        }
    }

    /// True if nobody needs this process any more. Only rank 0 hears of everyone; it tells the others.
    pub(crate) fn may_leave(&mut self, me: u32, size: u32) -> bool {
        if me == 0 && !self.all_leave {
            let gone = self.lost.iter().filter(|rank| !self.leaving.contains(rank)).count();
            self.all_leave = self.leaving.len() + gone >= size as usize;
            if self.all_leave {
                self.say(OobTarget::All, &RankMessage::AllLeave);
            }
        }
        self.all_leave
    }

    /// Hears what the manager has to say of our groups.
    fn hear_manager(&mut self) {
        while let Some(notice) = self.manager.as_mut().and_then(ManagerClient::poll_notice) {
            match notice {
                ManagerNotification::Revoked { group, .. } => self.network.tree_lost(group),
                // The trees go, one by one, and the hosts do without.
                ManagerNotification::JobRevoked { .. } => {}
            }
        }
    }

    /// Why a communicator of these ranks cannot be used any more, if so.
    pub(crate) fn verdict(&self, context: GroupId, ranks: &[u32]) -> Option<Error> {
        let lost = self.lost.iter().find(|lost| ranks.contains(lost));
        let lost = lost.map(|rank| Error::RankLost { rank: *rank });
        lost.or_else(|| self.verdicts.get(&context).cloned())
    }

    /// One of these ranks has left, and what we have been waiting for since `since` has not come: it never will.
    pub(crate) fn desertion(&self, ranks: &[u32], since: &mut Option<Instant>) -> Option<Error> {
        if self.left.is_empty() {
            return None;
        }
        let since = *since.get_or_insert_with(Instant::now);
        let (rank, _) = self.left.iter().find(|(rank, left)| {
            ranks.contains(rank) && left.elapsed() > DESERTED_AFTER && since.elapsed() > DESERTED_AFTER
        })?;
        Some(Error::RankLost { rank: *rank })
    }

    /// Tells others that a communicator cannot be used any more: those who share our memory if the ranks disagree, which other hosts
    /// find out by themselves; everyone if it is something else, unless it is a death, of which everyone hears.
    pub(crate) fn condemn(&mut self, context: GroupId, error: &Error, beside: &[u32], everyone: &[u32]) {
        if self.verdicts.insert(context, error.clone()).is_some() {
            return;
        }
        let failed = |unreachable| RankMessage::Failed { context: context.0, unreachable, what: error.to_string() };
        let (word, to) = match error {
            Error::Disagree { what } => (RankMessage::Verdict { context: context.0, disagree: what.clone() }, beside),
            Error::RankLost { rank } if !self.lost.contains(rank) => (failed(Some(*rank)), everyone),
            Error::Broken { .. } => (failed(None), everyone),
            Error::RankLost { .. } | Error::Argument { .. } => return,
        };
        for rank in to {
            self.say(OobTarget::Rank(*rank), &word);
        }
    }

    pub(crate) fn forget(&mut self, context: GroupId) {
        self.network.leave(context);
        self.verdicts.remove(&context);
    }
}

/// Whom the processors of this machine belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CpuSharing {
    /// Each rank has one.
    Own,
    /// Ranks share them: whoever waits awake keeps another from what it waits for.
    Shared,
}

/// The engine behind its lock, and what to sleep on without it.
pub(crate) struct SharedEngine {
    engine: Mutex<ProgressEngine>,
    epoll: Epoll,
    /// What whoever waits long calls now and then ([`crate::Settings::companion`]).
    companion: Option<fn()>,
    processors: CpuSharing,
    /// Where this rank belongs, if it shares them.
    /// How often waiting awake has paid of late.
    luck: AtomicU32,
    /// Whether to wait at an ear.
    habit: ReceiveBackoff,
}

/// What there is to wait for: news, or packets at a socket, by its number.
const NEWS: u64 = u64::MAX;
/// Sockets of which one sleep tells; if there are more, the next tells of those.
const MOST_READY: usize = 4;

const MOST_LUCK: u32 = 16;
/// Whoever had no luck tries again now and then.
const TRY_AGAIN: u32 = 64;
const SPIN: Duration = Duration::from_micros(30);
/// Another thread may take what woke us: nobody sleeps for longer.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// Nor for longer than this, where a companion wants to be called.
const COMPANIONS_SLEEP: Duration = Duration::from_millis(1);
/// What a rank said before it left has come by then.
const DESERTED_AFTER: Duration = Duration::from_secs(2);
/// How often those who wait awake look at the lifeline.
const LISTEN_EVERY: u32 = 256;

impl SharedEngine {
    pub(crate) fn new(engine: ProgressEngine, companion: Option<fn()>, processors: CpuSharing) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        if let Some(lifeline) = &engine.lifeline {
            epoll.add(lifeline.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, NEWS))?;
        }
        let shared = Self {
            engine: Mutex::new(engine),
            epoll,
            companion,
            processors,
            luck: MOST_LUCK.into(),
            habit: ReceiveBackoff::new(),
        };
        shared.watch_sockets()?;
        Ok(shared)
    }

    /// Waits for packets on every socket that the network has by now.
    pub(crate) fn watch_sockets(&self) -> io::Result<()> {
        for socket in self.engine().network.sockets() {
            match self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, socket.as_raw_fd() as u64)) {
                Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The engine. A thread that panicked in it leaves it as it was: the machines keep their own order.
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

    /// What to wait on.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Turns the engine until `done` has something: awake at first, if that has paid of late, then asleep.
    ///
    /// Whoever sleeps makes two system calls for each thing that comes: one to wait, one to take it. On a crowded machine that
    /// is what an operation costs. Where it is known at which ear the result will be heard, both are one.
    pub(crate) fn wait_for<R>(
        &self,
        ear: Option<&MulticastSocket>,
        mut done: impl FnMut(&mut ProgressEngine) -> Option<R>,
    ) -> R {
        if let Some(result) = done(&mut self.engine()) {
            return result;
        }
        if self.processors == CpuSharing::Own
            && let Some(result) = self.wait_awake(&mut done)
        {
            return result;
        }
        if let Some(result) = ear.and_then(|ear| self.wait_at(ear, &mut done)) {
            return result;
        }
        self.wait_everywhere(&mut done)
    }

    /// Waits at all sockets. Apart, as all that is rare: what happens with every operation stays together.
    #[inline(never)]
    fn wait_everywhere<R>(&self, done: &mut impl FnMut(&mut ProgressEngine) -> Option<R>) -> R {
        let mut companion_called = self.companion.map(|_| Instant::now());
        loop {
            // Not each time that something comes: that may be often, and the companion may take long.
            if companion_called.is_some_and(|called| called.elapsed() >= COMPANIONS_SLEEP) {
                self.call_companion();
                companion_called = Some(Instant::now());
            }
            let woken = self.sleep();
            let mut engine = self.engine();
            match woken.sockets() {
                Some(sockets) => {
                    engine.turn_at(ReadySockets::These(sockets));
                }
                None => {
                    engine.turn();
                    engine.listen();
                }
            }
            if let Some(result) = done(&mut engine) {
                return result;
            }
        }
    }

    #[inline(never)]
    fn wait_awake<R>(&self, done: &mut impl FnMut(&mut ProgressEngine) -> Option<R>) -> Option<R> {
        let luck = self.luck.load(Relaxed);
        if luck & 0xff == 0 && luck >> 8 < TRY_AGAIN {
            self.luck.store(luck + (1 << 8), Relaxed);
            return None;
        }
        let began = Instant::now();
        let mut turns = 0_u32;
        while began.elapsed() < SPIN {
            let mut engine = self.engine();
            engine.turn();
            turns += 1;
            if turns.is_multiple_of(LISTEN_EVERY) {
                engine.listen();
            }
            if let Some(result) = done(&mut engine) {
                self.luck.store((luck & 0xff).saturating_add(1).min(MOST_LUCK), Relaxed);
                return Some(result);
            }
            drop(engine);
            std::hint::spin_loop();
        }
        self.luck.store((luck & 0xff).saturating_sub(1), Relaxed);
        None
    }

    /// Waits for a result at its ear only, if results have come there of late.
    fn wait_at<R>(
        &self,
        ear: &MulticastSocket,
        done: &mut impl FnMut(&mut ProgressEngine) -> Option<R>,
    ) -> Option<R> {
        if !self.habit.begins_at_ear() {
            return None;
        }
        while self.habit.may_go_on() {
            let Some(heard) = ear.listen() else {
                self.habit.note_silence();
                self.call_companion();
                return None;
            };
            self.habit.note_heard();
            let mut engine = self.engine();
            engine.turn_at(ReadySockets::Taken(&heard));
            if let Some(result) = done(&mut engine) {
                return Some(result);
            }
        }
        None
    }

    /// Lets the companion have a turn, if there is one. Not under the engine's lock.
    pub(crate) fn call_companion(&self) {
        if let Some(companion) = self.companion {
            companion();
        }
    }

    /// Answers until nobody can need it: until all leave, or for a while after the last word was acknowledged.
    pub(crate) fn linger(&self, me: u32, size: u32) {
        self.engine().begin_to_leave(me);
        let began = Instant::now();
        let mut drained = None;
        loop {
            let mut engine = self.engine();
            engine.turn();
            engine.listen();
            if engine.may_leave(me, size) || began.elapsed() > MAX_LINGER {
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

    /// Sleeps until something comes or is due.
    pub(crate) fn sleep(&self) -> EngineWakeup {
        let longest = if self.companion.is_some() { COMPANIONS_SLEEP } else { LONGEST_SLEEP };
        let patience = self.engine().network.patience().unwrap_or(longest).min(longest);
        let timeout =
            EpollTimeout::try_from(patience.as_nanos().div_ceil(1_000_000) as u32).unwrap_or(EpollTimeout::ZERO);
        let mut events = [EpollEvent::empty(); MOST_READY];
        let mut woken = EngineWakeup { sockets: [0; MOST_READY], count: 0 };
        // By news, by the time, or by a signal: then everything is looked at.
        let Ok(count) = self.epoll.wait(&mut events, timeout) else { return woken };
        if events[..count].iter().all(|event| event.data() != NEWS) {
            events[..count]
                .iter()
                .zip(&mut woken.sockets)
                .for_each(|(event, socket)| *socket = event.data() as RawFd);
            woken.count = count;
        }
        woken
    }
}

/// Why a sleep ended.
pub(crate) struct EngineWakeup {
    sockets: [RawFd; MOST_READY],
    count: usize,
}

impl EngineWakeup {
    /// The sockets that something has come to, if that is all.
    fn sockets(&self) -> Option<&[RawFd]> {
        (self.count > 0).then(|| &self.sockets[..self.count])
    }
}
