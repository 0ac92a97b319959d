//! Jobs on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;

/// Does every job once, on as many cores as there are; the answers come in the order of the jobs.
pub(super) fn map_parallel<J: Sync, A: Send>(jobs: &[J], job: impl Fn(&J) -> Result<A> + Sync) -> Result<Vec<A>> {
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<(usize, Result<A>)>> = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = jobs.get(index) else { return };
                    let answer = job(one);
                    answers.lock().expect("no job panics while it reports").push((index, answer));
                }
            });
        }
    });
    let mut answers = answers.into_inner().expect("all threads have ended");
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
