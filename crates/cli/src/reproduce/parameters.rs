//! What an experiment assumes, from a file.

use std::path::Path;

use anyhow::{Context, Result};

/// The parameters of a file; those that are shipped, by their name and text, if none is named.
pub(super) fn read<P>(file: Option<&Path>, shipped: (&str, &str), parse: impl Fn(&str) -> Result<P>) -> Result<P> {
    let Some(file) = file else { return parse(shipped.1).with_context(|| shipped.0.to_owned()) };
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| file.display().to_string())
}
