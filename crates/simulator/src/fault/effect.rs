//! What the rules do: to one departing packet, and to cables.

use units::{SimSpan, SimTime};

use crate::packet::{ChannelId, DeviceCorruption, PacketCorruption};

/// The effect of all rules on a departing packet.
pub(crate) struct FaultEffect {
    pub corruption: Option<PacketCorruption>,
    pub outcome: LinkOutcome,
    pub duplicated: bool,
    pub delay: SimSpan,
}

/// Whether the packet reaches the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkOutcome {
    Arrives,
    /// The packet is dropped.
    Lost,
    /// The packet is sent without credit and overruns the buffer.
    Overrun,
}

/// Some channels go down or come up.
#[derive(Clone, Debug)]
pub(crate) struct LinkStateChange {
    pub at: SimTime,
    pub channels: Vec<ChannelId>,
    pub down: bool,
}

impl FaultEffect {
    pub(super) fn corrupt(&mut self, corruption: PacketCorruption) {
        match &mut self.corruption {
            Some(present) => present.add(corruption),
            absent => *absent = Some(corruption),
        }
    }

    pub(super) fn corrupt_in_device(&mut self, device: DeviceCorruption, bits: Vec<u32>) {
        self.corrupt(PacketCorruption::device(device, bits));
    }
}
