//! Operations of a group within a workload, step by step: whom a member sends to and receives from.
//!
//! The vector operations go around a ring, as training libraries do; all-to-all exchanges with one peer after another; broadcast
//! and reduce follow a binomial tree from the first member; a barrier disseminates.

/// An operation of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadCollective {
    /// Every member gets the reduction of all vectors.
    AllReduce,
    /// Every member gets its part of the reduction.
    ReduceScatter,
    /// Every member gets the parts of all.
    AllGather,
    /// Every member sends a part to every other.
    AllToAll,
    /// The first member's vector goes to all.
    Broadcast,
    /// The first member gets the reduction.
    Reduce,
    /// No member continues before all have come.
    Barrier,
}

/// What a member does in one step.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct GroupStep {
    /// The position to send to, and the bytes.
    pub(super) send: Option<(u32, u64)>,
    /// The position to receive from.
    pub(super) receive: Option<u32>,
}

impl WorkloadCollective {
    #[cfg(test)]
    const ALL: [Self; 7] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::AllToAll,
        Self::Broadcast,
        Self::Reduce,
        Self::Barrier,
    ];

    /// Steps of an operation of `size` members.
    pub(super) fn steps(self, size: u32) -> u32 {
        if size < 2 {
            return 0;
        }
        match self {
            Self::AllReduce => 2 * (size - 1),
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => size - 1,
            Self::Broadcast | Self::Reduce | Self::Barrier => size.next_power_of_two().ilog2(),
        }
    }

    /// Step `step` of the member at `position`.
    pub(super) fn step(self, size: u32, position: u32, step: u32, bytes: u64) -> GroupStep {
        let part = bytes.div_ceil(u64::from(size.max(1)));
        let ahead = |distance: u32| (position + distance) % size;
        let behind = |distance: u32| (position + size - distance % size) % size;
        match self {
            Self::AllReduce | Self::ReduceScatter => {
                GroupStep { send: Some((ahead(1), part)), receive: Some(behind(1)) }
            }
            // A member contributes a part, which goes around the ring as it is.
            Self::AllGather => GroupStep { send: Some((ahead(1), bytes)), receive: Some(behind(1)) },
            Self::AllToAll => GroupStep { send: Some((ahead(step + 1), part)), receive: Some(behind(step + 1)) },
            Self::Barrier => {
                let distance = 1 << step;
                GroupStep { send: Some((ahead(distance % size), 1)), receive: Some(behind(distance)) }
            }
            Self::Broadcast => tree_step(size, position, 1 << step, bytes),
            Self::Reduce => {
                let last = self.steps(size) - 1;
                let down = tree_step(size, position, 1 << (last - step), bytes);
                // The same edges the other way round.
                let send = down.receive.map(|parent| (parent, bytes));
                GroupStep { send, receive: down.send.map(|(child, _)| child) }
            }
        }
    }
}

/// A round of a binomial broadcast: the positions below `reach` have the vector and send it `reach` further.
fn tree_step(size: u32, position: u32, reach: u32, bytes: u64) -> GroupStep {
    if position < reach {
        let to = position + reach;
        GroupStep { send: (to < size).then_some((to, bytes)), receive: None }
    } else {
        GroupStep { send: None, receive: (position < 2 * reach).then(|| position - reach) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In every step, what is sent to a member is exactly what it receives.
    #[test]
    fn every_message_has_a_receiver_that_waits_for_it() {
        for operation in WorkloadCollective::ALL {
            for size in 1..40 {
                for step in 0..operation.steps(size) {
                    let steps: Vec<GroupStep> =
                        (0..size).map(|position| operation.step(size, position, step, 1_000)).collect();
                    for (position, own) in steps.iter().enumerate() {
                        if let Some((to, bytes)) = own.send {
                            assert!(bytes > 0 && to != position as u32, "{operation:?} of {size}");
                            assert_eq!(steps[to as usize].receive, Some(position as u32), "{operation:?} of {size}");
                        }
                        if let Some(from) = own.receive {
                            assert_eq!(steps[from as usize].send.map(|(to, _)| to), Some(position as u32));
                        }
                    }
                }
            }
        }
    }

    /// What each member sends of a contribution of 1,000 bytes, by the known lower bounds of the ring.
    #[test]
    fn members_send_what_the_operation_needs() {
        let sent = |operation: WorkloadCollective| -> u64 {
            (0..operation.steps(4))
                .filter_map(|step| operation.step(4, 1, step, 1_000).send)
                .map(|(_, bytes)| bytes)
                .sum()
        };
        assert_eq!(sent(WorkloadCollective::AllReduce), 1_500);
        assert_eq!(sent(WorkloadCollective::ReduceScatter), 750);
        assert_eq!(sent(WorkloadCollective::AllGather), 3_000, "the parts of three others");
        assert_eq!(sent(WorkloadCollective::AllToAll), 750);
    }

    #[test]
    fn a_broadcast_reaches_everyone() {
        for size in 2..40_u32 {
            let mut has = vec![false; size as usize];
            has[0] = true;
            for step in 0..WorkloadCollective::Broadcast.steps(size) {
                for position in 0..size {
                    if let Some((to, _)) = WorkloadCollective::Broadcast.step(size, position, step, 1).send {
                        assert!(has[position as usize], "{position} sends what it has not");
                        has[to as usize] = true;
                    }
                }
            }
            assert!(has.iter().all(|has| *has), "{size}");
        }
    }
}
