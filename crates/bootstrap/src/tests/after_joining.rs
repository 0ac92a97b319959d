//! Losses, goodbyes and messages.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use super::super::framing::FramedStream;
use super::super::member::{DetectorConfig, Member};
use super::super::rank_event::{MAX_OOB_MESSAGE_BYTES, OobSendError, OobTarget, SEND_QUEUE_LIMIT_BYTES};
use super::super::token_key::TokenKey;
use super::*;

fn is_lost(event: &[RankEvent], rank: u32) -> bool {
    *event == [RankEvent::Lost { ranks: vec![rank] }]
}

/// The events after rank 0 and these others are lost.
fn taken_over(coordinator: u32, lost: &[u32]) -> [RankEvent; 2] {
    [RankEvent::NewCoordinator { rank: coordinator }, RankEvent::Lost { ranks: lost.to_vec() }]
}

#[test]
fn a_rank_that_is_dropped_is_lost_to_all_others() {
    let mut detectors = failure_detectors(4);
    drop(detectors.remove(2));
    let mut detectors: Vec<_> = detectors.iter_mut().collect();
    let received = events_of(&mut detectors, 1);
    assert!(received.iter().all(|event| is_lost(event, 2)), "{received:?}");
    assert_eq!(detectors[1].send(OobTarget::Rank(2), b"hello"), Err(OobSendError::RankGone));
    assert_eq!(detectors[0].send(OobTarget::Rank(2), b"hello"), Err(OobSendError::RankGone));
}

#[test]
fn when_rank_zero_is_dropped_all_agree_that_it_is_lost_and_the_next_rank_follows_it() {
    let mut detectors = failure_detectors(4);
    drop(detectors.remove(0));
    let received = events_of(&mut detectors.iter_mut().collect::<Vec<_>>(), 2);
    assert!(received.iter().all(|events| *events == taken_over(1, &[0])), "{received:?}");
    detectors[1].send(OobTarget::Rank(3), b"through rank 1").expect("room");
    detectors[2].send(OobTarget::Coordinator, b"to it").expect("room");
    let [one, _, three] = &mut detectors[..] else { panic!("three are left") };
    let received = events_of(&mut [three, one], 1);
    assert_eq!(received[0], [RankEvent::Message { from: 2, bytes: b"through rank 1".to_vec() }]);
    assert_eq!(received[1], [RankEvent::Message { from: 3, bytes: b"to it".to_vec() }]);
    drop(detectors.remove(0));
    let received = events_of(&mut detectors.iter_mut().collect::<Vec<_>>(), 2);
    assert!(received.iter().all(|events| *events == taken_over(2, &[1])), "{received:?}");
    drop(detectors.remove(0));
    assert_eq!(events_of(&mut [&mut detectors[0]], 2), [taken_over(3, &[2])]);
}

/// A rank whose packets are lost receives the end of its links, because the others find it silent: its own connections get no answer.
#[test]
fn a_rank_whose_links_are_closed_by_ranks_that_do_not_answer_is_cut_off() {
    let key = TokenKey::new(&JobToken(b"token".to_vec()), "");
    let silent: Vec<_> = (0..2).map(|_| SilentPort::new()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let addresses =
        std::iter::once(listener.local_addr()).chain(silent.iter().map(|port| port.listener.local_addr()));
    let ports = addresses.map(|address| vec![address.expect("bound")]).collect();
    let config = DetectorConfig { rank: 0, size: 3, key, ports, hosts: vec![0, 1, 2], peer_timeout: TIMEOUTS.peer };
    let (near, far): (Vec<_>, Vec<_>) = (0..2).map(|_| connection(&listener)).unzip();
    let streams = (1..).zip(near).collect();
    let mut member = Member::new(config, vec![listener], streams).expect("descriptors");
    drop(far);
    let began = Instant::now();
    let event = std::iter::repeat_with(|| {
        assert!(began.elapsed() < SOON, "nothing is decided");
        std::thread::sleep(Duration::from_millis(1));
        member.turn()
    });
    assert_eq!(event.flatten().next(), Some(RankEvent::CutOff { ranks: vec![1, 2] }));
}

/// Regression: messages that followed the answer upon which the coordinator decided were taken for malformed, because it did not coordinate any
/// more; the link was closed before the verdict was sent, and the follower named the coordinator as well.
#[test]
fn who_follows_a_rank_that_is_cut_off_is_told_although_it_keeps_sending() {
    let key = TokenKey::new(&JobToken(b"token".to_vec()), "");
    let silent: Vec<_> = (0..3).map(|_| SilentPort::new()).collect();
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("loopback"));
    let all = listeners.iter().chain(silent.iter().map(|port| &port.listener));
    let ports: Vec<_> = all.map(|listener| vec![listener.local_addr().expect("bound")]).collect();
    let config = |rank| {
        let (key, ports, hosts) = (key.clone(), ports.clone(), (0..5).collect());
        DetectorConfig { rank, size: 5, key, ports, hosts, peer_timeout: TIMEOUTS.peer }
    };
    let (near, far): (Vec<_>, Vec<_>) = (0..4).map(|_| connection(&listeners[0])).unzip();
    let mut far = far.into_iter();
    let link_of_1 = FramedStream::new(far.next().expect("four connections")).expect("options");
    let [listener_0, listener_1] = listeners;
    let mut zero = Member::new(config(0), vec![listener_0], (1..).zip(near).collect()).expect("descriptors");
    let mut one =
        Member::new(config(1), vec![listener_1], std::iter::once((0, link_of_1)).collect()).expect("descriptors");
    drop(far);
    let (mut told, began) = ([None, None], Instant::now());
    while told.iter().any(Option::is_none) {
        assert!(began.elapsed() < SOON, "{told:?}");
        let news = |member: &mut Member| {
            std::iter::from_fn(|| member.turn()).filter(|event| !matches!(event, RankEvent::Message { .. })).last()
        };
        told[1] = told[1].take().or(news(&mut one));
        let _ = one.send(OobTarget::Coordinator, b"with the answer to the ping"); // Until it is told.
        std::thread::sleep(Duration::from_millis(1));
        told[0] = told[0].take().or(news(&mut zero));
    }
    let expected = Some(RankEvent::CutOff { ranks: vec![2, 3, 4] });
    assert_eq!(told, [expected.clone(), expected]);
}

/// A port that answers nothing: its queue of connections is full.
struct SilentPort {
    listener: TcpListener,
    _queued: Vec<socket2::Socket>,
}

impl SilentPort {
    fn new() -> Self {
        let new_socket =
            || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        let listener = new_socket();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("loopback");
        listener.listen(0).expect("listens");
        let address = listener.local_addr().expect("bound");
        let queued = (0..4).map(|_| {
            let socket = new_socket();
            socket.set_nonblocking(true).expect("a flag");
            let _ = socket.connect(&address); // Queued, or in progress for ever.
            socket
        });
        Self { _queued: queued.collect(), listener: listener.into() }
    }
}

/// The two ends of a connection.
fn connection(listener: &TcpListener) -> (FramedStream, TcpStream) {
    let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
    let (near, _) = listener.accept().expect("accepts");
    (FramedStream::new(near).expect("options"), far)
}

/// More connections than a rank keeps open, from a program that does not know the token.
fn crowd(joined: &JoinedJob, rank: u32) -> Vec<TcpStream> {
    let port = joined.table.records()[rank as usize].ports[0];
    (0..150).map(|_| TcpStream::connect(port).expect("it listens")).collect()
}

/// Rank 2 does not run for a while, so that the new coordinator asks whether it lives; its port is full of strangers.
#[test]
fn strangers_that_crowd_a_port_do_not_make_its_rank_look_lost() {
    let mut joined = join_all(3);
    let mut strangers: Vec<_> = [1, 2].map(|rank| crowd(&joined[0], rank)).into();
    drop(joined.remove(0));
    let began = Instant::now();
    let mut received = [Vec::new(), Vec::new()];
    while began.elapsed() < Duration::from_millis(600) {
        received[0].extend(joined[0].failure_detector.turn());
        std::thread::sleep(Duration::from_millis(1));
    }
    strangers.extend([1, 2].map(|rank| crowd(&joined[0], rank)));
    while received.iter().any(|events| events.len() < 2) {
        assert!(began.elapsed() < SOON, "{received:?}");
        for (joined, received) in joined.iter_mut().zip(&mut received) {
            received.extend(joined.failure_detector.turn());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(received, [taken_over(1, &[0]), taken_over(1, &[0])]);
}

/// Regression: after three seconds without an answer, a rank on the smaller side of a partition named the other one there as well.
#[test]
fn a_rank_that_gets_no_processor_for_seconds_is_not_taken_for_silent() {
    let mut detectors = failure_detectors(3);
    drop(detectors.remove(0));
    let (began, mut early) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs(4) {
        early.extend(detectors[1].turn());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(early, [], "rank 1 has not answered yet");
    let received = events_of(&mut detectors.iter_mut().collect::<Vec<_>>(), 2);
    assert!(received.iter().all(|events| *events == taken_over(1, &[0])), "{received:?}");
}

#[test]
fn ranks_that_end_together_are_one_set_that_all_others_name() {
    for gone in [vec![2, 4], vec![0, 3], vec![0, 1], vec![0, 1, 5]] {
        let mut detectors: Vec<_> = failure_detectors(6).into_iter().map(Some).collect();
        gone.iter().for_each(|rank| drop(detectors[*rank as usize].take()));
        let mut left: Vec<&mut FailureDetector> = detectors.iter_mut().flatten().collect();
        let moves = gone.contains(&0);
        let received = events_of(&mut left, if moves { 2 } else { 1 });
        let coordinator = (0..6).find(|rank| !gone.contains(rank)).expect("some are left");
        let lost = RankEvent::Lost { ranks: gone.clone() };
        let expected = if moves { taken_over(coordinator, &gone).to_vec() } else { vec![lost] };
        // A rank may have to ask several others; only the last one accepts it.
        assert!(received.iter().all(|events| *events == expected), "{gone:?}: {received:?}");
    }
}

#[test]
fn a_goodbye_is_not_a_loss() {
    let mut detectors = failure_detectors(3);
    let last = detectors.pop().expect("three");
    let leaving = std::thread::spawn(move || last.leave(SOON));
    let received = events_of(&mut detectors.iter_mut().collect::<Vec<_>>(), 1);
    assert_eq!(received, vec![vec![RankEvent::Left { rank: 2 }]; 2]);
    leaving.join().expect("rank 0 has received");
    let (mut one, zero) = (detectors.pop().expect("two"), detectors.pop().expect("two"));
    zero.leave(Duration::ZERO);
    let expected = [RankEvent::Left { rank: 0 }, RankEvent::NewCoordinator { rank: 1 }];
    assert_eq!(events_of(&mut [&mut one], 2), [expected]);
    let began = Instant::now();
    one.leave(SOON);
    assert!(began.elapsed() < SOON / 2, "nobody needs it");
}

#[test]
fn rank_zero_serves_the_others_until_they_have_left() {
    let mut detectors = failure_detectors(3);
    let zero = detectors.remove(0);
    let began = Instant::now();
    let leaving = std::thread::spawn(move || zero.leave(SOON));
    let [one, two] = &mut detectors[..] else { panic!("two are left") };
    one.send(OobTarget::Rank(2), b"still here").expect("rank 0 serves");
    assert_eq!(events_of(&mut [two], 1), [[RankEvent::Message { from: 1, bytes: b"still here".to_vec() }]]);
    detectors.into_iter().for_each(|detector| detector.leave(SOON));
    leaving.join().expect("all have left");
    assert!(began.elapsed() < SOON / 2);
}

#[test]
fn messages_arrive_in_order_at_their_targets() {
    let mut detectors = failure_detectors(4);
    for number in 0..200_u8 {
        detectors[1].send(OobTarget::Rank(3), &[number]).expect("room");
        detectors[0].send(OobTarget::Rank(3), &[number]).expect("room");
    }
    detectors[1].send(OobTarget::Rank(0), b"zero").expect("room");
    detectors[2].send(OobTarget::All, b"all").expect("room");
    detectors[3].send(OobTarget::Rank(3), b"self").expect("room");
    let mut received = vec![Vec::new(); 4];
    let began = Instant::now();
    while received.iter().map(Vec::len).sum::<usize>() < 200 + 200 + 1 + 3 + 1 {
        assert!(began.elapsed() < SOON, "{received:?}");
        for (detector, received) in detectors.iter_mut().zip(&mut received) {
            while let Some(RankEvent::Message { from, bytes }) = detector.turn() {
                received.push((from, bytes));
            }
        }
    }
    for from in [0, 1] {
        let numbers = received[3].iter().filter(|said| said.0 == from).map(|said| said.1[0]);
        assert!(numbers.eq(0..200), "from {from}");
    }
    let from_two = |rank: usize| received[rank].iter().filter(|message| **message == (2, b"all".to_vec())).count();
    assert_eq!([0, 1, 2, 3].map(from_two), [1, 1, 0, 1]);
    assert!(received[0].contains(&(1, b"zero".to_vec())) && received[3].contains(&(3, b"self".to_vec())));
}

#[test]
fn invalid_messages_are_not_accepted() {
    let mut detectors = failure_detectors(2);
    for detector in &mut detectors {
        assert_eq!(detector.send(OobTarget::Rank(2), b""), Err(OobSendError::NoSuchRank));
        assert_eq!(detector.send(OobTarget::All, &vec![0; MAX_OOB_MESSAGE_BYTES + 1]), Err(OobSendError::TooLong));
        detector.send(OobTarget::All, &vec![7; MAX_OOB_MESSAGE_BYTES]).expect("just short enough");
    }
    let received = events_of(&mut detectors.iter_mut().collect::<Vec<_>>(), 1);
    assert_eq!(received[0], [RankEvent::Message { from: 1, bytes: vec![7; MAX_OOB_MESSAGE_BYTES] }]);
}

/// Rank 2 does not read for a while; rank 1 floods it through rank 0, whose memory must stay bounded and which must still serve rank 3.
#[test]
fn a_rank_that_does_not_read_stalls_only_those_that_write_to_it() {
    let mut detectors = failure_detectors(4);
    let piece = |number: u32| number.to_le_bytes().repeat(MAX_OOB_MESSAGE_BYTES / 4);
    let (mut sent, mut quiet) = (0, 0);
    // Until nothing has moved for a while: every buffer on the path is full.
    while quiet < 50 {
        match detectors[1].send(OobTarget::Rank(2), &piece(sent)) {
            Ok(()) => (sent, quiet) = (sent + 1, 0),
            Err(error) => {
                assert_eq!(error, OobSendError::WouldBlock);
                quiet += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(detectors[0].turn().is_none() && detectors[1].turn().is_none());
    }
    assert!(sent as usize * MAX_OOB_MESSAGE_BYTES < 64 * SEND_QUEUE_LIMIT_BYTES, "{sent} pieces are under way");
    assert_eq!(detectors[0].send(OobTarget::Rank(2), b"more"), Err(OobSendError::WouldBlock));
    detectors[3].send(OobTarget::Rank(0), b"and me?").expect("room");
    assert_eq!(
        events_of(&mut [&mut detectors[0]], 1),
        [[RankEvent::Message { from: 3, bytes: b"and me?".to_vec() }]]
    );
    // Rank 2 reads again, and the writer dies: its messages come before its loss.
    drop(detectors.remove(1));
    let mut received = Vec::new();
    let began = Instant::now();
    while received.last() != Some(&RankEvent::Lost { ranks: vec![1] }) {
        assert!(began.elapsed() < SOON, "{} pieces", received.len());
        detectors[0].turn();
        received.extend(detectors[1].turn());
    }
    received.pop();
    // Messages in the writer's own queue are lost with it.
    assert!(!received.is_empty() && received.len() <= sent as usize);
    for (number, events) in (0..).zip(&received) {
        assert_eq!(*events, RankEvent::Message { from: 1, bytes: piece(number) });
    }
}

#[test]
fn a_rank_that_sends_malformed_messages_is_cut_off_and_informed() {
    use super::super::rendezvous_message::{RendezvousMessageKind, encode_message};
    let mut detectors = failure_detectors(3);
    let mut one = detectors.remove(1);
    one.send_raw(&encode_message(RendezvousMessageKind::Table, &[b"mine"]));
    let received = events_of(&mut detectors.iter_mut().collect::<Vec<_>>(), 1);
    assert!(received.iter().all(|event| is_lost(event, 1)), "{received:?}");
    assert_eq!(
        events_of(&mut [&mut one], 1),
        [[RankEvent::CutOff { ranks: vec![0, 2] }]],
        "it is not lost to itself"
    );
    assert_eq!(one.send(OobTarget::All, b"?"), Err(OobSendError::Disconnected));
}

/// The descriptor must become readable for every event that a poll would find.
#[test]
fn the_descriptor_is_readable_when_events_wait() {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut detectors = failure_detectors(2);
    let ready = |detector: &FailureDetector, time: u16| {
        poll(&mut [PollFd::new(detector.as_fd(), PollFlags::POLLIN)], PollTimeout::from(time)).expect("poll")
    };
    assert_eq!((ready(&detectors[0], 0), ready(&detectors[1], 0)), (0, 0));
    detectors[1].send(OobTarget::Rank(0), b"x").expect("room");
    assert_eq!(ready(&detectors[0], 5000), 1);
    assert!(detectors[0].turn().is_some());
    assert_eq!(ready(&detectors[0], 0), 0);
    drop(detectors.remove(0));
    // Once for the end of the link, and once for the answer whether the process has ended.
    let mut turns = std::iter::from_fn(|| {
        assert_eq!(ready(&detectors[0], 5000), 1);
        Some(detectors[0].turn())
    });
    assert_eq!(turns.find_map(|event| event), Some(RankEvent::NewCoordinator { rank: 1 }));
    assert_eq!(detectors[0].turn(), Some(RankEvent::Lost { ranks: vec![0] }));
    assert_eq!(detectors[0].turn(), None);
    assert_eq!(ready(&detectors[0], 0), 0, "no event is left");
}

const JOB: &str = "PLEACH_TEST_JOB";

/// A rank of the next tests, in its own process.
#[test]
#[ignore = "started by other tests as a process"]
fn rank_process() {
    let Ok(job) = std::env::var(JOB) else { return };
    let rank = std::env::var("PLEACH_RANK").expect("set").parse().expect("a number");
    let mut joined = join_as(&job, rank, 4, &TIMEOUTS).expect("all ranks join");
    let began = Instant::now();
    while began.elapsed() < SOON {
        let _ = joined.failure_detector.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(job: &str, rank: u32) -> Killed {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "tests::after_joining::rank_process", "--ignored"]);
    command.env(JOB, job).env("PLEACH_RANK", rank.to_string());
    Killed(command.stdout(Stdio::null()).spawn().expect("it can be started again"))
}

#[test]
fn a_killed_process_is_named_to_all_others_within_a_second() {
    let job = new_job();
    let mut victim = start(&job, 2);
    let threads = [0, 1, 3].map(|rank| {
        let job = job.clone();
        std::thread::spawn(move || join_as(&job, rank, 4, &TIMEOUTS).expect("all ranks join").failure_detector)
    });
    let mut detectors = threads.map(|thread| thread.join().expect("no panic"));
    let began = Instant::now();
    victim.0.kill().expect("it runs");
    let received = events_of(&mut detectors.iter_mut().collect::<Vec<_>>(), 1);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(received.iter().all(|event| is_lost(event, 2)), "{received:?}");
}

#[test]
fn a_killed_rank_zero_is_noticed_by_all_others_within_a_second() {
    let job = new_job();
    let mut zero = start(&job, 0);
    let threads = [1, 2, 3].map(|rank| {
        let job = job.clone();
        std::thread::spawn(move || join_as(&job, rank, 4, &TIMEOUTS).expect("all ranks join").failure_detector)
    });
    let mut detectors = threads.map(|thread| thread.join().expect("no panic"));
    let began = Instant::now();
    zero.0.kill().expect("it runs");
    let received = events_of(&mut detectors.iter_mut().collect::<Vec<_>>(), 2);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(received.iter().all(|events| *events == taken_over(1, &[0])), "{received:?}");
}
