//! Puts packets together that arrived in chunks (P-130).
//!
//! In: chunks of one queue pair, in any order, perhaps twice or forged. Out: whole packets, to be verified like any other. A chunk of
//! another packet replaces what is there: a sender's chunks leave in a row, and a packet that is not completed is sent again.

use wire::packet_chunk::{CHUNK_BYTES, ChunkHeader};

use super::port::RECEIVE_BUFFER_BYTES;

/// The packet that is being put together, if there is one: at most one buffer.
#[derive(Default)]
pub(super) struct ChunkAssembler {
    partial: Option<PartialPacket>,
}

struct PartialPacket {
    number: u32,
    count: u8,
    /// The chunks that are there, a bit for each.
    arrived: u64,
    /// Known with the last chunk.
    length: usize,
    /// As long as a receive buffer, which it may replace.
    bytes: Vec<u8>,
}

impl ChunkAssembler {
    /// Adds a chunk. Returns the packet that it completes, in a receive buffer, and its length.
    pub(super) fn add(&mut self, header: &ChunkHeader, chunk: &[u8]) -> Option<(Vec<u8>, usize)> {
        let fits = |partial: &PartialPacket| (partial.number, partial.count) == (header.packet, header.count);
        let mut partial = self.partial.take().filter(fits).unwrap_or_else(|| PartialPacket {
            number: header.packet,
            count: header.count,
            arrived: 0,
            length: 0,
            bytes: vec![0; RECEIVE_BUFFER_BYTES],
        });
        let start = usize::from(header.index) * CHUNK_BYTES;
        if let Some(space) = partial.bytes.get_mut(start..start + chunk.len()) {
            space.copy_from_slice(chunk);
            partial.arrived |= 1 << header.index;
        }
        if header.index + 1 == header.count {
            partial.length = start + chunk.len();
        }
        if partial.arrived.count_ones() == u32::from(partial.count) {
            return Some((partial.bytes, partial.length));
        }
        self.partial = Some(partial);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::QpNumber;

    fn chunks(packet: u32, bytes: &[u8]) -> Vec<(ChunkHeader, Vec<u8>)> {
        let count = bytes.len().div_ceil(CHUNK_BYTES) as u8;
        let header = |index| ChunkHeader { destination: QpNumber(5), packet, index, count };
        (0..).zip(bytes.chunks(CHUNK_BYTES)).map(|(index, chunk)| (header(index), chunk.to_vec())).collect()
    }

    fn packet(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index % 251) as u8).collect()
    }

    #[test]
    fn a_packet_is_put_together_whatever_the_order_of_its_chunks() {
        for length in [1, CHUNK_BYTES, CHUNK_BYTES + 1, 9_000, 65_000] {
            let (mut assembler, whole) = (ChunkAssembler::default(), packet(length));
            let mut chunks = chunks(1, &whole);
            chunks.reverse();
            let (last, others) = chunks.split_last().expect("there is one");
            for (header, chunk) in others.iter().chain(others) {
                assert!(assembler.add(header, chunk).is_none());
            }
            let (bytes, found) = assembler.add(&last.0, &last.1).expect("complete");
            assert!(bytes[..found] == whole[..] && bytes.len() == RECEIVE_BUFFER_BYTES);
        }
    }

    #[test]
    fn a_packet_that_is_not_completed_is_replaced_by_the_next() {
        let (mut assembler, whole) = (ChunkAssembler::default(), packet(3_000));
        for (header, chunk) in &chunks(1, &whole)[1..] {
            assert!(assembler.add(header, chunk).is_none());
        }
        let found = chunks(2, &whole).iter().filter_map(|(header, chunk)| assembler.add(header, chunk)).count();
        assert_eq!(found, 1);
        let (header, chunk) = &chunks(1, &whole)[0];
        assert!(assembler.add(header, chunk).is_none(), "the others of its packet are gone");
    }
}
