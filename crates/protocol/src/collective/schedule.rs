//! The schedule of one rank in one collective: what it sends and receives in each round.

use std::fmt;
use std::sync::Arc;

use reduce::ReductionKind;
use units::Rank;

use super::algorithm::{CollectiveAlgorithm, MAX_PHASES, SchedulePhase, phases};
use super::block_layout::BlockLayout;
use super::collective_operation::{CollectiveOperation, ScanExtent, ScheduledCollective};
use super::compiled_rounds::{CompiledRounds, CompiledSteps};
use super::direct::PAIRS_PER_ROUND;
use super::fold_order::FoldOrder;
use super::recursive_exchange::participants;
use super::step::{MAX_RANKS, RankContext, ReceiveStep, RoundEnd, SendStep, VectorRange};

/// The largest radix: a rank keeps up to this many messages of one round.
pub const MAX_RADIX: u16 = 64;

// Patterns multiply spans by the radix until they exceed the number of ranks.
const _: () = assert!((MAX_RANKS as u64) * (MAX_RADIX as u64) <= u32::MAX as u64);

// A rank keeps no more messages of a round of an alltoall than of any other.
const _: () = assert!(PAIRS_PER_ROUND <= MAX_RADIX as u32);

/// What one rank sends and receives in each round of one collective (P-55).
#[derive(Clone, Debug)]
pub struct CollectiveSchedule {
    algorithm: CollectiveAlgorithm,
    collective: CollectiveOperation,
    rank: u32,
    size: u32,
    bytes: u32,
    /// Cached because every message needs them: how many ranks take part in recursive exchanges, and the number of
    /// rounds up to the end of each phase.
    participants: u32,
    ends: [u32; MAX_PHASES],
    order: Option<Arc<FoldOrder>>,
    blocks: Option<Arc<BlockLayout>>,
    /// Cached for the same reason.
    fingerprint: u32,
    /// All steps, if they were computed before ([`CollectiveSchedule::compiled`]).
    compiled: Option<Arc<CompiledRounds>>,
}

impl CollectiveSchedule {
    /// The schedule of `rank` among `size` ranks in a collective over vectors of so many bytes.
    ///
    /// # Errors
    /// If the arguments are inconsistent. All ranks with the same arguments get the same error.
    pub fn new(
        algorithm: CollectiveAlgorithm,
        collective: CollectiveOperation,
        rank: Rank,
        size: u32,
        bytes: u32,
    ) -> Result<Self, ScheduleError> {
        if algorithm.is_ordered() {
            return Err(ScheduleError::NoOrder(algorithm));
        }
        if collective.has_blocks() {
            return Err(ScheduleError::NoBlocks(collective));
        }
        Self::checked(algorithm, collective, rank, (size, bytes), ScheduleShape::Plain)
    }

    /// As [`CollectiveSchedule::new`], for a collective that divides the vector into one block per rank. The layout determines the number
    /// of ranks and the length of the vector (P-102).
    ///
    /// # Errors
    /// As [`CollectiveSchedule::new`], and if the collective has no blocks.
    pub fn in_blocks(
        algorithm: CollectiveAlgorithm,
        collective: CollectiveOperation,
        rank: Rank,
        blocks: Arc<BlockLayout>,
    ) -> Result<Self, ScheduleError> {
        if !collective.has_blocks() {
            return Err(ScheduleError::IgnoresBlocks(collective));
        }
        let extent = (blocks.size(), blocks.bytes());
        Self::checked(algorithm, collective, rank, extent, ScheduleShape::Blocks(blocks))
    }

    /// As [`CollectiveSchedule::new`] or [`CollectiveSchedule::in_blocks`], whichever the collective needs.
    ///
    /// # Errors
    /// As these; also if the layout is for another number of ranks, or another length.
    pub fn of(
        algorithm: CollectiveAlgorithm,
        collective: &ScheduledCollective,
        rank: Rank,
        size: u32,
        bytes: u32,
    ) -> Result<Self, ScheduleError> {
        let operation = collective.operation;
        match &collective.blocks {
            None => Self::new(algorithm, operation, rank, size, bytes),
            Some(blocks) if blocks.size() != size => Err(ScheduleError::Size(blocks.size())),
            Some(blocks) if blocks.bytes() != bytes => Err(ScheduleError::Length { collective: operation, bytes }),
            Some(blocks) => Self::in_blocks(algorithm, operation, rank, blocks.clone()),
        }
    }

    /// As [`CollectiveSchedule::new`], for an algorithm with a prescribed order. The order determines the number of
    /// ranks.
    ///
    /// # Errors
    /// As [`CollectiveSchedule::new`], and if the algorithm does not use a prescribed order.
    pub fn ordered(
        algorithm: CollectiveAlgorithm,
        collective: CollectiveOperation,
        rank: Rank,
        order: Arc<FoldOrder>,
        bytes: u32,
    ) -> Result<Self, ScheduleError> {
        if !algorithm.is_ordered() {
            return Err(ScheduleError::IgnoresOrder(algorithm));
        }
        let size = order.size();
        Self::checked(algorithm, collective, rank, (size, bytes), ScheduleShape::Ordered(order))
    }

    fn checked(
        algorithm: CollectiveAlgorithm,
        collective: CollectiveOperation,
        rank: Rank,
        (size, bytes): (u32, u32),
        shape: ScheduleShape,
    ) -> Result<Self, ScheduleError> {
        if size == 0 || size > MAX_RANKS {
            return Err(ScheduleError::Size(size));
        }
        if !algorithm.supports(&collective) {
            return Err(ScheduleError::Unsuited { algorithm, collective });
        }
        if !(2..=MAX_RADIX).contains(&algorithm.radix()) {
            return Err(ScheduleError::Radix(algorithm.radix()));
        }
        let ranks = [Some(rank), collective.root()];
        if let Some(rank) = ranks.into_iter().flatten().find(|rank| rank.0 >= size) {
            return Err(ScheduleError::UnknownRank(rank));
        }
        let is_whole = match (&collective, &shape) {
            (CollectiveOperation::Barrier, _) => bytes == 0,
            (_, ScheduleShape::Blocks(blocks)) => blocks.has_whole(element_size(&collective)),
            _ => bytes.is_multiple_of(element_size(&collective)),
        };
        if !is_whole {
            return Err(ScheduleError::Length { collective, bytes });
        }
        let participants = participants(size, algorithm.radix().into());
        let ends = [0; MAX_PHASES];
        let fingerprint = 0;
        let (order, blocks) = match shape {
            ScheduleShape::Plain => (None, None),
            ScheduleShape::Ordered(order) => (Some(order), None),
            ScheduleShape::Blocks(blocks) => (None, Some(blocks)),
        };
        let rank = rank.0;
        let compiled = None;
        let mut schedule = Self {
            algorithm,
            collective,
            rank,
            size,
            bytes,
            participants,
            ends,
            order,
            blocks,
            fingerprint,
            compiled,
        };
        schedule.ends = schedule.count_rounds();
        schedule.fingerprint = schedule.digest();
        Ok(schedule)
    }

    /// The same schedule with a table of its steps, unless there are too many: for operations that are repeated.
    #[must_use]
    pub fn compiled(mut self) -> Self {
        let mut table = CompiledRounds::new();
        let is_short = (0..self.rounds()).all(|round| {
            let end = self.phase(round).map_or(RoundEnd::Nothing, |phase| phase.end());
            table.add(self.sends(round), self.receives(round), end, self.next_round(round))
        });
        self.compiled = is_short.then(|| Arc::new(table));
        self
    }

    /// The algorithm.
    pub fn algorithm(&self) -> CollectiveAlgorithm {
        self.algorithm
    }

    /// The collective.
    pub fn collective(&self) -> CollectiveOperation {
        self.collective
    }

    /// The rank.
    pub fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The length of the vector in bytes.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The reduction, if there is one.
    pub fn kind(&self) -> Option<ReductionKind> {
        self.collective.kind()
    }

    /// The prescribed order, if there is one.
    pub fn order(&self) -> Option<&FoldOrder> {
        self.order.as_deref()
    }

    /// The number of rounds, the same at every rank. A rank may be idle in some of them.
    pub fn rounds(&self) -> u32 {
        self.ends[MAX_PHASES - 1]
    }

    /// The messages that the rank sends when it enters a round.
    pub fn sends(&self, round: u32) -> impl Iterator<Item = SendStep> + '_ {
        self.round(round).into_iter().flat_map(RoundSteps::into_sends)
    }

    /// The messages that the rank must receive before it leaves a round, in fold order.
    pub fn receives(&self, round: u32) -> impl Iterator<Item = ReceiveStep> + '_ {
        self.round(round).into_iter().flat_map(RoundSteps::into_receives)
    }

    /// The message expected from a rank in a round, if any.
    pub fn expected(&self, round: u32, from: Rank) -> Option<ReceiveStep> {
        self.receives(round).find(|receive| receive.from == from)
    }

    /// The range of the vector that is the rank's result at the end; the rest holds no usable data.
    pub fn result_range(&self) -> VectorRange {
        let at = self.context();
        let has_result = match self.collective {
            CollectiveOperation::Reduce { root, .. } | CollectiveOperation::Gather { root } => root.0 == self.rank,
            CollectiveOperation::Scan { extent: ScanExtent::Exclusive, .. } => self.rank > 0,
            CollectiveOperation::ReduceScatter { .. } | CollectiveOperation::Scatter { .. } => {
                return at.block(self.rank);
            }
            _ => true,
        };
        if has_result { at.whole() } else { VectorRange::NOTHING }
    }

    /// A digest of everything on which the ranks of an operation must agree, for message headers. Ranks that call
    /// different collectives detect it by the digest.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    fn digest(&self) -> u32 {
        let (code, root) = match self.collective {
            CollectiveOperation::Barrier => (0_u8, Rank(0)),
            CollectiveOperation::Broadcast { root } => (1, root),
            CollectiveOperation::Reduce { root, .. } => (2, root),
            CollectiveOperation::AllReduce { .. } => (3, Rank(0)),
            CollectiveOperation::ReduceScatter { .. } => (4, Rank(0)),
            CollectiveOperation::Scan { extent: ScanExtent::Inclusive, .. } => (5, Rank(0)),
            CollectiveOperation::Scan { extent: ScanExtent::Exclusive, .. } => (6, Rank(0)),
            CollectiveOperation::AllGather => (7, Rank(0)),
            CollectiveOperation::Gather { root } => (8, root),
            CollectiveOperation::Scatter { root } => (9, root),
            CollectiveOperation::AllToAll => (10, Rank(0)),
        };
        let kind = self.kind().map_or([0, 0], |kind| [kind.element().code(), kind.operator().code()]);
        let algorithm = match self.algorithm {
            CollectiveAlgorithm::RecursiveDoubling => 0_u8,
            CollectiveAlgorithm::RecursiveKing { .. } => 1,
            CollectiveAlgorithm::Rabenseifner => 2,
            CollectiveAlgorithm::Ring => 3,
            CollectiveAlgorithm::Tree { .. } => 4,
            CollectiveAlgorithm::ScatterAllgather => 5,
            CollectiveAlgorithm::Dissemination { .. } => 6,
            CollectiveAlgorithm::OrderedTree => 7,
            CollectiveAlgorithm::OrderedBlocks => 8,
            CollectiveAlgorithm::Chain => 9,
            CollectiveAlgorithm::RecursiveHalving => 10,
            CollectiveAlgorithm::Direct => 11,
        };
        let order = self.order.as_ref().map_or(0, |order| order.digest());
        // The layout covers the length, which differs between the ranks of an alltoall.
        let length = self.blocks.as_ref().map_or(self.bytes, |blocks| blocks.digest());
        checksum::crc32c(&[
            &[code, algorithm],
            &kind,
            &self.algorithm.radix().to_le_bytes(),
            &root.0.to_le_bytes(),
            &self.size.to_le_bytes(),
            &length.to_le_bytes(),
            &order.to_le_bytes(),
        ])
    }

    /// The first round, from this one on, that may have steps for the rank; the number of rounds if there is none.
    pub(super) fn next_round(&self, round: u32) -> u32 {
        if let Some(compiled) = &self.compiled {
            return compiled.next_round(round);
        }
        let mut round = round;
        // After the last step of a phase comes the start of the next phase.
        for end in self.ends {
            if round < end {
                round = self.phase(round).and_then(|phase| phase.next(round)).unwrap_or(end);
                if round < end {
                    break;
                }
            }
        }
        round
    }

    fn context(&self) -> RankContext<'_> {
        let element = element_size(&self.collective);
        RankContext {
            rank: self.rank,
            size: self.size,
            bytes: self.bytes,
            element,
            participants: self.participants,
            layout: self.blocks.as_deref(),
        }
    }

    fn count_rounds(&self) -> [u32; MAX_PHASES] {
        let at = self.context();
        let mut total = 0;
        phases(self.algorithm, &self.collective, self.order()).map(|phase| {
            total += phase.pattern().map_or(0, |pattern| pattern.rounds(&at));
            total
        })
    }

    /// The steps of a round; none after the last.
    pub(super) fn round(&self, round: u32) -> Option<RoundSteps<'_>> {
        match &self.compiled {
            Some(compiled) => compiled.round(round).map(RoundSteps::Compiled),
            None => self.phase(round).map(RoundSteps::OfPhase),
        }
    }

    /// A round in its phase; none after the last.
    fn phase(&self, round: u32) -> Option<PhaseRound<'_>> {
        let index = self.ends.iter().position(|end| round < *end)?;
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        let [first, second, third, fourth] = phases(self.algorithm, &self.collective, self.order());
        let phase = match index {
            0 => first,
            1 => second,
            2 => third,
            _ => fourth,
        };
        Some(PhaseRound { phase, at: self.context(), round: round - begin })
    }
}

/// The steps of a round: whoever asks for several things about a round finds it once.
pub(super) enum RoundSteps<'a> {
    OfPhase(PhaseRound<'a>),
    Compiled(CompiledSteps<'a>),
}

impl<'a> RoundSteps<'a> {
    #[inline]
    fn send(&self, index: u32) -> Option<SendStep> {
        match self {
            Self::OfPhase(round) => round.phase.pattern()?.send(&round.at, round.round, index),
            Self::Compiled(steps) => steps.sends.get(index as usize).copied(),
        }
    }

    #[inline]
    fn receive(&self, index: u32) -> Option<ReceiveStep> {
        match self {
            Self::OfPhase(round) => round.phase.pattern()?.receive(&round.at, round.round, index),
            Self::Compiled(steps) => steps.receives.get(index as usize).copied(),
        }
    }

    /// The messages to receive, in fold order.
    pub(super) fn receives(&self) -> impl Iterator<Item = ReceiveStep> + '_ {
        (0..).map_while(|index| self.receive(index))
    }

    pub(super) fn end(&self) -> RoundEnd {
        match self {
            Self::OfPhase(round) => round.end(),
            Self::Compiled(steps) => steps.end,
        }
    }

    fn into_sends(self) -> impl Iterator<Item = SendStep> + 'a {
        (0..).map_while(move |index| self.send(index))
    }

    fn into_receives(self) -> impl Iterator<Item = ReceiveStep> + 'a {
        (0..).map_while(move |index| self.receive(index))
    }
}

/// A round in its phase.
pub(super) struct PhaseRound<'a> {
    phase: SchedulePhase<'a>,
    at: RankContext<'a>,
    /// Counted from the start of the phase.
    round: u32,
}

impl PhaseRound<'_> {
    fn end(&self) -> RoundEnd {
        self.phase.pattern().map_or(RoundEnd::Nothing, |pattern| pattern.round_end(&self.at, self.round))
    }

    /// The first round, from this one on, that may have steps; `round` is this one's number in the schedule.
    fn next(&self, round: u32) -> Option<u32> {
        Some(round - self.round + self.phase.pattern()?.next(&self.at, self.round))
    }
}

/// What a schedule needs beside rank, size and length.
enum ScheduleShape {
    Plain,
    Ordered(Arc<FoldOrder>),
    Blocks(Arc<BlockLayout>),
}

/// The size of an element, which no block boundary may split.
fn element_size(collective: &CollectiveOperation) -> u32 {
    collective.kind().map_or(1, |kind| kind.element_size() as u32)
}

/// Why there is no such schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleError {
    /// No ranks, or more than [`MAX_RANKS`].
    Size(u32),
    /// A rank outside the group.
    UnknownRank(Rank),
    /// The algorithm does not support the collective.
    Unsuited {
        /// The algorithm.
        algorithm: CollectiveAlgorithm,
        /// The collective.
        collective: CollectiveOperation,
    },
    /// The radix is below two or above [`MAX_RADIX`].
    Radix(u16),
    /// Not a multiple of the element size, or a barrier with a vector.
    Length {
        /// The collective.
        collective: CollectiveOperation,
        /// Length of the vector in bytes.
        bytes: u32,
    },
    /// The algorithm needs a prescribed order and none was given.
    NoOrder(CollectiveAlgorithm),
    /// A prescribed order was given and the algorithm does not use it.
    IgnoresOrder(CollectiveAlgorithm),
    /// The collective divides the vector into blocks and no layout was given.
    NoBlocks(CollectiveOperation),
    /// A layout of blocks was given and the collective has none.
    IgnoresBlocks(CollectiveOperation),
    /// The contribution and the schedule's vector differ in length.
    Contribution {
        /// Length of the schedule's vector in bytes.
        schedule: u32,
        /// Length of the contribution in bytes.
        contribution: u32,
    },
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "a group cannot have {size} ranks (1 to {MAX_RANKS} are supported)"),
            Self::UnknownRank(rank) => write!(f, "{rank} is not in the group"),
            Self::Unsuited { algorithm, collective } => write!(f, "{algorithm} does not support {collective}"),
            Self::Radix(radix) => write!(f, "unsupported radix {radix} (2 to {MAX_RADIX} are supported)"),
            Self::Length { collective, bytes } => {
                write!(f, "{collective} does not support a vector of {bytes} bytes")
            }
            Self::NoOrder(algorithm) => write!(f, "{algorithm} needs a prescribed order"),
            Self::IgnoresOrder(algorithm) => write!(f, "{algorithm} does not use a prescribed order"),
            Self::NoBlocks(collective) => write!(f, "{collective} needs a layout of blocks"),
            Self::IgnoresBlocks(collective) => write!(f, "{collective} does not use a layout of blocks"),
            Self::Contribution { schedule, contribution } => {
                write!(f, "contribution of {contribution} bytes, expected {schedule} bytes")
            }
        }
    }
}

impl std::error::Error for ScheduleError {}
