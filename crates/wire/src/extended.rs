//! Headers that may follow the base transport header: where a datagram comes from, which remote memory
//! is meant, and four bytes for the receiver (IB specification, 9.3). Acknowledgements: [`crate::Aeth`].

use units::QpNumber;

use crate::ParseError;
use crate::bytes::{head, piece, read_24, room, write_24};

/// What a sender must know to be let in to a datagram queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueKey(pub u32);

/// What a sender must know to be let in to a region of remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RemoteKey(pub u32);

/// The RDMA extended transport header: a stretch of remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reth {
    /// Where it begins, in the receiver's address space.
    pub address: u64,
    /// The key to it.
    pub key: RemoteKey,
    /// How long it is: the whole message, not the packet.
    pub length_bytes: u32,
}

/// The datagram extended transport header: who speaks to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deth {
    /// The key to the receiving queue pair.
    pub key: QueueKey,
    /// The sending queue pair.
    pub source: QpNumber,
}

/// Immediate data: four bytes that reach the receiver with the completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Immediate(pub u32);

impl Reth {
    /// Bytes it takes.
    pub const SIZE: usize = 16;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; Self::SIZE] = head(bytes)?;
        Ok(Self {
            address: u64::from_be_bytes(piece(bytes, 0)),
            key: RemoteKey(u32::from_be_bytes(piece(bytes, 8))),
            length_bytes: u32::from_be_bytes(piece(bytes, 12)),
        })
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, buffer: &mut [u8]) {
        let bytes: &mut [u8; Self::SIZE] = room(buffer);
        bytes[0..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length_bytes.to_be_bytes());
    }
}

impl Deth {
    /// Bytes it takes.
    pub const SIZE: usize = 8;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; Self::SIZE] = head(bytes)?;
        Ok(Self { key: QueueKey(u32::from_be_bytes(piece(bytes, 0))), source: QpNumber(read_24(bytes, 5)) })
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small, or the queue pair's number has more than 24 bits.
    pub fn emit(&self, buffer: &mut [u8]) {
        let bytes: &mut [u8; Self::SIZE] = room(buffer);
        bytes[0..4].copy_from_slice(&self.key.0.to_be_bytes());
        bytes[4] = 0;
        write_24(bytes, 5, self.source.0);
    }
}

impl Immediate {
    /// Bytes it takes.
    pub const SIZE: usize = 4;

    /// Reads the header at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(Self(u32::from_be_bytes(*head(bytes)?)))
    }

    /// Writes the header at the beginning of `buffer`.
    ///
    /// # Panics
    /// If the buffer is too small.
    pub fn emit(&self, buffer: &mut [u8]) {
        *room(buffer) = self.0.to_be_bytes();
    }
}
