//! The messaging machine and its transport.
//!
//! In: sends and receives of the user. Out: completions. There are no threads: [`Messenger::turn`] does the work.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::LentBytes;
use protocol::messaging::{
    InPlaceBuffers, LentBytesMut, MessageArrival, MessageCompletion, MessageFailure, MessageMatching,
    MessagePostError, MessageSelector, MessagingAction, MessagingCounters, MessagingEndpoint, MessagingSettings,
    PeerLossCause, ProbedMessage, RailIndex, ReceiveId, RejectedPost, SendId, has_body,
};
use transport::message_transport::{MessageTransport, SendReport, TransportEvent};
use units::{PathId, Rank};

/// How long a drained messenger keeps acknowledging: longer than acknowledgements are delayed
/// (`ConnectionPolicy::acknowledge_after`).
const LINGER: Duration = Duration::from_millis(1);

/// Where a test corrupts a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CorruptionStage {
    /// Before the transport computes its own checks over it.
    Departure,
    /// After the transport has verified its own checks.
    Arrival,
}

/// Changes packets with a body, for tests.
pub type PacketCorrupter = Box<dyn FnMut(CorruptionStage, &mut [u8]) + Send>;

/// A messaging machine over a transport.
pub struct Messenger<T> {
    endpoint: MessagingEndpoint,
    transport: T,
    corrupter: Option<PacketCorrupter>,
    /// The original packets, where a corrupted copy was sent.
    originals: VecDeque<(Rank, RailIndex, Vec<u8>)>,
    /// Packets that failed their checksum in this turn.
    corrupted: Vec<(Rank, RailIndex, PathId)>,
}

impl<T: MessageTransport> Messenger<T> {
    /// A messenger without peers.
    pub fn new(transport: T, settings: MessagingSettings) -> Self {
        let endpoint = MessagingEndpoint::new(settings);
        Self { endpoint, transport, corrupter: None, originals: VecDeque::new(), corrupted: Vec::new() }
    }

    /// Lets the user match messages: see [`Self::next_arrival`].
    #[must_use]
    pub fn with_matching(mut self, mode: MessageMatching) -> Self {
        self.endpoint = self.endpoint.with_matching(mode);
        self
    }

    /// The transport, to set up rails.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The rails to a peer are ready.
    pub fn add_peer(&mut self, rank: Rank, rails: u8) {
        self.endpoint.add_peer(rank, rails);
    }

    /// Corrupts packets, for tests.
    pub fn set_corrupter(&mut self, corrupter: PacketCorrupter) {
        self.corrupter = Some(corrupter);
    }

    /// What the messaging machine has counted.
    pub fn counters(&self) -> MessagingCounters {
        self.endpoint.counters()
    }

    /// Why a peer is lost, if it is.
    pub fn lost(&self, peer: Rank) -> Option<PeerLossCause> {
        self.endpoint.lost(peer)
    }

    /// Sends a message; see [`MessagingEndpoint::send`].
    ///
    /// # Errors
    /// If the machine rejects it; the buffer returns.
    pub fn send(&mut self, to: Rank, tag: u64, buffer: Vec<u8>) -> Result<SendId, RejectedPost> {
        let now = self.transport.now();
        // Corrupting a packet needs a copy of the original.
        let id = match self.corrupter {
            None => self.endpoint.send_into(now, to, tag, buffer, &mut TransportSendBuffers(&mut self.transport))?,
            Some(_) => self.endpoint.send(now, to, tag, buffer)?,
        };
        self.carry_out();
        Ok(id)
    }

    /// Posts a receive; see [`MessagingEndpoint::receive`].
    ///
    /// # Errors
    /// If the machine rejects it; the buffer returns.
    pub fn receive(&mut self, wanted: MessageSelector, buffer: Vec<u8>) -> Result<ReceiveId, RejectedPost> {
        let id = self.endpoint.receive(self.transport.now(), wanted, buffer)?;
        self.carry_out();
        Ok(id)
    }

    /// See [`MessagingEndpoint::probe`].
    pub fn probe(&self, wanted: &MessageSelector) -> Option<ProbedMessage> {
        self.endpoint.probe(wanted)
    }

    /// See [`MessagingEndpoint::cancel_receive`].
    pub fn cancel_receive(&mut self, id: ReceiveId) -> Option<Vec<u8>> {
        self.endpoint.cancel_receive(id)
    }

    /// See [`MessagingEndpoint::cancel_send`].
    pub fn cancel_send(&mut self, id: SendId) -> Option<Vec<u8>> {
        self.endpoint.cancel_send(id)
    }

    /// Sends lent memory; see [`MessagingEndpoint::send_lent`].
    ///
    /// # Errors
    /// If the machine rejects it.
    pub fn send_lent(
        &mut self,
        to: Rank,
        tag_and_note: (u64, u128),
        loan: Arc<dyn LentBytes>,
    ) -> Result<SendId, MessagePostError> {
        let id = self.endpoint.send_lent(self.transport.now(), to, tag_and_note, loan)?;
        self.carry_out();
        Ok(id)
    }

    /// The next message for a user who matches; see [`MessagingEndpoint::poll_arrival`].
    pub fn next_arrival(&mut self) -> Option<MessageArrival> {
        self.endpoint.poll_arrival()
    }

    /// Accepts an eager message; see [`MessagingEndpoint::accept_eager`].
    ///
    /// # Errors
    /// If its bytes changed in memory.
    pub fn accept_eager(&mut self, arrival: MessageArrival) -> Result<Vec<u8>, MessageFailure> {
        let accepted = self.endpoint.accept_eager(self.transport.now(), arrival);
        self.carry_out();
        accepted
    }

    /// Accepts a long message; see [`MessagingEndpoint::accept_transfer`].
    ///
    /// # Errors
    /// If the sender is lost.
    pub fn accept_transfer(
        &mut self,
        arrival: MessageArrival,
        loan: Box<dyn LentBytesMut>,
    ) -> Result<ReceiveId, MessagePostError> {
        let id = self.endpoint.accept_transfer(self.transport.now(), arrival, loan)?;
        self.carry_out();
        Ok(id)
    }

    /// Discards a message; see [`MessagingEndpoint::discard`].
    pub fn discard(&mut self, arrival: MessageArrival) {
        self.endpoint.discard(self.transport.now(), arrival);
        self.carry_out();
    }

    /// Drops a peer, and fails all its sends and receives.
    pub fn drop_peer(&mut self, peer: Rank) {
        self.endpoint.drop_peer(peer);
        self.carry_out();
    }

    /// Whether a completion is available.
    pub fn has_completions(&self) -> bool {
        self.endpoint.has_completions()
    }

    /// The next completion.
    pub fn next_completion(&mut self) -> Option<MessageCompletion> {
        self.endpoint.poll_completion()
    }

    /// Does all that can be done now. With no completion to report, waits for at most `wait`.
    ///
    /// # Errors
    /// If the system call that waits fails.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let wait = if self.endpoint.has_completions() { Duration::ZERO } else { wait };
        let Self { endpoint, transport, corrupter, originals, corrupted } = self;
        let outcome = transport.turn(wait, &mut |now, event| match event {
            TransportEvent::Packet { from, rail, path, bytes } => {
                if let Some(corrupter) = corrupter.as_mut().filter(|_| has_body(bytes)) {
                    corrupter(CorruptionStage::Arrival, bytes);
                }
                if !endpoint.handle_packet(now, from, rail, bytes) {
                    corrupted.push((from, rail, path));
                }
            }
            TransportEvent::SendComplete { to, rail, bytes } => {
                let index = originals.iter().position(|(rank, on, _)| (*rank, *on) == (to, rail));
                let original = index.and_then(|index| originals.remove(index)).map(|(.., bytes)| bytes);
                endpoint.handle_sent(now, to, rail, original.unwrap_or(bytes));
            }
            TransportEvent::RailLost { peer, rail } => endpoint.handle_rail_lost(now, peer, rail),
        });
        // Also after an error: completions may be reported only when their actions are done, such as to close the rails of a lost
        // peer, which write to memory that the completion returns.
        corrupted.drain(..).for_each(|(from, rail, path)| transport.report_corruption(from, rail, path));
        self.carry_out();
        outcome
    }

    fn next_action(&mut self) -> Option<MessagingAction> {
        match self.corrupter {
            None => self.endpoint.poll_action_into(&mut TransportSendBuffers(&mut self.transport)),
            Some(_) => self.endpoint.poll_action(),
        }
    }

    #[inline]
    fn carry_out(&mut self) {
        if self.endpoint.has_actions() {
            self.carry_out_all();
        }
    }

    #[inline(never)]
    fn carry_out_all(&mut self) {
        while let Some(action) = self.next_action() {
            match action {
                MessagingAction::TransmitInPlace { to, rail, .. } => {
                    self.transport.send_reserved(to, rail, SendReport::Wanted)
                }
                MessagingAction::TransmitBorrowed { to, rail, head, body, ask } => {
                    self.transport.send_borrowed(to, rail, head, body, ask)
                }
                MessagingAction::Transmit { to, rail, mut bytes, .. } => {
                    if let Some(corrupter) = &mut self.corrupter {
                        self.originals.push_back((to, rail, bytes.clone()));
                        if has_body(&bytes) {
                            corrupter(CorruptionStage::Departure, &mut bytes);
                        }
                    }
                    self.transport.send(to, rail, bytes);
                }
                MessagingAction::DropPeer { peer, .. } => self.transport.drop_peer(peer),
            }
        }
    }

    /// Waits until every sent message has arrived intact, and the peers know the same of theirs. False if that takes longer than
    /// `limit`.
    ///
    /// # Errors
    /// If the system call that waits fails.
    pub fn drain(&mut self, limit: Duration) -> io::Result<bool> {
        let began = Instant::now();
        self.endpoint.drain(self.transport.now());
        self.carry_out();
        while !self.endpoint.is_drained() {
            if began.elapsed() > limit {
                return Ok(false);
            }
            self.turn(Duration::from_millis(1))?;
        }
        // The last packets are acknowledged with a delay, and their sender may wait for nothing else.
        let drained = Instant::now();
        while drained.elapsed() < LINGER {
            self.turn(LINGER.saturating_sub(drained.elapsed()))?;
        }
        Ok(true)
    }
}

/// The reserved send buffers of a transport.
struct TransportSendBuffers<'a, T>(&'a mut T);

impl<T: MessageTransport> InPlaceBuffers for TransportSendBuffers<'_, T> {
    #[inline]
    fn reserve(&mut self, to: Rank, rail: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        self.0.reserve(to, rail, bytes)
    }

    #[inline]
    fn send_reserved(&mut self, to: Rank, rail: RailIndex) {
        self.0.send_reserved(to, rail, SendReport::Unwanted);
    }

    fn supports_borrowed(&self) -> bool {
        self.0.supports_borrowed()
    }

    fn shares_memory_with(&self, peer: Rank) -> bool {
        self.0.shares_memory_with(peer)
    }
}
