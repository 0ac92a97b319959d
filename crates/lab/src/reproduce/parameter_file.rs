//! The parameters of an experiment, from a TOML file.

use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use units::SimSpan;

/// Maximum size of a file; the shipped ones have a few thousand bytes.
const MAX_BYTES: u64 = 1 << 18;

/// Reads a parameter file, or the shipped parameters (name and text) if no file is given.
pub(super) fn read_parameters<P>(
    file: Option<&Path>,
    shipped: (&str, &str),
    parse: impl Fn(&str) -> Result<P>,
) -> Result<P> {
    let Some(file) = file else { return parse(shipped.1).with_context(|| shipped.0.to_owned()) };
    let mut text = String::new();
    let opened = File::open(file).and_then(|opened| opened.take(MAX_BYTES + 1).read_to_string(&mut text));
    let bytes = opened.with_context(|| format!("cannot read {}", file.display()))?;
    ensure!(bytes as u64 <= MAX_BYTES, "{}: larger than {MAX_BYTES} bytes, not a parameter file", file.display());
    parse(&text).with_context(|| file.display().to_string())
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
        assert!(error.to_string().contains("not a parameter file"), "{error}");
    }
}
