//! The ranks of one host combine in shared memory.
//!
//! In: the same calls, in the same order, from every rank of a [`Team`]. Out: results that are folded in rank order, the same
//! bits in every run. No locks: a rank that ends leaves nothing locked, and the others notice.
//!
//! Reading order: [`Team`] starts operations and moves them on, `small` those that are over at once; `descriptor` is how a rank says
//! what it does, `window` says when it may, `slot_ring` is where payload goes that fits neither a post nor a leaf, and `agreement` finds out who
//! does something else. `oversubscription` and `shared_result` are for ranks that share processors. `pipeline` and `large` are for vectors that do not fit a slot, `block_claims` and `cma_broadcast` for broadcasts of such that
//! need not go through shared memory. `region` is the memory, `cache_hints` what its caches are told, `wait` and `futex` are how to
//! wait. `loom_tests` tries the protocols of `window`, `pipeline` and `block_claims` in every order.
//!
//! ```
//! use hostmem::team::{Attention, Call, Data, Team};
//! use reduce::{ElementType, Kind, Operator};
//!
//! let name = format!("pleach-doc-{}", std::process::id());
//! let mut leader = Team::create(&name, 2)?;
//! let mut other = Team::join(&name, 1, 2, std::time::Duration::from_secs(1))?;
//! let call = Call::AllReduce { kind: Kind::new(ElementType::U64, Operator::Sum)? };
//! let (mut two, mut three) = (2u64.to_le_bytes(), 3u64.to_le_bytes());
//! let (mut two, mut three) = (Data::InPlace(&mut two), Data::InPlace(&mut three));
//! let mut first = leader.start(call, &mut two)?;
//! let mut second = other.start(call, &mut three)?;
//! leader.wait(&mut first, &mut two, || Ok::<_, std::io::Error>(Attention::MaySleep))?;
//! other.wait(&mut second, &mut three, || Ok::<_, std::io::Error>(Attention::MaySleep))?;
//! let Data::InPlace(sum) = three else { unreachable!() };
//! assert_eq!(sum, 5u64.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agreement;
mod block_claims;
mod buffers;
pub(crate) mod cache_hints;
mod cma_broadcast;
mod cross_memory;
mod descriptor;
mod error;
mod fold;
pub(crate) mod futex;
mod large;
#[cfg(test)]
mod loom_tests;
mod operation;
mod oversubscription;
mod pipeline;
mod region;
mod shared_result;
pub(crate) mod shared_word;
mod slot_ring;
mod small;
mod team;
#[cfg(test)]
mod tests;
mod vector_partition;
mod wait;
mod window;

pub use buffers::CollectiveBuffers;
pub use descriptor::{CallSignature, TeamVerb};
pub use error::{TeamError, TeamJoinError, TeamWaitError};
pub use operation::{TeamCall, TeamOperation, TeamProgress};
pub use team::Team;
pub use wait::WaitMode;
