//! The options of an endpoint.

use std::time::Duration;

use super::fault_injector::FaultInjector;
use super::port::ReceiveMode;

/// The options of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// How long a waiting endpoint spins before it sleeps.
    pub spin: Duration,
    /// How its ports receive.
    pub receive_mode: ReceiveMode,
    /// Faults to inject, for tests.
    pub fault_injector: FaultInjector,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            spin: Duration::from_micros(20),
            receive_mode: ReceiveMode::Plain,
            fault_injector: FaultInjector::default(),
        }
    }
}

/// How a port is cut; see [`super::Endpoint::cut`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkCut {
    /// As by a dead switch further on: the connections find out by timeouts.
    Silent,
    /// As by a cable pulled at this host: the kernel reports it and the connections learn of it at once.
    Noticed,
}
