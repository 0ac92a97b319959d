//! A parallel map over independent jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

/// Runs every job once, on all cores. Results are in the order of the jobs.
///
/// # Errors
/// As [`for_each_on_threads`].
///
/// # Panics
/// If a job panics.
pub fn map_parallel<J: Sync, A: Send>(jobs: &[J], job: impl Fn(&J) -> Result<A> + Sync) -> Result<Vec<A>> {
    map_on_threads(std::thread::available_parallelism().map_or(1, usize::from), jobs, job)
}

/// Runs every job once, on so many threads. Results are in the order of the jobs.
///
/// # Errors
/// As [`for_each_on_threads`].
///
/// # Panics
/// If a job panics.
pub fn map_on_threads<J: Sync, A: Send>(
    threads: usize,
    jobs: &[J],
    job: impl Fn(&J) -> Result<A> + Sync,
) -> Result<Vec<A>> {
    let results: Mutex<Vec<(u64, A)>> = Mutex::new(Vec::new());
    for_each_on_threads(threads, 0..jobs.len() as u64, |index| {
        let result = job(&jobs[index as usize])?;
        results.lock().expect("no thread panics while it holds the lock").push((index, result));
        Ok(())
    })?;
    let mut results = results.into_inner().expect("all threads have ended");
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Calls `job` once for each number, on so many threads, and stops early if one has an error.
///
/// # Errors
/// The error of the smallest number that has one, among those that were called.
///
/// # Panics
/// If a job panics.
pub fn for_each_on_threads(
    threads: usize,
    numbers: std::ops::Range<u64>,
    job: impl Fn(u64) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicU64::new(numbers.start);
    let first_error: Mutex<Option<(u64, anyhow::Error)>> = Mutex::new(None);
    let count = usize::try_from(numbers.end.saturating_sub(numbers.start)).unwrap_or(usize::MAX);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return;
                    }
                    if let Err(error) = job(number) {
                        let mut first = first_error.lock().expect("no thread panics while it holds the lock");
                        if first.as_ref().is_none_or(|(earlier, _)| number < *earlier) {
                            *first = Some((number, error));
                        }
                        next.store(numbers.end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match first_error.into_inner().expect("all threads have ended") {
        None => Ok(()),
        Some((_, error)) => Err(error),
    }
}
