//! A rank's part in failure detection: its links, its role, and what it forwards.
//!
//! In: connections, and messages of the application. Out: [`RankEvent`]s. [`JobMembership`] decides; this does its I/O. The coordinator
//! has a link to every other rank and forwards messages between them; every other rank has one link, to the coordinator.
//! `dialing.rs` opens connections to other ranks, `accepting.rs` takes theirs.
//!
//! A message for a rank whose link is full stays in the sender's connections, which are not read meanwhile. So memory is bounded,
//! order is kept, and a rank that has stopped reading stalls only those that write to it, until the kernel closes its connections.

mod accepting;
mod dialing;
mod leaving;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::attach_request::{decode_left, decode_verdict, encode_left, encode_verdict, max_body_bytes};
use super::file_limit::raise_file_limit;
use super::framing::{FramedStream, poll_timeout_until};
use super::link::{Link, NO_PATH};
use super::membership::{JobMembership, LinkEnd, LossVerdict, MembershipAction, VerdictKind};
use super::rank_event::{ALL_RANKS, MAX_BODY_BYTES, MAX_QUEUED_EVENTS, OobSendError, OobTarget, RankEvent};
use super::rendezvous_message::{MAX_READ_BYTES, RendezvousMessageKind, encode_message};
use super::token_key::TokenKey;
use accepting::AcceptedConnection;
use dialing::Dial;

/// Connections that one call processes.
const MAX_EVENTS_PER_POLL: usize = 128;

/// What a member knows about its job.
#[derive(Debug)]
pub(super) struct DetectorConfig {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) key: TokenKey,
    /// Where each rank accepts connections, one address for each path.
    pub(super) ports: Vec<Vec<SocketAddr>>,
    /// The host of each rank.
    pub(super) hosts: Vec<u32>,
    pub(super) peer_timeout: Duration,
}

/// Who handles the events of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectionOwner {
    Listener(usize),
    Link(u32),
    Accepted,
    Dial,
}

#[derive(Debug)]
pub(super) struct Member {
    config: DetectorConfig,
    membership: JobMembership,
    epoll: Epoll,
    listeners: Vec<TcpListener>,
    /// Numbers of connections are never reused, so that a stale epoll event finds none.
    next_id: u64,
    owners: BTreeMap<u64, ConnectionOwner>,
    /// Events that epoll reports for each registered connection of a link.
    interests: BTreeMap<u64, EpollFlags>,
    links: BTreeMap<u32, Link>,
    accepted: BTreeMap<u64, AcceptedConnection>,
    dials: BTreeMap<u64, Dial>,
    /// How attempts to attach to a rank ended, while others are in progress.
    failed_dials: BTreeMap<u32, LinkEnd>,
    /// Ranks whose links were closed, and to which this rank will connect when fewer connections are in progress.
    unconfirmed: BTreeSet<u32>,
    /// When each path to the coordinator is tried again.
    redial_at: Vec<Instant>,
    events: VecDeque<RankEvent>,
    /// Ranks whose next message waits for room at its receiver.
    stalled: BTreeSet<u32>,
    /// Ranks whose links must be looked at.
    touched: BTreeSet<u32>,
    /// Departures, to be sent together: a thousand ranks that leave at once would otherwise cause a million messages.
    pending_left: Vec<u32>,
    /// No file could be opened: the listeners are not polled until then.
    listeners_rest_until: Option<Instant>,
}

impl Member {
    /// The streams are connections to all other ranks at rank 0, and to rank 0 elsewhere.
    pub(super) fn new(
        config: DetectorConfig,
        listeners: Vec<TcpListener>,
        streams: BTreeMap<u32, FramedStream>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut member = Self {
            membership: JobMembership::new(config.rank, config.hosts.clone(), config.peer_timeout),
            config,
            epoll,
            listeners: Vec::new(),
            next_id: 0,
            owners: BTreeMap::new(),
            interests: BTreeMap::new(),
            links: BTreeMap::new(),
            accepted: BTreeMap::new(),
            dials: BTreeMap::new(),
            failed_dials: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            redial_at: Vec::new(),
            events: VecDeque::new(),
            stalled: BTreeSet::new(),
            touched: BTreeSet::new(),
            pending_left: Vec::new(),
            listeners_rest_until: None,
        };
        for (index, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            let id = member.new_id(ConnectionOwner::Listener(index));
            member.epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, id))?;
            member.listeners.push(listener);
        }
        for (rank, stream) in streams {
            let _ = stream.set_peer_timeout(member.config.peer_timeout); // If the stream is broken, the next read finds it.
            let id = member.new_id(ConnectionOwner::Link(rank));
            let mut link = Link::new(member.has_paths());
            link.attach(id, NO_PATH, stream, 0, 0);
            member.links.insert(rank, link);
            member.touched.insert(rank); // Messages that arrived with the table cause no epoll event.
            member.update_interest(rank);
        }
        Ok(member)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(super) fn turn(&mut self) -> Option<RankEvent> {
        if self.events.is_empty() {
            self.exchange(Instant::now());
        }
        self.events.pop_front()
    }

    /// When the next call of [`Self::turn`] has something to do, whatever arrives.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let dials = self.dials.values().map(Dial::deadline).min();
        self.membership.deadline().into_iter().chain(dials).chain(self.listeners_rest_until).min()
    }

    pub(super) fn send(&mut self, to: OobTarget, bytes: &[u8]) -> Result<(), OobSendError> {
        let target = self.target(to)?;
        if target == self.config.rank {
            if self.events.len() >= MAX_QUEUED_EVENTS {
                return Err(OobSendError::WouldBlock);
            }
            self.events.push_back(RankEvent::Message { from: target, bytes: bytes.to_vec() });
            return Ok(());
        }
        if self.config.size == 1 {
            return Ok(());
        }
        if self.membership.is_coordinator() {
            if self.is_full(self.config.rank, target) {
                return Err(OobSendError::WouldBlock);
            }
            self.forward(self.config.rank, target, bytes);
            return Ok(());
        }
        let Some(coordinator) = self.membership.coordinator() else { return Err(OobSendError::WouldBlock) };
        match self.links.get(&coordinator) {
            None if self.is_confirming(Some(coordinator)) => return Err(OobSendError::WouldBlock),
            None => return Err(OobSendError::Disconnected),
            Some(link) if link.is_full() => return Err(OobSendError::WouldBlock),
            Some(_) => {}
        }
        let frame = encode_message(RendezvousMessageKind::Send, &[&target.to_le_bytes(), bytes]);
        self.queue(coordinator, &frame);
        Ok(())
    }

    fn target(&self, to: OobTarget) -> Result<u32, OobSendError> {
        if self.membership.is_outside() {
            return Err(OobSendError::Disconnected);
        }
        match to {
            OobTarget::All => Ok(ALL_RANKS),
            OobTarget::Coordinator => self.membership.coordinator().ok_or(OobSendError::WouldBlock),
            OobTarget::Rank(rank) if rank >= self.config.size => Err(OobSendError::NoSuchRank),
            OobTarget::Rank(rank) if !self.membership.is_live(rank) => Err(OobSendError::RankGone),
            OobTarget::Rank(rank) => Ok(rank),
        }
    }

    /// True if the hosts have several paths, so that connections are added to links.
    fn has_paths(&self) -> bool {
        self.config.ports.iter().any(|ports| ports.len() > 1)
    }

    fn new_id(&mut self, owner: ConnectionOwner) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.owners.insert(id, owner);
        id
    }

    /// Processes what is ready; waits for it until the deadline.
    fn exchange(&mut self, deadline: Instant) {
        let mut events = [EpollEvent::empty(); MAX_EVENTS_PER_POLL];
        let count = self.epoll.wait(&mut events, poll_timeout_until(deadline)).unwrap_or(0);
        let now = Instant::now();
        for event in &events[..count] {
            let id = event.data();
            match self.owners.get(&id).copied() {
                Some(ConnectionOwner::Listener(index)) => self.accept(now, index),
                Some(ConnectionOwner::Link(rank)) => self.handle_link_event(id, rank, event.events()),
                Some(ConnectionOwner::Accepted) => self.receive_accepted(now, id),
                Some(ConnectionOwner::Dial) => self.receive_dial(now, id),
                None => {}
            }
        }
        let stalled = std::mem::take(&mut self.touched).into_iter().chain(self.stalled.clone());
        stalled.collect::<BTreeSet<u32>>().into_iter().for_each(|rank| self.process_messages(now, rank));
        self.membership.tick(now);
        self.wake_listeners(now);
        self.expire(now);
        self.dial_paths(now);
        self.run_actions(now);
        // Writing may have found broken connections.
        while let Some(rank) = self.touched.pop_first() {
            self.process_messages(now, rank);
            self.run_actions(now);
        }
    }

    fn handle_link_event(&mut self, id: u64, rank: u32, events: EpollFlags) {
        let Some(link) = self.links.get_mut(&rank) else { return };
        if events.contains(EpollFlags::EPOLLOUT) {
            link.flush(id);
        }
        if events != EpollFlags::EPOLLOUT {
            if self.stalled.contains(&rank) {
                // It closed while it is stalled; epoll would report the hang-up forever.
                return self.unregister(rank, id);
            }
            link.fill(id, MAX_READ_BYTES);
        }
        self.touched.insert(rank);
        self.update_interest(rank);
    }

    /// Processes the messages of a rank, as far as they can be forwarded.
    fn process_messages(&mut self, now: Instant, rank: u32) {
        let max_bytes = MAX_BODY_BYTES.max(max_body_bytes(self.config.size));
        loop {
            let Some(link) = self.links.get_mut(&rank) else { return };
            let Ok(ready) = link.next_ready(max_bytes) else { return self.expel(now, rank) };
            let Some(id) = ready else { break };
            let Some(link) = self.links.get(&rank) else { return };
            let Some((kind, body)) = link.peek(id, max_bytes) else { break };
            let target = body.first_chunk().map(|target| u32::from_le_bytes(*target));
            if kind == RendezvousMessageKind::Send && target.is_some_and(|target| self.is_full(rank, target)) {
                if self.stalled.insert(rank) {
                    self.update_interest(rank);
                }
                return;
            }
            let Some(link) = self.links.get_mut(&rank) else { return };
            let Some(body) = link.peek(id, max_bytes).map(|(_, body)| body.to_vec()) else { break };
            link.consume(id);
            let is_valid = if self.membership.is_coordinator() {
                self.handle_follower_message(now, rank, kind, &body)
            } else if self.membership.is_outside() {
                // What a former follower sends means nothing any more, but its link must last: the verdict is not sent yet.
                true
            } else {
                self.handle_coordinator_message(now, rank, kind, &body)
            };
            if !is_valid {
                return self.expel(now, rank);
            }
        }
        if self.stalled.remove(&rank) {
            // Connections that closed meanwhile are still to be read.
            self.links.get_mut(&rank).into_iter().for_each(|link| {
                link.ids().into_iter().for_each(|id| link.fill(id, MAX_READ_BYTES));
            });
            self.touched.insert(rank);
            return self.update_interest(rank);
        }
        self.flush(rank); // Acknowledgements.
        self.remove_ended(now, rank);
    }

    /// False if the message is malformed.
    fn handle_follower_message(&mut self, now: Instant, rank: u32, kind: RendezvousMessageKind, body: &[u8]) -> bool {
        match (kind, body.split_first_chunk()) {
            (RendezvousMessageKind::Send, Some((target, bytes))) => {
                let target = u32::from_le_bytes(*target);
                if target != ALL_RANKS && target >= self.config.size {
                    return false;
                }
                self.forward(rank, target, bytes);
            }
            (RendezvousMessageKind::Goodbye, _) => {
                self.close_link(rank);
                self.membership.rank_left(now, rank);
                self.events.push_back(RankEvent::Left { rank });
                self.pending_left.push(rank);
            }
            (RendezvousMessageKind::Pong, Some((number, _))) => {
                self.membership.answered(now, rank, u32::from_le_bytes(*number));
            }
            _ => return false,
        }
        true
    }

    /// False if the message is malformed.
    fn handle_coordinator_message(
        &mut self,
        now: Instant,
        coordinator: u32,
        kind: RendezvousMessageKind,
        body: &[u8],
    ) -> bool {
        match kind {
            RendezvousMessageKind::Deliver => {
                let Some((from, bytes)) = body.split_first_chunk() else { return false };
                let from = u32::from_le_bytes(*from);
                self.events.push_back(RankEvent::Message { from, bytes: bytes.to_vec() });
            }
            RendezvousMessageKind::Lost => {
                let Some((number, verdict)) = decode_verdict(body, self.config.size) else { return false };
                self.membership.verdict(number, verdict);
                // Before messages that follow: those that come later concern a job in which these ranks are lost.
                self.run_actions(now);
            }
            RendezvousMessageKind::Left => {
                let Some(ranks) = decode_left(body, self.config.size) else { return false };
                for rank in ranks.into_iter().filter(|rank| *rank != self.config.rank) {
                    if self.membership.is_live(rank) {
                        self.membership.rank_left(now, rank);
                        self.events.push_back(RankEvent::Left { rank });
                    }
                }
            }
            RendezvousMessageKind::Ping => {
                self.queue(coordinator, &encode_message(RendezvousMessageKind::Pong, &[body]));
            }
            RendezvousMessageKind::Goodbye => {
                self.close_link(coordinator);
                self.events.push_back(RankEvent::Left { rank: coordinator });
                self.membership.rank_left(now, coordinator);
            }
            _ => return false,
        }
        true
    }

    /// True if a receiver of the message has no room.
    fn is_full(&self, from: u32, target: u32) -> bool {
        // Messages wait for ranks that have not attached to this new coordinator yet.
        let is_gathering = self.membership.is_gathering();
        let has_no_room =
            |rank: u32| self.links.get(&rank).map_or(is_gathering && self.membership.is_live(rank), Link::is_full);
        let are_events_full = self.events.len() >= MAX_QUEUED_EVENTS;
        match target {
            target if target == self.config.rank => are_events_full,
            ALL_RANKS => {
                is_gathering
                    || (from != self.config.rank && are_events_full)
                    || self.links.keys().any(|rank| *rank != from && has_no_room(*rank))
            }
            rank => has_no_room(rank),
        }
    }

    /// Forwards a message as the coordinator.
    fn forward(&mut self, from: u32, target: u32, bytes: &[u8]) {
        let me = self.config.rank;
        if target == me || (target == ALL_RANKS && from != me) {
            self.events.push_back(RankEvent::Message { from, bytes: bytes.to_vec() });
        }
        if target != me {
            let frame = encode_message(RendezvousMessageKind::Deliver, &[&from.to_le_bytes(), bytes]);
            match target {
                ALL_RANKS => self.broadcast(from, &frame),
                rank => self.queue(rank, &frame), // A message to a rank that is gone is dropped.
            }
        }
    }

    fn broadcast(&mut self, except: u32, frame: &Arc<[u8]>) {
        let others: Vec<u32> = self.links.keys().copied().filter(|rank| *rank != except).collect();
        others.into_iter().for_each(|rank| self.queue(rank, frame));
    }

    fn queue(&mut self, rank: u32, frame: &Arc<[u8]>) {
        if let Some(link) = self.links.get_mut(&rank) {
            link.queue(frame);
            self.flush(rank);
        }
    }

    fn flush(&mut self, rank: u32) {
        let Some(link) = self.links.get_mut(&rank) else { return };
        for id in link.ids() {
            link.flush(id);
            if link.connection(id).is_some_and(|connection| connection.has_ended()) {
                self.touched.insert(rank);
            }
        }
        self.update_interest(rank);
    }

    /// Updates the events that epoll reports for a link.
    fn update_interest(&mut self, rank: u32) {
        let Some(link) = self.links.get_mut(&rank) else { return };
        let is_stalled = self.stalled.contains(&rank);
        for id in link.ids() {
            let Some(connection) = link.connection(id).filter(|connection| !connection.has_ended()) else { continue };
            let mut interest = EpollFlags::empty();
            interest.set(EpollFlags::EPOLLIN, !is_stalled);
            interest.set(EpollFlags::EPOLLOUT, connection.stream.queued_bytes() > 0);
            let event = &mut EpollEvent::new(interest, id);
            let updated = match self.interests.get(&id) {
                Some(old) if *old == interest => continue,
                Some(_) => self.epoll.modify(&connection.stream, event),
                None if is_stalled => continue,
                None => self.epoll.add(&connection.stream, *event),
            };
            debug_assert!(updated.is_ok(), "{updated:?}");
            self.interests.insert(id, interest);
        }
    }

    fn unregister(&mut self, rank: u32, id: u64) {
        let connection = self.links.get_mut(&rank).and_then(|link| link.connection(id));
        if let (Some(_), Some(connection)) = (self.interests.remove(&id), connection) {
            let _ = self.epoll.delete(&connection.stream);
        }
    }

    /// Removes connections that have ended, and the link with the last one.
    fn remove_ended(&mut self, now: Instant, rank: u32) {
        let Some(link) = self.links.get_mut(&rank) else { return };
        for (id, connection) in link.remove_ended() {
            self.owners.remove(&id);
            if self.interests.remove(&id).is_some() {
                let _ = self.epoll.delete(&connection.stream);
            }
            if let Some(at) = self.redial_at.get_mut(connection.path) {
                *at = now + dialing::REDIAL_INTERVAL;
            }
        }
        if let Some(end) = link.end() {
            self.close_link(rank);
            match end {
                LinkEnd::Closed if self.membership.can_lose(rank) => self.confirm_end(now, rank),
                _ => self.membership.link_ended(now, rank, end),
            }
        }
    }

    /// Closes all connections of a link.
    fn close_link(&mut self, rank: u32) {
        self.stalled.remove(&rank);
        let Some(link) = self.links.remove(&rank) else { return };
        for (id, mut stream) in link.into_connections() {
            self.owners.remove(&id);
            if self.interests.remove(&id).is_some() {
                let _ = self.epoll.delete(&stream);
            }
            let _ = stream.flush();
            stream.shutdown_write();
        }
    }

    /// A rank sent a malformed message: it is lost to the others, and is told so.
    fn expel(&mut self, now: Instant, rank: u32) {
        if self.membership.is_coordinator() {
            let verdict = LossVerdict { kind: VerdictKind::Lost, ranks: vec![rank] };
            self.queue(rank, &encode_verdict(self.membership.history().verdicts.len(), &verdict));
        }
        self.close_link(rank);
        self.membership.link_ended(now, rank, LinkEnd::Closed);
    }

    fn run_actions(&mut self, now: Instant) {
        loop {
            let actions = self.membership.take_actions();
            if actions.is_empty() {
                break;
            }
            actions.into_iter().for_each(|action| self.run_action(now, action));
        }
        if !self.pending_left.is_empty() {
            let left = std::mem::take(&mut self.pending_left);
            self.broadcast(self.config.rank, &encode_left(left.into_iter()));
        }
    }

    fn run_action(&mut self, now: Instant, action: MembershipAction) {
        match action {
            MembershipAction::AttachTo(rank) => self.dial_takeover(now, rank),
            MembershipAction::CheckAlive(rank) => self.dial_check(now, rank),
            MembershipAction::Survey(rank) => self.dial_survey(now, rank),
            MembershipAction::Accept(rank) => self.accept_takeover(now, rank),
            MembershipAction::Refuse(rank) => self.refuse_takeover(rank),
            MembershipAction::Ping(number) => {
                let ping = encode_message(RendezvousMessageKind::Ping, &[&number.to_le_bytes()]);
                self.broadcast(self.config.rank, &ping);
            }
            MembershipAction::Send(number, verdict) => {
                self.broadcast(self.config.rank, &encode_verdict(number, &verdict));
            }
            MembershipAction::Report(LossVerdict { kind: VerdictKind::Lost, ranks }) => {
                let own = self.config.rank;
                self.events.push_back(if ranks.contains(&own) {
                    // Nothing that this rank sends reaches the others, or they cannot read it: to itself it is not lost.
                    let others = (0..self.config.size).filter(|rank| *rank != own && self.membership.is_live(*rank));
                    RankEvent::CutOff { ranks: others.collect() }
                } else {
                    RankEvent::Lost { ranks }
                });
            }
            MembershipAction::Report(LossVerdict { kind: VerdictKind::CutOff, ranks }) => {
                self.events.push_back(RankEvent::CutOff { ranks });
            }
            MembershipAction::ReportLeft(ranks) => {
                self.events.extend(ranks.iter().map(|rank| RankEvent::Left { rank: *rank }));
                self.pending_left.extend(ranks);
            }
            MembershipAction::ReportCoordinator(rank) => {
                if rank == self.config.rank {
                    // As many connections as rank 0 had. If the limit is too low, ranks that cannot connect will be lost.
                    let _ = raise_file_limit(self.config.size, self.listeners.len());
                }
                self.events.push_back(RankEvent::NewCoordinator { rank });
            }
        }
    }

    #[cfg(test)]
    pub(super) fn send_raw(&mut self, bytes: &Arc<[u8]>) {
        let coordinator = self.membership.coordinator().expect("connected");
        self.queue(coordinator, bytes);
    }
}
