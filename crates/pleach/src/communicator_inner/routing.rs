//! The route of an operation: which calls within the host, and which method between hosts.

use hostmem::team::TeamCall;
use protocol::collective::{
    AggregationAvailability, AggregationUnavailable, CollectiveOperation, InterHostMethod, MethodChoice,
    MethodPreferences, OperandOrder, SelectionInput, TransportClass, choose_method,
};
use units::Rank;

use super::{CommunicatorInner, CommunicatorState, SelectionContext};
use crate::error::Error;
use crate::hierarchical_operation::{CollectiveRoute, HostRole, barrier_kind, host_rank};
use crate::progress_engine::TreeCondition;

/// Kinds of operations whose routes are cached.
const MAX_CACHED_ROUTES: usize = 4;

impl CommunicatorInner {
    /// Sets how the methods of later operations are chosen.
    pub(crate) fn set_selection(&self, selection: SelectionContext) {
        *self.selection() = selection;
        self.state().routes.clear();
    }

    /// Sets the preferences of later operations; returns the earlier ones. The same at all ranks.
    pub(crate) fn prefer(&self, preferences: MethodPreferences) -> MethodPreferences {
        let before = std::mem::replace(&mut self.selection().preferences, preferences);
        self.state().routes.clear();
        before
    }

    /// How an operation would be done between hosts, and why.
    pub(crate) fn explain(&self, collective: CollectiveOperation, bytes: usize) -> String {
        let choice = self.choose(collective, bytes);
        if !matches!(self.selection().aggregation, AggregationAvailability::Offered(_)) {
            return format!("{choice} No aggregation nodes: {}.", self.selection().reason);
        }
        let condition = self.process.shared.engine().tree_condition(self.context);
        let agreed = self.selection().reason.clone();
        match condition {
            Some(TreeCondition::Works(tree)) if agreed.starts_with(&tree) => {
                format!("{choice} Aggregation nodes: {agreed}.")
            }
            Some(TreeCondition::Works(tree)) => {
                format!("{choice} Aggregation nodes: {tree}, after another tree failed.")
            }
            Some(TreeCondition::Failed(why)) => {
                format!("{} No aggregation nodes: {why}.", self.choose_after_loss(&choice, collective, bytes))
            }
            None => format!(
                "{choice} Aggregation nodes when the communicator was formed: {agreed}; only one rank of each host knows whether they \
                 still work, and this is another one."
            ),
        }
    }

    /// The host of a rank, and its local rank there.
    fn locate(&self, rank: u32) -> Result<(usize, u16), Error> {
        let found = self.layout.hosts.iter().enumerate().find_map(|(host, ranks)| {
            ranks.iter().position(|found| *found == rank).map(|local| (host, local as u16))
        });
        let size = self.layout.ranks.len();
        found.ok_or_else(|| Error::invalid(format!("root {rank} is not a rank of this communicator of {size} ranks")))
    }

    /// The operation among the leaders of hosts.
    pub(super) fn inter_host(&self, collective: CollectiveOperation) -> Result<CollectiveOperation, Error> {
        let host_of = |root: Rank| self.locate(root.0).map(|(host, _)| host_rank(host));
        Ok(match collective {
            CollectiveOperation::Broadcast { root } => CollectiveOperation::Broadcast { root: host_of(root)? },
            CollectiveOperation::Reduce { root, kind } => CollectiveOperation::Reduce { root: host_of(root)?, kind },
            CollectiveOperation::Gather { root } => CollectiveOperation::Gather { root: host_of(root)? },
            CollectiveOperation::Scatter { root } => CollectiveOperation::Scatter { root: host_of(root)? },
            other => other,
        })
    }

    pub(super) fn choose(&self, collective: CollectiveOperation, bytes: usize) -> MethodChoice {
        choose_method(&self.selection_input(collective, bytes))
    }

    /// What becomes of a choice when the tree has failed: the hosts do in the tree's order what the nodes did (P-59).
    fn choose_after_loss(
        &self,
        chosen: &MethodChoice,
        collective: CollectiveOperation,
        bytes: usize,
    ) -> MethodChoice {
        let operand_order = match chosen.method {
            InterHostMethod::Aggregation | InterHostMethod::Multicast => OperandOrder::TreeOrder,
            InterHostMethod::SingleHost | InterHostMethod::PointToPoint(_) => OperandOrder::Any,
        };
        choose_method(&SelectionInput {
            operand_order,
            aggregation: AggregationAvailability::Unavailable(AggregationUnavailable::NodeLost),
            ..self.selection_input(collective, bytes)
        })
    }

    fn selection_input(&self, collective: CollectiveOperation, bytes: usize) -> SelectionInput {
        let (aggregation, preferences, network_costs, measured) = {
            let selection = self.selection();
            (selection.aggregation, selection.preferences, selection.network_costs, selection.measured)
        };
        SelectionInput {
            collective,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            size: self.layout.hosts.len() as u32,
            ranks_per_host: 1,
            ranks_per_processor: self.leaders_per_cpu,
            operand_order: OperandOrder::Any,
            aggregation,
            transport: TransportClass::Datagrams,
            network_costs,
            measured,
            preferred: preferences.of(&collective),
        }
    }

    /// The route of an operation, from the cache if it was among the last.
    #[inline]
    pub(super) fn route(
        &self,
        state: &mut CommunicatorState,
        collective: CollectiveOperation,
        bytes: usize,
    ) -> Result<CollectiveRoute, Error> {
        if self.layout.hosts.len() == 1 {
            return self.route_within_host(collective);
        }
        let cached = state.routes.iter().find(|(what, length, _)| (*what, *length) == (collective, bytes));
        if let Some((_, _, route)) = cached {
            return Ok(*route);
        }
        let route = self.route_between_hosts(collective, bytes)?;
        if state.routes.len() == MAX_CACHED_ROUTES {
            state.routes.pop_front();
        }
        state.routes.push_back((collective, bytes, route));
        Ok(route)
    }

    /// The one call that does an operation if all ranks are on this host.
    #[inline]
    pub(super) fn call_within_host(&self, collective: CollectiveOperation) -> Result<TeamCall, Error> {
        let local = |root: Rank| self.locate(root.0).map(|(_, local)| local);
        Ok(match collective {
            CollectiveOperation::Barrier => TeamCall::Barrier,
            CollectiveOperation::Broadcast { root } => TeamCall::Broadcast { root: local(root)? },
            CollectiveOperation::Reduce { root, kind } => TeamCall::Reduce { root: local(root)?, kind },
            CollectiveOperation::AllReduce { kind } => TeamCall::AllReduce { kind },
            other => return Err(not_whole(other)),
        })
    }

    fn route_within_host(&self, collective: CollectiveOperation) -> Result<CollectiveRoute, Error> {
        Ok(CollectiveRoute {
            up: Some(self.call_within_host(collective)?),
            inter_host: (collective, InterHostMethod::SingleHost),
            streamed: None,
            down: false,
            role: HostRole::Follower,
            context: self.context,
            local_rank: self.layout.local_rank,
        })
    }

    #[cold]
    fn route_between_hosts(&self, collective: CollectiveOperation, bytes: usize) -> Result<CollectiveRoute, Error> {
        let this_host = self.layout.host;
        let shares = self.layout.hosts[this_host].len() > 1;
        let inter_host = self.inter_host(collective)?;
        let within = |call: TeamCall| shares.then_some(call);
        let (up, down) = match collective {
            CollectiveOperation::Barrier => (within(TeamCall::Reduce { root: 0, kind: barrier_kind() }), shares),
            CollectiveOperation::AllReduce { kind } => (within(TeamCall::Reduce { root: 0, kind }), shares),
            CollectiveOperation::Reduce { root, kind } => {
                let (host, local) = self.locate(root.0)?;
                (within(TeamCall::Reduce { root: 0, kind }), shares && host == this_host && local != 0)
            }
            CollectiveOperation::Broadcast { root } => {
                let (host, local) = self.locate(root.0)?;
                let is_here = host == this_host;
                (within(TeamCall::Broadcast { root: local }).filter(|_| is_here), shares && !is_here)
            }
            other => return Err(not_whole(other)),
        };
        let role = if self.is_leader() { HostRole::Leader } else { HostRole::Follower };
        let method = self.choose(inter_host, bytes).method;
        let (context, local_rank) = (self.context, self.layout.local_rank);
        let hosts = self.layout.hosts.len() as u32;
        let streamed = u32::try_from(bytes).ok().and_then(|bytes| method.streamed(&inter_host, hosts, bytes));
        Ok(CollectiveRoute { up, inter_host: (inter_host, method), streamed, down, role, context, local_rank })
    }
}

/// Operations on blocks have a route of their own (`block_execution`).
fn not_whole(collective: CollectiveOperation) -> Error {
    Error::internal(format!("{collective} does not move whole vectors"))
}
