//! What happened, counted: by the four error classes of SE-4, and by link for the picture.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::fault::LinkOutcome;
use crate::network::{ChannelId, LinkCheck};

/// Errors and losses of one link, for finding the hot one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct LinkErrorCounters {
    /// Packets found damaged at its end.
    pub damaged: u64,
    /// Packets lost on it.
    pub lost: u64,
}

/// Everything that is counted while the fabric moves.
#[derive(Clone, Default, Debug, Serialize)]
pub struct FabricCounters {
    /// Link traversals begun.
    pub hops: u64,
    /// Packets handed to a party.
    pub delivered: u64,
    /// Class 1: the VCRC or the ICRC did not fit.
    pub physical: u64,
    /// Class 2: inconsistent contents.
    pub malformed: u64,
    /// Class 3: no route to the destination.
    pub routing: u64,
    /// Class 4: sent into a full buffer.
    pub overrun: u64,
    /// Packets that came with the end-bad-packet mark.
    pub marked: u64,
    /// Packets whose ICRC did not fit although every VCRC had.
    pub end_to_end: u64,
    /// Packets that a rule made vanish.
    pub lost_by_plan: u64,
    /// Packets that a rule doubled.
    pub doubled_by_plan: u64,
    /// Packets that were on a cable when it went down, or were sent on a dead one.
    pub lost_on_down_links: u64,
    /// Per link, where anything went wrong.
    #[serde(skip)]
    pub links: BTreeMap<u32, LinkErrorCounters>,
}

impl FabricCounters {
    pub(crate) fn note(&mut self, inspection: LinkCheck, channel: ChannelId) {
        let class = match inspection {
            LinkCheck::Sound => return,
            LinkCheck::Damaged => &mut self.physical,
            LinkCheck::Marked => &mut self.marked,
            LinkCheck::Malformed => &mut self.malformed,
            LinkCheck::Misrouted => &mut self.routing,
        };
        *class += 1;
        if inspection != LinkCheck::Marked {
            self.links.entry(channel).or_default().damaged += 1;
        }
    }

    pub(crate) fn note_ending(&mut self, ending: LinkOutcome, channel: ChannelId) {
        match ending {
            LinkOutcome::Arrives => return,
            LinkOutcome::Lost => self.lost_by_plan += 1,
            LinkOutcome::Overrun => self.overrun += 1,
        }
        self.links.entry(channel).or_default().lost += 1;
    }

    pub(crate) fn note_lost_on_down_link(&mut self, channel: ChannelId) {
        self.lost_on_down_links += 1;
        self.links.entry(channel).or_default().lost += 1;
    }
}
