//! Figures 5 to 8, simulated: two hosts, many connections between them.

use anyhow::{Context, Result};
use protocol::connection::path::Loading;
use serde::Serialize;
use simulator::exchange::{Notice, Program, ProgramReport, Step};
use topology::NodeId;
use units::{PathId, Span, Time};

use super::fabric::{Pull, Scene, micros};

/// When anything begins: the first probes have passed.
const BEGIN: Time = Time::from_picos(5_000_000_000);
/// Rounds over all connections; it happens after the first.
const ROUNDS: usize = 4;

/// How long so many connections took.
#[derive(Clone, Copy, Serialize)]
pub(in super::super) struct Moved {
    pub connections: usize,
    pub arming_us: f64,
    pub migrating_us: f64,
}

/// Messages of one size over many connections in turn.
#[derive(Clone, Copy, Serialize)]
pub(in super::super) struct Bounced {
    pub connections: usize,
    pub bytes: u32,
    /// Mean time there and back.
    pub plain_us: f64,
    pub disturbed_us: f64,
    /// What it added, for each connection.
    pub per_connection_us: f64,
}

/// What happens while messages bounce.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Happening {
    Nothing,
    Migration,
    Noticed,
    Silent,
}

fn scene(connections: usize, programs: [Vec<Step>; 2]) -> Scene {
    let mut host = 0;
    let programs = programs.map(|steps| {
        host += 1;
        Program { host: NodeId(host - 1), steps }
    });
    Scene { connections: vec![[0, 1]; connections], paths: 2, loading: Loading::ByHand, programs: programs.into() }
}

/// Both ends load the second path and wait until all are armed.
fn arm(connections: usize) -> impl Iterator<Item = Step> + Clone {
    let load = (0..connections).map(|connection| Step::Load { connection, path: PathId(1) });
    load.chain((0..connections).map(|connection| Step::Armed { connection }))
}

fn mark(reports: &[ProgramReport], host: usize, mark: usize) -> Result<Time> {
    reports[host].marks.get(mark).copied().context("a program has not come to its mark")
}

/// From MIGRATED to ARMED at both ends, and from there to MIGRATED at both.
pub(super) fn transitions(connections: usize) -> Result<Moved> {
    // Everyone is armed long before this.
    let migrate_at = BEGIN + Span::from_micros(20_000);
    let all = 0..connections;
    let begin = [Step::Until(BEGIN)].into_iter().chain(arm(connections)).chain([Step::Mark, Step::Until(migrate_at)]);
    let migrate = all.clone().map(|connection| Step::Migrate { connection }).chain([Step::Mark]);
    let follow = all.map(|connection| Step::Moved { connection, times: 1 }).chain([Step::Mark]);
    let reports =
        scene(connections, [begin.clone().chain(migrate).collect(), begin.chain(follow).collect()]).run(None)?;
    let armed = mark(&reports, 0, 0)?.max(mark(&reports, 1, 0)?);
    Ok(Moved {
        connections,
        arming_us: micros(armed.since(BEGIN)),
        migrating_us: micros(mark(&reports, 1, 1)?.since(migrate_at)),
    })
}

pub(super) fn bouncing(connections: usize, bytes: u32, happening: Happening) -> Result<Bounced> {
    let (plain, first_round) = rounds(connections, bytes, Happening::Nothing, None)?;
    let (disturbed, _) = rounds(connections, bytes, happening, Some(first_round))?;
    let count = (ROUNDS * connections) as f64;
    Ok(Bounced {
        connections,
        bytes,
        plain_us: plain / count,
        disturbed_us: disturbed / count,
        per_connection_us: (disturbed - plain) / connections as f64,
    })
}

/// How long all rounds took, and when the first of them was over.
fn rounds(connections: usize, bytes: u32, happening: Happening, first_round: Option<Time>) -> Result<(f64, Time)> {
    let migrate = (0..connections).map(|connection| Step::Migrate { connection });
    let (mut one, mut other) = (vec![Step::Until(BEGIN)], vec![Step::Until(BEGIN)]);
    one.extend(arm(connections));
    other.extend(arm(connections));
    one.extend([Step::Until(BEGIN + Span::from_micros(20_000)), Step::Mark]);
    for round in 0..ROUNDS {
        for connection in 0..connections {
            let (send, receive) = (Step::Send { connection, length: bytes }, Step::Receive { connection });
            one.extend([send, receive]);
            other.extend([receive, send]);
        }
        if round == 0 {
            one.push(Step::Mark);
            if happening == Happening::Migration {
                one.extend(migrate.clone());
            }
        }
    }
    one.push(Step::Mark);
    let pull = |notice| first_round.map(|at| Pull { host: 0, at, notice });
    let pull = match happening {
        Happening::Nothing | Happening::Migration => None,
        Happening::Noticed => pull(Notice::Noticed),
        Happening::Silent => pull(Notice::Silent),
    };
    let reports = scene(connections, [one, other]).run(pull)?;
    let [began, round, ended] = [mark(&reports, 0, 0)?, mark(&reports, 0, 1)?, mark(&reports, 0, 2)?];
    Ok((micros(ended.since(began)), round))
}
