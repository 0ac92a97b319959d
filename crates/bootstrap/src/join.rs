//! Joins a job: as rank 0, as another rank, or alone.

use super::endpoint_record::{EndpointRecord, MAX_EXTRA_BYTES, MAX_RANK_ADDRESSES, RankTable};
use super::environment::{JobEnvironment, RendezvousPoint};
use super::failure_detector::FailureDetector;
use super::rendezvous::{JoinedJob, LocalEndpoint, RendezvousError, RendezvousTimeouts};
use super::{rendezvous_client, rendezvous_server};

/// Exchanges endpoints with all other ranks. Blocks until every rank has joined.
///
/// # Errors
/// The error names the missing ranks, or says what to set.
pub fn join(
    environment: &JobEnvironment,
    endpoint: LocalEndpoint,
    timeouts: &RendezvousTimeouts,
) -> Result<JoinedJob, RendezvousError> {
    if endpoint.addresses.len() > MAX_RANK_ADDRESSES {
        return Err(RendezvousError::EndpointTooLarge("more than 16 addresses"));
    }
    if endpoint.extra.len() > MAX_EXTRA_BYTES {
        return Err(RendezvousError::EndpointTooLarge("more than 4096 bytes of extra data"));
    }
    let record = EndpointRecord::own(environment.rank, endpoint.addresses, endpoint.extra);
    match (&environment.rendezvous, environment.rank) {
        (RendezvousPoint::Singleton, _) => Ok(JoinedJob {
            table: RankTable::new(vec![record]),
            failure_detector: FailureDetector::singleton().map_err(RendezvousError::Io)?,
        }),
        (_, 0) => rendezvous_server::serve_rendezvous(environment, record, timeouts),
        _ => rendezvous_client::join_through_rank_zero(environment, record, timeouts),
    }
}
