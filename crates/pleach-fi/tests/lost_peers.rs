//! A peer process that is killed: everything that waits for it fails with the cause, and nothing hangs.

mod fabric;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use fabric::abi::*;
use fabric::{Node, pattern};

const PEER: &str = "PLEACH_FI_TEST_PEER";
const EHOSTUNREACH: i32 = 113;

/// The peer: prints its address, reads ours, receives what it is told to, and waits to be killed.
#[test]
fn peer_process() {
    if std::env::var_os(PEER).is_none() {
        return;
    }
    let mut node = Node::open(0, 0, FI_WAIT_NONE);
    println!("\naddress {}", hex(&node.name()));
    std::io::stdout().flush().expect("a pipe");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    node.know(&unhex(line.trim()));
    let mut target = [0; 5];
    node.trecv(&mut target, FI_ADDR_UNSPEC, 1, 0, 1);
    fabric::wait_for(&mut [&mut node], 0);
    assert_eq!(node.tinject(b"there", 0, 2), 0);
    loop {
        let _ = node.poll();
    }
}

struct Peer {
    child: Child,
    _output: BufReader<ChildStdout>,
}

/// A node here and a peer process, connected in both directions.
fn with_peer() -> (Node, Peer) {
    let mut node = Node::open(0, 0, FI_WAIT_NONE);
    let program = std::env::current_exe().expect("this program");
    // Without the name of this program: that of the test runs begins behind it.
    let peer = format!("{}::peer_process", module_path!());
    let (_, peer) = peer.split_once("::").expect("a path");
    let mut child = Command::new(program)
        .args(["--exact", peer, "--nocapture"])
        .env(PEER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let address = loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).expect("a line") > 0, "the peer ended");
        if let Some(found) = line.trim().strip_prefix("address ") {
            break unhex(found);
        }
    };
    writeln!(child.stdin.as_mut().expect("piped"), "{}", hex(&node.name())).expect("it reads");
    node.know(&address);
    assert_eq!(node.tinject(b"hello", 0, 1), 0);
    let mut target = [0; 5];
    node.trecv(&mut target, FI_ADDR_UNSPEC, 2, 0, 1);
    fabric::wait_for(&mut [&mut node], 0);
    assert_eq!(&target, b"there");
    (node, Peer { child, _output: output })
}

impl Peer {
    fn kill(&mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_long_send_to_a_killed_process_fails_with_the_cause() {
    let (mut node, mut peer) = with_peer();
    let message = pattern(1, 1 << 20);
    assert_eq!(node.tsend(&message, 0, 9, 77), 0);
    peer.kill();
    let began = Instant::now();
    let error = fabric::wait_for_error(&mut [&mut node], 0);
    assert_eq!((error.err, error.op_context as usize), (EHOSTUNREACH, 77));
    let text = node.error_text(&error);
    assert!(text.contains("127.0.0.1:") && text.contains("is lost"), "{text}");
    println!("after {:?}: {text}", began.elapsed());
    assert_eq!(node.tinject(b"more", 0, 9), -(EHOSTUNREACH as isize), "later sends fail at once");
    assert_eq!(node.tsend(&message, 0, 9, 78), -(EHOSTUNREACH as isize));
    fabric::run_for(&mut [&mut node], Duration::from_millis(300));
    assert!(node.poll().is_none() && node.poll_error().is_none(), "what was refused has no completion");
}

/// The peer has acknowledged that the message was announced, and nothing more is in flight.
#[test]
fn a_long_send_that_was_announced_to_a_killed_process_fails() {
    let (mut node, mut peer) = with_peer();
    let message = pattern(1, 1 << 20);
    assert_eq!(node.tsend(&message, 0, 9, 77), 0);
    fabric::run_for(&mut [&mut node], Duration::from_millis(500));
    peer.kill();
    let error = fabric::wait_for_error(&mut [&mut node], 0);
    assert_eq!((error.err, error.op_context as usize), (EHOSTUNREACH, 77));
}

/// Nothing is in flight: only the sign of life notices that the peer is gone.
#[test]
fn a_receive_that_waits_for_a_killed_process_fails_with_the_cause() {
    let (mut node, mut peer) = with_peer();
    let source = node.address_of(0);
    let (mut target, mut other) = ([0; 5], [0; 5]);
    node.trecv(&mut target, source, 9, 0, 55);
    peer.kill();
    let began = Instant::now();
    let error = fabric::wait_for_error(&mut [&mut node], 0);
    assert_eq!((error.err, error.op_context as usize), (EHOSTUNREACH, 55));
    println!("after {:?}: {}", began.elapsed(), node.error_text(&error));
    node.trecv(&mut other, source, 9, 0, 56);
    let error = fabric::wait_for_error(&mut [&mut node], 0);
    assert_eq!((error.err, error.op_context as usize), (EHOSTUNREACH, 56), "a receive that is posted later");
}

/// The receive that waits in vain is behind many that wait for somebody else.
#[test]
fn a_lost_peer_is_noticed_behind_many_other_receives() {
    let (mut node, mut peer) = with_peer();
    let own = node.name();
    let own = node.know(&own);
    let (own, source) = (node.address_of(own), node.address_of(0));
    let mut targets = vec![[0; 5]; 201];
    let (last, others) = targets.split_last_mut().expect("many");
    others.iter_mut().for_each(|target| node.trecv(target, own, 9, 0, 1));
    node.trecv(last, source, 9, 0, 55);
    peer.kill();
    let error = fabric::wait_for_error(&mut [&mut node], 0);
    assert_eq!((error.err, error.op_context as usize), (EHOSTUNREACH, 55));
}

#[test]
fn a_receive_from_anybody_fails_when_the_only_peer_is_killed() {
    let (mut node, mut peer) = with_peer();
    let mut target = [0; 5];
    node.trecv(&mut target, FI_ADDR_UNSPEC, 9, 0, 55);
    peer.kill();
    let error = fabric::wait_for_error(&mut [&mut node], 0);
    assert_eq!((error.err, error.op_context as usize), (EHOSTUNREACH, 55));
    let text = node.error_text(&error);
    assert!(text.contains("no peer is left") && text.contains("127.0.0.1:"), "{text}");
}

/// One peer is lost, another one is known but was never connected: its message may still come.
#[test]
fn a_receive_from_anybody_waits_while_another_peer_may_send() {
    let (mut node, mut peer) = with_peer();
    let mut other = Node::open(0, 0, FI_WAIT_NONE);
    node.know(&other.name());
    other.know(&node.name());
    let source = node.address_of(0);
    let (mut any, mut directed) = ([0; 5], [0; 5]);
    node.trecv(&mut any, FI_ADDR_UNSPEC, 9, 0, 54);
    node.trecv(&mut directed, source, 9, 0, 55);
    peer.kill();
    let error = fabric::wait_for_error(&mut [&mut node], 0);
    assert_eq!((error.err, error.op_context as usize), (EHOSTUNREACH, 55));
    fabric::run_for(&mut [&mut node], Duration::from_secs(1));
    assert!(node.poll().is_none() && node.poll_error().is_none(), "the receive from anybody still waits");
    assert_eq!(other.tinject(b"late!", 0, 9), 0);
    assert_eq!(fabric::wait_for(&mut [&mut node, &mut other], 0).context, 54);
    assert_eq!(&any, b"late!");
}

#[test]
fn a_killed_peer_does_not_delay_messages_of_others() {
    let (mut node, mut peer) = with_peer();
    peer.kill();
    let own = node.name();
    let own = node.know(&own);
    let began = Instant::now();
    let mut target = [0; 4];
    assert_eq!(node.tinject(b"self", own, 3), 0);
    node.trecv(&mut target, FI_ADDR_UNSPEC, 3, 0, 4);
    assert_eq!(fabric::wait_for(&mut [&mut node], 0).context, 4);
    assert!(began.elapsed() < Duration::from_secs(1));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> [u8; 64] {
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("two digits");
    std::array::from_fn(byte)
}
