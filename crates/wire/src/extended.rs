//! Extended transport headers: the source of a datagram, a range of remote memory, and immediate data (IB
//! specification, 9.3). Acknowledgements: [`crate::Aeth`].

use units::QpNumber;

use crate::ParseError;
use crate::bytes::{array_at, prefix, prefix_mut, read_24, write_24};

/// The key that a datagram queue pair requires of its senders (Q_Key).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueKey(pub u32);

/// The key of a remote memory region (R_Key).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RemoteKey(pub u32);

/// The RDMA extended transport header: a range of remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reth {
    /// Virtual address of the first byte at the receiver.
    pub address: u64,
    /// The region's key.
    pub key: RemoteKey,
    /// Length of the whole message, not of the packet.
    pub length_bytes: u32,
}

/// The datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deth {
    /// The key of the receiving queue pair.
    pub key: QueueKey,
    /// The sending queue pair.
    pub source: QpNumber,
}

/// Immediate data: four bytes that the receiver's completion reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Immediate(pub u32);

impl Reth {
    /// Encoded size in bytes.
    pub const SIZE: usize = 16;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; Self::SIZE] = prefix(bytes)?;
        Ok(Self {
            address: u64::from_be_bytes(array_at(bytes, 0)),
            key: RemoteKey(u32::from_be_bytes(array_at(bytes, 8))),
            length_bytes: u32::from_be_bytes(array_at(bytes, 12)),
        })
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, buffer: &mut [u8]) {
        let bytes: &mut [u8; Self::SIZE] = prefix_mut(buffer);
        bytes[0..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length_bytes.to_be_bytes());
    }
}

impl Deth {
    /// Encoded size in bytes.
    pub const SIZE: usize = 8;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; Self::SIZE] = prefix(bytes)?;
        Ok(Self { key: QueueKey(u32::from_be_bytes(array_at(bytes, 0))), source: QpNumber(read_24(bytes, 5)) })
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small, or the queue pair's number has more than 24 bits.
    pub fn emit(&self, buffer: &mut [u8]) {
        let bytes: &mut [u8; Self::SIZE] = prefix_mut(buffer);
        bytes[0..4].copy_from_slice(&self.key.0.to_be_bytes());
        bytes[4] = 0;
        write_24(bytes, 5, self.source.0);
    }
}

impl Immediate {
    /// Encoded size in bytes.
    pub const SIZE: usize = 4;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(Self(u32::from_be_bytes(*prefix(bytes)?)))
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, buffer: &mut [u8]) {
        *prefix_mut(buffer) = self.0.to_be_bytes();
    }
}
