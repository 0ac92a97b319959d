//! Text files of limited size. Files without an end, such as devices, are errors.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Reads a text file of at most so many bytes.
///
/// # Errors
/// If it cannot be read, or is larger.
pub fn read_text(path: &Path, max_bytes: u64) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(max_bytes + 1).read_to_string(&mut text));
    let bytes = read.with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(bytes as u64 <= max_bytes, "{} is larger than {} KiB", path.display(), max_bytes >> 10);
    Ok(text)
}
