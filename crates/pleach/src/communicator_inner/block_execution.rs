//! Runs operations on blocks and prefixes: their route, then the same stages as those of other operations.

use hostmem::team::CollectiveBuffers;
use protocol::collective::InterHostMethod;

use super::{CommunicatorInner, CommunicatorState};
use crate::block_operation::{BlockCall, BlockOperation};
use crate::error::Error;
use crate::hierarchical_operation::{CollectiveRoute, HierarchicalOperation, HostRole};

/// The longest vector that a leader moves between hosts in one operation.
const MAX_BYTES_BETWEEN_HOSTS: usize = 1 << 30;

impl CommunicatorInner {
    /// Runs an operation, and blocks until it is complete; this rank's result. The caller has checked the lengths.
    pub(crate) fn run_blocks(&self, call: BlockCall, input: Vec<u8>) -> Result<Vec<u8>, Error> {
        let mut state = self.state();
        let is_alone = state.queue.is_empty() && state.suspected.is_none();
        let mut operation = self.begin_blocks(&mut state, call, input)?;
        let _in_library = self.process.activity.enter();
        if is_alone {
            self.complete(&mut state, &mut operation, &mut CollectiveBuffers::Empty)?;
            return Ok(operation.take_result().unwrap_or_default());
        }
        let id = operation.id;
        state.queue.push_back(operation);
        self.wait_for(&mut state, id, None)
    }

    /// Starts an operation.
    pub(crate) fn start_blocks(&self, call: BlockCall, input: Vec<u8>) -> Result<u64, Error> {
        let _in_library = self.process.activity.enter();
        let mut state = self.state();
        let operation = self.begin_blocks(&mut state, call, input)?;
        let id = operation.id;
        state.queue.push_back(operation);
        self.advance(&mut state, None);
        Ok(id)
    }

    fn begin_blocks(
        &self,
        state: &mut CommunicatorState,
        call: BlockCall,
        input: Vec<u8>,
    ) -> Result<HierarchicalOperation, Error> {
        self.check_usable(state)?;
        self.inter_host(call.collective)?;
        let blocks = BlockOperation::new(call, self.layout.clone(), input);
        let route = self.route_of_blocks(&blocks)?;
        Ok(HierarchicalOperation::with_blocks(state.take_id(), route, blocks))
    }

    /// The route between hosts; what happens within a host, the operation knows itself.
    fn route_of_blocks(&self, blocks: &BlockOperation) -> Result<CollectiveRoute, Error> {
        let longest = blocks.max_bytes_between_hosts();
        let is_between_hosts = self.layout.hosts.len() > 1;
        if is_between_hosts && longest > MAX_BYTES_BETWEEN_HOSTS {
            return Err(Error::invalid(format!(
                "{longest} bytes of all ranks together exceed the limit of {MAX_BYTES_BETWEEN_HOSTS} bytes between hosts"
            )));
        }
        let bytes = blocks.bytes_between_hosts();
        let collective = blocks.between_hosts()?.operation;
        let method =
            if is_between_hosts { self.choose(collective, bytes).method } else { InterHostMethod::SingleHost };
        let role = if is_between_hosts && self.is_leader() { HostRole::Leader } else { HostRole::Follower };
        Ok(CollectiveRoute {
            up: None,
            inter_host: (collective, method),
            streamed: method.streamed(&collective, self.layout.hosts.len() as u32, bytes as u32),
            down: blocks.goes_down(),
            role,
            context: self.context,
            local_rank: self.layout.local_rank,
        })
    }
}
