//! Figures 5 to 8, simulated: two hosts, many connections between them.

use anyhow::{Context, Result};
use protocol::connection::path::AlternateLoading;
use serde::Serialize;
use simulator::queue_pair::{HostProgram, LinkNotification, ProgramReport, ProgramStep};
use topology::NodeId;
use units::{PathId, SimSpan, SimTime};

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
}

/// The event during an exchange of messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SimulatedDisturbance {
    Nothing,
    Migration,
    Noticed,
    Silent,
}

fn testbed(connections: usize, programs: [Vec<ProgramStep>; 2]) -> SimulatedTestbed {
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
pub(super) fn simulate_transitions(connections: usize) -> Result<SimulatedTransition> {
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
    let reports =
        testbed(connections, [begin.clone().chain(migrate).collect(), begin.chain(follow).collect()]).run(None)?;
    let armed = mark(&reports, 0, 0)?.max(mark(&reports, 1, 0)?);
    Ok(SimulatedTransition {
        connections,
        arming_us: micros(armed.since(BEGIN)),
        migrating_us: micros(mark(&reports, 1, 1)?.since(migrate_at)),
    })
}

pub(super) fn simulate_disturbed_latency(
    connections: usize,
    bytes: u32,
    disturbance: SimulatedDisturbance,
) -> Result<SimulatedLatency> {
    let (plain, first_round) = rounds(connections, bytes, SimulatedDisturbance::Nothing, None)?;
    let (disturbed, _) = rounds(connections, bytes, disturbance, Some(first_round))?;
    let count = (ROUNDS * connections) as f64;
    Ok(SimulatedLatency {
        connections,
        bytes,
        plain_us: plain / count,
        disturbed_us: disturbed / count,
        per_connection_us: (disturbed - plain) / connections as f64,
    })
}

/// The time of all rounds, and the end of the first.
fn rounds(
    connections: usize,
    bytes: u32,
    disturbance: SimulatedDisturbance,
    first_round: Option<SimTime>,
) -> Result<(f64, SimTime)> {
    let migrate = (0..connections).map(|connection| ProgramStep::Migrate { connection });
    let (mut one, mut other) = (vec![ProgramStep::Until(BEGIN)], vec![ProgramStep::Until(BEGIN)]);
    one.extend(arm(connections));
    other.extend(arm(connections));
    one.extend([ProgramStep::Until(BEGIN + SimSpan::from_micros(20_000)), ProgramStep::Mark]);
    for round in 0..ROUNDS {
        for connection in 0..connections {
            let (send, receive) =
                (ProgramStep::Send { connection, length: bytes }, ProgramStep::Receive { connection });
            one.extend([send, receive]);
            other.extend([receive, send]);
        }
        if round == 0 {
            one.push(ProgramStep::Mark);
            if disturbance == SimulatedDisturbance::Migration {
                one.extend(migrate.clone());
            }
        }
    }
    one.push(ProgramStep::Mark);
    let cut = |notice| first_round.map(|at| SimulatedCut { host: 0, at, notice });
    let cut = match disturbance {
        SimulatedDisturbance::Nothing | SimulatedDisturbance::Migration => None,
        SimulatedDisturbance::Noticed => cut(LinkNotification::Notified),
        SimulatedDisturbance::Silent => cut(LinkNotification::Silent),
    };
    let reports = testbed(connections, [one, other]).run(cut)?;
    let [began, round, ended] = [mark(&reports, 0, 0)?, mark(&reports, 0, 1)?, mark(&reports, 0, 2)?];
    Ok((micros(ended.since(began)), round))
}
