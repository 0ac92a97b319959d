//! An unreliable datagram queue pair: each packet is one message, to a queue pair or a multicast group (IB
//! specification 9.8).
//!
//! In: destinations; received packet headers. Out: headers to send; whether this queue pair accepts a packet. It
//! keeps no state except the sequence number and repeats nothing: its user handles loss.

use units::{Psn, QpNumber};
use wire::{Bth, Deth, Immediate, Opcode, PacketHeaders, PartitionKey, QueueKey};

/// The destination queue pair number of every multicast (IB specification, 10.5).
pub const MULTICAST_QP: QpNumber = QpNumber(0xff_ffff);

/// An unreliable datagram queue pair.
#[derive(Debug)]
pub struct UdQueuePair {
    number: QpNumber,
    key: QueueKey,
    partition: PartitionKey,
    psn: Psn,
}

/// The source of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramSource {
    /// The sending queue pair.
    pub pair: QpNumber,
    /// The immediate data, if any.
    pub immediate: Option<u32>,
}

/// Why a queue pair rejects a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramRejection {
    /// Another destination queue pair.
    WrongQueuePair,
    /// Another partition.
    WrongPartition,
    /// A wrong queue key.
    WrongKey,
    /// Not a datagram.
    NotADatagram,
}

impl UdQueuePair {
    /// A queue pair that accepts datagrams with this key.
    pub fn new(number: QpNumber, key: QueueKey, partition: PartitionKey) -> Self {
        Self { number, key, partition, psn: Psn::new(0) }
    }

    /// The queue pair number.
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

    /// The source of a received packet.
    ///
    /// # Errors
    /// If this queue pair must drop the packet.
    pub fn accept(&self, headers: &PacketHeaders) -> Result<DatagramSource, DatagramRejection> {
        let deth = headers.deth.ok_or(DatagramRejection::NotADatagram)?;
        if headers.bth.destination != self.number && headers.bth.destination != MULTICAST_QP {
            return Err(DatagramRejection::WrongQueuePair);
        }
        if headers.bth.partition != self.partition {
            return Err(DatagramRejection::WrongPartition);
        }
        if deth.key != self.key {
            return Err(DatagramRejection::WrongKey);
        }
        Ok(DatagramSource { pair: deth.source, immediate: headers.immediate.map(|Immediate(value)| value) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_accepts_its_own_and_multicast_datagrams_with_its_key() {
        let key = QueueKey(0x1234);
        let mut sender = UdQueuePair::new(QpNumber(1), key, PartitionKey::DEFAULT);
        let receiver = UdQueuePair::new(QpNumber(2), key, PartitionKey::DEFAULT);
        let source = Ok(DatagramSource { pair: QpNumber(1), immediate: Some(9) });
        assert_eq!(receiver.accept(&sender.address(QpNumber(2), key, Some(9))), source);
        assert_eq!(receiver.accept(&sender.address(MULTICAST_QP, key, Some(9))), source);
        let other_pair = sender.address(QpNumber(3), key, None);
        assert_eq!(receiver.accept(&other_pair), Err(DatagramRejection::WrongQueuePair));
        let other_key = sender.address(QpNumber(2), QueueKey(1), None);
        assert_eq!(receiver.accept(&other_key), Err(DatagramRejection::WrongKey));
        let mut headers = sender.address(QpNumber(2), key, None);
        headers.bth.partition = PartitionKey(0x8001);
        assert_eq!(receiver.accept(&headers), Err(DatagramRejection::WrongPartition));
        headers.deth = None;
        assert_eq!(receiver.accept(&headers), Err(DatagramRejection::NotADatagram));
        assert_eq!(sender.address(QpNumber(2), key, None).bth.psn, Psn::new(5));
    }
}
