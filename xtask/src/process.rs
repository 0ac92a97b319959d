//! Running other programs: say what is run, show its output, and keep it where it is to be read afterwards.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};

use anyhow::Context;

/// What a program did.
pub(crate) struct Ran {
    pub(crate) ended: Ended,
    /// Standard output, then standard error, without colours.
    pub(crate) text: String,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Badly,
}

/// Runs a program on our own terminal.
pub(crate) fn show(command: &mut Command) -> anyhow::Result<Ended> {
    announce(command);
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    Ok(if status.success() { Ended::Well } else { Ended::Badly })
}

/// Runs a program, passes its output on line by line, and keeps it.
pub(crate) fn show_and_keep(command: &mut Command) -> anyhow::Result<Ran> {
    announce(command);
    if std::io::stdout().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always"); // Through a pipe it would not dare.
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", line(command)))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let text = std::thread::scope(|scope| {
        let errors = scope.spawn(|| stderr.map(|pipe| pass_on(pipe, std::io::stderr())));
        let output = stdout.map(|pipe| pass_on(pipe, std::io::stdout())).unwrap_or_default();
        output + &errors.join().expect("passing lines on does not panic").unwrap_or_default()
    });
    let ended = if child.wait()?.success() { Ended::Well } else { Ended::Badly };
    Ok(Ran { ended, text: without_colours(&text) })
}

/// True if the program can be started and ends well; its output is not shown.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    let words = command.get_args().map(|word| word.to_string_lossy());
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

fn announce(command: &Command) {
    println!("      $ {}", line(command));
}

fn pass_on(pipe: impl Read, mut to: impl Write) -> String {
    let mut reader = BufReader::new(pipe);
    let mut kept = Vec::new();
    loop {
        let start = kept.len();
        match reader.read_until(b'\n', &mut kept) {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&kept).into_owned(),
            Ok(_) => {
                // Whoever reads us may have gone; the program goes on and its end still counts.
                let _ = to.write_all(&kept[start..]);
            }
        }
    }
}

/// Drops the escape sequences that colour a terminal (`ESC [ … letter`).
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            characters.find(|character| character.is_ascii_alphabetic());
        } else {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_dropped_and_words_stay() {
        assert_eq!(without_colours("\u{1b}[32;1m  PASS\u{1b}[0m one"), "  PASS one");
    }

    #[test]
    fn both_streams_and_the_end_are_kept() {
        let ran = show_and_keep(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert_eq!((ran.ended, ran.text.as_str()), (Ended::Badly, "out\nerr\n"));
    }

    #[test]
    fn a_program_that_is_not_there_does_not_work() {
        assert!(!works(&mut Command::new("no-such-program-anywhere")));
    }
}
