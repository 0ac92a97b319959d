//! Bytes to messages and back: InfiniBand and RoCEv2 headers, aggregation messages.
//!
//! In: bytes of which nothing is believed. Out: small values, and slices of the same bytes; and the way
//! back. Parsing never allocates and never panics, whatever the bytes. Emitting asserts what only the
//! caller can get wrong: a number that does not fit its field, a buffer that is too small.
//!
//! Reserved bits are sent as zero and ignored when received, as the IB specification has it; so what
//! parses is emitted to the same bytes except for those.
//!
//! Reading order: [`Opcode`] and [`Bth`], the headers that may follow them, the headers before them
//! ([`Lrh`], [`Grh`]), a whole [`Packet`], its two framings [`local`] and [`rocev2`], and what Pleach
//! itself says inside a packet, [`aggregation`].

#![forbid(unsafe_code)]

mod ack;
pub mod aggregation;
mod bytes;
mod error;
mod extended;
pub mod local;
mod opcode;
mod own;
mod packet;
pub mod rocev2;
mod route;
mod transport;

pub use ack::{Aeth, CreditCode, NakCause, RnrTimer, Syndrome};
pub use error::{Check, FrameError, HeaderName, ParseError};
pub use extended::{Deth, Immediate, QueueKey, RemoteKey, Reth};
pub use opcode::{ExtendedHeaders, Opcode};
pub use own::{Arrived, Token};
pub use packet::{Packet, PacketHeaders};
pub use route::{Gid, Grh, LinkNext, Lrh, ServiceLevel, VirtualLane};
pub use transport::{Bth, Coverage, PartitionKey};
