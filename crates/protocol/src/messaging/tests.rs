//! Endpoints joined by rails that corrupt, fail and delay; the oracle judges every message.

mod behaviour;
mod harness;
mod malformed_input;
mod random_traffic;
mod user_matching;
