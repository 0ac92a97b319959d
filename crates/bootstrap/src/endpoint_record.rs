//! What every rank publishes about itself, and the table of all ranks.
//!
//! Encoded as little-endian numbers and length-prefixed byte strings. Lengths are checked before anything is allocated.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::host_identity::{self, HostIdentity};

/// Most addresses of a rank.
pub const MAX_RANK_ADDRESSES: usize = 16;
/// Most bytes of extra data of a rank.
pub const MAX_EXTRA_BYTES: usize = 4096;
const MAX_TEXT_BYTES: usize = 256;
/// Upper bound for an encoded record.
pub(super) const MAX_RECORD_BYTES: usize = 8192;

const _: () = assert!(MAX_EXTRA_BYTES + 2 * MAX_TEXT_BYTES + 2 * MAX_RANK_ADDRESSES * 20 + 64 < MAX_RECORD_BYTES);

/// One rank, as the other ranks know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointRecord {
    /// Its rank.
    pub rank: u32,
    /// Its process ID on its host.
    pub process: u32,
    /// Its host.
    pub host: HostIdentity,
    /// The name of its host, for error messages.
    pub host_name: String,
    /// Its UDP addresses.
    pub addresses: Vec<SocketAddr>,
    /// Where its failure detector accepts TCP connections, one address for each path.
    pub ports: Vec<SocketAddr>,
    /// Data of the caller.
    pub extra: Vec<u8>,
}

/// The records of all ranks. Every rank has the same table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankTable {
    records: Vec<EndpointRecord>,
}

impl RankTable {
    /// From the records in order of ranks.
    pub(super) fn new(records: Vec<EndpointRecord>) -> Self {
        debug_assert!((0..).zip(&records).all(|(rank, record)| record.rank == rank));
        Self { records }
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        u32::try_from(self.records.len()).expect("a job has at most 65536 ranks")
    }

    /// A rank's record.
    pub fn record(&self, rank: u32) -> Option<&EndpointRecord> {
        self.records.get(rank as usize)
    }

    /// All records, in order of ranks.
    pub fn records(&self) -> &[EndpointRecord] {
        &self.records
    }

    /// The ranks of each host, in order; hosts in order of their first rank.
    pub fn hosts(&self) -> Vec<Vec<u32>> {
        let mut hosts: Vec<Vec<u32>> = Vec::new();
        let mut known = BTreeMap::new();
        for record in &self.records {
            let index = *known.entry(&record.host).or_insert(hosts.len());
            if index == hosts.len() {
                hosts.push(Vec::new());
            }
            hosts[index].push(record.rank);
        }
        hosts
    }

    /// The ranks on the same host as this rank, including itself, in order.
    pub fn ranks_on_host_of(&self, rank: u32) -> Vec<u32> {
        let Some(own) = self.record(rank) else { return Vec::new() };
        self.records.iter().filter(|record| record.host == own.host).map(|record| record.rank).collect()
    }

    pub(super) fn write(&self, writer: &mut RecordWriter) {
        writer.number(self.size());
        for record in &self.records {
            record.write(writer);
        }
    }

    /// Decodes a table; `None` if it is malformed or has another size.
    pub(super) fn read(reader: &mut RecordReader<'_>, size: u32) -> Option<Self> {
        if reader.number()? != size {
            return None;
        }
        let mut records = Vec::new();
        for rank in 0..size {
            records.push(EndpointRecord::read(reader).filter(|record| record.rank == rank)?);
        }
        Some(Self::new(records))
    }
}

impl EndpointRecord {
    /// The record of this process.
    pub(super) fn own(rank: u32, addresses: Vec<SocketAddr>, ports: Vec<SocketAddr>, extra: Vec<u8>) -> Self {
        let (host, host_name) = (HostIdentity::current(), host_identity::host_name());
        Self { rank, process: std::process::id(), host, host_name, addresses, ports, extra }
    }

    pub(super) fn write(&self, writer: &mut RecordWriter) {
        writer.number(self.rank);
        writer.number(self.process);
        writer.bytes_with_length(self.host.0.as_bytes());
        writer.bytes_with_length(self.host_name.as_bytes());
        for addresses in [&self.addresses, &self.ports] {
            writer.number(u32::try_from(addresses.len()).expect("at most 16"));
            addresses.iter().for_each(|address| writer.address(*address));
        }
        writer.bytes_with_length(&self.extra);
    }

    pub(super) fn read(reader: &mut RecordReader<'_>) -> Option<Self> {
        let (rank, process) = (reader.number()?, reader.number()?);
        let host = HostIdentity(reader.printable_text()?);
        let host_name = reader.printable_text()?;
        let (addresses, ports) = (reader.addresses()?, reader.addresses()?);
        let extra = reader.bytes_with_length(MAX_EXTRA_BYTES)?.to_vec();
        Some(Self { rank, process, host, host_name, addresses, ports, extra })
    }
}

/// Encodes a message.
#[derive(Default)]
pub(super) struct RecordWriter {
    pub(super) bytes: Vec<u8>,
}

impl RecordWriter {
    pub(super) fn number(&mut self, number: u32) {
        self.bytes.extend(number.to_le_bytes());
    }

    pub(super) fn bytes_with_length(&mut self, bytes: &[u8]) {
        self.number(u32::try_from(bytes.len()).expect("callers check the length"));
        self.bytes.extend(bytes);
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

/// Decodes a message; every method returns `None` if the message is too short or exceeds a limit.
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

    pub(super) fn bytes_with_length(&mut self, max: usize) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        if length > max {
            return None;
        }
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn printable_text(&mut self) -> Option<String> {
        let text = std::str::from_utf8(self.bytes_with_length(MAX_TEXT_BYTES)?).ok()?;
        (!text.chars().any(char::is_control)).then(|| text.to_owned())
    }

    fn addresses(&mut self) -> Option<Vec<SocketAddr>> {
        let count = self.number().filter(|count| *count as usize <= MAX_RANK_ADDRESSES)?;
        (0..count).map(|_| self.address()).collect()
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

    fn record(rank: u32, host: &str) -> EndpointRecord {
        EndpointRecord {
            rank,
            process: 77,
            host: HostIdentity(host.to_owned()),
            host_name: "node".to_owned(),
            addresses: vec!["10.1.2.3:4791".parse().expect("an address"), "[fd00::2]:9".parse().expect("an address")],
            ports: vec!["10.1.2.3:77".parse().expect("an address")],
            extra: vec![0, 255, 3],
        }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = RankTable::new(vec![record(0, "a"), record(1, "b"), record(2, "a")]);
        let mut writer = RecordWriter::default();
        table.write(&mut writer);
        assert_eq!(RankTable::read(&mut RecordReader { rest: &writer.bytes }, 3), Some(table));
        assert_eq!(RankTable::read(&mut RecordReader { rest: &writer.bytes }, 2), None);
    }

    #[test]
    fn truncated_and_corrupted_records_do_not_panic() {
        let mut writer = RecordWriter::default();
        record(5, "somewhere").write(&mut writer);
        for length in 0..writer.bytes.len() {
            assert_eq!(EndpointRecord::read(&mut RecordReader { rest: &writer.bytes[..length] }), None);
        }
        for index in 0..writer.bytes.len() {
            let mut changed = writer.bytes.clone();
            changed[index] ^= 0xff;
            // The result may be another valid record, but never a larger one than the input.
            if let Some(record) = EndpointRecord::read(&mut RecordReader { rest: &changed }) {
                assert!(record.extra.len() <= changed.len() && record.addresses.len() <= MAX_RANK_ADDRESSES);
            }
        }
    }

    #[test]
    fn ranks_of_one_host_are_found() {
        let table = RankTable::new(vec![record(0, "b"), record(1, "a"), record(2, "b"), record(3, "c")]);
        assert_eq!(table.hosts(), [vec![0, 2], vec![1], vec![3]]);
        assert_eq!((table.ranks_on_host_of(2), table.ranks_on_host_of(9)), (vec![0, 2], vec![]));
    }
}
