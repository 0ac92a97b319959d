//! Endpoints joined by rails in memory.

use std::collections::{BTreeMap, VecDeque};

use faults::RandomStream;
use units::{Rank, Span, Time};

use crate::BufferSlice;
use crate::messaging::{
    InPlaceBuffers, MessageCompletion, MessagingAction, MessagingEndpoint, MessagingSettings, RailIndex,
};

/// From, to, rail.
pub(super) type RailDirection = (Rank, Rank, RailIndex);

/// How packets are corrupted.
#[derive(Clone, Copy, Default)]
pub(super) struct CorruptionPlan {
    /// One packet in this many has bits flipped; zero for none.
    pub(super) one_in: u64,
    /// Bits to flip.
    pub(super) bits: u64,
    /// Only packets of this rail.
    pub(super) only: Option<RailIndex>,
}

/// Reserves a buffer for every other packet; of the other fragments, sends every other from the user's buffer.
#[derive(Default)]
struct AlternatingBuffers {
    requests: u64,
    bytes: Vec<u8>,
    /// Packets that were sent at once.
    sent: Vec<(Rank, RailIndex, Vec<u8>)>,
}

impl InPlaceBuffers for AlternatingBuffers {
    fn reserve(&mut self, _: Rank, _: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        self.requests += 1;
        self.bytes.resize(bytes, 0);
        self.requests.is_multiple_of(2).then_some(&mut self.bytes)
    }

    fn send_reserved(&mut self, to: Rank, rail: RailIndex) {
        self.sent.push((to, rail, self.bytes.clone()));
    }

    fn supports_borrowed(&self) -> bool {
        self.requests % 4 < 2
    }
}

const MAX_BORROWED: usize = 2;

/// A packet in flight.
#[derive(Clone)]
pub(super) struct TestPacket {
    pub(super) bytes: Vec<u8>,
    /// Whether the driver returns it to its sender.
    is_returned: bool,
}

type Lines = BTreeMap<RailDirection, VecDeque<TestPacket>>;

pub(super) struct MessagingHarness {
    pub(super) endpoints: Vec<MessagingEndpoint>,
    pub(super) now: Time,
    pub(super) lines: Lines,
    /// Packets that arrived and were not returned to their sender yet.
    landed: Lines,
    pub(super) dead: Vec<RailDirection>,
    pub(super) corruption: CorruptionPlan,
    pub(super) corrupted: u64,
    pub(super) completions: Vec<(Rank, MessageCompletion)>,
    pub(super) dropped: Vec<(Rank, Rank, crate::messaging::PeerLossCause)>,
    buffers: AlternatingBuffers,
    /// Recently borrowed slices: a driver holds them for a while.
    borrowed: VecDeque<BufferSlice>,
    random: RandomStream,
    drawn: u64,
}

impl MessagingHarness {
    pub(super) fn new(settings: MessagingSettings, ranks: u32, rails: u8, seed: u64) -> Self {
        let endpoint = |rank: u32| {
            let mut endpoint = MessagingEndpoint::new(settings);
            (0..ranks).filter(|peer| *peer != rank).for_each(|peer| endpoint.add_peer(Rank(peer), rails));
            endpoint
        };
        Self {
            endpoints: (0..ranks).map(endpoint).collect(),
            now: Time::ZERO,
            lines: BTreeMap::new(),
            landed: BTreeMap::new(),
            dead: Vec::new(),
            corruption: CorruptionPlan::default(),
            corrupted: 0,
            completions: Vec::new(),
            dropped: Vec::new(),
            buffers: AlternatingBuffers::default(),
            borrowed: VecDeque::new(),
            random: RandomStream::new(seed, 0x6d65_7373),
            drawn: 0,
        }
    }

    pub(super) fn draw(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        self.random.below(self.drawn, bound)
    }

    pub(super) fn endpoint(&mut self, rank: Rank) -> &mut MessagingEndpoint {
        &mut self.endpoints[rank.index()]
    }

    /// Executes the actions of an endpoint.
    pub(super) fn execute_actions(&mut self, rank: Rank) {
        for (to, rail, bytes) in std::mem::take(&mut self.buffers.sent) {
            self.lines.entry((rank, to, rail)).or_default().push_back(TestPacket { bytes, is_returned: false });
        }
        let fly = |lines: &mut Lines, to, rail, bytes| {
            lines.entry((rank, to, rail)).or_default().push_back(TestPacket { bytes, is_returned: true });
        };
        while let Some(action) = self.endpoints[rank.index()].poll_action_into(&mut self.buffers) {
            match action {
                MessagingAction::Transmit { to, rail, bytes, .. } => fly(&mut self.lines, to, rail, bytes),
                MessagingAction::TransmitBorrowed { to, rail, mut head, body, .. } => {
                    head.extend_from_slice(body.bytes());
                    fly(&mut self.lines, to, rail, head);
                    self.borrowed.push_back(body);
                    if self.borrowed.len() > MAX_BORROWED {
                        self.borrowed.pop_front();
                    }
                }
                MessagingAction::TransmitInPlace { to, rail, length } => {
                    assert_eq!(self.buffers.bytes.len(), length, "the whole reserved buffer is the packet");
                    fly(&mut self.lines, to, rail, self.buffers.bytes.clone());
                }
                MessagingAction::DropPeer { peer, cause } => self.dropped.push((rank, peer, cause)),
            }
        }
        while let Some(completion) = self.endpoints[rank.index()].poll_completion() {
            self.completions.push((rank, completion));
        }
    }

    pub(super) fn send(&mut self, from: Rank, to: Rank, tag: u64, data: Vec<u8>) -> crate::messaging::SendId {
        let now = self.now;
        let id = self.endpoints[from.index()]
            .send_into(now, to, tag, data, &mut self.buffers)
            .expect("the send is accepted");
        self.execute_actions(from);
        id
    }

    pub(super) fn receive(
        &mut self,
        at: Rank,
        wanted: crate::messaging::MessageSelector,
        bytes: usize,
    ) -> crate::messaging::ReceiveId {
        let now = self.now;
        let id = self.endpoint(at).receive(now, wanted, vec![0xaa; bytes]).expect("the receive is accepted");
        self.execute_actions(at);
        id
    }

    /// One packet arrives, or one is returned to its sender. False if nothing is in flight.
    pub(super) fn step(&mut self) -> bool {
        self.now += Span::from_nanos(100);
        let moving = |lines: &Lines, dead: &[RailDirection]| {
            let lines = lines.iter().filter(|(line, queue)| !queue.is_empty() && !dead.contains(line));
            lines.map(|(line, _)| *line).collect::<Vec<RailDirection>>()
        };
        let (going, landed) = (moving(&self.lines, &self.dead), moving(&self.landed, &[]));
        let choices = (going.len() + landed.len()) as u64;
        if choices == 0 {
            return false;
        }
        let choice = self.draw(choices) as usize;
        match going.get(choice) {
            Some(line) => self.deliver(*line),
            None => self.return_one(landed[choice - going.len()]),
        }
        true
    }

    fn deliver(&mut self, line: RailDirection) {
        let (from, to, rail) = line;
        let flying = self.lines.get_mut(&line).and_then(VecDeque::pop_front).expect("the queue is not empty");
        let mut arrived = flying.bytes.clone();
        let CorruptionPlan { one_in, bits, only } = self.corruption;
        if one_in > 0 && only.is_none_or(|only| only == rail) && self.draw(one_in) == 0 {
            self.corrupted += 1;
            for _ in 0..bits {
                let bit = self.draw(arrived.len() as u64 * 8);
                arrived[bit as usize / 8] ^= 1 << (bit % 8);
            }
        }
        let now = self.now;
        self.endpoint(to).handle_packet(now, from, rail, &arrived);
        self.execute_actions(to);
        if flying.is_returned {
            self.landed.entry(line).or_default().push_back(flying);
        }
    }

    /// Returns every packet that arrived to its sender.
    pub(super) fn return_all(&mut self, line: RailDirection) {
        while self.landed.get(&line).is_some_and(|queue| !queue.is_empty()) {
            self.return_one(line);
        }
    }

    fn return_one(&mut self, line: RailDirection) {
        let (from, to, rail) = line;
        let TestPacket { bytes, .. } =
            self.landed.get_mut(&line).and_then(VecDeque::pop_front).expect("the queue is not empty");
        let now = self.now;
        self.endpoint(from).handle_sent(now, to, rail, bytes);
        self.execute_actions(from);
    }

    /// A rail between two ranks fails, and one end learns of it.
    pub(super) fn cut(&mut self, one: Rank, other: Rank, rail: RailIndex) {
        for (from, to) in [(one, other), (other, one)] {
            self.dead.push((from, to, rail));
        }
        self.give_back(one, other, rail);
    }

    /// An end learns that a rail failed; its packets are returned.
    pub(super) fn give_back(&mut self, at: Rank, peer: Rank, rail: RailIndex) {
        let line = (at, peer, rail);
        let landed = self.landed.remove(&line).unwrap_or_default();
        let flying = self.lines.remove(&line).unwrap_or_default();
        let now = self.now;
        self.endpoint(at).handle_rail_lost(now, peer, rail);
        for flying in landed.into_iter().chain(flying).filter(|flying| flying.is_returned) {
            self.endpoint(at).handle_sent(now, peer, rail, flying.bytes);
        }
        self.execute_actions(at);
    }

    /// Runs until nothing is in flight. Then the other ends learn of failed rails.
    pub(super) fn run(&mut self) {
        loop {
            while self.step() {}
            let unaware = self.lines.iter().find(|(line, queue)| !queue.is_empty() && self.dead.contains(line));
            let Some((&(at, peer, rail), _)) = unaware else { return };
            self.give_back(at, peer, rail);
        }
    }

    pub(super) fn drain(&mut self) {
        for rank in (0..self.endpoints.len() as u32).map(Rank) {
            let now = self.now;
            self.endpoint(rank).drain(now);
            self.execute_actions(rank);
        }
        self.run();
        for (rank, endpoint) in self.endpoints.iter().enumerate() {
            assert!(endpoint.is_drained(), "rank {rank} is not drained");
        }
    }

    /// Messages received at a rank, in the order in which their receives were posted.
    pub(super) fn received(&self, at: Rank) -> Vec<(Rank, u64, Vec<u8>)> {
        let mut found: Vec<_> = self
            .completions
            .iter()
            .filter(|(rank, _)| *rank == at)
            .filter_map(|(_, completion)| match completion {
                MessageCompletion::Received { id, source, tag, length, buffer } => {
                    Some((*id, *source, *tag, buffer[..*length].to_vec()))
                }
                _ => None,
            })
            .collect();
        found.sort_by_key(|(id, ..)| *id);
        found.into_iter().map(|(_, source, tag, bytes)| (source, tag, bytes)).collect()
    }
}

/// Bytes derived from a number.
pub(super) fn bytes(number: u64, length: usize) -> Vec<u8> {
    let stream = RandomStream::new(number, 7);
    let mut bytes: Vec<u8> = (0..length.div_ceil(8) as u64).flat_map(|word| stream.at(word).to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}
