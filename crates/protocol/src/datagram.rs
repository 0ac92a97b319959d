//! An unreliable datagram queue pair: one packet, one message, to one queue pair or to a multicast group.
//!
//! In: whom to speak to; packets. Out: headers; whether a packet is for us. Nothing is remembered, nothing repeated: what
//! must come is the business of whoever uses it. IB specification 9.8.

use units::{Psn, QpNumber};
use wire::{Bth, Deth, Immediate, Opcode, PacketHeaders, PartitionKey, QueueKey};

/// The queue pair number that every multicast is addressed to (IB specification, 10.5).
pub const MULTICAST_QP: QpNumber = QpNumber(0xff_ffff);

/// A datagram queue pair.
#[derive(Debug)]
pub struct UdQueuePair {
    number: QpNumber,
    key: QueueKey,
    partition: PartitionKey,
    psn: Psn,
}

/// Who spoke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramSource {
    /// Its queue pair.
    pub pair: QpNumber,
    /// What came with the message.
    pub immediate: Option<u32>,
}

/// Why a packet is not for us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramRejection {
    /// Another queue pair's.
    Number,
    /// Another partition's.
    Partition,
    /// The sender does not know the key.
    Key,
    /// No datagram.
    Kind,
}

impl UdQueuePair {
    /// A queue pair that lets in whoever knows the key.
    pub fn new(number: QpNumber, key: QueueKey, partition: PartitionKey) -> Self {
        Self { number, key, partition, psn: Psn::new(0) }
    }

    /// Its number.
    pub fn number(&self) -> QpNumber {
        self.number
    }

    /// The headers of the next datagram.
    pub fn address(&mut self, to: QpNumber, key: QueueKey, immediate: Option<u32>) -> PacketHeaders {
        let opcode = match immediate {
            None => Opcode::DatagramSendOnly,
            Some(_) => Opcode::DatagramSendOnlyWithImmediate,
        };
        let mut headers = PacketHeaders::from(Bth::new(opcode, to, self.psn));
        headers.bth.partition = self.partition;
        headers.deth = Some(Deth { key, source: self.number });
        headers.immediate = immediate.map(Immediate);
        self.psn = self.psn.next();
        headers
    }

    /// Whether a packet is for this queue pair, and who spoke.
    ///
    /// # Errors
    /// Why not; it is to be counted and dropped.
    pub fn accept(&self, headers: &PacketHeaders) -> Result<DatagramSource, DatagramRejection> {
        let deth = headers.deth.ok_or(DatagramRejection::Kind)?;
        if headers.bth.destination != self.number && headers.bth.destination != MULTICAST_QP {
            return Err(DatagramRejection::Number);
        }
        if headers.bth.partition != self.partition {
            return Err(DatagramRejection::Partition);
        }
        if deth.key != self.key {
            return Err(DatagramRejection::Key);
        }
        Ok(DatagramSource { pair: deth.source, immediate: headers.immediate.map(|Immediate(value)| value) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_reaches_whom_it_names_and_who_knows_the_key() {
        let key = QueueKey(0x1234);
        let mut near = UdQueuePair::new(QpNumber(1), key, PartitionKey::DEFAULT);
        let far = UdQueuePair::new(QpNumber(2), key, PartitionKey::DEFAULT);
        let speaker = Ok(DatagramSource { pair: QpNumber(1), immediate: Some(9) });
        assert_eq!(far.accept(&near.address(QpNumber(2), key, Some(9))), speaker);
        assert_eq!(far.accept(&near.address(MULTICAST_QP, key, Some(9))), speaker);
        assert_eq!(far.accept(&near.address(QpNumber(3), key, None)), Err(DatagramRejection::Number));
        assert_eq!(far.accept(&near.address(QpNumber(2), QueueKey(1), None)), Err(DatagramRejection::Key));
        let mut foreign = near.address(QpNumber(2), key, None);
        foreign.bth.partition = PartitionKey(0x8001);
        assert_eq!(far.accept(&foreign), Err(DatagramRejection::Partition));
        foreign.deth = None;
        assert_eq!(far.accept(&foreign), Err(DatagramRejection::Kind));
        assert_eq!(near.address(QpNumber(2), key, None).bth.psn, Psn::new(5));
    }
}
