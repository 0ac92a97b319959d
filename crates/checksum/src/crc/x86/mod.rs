//! Kernels with carry-less multiplication, one file per width of the vector registers.
//!
//! Each has one function, `run`. With `COPY` it stores what it loads before it folds, so that the bytes are loaded once. The three share
//! the reduction of 128 bits to the register (`reduction.rs`). A few bytes of CRC-32C use `crc32_instruction.rs`.

#![allow(unsafe_code)]

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod crc32_instruction;
mod reduction;
pub(super) mod sse;
