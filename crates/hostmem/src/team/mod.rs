//! Collectives of the ranks of one host, in shared memory.
//!
//! In: the same calls, in the same order, from every rank of a [`Team`]. Out: results that are folded in rank order, the same
//! bits in every run. No locks: a rank that dies leaves nothing locked, and the others notice.
//!
//! Reading order: [`Team`] starts operations and advances them; `small` holds those that complete in one step, `large` those
//! that go through the `pipeline`. `descriptor` is what a rank posts, `window` says when it may post, `slot_ring` allocates
//! payload that fits neither a descriptor nor a leaf, and `agreement` finds ranks that call another operation.
//! `oversubscription` and `shared_result` are for ranks that share CPUs. `block_claims`, `buffer_offer` and `cma_broadcast`
//! copy large broadcasts from process to process. `region` is the mapped memory, `team_memory` what the protocols see of
//! it, `wait` how a rank waits. `loom_tests` tries the protocols of `window`, `pipeline`, `shared_result` and
//! `block_claims` in every order.
//!
//! ```
//! use hostmem::team::{CollectiveBuffers, Team, TeamCall, WaitMode};
//! use reduce::{ElementType, Operator, ReductionKind};
//!
//! let name = format!("pleach-doc-{}", std::process::id());
//! let mut leader = Team::create(&name, 2)?;
//! let mut other = Team::join(&name, 1, 2, std::time::Duration::from_secs(1))?;
//! let call = TeamCall::AllReduce { kind: ReductionKind::new(ElementType::U64, Operator::Sum)? };
//! let (mut two, mut three) = (2u64.to_le_bytes(), 3u64.to_le_bytes());
//! let (mut two, mut three) = (CollectiveBuffers::InPlace(&mut two), CollectiveBuffers::InPlace(&mut three));
//! let mut first = leader.start(call, &mut two)?;
//! let mut second = other.start(call, &mut three)?;
//! leader.wait(&mut first, &mut two, || Ok::<_, std::io::Error>(WaitMode::MaySleep))?;
//! other.wait(&mut second, &mut three, || Ok::<_, std::io::Error>(WaitMode::MaySleep))?;
//! let CollectiveBuffers::InPlace(sum) = three else { unreachable!() };
//! assert_eq!(sum, 5u64.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agreement;
mod block_claims;
mod buffer_offer;
mod buffers;
mod cma_broadcast;
mod cross_memory;
mod descriptor;
mod error;
mod fold;
mod large;
mod last_cpu;
mod local_team;
#[cfg(test)]
mod loom_tests;
mod operation;
mod oversubscription;
mod pipeline;
mod region;
mod shared_result;
mod slot_ring;
mod small;
mod team_memory;
#[cfg(test)]
mod tests;
mod vector_partition;
mod wait;
mod window;

pub use buffers::CollectiveBuffers;
pub use descriptor::{CallSignature, TeamVerb};
pub use error::{TeamError, TeamJoinError, TeamWaitError};
pub use local_team::Team;
pub use operation::{MAX_EXCHANGE_BYTES, TeamCall, TeamOperation, TeamProgress};
pub use wait::WaitMode;
