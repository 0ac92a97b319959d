//! A deterministic fabric that runs the protocol machines in virtual picoseconds.
