//! Packets to ranks of this host through shared memory, to other ranks over UDP.
//!
//! A waiting thread polls both, spinning at first. Then it sleeps on the sockets and polls the rings once a millisecond: a
//! thread cannot sleep on both.

use std::io;
use std::time::Duration;

use protocol::BufferSlice;
use protocol::connection::AckRequest;
use protocol::messaging::RailIndex;
use units::{PathId, Rank, Time};

use super::{ShmTransport, UdpTransport};
use transport::backoff::{WaitPolicy, WaitStep, Waiter};
use transport::message_transport::{MessageTransport, SendReport, TransportEvent};

/// Each poll takes system calls: the clock is read after every one, and the CPU is not yielded.
const WAIT: WaitPolicy = WaitPolicy {
    first_polls: 0,
    first_pauses: 0,
    polls_before_yield: u32::MAX,
    polls_per_clock: 1,
    spin: Duration::from_micros(200),
    sleep: Duration::from_millis(1),
};

/// The rails of a process to the ranks of its host and of other hosts.
pub struct TransportMux {
    shm: ShmTransport,
    udp: UdpTransport,
    /// The ranks of this host, by their rank in the team.
    team: Vec<Rank>,
}

impl TransportMux {
    /// Combines two transports: `shm` connects the ranks of `team`, this one among them.
    pub fn new(shm: ShmTransport, team: Vec<Rank>, udp: UdpTransport) -> Self {
        Self { shm, udp, team }
    }

    /// The rank within the team of this host.
    fn team_rank(&self, rank: Rank) -> Option<Rank> {
        let place = self.team.iter().position(|member| *member == rank)?;
        Some(Rank(place as u32))
    }

    /// Runs a turn of both; false if there was nothing to report.
    fn poll_both(&mut self, wait: Duration, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<bool> {
        let mut any = false;
        let (now, team) = (self.udp.now(), &self.team);
        // One clock for both: time must not run backwards for the messaging machine.
        self.shm.turn(Duration::ZERO, &mut |_, event| {
            any = true;
            on_event(now, with_job_rank(team, event));
        })?;
        let wait = if any { Duration::ZERO } else { wait };
        self.udp.turn(wait, &mut |now, event| {
            any = true;
            on_event(now, event);
        })?;
        Ok(any)
    }

    /// Reports ranks of this host whose process has ended; true if there are any.
    fn check_liveness(&mut self, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> bool {
        let (now, team) = (self.udp.now(), &self.team);
        let mut any = false;
        self.shm.check_liveness(&mut |_, event| {
            any = true;
            on_event(now, with_job_rank(team, event));
        });
        any
    }
}

/// An event of shared memory, with the rank in the job in place of that in the team.
fn with_job_rank<'a>(team: &[Rank], event: TransportEvent<'a>) -> TransportEvent<'a> {
    match event {
        TransportEvent::Packet { from, rail, path, bytes } => {
            TransportEvent::Packet { from: team[from.index()], rail, path, bytes }
        }
        TransportEvent::SendComplete { to, rail, bytes } => {
            TransportEvent::SendComplete { to: team[to.index()], rail, bytes }
        }
        TransportEvent::RailLost { peer, rail } => TransportEvent::RailLost { peer: team[peer.index()], rail },
    }
}

impl MessageTransport for TransportMux {
    fn send(&mut self, to: Rank, rail: RailIndex, bytes: Vec<u8>) {
        match self.team_rank(to) {
            Some(team_rank) => self.shm.send(team_rank, rail, bytes),
            None => self.udp.send(to, rail, bytes),
        }
    }

    fn supports_borrowed(&self) -> bool {
        self.udp.supports_borrowed()
    }

    fn shares_memory_with(&self, peer: Rank) -> bool {
        self.team_rank(peer).is_some()
    }

    fn send_borrowed(&mut self, to: Rank, rail: RailIndex, head: Vec<u8>, body: BufferSlice, ack: AckRequest) {
        match self.team_rank(to) {
            Some(team_rank) => self.shm.send_borrowed(team_rank, rail, head, body, ack),
            None => self.udp.send_borrowed(to, rail, head, body, ack),
        }
    }

    fn reserve(&mut self, to: Rank, rail: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        let team_rank = self.team_rank(to)?;
        self.shm.reserve(team_rank, rail, bytes)
    }

    fn send_reserved(&mut self, to: Rank, rail: RailIndex, report: SendReport) {
        let team_rank = self.team_rank(to).expect("only shared memory reserves space");
        self.shm.send_reserved(team_rank, rail, report);
    }

    fn report_corruption(&mut self, from: Rank, rail: RailIndex, path: PathId) {
        match self.team_rank(from) {
            Some(team_rank) => self.shm.report_corruption(team_rank, rail, path),
            None => self.udp.report_corruption(from, rail, path),
        }
    }

    fn turn(&mut self, wait: Duration, on_event: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()> {
        if self.poll_both(Duration::ZERO, on_event)? || wait.is_zero() {
            return Ok(());
        }
        let mut waiter = Waiter::new(WAIT, wait);
        loop {
            let sleep = match waiter.step() {
                WaitStep::Poll => Duration::ZERO,
                WaitStep::Sleep(time) => time,
                WaitStep::TimedOut => return Ok(()),
            };
            if self.poll_both(sleep, on_event)? || self.check_liveness(on_event) {
                return Ok(());
            }
        }
    }

    fn now(&self) -> Time {
        self.udp.now()
    }

    fn drop_peer(&mut self, peer: Rank) {
        match self.team_rank(peer) {
            Some(team_rank) => self.shm.drop_peer(team_rank),
            None => self.udp.drop_peer(peer),
        }
    }
}
