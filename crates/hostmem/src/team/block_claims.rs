//! How a root and a receiver share the work of a large broadcast, if they can access each other's memory.
//!
//! The vector is split into blocks. The receiver *pulls* blocks from the root's memory, from the last one down; the root
//! *pushes* blocks into the receiver's, from the first one up; until they meet. Each receiver has block claims for this:
//!
//! ```text
//! claims      lower half of the operation's number, 32 bits | pulled, 16 | pushed, 16      both, by exchange
//! done        lower half of the operation's number, 32 bits | pushed and done, 32          the root
//! taken       number of the last operation whose vector the receiver has                   the receiver
//! withdrawn   number of an operation that this rank abandoned                              this rank
//! ```
//! A block belongs to the side that claims it: the root writes only blocks that it has claimed into the receiver's memory,
//! and the receiver uses them only when the root has marked them as done. A receiver that abandons the operation claims all
//! remaining blocks; once the root is done with its claims, or gone, nothing writes to the receiver's memory. A root that
//! abandons the operation withdraws; a receiver checks that after it has pulled, because the data may have changed
//! meanwhile. `loom_tests.rs` tries all orders.

use crate::shared_word::SharedWord;

/// Claims have 16 bits.
pub(super) const MAX_BLOCKS: u64 = 1 << 15;

/// The words that a root and a receiver share; see above.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct BlockClaims<W> {
    claims: W,
    taken: W,
    withdrawn: W,
    done: SeparateLine<W>,
}

/// On another line than what the other side writes.
#[repr(C, align(128))]
#[derive(Default)]
struct SeparateLine<W>(W);

/// The side that claims a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopySide {
    Receiver,
    Root,
}

const PUSHED: u64 = 1;
const PULLED: u64 = 1 << 16;

impl<W: SharedWord> BlockClaims<W> {
    /// The receiver admits the root. Published with the descriptor.
    pub(super) fn open(&self, number: u64) {
        self.claims.publish(number << 32);
    }

    /// The claims are open for this operation.
    pub(super) fn is_for(&self, number: u64) -> bool {
        parts(self.claims.observe()).0 == number as u32
    }

    /// Claims a block; its index in the vector, if one is left and the claims are open.
    pub(super) fn claim(&self, number: u64, blocks: u64, side: CopySide) -> Option<u64> {
        let mut claims = self.claims.observe();
        loop {
            let (of, pulled, pushed) = parts(claims);
            if of != number as u32 || pulled + pushed >= blocks {
                return None;
            }
            let (step, place) = match side {
                CopySide::Receiver => (PULLED, blocks - 1 - pulled),
                CopySide::Root => (PUSHED, pushed),
            };
            match self.claims.exchange(claims, claims + step) {
                Ok(()) => return Some(place),
                Err(now) => claims = now,
            }
        }
    }

    /// Admits nobody any more. True if the claims were open.
    pub(super) fn close(&self, number: u64) -> bool {
        let mut claims = self.claims.observe();
        while parts(claims).0 == number as u32 {
            match self.claims.exchange(claims, claims | (0xffff * PULLED)) {
                Ok(()) => return true,
                Err(now) => claims = now,
            }
        }
        false
    }

    /// The root has finished this many of its blocks.
    pub(super) fn set_done(&self, number: u64, blocks: u64) {
        self.done.0.publish(number << 32 | blocks);
    }

    /// The root has finished every block it claimed, and will claim no more.
    pub(super) fn is_root_done(&self, number: u64, blocks: u64) -> bool {
        let (of, pulled, pushed) = parts(self.claims.observe());
        if of != number as u32 || pulled + pushed < blocks {
            return false;
        }
        pushed == 0 || self.done.0.observe() == (number << 32 | pushed)
    }

    /// The receiver has the vector.
    pub(super) fn take(&self, number: u64) {
        self.taken.publish(number);
    }

    pub(super) fn has_taken(&self, number: u64) -> bool {
        self.taken.observe() >= number
    }

    /// This rank abandons the operation.
    pub(super) fn withdraw(&self, number: u64) {
        self.withdrawn.publish(number);
    }

    pub(super) fn has_withdrawn(&self, number: u64) -> bool {
        self.withdrawn.observe() == number
    }
}

/// Lower half of the number, pulled, pushed.
fn parts(claims: u64) -> (u32, u64, u64) {
    ((claims >> 32) as u32, claims >> 16 & 0xffff, claims & 0xffff)
}
