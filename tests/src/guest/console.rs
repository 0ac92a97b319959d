//! The console output of guest and emulator, kept for error messages.

use std::io::Read;
use std::process::ChildStderr;
use std::sync::{Arc, Mutex, PoisonError};

/// The console keeps this much of the end of the output, ten times that of a boot.
const KEPT_BYTES: usize = 256 * 1024;

/// The last part of a console's output; clones share it.
#[derive(Clone, Default)]
pub(super) struct Console(Arc<Mutex<Vec<u8>>>);

impl Console {
    /// Reads in a new thread, which ends when the emulator does.
    pub(super) fn start(mut stream: ChildStderr) -> Self {
        let console = Self::default();
        let kept = console.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut bytes) {
                kept.append(&bytes[..length]);
            }
        });
        console
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).replace('\r', "")
    }

    fn append(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_carriage_returns_are_not() {
        let console = Console::default();
        console.append(b"first\r\n");
        assert_eq!(console.text(), "first\n");
        console.append(&vec![b'x'; KEPT_BYTES]);
        assert!(!console.text().contains("first"));
        assert_eq!(console.text().len(), KEPT_BYTES);
    }
}
