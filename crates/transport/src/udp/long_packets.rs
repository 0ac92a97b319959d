//! Long packets on paths whose MTU became smaller while they were on their way (P-130).
//!
//! The number of a packet stands for its bytes, so what is numbered cannot be cut anew: it travels in chunks, below the protocol.

use protocol::transfer::PartLimit;
use units::Time;
use wire::packet_chunk::{CHUNK_BYTES, CHUNK_HEADER_BYTES, ChunkHeader};

use super::chunk_assembler::ChunkAssembler;

/// A packet of at most this many bytes passes every path as it is.
pub(super) const MAX_UNCUT_BYTES: usize = CHUNK_HEADER_BYTES + CHUNK_BYTES;
/// With two paths the first two timeouts may be the fault of the first path, which is then left.
const TOLERATED_TIMEOUTS: u32 = 1;

/// What a queue pair needs to send and receive packets in chunks.
#[derive(Default)]
pub(super) struct LongPackets {
    limit: PartLimit,
    last_number: u32,
    pub assembler: ChunkAssembler,
}

impl LongPackets {
    /// Whether a packet of so many bytes must be cut. The time is asked for only where it matters.
    pub(super) fn must_cut(&self, bytes: usize, now: impl FnOnce() -> Time) -> bool {
        bytes > MAX_UNCUT_BYTES && self.limit != PartLimit::default() && self.limit.is_limited(now())
    }

    /// The peer was silent for so many timeouts in a row.
    pub(super) fn note_timeouts(&mut self, now: Time, timeouts: u8) {
        self.limit.note_timeouts(now, u32::from(timeouts).saturating_sub(TOLERATED_TIMEOUTS));
    }

    /// The kernel knows that the packet is too long.
    pub(super) fn note_too_long(&mut self, now: Time) {
        self.limit.note_timeouts(now, u32::MAX);
    }

    /// A number that no recent packet of this queue pair has.
    pub(super) fn next_number(&mut self) -> u32 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }
}

/// The datagrams of a packet, one behind the other: each but the last has [`MAX_UNCUT_BYTES`].
pub(super) fn cut(packet: &[u8], first: ChunkHeader) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packet.len() + usize::from(first.count) * CHUNK_HEADER_BYTES);
    for (index, chunk) in (0..first.count).zip(packet.chunks(CHUNK_BYTES)) {
        bytes.extend_from_slice(&ChunkHeader { index, ..first }.emit());
        bytes.extend_from_slice(chunk);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{QpNumber, Span};

    #[test]
    fn long_packets_are_cut_after_three_timeouts_or_a_word_of_the_kernel_and_short_ones_never() {
        let at = |micros| Time::ZERO + Span::from_micros(micros);
        let mut long = LongPackets::default();
        long.note_timeouts(at(10), 2);
        assert!(!long.must_cut(9_000, || at(11)));
        long.note_timeouts(at(20), 3);
        assert!(long.must_cut(9_000, || at(21)) && !long.must_cut(MAX_UNCUT_BYTES, || at(21)));
        assert!(!long.must_cut(9_000, || at(1_000_021)), "longer ones are tried again");
        let mut long = LongPackets::default();
        long.note_too_long(at(10));
        assert!(long.must_cut(MAX_UNCUT_BYTES + 1, || at(11)));
    }

    #[test]
    fn a_packet_is_cut_into_datagrams_that_every_path_carries() {
        let packet: Vec<u8> = (0..9_000_u32).map(|index| index as u8).collect();
        let count = packet.len().div_ceil(CHUNK_BYTES) as u8;
        let bytes = cut(&packet, ChunkHeader { destination: QpNumber(5), packet: 1, index: 0, count });
        let mut whole = Vec::new();
        for datagram in bytes.chunks(MAX_UNCUT_BYTES) {
            whole.extend_from_slice(ChunkHeader::parse(datagram).expect("a chunk").1);
        }
        assert!(whole == packet);
    }
}
