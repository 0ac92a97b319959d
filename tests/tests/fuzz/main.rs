//! Bytes from outside: whatever arrives, decoders return, and machines go on within their bounds.
//!
//! Each target runs on the inputs in `__fuzz__/NAME/corpus` and then for a second on random ones; `BOLERO_RANDOM_TEST_TIME_MS` sets
//! another time. `cargo bolero test -p tests --test fuzz NAME` runs a target guided by coverage (cargo-bolero, a nightly toolchain).
//! An input that found a defect belongs into the corpus. Decoders that are private to a crate have targets there:
//! `bootstrap` (`src/tests/fuzz.rs`) and `pleach-fi` (`src/connection_request/fuzz.rs`).

mod control_plane;
mod edge_datagrams;
mod edits;
mod files;
mod machines;
mod node_commands;
mod packets;
