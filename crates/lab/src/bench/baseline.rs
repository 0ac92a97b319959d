//! The implementation that a benchmark compares Pleach with.

use clap::ValueEnum;

use super::mpi_installation::MpiInstallation;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Baseline {
    /// Open MPI, if it is installed.
    #[value(name = "openmpi")]
    OpenMpi,
    /// No comparison.
    None,
}

impl Baseline {
    /// Finds the baseline and compiles the peer program for it. If that fails, a note says why.
    pub(crate) fn find(self, peer_source: &str, notes: &mut Vec<String>) -> Option<MpiInstallation> {
        match self {
            Self::None => None,
            Self::OpenMpi => MpiInstallation::open_mpi(peer_source)
                .map_err(|error| notes.push(format!("without Open MPI: {error:#}")))
                .ok(),
        }
    }
}
