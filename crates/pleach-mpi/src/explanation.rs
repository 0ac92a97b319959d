//! `PLEACH_MPI=explain`: what Pleach would do for this program, told right after `MPI_Init`; then the program ends.
//!
//! Nothing is told that was not tried: the ranks have met as in a real run, and add numbers whose sum is known.

use pleach::Operator;
use serde::Serialize;

use crate::abi::AbiFamily;
use crate::mpi_job::MpiJob;
use crate::native_mpi::invoke;
use crate::requests::RequestCompletion;

/// Sums that are tried: enough for a tree of nodes to be in use.
const TRIALS: u32 = 100;
/// Vectors that are explained, in bytes.
const SIZES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];
/// The text about itself of an MPI with the longest.
const VERSION_BYTES: usize = 8192;

/// Which MPI this is.
#[derive(Serialize, Default)]
pub(crate) struct MpiVersionInfo {
    /// The first line of what it says about itself.
    version: String,
    abi: &'static str,
    /// The library's file.
    library: String,
}

/// How Pleach would go about it.
#[derive(Serialize)]
pub(crate) struct OffloadExplanation {
    /// What became of sums that were tried.
    trial: String,
    /// How non-blocking calls are completed.
    non_blocking: &'static str,
    /// Allreduces, by size.
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
        if let Some(ask) = job.mpi.real.Get_library_version {
            // SAFETY: there is room for the longest text, and a place for its length.
            unsafe { invoke!(ask; text.as_mut_ptr(), &raw mut length) };
        }
        let text = &text[..usize::try_from(length).unwrap_or(0).min(VERSION_BYTES)];
        let words = String::from_utf8_lossy(text);
        let first = words.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
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
    /// Tries it; every rank calls this.
    pub(crate) fn of(job: &MpiJob) -> Option<Self> {
        let world = job.world()?;
        let everyone = f64::from(job.size);
        let mut outcome = format!("{TRIALS} allreduces of 8 bytes gave the right sums");
        for trial in 0..TRIALS {
            let mut sum = [f64::from(job.rank + trial)];
            let expected = everyone * (everyone - 1.0) / 2.0 + everyone * f64::from(trial);
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
            RequestCompletion::InProgress(_) => "taken over; Open MPI's progress completes them",
            RequestCompletion::WhenAsked(_) => "taken over; completed when MPICH asks",
            RequestCompletion::ByThread => "taken over; a thread completes them",
            RequestCompletion::Impossible => "left to the MPI, which gives no way to complete them",
            RequestCompletion::Unwanted => "left to the MPI, as wanted",
        };
        let within = world.hosts() == 1;
        let way = |bytes: usize| AlgorithmExplanation {
            bytes,
            way: if within {
                "in shared memory: all ranks are on one host.".to_owned()
            } else {
                world.explain(bytes, Operator::Sum)
            },
        };
        let ways = SIZES.into_iter().filter(|bytes| *bytes <= job.largest).map(way).collect();
        Some(Self { trial: outcome, non_blocking, ways })
    }
}
