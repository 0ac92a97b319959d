//! Requests an aggregation tree for a communicator: its first rank asks the manager and broadcasts the reply.
//!
//! In: the leaders of hosts and the settings. Out: the communicator has a tree, or a reason why it has none. Without a tree the
//! hosts do everything among themselves, so a failed request is an error only for a job that requires nodes.

use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use bootstrap::secure_channel::{open_bytes, seal_bytes};
use control::{ClientError, ControlCredential, ManagerClient};
use manager::{ControlError, DistributionSpec, FoldTree, GroupDescriptor, GroupLeader, GroupRequest};
use protocol::collective::{
    AggregationAvailability, AggregationOffer, AggregationUnavailable, CollectiveOperation, InterHostMethod,
    MethodPreferences, MulticastSupport,
};
use reduce::{ElementType, Operator, ReductionKind};
use serde::{Deserialize, Serialize};
use units::{GroupId, Rank};

use crate::communicator_inner::{CommunicatorInner, SelectionContext};
use crate::error::{Error, JoinError};
use crate::job_process::JobAdmission;
use crate::method_trial;
use crate::network_costs::NetworkCosts;
use crate::settings::ResultDeliveryMode;
use crate::tree_renewal::describe_tree;

/// What the key that encrypts the manager's reply is for.
const REPLY_KEY: &[u8] = b"reply of the manager";
/// What the key that encrypts another tree for a running communicator is for.
const OFFER_KEY: &[u8] = b"another tree";
/// How long the manager may take to answer.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(10);
/// Segments in flight: enough to cover a round trip at several gigabytes a second.
const WINDOW: u32 = 64;
/// Barriers that test whether multicast reaches all hosts. Several, since one may be lost.
const MULTICAST_TRIALS: usize = 4;

/// Multicast groups for results: the port of RoCEv2, in a range for use within an organisation (RFC 2365).
const MULTICAST_PORT: u16 = 4791;
const MULTICAST_RANGE: u32 = 0xefc0_0000;
const MULTICAST_MASK: u32 = 0x0003_ffff;

/// The communicator of all ranks of the job.
const WORLD_CONTEXT: GroupId = GroupId(0);

/// What the first rank broadcasts. Serialized names are part of the protocol.
#[derive(Serialize, Deserialize)]
struct AggregationReply {
    admission: Option<JobAdmission>,
    group: Option<GroupDescriptor>,
    #[serde(rename = "refusal")]
    no_tree: NoTreeReason,
    /// Why there is a tree, or none, for people.
    #[serde(rename = "words")]
    reason: String,
    /// The first rank's preferences, which hold for all: all ranks must use the same method.
    algorithms: String,
    /// What the first rank knows of the network.
    #[serde(default)]
    network_costs: Option<NetworkCosts>,
    /// A job without a tree must not start.
    is_required: bool,
}

/// Why there is no tree, in the selector's terms. The names are part of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum NoTreeReason {
    Unmanaged,
    Unserved,
    Full,
    Refused,
    /// The manager could not be used; also what another version calls by a name that is unknown here.
    #[serde(other)]
    Unusable,
}

impl NoTreeReason {
    fn of(error: &RequestError) -> Self {
        match error {
            RequestError::Manager(ClientError::Rejected(error)) => match error {
                ControlError::NoNode | ControlError::NotServed { .. } => Self::Unserved,
                ControlError::NodeFull { .. } => Self::Full,
                _ => Self::Refused,
            },
            RequestError::Manager(_) | RequestError::Settings(_) => Self::Unusable,
        }
    }
}

impl From<NoTreeReason> for AggregationUnavailable {
    fn from(reason: NoTreeReason) -> Self {
        match reason {
            NoTreeReason::Unmanaged => Self::NoManager,
            NoTreeReason::Unserved => Self::NoNodes,
            NoTreeReason::Full => Self::NoCapacity,
            NoTreeReason::Refused => Self::Refused,
            NoTreeReason::Unusable => Self::ManagerUnusable,
        }
    }
}

/// Gives the communicator a tree if the manager grants one. Collective: all ranks call this.
pub(crate) fn request_tree(communicator: &CommunicatorInner) -> Result<(), JoinError> {
    if communicator.hosts().len() < 2 {
        communicator.set_selection(SelectionContext {
            aggregation: AggregationAvailability::Unavailable(AggregationUnavailable::SingleHost),
            preferences: MethodPreferences::default(),
            network_costs: None,
            measured: None,
            reason: "a single host needs none".to_owned(),
        });
        return Ok(());
    }
    let wanted = distribution(communicator);
    let mut reply = ask_for_all(communicator, wanted)?;
    let is_trial = communicator.process().settings.result_delivery == ResultDeliveryMode::Automatic
        && wanted != DistributionSpec::Edges;
    if is_trial && reply.group.is_some() && !multicast_reaches_all(communicator)? {
        return_tree(communicator);
        reply = ask_for_all(communicator, DistributionSpec::Edges)?;
        reply.reason += ", multicast does not reach all hosts";
    }
    if reply.group.is_none() && reply.is_required {
        return Err(JoinError::NoNodes { reason: reply.reason });
    }
    let preferences: MethodPreferences = reply.algorithms.parse().map_err(Error::internal)?;
    let network_costs = reply.network_costs.map(|found| found.costs());
    let aggregation = match &reply.group {
        None => AggregationAvailability::Unavailable(reply.no_tree.into()),
        Some(group) => AggregationAvailability::Offered(AggregationOffer {
            max_bytes: u32::MAX,
            levels: levels(&group.fold),
            children: max_children(&group.fold),
            multicast: match group.distribution {
                DistributionSpec::Multicast { .. } => MulticastSupport::Verified,
                DistributionSpec::Edges | DistributionSpec::Both { .. } => MulticastSupport::Disabled,
            },
        }),
    };
    let measured = match aggregation {
        AggregationAvailability::Offered(_) if !preferences.covers_reductions() => {
            Some(method_trial::measure(communicator, aggregation, network_costs)?)
        }
        _ => None,
    };
    let reason = reply.reason;
    communicator.set_selection(SelectionContext { aggregation, preferences, network_costs, measured, reason });
    if communicator.rank() == 0 {
        communicator.process().shared.engine().confirm_tree(communicator.context());
    }
    Ok(())
}

/// The first rank asks the manager and broadcasts the reply; leaders join the tree if there is one.
fn ask_for_all(communicator: &CommunicatorInner, distribution: DistributionSpec) -> Result<AggregationReply, Error> {
    let mut bytes = match communicator.rank() {
        0 => seal(communicator, &ask(communicator, distribution))?,
        _ => Vec::new(),
    };
    let broadcast = CollectiveOperation::Broadcast { root: Rank(0) };
    let mut length = (bytes.len() as u64).to_le_bytes();
    communicator.run(broadcast, &mut length)?;
    bytes.resize(usize::try_from(u64::from_le_bytes(length)).unwrap_or_default(), 0);
    communicator.run(broadcast, &mut bytes)?;
    let key = communicator.process().channel_key(REPLY_KEY);
    let bytes = open_bytes(&key, &bytes).map_err(|_| Error::internal("the manager's reply is not authentic"))?;
    let reply: AggregationReply = serde_json::from_slice(&bytes).map_err(Error::internal)?;
    let process = communicator.process();
    if let Some(admission) = &reply.admission {
        let _ = process.admission.set(admission.clone());
    }
    if let Some(group) = reply.group.as_ref().filter(|_| communicator.is_leader()) {
        let tree_request = group_request(communicator, group.distribution);
        let mut engine = process.shared.engine();
        if communicator.rank() == 0 {
            let request = GroupRequest { avoid: Vec::new(), ..tree_request };
            engine.own_tree(communicator.context(), request, group);
        }
        engine.set_offer_key(process.channel_key(OFFER_KEY));
        let attached = engine.network.attach_tree(communicator.context(), group.clone());
        attached.map_err(|error| Error::between_hosts(error, communicator.process().rank))?;
        drop(engine);
        process.shared.watch_sockets().map_err(Error::internal)?;
    }
    Ok(reply)
}

/// The reply has the group's key and the job's ticket, and goes over sockets whose packets are not encrypted.
fn seal(communicator: &CommunicatorInner, reply: &AggregationReply) -> Result<Vec<u8>, Error> {
    let bytes = serde_json::to_vec(reply).map_err(Error::internal)?;
    let key = communicator.process().channel_key(REPLY_KEY);
    seal_bytes(&key, &bytes).map_err(|_| Error::internal("the kernel has no random numbers"))
}

/// Tests whether multicasts of the nodes reach all leaders: by some barriers through the tree, and then a minimum among the hosts.
fn multicast_reaches_all(communicator: &CommunicatorInner) -> Result<bool, Error> {
    let (shared, context, me) = (&communicator.process().shared, communicator.context(), communicator.process().rank);
    let mut is_reached = [1_u8];
    if communicator.is_leader() {
        for _ in 0..MULTICAST_TRIALS {
            let (method, barrier) = (InterHostMethod::Aggregation, CollectiveOperation::Barrier);
            let handle = shared.engine().network.start(context, method, barrier, Vec::new());
            shared.wait_for(None, |engine| {
                let result = engine.network.take(handle);
                let result = result.map(|done| done.map(drop).map_err(|error| Error::between_hosts(error, me)));
                result.or_else(|| engine.failure_of(context, communicator.world_ranks()).map(Err))
            })?;
        }
        is_reached = [u8::from(shared.engine().network.multicasts_received(context) > 0)];
    }
    let kind = ReductionKind::new(ElementType::U8, Operator::Min).map_err(Error::internal)?;
    communicator.run(CollectiveOperation::AllReduce { kind }, &mut is_reached)?;
    Ok(is_reached == [1])
}

/// Leaves the tree and returns it to the manager.
fn return_tree(communicator: &CommunicatorInner) {
    if communicator.is_leader() {
        let mut engine = communicator.process().shared.engine();
        engine.network.detach_tree(communicator.context());
        if communicator.rank() == 0 {
            engine.release_tree(communicator.context());
        }
    }
}

/// Why the manager gave no tree.
enum RequestError {
    /// The credential or the manager's address is unusable.
    Settings(String),
    Manager(ClientError),
}

impl From<ClientError> for RequestError {
    fn from(error: ClientError) -> Self {
        Self::Manager(error)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(what) => f.write_str(what),
            Self::Manager(error) => error.fmt(f),
        }
    }
}

/// Asks the manager for a tree. Any failure becomes a reason to continue without.
fn ask(communicator: &CommunicatorInner, distribution: DistributionSpec) -> AggregationReply {
    let process = communicator.process();
    let admission = process.admission.get().cloned();
    let mut reply = AggregationReply {
        admission: None,
        group: None,
        no_tree: NoTreeReason::Unmanaged,
        reason: "no manager is configured (PLEACH_MANAGER)".to_owned(),
        algorithms: process.settings.algorithms.to_string(),
        network_costs: process.settings.network_costs,
        // A job does not start without nodes; later communicators may do without.
        is_required: process.settings.manager_required && communicator.context() == WORLD_CONTEXT,
    };
    if admission.is_none() && process.settings.manager.is_none() {
        return reply;
    }
    // The engine is not locked meanwhile: other ranks may need it while the manager works.
    let client = process.shared.engine().manager.take();
    let client = client.map_or_else(|| connect(communicator, admission, &mut reply.admission), Ok);
    let opened = client.and_then(|mut client| {
        let opened = client.open_group(group_request(communicator, distribution));
        process.shared.engine().manager = Some(client);
        opened.map_err(RequestError::Manager)
    });
    match opened {
        Ok(group) => {
            let delivery = match group.distribution {
                DistributionSpec::Edges => "over connections",
                DistributionSpec::Multicast { .. } => "by multicast",
                DistributionSpec::Both { .. } => "both over connections and by multicast",
            };
            reply.reason = format!("{}, results {delivery}", describe_tree(&group));
            reply.group = Some(group);
        }
        Err(error) => {
            reply.no_tree = NoTreeReason::of(&error);
            reply.reason = error.to_string();
            if process.rank == 0 && communicator.context() == WORLD_CONTEXT && !reply.is_required {
                report_no_nodes(&process.settings.manager, &reply.reason);
            }
        }
    }
    reply
}

/// A manager was named, and is not used: that must not go unnoticed.
fn report_no_nodes(manager: &Option<String>, reason: &str) {
    let check = manager.as_ref().map_or_else(String::new, |manager| format!(" --manager {manager}"));
    let line = format!(
        "pleach: warning: the job runs without aggregation nodes: {reason}. `pleach doctor{check}` checks the cluster; \
         PLEACH_MANAGER_REQUIRED=1 makes this an error\n"
    );
    let _ = std::io::stderr().write_all(line.as_bytes()); // One write: other ranks may print too. Without stderr there is nobody to tell.
}

/// Connects to the manager. A job that the manager does not know yet is admitted, and `admitted` is set.
fn connect(
    communicator: &CommunicatorInner,
    admission: Option<JobAdmission>,
    admitted: &mut Option<JobAdmission>,
) -> Result<ManagerClient, RequestError> {
    let process = communicator.process();
    let credential =
        ControlCredential::from_environment().map_err(|error| RequestError::Settings(error.to_string()))?;
    if let Some(JobAdmission { manager, ticket, quota }) = admission {
        let mut client = ManagerClient::connect(manager, credential, MANAGER_TIMEOUT)?;
        client.attach_job(ticket, &process.job, quota)?;
        return Ok(client);
    }
    let name = process.settings.manager.clone().unwrap_or_default();
    let unknown = |why: String| {
        RequestError::Settings(format!("the address of the manager, {name} (PLEACH_MANAGER), is not found: {why}"))
    };
    let mut resolved = name.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    let manager = resolved.next().ok_or_else(|| unknown("the name has no address".to_owned()))?;
    let mut client = ManagerClient::connect(manager, credential, MANAGER_TIMEOUT)?;
    let (ticket, quota) = client.open_job(&process.job, None)?;
    *admitted = Some(JobAdmission { manager, ticket, quota });
    Ok(client)
}

/// How to request that results are delivered. Groups that happen to get the same multicast address do not disturb each other.
fn distribution(communicator: &CommunicatorInner) -> DistributionSpec {
    let process = communicator.process();
    let cards = process.table.records();
    let all_are_v4 = cards.iter().all(|card| card.addresses.iter().all(SocketAddr::is_ipv4));
    // A multicast has no alternate path to migrate to when the first one fails.
    let all_have_one_path = cards.iter().all(|card| card.addresses.len() == 1);
    let group = process.secret_number(communicator.context(), "multicast") as u32 & MULTICAST_MASK;
    let to = SocketAddr::from((Ipv4Addr::from(MULTICAST_RANGE | group), MULTICAST_PORT));
    match process.settings.result_delivery {
        ResultDeliveryMode::Automatic if all_are_v4 && all_have_one_path => DistributionSpec::Multicast { to },
        ResultDeliveryMode::Multicast if all_are_v4 => DistributionSpec::Multicast { to },
        ResultDeliveryMode::Both if all_are_v4 => DistributionSpec::Both { to },
        _ => DistributionSpec::Edges,
    }
}

fn group_request(communicator: &CommunicatorInner, distribution: DistributionSpec) -> GroupRequest {
    let process = communicator.process();
    let leaders = communicator.hosts().iter().filter_map(|host| {
        let rank = communicator.world_ranks()[host[0] as usize];
        let card = process.table.record(rank)?;
        let host = process.host_names.get(rank as usize)?.clone();
        Some(GroupLeader { rank: Rank(rank), host, addresses: card.addresses.clone() })
    });
    GroupRequest {
        leaders: leaders.collect(),
        window: WINDOW,
        segment_bytes: process.segment_bytes,
        distribution,
        avoid: process.shared.engine().lost_nodes.to_avoid(Instant::now()),
    }
}

fn levels(fold: &FoldTree) -> u8 {
    match fold {
        FoldTree::Leader(_) => 0,
        FoldTree::Fold(parts) => parts.iter().map(levels).max().unwrap_or(0).saturating_add(1),
    }
}

fn max_children(fold: &FoldTree) -> u16 {
    match fold {
        FoldTree::Leader(_) => 0,
        FoldTree::Fold(parts) => {
            parts.iter().map(max_children).max().unwrap_or(0).max(u16::try_from(parts.len()).unwrap_or(u16::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failed_request_has_its_true_reason() {
        let manager = SocketAddr::from(([127, 0, 0, 1], 9));
        let rejected = |error| RequestError::Manager(ClientError::Rejected(error));
        let resource = manager::NodeResource::Groups;
        for (error, reason) in [
            (RequestError::Settings("no such file".to_owned()), NoTreeReason::Unusable),
            (ClientError::Lost { manager, why: "refused".to_owned() }.into(), NoTreeReason::Unusable),
            (ClientError::WrongSecret { manager, why: "another".to_owned() }.into(), NoTreeReason::Unusable),
            (ClientError::TimedOut { manager, waited: MANAGER_TIMEOUT }.into(), NoTreeReason::Unusable),
            (rejected(ControlError::NoNode), NoTreeReason::Unserved),
            (rejected(ControlError::NotServed { host: "a".to_owned() }), NoTreeReason::Unserved),
            (
                rejected(ControlError::NodeFull { node: "one".to_owned(), resource, wanted: 1, free: 0 }),
                NoTreeReason::Full,
            ),
            (
                rejected(ControlError::QuotaFull { node: String::new(), resource, wanted: 1, free: 0 }),
                NoTreeReason::Refused,
            ),
            (rejected(ControlError::NotPermitted), NoTreeReason::Refused),
            (rejected(ControlError::WrongTicket), NoTreeReason::Refused),
        ] {
            assert_eq!(NoTreeReason::of(&error), reason, "{error}");
        }
    }

    #[test]
    fn reasons_of_other_versions_can_be_read() {
        for (reason, text) in [
            (NoTreeReason::Unmanaged, "\"Unmanaged\""),
            (NoTreeReason::Unserved, "\"Unserved\""),
            (NoTreeReason::Full, "\"Full\""),
            (NoTreeReason::Refused, "\"Refused\""),
            (NoTreeReason::Unusable, "\"Unusable\""),
        ] {
            assert_eq!(serde_json::to_string(&reason).expect("text"), text);
            assert_eq!(serde_json::from_str::<NoTreeReason>(text).expect("a known name"), reason);
        }
        let unknown: NoTreeReason = serde_json::from_str("\"Later\"").expect("a name of another version");
        assert_eq!(unknown, NoTreeReason::Unusable);
    }
}
