//! The scene "hosts" of `pleach bench mpi`: one rank (or several) on each of some hosts made of network namespaces.
//!
//! A table for each number of hosts and each MTU. In each round every MPI runs alone and with the Pleach library, without
//! aggregation nodes and with them, in turn; one run measures all operations and sizes. Pleach does all calls, or those that it does
//! faster, as `pleach exec` decides by default. Each row compares an MPI with Pleach with the same MPI alone, and with the MPI that
//! is fastest alone.
//!
//! A second table says how far that is from UDP sockets without a protocol.
//!
//! Reading order: `plan.rs` says what is measured, `sweep.rs` runs it, `row.rs` computes the rows, `target.rs` has the bounds;
//! `limit.rs` moves the bytes over bare sockets, `limit_row.rs` compares.

mod limit;
mod limit_row;
mod output;
mod plan;
mod row;
mod sweep;
mod target;

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::bench::mpi_installation::{MpiImplementation, MpiInstallation, NEVER_YIELDS};
use crate::bench::target_verdict::TargetVerdict;
use limit_row::LimitRow;
pub(super) use output::{closing, sections};
pub(super) use plan::{HostsArgs, HostsPlan, PlanExtent};
use row::HostsRow;

/// The results of the scene.
#[derive(Serialize)]
pub(super) struct HostsReport {
    ranks_per_host: u32,
    tables: Vec<HostsTable>,
    /// Runs that failed: a wrong result, a crash, or no result in time.
    failures: Vec<String>,
}

/// The results of one number of hosts and one MTU.
#[derive(Serialize)]
struct HostsTable {
    hosts: u32,
    mtu_bytes: u32,
    rows: Vec<HostsRow>,
    limits: Vec<LimitRow>,
}

impl HostsReport {
    /// The verdict of every target.
    pub(super) fn verdicts(&self) -> impl Iterator<Item = TargetVerdict> {
        self.tables.iter().flat_map(|table| &table.rows).flat_map(HostsRow::verdicts)
    }

    /// The number of runs that failed.
    pub(super) fn failures(&self) -> usize {
        self.failures.len()
    }
}

/// Measures the plan with every MPI that can take part; notes say why others do not.
///
/// # Errors
/// If the hosts cannot be created.
pub(super) fn run(
    plan: &HostsPlan,
    mpis: &[MpiInstallation],
    library: &Path,
    notes: &mut Vec<String>,
) -> Result<HostsReport> {
    let mut able = Vec::new();
    for mpi in mpis {
        match reason_to_skip(plan, mpi) {
            None => able.push(mpi),
            Some(why) => notes.push(format!("Hosts: without {}: {why}.", mpi.short_name())),
        }
    }
    let mut report = HostsReport { ranks_per_host: plan.ranks_per_host, tables: Vec::new(), failures: Vec::new() };
    let mut sweep = sweep::Sweep::new(plan, &able, library);
    for (hosts, mtu_bytes) in plan.networks() {
        let (samples, limits) = sweep.run(hosts, mtu_bytes, &mut report.failures)?;
        let rows = row::rows(plan, hosts, &able, &samples);
        let limits = limit_row::rows(&plan.measures, &limits, &rows);
        report.tables.push(HostsTable { hosts, mtu_bytes, rows, limits });
    }
    Ok(report)
}

fn reason_to_skip(plan: &HostsPlan, mpi: &MpiInstallation) -> Option<&'static str> {
    match mpi.implementation {
        MpiImplementation::OpenMpi4 | MpiImplementation::OpenMpi5 => None,
        MpiImplementation::Mpich4 | MpiImplementation::Mpich5 => (plan.ranks_per_host > 1).then_some(NEVER_YIELDS),
        MpiImplementation::Other => Some("its launcher cannot start ranks on hosts made of namespaces"),
    }
}
