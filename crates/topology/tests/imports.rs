//! Imports: realistic texts, broken texts, random texts.

mod sample;

use proptest::prelude::*;
use sample::*;
use topology::{Fabric, FabricPort, ImportProblem};

fn rejection(text: &str) -> (usize, ImportProblem) {
    let error = Fabric::import_ibnetdiscover(text).unwrap_err();
    assert!(!error.to_string().is_empty());
    (error.line, error.problem)
}

#[test]
fn a_two_level_fat_tree_is_read() {
    let fabric = imported(TWO_LEVEL);
    assert_eq!((fabric.hosts(), fabric.switches(), fabric.cable_count()), (16, 6, 16 + 16));
    let spine = fabric.find("MF0;spine-01:MQM8700/U1").unwrap();
    assert_eq!((fabric.level(spine), fabric.port_count(spine)), (2, 40));
    let host = fabric.find("node07 mlx5_0").unwrap();
    let leaf = fabric.peer(host, FabricPort(0)).unwrap();
    assert_eq!(fabric.name(leaf.node), "MF0;leaf-01:MQM8700/U1");
    assert_eq!(leaf.port, FabricPort(2));
    assert_eq!(fabric.find("H6"), Some(host));
}

#[test]
fn three_levels_with_a_missing_cable_are_read() {
    let fabric = imported(MISSING_CABLE);
    // The aggregation node inside core0 is not a host.
    assert_eq!((fabric.hosts(), fabric.switches(), fabric.cable_count()), (8, 10, 9 + 7 + 8));
    assert_eq!(fabric.level(fabric.find("MF0;core1:MSB7800/U1").unwrap()), 3);
    assert_eq!(fabric.neighbours(fabric.find("n00 HCA-1").unwrap()).count(), 2);
    assert_eq!(fabric.neighbours(fabric.find("n01 HCA-1").unwrap()).count(), 1);
}

#[test]
fn a_ring_is_read() {
    let fabric = imported(RING);
    assert_eq!((fabric.hosts(), fabric.switches(), fabric.cable_count()), (12, 6, 12 + 6));
}

#[test]
fn errors_name_the_line() {
    let good = "Switch 4 \"S-1\" # \"leaf\"\n[1] \"H-1\"[1](a)\n\nCa 1 \"H-1\" # \"host\"\n[1](a) \"S-1\"[1]\n";
    assert!(Fabric::import_ibnetdiscover(good).is_ok());
    let broken = |from: &str, to: &str| rejection(&good.replacen(from, to, 1));
    assert_eq!(broken("Switch 4", "Switch four"), (1, ImportProblem::BadNode));
    assert_eq!(broken("Switch 4", "Switch 255"), (1, ImportProblem::BadNode));
    assert_eq!(broken("\"S-1\" #", "S-1 #"), (1, ImportProblem::BadNode));
    assert_eq!(broken("[1] \"H-1\"[1]", "[1] \"H-1\""), (2, ImportProblem::BadPort));
    assert_eq!(broken("[1] \"H-1\"", "[5] \"H-1\""), (2, ImportProblem::PortOutOfRange { port: 5, ports: 4 }));
    assert_eq!(broken("[1] \"H-1\"", "[0] \"H-1\""), (2, ImportProblem::PortOutOfRange { port: 0, ports: 4 }));
    assert_eq!(broken("\"H-1\"[1]", "\"H-1\"[2]"), (2, ImportProblem::PortOutOfRange { port: 2, ports: 1 }));
    assert_eq!(broken("\"H-1\"[1]", "\"H-9\"[1]"), (2, ImportProblem::UnknownPeer("H-9".to_owned())));
    assert_eq!(
        broken("\"S-1\"[1]", "\"S-1\"[2]"),
        (5, ImportProblem::CabledTwice { node: "H-1".to_owned(), port: 1 })
    );
    assert_eq!(broken("Ca 1 \"H-1\"", "Ca 1 \"S-1\""), (4, ImportProblem::DuplicateNode("S-1".to_owned())));
    assert_eq!(broken("\n\nCa", "\nDance\nCa"), (3, ImportProblem::UnknownLine));
    assert_eq!(broken("Switch 4 \"S-1\" # \"leaf\"\n", ""), (1, ImportProblem::PortWithoutNode));
    assert_eq!(rejection(""), (0, ImportProblem::NoHosts));
    assert_eq!(rejection("Switch 4 \"S-1\"\n"), (0, ImportProblem::NoHosts));
}

#[test]
fn too_many_switches_are_rejected() {
    let text: String = (0..9_000).map(|number| format!("Switch 2 \"S-{number}\"\n\n")).collect();
    assert_eq!(rejection(&text), (2 * topology::MAX_IMPORTED_SWITCHES + 1, ImportProblem::TooManySwitches));
    let text: String = (0..70_000).map(|number| format!("Ca 1 \"H-{number}\"\n\n")).collect();
    assert_eq!(rejection(&text), (2 * topology::MAX_IMPORTED_NODES + 1, ImportProblem::TooManyNodes));
}

#[test]
fn hosts_cabled_to_each_other_have_a_route() {
    let fabric = imported("Ca 1 \"H-1\"\n[1] \"H-2\"[1]\n\nCa 1 \"H-2\"\n\nCa 1 \"H-3\"\n");
    let [one, two, three] = ["H-1", "H-2", "H-3"].map(|name| fabric.find(name).unwrap());
    assert_eq!(fabric.route(one, two, 0).len(), 1);
    assert_eq!(fabric.next_hop(one, three, 0), None);
}

/// Lines of plausible form, so that random texts get past the first line.
fn plausible_line() -> impl Strategy<Value = String> {
    let name = || prop_oneof![Just("S-1"), Just("S-2"), Just("S-3"), Just("H-1"), Just("H-2")];
    prop_oneof![
        Just(String::new()),
        Just("vendid=0x2c9".to_owned()),
        (0u16..6, name()).prop_map(|(ports, name)| format!("Switch {ports} \"{name}\" # \"x\"")),
        (0u16..3, name()).prop_map(|(ports, name)| format!("Ca {ports} \"{name}\"")),
        (0u16..6, name(), 0u16..6).prop_map(|(port, name, peer)| format!("[{port}] \"{name}\"[{peer}]")),
        ".{0,30}",
    ]
}

proptest! {
    #[test]
    fn random_text_never_panics(text in any::<String>()) {
        let _ = Fabric::import_ibnetdiscover(&text);
    }

    #[test]
    fn plausible_text_never_panics(lines in prop::collection::vec(plausible_line(), 0..12)) {
        if let Ok(fabric) = Fabric::import_ibnetdiscover(&lines.join("\n")) {
            for from in every_node(&fabric) {
                for to in every_node(&fabric) {
                    let _ = fabric.route(from, to, 3);
                }
            }
        }
    }

    #[test]
    fn a_text_with_one_byte_changed_is_read_or_rejected(at in 0usize..6_000, byte in 0x20u8..0x7f) {
        let mut bytes = MISSING_CABLE.as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        let text = String::from_utf8(bytes).unwrap();
        if let Ok(fabric) = Fabric::import_ibnetdiscover(&text) {
            for from in every_node(&fabric) {
                for to in every_node(&fabric) {
                    let _ = fabric.route(from, to, 0);
                }
            }
        }
    }
}
