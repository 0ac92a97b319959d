//! The Pleach library in the ranks of an MPI program, and what it does there.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::local_fabric::LocalFabric;
use crate::mpi::mpi_launcher::EnvironmentVariable;

/// The Pleach library that is loaded into the ranks.
pub(crate) struct PreloadedLibrary<'a> {
    pub(in crate::bench) library: &'a Path,
    /// The aggregation nodes that the ranks use, if any.
    pub(in crate::bench) nodes: Option<&'a LocalFabric>,
    pub(in crate::bench) choice: PreloadChoice,
}

/// What does the calls that Pleach can do: `PLEACH_MPI_CHOICE` of the ranks, whatever the user's environment says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::bench) enum PreloadChoice {
    /// Pleach does all of them.
    Pleach,
    /// The faster one, as `pleach exec` decides by default: both are tried.
    Measure,
}

impl PreloadChoice {
    /// The value of the variable, as users write it.
    pub(in crate::bench) const fn name(self) -> &'static str {
        match self {
            Self::Pleach => "pleach",
            Self::Measure => "measure",
        }
    }
}

impl PreloadedLibrary<'_> {
    /// Variables of the ranks.
    ///
    /// # Errors
    /// If the aggregation nodes give no credential.
    pub(super) fn variables(&self) -> Result<Vec<EnvironmentVariable>> {
        let of_nodes = self.nodes.map(LocalFabric::variables).transpose()?.unwrap_or_default();
        let of_nodes = of_nodes.into_iter().map(|(name, value)| (name, OsString::from(value)));
        Ok(of_nodes.chain([("PLEACH_MPI_CHOICE", self.choice.name().into())]).collect())
    }
}
