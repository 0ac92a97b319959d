//! Buffers for several messages (FI_MULTI_RECV): the order of messages, and what happens where a buffer ends.

mod fabric;

use std::time::Duration;

use fabric::abi::*;
use fabric::{connect, pattern};

/// Receives so many messages into buffers of this length, one after the other; returns the messages in the order of
/// their places, which is the order of matching. Long ones may complete later.
fn receive_in_buffers(nodes: &mut [&mut fabric::Node], count: usize, buffer_bytes: usize) -> Vec<Vec<u8>> {
    let mut buffers: Vec<Vec<u8>> = Vec::new();
    let mut got = Vec::new();
    let mut needs_buffer = true;
    while got.len() < count {
        if std::mem::take(&mut needs_buffer) {
            buffers.push(vec![0; buffer_bytes]);
            let last = buffers.len() - 1;
            nodes[1].recvmsg(&mut buffers[last], FI_ADDR_UNSPEC, last, FI_MULTI_RECV);
        }
        let done = fabric::wait_for(nodes, 1);
        if done.flags & FI_RECV != 0 {
            let start = done.buf as usize - buffers[done.context].as_ptr() as usize;
            got.push((done.context, start, buffers[done.context][start..start + done.len].to_vec()));
        }
        needs_buffer = done.flags & FI_MULTI_RECV != 0;
    }
    got.sort();
    got.into_iter().map(|(.., bytes)| bytes).collect()
}

/// The second message does not fit the rest of the first buffer: it must not go behind the third.
#[test]
fn unexpected_messages_keep_their_order_over_several_buffers() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let messages = [pattern(1, 10_000), pattern(2, 10_000), pattern(3, 1_000)];
    for message in &messages {
        assert_eq!(a.send(message, b.index, 1), 0);
    }
    fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(100));
    let got = receive_in_buffers(&mut [&mut a, &mut b], 3, 16 << 10);
    assert!(got == messages, "{:?}", got.iter().map(Vec::len).collect::<Vec<_>>());
}

/// Many lengths, long and short, all unexpected.
#[test]
fn a_row_of_unexpected_messages_arrives_in_order() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let messages: Vec<Vec<u8>> =
        (0..60).map(|number| pattern(number, [9_000, 40, 20_000, 1, 15_000, 3_000][number % 6])).collect();
    for message in &messages {
        assert_eq!(a.send(message, b.index, 1), 0);
    }
    fabric::run_for(&mut [&mut a, &mut b], Duration::from_millis(200));
    let got = receive_in_buffers(&mut [&mut a, &mut b], messages.len(), 24 << 10);
    assert!(got == messages, "{:?}", got.iter().map(Vec::len).collect::<Vec<_>>());
}

#[test]
fn a_message_longer_than_the_whole_buffer_is_truncated_and_the_next_one_arrives() {
    let [mut a, mut b] = connect(2).try_into().expect("two");
    for length in [5_000, 50_000] {
        let (long, next) = (pattern(1, length), pattern(2, 700));
        let (mut buffer, mut second) = (vec![0; 1_000], vec![0; 1_000]);
        b.recvmsg(&mut buffer, FI_ADDR_UNSPEC, 3, FI_MULTI_RECV);
        assert_eq!(a.send(&long, b.index, 1), 0);
        let error = fabric::wait_for_error(&mut [&mut a, &mut b], 1);
        assert_eq!((error.err, error.olen, error.op_context as usize), (FI_ETRUNC, length - 1_000, 3));
        assert_eq!(error.flags & FI_MULTI_RECV, FI_MULTI_RECV, "the buffer is full");
        b.recvmsg(&mut second, FI_ADDR_UNSPEC, 4, 0);
        assert_eq!(a.send(&next, b.index, 1), 0);
        assert_eq!(fabric::wait_for(&mut [&mut a, &mut b], 1).context, 4);
        assert!(second[..700] == next[..]);
        fabric::wait_for(&mut [&mut a, &mut b], 0);
        fabric::wait_for(&mut [&mut a, &mut b], 0);
    }
}
