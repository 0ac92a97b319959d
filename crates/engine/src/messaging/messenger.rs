//! A port and what carries its parcels, turned by whoever waits.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use protocol::messaging::{
    InPlaceBuffers, MessageCompletion, MessageSelector, MessagingAction, MessagingCounters, MessagingEndpoint,
    MessagingSettings, PeerLossCause, ProbedMessage, RailIndex, ReceiveId, RejectedPost, SendId, has_body,
};
use transport::carrier::{MessageTransport, TransportEvent};
use units::{PathId, Rank};

/// How long one that has drained stays to acknowledge: longer than acknowledgements wait (`Policy::acknowledge_after`).
const LINGER: Duration = Duration::from_millis(1);

/// Where a parcel is spoiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CorruptionStage {
    /// On its way to the wire: packets are made, and their checks, of what is spoiled.
    Departure,
    /// Behind the checks of its packets.
    Arrival,
}

/// Changes parcels with a body as it likes, for tests.
pub type PacketCorrupter = Box<dyn FnMut(CorruptionStage, &mut [u8]) + Send>;

/// A port that is turned over a carrier.
pub struct Messenger<C> {
    port: MessagingEndpoint,
    carrier: C,
    spoiler: Option<PacketCorrupter>,
    /// What the port gave us, where something spoiled was sent in its place.
    originals: VecDeque<(Rank, RailIndex, Vec<u8>)>,
    /// What came spoiled in this turn.
    spoiled: Vec<(Rank, RailIndex, PathId)>,
}

impl<C: MessageTransport> Messenger<C> {
    /// Without peers.
    pub fn new(carrier: C, settings: MessagingSettings) -> Self {
        let port = MessagingEndpoint::new(settings);
        Self { port, carrier, spoiler: None, originals: VecDeque::new(), spoiled: Vec::new() }
    }

    /// The carrier, to set up rails.
    pub fn carrier(&mut self) -> &mut C {
        &mut self.carrier
    }

    /// The rails to a peer are ready.
    pub fn add_peer(&mut self, rank: Rank, rails: u8) {
        self.port.add_peer(rank, rails);
    }

    /// Lets parcels be spoiled, for tests.
    pub fn set_spoiler(&mut self, spoiler: PacketCorrupter) {
        self.spoiler = Some(spoiler);
    }

    /// What the port has seen.
    pub fn counters(&self) -> MessagingCounters {
        self.port.counters()
    }

    /// Why a peer is lost, if it is.
    pub fn lost(&self, peer: Rank) -> Option<PeerLossCause> {
        self.port.lost(peer)
    }

    /// Sends a message; see [`MessagingEndpoint::send`].
    ///
    /// # Errors
    /// If it cannot be sent; the buffer comes back.
    pub fn send(&mut self, to: Rank, tag: u64, buffer: Vec<u8>) -> Result<SendId, RejectedPost> {
        let now = self.carrier.now();
        // To spoil a parcel one needs the original.
        let id = match self.spoiler {
            None => self.port.send_into(now, to, tag, buffer, &mut TransportSendBuffers(&mut self.carrier))?,
            Some(_) => self.port.send(now, to, tag, buffer)?,
        };
        self.carry_out();
        Ok(id)
    }

    /// Waits for a message; see [`MessagingEndpoint::receive`].
    ///
    /// # Errors
    /// If nothing can come; the buffer comes back.
    pub fn receive(&mut self, wanted: MessageSelector, buffer: Vec<u8>) -> Result<ReceiveId, RejectedPost> {
        let id = self.port.receive(self.carrier.now(), wanted, buffer)?;
        self.carry_out();
        Ok(id)
    }

    /// See [`MessagingEndpoint::probe`].
    pub fn probe(&self, wanted: &MessageSelector) -> Option<ProbedMessage> {
        self.port.probe(wanted)
    }

    /// See [`MessagingEndpoint::cancel_receive`].
    pub fn cancel_receive(&mut self, id: ReceiveId) -> Option<Vec<u8>> {
        self.port.cancel_receive(id)
    }

    /// See [`MessagingEndpoint::cancel_send`].
    pub fn cancel_send(&mut self, id: SendId) -> Option<Vec<u8>> {
        self.port.cancel_send(id)
    }

    /// Whether anything has ended.
    pub fn has_completions(&self) -> bool {
        self.port.has_completions()
    }

    /// What has ended, one at a time.
    pub fn next_completion(&mut self) -> Option<MessageCompletion> {
        self.port.poll_completion()
    }

    /// Does everything that can be done now. With nothing to tell, waits for at most `wait`.
    ///
    /// # Errors
    /// If the system does not let it wait.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let wait = if self.port.has_completions() { Duration::ZERO } else { wait };
        let Self { port, carrier, spoiler, originals, spoiled } = self;
        carrier.turn(wait, &mut |now, news| match news {
            TransportEvent::Parcel { from, rail, path, bytes } => {
                if let Some(spoiler) = spoiler.as_mut().filter(|_| has_body(bytes)) {
                    spoiler(CorruptionStage::Arrival, bytes);
                }
                if !port.handle_parcel(now, from, rail, bytes) {
                    spoiled.push((from, rail, path));
                }
            }
            TransportEvent::Landed { to, rail, bytes } => {
                let index = originals.iter().position(|(rank, on, _)| (*rank, *on) == (to, rail));
                let original = index.and_then(|index| originals.remove(index)).map(|(.., bytes)| bytes);
                port.handle_sent(now, to, rail, original.unwrap_or(bytes));
            }
            TransportEvent::RailLost { peer, rail } => port.handle_rail_lost(now, peer, rail),
        })?;
        spoiled.drain(..).for_each(|(from, rail, path)| carrier.note_spoiled(from, rail, path));
        self.carry_out();
        Ok(())
    }

    fn next_duty(&mut self) -> Option<MessagingAction> {
        match self.spoiler {
            None => self.port.poll_duty_into(&mut TransportSendBuffers(&mut self.carrier)),
            Some(_) => self.port.poll_duty(),
        }
    }

    #[inline]
    fn carry_out(&mut self) {
        if self.port.has_duties() {
            self.carry_out_all();
        }
    }

    #[inline(never)]
    fn carry_out_all(&mut self) {
        while let Some(duty) = self.next_duty() {
            match duty {
                MessagingAction::Written { to, rail, .. } => self.carrier.send_room(to, rail, true),
                MessagingAction::Lend { to, rail, head, body, ask } => {
                    self.carrier.send_lent(to, rail, head, body, ask)
                }
                MessagingAction::Transmit { to, rail, mut bytes, .. } => {
                    if let Some(spoiler) = &mut self.spoiler {
                        self.originals.push_back((to, rail, bytes.clone()));
                        if has_body(&bytes) {
                            spoiler(CorruptionStage::Departure, &mut bytes);
                        }
                    }
                    self.carrier.send(to, rail, bytes);
                }
                MessagingAction::Drop { peer, .. } => self.carrier.forget(peer),
            }
        }
    }

    /// Waits until every message that was sent has come intact, and its peers know the same of theirs. False if that takes longer than it may.
    ///
    /// # Errors
    /// If the system does not let it wait.
    pub fn drain(&mut self, limit: Duration) -> io::Result<bool> {
        let began = Instant::now();
        self.port.drain(self.carrier.now());
        self.carry_out();
        while !self.port.is_drained() {
            if began.elapsed() > limit {
                return Ok(false);
            }
            self.turn(Duration::from_millis(1))?;
        }
        // What came last is acknowledged after a while, and whoever sent it may be waiting for that alone.
        let drained = Instant::now();
        while drained.elapsed() < LINGER {
            self.turn(LINGER.saturating_sub(drained.elapsed()))?;
        }
        Ok(true)
    }
}

/// The rooms of a carrier.
struct TransportSendBuffers<'a, C>(&'a mut C);

impl<C: MessageTransport> InPlaceBuffers for TransportSendBuffers<'_, C> {
    #[inline]
    fn room(&mut self, to: Rank, rail: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        self.0.room(to, rail, bytes)
    }

    #[inline]
    fn send_room(&mut self, to: Rank, rail: RailIndex) {
        self.0.send_room(to, rail, false);
    }

    fn borrows(&self) -> bool {
        self.0.borrows()
    }
}
