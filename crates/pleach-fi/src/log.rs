//! Lines of this library on the standard error.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints one line, in one system call: ranks often share a terminal. A failure to write is ignored: the program must continue.
pub(crate) fn log(what: &str) {
    let line = format!("pleach-fi: process {}: {what}\n", std::process::id());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Prints the first such line of this process.
pub(crate) fn log_once(what: &str) {
    static HAS_LOGGED: AtomicBool = AtomicBool::new(false);
    if !HAS_LOGGED.swap(true, Ordering::Relaxed) {
        log(what);
    }
}
