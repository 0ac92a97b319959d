//! One operation of a team, as one rank sees it.

use reduce::Kind;

use super::cut::Cut;
use super::data::Data;
use super::error::Error;
use super::large::Move;
use super::post::{Claim, INLINE_BYTES, MAX_BYTES, Verb};
use super::region::SLOT_BYTES;

/// What to do. All ranks of a team say the same, in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
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
        kind: Kind,
    },
    /// The fold of all, in rank order, goes to all.
    AllReduce {
        /// Elements and operator.
        kind: Kind,
    },
}

impl Call {
    pub(super) fn parts(self) -> (Verb, u16, Option<Kind>) {
        match self {
            Self::Barrier => (Verb::Barrier, 0, None),
            Self::Broadcast { root } => (Verb::Broadcast, root, None),
            Self::Reduce { root, kind } => (Verb::Reduce, root, Some(kind)),
            Self::AllReduce { kind } => (Verb::AllReduce, 0, Some(kind)),
        }
    }
}

/// Whether an operation is over for this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Progress {
    /// The result is there; the buffers are free.
    Done,
    /// Poll again.
    Pending,
}

/// An operation under way. Every one must be polled until it is done or has failed; until then it holds one of the team's
/// few channels.
#[derive(Debug)]
pub struct Operation {
    pub(super) number: u64,
    pub(super) claim: Claim,
    pub(super) verb: Verb,
    pub(super) root: usize,
    pub(super) kind: Option<Kind>,
    pub(super) length: usize,
    pub(super) cut: Cut,
    /// This rank gets the result.
    pub(super) takes_result: bool,
    pub(super) route: Route,
    pub(super) stage: Stage,
    /// The claims of ranks below have been seen.
    pub(super) seen: usize,
    pub(super) differs: bool,
    /// Whose doing the operation waits for.
    pub(super) awaiting: usize,
}

/// How payload travels. A function of what all ranks know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// In the post.
    Post,
    /// In the channel's slot.
    Slot,
    /// In steps, when the operation's turn comes. The place in the queue.
    Pipe { place: u64 },
}

impl Route {
    /// Goes in steps.
    pub(super) fn is_pipe(self) -> bool {
        matches!(self, Self::Pipe { .. })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Waits for its channel.
    Unposted,
    /// Waits for posts of others.
    Posted,
    /// Goes through the pipe.
    Moving(Move),
    Over,
}

impl Operation {
    /// It is over: polling does nothing any more.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    pub(super) fn new(call: Call, data: &Data<'_>, rank: usize, ranks: usize) -> Result<Self, Error> {
        let (verb, root, kind) = call.parts();
        let length = data.length();
        if usize::from(root) >= ranks {
            return Err(Error::NoSuchRoot { root, ranks: ranks as u16 });
        }
        if let Some(element_size) = kind.map(|kind| kind.element_size())
            && !length.is_multiple_of(element_size)
        {
            return Err(Error::PartOfElement { length, element_size });
        }
        if length as u64 > MAX_BYTES {
            return Err(Error::TooLong { length });
        }
        let is_root = usize::from(root) == rank;
        let takes_result = match verb {
            Verb::Barrier | Verb::AllReduce => true,
            Verb::Broadcast => !is_root,
            Verb::Reduce => is_root,
        };
        data.check(verb, takes_result, if verb == Verb::Barrier { 0 } else { length })?;
        Ok(Self {
            number: 0,
            claim: Claim::new(verb, root, kind, length as u64),
            verb,
            root: root.into(),
            kind,
            length,
            cut: Cut::new(kind),
            takes_result,
            route: Route::Post,
            stage: Stage::Unposted,
            seen: 0,
            differs: false,
            awaiting: rank,
        })
    }

    /// The vector is for the pipe. Folding whole vectors from slots takes `ranks` readings of each; folding slices takes about
    /// two and one more wait.
    pub(super) fn is_large(&self, ranks: usize) -> bool {
        let most = match self.verb {
            Verb::Reduce | Verb::AllReduce if ranks > 2 => (4 * SLOT_BYTES / ranks).max(256),
            _ => SLOT_BYTES,
        };
        self.length > most.min(SLOT_BYTES)
    }

    pub(super) fn is_inline(&self) -> bool {
        self.length <= INLINE_BYTES
    }

    /// This rank's bytes are for others to read.
    pub(super) fn gives(&self, rank: usize) -> bool {
        match self.verb {
            Verb::Barrier => false,
            Verb::Broadcast => rank == self.root,
            Verb::Reduce => rank != self.root,
            Verb::AllReduce => true,
        }
    }

    /// Once posted, a small operation is over for a rank that gets no result: others come for it.
    pub(super) fn is_over_once_posted(&self) -> bool {
        !self.takes_result && !self.route.is_pipe()
    }
}
