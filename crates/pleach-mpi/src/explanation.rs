//! `PLEACH_MPI=explain`: what Pleach would do for this program, reported right after `MPI_Init`; then the program ends.
//!
//! Everything reported was tried: the ranks have bootstrapped as in a real run, and sum numbers whose sum is known.

use pleach::Operator;
use serde::Serialize;

use crate::abi::AbiFamily;
use crate::completion::RequestCompletion;
use crate::mpi_job::MpiJob;
use crate::native_mpi::invoke;

/// Sums that are tried: enough for an aggregation tree to be in use.
const TRIALS: u32 = 100;
/// Vector lengths that are explained, in bytes.
const EXPLAINED_BYTES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];
/// The longest version text of any MPI.
const VERSION_BYTES: usize = 8192;

/// The native MPI.
#[derive(Serialize, Default)]
pub(crate) struct MpiVersionInfo {
    /// The first line of its version text.
    version: String,
    abi: &'static str,
    /// The library's file.
    library: String,
}

/// What Pleach would do.
#[derive(Serialize)]
pub(crate) struct OffloadExplanation {
    /// The outcome of the tried sums.
    trial: String,
    /// How non-blocking calls are completed.
    non_blocking: &'static str,
    /// Allreduces by length.
    ways: Vec<AlgorithmExplanation>,
}

#[derive(Serialize)]
struct AlgorithmExplanation {
    bytes: usize,
    way: String,
}

impl MpiVersionInfo {
    pub(crate) fn of(job: &MpiJob) -> Self {
        let mut text = vec![0_u8; VERSION_BYTES + 1];
        let mut length = 0_i32;
        if let Some(get_version) = job.mpi.real.Get_library_version {
            // SAFETY: there is room for the longest text, and for its length.
            unsafe { invoke!(get_version; text.as_mut_ptr(), &raw mut length) };
        }
        let text = &text[..usize::try_from(length).unwrap_or(0).min(VERSION_BYTES)];
        let text = String::from_utf8_lossy(text);
        let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let abi = match job.abi.family {
            AbiFamily::OpenMpi => "Open MPI",
            AbiFamily::Mpich => "MPICH",
            AbiFamily::Standard => "MPI-5",
        };
        let version = first.trim_end_matches('\0').split_whitespace().collect::<Vec<_>>().join(" ");
        let library = job.mpi.real.Init.map(|init| job.mpi.library.file_of(init)).unwrap_or_default();
        Self { version, abi, library }
    }
}

impl OffloadExplanation {
    /// Tries sums and collects the explanation. Collective.
    pub(crate) fn of(job: &MpiJob) -> Option<Self> {
        let world = job.world()?;
        let size = f64::from(job.size);
        let mut outcome = format!("{TRIALS} allreduces of 8 bytes gave the right sums");
        for trial in 0..TRIALS {
            let mut sum = [f64::from(job.rank + trial)];
            let expected = size * (size - 1.0) / 2.0 + size * f64::from(trial);
            match world.all_reduce(&mut sum, Operator::Sum) {
                Ok(()) if sum[0].to_bits() == expected.to_bits() => {}
                Ok(()) => outcome = format!("a sum is {} instead of {expected}", sum[0]),
                Err(error) => {
                    outcome = error.to_string();
                    break;
                }
            }
        }
        let non_blocking = match job.completion {
            RequestCompletion::ByOpenMpiProgress(_) => "offloaded; Open MPI's progress engine completes them",
            RequestCompletion::ByMpichPoll(_) => "offloaded; completed when MPICH polls",
            RequestCompletion::ByThread => "offloaded; a thread completes them",
            RequestCompletion::Impossible => "done by the native MPI, which provides no way to complete them",
            RequestCompletion::Disabled => "done by the native MPI (PLEACH_MPI=blocking)",
        };
        let is_one_host = world.hosts() == 1;
        let way = |bytes: usize| AlgorithmExplanation {
            bytes,
            way: if is_one_host {
                "in shared memory: all ranks are on one host.".to_owned()
            } else {
                world.explain(bytes, Operator::Sum)
            },
        };
        let ways = EXPLAINED_BYTES.into_iter().filter(|bytes| *bytes <= job.max_bytes).map(way).collect();
        Some(Self { trial: outcome, non_blocking, ways })
    }
}
