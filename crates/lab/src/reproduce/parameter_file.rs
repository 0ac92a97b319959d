//! The parameters of an experiment, from a TOML file.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use units::SimSpan;

use crate::text_file::read_text;

/// Maximum size of a file; the shipped ones have a few thousand bytes.
const MAX_BYTES: u64 = 1 << 18;

/// Reads a parameter file, or the shipped parameters (name and text) if no file is given: the text and what it says.
pub(super) fn read_parameters<P>(
    file: Option<&Path>,
    shipped: (&str, &str),
    parse: impl Fn(&str) -> Result<P>,
) -> Result<(String, P)> {
    let (name, text) = match file {
        None => (shipped.0.to_owned(), shipped.1.to_owned()),
        Some(file) => (file.display().to_string(), read_text(file, MAX_BYTES)?),
    };
    let parameters = parse(&text).context(name)?;
    Ok((text, parameters))
}

/// Checks that a parameter is in its range.
pub(super) fn check_range(name: &str, value: f64, range: RangeInclusive<f64>) -> Result<()> {
    ensure!(range.contains(&value), "{name}: {value} is not between {} and {}", range.start(), range.end());
    Ok(())
}

/// A parameter in nanoseconds, rounded to picoseconds.
pub(super) fn nanos(nanos: f64) -> SimSpan {
    SimSpan::from_picos(picos(nanos))
}

/// A parameter in nanoseconds as picoseconds.
pub(super) fn picos(nanos: f64) -> u64 {
    (nanos * 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_rejected() {
        let error = read_parameters(Some(Path::new("/dev/zero")), ("", ""), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("is larger than 256 KiB"), "{error}");
    }
}
