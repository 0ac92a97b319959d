//! What is left in the fabric and in the machines when every operation is over.
//!
//! A machine that forgets to release something works for a while, and fails after as many operations as it has slots, frames or
//! credits. So a run that is over must leave nothing behind.

/// What is left. All zero if nothing leaked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FabricResidue {
    /// Packets in the fabric.
    pub packets: u64,
    /// Credit blocks that did not return to the transmitter of a channel.
    pub credit_blocks: u64,
    /// Input buffers that copies of a multicast share.
    pub shared_buffers: u64,
    /// Slots of aggregation nodes whose operation has no result.
    pub slots: u64,
    /// Payload bytes in these slots.
    pub slot_bytes: u64,
    /// Frames that the other end of a connection has not acknowledged.
    pub frames: u64,
    /// Member multicasts that are kept for repairs.
    pub multicasts: u64,
    /// Messages among hosts that have not arrived, or of which parts were not sent.
    pub messages: u64,
}

impl FabricResidue {
    /// The sum of two.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            credit_blocks: self.credit_blocks + other.credit_blocks,
            shared_buffers: self.shared_buffers + other.shared_buffers,
            slots: self.slots + other.slots,
            slot_bytes: self.slot_bytes + other.slot_bytes,
            frames: self.frames + other.frames,
            multicasts: self.multicasts + other.multicasts,
            messages: self.messages + other.messages,
        }
    }

    /// Every count with its name.
    pub fn counts(&self) -> [(&'static str, u64); 8] {
        // Every field: what is not listed here would never be reported.
        let Self { packets, credit_blocks, shared_buffers, slots, slot_bytes, frames, multicasts, messages } = *self;
        [
            ("packets in the fabric", packets),
            ("credit blocks", credit_blocks),
            ("shared input buffers", shared_buffers),
            ("slots", slots),
            ("bytes in slots", slot_bytes),
            ("unacknowledged frames", frames),
            ("retained multicasts", multicasts),
            ("messages among hosts", messages),
        ]
    }
}
