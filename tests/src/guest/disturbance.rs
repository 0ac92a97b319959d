//! Faults on the way to and from a guest: every so-many-th RoCE packet is dropped or damaged, by the guest's own
//! packet filter. Counting, not chance, decides which, so that a run can be repeated.
//!
//! The filter sees packets before soft-RoCE does on the way in, and after it on the way out. It does not see what two
//! programs of one guest send each other: soft-RoCE hands that over inside.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Which packets a disturbance concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the guest.
    Incoming,
    /// From the guest.
    Outgoing,
}

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// It vanishes.
    Drop,
    /// A bit behind the base transport header flips, in the payload or the acknowledgement; the ICRC stays, and no
    /// longer fits.
    FlipBit,
}

/// One rule: of the RoCE packets in this direction, every `every`-th comes to this harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disturbance {
    /// Which way the packets go.
    pub direction: Direction,
    /// What happens to them.
    pub harm: Harm,
    /// 1 hurts all of them.
    pub every: NonZeroU32,
}

/// How many RoCE packets the filter saw since the last change of its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCount {
    /// In this direction, hurt or not.
    pub seen: u64,
    /// Dropped or damaged.
    pub hurt: u64,
}

/// The counts of both directions.
pub type PacketCounts = BTreeMap<Direction, PacketCount>;

const DIRECTIONS: [Direction; 2] = [Direction::Incoming, Direction::Outgoing];

/// The command that replaces all rules by these, and sets the counts to zero.
pub(super) fn command(disturbances: &[Disturbance]) -> String {
    let mut script = String::from("add table ip faults; delete table ip faults; add table ip faults; ");
    for direction in DIRECTIONS {
        let chain = direction.chain();
        let hook = match direction {
            Direction::Incoming => "prerouting",
            Direction::Outgoing => "postrouting",
        };
        script += &format!("add chain ip faults {chain} {{ type filter hook {hook} priority 0; }}; ");
        script += &format!("add rule ip faults {chain} udp dport 4791 counter comment \"{chain} seen\"; ");
        for rule in disturbances.iter().filter(|rule| rule.direction == direction) {
            let last = rule.every.get() - 1;
            let harm = match rule.harm {
                Harm::Drop => "drop",
                // 160 bits: behind the UDP header (8 bytes) and the base transport header (12).
                Harm::FlipBit => "@th,160,8 set @th,160,8 ^ 1",
            };
            let choice = format!("numgen inc mod {} {last}", rule.every);
            let note = format!("comment \"{chain} hurt\"");
            script += &format!("add rule ip faults {chain} udp dport 4791 {choice} counter {harm} {note}; ");
        }
    }
    format!("nft '{}'", script.trim_end_matches("; "))
}

/// The command that writes the counts.
pub(super) const COUNT_COMMAND: &str = "nft list table ip faults";

/// Reads what [`COUNT_COMMAND`] wrote.
pub(super) fn read_counts(text: &str) -> PacketCounts {
    let packets = |comment: String| {
        // `… counter packets 12 bytes 3456 … comment "incoming seen"`
        let rules = text.lines().filter(|line| line.contains(&comment));
        rules.filter_map(|rule| rule.split("counter packets ").nth(1)?.split(' ').next()?.parse::<u64>().ok()).sum()
    };
    let count = |direction: Direction| PacketCount {
        seen: packets(format!("\"{} seen\"", direction.chain())),
        hurt: packets(format!("\"{} hurt\"", direction.chain())),
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
                udp dport 4791 numgen inc mod 7 6 counter packets 3 bytes 99 drop comment "incoming hurt"
                udp dport 4791 numgen inc mod 9 8 counter packets 2 bytes 66 drop comment "incoming hurt"
            }
            chain outgoing {
                udp dport 4791 counter packets 7 bytes 70 comment "outgoing seen"
            }
        }"#;
        let counts = read_counts(text);
        assert_eq!(counts[&Direction::Incoming], PacketCount { seen: 12, hurt: 5 });
        assert_eq!(counts[&Direction::Outgoing], PacketCount { seen: 7, hurt: 0 });
    }

    #[test]
    fn every_seventh_is_a_counter_that_comes_to_six() {
        let every = NonZeroU32::new(7).unwrap();
        let rule = Disturbance { direction: Direction::Outgoing, harm: Harm::Drop, every };
        let command = command(&[rule]);
        let text = "add rule ip faults outgoing udp dport 4791 numgen inc mod 7 6 counter drop";
        assert!(command.contains(text), "{command}");
        assert!(!command.contains('\n'), "a command is one line");
    }
}
