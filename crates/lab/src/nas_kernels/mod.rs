//! Three communication kernels over queue pairs, modelled on those of NAS that the path-migration paper ran (PM-7).
//!
//! In: a [`KernelJob`]: the kernel, the number of iterations and of paths, and where to cut a cable. Out: a [`KernelRun`]: its time,
//! its path migrations, and a digest of every byte that any rank received. Eight ranks are threads of this process, each with its
//! own endpoint; every two ranks are connected. Each kernel verifies its result.
//!
//! Reading order: `transport` (what a kernel needs from a network), one of `integer_sort`, `fourier`, `wavefront`, then
//! `udp_transport` (the network) and `run`.

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

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) enum NasKernel {
    /// Integer sort: all-to-all of counts and of keys.
    #[serde(rename = "IS")]
    IntegerSort,
    /// Fourier transform: all-to-all of large blocks, arithmetic between.
    #[serde(rename = "FT")]
    Fourier,
    /// Wavefront sweeps through a grid: many small messages between neighbours.
    #[serde(rename = "LU")]
    Wavefront,
}

impl NasKernel {
    pub(crate) const ALL: [Self; 3] = [Self::IntegerSort, Self::Fourier, Self::Wavefront];

    /// The name of the NAS kernel.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::IntegerSort => "IS",
            Self::Fourier => "FT",
            Self::Wavefront => "LU",
        }
    }
}

/// The receive buffers that a rank posts for each other rank.
#[derive(Clone, Copy, Debug)]
struct KernelReceiveBuffers {
    /// Maximum size of a message.
    message_bytes: usize,
    /// Maximum number of messages that another rank is ahead.
    messages: usize,
}

/// One rank of a kernel.
trait KernelRank: Sized {
    const RECEIVE_BUFFERS: KernelReceiveBuffers;

    fn new(rank: usize) -> Self;

    /// One iteration.
    fn step(&mut self, net: &mut impl KernelTransport, iteration: u32) -> Result<()>;

    /// Verifies the result of all iterations, together with the other ranks.
    fn verify(&mut self, net: &mut impl KernelTransport) -> Result<()>;
}

/// A reproducible pseudo-random number (splitmix64).
pub(crate) fn splitmix64(number: u64) -> u64 {
    units::mix64(number.wrapping_add(1).wrapping_mul(units::GOLDEN_GAMMA))
}
