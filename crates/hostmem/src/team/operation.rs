//! One operation of a team, as one rank sees it.

use reduce::ReductionKind;

use super::buffers::CollectiveBuffers;
use super::descriptor::{CallSignature, INLINE_BYTES, MAX_BYTES, MAX_INLINE_WITH_HISTORY, TeamVerb};
use super::error::TeamError;
use super::region::{LEAF_BYTES, SLOT_BYTES};

/// A collective operation and its arguments. All ranks of a team call the same, in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeamCall {
    /// Blocks until every rank has entered.
    Barrier,
    /// Copies the root's bytes to all ranks.
    Broadcast {
        /// The local rank.
        root: u16,
    },
    /// Folds the bytes of all ranks, in rank order, for the root.
    Reduce {
        /// The local rank.
        root: u16,
        /// Element type and operator.
        kind: ReductionKind,
    },
    /// Folds the bytes of all ranks, in rank order, for all.
    AllReduce {
        /// Element type and operator.
        kind: ReductionKind,
    },
    /// Each rank reads a part of every rank's bytes, as its [`CollectiveBuffers::Exchange`] says: of at most [`MAX_EXCHANGE_BYTES`].
    Exchange {
        /// What it is for. Ranks that pass different ones call different operations.
        purpose: u16,
    },
}

/// The longest input of an exchange; longer ones are exchanged piece by piece.
pub const MAX_EXCHANGE_BYTES: usize = SLOT_BYTES;

impl TeamCall {
    pub(super) fn parts(self) -> (TeamVerb, u16, Option<ReductionKind>) {
        match self {
            Self::Barrier => (TeamVerb::Barrier, 0, None),
            Self::Broadcast { root } => (TeamVerb::Broadcast, root, None),
            Self::Reduce { root, kind } => (TeamVerb::Reduce, root, Some(kind)),
            Self::AllReduce { kind } => (TeamVerb::AllReduce, 0, Some(kind)),
            Self::Exchange { purpose } => (TeamVerb::Exchange, purpose, None),
        }
    }
}

/// Whether an operation is over for this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum TeamProgress {
    /// The result is complete; the buffers are free.
    Done,
    /// Poll again.
    Pending,
}

/// An operation in progress. The caller polls it until it is done or has failed; until then it holds one of the team's few
/// channels.
///
/// Small, because one is created for each of millions of operations and is moved by value.
#[derive(Debug)]
pub struct TeamOperation {
    pub(super) number: u64,
    pub(super) signature: CallSignature,
    /// The position in the queue of the pipeline, if that is the route.
    pub(super) queue_position: u64,
    /// The history of this rank when it posted the operation.
    pub(super) history: u64,
    pub(super) verb: TeamVerb,
    pub(super) kind: Option<ReductionKind>,
    /// This rank gets the result.
    pub(super) takes_result: bool,
    pub(super) route: PayloadRoute,
    pub(super) stage: OperationStage,
    pub(super) differs: bool,
    /// The caller's buffers stay valid until the operation is over: [`super::Team::run`] borrows them.
    pub(super) is_borrowed: bool,
    /// The signatures of the ranks below were compared.
    pub(super) seen: u16,
    /// The rank that must act next.
    pub(super) awaiting: u16,
}

/// How the payload travels. Follows from the signature alone, so that all ranks choose alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PayloadRoute {
    /// In the descriptor.
    Post,
    /// In the channel's leaf.
    Leaf,
    /// In a slot of the ring.
    Slot,
    /// In steps, when the operation's turn comes. A broadcast may bypass the pipeline: see `cma_broadcast`.
    Pipe,
}

impl PayloadRoute {
    /// Folding whole vectors from slots reads each of them `ranks` times; folding slices takes about two reads and one more wait.
    fn of(verb: TeamVerb, length: usize, ranks: usize) -> Self {
        let most = match verb {
            TeamVerb::Reduce | TeamVerb::AllReduce if ranks > 2 => (4 * SLOT_BYTES / ranks).clamp(256, SLOT_BYTES),
            _ => SLOT_BYTES,
        };
        match length {
            0..=INLINE_BYTES => Self::Post,
            _ if length <= most.min(LEAF_BYTES) => Self::Leaf,
            _ if length <= most => Self::Slot,
            _ => Self::Pipe,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperationStage {
    /// Waits for its channel.
    Unposted,
    /// Waits for the descriptors of others.
    Posted,
    /// Goes through the pipeline.
    Moving,
    /// Copied from process to process.
    Direct,
    Over,
}

impl TeamOperation {
    pub(super) const OVER: Self = Self {
        number: 0,
        signature: CallSignature::NONE,
        queue_position: 0,
        history: 0,
        verb: TeamVerb::Barrier,
        kind: None,
        takes_result: false,
        route: PayloadRoute::Post,
        stage: OperationStage::Over,
        differs: false,
        is_borrowed: false,
        seen: 0,
        awaiting: 0,
    };

    /// It is over: further polls do nothing.
    pub fn is_over(&self) -> bool {
        self.stage == OperationStage::Over
    }

    /// Initialises an operation that has not started. In place: moving what was just written field by field is slow.
    #[inline]
    pub(super) fn prepare(
        &mut self,
        call: TeamCall,
        data: &CollectiveBuffers<'_>,
        rank: usize,
        ranks: usize,
    ) -> Result<(), TeamError> {
        let (verb, root, kind) = call.parts();
        let length = data.length();
        let is_exchange = verb == TeamVerb::Exchange;
        if usize::from(root) >= ranks && !is_exchange {
            return Err(TeamError::NoSuchRoot { root, ranks: ranks as u16 });
        }
        if let Some(kind) = kind
            && !kind.is_whole(length)
        {
            return Err(TeamError::PartialElement { length, element_size: kind.element_size() });
        }
        if length as u64 > MAX_BYTES {
            return Err(TeamError::TooLong { length });
        }
        if is_exchange && length > MAX_EXCHANGE_BYTES {
            return Err(TeamError::ExchangeTooLong { length });
        }
        if is_exchange && !data.fits_exchange(ranks) {
            return Err(TeamError::WrongBuffers { verb });
        }
        let is_root = usize::from(root) == rank;
        let takes_result = match verb {
            TeamVerb::Barrier | TeamVerb::AllReduce | TeamVerb::Exchange => true,
            TeamVerb::Broadcast => !is_root,
            TeamVerb::Reduce => is_root,
        };
        data.check(verb, takes_result, if verb == TeamVerb::Barrier { 0 } else { length })?;
        self.signature = CallSignature::new(verb, root, kind, length as u64);
        (self.verb, self.kind, self.takes_result) = (verb, kind, takes_result);
        self.route = PayloadRoute::of(verb, length, ranks);
        self.stage = OperationStage::Unposted;
        self.awaiting = rank as u16;
        Ok(())
    }

    pub(super) fn length(&self) -> usize {
        self.signature.length() as usize
    }

    /// It completes as soon as the descriptors it needs are posted, and all its ranks take part at the same time.
    pub(super) fn is_short(&self) -> bool {
        matches!(self.route, PayloadRoute::Post | PayloadRoute::Leaf)
    }

    /// The payload of its descriptors leaves space for the history.
    #[inline]
    pub(super) fn carries_history(&self) -> bool {
        self.route != PayloadRoute::Post || self.length() <= MAX_INLINE_WITH_HISTORY
    }

    pub(super) fn root(&self) -> usize {
        self.signature.root().into()
    }

    /// Other ranks read this rank's bytes.
    pub(super) fn contributes(&self, rank: usize) -> bool {
        match self.verb {
            TeamVerb::Barrier => false,
            TeamVerb::Broadcast => rank == self.root(),
            TeamVerb::Reduce => rank != self.root(),
            TeamVerb::AllReduce | TeamVerb::Exchange => true,
        }
    }

    /// Other ranks wait for this rank's descriptor. Otherwise its signature record is enough.
    pub(super) fn posts_descriptor(&self, rank: usize) -> bool {
        match self.verb {
            TeamVerb::Barrier | TeamVerb::AllReduce | TeamVerb::Exchange => true,
            TeamVerb::Broadcast => rank == self.root() || self.route == PayloadRoute::Pipe,
            TeamVerb::Reduce => rank != self.root() || self.route == PayloadRoute::Pipe,
        }
    }
}
