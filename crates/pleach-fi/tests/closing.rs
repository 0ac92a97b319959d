//! Endpoints that are closed while operations are outstanding: what was sent arrives, and closing ends.

mod fabric;

use std::time::{Duration, Instant};

use fabric::abi::*;
use fabric::{connect, pattern};

/// The first message makes the connection, so it still waits when the endpoint is closed.
#[test]
fn a_message_that_waits_for_its_connection_arrives_though_the_endpoint_is_closed() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    for number in 0..10_u8 {
        assert_eq!(a.tinject(&[number], b.index, 1), 0);
    }
    drop(a);
    for number in 0..10 {
        let mut got = [99];
        b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
        fabric::wait_for(&mut [&mut b], 0);
        assert_eq!(got, [number]);
    }
}

/// Sends that nobody receives, receives without message, half a buffer for several messages, a probe's claim.
#[test]
fn closing_with_outstanding_operations_ends_soon() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let long = pattern(1, 3 << 20);
    let (mut target, mut buffer) = (vec![0; 100], vec![0; 100_000]);
    let source = b.address_of(a.index);
    b.trecv(&mut target, source, 99, 0, 1);
    b.recvmsg(&mut buffer, FI_ADDR_UNSPEC, 2, FI_MULTI_RECV);
    for number in 0..20 {
        assert_eq!(a.tsend(&long, b.index, number, 1), 0);
        assert_eq!(a.send(&long[..500], b.index, 1), 0);
    }
    fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(100));
    b.trecvmsg(&mut [], FI_ADDR_UNSPEC, 3, 0, 7, FI_PEEK | FI_CLAIM);
    let began = Instant::now();
    drop(a);
    drop(b);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// A long message is in flight when its receiver is closed, and then when its sender is: nobody writes to memory that is gone.
#[test]
fn closing_in_the_middle_of_long_messages_leaves_the_other_end_usable() {
    // They live longer than the endpoints: a send that has not completed reads them.

    let long = pattern(1, 32 << 20);
    let mut target = vec![0; 32 << 20];
    let [mut a, mut b, mut c] = connect(3).try_into().expect("three");
    b.trecv(&mut target, FI_ADDR_UNSPEC, 1, 0, 1);
    assert_eq!(a.tsend(&long, b.index, 1, 5), 0);
    fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(5));
    drop(b);
    target.fill(7);
    let mut got = [0; 5];
    c.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
    assert_eq!(a.tinject(b"hello", c.index, 1), 0);
    fabric::wait_for(&mut [&mut a, &mut c], 1);
    assert_eq!(&got, b"hello");
    assert!(target.iter().all(|byte| *byte == 7), "memory of a closed endpoint was written");
}
