//! Losses, goodbyes and messages.

use std::process::{Child, Command, Stdio};

use super::super::failure_detector::{MAX_OOB_MESSAGE_BYTES, OobSendError, OobTarget, SEND_QUEUE_LIMIT_BYTES};
use super::*;

fn is_lost(news: &[RankEvent], rank: u32) -> bool {
    *news == [RankEvent::Lost { rank }]
}

#[test]
fn a_rank_that_is_dropped_is_lost_to_all_others() {
    let mut lines = lifelines(4);
    drop(lines.remove(2));
    let mut lines: Vec<_> = lines.iter_mut().collect();
    let heard = news_of(&mut lines, 1);
    assert!(heard.iter().all(|news| is_lost(news, 2)), "{heard:?}");
    assert_eq!(lines[1].say(OobTarget::Rank(2), b"there?"), Err(OobSendError::Gone));
    assert_eq!(lines[0].say(OobTarget::Rank(2), b"there?"), Err(OobSendError::Gone));
}

#[test]
fn when_rank_zero_is_dropped_all_agree_that_it_is_lost() {
    let mut lines = lifelines(4);
    drop(lines.remove(0));
    let heard = news_of(&mut lines.iter_mut().collect::<Vec<_>>(), 1);
    assert!(heard.iter().all(|news| is_lost(news, 0)), "{heard:?}");
    assert!(
        lines
            .iter_mut()
            .all(|line| line.turn().is_none() && line.say(OobTarget::All, b"?") == Err(OobSendError::Over))
    );
}

#[test]
fn a_goodbye_is_no_loss() {
    let mut lines = lifelines(3);
    let last = lines.pop().expect("three");
    let leaving = std::thread::spawn(move || last.leave(SOON));
    let heard = news_of(&mut lines.iter_mut().collect::<Vec<_>>(), 1);
    assert_eq!(heard, vec![vec![RankEvent::Left { rank: 2 }]; 2]);
    leaving.join().expect("rank 0 has heard");
    let (mut one, zero) = (lines.pop().expect("two"), lines.pop().expect("two"));
    zero.leave(Duration::ZERO);
    assert_eq!(news_of(&mut [&mut one], 1), [[RankEvent::Left { rank: 0 }]]);
    one.leave(SOON);
}

#[test]
fn rank_zero_serves_the_others_until_they_have_left() {
    let mut lines = lifelines(3);
    let zero = lines.remove(0);
    let began = Instant::now();
    let leaving = std::thread::spawn(move || zero.leave(SOON));
    let [one, two] = &mut lines[..] else { panic!("two are left") };
    one.say(OobTarget::Rank(2), b"still here").expect("rank 0 serves");
    assert_eq!(news_of(&mut [two], 1), [[RankEvent::Said { from: 1, bytes: b"still here".to_vec() }]]);
    lines.into_iter().for_each(|line| line.leave(SOON));
    leaving.join().expect("all have left");
    assert!(began.elapsed() < SOON / 2);
}

#[test]
fn what_is_said_arrives_in_order_at_those_for_whom_it_is() {
    let mut lines = lifelines(4);
    for number in 0..200_u8 {
        lines[1].say(OobTarget::Rank(3), &[number]).expect("room");
        lines[0].say(OobTarget::Rank(3), &[number]).expect("room");
    }
    lines[1].say(OobTarget::Rank(0), b"zero").expect("room");
    lines[2].say(OobTarget::All, b"all").expect("room");
    lines[3].say(OobTarget::Rank(3), b"self").expect("room");
    let mut heard = vec![Vec::new(); 4];
    let began = Instant::now();
    while heard.iter().map(Vec::len).sum::<usize>() < 200 + 200 + 1 + 3 + 1 {
        assert!(began.elapsed() < SOON, "{heard:?}");
        for (line, heard) in lines.iter_mut().zip(&mut heard) {
            while let Some(RankEvent::Said { from, bytes }) = line.turn() {
                heard.push((from, bytes));
            }
        }
    }
    for from in [0, 1] {
        let numbers = heard[3].iter().filter(|said| said.0 == from).map(|said| said.1[0]);
        assert!(numbers.eq(0..200), "from {from}");
    }
    let from_two = |rank: usize| heard[rank].iter().filter(|said| **said == (2, b"all".to_vec())).count();
    assert_eq!([0, 1, 2, 3].map(from_two), [1, 1, 0, 1]);
    assert!(heard[0].contains(&(1, b"zero".to_vec())) && heard[3].contains(&(3, b"self".to_vec())));
}

#[test]
fn wrong_messages_are_not_taken() {
    let mut lines = lifelines(2);
    for line in &mut lines {
        assert_eq!(line.say(OobTarget::Rank(2), b""), Err(OobSendError::NoSuchRank));
        assert_eq!(line.say(OobTarget::All, &vec![0; MAX_OOB_MESSAGE_BYTES + 1]), Err(OobSendError::TooLong));
        line.say(OobTarget::All, &vec![7; MAX_OOB_MESSAGE_BYTES]).expect("just short enough");
    }
    let heard = news_of(&mut lines.iter_mut().collect::<Vec<_>>(), 1);
    assert_eq!(heard[0], [RankEvent::Said { from: 1, bytes: vec![7; MAX_OOB_MESSAGE_BYTES] }]);
}

/// Rank 2 does not read for a while; rank 1 floods it through rank 0, which must neither swell nor stop serving rank 3.
#[test]
fn who_does_not_read_holds_up_only_those_who_write_to_it() {
    let mut lines = lifelines(4);
    let piece = |number: u32| number.to_le_bytes().repeat(MAX_OOB_MESSAGE_BYTES / 4);
    let (mut sent, mut quiet) = (0, 0);
    // Until nothing has moved for a while: every buffer on the way is full.
    while quiet < 50 {
        match lines[1].say(OobTarget::Rank(2), &piece(sent)) {
            Ok(()) => (sent, quiet) = (sent + 1, 0),
            Err(error) => {
                assert_eq!(error, OobSendError::Full);
                quiet += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(lines[0].turn().is_none() && lines[1].turn().is_none());
    }
    assert!(sent as usize * MAX_OOB_MESSAGE_BYTES < 64 * SEND_QUEUE_LIMIT_BYTES, "{sent} pieces are under way");
    assert_eq!(lines[0].say(OobTarget::Rank(2), b"more"), Err(OobSendError::Full));
    lines[3].say(OobTarget::Rank(0), b"and me?").expect("room");
    assert_eq!(news_of(&mut [&mut lines[0]], 1), [[RankEvent::Said { from: 3, bytes: b"and me?".to_vec() }]]);
    // Now it reads, and the writer dies at that: everything it said comes first.
    drop(lines.remove(1));
    let mut heard = Vec::new();
    let began = Instant::now();
    while heard.last() != Some(&RankEvent::Lost { rank: 1 }) {
        assert!(began.elapsed() < SOON, "{} pieces", heard.len());
        lines[0].turn();
        heard.extend(lines[1].turn());
    }
    heard.pop();
    // What was still in the writer's own outbox has died with it.
    assert!(!heard.is_empty() && heard.len() <= sent as usize);
    for (number, news) in (0..).zip(&heard) {
        assert_eq!(*news, RankEvent::Said { from: 1, bytes: piece(number) });
    }
}

#[test]
fn whoever_talks_nonsense_is_expelled_and_told_so() {
    use super::super::message_stream::{RendezvousMessageKind, encode_message};
    let mut lines = lifelines(3);
    let mut one = lines.remove(1);
    one.send_raw(encode_message(RendezvousMessageKind::Cards, &[b"mine"]));
    let heard = news_of(&mut lines.iter_mut().collect::<Vec<_>>(), 1);
    assert!(heard.iter().all(|news| is_lost(news, 1)), "{heard:?}");
    assert_eq!(news_of(&mut [&mut one], 2), [[RankEvent::Lost { rank: 1 }, RankEvent::Lost { rank: 0 }]]);
}

/// The descriptor must become readable for whatever a turn would find.
#[test]
fn the_descriptor_tells_of_news() {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut lines = lifelines(2);
    let ready = |line: &FailureDetector, time: u16| {
        poll(&mut [PollFd::new(line.as_fd(), PollFlags::POLLIN)], PollTimeout::from(time)).expect("poll")
    };
    assert_eq!((ready(&lines[0], 0), ready(&lines[1], 0)), (0, 0));
    lines[1].say(OobTarget::Rank(0), b"x").expect("room");
    assert_eq!(ready(&lines[0], 5000), 1);
    assert!(lines[0].turn().is_some());
    assert_eq!(ready(&lines[0], 0), 0);
    drop(lines.remove(0));
    assert_eq!(ready(&lines[0], 5000), 1);
    assert_eq!(lines[0].turn(), Some(RankEvent::Lost { rank: 0 }));
    assert_eq!(ready(&lines[0], 0), 0, "nothing is left to tell");
}

const JOB: &str = "PLEACH_TEST_JOB";

/// A rank of the next test, in a process of its own.
#[test]
#[ignore = "other tests start it as a process"]
fn as_a_process() {
    let Ok(job) = std::env::var(JOB) else { return };
    let rank = std::env::var("PLEACH_RANK").expect("set").parse().expect("a number");
    let mut joined = enter(&job, rank, 4, &TERMS).expect("all come");
    let began = Instant::now();
    while began.elapsed() < SOON {
        let _ = joined.lifeline.turn();
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
    command.args(["--exact", "job::tests::afterwards::as_a_process", "--ignored"]);
    command.env(JOB, job).env("PLEACH_RANK", rank.to_string());
    Killed(command.stdout(Stdio::null()).spawn().expect("it can be started again"))
}

#[test]
fn a_killed_process_is_named_to_all_others_within_a_second() {
    let job = new_job();
    let mut victim = start(&job, 2);
    let threads = [0, 1, 3].map(|rank| {
        let job = job.clone();
        std::thread::spawn(move || enter(&job, rank, 4, &TERMS).expect("all come").lifeline)
    });
    let mut lines = threads.map(|thread| thread.join().expect("no panic"));
    let began = Instant::now();
    victim.0.kill().expect("it runs");
    let heard = news_of(&mut lines.iter_mut().collect::<Vec<_>>(), 1);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(heard.iter().all(|news| is_lost(news, 2)), "{heard:?}");
}

#[test]
fn a_killed_rank_zero_is_noticed_by_all_others_within_a_second() {
    let job = new_job();
    let mut zero = start(&job, 0);
    let threads = [1, 2, 3].map(|rank| {
        let job = job.clone();
        std::thread::spawn(move || enter(&job, rank, 4, &TERMS).expect("all come").lifeline)
    });
    let mut lines = threads.map(|thread| thread.join().expect("no panic"));
    let began = Instant::now();
    zero.0.kill().expect("it runs");
    let heard = news_of(&mut lines.iter_mut().collect::<Vec<_>>(), 1);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(heard.iter().all(|news| is_lost(news, 0)), "{heard:?}");
}
