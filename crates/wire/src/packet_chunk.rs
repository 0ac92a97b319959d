//! Chunks of a packet that is too long for its path (P-130): datagrams that every path carries.
//!
//! ```text
//!  0  opcode   1  index   2  count   3  zero   4  the receiver's queue pair   8  number of the packet   12  bytes of the packet
//! ```
//! The opcode is one that InfiniBand leaves to manufacturers. Nothing here is authentic or intact: that is checked of the whole packet.

use units::QpNumber;

use crate::ParseError;
use crate::bytes::array_at;

const OPCODE: u8 = 0xe3;
/// Bytes of the header.
pub const CHUNK_HEADER_BYTES: usize = 12;
/// Bytes of the packet in each chunk but the last: with the header, UDP and IPv6 they fit into 1,200 bytes.
pub const CHUNK_BYTES: usize = 1_200 - 48 - CHUNK_HEADER_BYTES;
/// Chunks of the longest packet.
pub const MAX_CHUNKS: u8 = 58;

const _: () = assert!(MAX_CHUNKS as usize * CHUNK_BYTES >= 65_507 && MAX_CHUNKS <= 64);

/// What a chunk says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    /// The receiver's queue pair.
    pub destination: QpNumber,
    /// Tells apart the packets that a sender has cut.
    pub packet: u32,
    /// Its place in the packet.
    pub index: u8,
    /// Chunks of the packet.
    pub count: u8,
}

/// True if a datagram is a chunk of a packet.
pub fn is_packet_chunk(datagram: &[u8]) -> bool {
    datagram.first() == Some(&OPCODE)
}

impl ChunkHeader {
    /// Writes the header.
    pub fn emit(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        (bytes[0], bytes[1], bytes[2]) = (OPCODE, self.index, self.count);
        bytes[4..8].copy_from_slice(&self.destination.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.packet.to_be_bytes());
        bytes
    }

    /// The header and the bytes behind it. All chunks but the last are full, and none is empty.
    ///
    /// # Errors
    /// If the datagram is no chunk, or has another length than its place allows.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (head, chunk) = datagram
            .split_first_chunk::<CHUNK_HEADER_BYTES>()
            .ok_or(ParseError::TooShort { needed: CHUNK_HEADER_BYTES, given: datagram.len() })?;
        if head[0] != OPCODE {
            return Err(ParseError::UnknownOpcode(head[0]));
        }
        let header = Self {
            destination: QpNumber(u32::from_be_bytes(array_at(head, 4)) & 0xff_ffff),
            packet: u32::from_be_bytes(array_at(head, 8)),
            index: head[1],
            count: head[2],
        };
        let fits = if header.index < header.count.saturating_sub(1) {
            chunk.len() == CHUNK_BYTES
        } else {
            chunk.len() <= CHUNK_BYTES
        };
        if chunk.is_empty() || !fits || header.index >= header.count || header.count > MAX_CHUNKS {
            return Err(ParseError::TooShort { needed: CHUNK_BYTES, given: chunk.len() });
        }
        Ok((header, chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(index: u8, count: u8, length: usize) -> Vec<u8> {
        let header = ChunkHeader { destination: QpNumber(0x12_3456), packet: 0x8000_0001, index, count };
        [&header.emit()[..], &vec![7; length]].concat()
    }

    #[test]
    fn a_chunk_reads_back() {
        for (index, count, length) in [(0, 1, 1), (0, 3, CHUNK_BYTES), (2, 3, 5), (57, 58, CHUNK_BYTES)] {
            let bytes = datagram(index, count, length);
            assert!(is_packet_chunk(&bytes) && bytes.len() + 48 <= 1_200);
            let (read, chunk) = ChunkHeader::parse(&bytes).expect("a chunk");
            assert_eq!(read, ChunkHeader { destination: QpNumber(0x12_3456), packet: 0x8000_0001, index, count });
            assert_eq!(chunk, vec![7; length]);
        }
    }

    #[test]
    fn chunks_that_no_packet_has_are_rejected() {
        for (index, count, length) in
            [(0, 0, 1), (1, 1, 1), (0, 2, 5), (0, 1, 0), (0, 1, CHUNK_BYTES + 1), (0, 59, CHUNK_BYTES), (255, 255, 1)]
        {
            assert!(ChunkHeader::parse(&datagram(index, count, length)).is_err(), "{index} of {count}");
        }
        assert!(ChunkHeader::parse(&datagram(0, 1, 9)[..CHUNK_HEADER_BYTES - 1]).is_err());
        assert!(ChunkHeader::parse(&[4; 40]).is_err() && !is_packet_chunk(&[4; 40]) && !is_packet_chunk(&[]));
        assert!(crate::Opcode::try_from(OPCODE).is_err(), "RoCEv2 decoders do not know it");
    }
}
