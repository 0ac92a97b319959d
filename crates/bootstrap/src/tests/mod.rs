//! Complete jobs on loopback, with ranks as threads or processes.

mod after_joining;
mod fuzz;
mod joining;
mod membership_trials;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::environment::{JobEnvironment, JobToken, RendezvousPoint};
use super::failure_detector::FailureDetector;
use super::join::join;
use super::rank_event::RankEvent;
use super::rendezvous::{JoinedJob, LocalEndpoint, RendezvousError, RendezvousTimeouts};

const TIMEOUTS: RendezvousTimeouts =
    RendezvousTimeouts { join: Duration::from_secs(20), peer: Duration::from_secs(10) };
const SOON: Duration = Duration::from_secs(10);

/// A unique job name.
fn new_job() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("test {} {}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn environment(job: &str, rank: u32, size: u32) -> JobEnvironment {
    let (job, token) = (job.to_owned(), JobToken(job.as_bytes().to_vec()));
    JobEnvironment { rank, size, job, token, rendezvous: RendezvousPoint::File }
}

fn join_as(job: &str, rank: u32, size: u32, timeouts: &RendezvousTimeouts) -> Result<JoinedJob, RendezvousError> {
    let offer = LocalEndpoint { addresses: vec![([127, 0, 0, 1], 4791).into()], extra: rank.to_be_bytes().to_vec() };
    join(&environment(job, rank, size), offer, timeouts)
}

/// Joins all ranks of a job, each from its own thread.
fn join_all(size: u32) -> Vec<JoinedJob> {
    let job = new_job();
    let joining: Vec<_> = (0..size)
        .map(|rank| {
            let job = job.clone();
            // Small stacks: there may be hundreds of threads.
            let thread = std::thread::Builder::new().stack_size(512 << 10);
            thread.spawn(move || join_as(&job, rank, size, &TIMEOUTS)).expect("a thread")
        })
        .collect();
    joining.into_iter().map(|thread| thread.join().expect("no panic").expect("all ranks join")).collect()
}

fn failure_detectors(size: u32) -> Vec<FailureDetector> {
    join_all(size).into_iter().map(|joined| joined.failure_detector).collect()
}

/// Polls all failure detectors until each has reported `count` events, and returns them.
#[track_caller]
fn events_of(detectors: &mut [&mut FailureDetector], count: usize) -> Vec<Vec<RankEvent>> {
    let mut received = vec![Vec::new(); detectors.len()];
    let began = Instant::now();
    while received.iter().any(|received| received.len() < count) {
        assert!(began.elapsed() < SOON, "{received:?}");
        for (detector, received) in detectors.iter_mut().zip(&mut received) {
            received.extend(std::iter::from_fn(|| detector.turn()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    received
}
