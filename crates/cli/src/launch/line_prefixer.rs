//! Prefixes every line of a process's output.

use std::io::{self, Write};

/// Longer lines are split: a process that never ends its line must not fill our memory.
const MAX_LINE_BYTES: usize = 65_536;

/// Prefixes every line of one process.
pub(super) struct LinePrefixer {
    prefix: String,
    partial: Vec<u8>,
}

impl LinePrefixer {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix, partial: Vec::new() }
    }

    /// Takes output of the process, and writes its complete lines.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(part);
            if part.ends_with(b"\n") || self.partial.len() >= MAX_LINE_BYTES {
                self.finish(out)?;
            }
        }
        out.flush()
    }

    /// Writes a partial line, if there is one.
    pub(super) fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.partial.is_empty() {
            return Ok(());
        }
        out.write_all(self.prefix.as_bytes())?;
        out.write_all(&self.partial)?;
        if !self.partial.ends_with(b"\n") {
            out.write_all(b"\n")?;
        }
        self.partial.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_prefix_however_output_is_split() {
        let mut out = Vec::new();
        let mut lines = LinePrefixer::new("[3] ".to_owned());
        for part in ["on", "e\ntwo\n\nth", "ree"] {
            lines.push(part.as_bytes(), &mut out).expect("a Vec accepts all writes");
        }
        assert_eq!(String::from_utf8_lossy(&out), "[3] one\n[3] two\n[3] \n");
        lines.finish(&mut out).expect("a Vec accepts all writes");
        lines.finish(&mut out).expect("a Vec accepts all writes");
        assert!(out.ends_with(b"[3] three\n"));
    }

    #[test]
    fn an_endless_line_is_split() {
        let mut out = Vec::new();
        let mut lines = LinePrefixer::new("> ".to_owned());
        for _ in 0..5 {
            lines.push(&[0xff; 30_000], &mut out).expect("a Vec accepts all writes");
            assert!(lines.partial.len() < MAX_LINE_BYTES);
        }
        assert!(out.starts_with(b"> \xff") && out.len() >= MAX_LINE_BYTES);
    }
}
