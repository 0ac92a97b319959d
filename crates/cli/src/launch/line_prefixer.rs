//! Output of many processes, line by line, each with its rank.

use std::io::{self, Write};

/// A line that is longer is cut: a process that never ends its line must not fill our memory.
const MOST_LINE_BYTES: usize = 65_536;

/// Puts a prefix before every line of one process.
pub(super) struct LinePrefixer {
    prefix: String,
    begun: Vec<u8>,
}

impl LinePrefixer {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix, begun: Vec::new() }
    }

    /// Takes what the process wrote, and writes the lines that are whole.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.begun.len() >= MOST_LINE_BYTES {
                self.finish(out)?;
            }
        }
        out.flush()
    }

    /// Writes what is left, as a line.
    pub(super) fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.begun.is_empty() {
            return Ok(());
        }
        out.write_all(self.prefix.as_bytes())?;
        out.write_all(&self.begun)?;
        if !self.begun.ends_with(b"\n") {
            out.write_all(b"\n")?;
        }
        self.begun.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_prefix_however_it_came() {
        let mut out = Vec::new();
        let mut lines = LinePrefixer::new("[3] ".to_owned());
        for piece in ["on", "e\ntwo\n\nth", "ree"] {
            lines.take(piece.as_bytes(), &mut out).expect("memory takes all");
        }
        assert_eq!(String::from_utf8_lossy(&out), "[3] one\n[3] two\n[3] \n");
        lines.finish(&mut out).expect("memory takes all");
        lines.finish(&mut out).expect("memory takes all");
        assert!(out.ends_with(b"[3] three\n"));
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut out = Vec::new();
        let mut lines = LinePrefixer::new("> ".to_owned());
        for _ in 0..5 {
            lines.take(&[0xff; 30_000], &mut out).expect("memory takes all");
            assert!(lines.begun.len() < MOST_LINE_BYTES);
        }
        assert!(out.starts_with(b"> \xff") && out.len() >= MOST_LINE_BYTES);
    }
}
