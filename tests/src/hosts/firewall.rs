//! What a wire does to the packets on it, as rules for `nft`.
//!
//! In: the device at the receiving end of the wire, and a trouble. Out: a script that makes the trouble or ends it. All
//! rules hang at netdev ingress, the first place that sees a packet: what is dropped there was lost on the wire, for all
//! that either host can tell. At egress the sender would be told (`ENOBUFS` for sockets with `IP_RECVERR`).
//!
//! Each kind of trouble has a table of its own, so that kinds can be combined on one wire.

use std::fmt::Write;

/// Which datagrams are changed, and how.
///
/// The receiver's kernel does not notice: between namespaces checksums are promised rather than computed, and for IPv4
/// the checksum is removed as well, in case that somebody computed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// One datagram in so many, by chance.
    pub one_in: u32,
    /// Places in the UDP payload; each time one of them is struck, by chance. A datagram that is too short for the
    /// place is let go unchanged. Rules work on pairs of bytes: the last byte of an odd length is never struck.
    pub bytes: Vec<u16>,
    /// The bits to flip in the byte.
    pub flip: u8,
}

/// What a wire can do.
#[derive(Debug)]
pub(super) enum Trouble {
    DropAll,
    Lose { one_in: u32 },
    Corrupt(Corruption),
}

/// The tables of all kinds of trouble.
const KINDS: [&str; 3] = ["drop", "lose", "corrupt"];

impl Trouble {
    fn kind(&self) -> &'static str {
        match self {
            Self::DropAll => KINDS[0],
            Self::Lose { .. } => KINDS[1],
            Self::Corrupt(_) => KINDS[2],
        }
    }

    /// Datagrams that a sender handed over in one piece (UDP_SEGMENT) must be apart before this trouble strikes.
    pub(super) fn strikes_single_datagrams(&self) -> bool {
        !matches!(self, Self::DropAll)
    }
}

/// Makes this trouble at the device, in place of an earlier one of its kind.
pub(super) fn script(device: &str, trouble: &Trouble) -> String {
    let mut script = removal(device, trouble.kind());
    let (verdict, chains) = match trouble {
        Trouble::DropAll => ("drop".to_owned(), String::new()),
        // Address resolution is spared: its retries of one second would hide the rate that the test asked for.
        Trouble::Lose { one_in } => (format!("meta l4proto udp {} drop", chance(*one_in)), String::new()),
        Trouble::Corrupt(corruption) => corrupt(corruption),
    };
    let table = table(device, trouble.kind());
    let hook = format!("type filter hook ingress device \"{device}\" priority 0; policy accept;");
    writeln!(script, "table netdev {table} {{\nchain wire {{\n{hook}\n{verdict}\n}}\n{chains}}}")
        .expect("a string takes all text");
    script
}

/// Ends all troubles at the device, also if there are none.
pub(super) fn end_all(device: &str) -> String {
    KINDS.iter().map(|kind| removal(device, kind)).collect()
}

/// `nft` has no "delete if there"; adding a table that is there changes nothing.
fn removal(device: &str, kind: &str) -> String {
    let table = table(device, kind);
    format!("table netdev {table}\ndelete table netdev {table}\n")
}

fn table(device: &str, kind: &str) -> String {
    format!("pleach_{kind}_{device}")
}

/// An expression that holds for one packet in so many.
fn chance(one_in: u32) -> String {
    assert!(one_in > 0, "one packet in none");
    if one_in == 1 { String::new() } else { format!("numgen random mod {one_in} 0") }
}

/// The rule that picks packets and places, and one chain for each place.
fn corrupt(corruption: &Corruption) -> (String, String) {
    let Corruption { one_in, bytes, flip } = corruption;
    assert!(*one_in > 0 && *flip != 0 && !bytes.is_empty(), "a corruption that changes nothing: {corruption:?}");
    let faces = one_in.checked_mul(bytes.len() as u32).expect("a rate that a die can have");
    let targets: Vec<String> = (0..bytes.len()).map(|face| format!("{face} : goto place{face}")).collect();
    let verdict = format!("meta l4proto udp numgen random mod {faces} vmap {{ {} }}", targets.join(", "));
    let chains = bytes.iter().enumerate().map(|(face, &byte)| {
        // nft changes aligned pairs of bytes; the header of 8 bytes before the payload keeps the parity.
        let bit = 64 + 8 * u32::from(byte & !1);
        let mask = if byte % 2 == 0 { u16::from(*flip) << 8 } else { u16::from(*flip) };
        format!(
            "chain place{face} {{\n@th,{bit},16 set @th,{bit},16 ^ {mask:#06x}\nmeta protocol ip udp checksum set 0\n}}\n"
        )
    });
    (verdict, chains.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bit_of_an_aligned_pair_of_bytes() {
        let at = |byte| script("link0", &Trouble::Corrupt(Corruption { one_in: 5, bytes: vec![byte], flip: 0x81 }));
        assert!(at(0).contains("@th,64,16 set @th,64,16 ^ 0x8100"), "{}", at(0));
        assert!(at(7).contains("@th,112,16 set @th,112,16 ^ 0x0081"), "{}", at(7));
    }

    #[test]
    fn more_places_do_not_change_the_rate() {
        let corruption = Corruption { one_in: 10, bytes: vec![4, 8, 12], flip: 1 };
        let script = script("link0", &Trouble::Corrupt(corruption));
        assert!(script.contains("mod 30 vmap { 0 : goto place0, 1 : goto place1, 2 : goto place2 }"), "{script}");
    }

    #[test]
    fn one_in_one_needs_no_die() {
        assert!(script("link0", &Trouble::Lose { one_in: 1 }).contains("meta l4proto udp  drop"));
    }

    #[test]
    fn all_kinds_are_ended() {
        let troubles = [
            Trouble::DropAll,
            Trouble::Lose { one_in: 2 },
            Trouble::Corrupt(Corruption { one_in: 2, bytes: vec![0], flip: 1 }),
        ];
        for trouble in troubles {
            assert!(end_all("link0").contains(&format!("delete table netdev {}\n", table("link0", trouble.kind()))));
        }
    }
}
