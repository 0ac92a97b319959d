//! Joins a job: as rank 0, as another rank, or alone.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::detector_ports::DetectorPorts;
use super::endpoint_record::{EndpointRecord, MAX_EXTRA_BYTES, MAX_RANK_ADDRESSES, RankTable};
use super::environment::{JobEnvironment, RendezvousPoint};
use super::failure_detector::FailureDetector;
use super::file_limit::FileReserve;
use super::member::{DetectorConfig, Member};
use super::rank_connections::RankConnections;
use super::rejected_process::RejectedProcess;
use super::rendezvous::{JoinedJob, LocalEndpoint, RendezvousError, RendezvousTimeouts};
use super::token_key::TokenKey;
use super::{rendezvous_client, rendezvous_server};

/// Files that the failure detector opens.
const FAILURE_DETECTOR_FILES: usize = 8;

/// Exchanges endpoints with all other ranks. Blocks until every rank has joined.
///
/// # Errors
/// The error names the missing ranks, or says what to set.
pub fn join(
    environment: &JobEnvironment,
    endpoint: LocalEndpoint,
    timeouts: &RendezvousTimeouts,
) -> Result<JoinedJob, RendezvousError> {
    join_reporting(environment, endpoint, timeouts, &mut |_| {})
}

/// The same; rank 0 reports processes that it rejects, at once, while it waits on. A stranger may be behind them, so each kind of mismatch
/// is reported once.
///
/// # Errors
/// The error names the missing ranks, or says what to set.
pub fn join_reporting(
    environment: &JobEnvironment,
    endpoint: LocalEndpoint,
    timeouts: &RendezvousTimeouts,
    report: &mut dyn FnMut(&RejectedProcess),
) -> Result<JoinedJob, RendezvousError> {
    if endpoint.addresses.len() > MAX_RANK_ADDRESSES {
        return Err(RendezvousError::EndpointTooLarge("more than 16 addresses"));
    }
    if endpoint.extra.len() > MAX_EXTRA_BYTES {
        return Err(RendezvousError::EndpointTooLarge("more than 4096 bytes of extra data"));
    }
    let reserve = FileReserve::hold(FAILURE_DETECTOR_FILES).map_err(RendezvousError::Io)?;
    let ports = DetectorPorts::new(paths(environment, &endpoint.addresses));
    let record = EndpointRecord::own(environment.rank, endpoint.addresses, Vec::new(), endpoint.extra);
    let RankConnections { table, key, streams, listeners } = match (&environment.rendezvous, environment.rank) {
        (RendezvousPoint::Singleton, _) => RankConnections {
            table: RankTable::new(vec![record]),
            key: TokenKey::new(&environment.token, ""),
            streams: BTreeMap::new(),
            listeners: Vec::new(),
        },
        (_, 0) => rendezvous_server::serve_rendezvous(environment, record, ports, timeouts, report)?,
        _ => rendezvous_client::join_through_rank_zero(environment, record, ports, timeouts)?,
    };
    let mut hosts = vec![0; table.size() as usize];
    for (host, ranks) in (0..).zip(table.hosts()) {
        ranks.into_iter().for_each(|rank| hosts[rank as usize] = host);
    }
    let config = DetectorConfig {
        rank: environment.rank,
        size: table.size(),
        key,
        ports: table.records().iter().map(|record| record.ports.clone()).collect(),
        hosts,
        peer_timeout: timeouts.peer,
    };
    drop(reserve);
    let member = Member::new(config, listeners, streams).map_err(RendezvousError::Io)?;
    Ok(JoinedJob { table, failure_detector: FailureDetector::new(member) })
}

/// The paths of the failure detector: the distinct addresses of this rank, or loopback if all ranks are on this host.
fn paths(environment: &JobEnvironment, addresses: &[SocketAddr]) -> Vec<IpAddr> {
    let mut paths: Vec<IpAddr> = Vec::new();
    for address in addresses {
        if !paths.contains(&address.ip()) {
            paths.push(address.ip());
        }
    }
    match environment.rendezvous {
        RendezvousPoint::Singleton => Vec::new(),
        RendezvousPoint::File => vec![Ipv4Addr::LOCALHOST.into()],
        RendezvousPoint::Address { .. } => paths,
    }
}
