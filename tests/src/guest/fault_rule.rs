//! Faults between the network and a guest: the guest's own packet filter drops or damages every n-th RoCE packet. It counts
//! packets instead of drawing random numbers, so that a run can be repeated.
//!
//! The filter acts before soft-RoCE on incoming packets and after it on outgoing ones. It does not see packets between two
//! programs in one guest: soft-RoCE delivers those internally.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// The direction of packets that a rule affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Towards the guest.
    Incoming,
    /// From the guest.
    Outgoing,
}

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketFault {
    /// The filter drops it.
    Drop,
    /// The filter flips a bit behind the base transport header, in the payload or the acknowledgement, and keeps the ICRC,
    /// which no longer matches.
    FlipBit,
}

/// A rule: of the RoCE packets in this direction, every `every`-th has this fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultRule {
    /// The direction of the packets.
    pub direction: Direction,
    /// The fault.
    pub fault: PacketFault,
    /// 1 affects every packet.
    pub every: NonZeroU32,
}

/// RoCE packets that the filter counted since the last change of its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCount {
    /// All packets in this direction.
    pub seen: u64,
    /// Dropped or damaged packets.
    pub affected: u64,
}

/// The counts of both directions.
pub type PacketCounts = BTreeMap<Direction, PacketCount>;

const DIRECTIONS: [Direction; 2] = [Direction::Incoming, Direction::Outgoing];

/// The command that replaces all rules and sets the counts to zero.
pub(super) fn command(rules: &[FaultRule]) -> String {
    let mut script = String::from("add table ip faults; delete table ip faults; add table ip faults; ");
    for direction in DIRECTIONS {
        let chain = direction.chain();
        let hook = match direction {
            Direction::Incoming => "prerouting",
            Direction::Outgoing => "postrouting",
        };
        script += &format!("add chain ip faults {chain} {{ type filter hook {hook} priority 0; }}; ");
        script += &format!("add rule ip faults {chain} udp dport 4791 counter comment \"{chain} seen\"; ");
        for rule in rules.iter().filter(|rule| rule.direction == direction) {
            let last = rule.every.get() - 1;
            let fault = match rule.fault {
                PacketFault::Drop => "drop",
                // 160 bits: behind the UDP header (8 bytes) and the base transport header (12).
                PacketFault::FlipBit => "@th,160,8 set @th,160,8 ^ 1",
            };
            let choice = format!("numgen inc mod {} {last}", rule.every);
            let note = format!("comment \"{chain} affected\"");
            script += &format!("add rule ip faults {chain} udp dport 4791 {choice} counter {fault} {note}; ");
        }
    }
    format!("nft '{}'", script.trim_end_matches("; "))
}

/// The command that prints the counts.
pub(super) const COUNT_COMMAND: &str = "nft list table ip faults";

/// Parses the output of [`COUNT_COMMAND`].
pub(super) fn read_counts(text: &str) -> PacketCounts {
    let packets = |comment: String| {
        // `… counter packets 12 bytes 3456 … comment "incoming seen"`
        let rules = text.lines().filter(|line| line.contains(&comment));
        rules.filter_map(|rule| rule.split("counter packets ").nth(1)?.split(' ').next()?.parse::<u64>().ok()).sum()
    };
    let count = |direction: Direction| PacketCount {
        seen: packets(format!("\"{} seen\"", direction.chain())),
        affected: packets(format!("\"{} affected\"", direction.chain())),
    };
    DIRECTIONS.map(|direction| (direction, count(direction))).into()
}

impl Direction {
    fn chain(self) -> &'static str {
        match self {
            Self::Incoming => "incoming",
            Self::Outgoing => "outgoing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_per_direction_and_added() {
        let text = r#"table ip faults {
            chain incoming {
                type filter hook prerouting priority filter; policy accept;
                udp dport 4791 counter packets 12 bytes 3456 comment "incoming seen"
                udp dport 4791 numgen inc mod 7 6 counter packets 3 bytes 99 drop comment "incoming affected"
                udp dport 4791 numgen inc mod 9 8 counter packets 2 bytes 66 drop comment "incoming affected"
            }
            chain outgoing {
                udp dport 4791 counter packets 7 bytes 70 comment "outgoing seen"
            }
        }"#;
        let counts = read_counts(text);
        assert_eq!(counts[&Direction::Incoming], PacketCount { seen: 12, affected: 5 });
        assert_eq!(counts[&Direction::Outgoing], PacketCount { seen: 7, affected: 0 });
    }

    #[test]
    fn every_seventh_packet_is_a_counter_that_reaches_six() {
        let every = NonZeroU32::new(7).unwrap();
        let rule = FaultRule { direction: Direction::Outgoing, fault: PacketFault::Drop, every };
        let command = command(&[rule]);
        let text = "add rule ip faults outgoing udp dport 4791 numgen inc mod 7 6 counter drop";
        assert!(command.contains(text), "{command}");
        assert!(!command.contains('\n'), "a command is one line");
    }
}
