//! What the rendezvous leaves for the failure detector.

use std::collections::BTreeMap;
use std::net::TcpListener;

use super::endpoint_record::RankTable;
use super::framing::FramedStream;
use super::token_key::TokenKey;

/// The table, the job's key, and connections to all other ranks at rank 0, or to rank 0.
pub(super) struct RankConnections {
    pub(super) table: RankTable,
    pub(super) key: TokenKey,
    pub(super) streams: BTreeMap<u32, FramedStream>,
    /// Where the failure detector accepts connections.
    pub(super) listeners: Vec<TcpListener>,
}
