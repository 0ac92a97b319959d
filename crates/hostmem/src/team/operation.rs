//! One operation of a team, as one rank sees it.

use reduce::ReductionKind;

use super::buffers::CollectiveBuffers;
use super::descriptor::{CallSignature, INLINE_BYTES, MAX_BYTES, MAX_INLINE_WITH_HISTORY, TeamVerb};
use super::error::TeamError;
use super::region::{LEAF_BYTES, SLOT_BYTES};

/// What to do. All ranks of a team say the same, in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeamCall {
    /// Nobody leaves before all have come.
    Barrier,
    /// The root's bytes go to all.
    Broadcast {
        /// Local rank.
        root: u16,
    },
    /// The fold of all, in rank order, goes to the root.
    Reduce {
        /// Local rank.
        root: u16,
        /// Elements and operator.
        kind: ReductionKind,
    },
    /// The fold of all, in rank order, goes to all.
    AllReduce {
        /// Elements and operator.
        kind: ReductionKind,
    },
}

impl TeamCall {
    pub(super) fn parts(self) -> (TeamVerb, u16, Option<ReductionKind>) {
        match self {
            Self::Barrier => (TeamVerb::Barrier, 0, None),
            Self::Broadcast { root } => (TeamVerb::Broadcast, root, None),
            Self::Reduce { root, kind } => (TeamVerb::Reduce, root, Some(kind)),
            Self::AllReduce { kind } => (TeamVerb::AllReduce, 0, Some(kind)),
        }
    }
}

/// Whether an operation is over for this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum TeamProgress {
    /// The result is there; the buffers are free.
    Done,
    /// Poll again.
    Pending,
}

/// An operation under way. Every one must be polled until it is done or has failed; until then it holds one of the team's
/// few channels.
///
/// Small, since one is made for each of millions of operations and is handed over by value.
#[derive(Debug)]
pub struct TeamOperation {
    pub(super) number: u64,
    pub(super) claim: CallSignature,
    /// In the queue for the pipe, if that is the route.
    pub(super) place: u64,
    /// Of this rank, when it posted the operation.
    pub(super) history: u64,
    pub(super) verb: TeamVerb,
    pub(super) kind: Option<ReductionKind>,
    /// This rank gets the result.
    pub(super) takes_result: bool,
    pub(super) route: PayloadRoute,
    pub(super) stage: OperationStage,
    pub(super) differs: bool,
    /// The caller's buffers stay where they are until the operation is over: it has lent them to [`super::Team::run`].
    pub(super) is_lent: bool,
    /// The claims of ranks below have been seen.
    pub(super) seen: u16,
    /// Whose doing the operation waits for.
    pub(super) awaiting: u16,
}

/// How payload travels. A function of what all ranks know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PayloadRoute {
    /// In the post.
    Post,
    /// In the channel's leaf.
    Leaf,
    /// In a slot of the ring.
    Slot,
    /// In steps, when the operation's turn comes. A broadcast may go another way: see `direct`.
    Pipe,
}

impl PayloadRoute {
    /// Folding whole vectors from slots takes `ranks` readings of each; folding slices takes about two and one more wait.
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
    /// Waits for posts of others.
    Posted,
    /// Goes through the pipe.
    Moving,
    /// Goes from memory to memory.
    Direct,
    Over,
}

impl TeamOperation {
    pub(super) const OVER: Self = Self {
        number: 0,
        claim: CallSignature::NONE,
        place: 0,
        history: 0,
        verb: TeamVerb::Barrier,
        kind: None,
        takes_result: false,
        route: PayloadRoute::Post,
        stage: OperationStage::Over,
        differs: false,
        is_lent: false,
        seen: 0,
        awaiting: 0,
    };

    /// It is over: polling does nothing any more.
    pub fn is_over(&self) -> bool {
        self.stage == OperationStage::Over
    }

    /// Makes this an operation that has not started. In place: what was just written piece by piece is slow to be moved.
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
        if usize::from(root) >= ranks {
            return Err(TeamError::NoSuchRoot { root, ranks: ranks as u16 });
        }
        if let Some(kind) = kind
            && !kind.is_whole(length)
        {
            return Err(TeamError::PartOfElement { length, element_size: kind.element_size() });
        }
        if length as u64 > MAX_BYTES {
            return Err(TeamError::TooLong { length });
        }
        let is_root = usize::from(root) == rank;
        let takes_result = match verb {
            TeamVerb::Barrier | TeamVerb::AllReduce => true,
            TeamVerb::Broadcast => !is_root,
            TeamVerb::Reduce => is_root,
        };
        data.check(verb, takes_result, if verb == TeamVerb::Barrier { 0 } else { length })?;
        self.claim = CallSignature::new(verb, root, kind, length as u64);
        (self.verb, self.kind, self.takes_result) = (verb, kind, takes_result);
        self.route = PayloadRoute::of(verb, length, ranks);
        self.stage = OperationStage::Unposted;
        self.awaiting = rank as u16;
        Ok(())
    }

    pub(super) fn length(&self) -> usize {
        self.claim.length() as usize
    }

    /// It is over as soon as the posts are there that it needs, and those who wait for it are at it at the same time.
    pub(super) fn is_brief(&self) -> bool {
        matches!(self.route, PayloadRoute::Post | PayloadRoute::Leaf)
    }

    /// The payload of its posts leaves room for the history.
    #[inline]
    pub(super) fn tells_history(&self) -> bool {
        self.route != PayloadRoute::Post || self.length() <= MAX_INLINE_WITH_HISTORY
    }

    pub(super) fn root(&self) -> usize {
        self.claim.root().into()
    }

    /// This rank's bytes are for others to read.
    pub(super) fn gives(&self, rank: usize) -> bool {
        match self.verb {
            TeamVerb::Barrier => false,
            TeamVerb::Broadcast => rank == self.root(),
            TeamVerb::Reduce => rank != self.root(),
            TeamVerb::AllReduce => true,
        }
    }

    /// Others wait for this rank's post. Otherwise its note is enough.
    pub(super) fn shows(&self, rank: usize) -> bool {
        match self.verb {
            TeamVerb::Barrier | TeamVerb::AllReduce => true,
            TeamVerb::Broadcast => rank == self.root() || self.route == PayloadRoute::Pipe,
            TeamVerb::Reduce => rank != self.root() || self.route == PayloadRoute::Pipe,
        }
    }
}
