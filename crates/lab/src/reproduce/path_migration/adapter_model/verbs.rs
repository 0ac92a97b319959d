//! Figures 5 to 8 in the paper's adapters: two hosts with a rank each, many queue pairs between them, used in turn.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::cluster::{AdapterCluster, AdapterTimes, PulledCable};
use super::connection::{AdapterPathState, FirmwareJob};
use super::packet::Nanos;
use super::rank::{RankState, RankStep};
use crate::reproduce::path_migration::simulated::{SimulatedLatency, SimulatedTransition};

/// Rounds over all queue pairs; something happens after the first.
const ROUNDS: usize = 4;
const NANOS_PER_MICRO: f64 = 1e3;

/// What happens during an exchange of messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AdapterDisturbance {
    Arming,
    Migration,
    PulledCable,
}

fn micros(nanos: Nanos) -> f64 {
    nanos as f64 / NANOS_PER_MICRO
}

fn two_hosts(
    times: AdapterTimes,
    queue_pairs: usize,
    state: AdapterPathState,
    programs: [Vec<RankStep>; 2],
    cable: Option<PulledCable>,
) -> Result<AdapterCluster> {
    let ranks = programs.map(|steps| RankState::new(2, steps));
    let mut cluster = AdapterCluster::new(times, 2, ranks.into(), cable);
    for _ in 0..queue_pairs {
        let connection = cluster.connect([0, 1], state);
        cluster.ranks[0].add_queue_pair(1, 2 * connection);
        cluster.ranks[1].add_queue_pair(0, 2 * connection + 1);
    }
    cluster.run();
    ensure!(cluster.broken.is_none(), "a connection lost its path without an alternate");
    ensure!(cluster.ranks.iter().all(RankState::is_finished), "a rank waits for a message that does not come");
    Ok(cluster)
}

/// From the request until the events of all queue pairs are handled; after a migration also until the main thread knows.
pub(super) fn transition(times: AdapterTimes, queue_pairs: usize) -> Result<SimulatedTransition> {
    let load = vec![RankStep::Request(FirmwareJob::Load)];
    let armed = two_hosts(times, queue_pairs, AdapterPathState::Migrated, [load.clone(), load], None)?;
    let migrate = vec![RankStep::Request(FirmwareJob::Switch)];
    let migrated = two_hosts(times, queue_pairs, AdapterPathState::Armed, [migrate, Vec::new()], None)?;
    let [(armed_count, armed_at), (migrated_count, migrated_at)] = [armed.hosts[0].armed, migrated.hosts[0].migrated];
    ensure!([armed_count, migrated_count] == [queue_pairs; 2], "not every queue pair raised its event");
    Ok(SimulatedTransition {
        connections: queue_pairs,
        arming_us: micros(armed_at),
        migrating_us: micros(migrated_at + times.handover),
    })
}

/// Messages there and back over all queue pairs in turn, with and without a disturbance after the first round.
pub(super) fn latency(
    times: AdapterTimes,
    queue_pairs: usize,
    bytes: u32,
    disturbance: AdapterDisturbance,
) -> Result<SimulatedLatency> {
    let state =
        if disturbance == AdapterDisturbance::Arming { AdapterPathState::Migrated } else { AdapterPathState::Armed };
    let request = match disturbance {
        AdapterDisturbance::Arming => [Some(FirmwareJob::Load); 2],
        AdapterDisturbance::Migration => [Some(FirmwareJob::Switch), None],
        AdapterDisturbance::PulledCable => [None; 2],
    };
    let run = |request: [Option<FirmwareJob>; 2], cable| -> Result<Vec<f64>> {
        let programs = [0, 1].map(|rank| ping_pong(rank, queue_pairs, u64::from(bytes), request[rank]));
        let cluster = two_hosts(times, queue_pairs, state, programs, cable)?;
        Ok(cluster.ranks[0].marks.iter().map(|at| micros(*at)).collect())
    };
    let plain = run([None; 2], None)?;
    // Between two messages: the next one is the first that meets the cut.
    let at = (plain[queue_pairs] * NANOS_PER_MICRO) as Nanos;
    let cable = (disturbance == AdapterDisturbance::PulledCable).then_some(PulledCable { host: 0, at });
    let disturbed = run(request, cable)?;
    Ok(compare(queue_pairs, bytes, &plain, &disturbed))
}

/// As the paper: the mean of the round trips that took longer.
fn compare(queue_pairs: usize, bytes: u32, plain: &[f64], disturbed: &[f64]) -> SimulatedLatency {
    let trips = |marks: &[f64]| -> Vec<f64> { marks.windows(2).map(|pair| pair[1] - pair[0]).collect() };
    let (plain, disturbed) = (trips(plain), trips(disturbed));
    let slower: Vec<(f64, f64)> =
        plain.into_iter().zip(disturbed).filter(|(own, other)| *other > 1.01 * own).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| slower.iter().map(of).sum::<f64>() / slower.len().max(1) as f64;
    let (plain_us, disturbed_us) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let per_connection_us = (disturbed_us - plain_us) * slower.len() as f64 / queue_pairs as f64;
    SimulatedLatency {
        connections: queue_pairs,
        bytes,
        plain_us,
        disturbed_us,
        per_connection_us,
        affected: slower.len(),
    }
}

/// Round trips; each ends with a mark at rank 0.
fn ping_pong(rank: usize, queue_pairs: usize, bytes: u64, request: Option<FirmwareJob>) -> Vec<RankStep> {
    let peer = 1 - rank;
    let receive = [RankStep::Post { peer }, RankStep::Receive { peer }];
    let send = [RankStep::Send { peer, bytes }, RankStep::WaitSent];
    let mut steps = vec![RankStep::Mark];
    for trip in 0..ROUNDS * queue_pairs {
        if trip == queue_pairs {
            steps.extend(request.map(RankStep::Request));
        }
        let parts = if rank == 0 { [send, receive] } else { [receive, send] };
        steps.extend(parts.into_iter().flatten());
        steps.push(RankStep::Mark);
    }
    steps
}

#[derive(Serialize)]
pub(super) struct VerbsFigures {
    pub transitions: Vec<SimulatedTransition>,
    pub by_count: Vec<SimulatedLatency>,
    pub while_arming: SimulatedLatency,
    pub while_migrating: Vec<SimulatedLatency>,
    pub pulled_cable: Vec<SimulatedLatency>,
}

pub(super) fn simulate(times: AdapterTimes) -> Result<VerbsFigures> {
    let by_size = |queue_pairs: usize, disturbance| -> Result<Vec<SimulatedLatency>> {
        [8, 128, 1024, 4096].into_iter().map(|bytes| latency(times, queue_pairs, bytes, disturbance)).collect()
    };
    let migration = AdapterDisturbance::Migration;
    Ok(VerbsFigures {
        transitions: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
            .into_iter()
            .map(|queue_pairs| transition(times, queue_pairs))
            .collect::<Result<_>>()?,
        by_count: [16, 64, 256]
            .into_iter()
            .map(|count| latency(times, count, 128, migration))
            .collect::<Result<_>>()?,
        while_arming: latency(times, 64, 128, AdapterDisturbance::Arming)?,
        while_migrating: by_size(128, migration)?,
        pulled_cable: by_size(512, AdapterDisturbance::PulledCable)?,
    })
}
