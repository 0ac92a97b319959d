//! Ports joined by rails that spoil, vanish and take their time; every message is judged by the oracle.

mod misuse;
mod single;
mod traffic;
mod world;
