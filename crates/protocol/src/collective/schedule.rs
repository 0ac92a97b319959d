//! One rank's part in one collective: what it sends and what it expects, round by round.

use std::fmt;
use std::sync::Arc;

use reduce::ReductionKind;
use units::Rank;

use super::algorithm::{CollectiveAlgorithm, CollectiveOperation, MAX_PHASES, phases};
use super::fold_order::FoldOrder;
use super::recursive_exchange::participants;
use super::step::{RankContext, ReceiveStep, RoundEnd, RoundPattern, SendStep};

/// Most ranks of a group.
pub const MAX_RANKS: u32 = 1 << 24;
/// Most ranks that exchange or merge at once: as many messages are kept in one round.
pub const MAX_RADIX: u16 = 64;

// Spans are multiplied by the radix once more than there are ranks.
const _: () = assert!((MAX_RANKS as u64) * (MAX_RADIX as u64) <= u32::MAX as u64);

/// What one rank does in which round of one collective (P-46).
#[derive(Clone, Debug)]
pub struct CollectiveSchedule {
    algorithm: CollectiveAlgorithm,
    collective: CollectiveOperation,
    rank: u32,
    size: u32,
    bytes: u32,
    /// Two things that every message would otherwise make the plan work out anew: how many ranks take part in recursive
    /// exchanges, and the number of rounds up to the end of each phase.
    participants: u32,
    ends: [u32; MAX_PHASES],
    order: Option<Arc<FoldOrder>>,
}

impl CollectiveSchedule {
    /// The part of `rank` among `size` in a collective over vectors of so many bytes.
    ///
    /// # Errors
    /// If the parts do not go together; all ranks with the same values get the same error.
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
        Self::checked(algorithm, collective, rank, size, bytes, None)
    }

    /// As [`CollectiveSchedule::new`], for an algorithm that follows a prescribed order. The order says how many ranks there are.
    ///
    /// # Errors
    /// As [`CollectiveSchedule::new`], and if the algorithm follows no prescribed order.
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
        Self::checked(algorithm, collective, rank, size, bytes, Some(order))
    }

    fn checked(
        algorithm: CollectiveAlgorithm,
        collective: CollectiveOperation,
        rank: Rank,
        size: u32,
        bytes: u32,
        order: Option<Arc<FoldOrder>>,
    ) -> Result<Self, ScheduleError> {
        if size == 0 || size > MAX_RANKS {
            return Err(ScheduleError::Size(size));
        }
        if !algorithm.suits(&collective) {
            return Err(ScheduleError::Unsuited { algorithm, collective });
        }
        if !(2..=MAX_RADIX).contains(&algorithm.radix()) {
            return Err(ScheduleError::Radix(algorithm.radix()));
        }
        let ranks = [Some(rank), collective.root()];
        if let Some(rank) = ranks.into_iter().flatten().find(|rank| rank.0 >= size) {
            return Err(ScheduleError::UnknownRank(rank));
        }
        let is_whole = match collective {
            CollectiveOperation::Barrier => bytes == 0,
            _ => bytes.is_multiple_of(element_size(&collective)),
        };
        if !is_whole {
            return Err(ScheduleError::Length { collective, bytes });
        }
        let participants = participants(size, algorithm.radix().into());
        let ends = [0; MAX_PHASES];
        let mut plan = Self { algorithm, collective, rank: rank.0, size, bytes, participants, ends, order };
        plan.ends = plan.count_rounds();
        Ok(plan)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> CollectiveAlgorithm {
        self.algorithm
    }

    /// What is done.
    pub fn collective(&self) -> CollectiveOperation {
        self.collective
    }

    /// Whose part it is.
    pub fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    /// How many ranks take part.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Bytes of the vector.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// What is folded and how, if anything is.
    pub fn kind(&self) -> Option<ReductionKind> {
        self.collective.kind()
    }

    /// The prescribed order, if there is one.
    pub fn order(&self) -> Option<&FoldOrder> {
        self.order.as_deref()
    }

    /// Rounds in all, the same at every rank. A rank need not have something to do in each.
    pub fn rounds(&self) -> u32 {
        self.ends[MAX_PHASES - 1]
    }

    /// What the rank sends when it enters a round.
    pub fn sends(&self, round: u32) -> impl Iterator<Item = SendStep> + '_ {
        (0..).map_while(move |index| self.in_phase(round, |part, at, round| part.send(at, round, index)).flatten())
    }

    /// What the rank must have received before it leaves a round, in the order of folding.
    pub fn receives(&self, round: u32) -> impl Iterator<Item = ReceiveStep> + '_ {
        (0..).map_while(move |index| self.in_phase(round, |part, at, round| part.receive(at, round, index)).flatten())
    }

    /// What is expected from a rank in a round, if anything is.
    pub fn expected(&self, round: u32, from: Rank) -> Option<ReceiveStep> {
        self.receives(round).find(|receive| receive.from == from)
    }

    /// True if the rank has the result at the end. (All others get nothing that they may use.)
    pub fn has_result(&self) -> bool {
        match self.collective {
            CollectiveOperation::Reduce { root, .. } => root.0 == self.rank,
            _ => true,
        }
    }

    /// What all ranks of an operation must agree on, in one number for a message's header: ranks that call different
    /// collectives find out by it.
    pub fn fingerprint(&self) -> u32 {
        let (code, root) = match self.collective {
            CollectiveOperation::Barrier => (0_u8, Rank(0)),
            CollectiveOperation::Broadcast { root } => (1, root),
            CollectiveOperation::Reduce { root, .. } => (2, root),
            CollectiveOperation::AllReduce { .. } => (3, Rank(0)),
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
        };
        let order = self.order.as_ref().map_or(0, |order| order.digest());
        checksum::crc32c(&[
            &[code, algorithm],
            &kind,
            &self.algorithm.radix().to_le_bytes(),
            &root.0.to_le_bytes(),
            &self.size.to_le_bytes(),
            &self.bytes.to_le_bytes(),
            &order.to_le_bytes(),
        ])
    }

    /// The first round from this one on in which the rank may have something to do; the number of rounds if none is.
    pub(super) fn next_round(&self, round: u32) -> u32 {
        let mut round = round;
        // A phase in which nothing is left to do leads to the beginning of the next.
        for end in self.ends {
            if round < end {
                round = self
                    .in_phase(round, |schedule, at, inner| round - inner + schedule.next(at, inner))
                    .unwrap_or(end);
                if round < end {
                    break;
                }
            }
        }
        round
    }

    pub(super) fn closing(&self, round: u32) -> RoundEnd {
        self.in_phase(round, |part, at, round| part.closing(at, round)).unwrap_or(RoundEnd::Nothing)
    }

    fn place(&self) -> RankContext {
        let element = element_size(&self.collective);
        RankContext { rank: self.rank, size: self.size, bytes: self.bytes, element, participants: self.participants }
    }

    fn count_rounds(&self) -> [u32; MAX_PHASES] {
        let at = self.place();
        let mut total = 0;
        phases(self.algorithm, &self.collective, self.order()).map(|phase| {
            total += phase.schedule().map_or(0, |schedule| schedule.rounds(&at));
            total
        })
    }

    /// Asks the phase to which a round belongs, in that phase's own count of rounds.
    fn in_phase<T>(&self, round: u32, ask: impl FnOnce(&dyn RoundPattern, &RankContext, u32) -> T) -> Option<T> {
        let index = self.ends.iter().position(|end| round < *end)?;
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        let phases = phases(self.algorithm, &self.collective, self.order());
        phases[index].schedule().map(|schedule| ask(schedule, &self.place(), round - begin))
    }
}

/// Bytes that no cut may divide.
fn element_size(collective: &CollectiveOperation) -> u32 {
    collective.kind().map_or(1, |kind| kind.element_size() as u32)
}

/// Why there can be no such plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleError {
    /// No ranks, or more than [`MAX_RANKS`].
    Size(u32),
    /// A rank that the group does not have.
    UnknownRank(Rank),
    /// The algorithm cannot do this.
    Unsuited {
        /// The algorithm.
        algorithm: CollectiveAlgorithm,
        /// What was asked.
        collective: CollectiveOperation,
    },
    /// The radix is less than two or more than [`MAX_RADIX`].
    Radix(u16),
    /// No whole number of elements, or a barrier with a vector.
    Length {
        /// What was asked.
        collective: CollectiveOperation,
        /// Bytes of the vector.
        bytes: u32,
    },
    /// The algorithm follows a prescribed order and none was given.
    NoOrder(CollectiveAlgorithm),
    /// An order was prescribed and the algorithm would not follow it.
    IgnoresOrder(CollectiveAlgorithm),
    /// The contribution does not have the length of the plan's vector.
    Contribution {
        /// Bytes of the plan's vector.
        plan: u32,
        /// Bytes of the contribution.
        contribution: u32,
    },
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "a group of {size} ranks (1 to {MAX_RANKS} are possible)"),
            Self::UnknownRank(rank) => write!(f, "the group has no {rank}"),
            Self::Unsuited { algorithm, collective } => write!(f, "{algorithm} cannot do a {collective}"),
            Self::Radix(radix) => write!(f, "a radix of {radix} (2 to {MAX_RADIX} are possible)"),
            Self::Length { collective, bytes } => write!(f, "a {collective} cannot have a vector of {bytes} bytes"),
            Self::NoOrder(algorithm) => write!(f, "{algorithm}: no order was given"),
            Self::IgnoresOrder(algorithm) => write!(f, "{algorithm} would not follow the order that was given"),
            Self::Contribution { plan, contribution } => {
                write!(f, "a contribution of {contribution} bytes to a vector of {plan} bytes")
            }
        }
    }
}

impl std::error::Error for ScheduleError {}
