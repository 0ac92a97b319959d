//! The provider under Debian's libfabric: every promise of its calls, between endpoints of one process over loopback.

mod fabric;

use std::time::{Duration, Instant};

use fabric::abi::*;
use fabric::{Node, connect, pattern};

const EAGAIN: isize = -11;
const EINVAL: isize = -22;

/// Lengths around the limits of inline, eager and long messages.
const LENGTHS: [usize; 12] = [0, 1, 7, 8, 48, 49, 1_000, 4_096, 16_368, 16_369, 1 << 20, (3 << 20) + 5];

#[test]
fn getinfo_offers_what_was_asked_for_and_nothing_else() {
    let library = fabric::library();
    assert!(library.info(|_| {}).is_some());
    assert!(library.info(|hints| hints.caps = FI_TAGGED | FI_DIRECTED_RECV | FI_MULTI_RECV).is_some());
    assert!(library.info(|hints| hints.caps = 1 << 2).is_none(), "no remote memory access");
    // SAFETY: `info` passes hints whose attributes are allocated.
    assert!(library.info(|hints| unsafe { (*hints.ep_attr).kind = 1 }).is_none(), "no connected endpoints");
    // SAFETY: as above.
    assert!(library.info(|hints| unsafe { (*hints.tx_attr).inject_size = 1 << 20 }).is_none());
    // SAFETY: as above.
    assert!(library.info(|hints| unsafe { (*hints.domain_attr).cq_data_size = 16 }).is_none());
    let info = library.info(|hints| hints.caps = FI_TAGGED).expect("tagged messages");
    // SAFETY: libfabric returned complete information.
    unsafe {
        assert_eq!((*(*info).ep_attr).kind, FI_EP_RDM);
        assert_eq!((*(*info).domain_attr).cq_data_size, 8);
        assert_eq!((*(*info).domain_attr).mr_mode, 0);
    }
}

/// FI_THREAD_SAFE, FID, DOMAIN, COMPLETION, ENDPOINT: some MPIs take only exactly the level that they asked for. The tests of several
/// threads use the strongest, which the others need less than.
#[test]
fn getinfo_offers_every_threading_level_that_is_asked_for() {
    let library = fabric::library();
    for level in 1..=5 {
        // SAFETY: `info` passes hints whose attributes are allocated.
        let info = library.info(|hints| unsafe { (*hints.domain_attr).threading = level }).expect("this level");
        // SAFETY: libfabric returned complete information.
        assert_eq!(unsafe { (*(*info).domain_attr).threading }, level);
    }
}

#[test]
fn tagged_messages_of_all_lengths_arrive_expected_and_unexpected() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    for is_expected in [true, false] {
        for (number, length) in LENGTHS.into_iter().enumerate() {
            let (sent, mut target) = (pattern(number, length), vec![0; length]);
            if is_expected {
                b.trecv(&mut target, FI_ADDR_UNSPEC, number as u64, 0, 70 + number);
            }
            assert_eq!(a.tsend(&sent, b.index, number as u64, 5), 0);
            if !is_expected {
                fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(2));
                b.trecv(&mut target, FI_ADDR_UNSPEC, number as u64, 0, 70 + number);
            }
            let done = fabric::wait_for(&mut [&mut a, &mut b], 1);
            assert_eq!((done.context, done.len, done.tag), (70 + number, length, number as u64));
            assert_eq!(done.flags, FI_RECV | FI_TAGGED);
            assert!(target == sent, "{length} bytes, expected: {is_expected}");
            let sent = fabric::wait_for(&mut [&mut a, &mut b], 0);
            assert_eq!((sent.context, sent.flags), (5, FI_SEND | FI_TAGGED));
        }
    }
}

#[test]
fn a_message_of_64_mebibytes_arrives() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let (sent, mut target) = (pattern(1, 64 << 20), vec![0; 64 << 20]);
    b.trecv(&mut target, FI_ADDR_UNSPEC, 1, 0, 1);
    assert_eq!(a.tsend(&sent, b.index, 1, 2), 0);
    fabric::wait_for(&mut [&mut a, &mut b], 1);
    assert!(target == sent);
    fabric::wait_for(&mut [&mut a, &mut b], 0);
}

#[test]
fn messages_with_one_tag_arrive_in_order_whatever_their_lengths() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let lengths: Vec<usize> = (0..60).map(|number| [8, 40_000, 300, 17_000, 0, 200_000][number % 6]).collect();
    let messages: Vec<Vec<u8>> =
        lengths.iter().enumerate().map(|(number, length)| pattern(number, *length)).collect();
    for (number, message) in messages.iter().enumerate() {
        assert_eq!(a.tsend(message, b.index, 9, number), 0);
    }
    let mut targets = vec![vec![0; 200_000]; lengths.len()];
    for (number, target) in targets.iter_mut().enumerate() {
        b.trecv(target, FI_ADDR_UNSPEC, 9, 0, number);
    }
    let mut done = vec![usize::MAX; lengths.len()];
    for _ in 0..lengths.len() {
        let entry = fabric::wait_for(&mut [&mut a, &mut b], 1);
        done[entry.context] = entry.len;
    }
    assert_eq!(done, lengths);
    for (target, message) in targets.iter().zip(&messages) {
        assert!(target[..message.len()] == message[..]);
    }
}

#[test]
fn wildcards_and_ignored_bits_choose_the_oldest_match() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    for (tag, byte) in [(0x101_u64, 1_u8), (0x202, 2), (0x102, 3)] {
        assert_eq!(a.tinject(&[byte], b.index, tag), 0);
    }
    let mut got = [0_u8; 3];
    let [first, second, third] = &mut got;
    fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(20));
    b.trecv(std::slice::from_mut(first), FI_ADDR_UNSPEC, 0x002, 0xf00, 1);
    b.trecv(std::slice::from_mut(second), FI_ADDR_UNSPEC, 0, u64::MAX, 2);
    b.trecv(std::slice::from_mut(third), FI_ADDR_UNSPEC, 0x102, 0, 3);
    let tags: Vec<u64> = (0..3).map(|_| fabric::wait_for(&mut [&mut a, &mut b], 1).tag).collect();
    assert_eq!(tags, [0x202, 0x101, 0x102]);
    assert_eq!(got, [2, 1, 3]);
}

#[test]
fn a_directed_receive_takes_only_its_sender() {
    let mut nodes = connect(3);
    let target = nodes[2].index;
    assert_eq!(nodes[0].tinject(b"from 0", target, 4), 0);
    let mut got = [0; 6];
    let source = nodes[1].index;
    let source = nodes[2].address_of(source);
    nodes[2].trecv(&mut got, source, 4, 0, 1);
    let mut all: Vec<&mut Node> = nodes.iter_mut().collect();
    fabric::run_for(&mut all, Duration::from_millis(50));
    assert!(all[2].poll().is_none(), "the message of another sender must wait");
    assert_eq!(all[1].tinject(b"from 1", target, 4), 0);
    let done = fabric::wait_for(&mut all, 2);
    assert_eq!((done.context, &got), (1, b"from 1"));
}

#[test]
fn completion_data_travels_with_short_and_long_messages_narrow_and_wide() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    for (number, (length, data)) in
        [(8, 3_u64), (8, u64::MAX - 1), (50_000, 7), (50_000, 1 << 40), (0, 0)].into_iter().enumerate()
    {
        let (sent, mut target) = (pattern(number, length), vec![0; length]);
        b.trecv(&mut target, FI_ADDR_UNSPEC, u64::MAX, 0, 1);
        assert_eq!(a.tsenddata(&sent, data, b.index, u64::MAX, 2), 0);
        let done = fabric::wait_for(&mut [&mut a, &mut b], 1);
        assert_eq!((done.data, done.tag, done.len), (data, u64::MAX, length));
        assert_eq!(done.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
        assert!(sent == target);
        fabric::wait_for(&mut [&mut a, &mut b], 0);
    }
}

#[test]
fn a_message_longer_than_its_buffer_is_an_error_that_says_how_much() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    for length in [100, 100_000] {
        let (sent, mut target) = (pattern(1, length), vec![0; 60]);
        b.trecv(&mut target, FI_ADDR_UNSPEC, 1, 0, 77);
        assert_eq!(a.tsend(&sent, b.index, 1, 1), 0);
        let error = fabric::wait_for_error(&mut [&mut a, &mut b], 1);
        assert_eq!((error.err, error.olen, error.op_context as usize), (FI_ETRUNC, length - 60, 77));
        fabric::wait_for(&mut [&mut a, &mut b], 0);
    }
    assert_eq!(a.tinject(b"next", b.index, 2), 0);
    let mut target = [0; 4];
    b.trecv(&mut target, FI_ADDR_UNSPEC, 2, 0, 78);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 1).context, 78);
    assert_eq!(&target, b"next");
}

#[test]
fn a_canceled_receive_reports_it_and_takes_no_message() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let (mut never, mut target) = ([0; 4], [0; 4]);
    b.trecv(&mut never, FI_ADDR_UNSPEC, 1, 0, 11);
    b.trecv(&mut target, FI_ADDR_UNSPEC, 1, 0, 12);
    assert_eq!(b.cancel(11), 0);
    assert!(b.cancel(99) < 0, "nothing has this context");
    let error = b.poll_error().expect("at once");
    assert_eq!((error.err, error.op_context as usize), (125, 11));
    assert_eq!(a.tinject(b"data", b.index, 1), 0);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 1).context, 12);
    assert_eq!((&target, &never), (b"data", &[0; 4]));
}

#[test]
fn peek_claim_and_discard() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    b.trecvmsg(&mut [], FI_ADDR_UNSPEC, 5, 0, 1, FI_PEEK);
    let error = b.poll_error().expect("no message");
    assert_eq!((error.err, error.op_context as usize), (42, 1));
    let long = pattern(3, 40_000);
    for message in [&b"first"[..], &long, b"third"] {
        assert_eq!(a.tsend(message, b.index, 5, 0), 0);
    }
    let found = loop {
        b.trecvmsg(&mut [], FI_ADDR_UNSPEC, 5, 0, 2, FI_PEEK);
        match b.poll() {
            Some(found) => break found,
            None => assert_eq!(b.poll_error().expect("either").err, 42),
        }
        fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(1));
    };
    assert_eq!((found.len, found.tag, found.context), (5, 5, 2));
    fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(20));
    b.trecvmsg(&mut [], FI_ADDR_UNSPEC, 5, 0, 3, FI_PEEK | FI_DISCARD);
    assert_eq!(b.poll().expect("the first").len, 5);
    b.trecvmsg(&mut [], FI_ADDR_UNSPEC, 5, 0, 4, FI_PEEK | FI_CLAIM);
    assert_eq!(b.poll().expect("the long one").len, 40_000);
    let again = b.try_trecvmsg(&mut [], FI_ADDR_UNSPEC, (5, 0), 4, FI_PEEK | FI_CLAIM);
    assert_eq!(again, EINVAL, "the context has a claimed message");
    let mut third = [0; 5];
    b.trecv(&mut third, FI_ADDR_UNSPEC, 5, 0, 5);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 1).context, 5, "a claimed message is out of the way");
    let mut target = vec![0; 40_000];
    b.trecvmsg(&mut target, FI_ADDR_UNSPEC, 5, 0, 4, FI_CLAIM);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 1).len, 40_000);
    assert!(target == long && &third == b"third");
}

#[test]
fn probes_of_untagged_messages_are_refused() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let mut target = [0; 5];
    for flags in [FI_PEEK, FI_CLAIM, FI_PEEK | FI_CLAIM, FI_DISCARD] {
        assert_eq!(b.try_recvmsg(&mut target, FI_ADDR_UNSPEC, 1, flags), EINVAL);
    }
    b.recvmsg(&mut target, FI_ADDR_UNSPEC, 2, 0);
    assert_eq!(a.send(b"hello", b.index, 1), 0);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 1).context, 2, "a refused probe took no message");
    assert_eq!(&target, b"hello");
}

#[test]
fn one_buffer_takes_several_messages_and_is_released_when_it_is_full() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let mut buffer = vec![0_u8; 100_000];
    let start = buffer.as_ptr() as usize;
    b.set_min_multi_recv(20_000);
    b.recvmsg(&mut buffer, FI_ADDR_UNSPEC, 9, FI_MULTI_RECV);
    let messages = [pattern(1, 100), pattern(2, 30_000), pattern(3, 40_000), pattern(4, 16_000)];
    for message in &messages {
        assert_eq!(a.send(message, b.index, 1), 0);
    }
    let mut released = 0;
    for _ in 0..4 {
        let done = fabric::wait_for(&mut [&mut a, &mut b], 1);
        let at = done.buf as usize - start;
        let message = messages.iter().find(|message| message.len() == done.len).expect("one of them");
        assert!(buffer[at..at + done.len] == message[..], "{} bytes at {at}", done.len);
        assert_eq!(done.flags & FI_RECV, FI_RECV);
        released += u32::from(done.flags & FI_MULTI_RECV != 0);
    }
    assert_eq!(released, 1);
    let mut next = vec![0; 100];
    b.recvmsg(&mut next, FI_ADDR_UNSPEC, 10, 0);
    assert_eq!(a.send(&messages[0], b.index, 1), 0);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 1).context, 10);
    assert!(next == messages[0]);
}

#[test]
fn selective_completion_reports_only_what_asks_for_it_but_every_error() {
    let [mut a, mut b] = fabric::connect_with(2, FI_SELECTIVE_COMPLETION, 0).try_into().expect("two");
    let mut got = [0; 4];
    b.trecvmsg(&mut got, FI_ADDR_UNSPEC, 1, 0, 5, 0);
    assert_eq!(a.tsend(b"quie", b.index, 1, 3), 0);
    let began = Instant::now();
    while &got != b"quie" {
        assert!(began.elapsed() < Duration::from_secs(20));
        fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(1));
        std::hint::black_box(&mut got);
    }
    assert!(a.poll().is_none() && b.poll().is_none());
    b.trecvmsg(&mut got, FI_ADDR_UNSPEC, 1, 0, 6, FI_COMPLETION);
    assert_eq!(a.tsendmsg(b"loud", b.index, 1, 4, FI_COMPLETION), 0);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 1).context, 6);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 0).context, 4);
    b.trecvmsg(&mut got[..2], FI_ADDR_UNSPEC, 1, 0, 7, 0);
    assert_eq!(a.tsend(b"long", b.index, 1, 3), 0);
    assert_eq!(fabric::wait_for_error(&mut [&mut a, &mut b], 1).err, FI_ETRUNC);
}

#[test]
fn delivery_complete_waits_until_the_message_is_received() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    assert_eq!(a.tsendmsg(b"sure", b.index, 1, 4, FI_COMPLETION | FI_DELIVERY_COMPLETE), 0);
    fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(100));
    assert!(a.poll().is_none(), "nobody received it");
    let mut got = [0; 4];
    b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 5);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 1).context, 5);
    assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 0).context, 4);
    assert_eq!(&got, b"sure");
}

#[test]
fn an_endpoint_sends_to_itself() {
    let [mut a] = connect(1).try_into().expect("one");
    let own = a.index;
    for length in [0, 8, 100_000] {
        let (sent, mut target) = (pattern(2, length), vec![0; length]);
        assert_eq!(a.tsend(&sent, own, 3, 1), 0);
        a.trecv(&mut target, FI_ADDR_UNSPEC, 3, 0, 2);
        let mut contexts =
            [fabric::wait_for(&mut [&mut a], 0), fabric::wait_for(&mut [&mut a], 0)].map(|e| e.context);
        contexts.sort_unstable();
        assert_eq!(contexts, [1, 2]);
        assert!(sent == target, "{length} bytes");
    }
}

/// Many unexpected messages: memory is bounded, senders wait, and all arrive in order.
#[test]
fn a_flood_of_unexpected_messages_waits_and_arrives() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let count = 30_000_u64;
    let mut sent = 0;
    let began = Instant::now();
    while sent < count {
        match a.tinject(&sent.to_le_bytes(), b.index, 1) {
            0 => sent += 1,
            EAGAIN => fabric::run_for(&mut [&mut a, &mut b], Duration::from_micros(100)),
            other => panic!("{other}"),
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{sent} of {count} sent");
    }
    for expected in 0..count {
        let mut got = [0; 8];
        b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
        fabric::wait_for(&mut [&mut a, &mut b], 1);
        assert_eq!(u64::from_le_bytes(got), expected);
    }
}

/// Anyone can send to the port: random packets, and long ones, neither disturb messages nor keep others from connecting.
#[test]
fn foreign_packets_do_no_harm() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let text = b.address_text(&b.name());
    let target: std::net::SocketAddr = text.trim_start_matches("pleach://").parse().expect("an address");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let throw = |seed: usize| {
        for number in 0..200 {
            let packet = pattern(seed * 1_000 + number, [0, 1, 30, 60, 124, 300, 1_400, 5_000][number % 8]);
            let _ = socket.send_to(&packet, target);
        }
    };
    throw(1);
    for number in 0..50 {
        let (sent, mut got) = (pattern(number, 20_000), vec![0; 20_000]);
        b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
        assert_eq!(a.tsend(&sent, b.index, 1, 1), 0);
        throw(number);
        fabric::wait_for(&mut [&mut a, &mut b], 1);
        fabric::wait_for(&mut [&mut a, &mut b], 0);
        assert!(sent == got);
    }
}

#[test]
fn messages_to_itself_that_nobody_receives_are_bounded() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let (message, own) = (pattern(1, 16_000), a.index);
    let accepted = (0..100_000).take_while(|_| a.tinject(&message, own, 1) == 0).count();
    assert!((1_000..10_000).contains(&accepted), "{accepted}");
    assert_eq!(a.tinject(&message, own, 1), EAGAIN);
    let mut other = vec![0; 16_000];
    b.trecv(&mut other, FI_ADDR_UNSPEC, 2, 0, 1);
    assert_eq!(a.tinject(&message, b.index, 2), 0, "sends to others go on");
    fabric::wait_for(&mut [&mut a, &mut b], 1);
    assert!(other == message);
    let mut got = vec![0; 16_000];
    a.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 1);
    fabric::wait_for(&mut [&mut a], 0);
    assert_eq!(a.tinject(&message, own, 1), 0, "there is space again");
}

/// Sends to a peer that takes nothing end with "try again", not with more and more memory.
#[test]
fn sends_that_nobody_receives_are_bounded() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let message = pattern(1, 16_000);
    let mut accepted = 0_u64;
    while a.tinject(&message, b.index, 1) == 0 {
        accepted += 1;
        assert!(accepted < 100_000, "it must refuse at some time");
        if accepted.is_multiple_of(64) {
            fabric::run_for(&mut [&mut a, &mut b], Duration::from_micros(200));
        }
    }
    assert!(accepted * 16_000 < 200 << 20, "{accepted} messages were taken");
}

#[test]
fn eight_endpoints_exchange_messages_all_to_all() {
    let mut nodes = connect(8);
    let count = nodes.len();
    let mut targets: Vec<Vec<Vec<u8>>> = vec![vec![vec![0; 5_000]; count]; count];
    for (me, node) in nodes.iter_mut().enumerate() {
        for (from, target) in targets[me].iter_mut().enumerate() {
            let source = node.address_of(from);
            node.trecv(target, source, 1, 0, from);
        }
    }
    let messages: Vec<Vec<u8>> = (0..count * count).map(|number| pattern(number, 5_000)).collect();
    for me in 0..count {
        for to in 0..count {
            assert_eq!(nodes[me].tsend(&messages[me * count + to], to, 1, 1_000), 0);
        }
    }
    let mut all: Vec<&mut Node> = nodes.iter_mut().collect();
    for me in 0..count {
        let mut contexts: Vec<usize> = (0..2 * count).map(|_| fabric::wait_for(&mut all, me).context).collect();
        contexts.sort_unstable();
        assert_eq!(contexts[..count], (0..count).collect::<Vec<_>>());
    }
    for (me, row) in targets.iter().enumerate() {
        for (from, target) in row.iter().enumerate() {
            assert!(*target == messages[from * count + me], "from {from} to {me}");
        }
    }
}

#[test]
fn counters_count_and_waiting_calls_wake_up() {
    let [mut a, mut b] = fabric::connect_with(2, 0, FI_WAIT_FD).try_into().expect("two");
    assert!(b.wait_descriptor() >= 0);
    let began = Instant::now();
    assert!(b.sread(50).is_none());
    assert!(began.elapsed() >= Duration::from_millis(45), "it waited");
    let mut got = [0; 5];
    b.trecv(&mut got, FI_ADDR_UNSPEC, 1, 0, 8);
    let to = b.index;
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(a.tsend(b"hello", to, 1, 1), 0);
            fabric::wait_for(&mut [&mut a], 0);
        });
        let done = b.sread(20_000).expect("it comes");
        assert_eq!(done.context, 8);
        sender.join().expect("no panic");
    });
    assert_eq!(&got, b"hello");
    assert_eq!((a.sent_count(), b.received_count()), (1, 1));
}

/// While the application computes, the provider's own thread answers peers and moves long messages.
#[test]
fn a_long_message_arrives_though_the_receiver_makes_no_call() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let (sent, mut target) = (pattern(1, 2 << 20), vec![0; 2 << 20]);
    b.trecv(&mut target, FI_ADDR_UNSPEC, 1, 0, 8);
    assert_eq!(a.tsend(&sent, b.index, 1, 1), 0);
    fabric::wait_for(&mut [&mut a], 0);
    assert_eq!(b.poll().expect("it is there").len, 2 << 20);
    assert!(sent == target);
}

#[test]
fn several_threads_use_one_endpoint() {
    let [a, b] = connect(2).try_into().expect("two");
    let (shared_a, shared_b) = (fabric::Shared(a), fabric::Shared(b));
    let (rounds, threads) = (500_u64, 4_u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (from, to) = (&shared_a, &shared_b);
            scope.spawn(move || {
                for round in 0..rounds {
                    let bytes = (thread << 32 | round).to_le_bytes();
                    while from.get().tinject(&bytes, to.get().index, thread) == EAGAIN {
                        let _ = from.get().poll();
                    }
                }
            });
        }
        let (from, to) = (&shared_a, &shared_b);
        let targets: Vec<Vec<[u8; 8]>> = vec![vec![[0; 8]; rounds as usize]; threads as usize];
        let mut targets = targets;
        for (thread, row) in targets.iter_mut().enumerate() {
            for target in row.iter_mut() {
                to.get().trecv(target, FI_ADDR_UNSPEC, thread as u64, 0, 1);
            }
        }
        let began = Instant::now();
        let mut done = 0;
        while done < rounds * threads {
            assert!(began.elapsed() < Duration::from_secs(60), "{done} arrived");
            let _ = from.get().poll();
            done += u64::from(to.get().poll().is_some());
        }
        for (thread, row) in targets.iter().enumerate() {
            for (round, target) in row.iter().enumerate() {
                assert_eq!(u64::from_le_bytes(*target), (thread as u64) << 32 | round as u64);
            }
        }
    });
}

#[test]
fn parts_of_memory_are_gathered_and_scattered() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    for size in [10, 30_000] {
        let parts = [pattern(1, size), pattern(2, size / 2), pattern(3, 0), pattern(4, 5)];
        let whole: Vec<u8> = parts.concat();
        let (mut first, mut second) = (vec![0; 7], vec![0; whole.len() - 7]);
        b.trecvv(&mut [&mut first, &mut second], 6, 1);
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        assert_eq!(a.tsendv(&slices, b.index, 6, 2), 0);
        fabric::wait_for(&mut [&mut a, &mut b], 1);
        fabric::wait_for(&mut [&mut a, &mut b], 0);
        assert!([first, second].concat() == whole, "{size}");
    }
}

#[test]
fn an_address_vector_finds_prints_and_forgets_addresses() {
    let [a, b] = connect(2).try_into().expect("two");
    let handle = a.address_of(b.index);
    assert_eq!(a.lookup(handle).expect("inserted"), b.name());
    assert!(a.address_text(&b.name()).starts_with("pleach://"));
    assert!(a.insert(&[0; 64]).is_none(), "not an address of this provider");
    let mut public = b.name();
    public[16..32].fill(0);
    assert!(a.insert(&public).is_none(), "an address without a secret");
    assert_eq!(a.remove(handle), 0);
    assert!(a.lookup(handle).is_none() && a.remove(handle) < 0);
}
