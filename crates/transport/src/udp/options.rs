//! How an endpoint is told to behave, and what it tells of itself.

use std::time::Duration;

use super::fault_injector::FaultInjector;
use super::port::ReceiveMode;

/// How an endpoint behaves.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// How long a waiting endpoint looks again and again before it sleeps.
    pub spin: Duration,
    /// How its ports receive.
    pub reception: ReceiveMode,
    /// Faults to inject, for tests.
    pub mischief: FaultInjector,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self { spin: Duration::from_micros(20), reception: ReceiveMode::Plain, mischief: FaultInjector::default() }
    }
}

/// How a port is cut, see [`super::Endpoint::cut`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkCut {
    /// As by a dead switch further on: nobody is told.
    Silent,
    /// As by a cable pulled at this host: the connections are told at once.
    Noticed,
}

/// What an endpoint has seen, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EndpointCounters {
    /// Packets given to the kernel, and of them repeats.
    pub sent: u64,
    /// See [`Self::sent`].
    pub repeated: u64,
    /// Sound packets for a queue pair that exists.
    pub received: u64,
    /// Packets whose ICRC was wrong.
    pub damaged: u64,
    /// Packets that are no packets.
    pub malformed: u64,
    /// Packets for a queue pair that does not exist, or from an address that it does not know.
    pub foreign: u64,
    /// Datagrams that nobody had a buffer for.
    pub unbuffered: u64,
    /// Calls that the kernel turned down, because it had no room or no way.
    pub unsent: u64,
}
