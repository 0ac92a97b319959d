//! What protects packets: MACs, and encryption under them (P-104, P-123, P-125). Tree edges, transfers and queue pairs use the same.

#[cfg(test)]
mod cost;
mod keyed_macs;
mod payload_cipher;
mod sip_words;

pub(crate) use keyed_macs::{EdgeDirection, MAC_BYTES, MessageMac, TransferMac, message_name};
pub use keyed_macs::{EdgeSide, KeyedMacs};
pub(crate) use payload_cipher::CounterBlock;
