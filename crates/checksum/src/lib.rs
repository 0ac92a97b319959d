//! Integrity codes over bytes.
