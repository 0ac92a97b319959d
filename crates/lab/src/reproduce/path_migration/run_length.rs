//! How many iterations a run has, so that it takes at least as long as asked for on a machine whose pace changes.

use std::time::Duration;

use anyhow::Result;

use crate::nas_kernels::{KernelJob, KernelRun, NasKernel, PathCount, run_kernel};

/// A run shall be so much longer than asked for, as the pace of the last one tells.
const MARGIN: f64 = 1.1;
/// The machine may become so much faster than it was in the beginning.
const ROOM: f64 = 1.6;
/// A run that was too short is made again, with more iterations, so often.
const TRIES: usize = 3;

pub(super) struct RunLength {
    asked: Duration,
    /// Of the next run.
    iterations: u32,
    /// There is a reference for so many.
    most: u32,
}

impl RunLength {
    /// Of runs of a kernel that shall take so long.
    pub(super) fn new(kernel: NasKernel, asked: Duration) -> Result<Self> {
        let enough = (asked / 4).min(Duration::from_secs(2));
        let mut iterations = 2;
        loop {
            let elapsed = run_kernel(&KernelJob { kernel, iterations, paths: PathCount::Two, fault: None })?.elapsed;
            if elapsed >= enough {
                let iterations = suffice(iterations, elapsed, asked);
                return Ok(Self { asked, iterations, most: (f64::from(iterations) * ROOM).ceil() as u32 });
            }
            let factor = (enough.as_secs_f64() * 1.2 / elapsed.as_secs_f64().max(1e-4)).clamp(1.5, 20.0);
            iterations = (f64::from(iterations) * factor).ceil() as u32;
        }
    }

    /// Iterations that a run may have.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Iterations of runs of a `part`-th of that length.
    pub(super) fn part(&self, part: u32) -> u32 {
        self.iterations.div_ceil(part)
    }

    /// Runs the job that `plan` makes for a number of iterations, again if it was over too soon.
    pub(super) fn keep<P>(&mut self, plan: impl Fn(u32) -> (KernelJob, P)) -> Result<(KernelRun, u32, P)> {
        let mut tries = 0;
        loop {
            let iterations = self.iterations;
            let (job, place) = plan(iterations);
            let ran = run_kernel(&job)?;
            self.iterations = suffice(iterations, ran.elapsed, self.asked).min(self.most);
            tries += 1;
            if ran.elapsed >= self.asked || tries == TRIES || self.iterations <= iterations {
                return Ok((ran, iterations, place));
            }
        }
    }
}

fn suffice(iterations: u32, elapsed: Duration, asked: Duration) -> u32 {
    let exact = f64::from(iterations) * asked.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
    (exact * MARGIN).ceil() as u32
}
