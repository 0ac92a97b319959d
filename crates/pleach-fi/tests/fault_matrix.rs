//! The provider between two hosts made of namespaces, with two links: each fault of a link, during short and during long messages.

mod fabric;

use std::time::{Duration, Instant};

use fabric::abi::*;
use fabric::{Node, connect_nodes, pattern};
use namespaces::NamespaceError;
use namespaces::hosts::{Corruption, Direction, Hosts, HostsBuilder};

/// How long messages travel before a fault, and with it.
const BEFORE: Duration = Duration::from_millis(100);
const DURING: Duration = Duration::from_millis(700);
const LINKS: usize = 2;
const MTU: u32 = 9_000;
const LOW_MTU: u32 = 1_400;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    LinkDown,
    SilentDrop,
    Corruption,
    PathFlap,
    /// On all links of a host, for good: no path carries the packets on which the ends have agreed.
    MtuLowered,
}

impl Fault {
    const ALL: [Self; 5] = [Self::LinkDown, Self::SilentDrop, Self::Corruption, Self::PathFlap, Self::MtuLowered];

    fn begin(self, hosts: &Hosts) {
        let link = hosts.link(0, 0);
        let begun = match self {
            Self::MtuLowered => set_mtu(hosts, LOW_MTU),
            Self::LinkDown | Self::PathFlap => link.down(),
            Self::SilentDrop => link.drop_silently(Direction::Both),
            Self::Corruption => {
                link.corrupt(Direction::Both, Corruption { one_in: 50, bytes: vec![40, 90, 500], flip: 0x10 })
            }
        };
        begun.expect("a fault");
    }

    fn end(self, hosts: &Hosts) {
        let ended = if self == Self::MtuLowered { set_mtu(hosts, MTU) } else { hosts.link(0, 0).heal() };
        ended.expect("whole links");
    }
}

fn set_mtu(hosts: &Hosts, bytes: u32) -> Result<(), NamespaceError> {
    (0..LINKS).try_for_each(|link| hosts.link(0, link).set_mtu(bytes))
}

/// One message there and back; how long it took.
fn round_trip(nodes: &mut [Node; 2], number: usize, length: usize) -> Duration {
    let began = Instant::now();
    let [a, b] = nodes;
    for (from, to) in [(0, 1), (1, 0)] {
        let (sent, mut target) = (pattern(number + from, length), vec![0; length]);
        let (source, receiver) = if from == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
        receiver.trecv(&mut target, FI_ADDR_UNSPEC, 7, 0, number);
        assert_eq!(source.tsend(&sent, to, 7, number), 0);
        let done = fabric::wait_for(&mut [&mut *receiver, &mut *source], 0);
        assert_eq!((done.context, done.len), (number, length));
        assert!(target == sent, "message {number} of {length} bytes");
        fabric::wait_for(&mut [source, receiver], 0);
    }
    began.elapsed()
}

/// Messages of one length while a link fails and is whole again; the longest round trip.
fn messages_through(fault: Fault, hosts: &Hosts, nodes: &mut [Node; 2], length: usize) -> Duration {
    let (began, mut longest, mut number) = (Instant::now(), Duration::ZERO, 0);
    let (mut has_begun, mut is_down, mut flapped) = (false, false, Instant::now());
    while began.elapsed() < BEFORE + DURING {
        if !has_begun && began.elapsed() > BEFORE {
            fault.begin(hosts);
            (has_begun, is_down, flapped) = (true, true, Instant::now());
        }
        if has_begun && fault == Fault::PathFlap && flapped.elapsed() > Duration::from_millis(60) {
            let link = hosts.link(0, 0);
            if is_down { link.up() } else { link.down() }.expect("a link");
            (is_down, flapped) = (!is_down, Instant::now());
        }
        longest = longest.max(round_trip(nodes, number, length));
        number += 1;
    }
    assert!(number > 20, "{fault:?}: only {number} messages of {length} bytes");
    fault.end(hosts);
    longest
}

#[test]
fn no_message_is_lost_or_wrong_whatever_a_link_does() {
    // SAFETY: this program has one test, whose threads do not exist yet.
    unsafe { std::env::set_var("PLEACH_ADDRESSES", "") };
    let hosts = HostsBuilder::new(2, LINKS).mtu(MTU).build().expect("namespaces");
    fabric::library();
    for fault in Fault::ALL {
        for length in [1_000, 300_000] {
            let open = |host: usize| hosts.host(host).inside(|| Node::open(host, 0, FI_WAIT_NONE)).expect("a host");
            let mut nodes = [open(0), open(1)];
            connect_nodes(&mut nodes);
            round_trip(&mut nodes, 0, length);
            let longest = messages_through(fault, &hosts, &mut nodes, length);
            println!("{fault:?}, {length} bytes: the longest round trip took {longest:?}");
            assert!(longest < Duration::from_millis(500), "{fault:?}, {length} bytes: {longest:?}");
        }
    }
}
