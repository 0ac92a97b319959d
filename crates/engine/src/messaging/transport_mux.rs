//! Parcels to ranks of this host through rings in shared memory, to others over queue pairs.
//!
//! Whoever waits looks at both, awake for a while. Then it sleeps where packets wake it, and looks at the rings once in a [`SLEEP_INTERVAL`]: one
//! cannot sleep in two places.

use std::io;
use std::time::{Duration, Instant};

use protocol::BufferSlice;
use protocol::connection::AckRequest;
use protocol::messaging::RailIndex;
use units::{PathId, Rank, Time};

use super::{ShmTransport, UdpTransport};
use transport::carrier::{MessageTransport, TransportEvent};

const SPIN_TIME: Duration = Duration::from_micros(200);
const SLEEP_INTERVAL: Duration = Duration::from_millis(1);

/// The rails of a process to ranks here and elsewhere.
pub struct TransportMux {
    near: ShmTransport,
    far: UdpTransport,
    /// The ranks of this host, in the order in which they met.
    team: Vec<Rank>,
}

impl TransportMux {
    /// Joins two carriers: `near` has met these ranks, this one among them.
    pub fn new(near: ShmTransport, team: Vec<Rank>, far: UdpTransport) -> Self {
        Self { near, far, team }
    }

    /// What a rank of this host is called among its team.
    fn seat(&self, rank: Rank) -> Option<Rank> {
        let place = self.team.iter().position(|member| *member == rank)?;
        Some(Rank(place as u32))
    }

    /// Does what can be done in both; false if there was nothing to tell.
    fn move_both(&mut self, wait: Duration, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<bool> {
        let mut any = false;
        let (now, team) = (self.far.now(), &self.team);
        // One clock for both, or time would run backwards for the port.
        self.near.turn(Duration::ZERO, &mut |_, news| {
            any = true;
            tell(now, by_rank(team, news));
        })?;
        let wait = if any { Duration::ZERO } else { wait };
        self.far.turn(wait, &mut |now, news| {
            any = true;
            tell(now, news);
        })?;
        Ok(any)
    }
}

/// News of a team's member, by its rank.
fn by_rank<'a>(team: &[Rank], news: TransportEvent<'a>) -> TransportEvent<'a> {
    match news {
        TransportEvent::Parcel { from, rail, path, bytes } => {
            TransportEvent::Parcel { from: team[from.index()], rail, path, bytes }
        }
        TransportEvent::Landed { to, rail, bytes } => TransportEvent::Landed { to: team[to.index()], rail, bytes },
        TransportEvent::RailLost { peer, rail } => TransportEvent::RailLost { peer: team[peer.index()], rail },
    }
}

impl MessageTransport for TransportMux {
    fn send(&mut self, to: Rank, rail: RailIndex, bytes: Vec<u8>) {
        match self.seat(to) {
            Some(seat) => self.near.send(seat, rail, bytes),
            None => self.far.send(to, rail, bytes),
        }
    }

    fn borrows(&self) -> bool {
        self.far.borrows()
    }

    fn send_lent(&mut self, to: Rank, rail: RailIndex, head: Vec<u8>, body: BufferSlice, ask: AckRequest) {
        match self.seat(to) {
            Some(seat) => self.near.send_lent(seat, rail, head, body, ask),
            None => self.far.send_lent(to, rail, head, body, ask),
        }
    }

    fn room(&mut self, to: Rank, rail: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        let seat = self.seat(to)?;
        self.near.room(seat, rail, bytes)
    }

    fn send_room(&mut self, to: Rank, rail: RailIndex, is_told: bool) {
        let seat = self.seat(to).expect("only rings lend room");
        self.near.send_room(seat, rail, is_told);
    }

    fn note_spoiled(&mut self, from: Rank, rail: RailIndex, path: PathId) {
        match self.seat(from) {
            Some(seat) => self.near.note_spoiled(seat, rail, path),
            None => self.far.note_spoiled(from, rail, path),
        }
    }

    fn turn(&mut self, wait: Duration, tell: &mut dyn FnMut(Time, TransportEvent<'_>)) -> io::Result<()> {
        if self.move_both(Duration::ZERO, tell)? || wait.is_zero() {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            let waited = began.elapsed();
            if waited >= wait {
                return Ok(());
            }
            let nap =
                if waited < SPIN_TIME { Duration::ZERO } else { SLEEP_INTERVAL.min(wait.saturating_sub(waited)) };
            if self.move_both(nap, tell)? {
                return Ok(());
            }
            let (now, team) = (self.far.now(), &self.team);
            let mut any = false;
            self.near.look_around(&mut |_, news| {
                any = true;
                tell(now, by_rank(team, news));
            });
            if any {
                return Ok(());
            }
        }
    }

    fn now(&self) -> Time {
        self.far.now()
    }

    fn forget(&mut self, peer: Rank) {
        match self.seat(peer) {
            Some(seat) => self.near.forget(seat),
            None => self.far.forget(peer),
        }
    }
}
