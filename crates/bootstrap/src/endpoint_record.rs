//! What every rank tells all others when the job meets, and the table of all of it.
//!
//! Written in little-endian numbers and counted texts. Whatever is read is bounded before it is kept.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::host_identity::{self, HostIdentity};

/// A rank names at most so many addresses.
pub const MAX_RANK_ADDRESSES: usize = 16;
/// A rank gives the others at most so many bytes of its own.
pub const MAX_EXTRA_BYTES: usize = 4096;
const MAX_TEXT_BYTES: usize = 256;
/// A card written out is shorter than this.
pub(super) const MAX_RECORD_BYTES: usize = 8192;

const _: () = assert!(MAX_EXTRA_BYTES + 2 * MAX_TEXT_BYTES + MAX_RANK_ADDRESSES * 20 + 64 < MAX_RECORD_BYTES);

/// One rank, as the others know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointRecord {
    /// Its rank.
    pub rank: u32,
    /// Its process, in the numbers of its host.
    pub process: u32,
    /// Which host it is on.
    pub host: HostIdentity,
    /// What people call the host.
    pub host_name: String,
    /// Where it takes UDP packets.
    pub addresses: Vec<SocketAddr>,
    /// Whatever the caller wants the others to know.
    pub extra: Vec<u8>,
}

/// The cards of all ranks. Every rank holds the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankTable {
    cards: Vec<EndpointRecord>,
}

impl RankTable {
    /// In order of ranks, from zero.
    pub(super) fn new(cards: Vec<EndpointRecord>) -> Self {
        debug_assert!((0..).zip(&cards).all(|(rank, card)| card.rank == rank));
        Self { cards }
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        u32::try_from(self.cards.len()).expect("a job is smaller than that")
    }

    /// A rank's card.
    pub fn card(&self, rank: u32) -> Option<&EndpointRecord> {
        self.cards.get(rank as usize)
    }

    /// All cards, in order of ranks.
    pub fn cards(&self) -> &[EndpointRecord] {
        &self.cards
    }

    /// The ranks of each host, in order; hosts in order of their first rank.
    pub fn hosts(&self) -> Vec<Vec<u32>> {
        let mut hosts: Vec<Vec<u32>> = Vec::new();
        let mut known = BTreeMap::new();
        for card in &self.cards {
            let index = *known.entry(&card.host).or_insert(hosts.len());
            if index == hosts.len() {
                hosts.push(Vec::new());
            }
            hosts[index].push(card.rank);
        }
        hosts
    }

    /// The ranks on the host of this rank, itself among them, in order.
    pub fn beside(&self, rank: u32) -> Vec<u32> {
        let Some(own) = self.card(rank) else { return Vec::new() };
        self.cards.iter().filter(|card| card.host == own.host).map(|card| card.rank).collect()
    }

    pub(super) fn write(&self, writer: &mut RecordWriter) {
        writer.number(self.size());
        for card in &self.cards {
            card.write(writer);
        }
    }

    /// The table that these bytes hold, if it is one of so many ranks.
    pub(super) fn read(reader: &mut RecordReader<'_>, size: u32) -> Option<Self> {
        if reader.number()? != size {
            return None;
        }
        let mut cards = Vec::new();
        for rank in 0..size {
            cards.push(EndpointRecord::read(reader).filter(|card| card.rank == rank)?);
        }
        Some(Self::new(cards))
    }
}

impl EndpointRecord {
    /// This process's.
    pub(super) fn own(rank: u32, addresses: Vec<SocketAddr>, extra: Vec<u8>) -> Self {
        let (host, host_name) = (HostIdentity::here(), host_identity::host_name());
        Self { rank, process: std::process::id(), host, host_name, addresses, extra }
    }

    pub(super) fn write(&self, writer: &mut RecordWriter) {
        writer.number(self.rank);
        writer.number(self.process);
        writer.text(self.host.0.as_bytes());
        writer.text(self.host_name.as_bytes());
        writer.number(u32::try_from(self.addresses.len()).expect("there are few"));
        for address in &self.addresses {
            writer.address(*address);
        }
        writer.text(&self.extra);
    }

    pub(super) fn read(reader: &mut RecordReader<'_>) -> Option<Self> {
        let (rank, process) = (reader.number()?, reader.number()?);
        let host = HostIdentity(reader.words()?);
        let host_name = reader.words()?;
        let count = reader.number()? as usize;
        if count > MAX_RANK_ADDRESSES {
            return None;
        }
        let addresses = (0..count).map(|_| reader.address()).collect::<Option<_>>()?;
        let extra = reader.text(MAX_EXTRA_BYTES)?.to_vec();
        Some(Self { rank, process, host, host_name, addresses, extra })
    }
}

/// Puts a message together.
#[derive(Default)]
pub(super) struct RecordWriter {
    pub(super) bytes: Vec<u8>,
}

impl RecordWriter {
    pub(super) fn number(&mut self, number: u32) {
        self.bytes.extend(number.to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.number(u32::try_from(text.len()).expect("checked by whoever made it"));
        self.bytes.extend(text);
    }

    fn address(&mut self, address: SocketAddr) {
        match address.ip() {
            IpAddr::V4(four) => {
                self.bytes.push(4);
                self.bytes.extend(four.octets());
            }
            IpAddr::V6(six) => {
                self.bytes.push(6);
                self.bytes.extend(six.octets());
            }
        }
        self.bytes.extend(address.port().to_le_bytes());
    }
}

/// Takes a message apart; `None` wherever it is too short or says too much.
pub(super) struct RecordReader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> RecordReader<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn text(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        if length > most {
            return None;
        }
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(text)
    }

    fn words(&mut self) -> Option<String> {
        let words = std::str::from_utf8(self.text(MAX_TEXT_BYTES)?).ok()?;
        (!words.chars().any(char::is_control)).then(|| words.to_owned())
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let ip = match self.take()? {
            [4] => IpAddr::V4(Ipv4Addr::from(self.take::<4>()?)),
            [6] => IpAddr::V6(Ipv6Addr::from(self.take::<16>()?)),
            _ => return None,
        };
        Some(SocketAddr::new(ip, self.take().map(u16::from_le_bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(rank: u32, host: &str) -> EndpointRecord {
        EndpointRecord {
            rank,
            process: 77,
            host: HostIdentity(host.to_owned()),
            host_name: "node".to_owned(),
            addresses: vec!["10.1.2.3:4791".parse().expect("an address"), "[fd00::2]:9".parse().expect("an address")],
            extra: vec![0, 255, 3],
        }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = RankTable::new(vec![card(0, "a"), card(1, "b"), card(2, "a")]);
        let mut writer = RecordWriter::default();
        table.write(&mut writer);
        assert_eq!(RankTable::read(&mut RecordReader { rest: &writer.bytes }, 3), Some(table));
        assert_eq!(RankTable::read(&mut RecordReader { rest: &writer.bytes }, 2), None);
    }

    #[test]
    fn no_cut_and_no_changed_byte_makes_a_reader_panic() {
        let mut writer = RecordWriter::default();
        card(5, "somewhere").write(&mut writer);
        for length in 0..writer.bytes.len() {
            assert_eq!(EndpointRecord::read(&mut RecordReader { rest: &writer.bytes[..length] }), None);
        }
        for index in 0..writer.bytes.len() {
            let mut changed = writer.bytes.clone();
            changed[index] ^= 0xff;
            // It may be another sound card; it must not be a larger one than there are bytes.
            if let Some(card) = EndpointRecord::read(&mut RecordReader { rest: &changed }) {
                assert!(card.extra.len() <= changed.len() && card.addresses.len() <= MAX_RANK_ADDRESSES);
            }
        }
    }

    #[test]
    fn ranks_of_one_host_are_found() {
        let table = RankTable::new(vec![card(0, "b"), card(1, "a"), card(2, "b"), card(3, "c")]);
        assert_eq!(table.hosts(), [vec![0, 2], vec![1], vec![3]]);
        assert_eq!((table.beside(2), table.beside(9)), (vec![0, 2], vec![]));
    }
}
