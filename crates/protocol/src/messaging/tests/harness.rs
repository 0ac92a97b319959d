//! Ports and the rails between them, in memory.

use std::collections::{BTreeMap, VecDeque};

use faults::RandomStream;
use units::{Rank, Span, Time};

use crate::BufferSlice;
use crate::messaging::{
    InPlaceBuffers, MessageCompletion, MessagingAction, MessagingEndpoint, MessagingSettings, RailIndex,
};

/// From, to, rail.
pub(super) type RailDirection = (Rank, Rank, RailIndex);

/// How parcels are spoiled.
#[derive(Clone, Copy, Default)]
pub(super) struct CorruptionPlan {
    /// One parcel in so many has bits flipped; zero: none.
    pub(super) one_in: u64,
    /// So many bits.
    pub(super) bits: u64,
    /// Only parcels of this rail.
    pub(super) only: Option<RailIndex>,
}

/// Lends its room for every other piece; of the others, sends every other from where it lies.
#[derive(Default)]
struct AlternatingBuffers {
    asked: u64,
    bytes: Vec<u8>,
    /// What went from it at once.
    sent: Vec<(Rank, RailIndex, Vec<u8>)>,
}

impl InPlaceBuffers for AlternatingBuffers {
    fn room(&mut self, _: Rank, _: RailIndex, bytes: usize) -> Option<&mut [u8]> {
        self.asked += 1;
        self.bytes.resize(bytes, 0);
        self.asked.is_multiple_of(2).then_some(&mut self.bytes)
    }

    fn send_room(&mut self, to: Rank, rail: RailIndex) {
        self.sent.push((to, rail, self.bytes.clone()));
    }

    fn borrows(&self) -> bool {
        self.asked % 4 < 2
    }
}

const MOST_LENT: usize = 2;

/// A parcel on its way.
#[derive(Clone)]
pub(super) struct TestPacket {
    pub(super) bytes: Vec<u8>,
    /// Whether its sender hears that it has come.
    is_told: bool,
}

type Lines = BTreeMap<RailDirection, VecDeque<TestPacket>>;

pub(super) struct MessagingHarness {
    pub(super) ports: Vec<MessagingEndpoint>,
    pub(super) now: Time,
    pub(super) lines: Lines,
    /// Parcels that have come and whose sender has not heard so.
    landed: Lines,
    pub(super) dead: Vec<RailDirection>,
    pub(super) spoiling: CorruptionPlan,
    pub(super) spoiled: u64,
    pub(super) completions: Vec<(Rank, MessageCompletion)>,
    pub(super) dropped: Vec<(Rank, Rank, crate::messaging::PeerLossCause)>,
    room: AlternatingBuffers,
    /// What was lent of late: a driver holds it for a while.
    lent: VecDeque<BufferSlice>,
    luck: RandomStream,
    drawn: u64,
}

impl MessagingHarness {
    pub(super) fn new(settings: MessagingSettings, ranks: u32, rails: u8, seed: u64) -> Self {
        let port = |rank: u32| {
            let mut port = MessagingEndpoint::new(settings);
            (0..ranks).filter(|peer| *peer != rank).for_each(|peer| port.add_peer(Rank(peer), rails));
            port
        };
        Self {
            ports: (0..ranks).map(port).collect(),
            now: Time::ZERO,
            lines: BTreeMap::new(),
            landed: BTreeMap::new(),
            dead: Vec::new(),
            spoiling: CorruptionPlan::default(),
            spoiled: 0,
            completions: Vec::new(),
            dropped: Vec::new(),
            room: AlternatingBuffers::default(),
            lent: VecDeque::new(),
            luck: RandomStream::new(seed, 0x6d65_7373),
            drawn: 0,
        }
    }

    pub(super) fn draw(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        self.luck.below(self.drawn, bound)
    }

    pub(super) fn port(&mut self, rank: Rank) -> &mut MessagingEndpoint {
        &mut self.ports[rank.index()]
    }

    /// Carries out what a port wants.
    pub(super) fn attend(&mut self, rank: Rank) {
        for (to, rail, bytes) in std::mem::take(&mut self.room.sent) {
            self.lines.entry((rank, to, rail)).or_default().push_back(TestPacket { bytes, is_told: false });
        }
        let fly = |lines: &mut Lines, to, rail, bytes| {
            lines.entry((rank, to, rail)).or_default().push_back(TestPacket { bytes, is_told: true });
        };
        while let Some(duty) = self.ports[rank.index()].poll_duty_into(&mut self.room) {
            match duty {
                MessagingAction::Transmit { to, rail, bytes, .. } => fly(&mut self.lines, to, rail, bytes),
                MessagingAction::Lend { to, rail, mut head, body, .. } => {
                    head.extend_from_slice(body.bytes());
                    fly(&mut self.lines, to, rail, head);
                    self.lent.push_back(body);
                    if self.lent.len() > MOST_LENT {
                        self.lent.pop_front();
                    }
                }
                MessagingAction::Written { to, rail, length } => {
                    assert_eq!(self.room.bytes.len(), length, "what was lent is what was written");
                    fly(&mut self.lines, to, rail, self.room.bytes.clone());
                }
                MessagingAction::Drop { peer, cause } => self.dropped.push((rank, peer, cause)),
            }
        }
        while let Some(completion) = self.ports[rank.index()].poll_completion() {
            self.completions.push((rank, completion));
        }
    }

    pub(super) fn send(&mut self, from: Rank, to: Rank, tag: u64, data: Vec<u8>) -> crate::messaging::SendId {
        let now = self.now;
        let id = self.ports[from.index()].send_into(now, to, tag, data, &mut self.room).expect("it may send");
        self.attend(from);
        id
    }

    pub(super) fn receive(
        &mut self,
        at: Rank,
        wanted: crate::messaging::MessageSelector,
        bytes: usize,
    ) -> crate::messaging::ReceiveId {
        let now = self.now;
        let id = self.port(at).receive(now, wanted, vec![0xaa; bytes]).expect("it may receive");
        self.attend(at);
        id
    }

    /// One parcel comes, or one sender hears that its parcel has come. False if there is nothing under way.
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
            Some(line) => self.bring(*line),
            None => self.tell(landed[choice - going.len()]),
        }
        true
    }

    fn bring(&mut self, line: RailDirection) {
        let (from, to, rail) = line;
        let flying = self.lines.get_mut(&line).and_then(VecDeque::pop_front).expect("looked at");
        let mut arrived = flying.bytes.clone();
        let CorruptionPlan { one_in, bits, only } = self.spoiling;
        if one_in > 0 && only.is_none_or(|only| only == rail) && self.draw(one_in) == 0 {
            self.spoiled += 1;
            for _ in 0..bits {
                let bit = self.draw(arrived.len() as u64 * 8);
                arrived[bit as usize / 8] ^= 1 << (bit % 8);
            }
        }
        let now = self.now;
        self.port(to).handle_parcel(now, from, rail, &arrived);
        self.attend(to);
        if flying.is_told {
            self.landed.entry(line).or_default().push_back(flying);
        }
    }

    /// The sender hears of everything that has come.
    pub(super) fn tell_all(&mut self, line: RailDirection) {
        while self.landed.get(&line).is_some_and(|queue| !queue.is_empty()) {
            self.tell(line);
        }
    }

    fn tell(&mut self, line: RailDirection) {
        let (from, to, rail) = line;
        let TestPacket { bytes, .. } = self.landed.get_mut(&line).and_then(VecDeque::pop_front).expect("looked at");
        let now = self.now;
        self.port(from).handle_sent(now, to, rail, bytes);
        self.attend(from);
    }

    /// A rail between two ranks dies: nothing comes through any more, and one end hears of it.
    pub(super) fn cut(&mut self, one: Rank, other: Rank, rail: RailIndex) {
        for (from, to) in [(one, other), (other, one)] {
            self.dead.push((from, to, rail));
        }
        self.give_back(one, other, rail);
    }

    /// An end hears that a rail is dead, and gets back what was on it.
    pub(super) fn give_back(&mut self, at: Rank, peer: Rank, rail: RailIndex) {
        let line = (at, peer, rail);
        let landed = self.landed.remove(&line).unwrap_or_default();
        let flying = self.lines.remove(&line).unwrap_or_default();
        let now = self.now;
        self.port(at).handle_rail_lost(now, peer, rail);
        for flying in landed.into_iter().chain(flying).filter(|flying| flying.is_told) {
            self.port(at).handle_sent(now, peer, rail, flying.bytes);
        }
        self.attend(at);
    }

    /// Runs until nothing moves. Ends that have not heard of a dead rail hear of it then.
    pub(super) fn run(&mut self) {
        loop {
            while self.step() {}
            let unheard = self.lines.iter().find(|(line, queue)| !queue.is_empty() && self.dead.contains(line));
            let Some((&(at, peer, rail), _)) = unheard else { return };
            self.give_back(at, peer, rail);
        }
    }

    pub(super) fn drain(&mut self) {
        for rank in (0..self.ports.len() as u32).map(Rank) {
            let now = self.now;
            self.port(rank).drain(now);
            self.attend(rank);
        }
        self.run();
        for (rank, port) in self.ports.iter().enumerate() {
            assert!(port.is_drained(), "rank {rank} waits for confirmations");
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

/// Bytes that follow from a number.
pub(super) fn bytes(number: u64, length: usize) -> Vec<u8> {
    let stream = RandomStream::new(number, 7);
    let mut bytes: Vec<u8> = (0..length.div_ceil(8) as u64).flat_map(|word| stream.at(word).to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}
