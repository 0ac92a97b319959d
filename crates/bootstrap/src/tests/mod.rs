//! Whole meetings on loopback, with ranks as threads or processes.

mod after_joining;
mod joining;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::environment::{JobEnvironment, JobToken, RendezvousPoint};
use super::failure_detector::{FailureDetector, RankEvent};
use super::rendezvous::{JoinedJob, LocalEndpoint, RendezvousError, RendezvousTimeouts, join};

const TERMS: RendezvousTimeouts =
    RendezvousTimeouts { patience: Duration::from_secs(20), silence: Duration::from_secs(10) };
const SOON: Duration = Duration::from_secs(10);

/// A name that no other test has.
fn new_job() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("test {} {}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn place(job: &str, rank: u32, size: u32) -> JobEnvironment {
    let (job, token) = (job.to_owned(), JobToken(job.as_bytes().to_vec()));
    JobEnvironment { rank, size, job, token, meeting: RendezvousPoint::Notice }
}

fn enter(job: &str, rank: u32, size: u32, terms: &RendezvousTimeouts) -> Result<JoinedJob, RendezvousError> {
    let offer = LocalEndpoint { addresses: vec![([127, 0, 0, 1], 4791).into()], extra: rank.to_be_bytes().to_vec() };
    join(&place(job, rank, size), offer, terms)
}

/// All ranks of a job, each from a thread of its own.
fn meet(size: u32) -> Vec<JoinedJob> {
    let job = new_job();
    let joining: Vec<_> = (0..size)
        .map(|rank| {
            let job = job.clone();
            // Small stacks: there may be hundreds.
            let thread = std::thread::Builder::new().stack_size(512 << 10);
            thread.spawn(move || enter(&job, rank, size, &TERMS)).expect("a thread")
        })
        .collect();
    joining.into_iter().map(|thread| thread.join().expect("no panic").expect("all come")).collect()
}

fn lifelines(size: u32) -> Vec<FailureDetector> {
    meet(size).into_iter().map(|joined| joined.lifeline).collect()
}

/// Turns all lifelines until each has as much news, and returns it.
#[track_caller]
fn news_of(lines: &mut [&mut FailureDetector], count: usize) -> Vec<Vec<RankEvent>> {
    let mut heard = vec![Vec::new(); lines.len()];
    let began = Instant::now();
    while heard.iter().any(|heard| heard.len() < count) {
        assert!(began.elapsed() < SOON, "{heard:?}");
        for (line, heard) in lines.iter_mut().zip(&mut heard) {
            heard.extend(std::iter::from_fn(|| line.turn()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    heard
}
