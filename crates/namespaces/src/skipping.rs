//! Tests that cannot run on this machine.

use std::fmt::Display;

/// Prints why a test cannot run here; the test then returns.
///
/// # Panics
/// With `CI` set: nobody reads the output of tests that pass.
pub fn skip_test(why: impl Display) {
    let ci = std::env::var("CI").unwrap_or_default();
    assert!(matches!(ci.as_str(), "" | "0" | "false"), "not tested, and CI is set: {why}");
    println!("not tested: {why}");
}
