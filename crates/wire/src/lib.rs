//! Codecs: InfiniBand and RoCEv2 headers, and aggregation messages.
//!
//! In: untrusted bytes. Out: small values and slices of the same bytes; and the reverse. Parsing never allocates and
//! never panics, whatever the bytes. Emitting asserts what only the caller can get wrong: a number that does not fit
//! its field, a buffer that is too small.
//!
//! Reserved bits are sent as zero and ignored on receive, as the IB specification requires. Apart from them, emitting
//! a parsed value gives the original bytes.
//!
//! Reading order: [`Opcode`] and [`Bth`], the headers that may follow them, the headers before them ([`Lrh`],
//! [`Grh`]), a whole [`Packet`], its two framings [`link_frame`] and [`rocev2`], and Pleach's own messages inside a
//! packet, [`aggregation`]. [`transfer`] has packets of its own, for long vectors; [`packet_chunk`] cuts packets for paths that
//! do not carry them.

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
pub mod packet_chunk;
pub mod rocev2;
mod route;
pub mod transfer;
mod vendor_headers;

pub use aeth::{Aeth, CreditCode, NakCause, RnrTimer, Syndrome};
pub use bth::{Bth, IcrcCoverage, PartitionKey};
pub use error::{HeaderName, PacketCrc, PacketError, ParseError};
pub use extended::{Deth, Immediate, QueueKey, RemoteKey, Reth};
pub use opcode::{ExtendedHeaders, Opcode};
pub use packet::{Packet, PacketHeaders};
pub use route::{Gid, Grh, LinkNextHeader, Lrh, ServiceLevel, VirtualLane};
pub use vendor_headers::{ProbeToken, SackBitmap};
