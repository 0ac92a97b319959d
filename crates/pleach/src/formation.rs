//! Forms a communicator: locates its ranks, sets up shared memory, opens it in the network, and requests an aggregation tree.

use std::sync::Arc;
use std::time::Duration;

use hostmem::team::Team;
use units::{GroupId, Rank};

use crate::communicator_inner::CommunicatorInner;
use crate::communicator_layout::CommunicatorLayout;
use crate::error::JoinError;
use crate::hierarchical_operation::{HostTeams, TeamPair, host_rank};
use crate::job_process::JobProcess;
use crate::offload;

/// How long the ranks of a host may take to open a team.
const TEAM_TIMEOUT: Duration = Duration::from_secs(60);

/// Forms a communicator. Collective: all of `ranks` call this at once with the same list, which contains this process.
pub(crate) fn form(
    process: &Arc<JobProcess>,
    context: GroupId,
    ranks: Vec<u32>,
) -> Result<CommunicatorInner, JoinError> {
    let layout = layout(process, ranks);
    let teams =
        open_teams(process, context, &layout).map_err(|error| explain_to_all(process, context, &layout, error))?;
    if layout.local_rank == 0 && layout.hosts.len() > 1 {
        let leaders = layout.hosts.iter().map(|host| Rank(layout.ranks[host[0] as usize])).collect();
        process.shared.engine().open_communicator(context, &layout.ranks, leaders, host_rank(layout.host));
    }
    let communicator = CommunicatorInner::new(Arc::clone(process), context, layout, teams);
    let requested = offload::request_tree(&communicator);
    match requested {
        Ok(()) => Ok(communicator),
        // All ranks have found the same.
        Err(error @ JoinError::NoNodes { .. }) => Err(error),
        Err(error) => {
            // While the communicator is open here, so that those that wait in it learn of it.
            let ranks = communicator.world_ranks();
            Err(peer_failure(process, context).unwrap_or_else(|| {
                process.shared.engine().announce_join_failure(context, ranks, &error.to_string());
                error
            }))
        }
    }
}

/// The local cause of an error is told to all ranks at once: they wait for this one. The error to return here.
fn explain_to_all(
    process: &JobProcess,
    context: GroupId,
    layout: &CommunicatorLayout,
    error: JoinError,
) -> JoinError {
    if let Some(error) = peer_failure(process, context) {
        return error;
    }
    process.shared.engine().announce_join_failure(context, &layout.ranks, &error.to_string());
    error
}

/// The error of a rank that cannot join, if one has told so.
fn peer_failure(process: &JobProcess, context: GroupId) -> Option<JoinError> {
    let engine = process.shared.engine();
    engine.join_failure(context).map(|(rank, what)| JoinError::Peer { rank: *rank, what: what.clone() })
}

fn layout(process: &JobProcess, ranks: Vec<u32>) -> CommunicatorLayout {
    let hosts = process.hosts_of(&ranks);
    let rank = ranks.iter().position(|rank| *rank == process.rank).expect("the list contains this process") as u32;
    let host = hosts.iter().position(|host| host.contains(&rank)).expect("every rank has a host");
    let local_rank = hosts[host].iter().position(|found| *found == rank).expect("just found") as u16;
    CommunicatorLayout { ranks, rank, hosts, host, local_rank }
}

fn open_teams(process: &JobProcess, context: GroupId, layout: &CommunicatorLayout) -> Result<HostTeams, JoinError> {
    let host = &layout.hosts[layout.host];
    let leader = layout.ranks[host[0] as usize];
    let is_cancelled = || {
        let Some(mut engine) = process.shared.try_engine() else { return false };
        engine.progress();
        engine.poll_events();
        engine.join_failure(context).is_some() || engine.failure_of(context, &layout.ranks).is_some()
    };
    let open = |what: &str| {
        let (name, size) = (process.secret_name(context, leader, what), host.len() as u16);
        let team = match layout.local_rank {
            0 => Team::create(&name, size),
            rank => Team::join_unless(&name, rank, size, TEAM_TIMEOUT, is_cancelled),
        };
        team.map_err(JoinError::SharedMemory)
    };
    Ok(match (host.len(), layout.hosts.len()) {
        (1, _) => HostTeams::Alone,
        (_, 1) => HostTeams::Whole(Box::new(open("whole")?)),
        _ => HostTeams::Part(Box::new(TeamPair { up: open("up")?, down: open("down")? })),
    })
}
