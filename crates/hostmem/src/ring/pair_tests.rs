//! Memory between two processes, with both ends in one.

use std::io::ErrorKind;
use std::sync::Arc;

use protocol::messaging::RailIndex;
use protocol::{BufferSlice, SharedBytes};
use transport::message_transport::{SendReport, TransportEvent};
use units::{Rank, Time};

use super::pair_memory::{PAIR_RING_BYTES, PairMemory, PeerEnd};
use super::pair_transport::PairTransport;

const RAIL: RailIndex = RailIndex(0);

fn number(test: u64) -> u64 {
    u64::from(std::process::id()) << 32 | test
}

/// Two ends; each knows the other as rank 7.
fn ends(test: u64) -> [PairTransport; 2] {
    let created = PairMemory::create(number(test)).expect("memory");
    let joined = PairMemory::join(number(test)).expect("the same memory");
    [created, joined].map(|memory| {
        let mut end = PairTransport::default();
        end.add(Rank(7), memory);
        end
    })
}

/// What happens in one poll: packets, and the first bytes of buffers that return.
fn poll(end: &mut PairTransport) -> (Vec<Vec<u8>>, usize, bool) {
    let (mut packets, mut returned, mut is_lost) = (Vec::new(), 0, false);
    end.poll(Time::ZERO, &mut |_, event| match event {
        TransportEvent::Packet { from, rail, bytes, .. } => {
            assert_eq!((from, rail), (Rank(7), RAIL));
            packets.push(bytes.to_vec());
        }
        TransportEvent::SendComplete { .. } => returned += 1,
        TransportEvent::RailLost { .. } => is_lost = true,
    });
    (packets, returned, is_lost)
}

#[test]
fn packets_of_all_lengths_pass_in_both_directions_and_more_than_fit_wait() {
    let mut ends = ends(1);
    let packet = |index: usize| vec![index as u8; [1, 120, 121, 5_000, 61_440][index % 5]];
    for from in [0, 1] {
        let mut returned = 0;
        for index in 0..200 {
            let body = SharedBytes::Owned(Arc::new(packet(index)));
            let length = packet(index).len();
            match index % 2 {
                0 => ends[from].send(Rank(7), packet(index), None),
                _ => ends[from].send(Rank(7), Vec::new(), Some(BufferSlice::new(&body, 0..length))),
            }
        }
        let mut got = Vec::new();
        while got.len() < 200 {
            returned += poll(&mut ends[from]).1;
            got.extend(poll(&mut ends[1 - from]).0);
        }
        returned += poll(&mut ends[from]).1;
        assert_eq!(returned, 200);
        assert!(got.iter().enumerate().all(|(index, bytes)| *bytes == packet(index)));
    }
}

#[test]
fn a_packet_may_be_written_in_place() {
    let [mut writer, mut reader] = ends(2);
    writer.reserve(Rank(7), 3).expect("space").copy_from_slice(b"abc");
    writer.send_reserved(Rank(7), SendReport::Unwanted);
    assert_eq!(poll(&mut reader).0, [b"abc".to_vec()]);
    assert_eq!(poll(&mut writer).1, 0, "nothing returns");
    let mut reserved = 0;
    while writer.reserve(Rank(7), 60_000).is_some() {
        writer.send_reserved(Rank(7), SendReport::Unwanted);
        reserved += 1;
    }
    assert_eq!(reserved, PAIR_RING_BYTES / 60_032, "then the ring is full");
}

#[test]
fn memory_is_joined_once_and_only_where_it_is() {
    assert_eq!(PairMemory::join(number(3)).expect_err("nobody created it").kind(), ErrorKind::NotFound);
    let created = PairMemory::create(number(3)).expect("memory");
    let joined = PairMemory::join(number(3)).expect("the same memory");
    assert_eq!(PairMemory::join(number(3)).expect_err("the name is gone").kind(), ErrorKind::NotFound);
    drop((created, joined));
    drop(PairMemory::create(number(3)).expect("memory"));
    assert_eq!(PairMemory::join(number(3)).expect_err("nobody waits any more").kind(), ErrorKind::NotFound);
}

#[test]
fn the_end_of_a_peer_is_seen_when_its_packets_are_read() {
    let [mut first, mut second] = ends(4);
    assert_eq!(first.peer_end(Rank(7)), None);
    second.send(Rank(7), vec![1], None);
    second.close();
    assert!(first.is_closed(Rank(7)));
    assert_eq!(first.peer_end(Rank(7)), None, "a packet is left");
    poll(&mut first);
    assert_eq!(first.peer_end(Rank(7)), Some(PeerEnd::Closed));
    let [first, second] = self::ends(5);
    drop(second); // As the kernel does when a process is killed.
    assert_eq!(first.peer_end(Rank(7)), Some(PeerEnd::Died));
}

#[test]
fn who_sleeps_is_woken_once_per_sleep() {
    let [mut first, mut second] = ends(6);
    second.send(Rank(7), vec![1], None);
    assert_eq!(second.next_sleeper(), None);
    assert!(!first.fall_asleep(), "a packet is there");
    assert_eq!(poll(&mut first).0.len(), 1);
    assert!(first.fall_asleep());
    second.send(Rank(7), vec![2], None);
    second.send(Rank(7), vec![3], None);
    assert_eq!((second.next_sleeper(), second.next_sleeper()), (Some(Rank(7)), None));
    assert_eq!(poll(&mut first).0.len(), 2);
    second.send(Rank(7), vec![4], None);
    assert_eq!(second.next_sleeper(), None, "it is awake");
}

#[test]
fn a_removed_peer_leaves_the_others() {
    let mut hub = PairTransport::default();
    let mut others: Vec<PairTransport> = Vec::new();
    for rank in [3, 7, 5] {
        hub.add(Rank(rank), PairMemory::create(number(100 + u64::from(rank))).expect("memory"));
        let mut other = PairTransport::default();
        other.add(Rank(7), PairMemory::join(number(100 + u64::from(rank))).expect("the same memory"));
        others.push(other);
    }
    hub.remove(Rank(3));
    assert!(!hub.contains(Rank(3)) && hub.contains(Rank(5)) && hub.contains(Rank(7)));
    hub.send(Rank(5), vec![5], None);
    hub.send(Rank(7), vec![7], None);
    hub.send(Rank(3), vec![3], None);
    assert_eq!(poll(&mut others[2]).0, [vec![5]]);
    assert_eq!(poll(&mut others[1]).0, [vec![7]]);
    assert_eq!(others[0].peer_end(Rank(7)), Some(PeerEnd::Died));
}
