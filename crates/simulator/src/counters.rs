//! Counters: by the four error classes of SE-4, and by link for the fabric diagram.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::fault::LinkOutcome;
use crate::packet::ChannelId;
use crate::packet_check::LinkCheck;

/// Errors and losses of one link, to find the worst.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct LinkErrorCounters {
    /// Packets that the link's receiver found damaged.
    pub damaged: u64,
    /// Packets lost on the link.
    pub lost: u64,
}

/// The counters of a run.
#[derive(Clone, Default, Debug, Serialize)]
pub struct FabricCounters {
    /// Link traversals started.
    pub hops: u64,
    /// Packets delivered at their destination.
    pub delivered: u64,
    /// Class 1: wrong VCRC or ICRC.
    pub physical: u64,
    /// Class 2: inconsistent contents.
    pub malformed: u64,
    /// Class 3: no route to the destination.
    pub routing: u64,
    /// Class 4: sent into a full buffer.
    pub overrun: u64,
    /// Packets that arrived with the end-bad-packet mark.
    pub marked: u64,
    /// Packets with a wrong ICRC although every VCRC was right.
    pub end_to_end: u64,
    /// Packets that a rule dropped.
    pub lost_by_plan: u64,
    /// Packets that a rule duplicated.
    pub doubled_by_plan: u64,
    /// Packets that were on a cable when it went down, or were sent on a cable that was down.
    pub lost_on_down_links: u64,
    /// Packets that a switch dropped because a queue or an input buffer was full (Ethernet).
    pub queue_drops: u64,
    /// Packets that a switch marked (ECN).
    pub ecn_marks: u64,
    /// Pause frames that reached a transmitter (PFC).
    pub pauses: u64,
    /// Per link, for links with an error or a loss.
    #[serde(skip)]
    pub links: BTreeMap<u32, LinkErrorCounters>,
}

impl FabricCounters {
    pub(crate) fn note(&mut self, check: LinkCheck, channel: ChannelId) {
        let class = match check {
            LinkCheck::Sound => return,
            LinkCheck::Damaged => &mut self.physical,
            LinkCheck::Marked => &mut self.marked,
            LinkCheck::Malformed => &mut self.malformed,
            LinkCheck::Misrouted => &mut self.routing,
        };
        *class += 1;
        if check != LinkCheck::Marked {
            self.links.entry(channel).or_default().damaged += 1;
        }
    }

    pub(crate) fn note_outcome(&mut self, outcome: LinkOutcome, channel: ChannelId) {
        match outcome {
            LinkOutcome::Arrives => return,
            LinkOutcome::Lost => self.lost_by_plan += 1,
            LinkOutcome::Overrun => self.overrun += 1,
        }
        self.links.entry(channel).or_default().lost += 1;
    }

    pub(crate) fn note_queue_drop(&mut self, channel: ChannelId) {
        self.queue_drops += 1;
        self.links.entry(channel).or_default().lost += 1;
    }

    /// A packet arrived damaged over a link.
    pub fn note_damaged(&mut self, link: u32) {
        self.physical += 1;
        self.links.entry(link).or_default().damaged += 1;
    }

    /// A rule dropped a packet on a link.
    pub fn note_lost(&mut self, link: u32) {
        self.note_outcome(LinkOutcome::Lost, link);
    }

    /// A packet was lost because a link was down.
    pub fn note_lost_on_down_link(&mut self, channel: ChannelId) {
        self.lost_on_down_links += 1;
        self.links.entry(channel).or_default().lost += 1;
    }
}
