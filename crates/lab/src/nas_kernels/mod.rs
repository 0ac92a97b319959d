//! Three communication kernels over queue pairs, shaped like those of NAS that the path-migration paper ran (PM-7).
//!
//! In: a [`KernelJob`]: which kernel, how many steps, how many paths, and where to cut a cable. Out: a [`KernelRun`]: how long it took,
//! what the paths did, and a digest of every byte that any rank received. Eight ranks are threads of this process, each
//! with an endpoint of its own; every two of them are connected. Each kernel checks its result.
//!
//! Reading order: `transport` (what a kernel asks of a network), one of `integer_sort`, `fourier`, `wavefront`, then
//! `udp_transport` (the network) and `run_kernel`.

mod cpu_time;
mod fourier;
mod integer_sort;
mod run;
#[cfg(test)]
mod tests;
mod transport;
mod udp_transport;
mod wavefront;

use anyhow::Result;
use serde::Serialize;

pub(crate) use run::{KernelFault, KernelJob, KernelRun, PathCount, reference_digests, run_kernel};
use transport::KernelTransport;
pub(crate) use transport::RANKS;

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) enum NasKernel {
    /// Integer sort: counts and keys from all to all.
    #[serde(rename = "IS")]
    IntegerSort,
    /// Fourier transform: large blocks from all to all, arithmetic between.
    #[serde(rename = "FT")]
    Fourier,
    /// Sweeps through a grid: many small messages between neighbours.
    #[serde(rename = "LU")]
    Wavefront,
}

impl NasKernel {
    pub(crate) const ALL: [Self; 3] = [Self::IntegerSort, Self::Fourier, Self::Wavefront];

    /// As NAS calls its own.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::IntegerSort => "IS",
            Self::Fourier => "FT",
            Self::Wavefront => "LU",
        }
    }
}

/// What a rank must keep ready for each of the others.
#[derive(Clone, Copy, Debug)]
struct KernelReceiveBuffers {
    /// Of one message at most.
    message_bytes: usize,
    /// Messages that another rank may be ahead.
    messages: usize,
}

/// One rank's part of a kernel.
trait KernelRank: Sized {
    const ROOM: KernelReceiveBuffers;

    fn new(rank: usize) -> Self;

    /// One iteration.
    fn step(&mut self, net: &mut impl KernelTransport, iteration: u32) -> Result<()>;

    /// Checks what has come of all iterations, together with the other ranks.
    fn verify(&mut self, net: &mut impl KernelTransport) -> Result<()>;
}

/// Chance that is the same every time (splitmix64).
pub(crate) fn splitmix64(number: u64) -> u64 {
    let state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}
