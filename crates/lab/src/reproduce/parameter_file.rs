//! What an experiment assumes, from a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The most bytes of a file: the shipped ones have a few thousand.
const MOST_BYTES: u64 = 1 << 18;

/// The parameters of a file; those that are shipped, by their name and text, if none is named.
pub(super) fn read_parameters<P>(
    file: Option<&Path>,
    shipped: (&str, &str),
    parse: impl Fn(&str) -> Result<P>,
) -> Result<P> {
    let Some(file) = file else { return parse(shipped.1).with_context(|| shipped.0.to_owned()) };
    let mut text = String::new();
    let opened = File::open(file).and_then(|opened| opened.take(MOST_BYTES + 1).read_to_string(&mut text));
    let bytes = opened.with_context(|| format!("cannot read {}", file.display()))?;
    ensure!(bytes as u64 <= MOST_BYTES, "{}: more than {MOST_BYTES} bytes are no parameters", file.display());
    parse(&text).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read_parameters(Some(Path::new("/dev/zero")), ("", ""), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("are no parameters"), "{error}");
    }
}
