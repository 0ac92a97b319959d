//! How a communicator gets an aggregation tree: its first rank asks the manager and tells all others the answer.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use control::{ClientError, ClusterSecret, ManagerClient};
use manager::message::{GroupKey, Quota};
use manager::{ControlError, DistributionSpec, FoldTree, GroupDescriptor, GroupLeader, GroupRequest, JobTicket};
use protocol::collective::{
    AggregationAvailability, AggregationOffer, AggregationUnavailable, CollectiveOperation, InterHostMethod,
    MethodPreferences, MulticastSupport,
};
use serde::{Deserialize, Serialize};
use units::Rank;

use crate::communicator_inner::CommunicatorInner;
use crate::progress_engine::ProgressEngine;
use crate::{ElementType, Error, Operator, ReductionKind, ResultDeliveryMode};

/// How long the manager may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Segments in flight: enough to cover a round trip at several gigabytes a second.
const WINDOW: u32 = 64;

/// Barriers by which multicast is tried; one may get lost.
const TRIALS: usize = 4;

/// A job that the manager knows, for whichever rank speaks with it next.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct JobAdmission {
    manager: SocketAddr,
    ticket: JobTicket,
    quota: Quota,
}

/// What the first rank tells the others.
#[derive(Serialize, Deserialize)]
struct AggregationReply {
    admission: Option<JobAdmission>,
    group: Option<GroupDescriptor>,
    refusal: NoTreeReason,
    words: String,
    /// What the first rank wants of algorithms: all must do the same.
    algorithms: String,
}

/// Why there is no tree, in the selector's terms.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum NoTreeReason {
    Unmanaged,
    Unserved,
    Full,
}

impl From<NoTreeReason> for AggregationUnavailable {
    fn from(why: NoTreeReason) -> Self {
        match why {
            NoTreeReason::Unmanaged => Self::NoManager,
            NoTreeReason::Unserved => Self::NoNodes,
            NoTreeReason::Full => Self::NoRoom,
        }
    }
}

impl CommunicatorInner {
    /// Gives the communicator a tree if it can be had. All ranks do this together.
    pub(crate) fn equip(&self) -> Result<(), Error> {
        if self.hosts().len() < 2 {
            let none = AggregationAvailability::NotOffered(AggregationUnavailable::NoNodes);
            return self.set_aggregation(none, MethodPreferences::default(), "all ranks are on one host");
        }
        let wanted = self.distribution();
        let mut answer = self.ask_for_all(wanted)?;
        let is_trial =
            self.process().settings.results == ResultDeliveryMode::Automatic && wanted != DistributionSpec::Edges;
        if is_trial && answer.group.is_some() && !self.hear_multicast()? {
            self.do_without();
            answer = self.ask_for_all(DistributionSpec::Edges)?;
            answer.words += ", multicast is not heard everywhere";
        }
        let algorithms = answer.algorithms.parse().map_err(Error::broken)?;
        let Some(group) = answer.group else {
            return self.set_aggregation(
                AggregationAvailability::NotOffered(answer.refusal.into()),
                algorithms,
                &answer.words,
            );
        };
        let offer = AggregationOffer {
            most_bytes: u32::MAX,
            levels: levels(&group.fold),
            children: most_children(&group.fold),
            multicast: match group.distribution {
                DistributionSpec::Multicast { .. } => MulticastSupport::Heard,
                DistributionSpec::Edges | DistributionSpec::Both { .. } => MulticastSupport::Unused,
            },
        };
        self.set_aggregation(AggregationAvailability::Offered(offer), algorithms, &answer.words)
    }

    /// The first rank asks the manager, all hear the answer, and leaders take their places in the tree if there is one.
    fn ask_for_all(&self, distribution: DistributionSpec) -> Result<AggregationReply, Error> {
        let mut bytes = match self.me() {
            0 => serde_json::to_vec(&self.ask(distribution)).map_err(Error::broken)?,
            _ => Vec::new(),
        };
        let broadcast = CollectiveOperation::Broadcast { root: Rank(0) };
        let mut length = (bytes.len() as u64).to_le_bytes();
        self.run(broadcast, &mut length)?;
        bytes.resize(usize::try_from(u64::from_le_bytes(length)).unwrap_or_default(), 0);
        self.run(broadcast, &mut bytes)?;
        let answer: AggregationReply = serde_json::from_slice(&bytes).map_err(Error::broken)?;
        if let Some(admission) = &answer.admission {
            let _ = self.process().admission.set(admission.clone());
        }
        if let Some(group) = answer.group.as_ref().filter(|_| self.leads()) {
            let mut engine = self.process().shared.engine();
            if self.me() == 0 {
                let key = GroupKey { group: group.group, epoch: group.epoch };
                engine.own_tree(self.context(), key, self.hosts().len());
            }
            engine.network.plant(self.context(), group.clone())?;
            drop(engine);
            self.process().shared.watch_sockets().map_err(Error::broken)?;
        }
        Ok(answer)
    }

    /// Whether all leaders hear what the nodes multicast: some barriers through the tree, and then a word among the hosts.
    fn hear_multicast(&self) -> Result<bool, Error> {
        let (shared, context) = (&self.process().shared, self.context());
        let mut hears = [1_u8];
        if self.leads() {
            for _ in 0..TRIALS {
                let start = |engine: &mut ProgressEngine| {
                    engine.network.start(
                        context,
                        InterHostMethod::Aggregation,
                        CollectiveOperation::Barrier,
                        Vec::new(),
                    )
                };
                let ticket = start(&mut shared.engine());
                shared.wait_for(None, |engine| {
                    let end = engine.network.take(ticket).map(|end| end.map(drop).map_err(Error::from));
                    end.or_else(|| engine.verdict(context, self.world_ranks()).map(Err))
                })?;
            }
            hears = [u8::from(shared.engine().network.heard(context) > 0)];
        }
        let kind = ReductionKind::new(ElementType::U8, Operator::Min).map_err(Error::broken)?;
        self.run(CollectiveOperation::AllReduce { kind }, &mut hears)?;
        Ok(hears == [1])
    }

    /// Gives the tree back.
    fn do_without(&self) {
        if self.leads() {
            let mut engine = self.process().shared.engine();
            engine.network.uproot(self.context());
            if self.me() == 0 {
                engine.disown_tree(self.context());
            }
        }
    }

    /// Asks the manager. Whatever goes wrong is a reason to do without.
    fn ask(&self, distribution: DistributionSpec) -> AggregationReply {
        let admission = self.process().admission.get().cloned();
        let algorithms = self.process().settings.algorithms.to_string();
        if admission.is_none() && self.process().settings.manager.is_none() {
            let words = "no manager was named (PLEACH_MANAGER)".to_owned();
            return AggregationReply {
                admission: None,
                group: None,
                refusal: NoTreeReason::Unmanaged,
                words,
                algorithms,
            };
        }
        // Not under the engine's lock: the others may need it while the manager thinks.
        let client = self.process().shared.engine().manager.take();
        let mut admitted = None;
        let asked = client.map_or_else(|| self.reach(admission, &mut admitted), Ok).and_then(|mut client| {
            let opened = client.open_group(self.request(distribution));
            self.process().shared.engine().manager = Some(client);
            opened
        });
        match asked {
            Ok(group) => {
                let way = match group.distribution {
                    DistributionSpec::Edges => "over connections",
                    DistributionSpec::Multicast { .. } => "by multicast",
                    DistributionSpec::Both { .. } => "both ways",
                };
                let words = format!("group {} with {} seats, results {way}", group.group.0, group.seats.len());
                AggregationReply {
                    admission: admitted,
                    group: Some(group),
                    refusal: NoTreeReason::Unmanaged,
                    words,
                    algorithms,
                }
            }
            Err(error) => {
                let refusal = match &error {
                    ClientError::Refused(ControlError::NodeFull { .. } | ControlError::QuotaFull { .. }) => {
                        NoTreeReason::Full
                    }
                    ClientError::Refused(_) => NoTreeReason::Unserved,
                    _ => NoTreeReason::Unmanaged,
                };
                AggregationReply { admission: admitted, group: None, refusal, words: error.to_string(), algorithms }
            }
        }
    }

    fn reach(
        &self,
        admission: Option<JobAdmission>,
        admitted: &mut Option<JobAdmission>,
    ) -> Result<ManagerClient, ClientError> {
        let unreachable = |why: String| ClientError::Lost { manager: SocketAddr::from(([0, 0, 0, 0], 0)), why };
        let secret = ClusterSecret::from_environment().map_err(|error| unreachable(error.to_string()))?;
        let job = &self.process().job;
        if let Some(JobAdmission { manager, ticket, quota }) = admission {
            let mut client = ManagerClient::connect(manager, secret, PATIENCE)?;
            client.attach_job(ticket, job, quota)?;
            return Ok(client);
        }
        let name = self.process().settings.manager.clone().unwrap_or_default();
        let resolved = name.to_socket_addrs().map_err(|error| unreachable(format!("{name}: {error}")))?.next();
        let manager = resolved.ok_or_else(|| unreachable(format!("{name} is no address")))?;
        let mut client = ManagerClient::connect(manager, secret, PATIENCE)?;
        let (ticket, quota) = client.open_job(job, None)?;
        *admitted = Some(JobAdmission { manager, ticket, quota });
        Ok(client)
    }

    /// How results shall come. Groups that happen to share an address do not disturb each other.
    fn distribution(&self) -> DistributionSpec {
        let process = self.process();
        let cards = process.table.cards();
        let all_are_v4 = cards.iter().all(|card| card.addresses.iter().all(SocketAddr::is_ipv4));
        // A multicast has no second path to go to when the first one fails.
        let one_path = cards.iter().all(|card| card.addresses.len() == 1);
        let spot = process.secret_number(self.context(), "multicast") as u32 & MULTICAST_HOSTS;
        let to = SocketAddr::from((Ipv4Addr::from(MULTICAST_RANGE | spot), MULTICAST_PORT));
        match process.settings.results {
            ResultDeliveryMode::Automatic if all_are_v4 && one_path => DistributionSpec::Multicast { to },
            ResultDeliveryMode::Multicast if all_are_v4 => DistributionSpec::Multicast { to },
            ResultDeliveryMode::Both if all_are_v4 => DistributionSpec::Both { to },
            _ => DistributionSpec::Edges,
        }
    }

    fn request(&self, distribution: DistributionSpec) -> GroupRequest {
        let process = self.process();
        let leaders = self.hosts().iter().filter_map(|host| {
            let rank = self.world_ranks()[host[0] as usize];
            let card = process.table.card(rank)?;
            let host = process.host_names.get(rank as usize)?.clone();
            Some(GroupLeader { rank: Rank(rank), host, addresses: card.addresses.clone() })
        });
        GroupRequest {
            leaders: leaders.collect(),
            window: WINDOW,
            segment_bytes: process.segment_bytes,
            distribution,
            avoid: Vec::new(),
        }
    }
}

/// Where results of multicast are sent: the port of RoCEv2, in a range for use within an organisation (RFC 2365).
const MULTICAST_PORT: u16 = 4791;
const MULTICAST_RANGE: u32 = 0xefc0_0000;
const MULTICAST_HOSTS: u32 = 0x0003_ffff;

fn levels(fold: &FoldTree) -> u8 {
    match fold {
        FoldTree::Leader(_) => 0,
        FoldTree::Fold(parts) => parts.iter().map(levels).max().unwrap_or(0).saturating_add(1),
    }
}

fn most_children(fold: &FoldTree) -> u16 {
    match fold {
        FoldTree::Leader(_) => 0,
        FoldTree::Fold(parts) => {
            parts.iter().map(most_children).max().unwrap_or(0).max(u16::try_from(parts.len()).unwrap_or(u16::MAX))
        }
    }
}
