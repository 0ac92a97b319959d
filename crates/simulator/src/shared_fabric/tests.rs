//! Several groups at once.
