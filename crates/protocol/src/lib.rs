//! The protocol machines: no I/O, no clock, no randomness.
