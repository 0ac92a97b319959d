//! The number of iterations of a run, so that it takes at least the requested time on a machine whose speed varies.

use std::time::Duration;

use anyhow::Result;

use crate::nas_kernels::{KernelJob, KernelRun, NasKernel, PathCount, run_kernel};

/// A run is planned this much longer than requested, by the speed of the last one.
const MARGIN: f64 = 1.1;
/// The machine may become this much faster than at the start.
const MAX_SPEEDUP: f64 = 1.6;
/// A run that was too short is repeated with more iterations, up to this many attempts.
const MAX_ATTEMPTS: usize = 3;

pub(super) struct RunLength {
    requested: Duration,
    /// Iterations of the next run.
    iterations: u32,
    /// The reference covers this many.
    max_iterations: u32,
}

impl RunLength {
    /// Calibrates runs of a kernel that take the requested time.
    pub(super) fn new(kernel: NasKernel, requested: Duration) -> Result<Self> {
        let enough = (requested / 4).min(Duration::from_secs(2));
        let mut iterations = 2;
        loop {
            let elapsed = run_kernel(&KernelJob { kernel, iterations, paths: PathCount::Two, fault: None })?.elapsed;
            if elapsed >= enough {
                let iterations = iterations_for(iterations, elapsed, requested);
                return Ok(Self {
                    requested,
                    iterations,
                    max_iterations: (f64::from(iterations) * MAX_SPEEDUP).ceil() as u32,
                });
            }
            let factor = (enough.as_secs_f64() * 1.2 / elapsed.as_secs_f64().max(1e-4)).clamp(1.5, 20.0);
            iterations = (f64::from(iterations) * factor).ceil() as u32;
        }
    }

    /// Maximum iterations of a run.
    pub(super) fn max_iterations(&self) -> u32 {
        self.max_iterations
    }

    /// Iterations of runs of a fraction `1 / divisor` of that length.
    pub(super) fn fraction(&self, divisor: u32) -> u32 {
        self.iterations.div_ceil(divisor)
    }

    /// Runs the job that `plan` makes for a number of iterations. Repeats it if it was too short.
    pub(super) fn run_long_enough<P>(&mut self, plan: impl Fn(u32) -> (KernelJob, P)) -> Result<(KernelRun, u32, P)> {
        let mut attempts = 0;
        loop {
            let iterations = self.iterations;
            let (job, cut) = plan(iterations);
            let ran = run_kernel(&job)?;
            self.iterations = iterations_for(iterations, ran.elapsed, self.requested).min(self.max_iterations);
            attempts += 1;
            if ran.elapsed >= self.requested || attempts == MAX_ATTEMPTS || self.iterations <= iterations {
                return Ok((ran, iterations, cut));
            }
        }
    }
}

fn iterations_for(iterations: u32, elapsed: Duration, requested: Duration) -> u32 {
    let exact = f64::from(iterations) * requested.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
    (exact * MARGIN).ceil() as u32
}
