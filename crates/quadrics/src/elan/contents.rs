//! The bytes of an observed broadcast: read from the source's buffer when a packet leaves, written to a destination's when it arrives.
//!
//! Nothing else moves data between ranks, so a packet that is lost, or a signal that overtakes its data, leaves wrong bytes in a buffer.

use super::dma::{DmaCompletion, DmaPacket};
use super::dma_message::CollectiveSignal;
use super::observed_run::ObservedCollective;
use super::{ElanAdapters, InFlightPacket};

impl ElanAdapters {
    fn observed(&mut self) -> Option<&mut ObservedCollective> {
        self.job.as_mut()?.observed.as_mut()
    }

    /// Reads the data of a packet that leaves, if it belongs to a broadcast with contents.
    pub(super) fn read_contents(&mut self, packet: DmaPacket, tag: u32) {
        let dma = self.dmas[packet.number].dma;
        if !matches!(dma.destination_event, DmaCompletion::Signal(CollectiveSignal::Data { .. })) {
            return;
        }
        let Some(rank) = self.rank_of(dma.from) else { return };
        let range = packet.offset as usize..(packet.offset + packet.data) as usize;
        let Some(data) = self.observed().and_then(|observed| observed.buffers.get(rank.index())?.get(range)) else {
            return;
        };
        let data = Box::from(data);
        self.payloads.insert(tag, data);
    }

    /// Writes the data of a packet into the buffer of the node that it has reached.
    pub(super) fn write_contents(&mut self, node: u32, offset: u32, tag: u32) {
        debug_assert!(matches!(self.packets[tag], InFlightPacket::Dma { .. }), "only DMA carries data");
        let Some(rank) = self.rank_of(node) else { return };
        let Some(data) = self.payloads.get(&tag) else { return };
        let range = offset as usize..offset as usize + data.len();
        let buffers = self.job.as_mut().and_then(|job| job.observed.as_mut()).map(|observed| &mut observed.buffers);
        if let Some(buffer) = buffers.and_then(|buffers| buffers.get_mut(rank.index())?.get_mut(range)) {
            buffer.copy_from_slice(data);
        }
    }
}
