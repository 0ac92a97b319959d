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
//! ([`Lrh`], [`Grh`]), a whole [`Packet`], its two framings [`link_frame`] and [`rocev2`], and what Pleach
//! itself says inside a packet, [`aggregation`].

#![forbid(unsafe_code)]

mod aeth;
pub mod aggregation;
mod bth;
mod bytes;
mod error;
mod extended;
pub mod link_frame;
mod opcode;
mod packet;
pub mod rocev2;
mod route;
mod vendor_headers;

pub use aeth::{Aeth, CreditCode, NakCause, RnrTimer, Syndrome};
pub use bth::{Bth, IcrcCoverage, PartitionKey};
pub use error::{HeaderName, PacketCrc, PacketError, ParseError};
pub use extended::{Deth, Immediate, QueueKey, RemoteKey, Reth};
pub use opcode::{ExtendedHeaders, Opcode};
pub use packet::{Packet, PacketHeaders};
pub use route::{Gid, Grh, LinkNextHeader, Lrh, ServiceLevel, VirtualLane};
pub use vendor_headers::{ProbeToken, SackBitmap};
