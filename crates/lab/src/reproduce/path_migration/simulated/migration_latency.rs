//! Figures 5 to 8, simulated: two hosts, many connections between them.

use anyhow::{Context, Result};
use protocol::connection::path::AlternateLoading;
use serde::Serialize;
use simulator::queue_pair::{HostProgram, LinkNotification, ProgramReport, ProgramStep};
use topology::NodeId;
use units::{PathId, SimSpan, SimTime};

use super::parameters::MigrationLinkTable;
use super::testbed::{SimulatedCut, SimulatedTestbed, micros};

/// Start of the programs: after the first probes.
const BEGIN: SimTime = SimTime::from_picos(5_000_000_000);
/// Rounds over all connections. The disturbance happens after the first.
const ROUNDS: usize = 4;

/// The times of so many connections.
#[derive(Clone, Copy, Serialize)]
pub(in super::super) struct SimulatedTransition {
    pub connections: usize,
    pub arming_us: f64,
    pub migrating_us: f64,
}

/// Messages of one size over many connections in turn.
#[derive(Clone, Copy, Serialize)]
pub(in super::super) struct SimulatedLatency {
    pub connections: usize,
    pub bytes: u32,
    /// Mean round-trip time.
    pub plain_us: f64,
    pub disturbed_us: f64,
    /// Added time per connection.
    pub per_connection_us: f64,
    /// Round trips that took longer than without the event.
    pub affected: usize,
}

/// The event during an exchange of messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SimulatedDisturbance {
    Nothing,
    /// All connections load their alternate.
    Arming,
    Migration,
    Noticed,
    Silent,
}

fn testbed(link: MigrationLinkTable, connections: usize, programs: [Vec<ProgramStep>; 2]) -> SimulatedTestbed {
    let mut host = 0;
    let programs = programs.map(|steps| {
        host += 1;
        HostProgram { host: NodeId(host - 1), steps }
    });
    SimulatedTestbed {
        connections: vec![[0, 1]; connections],
        paths: 2,
        loading: AlternateLoading::Manual,
        programs: programs.into(),
        link,
    }
}

/// Both ends load the second path and wait until all are armed.
fn arm(connections: usize) -> impl Iterator<Item = ProgramStep> + Clone {
    let load = (0..connections).map(|connection| ProgramStep::Load { connection, path: PathId(1) });
    load.chain((0..connections).map(|connection| ProgramStep::WaitArmed { connection }))
}

fn mark(reports: &[ProgramReport], host: usize, mark: usize) -> Result<SimTime> {
    reports[host].marks.get(mark).copied().context("a program did not reach its mark")
}

/// From MIGRATED to ARMED at both ends, and from there to MIGRATED at both.
pub(super) fn simulate_transitions(link: MigrationLinkTable, connections: usize) -> Result<SimulatedTransition> {
    // All connections are armed long before this.
    let migrate_at = BEGIN + SimSpan::from_micros(20_000);
    let all = 0..connections;
    let begin = [ProgramStep::Until(BEGIN)]
        .into_iter()
        .chain(arm(connections))
        .chain([ProgramStep::Mark, ProgramStep::Until(migrate_at)]);
    let migrate = all.clone().map(|connection| ProgramStep::Migrate { connection }).chain([ProgramStep::Mark]);
    let follow =
        all.map(|connection| ProgramStep::WaitMigrations { connection, times: 1 }).chain([ProgramStep::Mark]);
    let reports = testbed(link, connections, [begin.clone().chain(migrate).collect(), begin.chain(follow).collect()])
        .run(None)?;
    let armed = mark(&reports, 0, 0)?.max(mark(&reports, 1, 0)?);
    Ok(SimulatedTransition {
        connections,
        arming_us: micros(armed.since(BEGIN)),
        migrating_us: micros(mark(&reports, 1, 1)?.since(migrate_at)),
    })
}

pub(super) fn simulate_disturbed_latency(
    link: MigrationLinkTable,
    connections: usize,
    bytes: u32,
    disturbance: SimulatedDisturbance,
) -> Result<SimulatedLatency> {
    let plain = rounds(link, connections, bytes, SimulatedDisturbance::Nothing, None)?;
    let first_round = plain.get(connections).copied().context("no round ended")?;
    let disturbed = rounds(link, connections, bytes, disturbance, Some(first_round))?;
    let total = |marks: &[SimTime]| micros(marks[marks.len() - 1].since(marks[0]));
    let trips =
        |marks: &[SimTime]| -> Vec<f64> { marks.windows(2).map(|pair| micros(pair[1].since(pair[0]))).collect() };
    let pairs = trips(&plain).into_iter().zip(trips(&disturbed));
    let count = (ROUNDS * connections) as f64;
    Ok(SimulatedLatency {
        connections,
        bytes,
        plain_us: total(&plain) / count,
        disturbed_us: total(&disturbed) / count,
        per_connection_us: (total(&disturbed) - total(&plain)) / connections as f64,
        affected: pairs.filter(|(plain, disturbed)| *disturbed > 1.01 * plain).count(),
    })
}

/// The start, and the end of every round trip.
fn rounds(
    link: MigrationLinkTable,
    connections: usize,
    bytes: u32,
    disturbance: SimulatedDisturbance,
    first_round: Option<SimTime>,
) -> Result<Vec<SimTime>> {
    let all = 0..connections;
    let migrate = all.clone().map(|connection| ProgramStep::Migrate { connection });
    let load = all.map(|connection| ProgramStep::Load { connection, path: PathId(1) });
    let (mut one, mut other) = (vec![ProgramStep::Until(BEGIN)], vec![ProgramStep::Until(BEGIN)]);
    if disturbance != SimulatedDisturbance::Arming {
        one.extend(arm(connections));
        other.extend(arm(connections));
    }
    one.extend([ProgramStep::Until(BEGIN + SimSpan::from_micros(20_000)), ProgramStep::Mark]);
    for round in 0..ROUNDS {
        for connection in 0..connections {
            let (send, receive) =
                (ProgramStep::Send { connection, length: bytes }, ProgramStep::Receive { connection });
            one.extend([send, receive, ProgramStep::Mark]);
            other.extend([receive, send]);
        }
        match disturbance {
            SimulatedDisturbance::Migration if round == 0 => one.extend(migrate.clone()),
            SimulatedDisturbance::Arming if round == 0 => {
                one.extend(load.clone());
                other.extend(load.clone());
            }
            _ => {}
        }
    }
    let cut = |notice| first_round.map(|at| SimulatedCut { host: 0, at, notice });
    let cut = match disturbance {
        SimulatedDisturbance::Nothing | SimulatedDisturbance::Migration | SimulatedDisturbance::Arming => None,
        SimulatedDisturbance::Noticed => cut(LinkNotification::Notified),
        SimulatedDisturbance::Silent => cut(LinkNotification::Silent),
    };
    let mut reports = testbed(link, connections, [one, other]).run(cut)?;
    Ok(std::mem::take(&mut reports[0].marks))
}
