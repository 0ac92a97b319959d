//! Faults of a link, as rules for `nft`.
//!
//! In: a device of the link, and a fault. Out: a script that installs or removes the fault. Packets are dropped and changed
//! at netdev ingress of the receiving end, the first hook that sees a packet: to both hosts, a packet dropped there is lost
//! on the wire. At egress the kernel would report the drop to the sender (`ENOBUFS` for sockets with `IP_RECVERR`).
//! Packets are duplicated and delayed at egress of the sending end, before its queue.
//!
//! Each kind of fault has its own table, so that several kinds can act on one link.

use std::fmt::Write;

/// Which datagrams are changed, and how.
///
/// The receiver's kernel does not detect the change: between namespaces checksums are not computed but marked as valid, and
/// for IPv4 the rule also clears the checksum, in case one was computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// One datagram in so many, at random.
    pub one_in: u32,
    /// Offsets in the UDP payload, of which each corruption picks one at random. A datagram that is too short for the
    /// offset passes unchanged. Rules change pairs of bytes: the last byte of an odd length never changes.
    pub bytes: Vec<u16>,
    /// The bits to flip in the byte.
    pub flip: u8,
}

/// A fault of one direction of a link.
#[derive(Debug)]
pub(super) enum LinkFault {
    DropAll,
    Lose { one_in: u32 },
    Corrupt(Corruption),
    Duplicate { one_in: u32 },
    Reorder { one_in: u32 },
}

/// Which end of the link applies a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultEnd {
    Sending,
    Receiving,
}

/// The class of the queue that packets to be overtaken wait in; see [`slow_queue_lines`].
const SLOW_CLASS: &str = "1:2";
/// A packet of 9,000 bytes takes 0.7 ms.
const SLOW_RATE: &str = "100mbit";

/// The kinds of fault, each with its own table.
const KINDS: [&str; 5] = ["drop", "lose", "corrupt", "duplicate", "reorder"];

impl LinkFault {
    fn kind(&self) -> &'static str {
        match self {
            Self::DropAll => KINDS[0],
            Self::Lose { .. } => KINDS[1],
            Self::Corrupt(_) => KINDS[2],
            Self::Duplicate { .. } => KINDS[3],
            Self::Reorder { .. } => KINDS[4],
        }
    }

    pub(super) fn end(&self) -> FaultEnd {
        match self {
            Self::DropAll | Self::Lose { .. } | Self::Corrupt(_) => FaultEnd::Receiving,
            Self::Duplicate { .. } | Self::Reorder { .. } => FaultEnd::Sending,
        }
    }

    /// Whether datagrams that one call sent together (UDP_SEGMENT) must be separate packets for this fault.
    pub(super) fn affects_single_datagrams(&self) -> bool {
        !matches!(self, Self::DropAll)
    }
}

/// The script that installs a fault at a device and replaces an earlier one of its kind.
pub(super) fn install_script(device: &str, fault: &LinkFault) -> String {
    let mut script = removal_script(device, fault.kind());
    let (rule, chains) = match fault {
        LinkFault::DropAll => ("drop".to_owned(), String::new()),
        // Address resolution is exempt: its retries after one second would hide the loss rate under test.
        LinkFault::Lose { one_in } => (format!("meta l4proto udp {} drop", chance(*one_in)), String::new()),
        LinkFault::Corrupt(corruption) => corruption_rules(corruption),
        LinkFault::Duplicate { one_in } => {
            (format!("meta l4proto udp {} dup to \"{device}\"", chance(*one_in)), String::new())
        }
        LinkFault::Reorder { one_in } => {
            (format!("meta l4proto udp {} meta priority set {SLOW_CLASS}", chance(*one_in)), String::new())
        }
    };
    let table = table(device, fault.kind());
    let hook = match fault.end() {
        FaultEnd::Sending => "egress",
        FaultEnd::Receiving => "ingress",
    };
    let hook = format!("type filter hook {hook} device \"{device}\" priority 0; policy accept;");
    writeln!(script, "table netdev {table} {{\nchain wire {{\n{hook}\n{rule}\n}}\n{chains}}}")
        .expect("writing to a string succeeds");
    script
}

/// The script that removes all faults of a device, if there are any.
pub(super) fn clear_script(device: &str) -> String {
    KINDS.iter().map(|kind| removal_script(device, kind)).collect()
}

/// Commands of `tc` that give a device a slow queue beside its own: other packets overtake those in it.
pub(super) fn slow_queue_lines(device: &str) -> String {
    format!(
        "qdisc replace dev {device} root noqueue\nqdisc replace dev {device} root handle 1: htb default 1\n\
         class add dev {device} parent 1: classid 1:1 htb rate 40gbit quantum 60000\n\
         class add dev {device} parent 1: classid {SLOW_CLASS} htb rate {SLOW_RATE} quantum 60000\n"
    )
}

/// The command of `tc` that removes it, if there is one.
pub(super) fn no_queue_line(device: &str) -> String {
    format!("qdisc replace dev {device} root noqueue\n")
}

/// `nft` has no "delete if it exists"; adding a table that exists changes nothing.
fn removal_script(device: &str, kind: &str) -> String {
    let table = table(device, kind);
    format!("table netdev {table}\ndelete table netdev {table}\n")
}

fn table(device: &str, kind: &str) -> String {
    format!("pleach_{kind}_{device}")
}

/// An expression that matches one packet in so many.
fn chance(one_in: u32) -> String {
    assert!(one_in > 0, "one_in is 0; it must be at least 1");
    if one_in == 1 { String::new() } else { format!("numgen random mod {one_in} 0") }
}

/// The rule that picks packets and offsets, and one chain for each offset.
fn corruption_rules(corruption: &Corruption) -> (String, String) {
    let Corruption { one_in, bytes, flip } = corruption;
    assert!(*one_in > 0 && *flip != 0 && !bytes.is_empty(), "a corruption that changes nothing: {corruption:?}");
    let outcomes = one_in.checked_mul(bytes.len() as u32).expect("the rate fits 32 bits");
    let targets: Vec<String> = (0..bytes.len()).map(|index| format!("{index} : goto place{index}")).collect();
    let rule = format!("meta l4proto udp numgen random mod {outcomes} vmap {{ {} }}", targets.join(", "));
    let chains = bytes.iter().enumerate().map(|(index, &byte)| {
        // nft changes aligned pairs of bytes; the 8 bytes of UDP header before the payload keep the parity.
        let bit = 64 + 8 * u32::from(byte & !1);
        let mask = if byte % 2 == 0 { u16::from(*flip) << 8 } else { u16::from(*flip) };
        format!(
            "chain place{index} {{\n@th,{bit},16 set @th,{bit},16 ^ {mask:#06x}\nmeta protocol ip udp checksum set 0\n}}\n"
        )
    });
    (rule, chains.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_a_bit_of_an_aligned_pair_of_bytes() {
        let at = |byte| {
            install_script("link0", &LinkFault::Corrupt(Corruption { one_in: 5, bytes: vec![byte], flip: 0x81 }))
        };
        assert!(at(0).contains("@th,64,16 set @th,64,16 ^ 0x8100"), "{}", at(0));
        assert!(at(7).contains("@th,112,16 set @th,112,16 ^ 0x0081"), "{}", at(7));
    }

    #[test]
    fn more_offsets_do_not_change_the_rate() {
        let corruption = Corruption { one_in: 10, bytes: vec![4, 8, 12], flip: 1 };
        let script = install_script("link0", &LinkFault::Corrupt(corruption));
        assert!(script.contains("mod 30 vmap { 0 : goto place0, 1 : goto place1, 2 : goto place2 }"), "{script}");
    }

    #[test]
    fn one_in_one_needs_no_random_number() {
        assert!(install_script("link0", &LinkFault::Lose { one_in: 1 }).contains("meta l4proto udp  drop"));
    }

    #[test]
    fn the_clear_script_removes_every_kind() {
        let faults = [
            LinkFault::DropAll,
            LinkFault::Lose { one_in: 2 },
            LinkFault::Corrupt(Corruption { one_in: 2, bytes: vec![0], flip: 1 }),
            LinkFault::Duplicate { one_in: 2 },
            LinkFault::Reorder { one_in: 2 },
        ];
        for fault in faults {
            let removal = format!("delete table netdev {}\n", table("link0", fault.kind()));
            assert!(clear_script("link0").contains(&removal));
        }
    }
}
