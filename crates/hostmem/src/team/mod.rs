//! The ranks of one host combine in shared memory.
//!
//! In: the same calls, in the same order, from every rank of a [`Team`]. Out: results that are folded in rank order, the same
//! bits in every run. No locks: a rank that ends leaves nothing locked, and the others notice.
//!
//! Reading order: [`Team`] starts operations and moves them on, `small` those that are over at once; `post` is how a rank says
//! what it does, `window` says when it may, `ring` is where payload goes that fits neither a post nor a leaf, and `agree` finds out who
//! does something else. `crowd` and `share` are for ranks that share processors. `pipe` and `large` are for vectors that do not fit a slot, `door` and `direct` for broadcasts of such that
//! need not go through shared memory. `region` is the memory, `lines` what its caches are told, `wait` and `futex` are how to
//! wait. `models` tries the protocols of `window`, `pipe` and `door` in every order.
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

mod agree;
mod crowd;
mod cut;
mod data;
mod direct;
mod door;
mod error;
mod fold;
pub(crate) mod futex;
mod large;
pub(crate) mod lines;
#[cfg(test)]
mod models;
mod operation;
mod pipe;
mod post;
mod reach;
mod region;
mod ring;
mod share;
mod small;
mod team;
#[cfg(test)]
mod tests;
mod wait;
mod window;
pub(crate) mod word;

pub use data::Data;
pub use error::{Error, JoinError, WaitError};
pub use operation::{Call, Operation, Progress};
pub use post::{Claim, Verb};
pub use team::Team;
pub use wait::Attention;
