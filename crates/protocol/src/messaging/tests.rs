//! Ports joined by rails that spoil, vanish and take their time; every message is judged by the oracle.

mod behaviour;
mod harness;
mod malformed_input;
mod random_traffic;
