//! Kernels with carry-less multiplication, one file per width of the vector registers.
//!
//! Each has one function, `run`. With `COPY` it stores what it has loaded before it folds it, so that the bytes are
//! fetched once. The three share how 128 bits become the register (`ending.rs`). A few bytes of CRC-32C go by `instruction.rs`.

#![allow(unsafe_code)]

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod crc32_instruction;
mod reduction;
pub(super) mod sse;
