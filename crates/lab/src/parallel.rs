//! A parallel map over independent jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;

/// Runs every job once, on all cores. Results are in the order of the jobs.
///
/// # Errors
/// The error of the first job that has one.
///
/// # Panics
/// If a job panics.
pub fn map_parallel<J: Sync, A: Send>(jobs: &[J], job: impl Fn(&J) -> Result<A> + Sync) -> Result<Vec<A>> {
    map_on_threads(std::thread::available_parallelism().map_or(1, usize::from), jobs, job)
}

/// Runs every job once, on so many threads. Results are in the order of the jobs.
///
/// # Errors
/// The error of the first job that has one.
///
/// # Panics
/// If a job panics.
pub fn map_on_threads<J: Sync, A: Send>(
    threads: usize,
    jobs: &[J],
    job: impl Fn(&J) -> Result<A> + Sync,
) -> Result<Vec<A>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<A>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = jobs.get(index) else { return };
                    let result = job(one);
                    results.lock().expect("no thread panics while it holds the lock").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("all threads have ended");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
