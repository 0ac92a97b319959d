//! The transport of a kernel, and its simplest implementation: channels in memory.
//!
//! In: messages from one rank to another. Out: the same messages in order, and a digest of every received byte. The digest of a
//! run over [`KernelMemoryTransport`] is the reference for a run over the network.

use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, Result};

/// Ranks of a run: 4 nodes with 2 processes each in the paper (PM-7).
pub(crate) const RANKS: usize = 8;
const _: () = assert!(RANKS.is_power_of_two(), "`peers_of` finds partners by exclusive or");

/// The transport of one rank.
pub(super) trait KernelTransport {
    /// The own rank.
    fn rank(&self) -> usize;

    /// Sends a message; `fill` writes it into an empty buffer.
    fn send(&mut self, to: usize, fill: impl FnOnce(&mut Vec<u8>)) -> Result<()>;

    /// Waits for the next message from a rank; `take` reads it.
    fn receive<R>(&mut self, from: usize, take: impl FnOnce(&[u8]) -> R) -> Result<R>;

    /// Makes progress while a rank computes: there is no adapter that does so by itself.
    fn progress(&mut self) -> Result<()>;
}

/// All other ranks, in an order that differs by rank, so that not all send to the same rank first.
pub(super) fn peers_of(rank: usize) -> impl Iterator<Item = usize> {
    (1..RANKS).map(move |distance| rank ^ distance)
}

/// The words of all ranks, by rank.
pub(super) fn all_gather(net: &mut impl KernelTransport, own: &[u64]) -> Result<Vec<Vec<u64>>> {
    let rank = net.rank();
    for peer in peers_of(rank) {
        net.send(peer, |bytes| own.iter().for_each(|word| bytes.extend(word.to_le_bytes())))?;
    }
    let mut all = vec![Vec::new(); RANKS];
    for peer in peers_of(rank) {
        all[peer] = net.receive(peer, |bytes| decode_words(bytes).collect())?;
    }
    all[rank] = own.to_vec();
    Ok(all)
}

/// The words of a message.
pub(super) fn decode_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// A digest of all bytes so far, in order. Each step is invertible, so one altered word always changes the digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageDigest(u64);

impl Default for MessageDigest {
    fn default() -> Self {
        Self(0x6a09_e667_f3bc_c908)
    }
}

impl MessageDigest {
    pub(super) fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (whole, rest) = bytes.as_chunks::<8>();
        for word in whole {
            self.word(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.word(u64::from(*byte));
        }
    }

    pub(super) fn get(self) -> u64 {
        self.0
    }
}

/// A digest of the messages of each rank. Messages of different ranks arrive in no fixed order.
#[derive(Clone, Default, Debug)]
pub(super) struct ReceiveDigests([MessageDigest; RANKS]);

impl ReceiveDigests {
    pub(super) fn add(&mut self, from: usize, message: &[u8]) {
        self.0[from].bytes(message);
    }

    pub(super) fn digest(&self) -> u64 {
        let mut all = MessageDigest::default();
        self.0.iter().for_each(|one| all.word(one.get()));
        all.get()
    }
}

/// Channels in memory: the reference for a network.
pub(super) struct KernelMemoryTransport {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
    pub received: ReceiveDigests,
}

impl KernelMemoryTransport {
    /// The transports of all ranks.
    pub(super) fn all() -> Vec<Self> {
        let mut to: Vec<Vec<Sender<Vec<u8>>>> = (0..RANKS).map(|_| Vec::new()).collect();
        let mut from: Vec<Vec<Receiver<Vec<u8>>>> = (0..RANKS).map(|_| Vec::new()).collect();
        for senders in &mut to {
            for receivers in &mut from {
                let (sender, receiver) = channel();
                senders.push(sender);
                receivers.push(receiver);
            }
        }
        let ends = to.into_iter().zip(from).enumerate();
        ends.map(|(rank, (to, from))| Self { rank, to, from, received: ReceiveDigests::default() }).collect()
    }
}

impl KernelTransport for KernelMemoryTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn send(&mut self, to: usize, fill: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut message = Vec::new();
        fill(&mut message);
        self.to[to].send(message).ok().with_context(|| format!("rank {to} has ended"))
    }

    fn receive<R>(&mut self, from: usize, take: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let message = self.from[from].recv().with_context(|| format!("rank {from} has ended"))?;
        self.received.add(from, &message);
        Ok(take(&message))
    }

    fn progress(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_altered_byte_anywhere_changes_the_digest() {
        let message: Vec<u8> = (0..61).collect();
        let digest = |message: &[u8]| {
            let mut digest = MessageDigest::default();
            digest.bytes(message);
            digest.get()
        };
        for position in 0..message.len() {
            let mut altered = message.clone();
            altered[position] ^= 1;
            assert_ne!(digest(&altered), digest(&message), "byte {position}");
        }
        assert_ne!(digest(&message[..60]), digest(&message));
    }

    #[test]
    fn every_rank_has_every_other_as_peer_once() {
        for rank in 0..RANKS {
            let mut peers: Vec<usize> = peers_of(rank).collect();
            peers.sort_unstable();
            assert_eq!(peers, (0..RANKS).filter(|other| *other != rank).collect::<Vec<_>>());
        }
    }
}
