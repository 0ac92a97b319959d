//! Runs other programs: prints the command, shows the output, and keeps it if it is parsed afterwards.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};

use anyhow::Context;

/// A completed program.
pub(crate) struct Ran {
    pub(crate) exit: ExitState,
    /// Standard output, then standard error, without colours.
    pub(crate) text: String,
}

/// The exit status of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitState {
    Success,
    Failure,
}

/// Runs a program; its output goes to our terminal.
pub(crate) fn show(command: &mut Command) -> anyhow::Result<ExitState> {
    announce(command);
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    Ok(if status.success() { ExitState::Success } else { ExitState::Failure })
}

/// Runs a program, forwards its output line by line, and keeps it.
pub(crate) fn show_and_keep(command: &mut Command) -> anyhow::Result<Ran> {
    announce(command);
    if std::io::stdout().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always"); // Cargo does not colour what it writes to a pipe.
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", line(command)))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let text = std::thread::scope(|scope| {
        let errors = scope.spawn(|| stderr.map(|pipe| forward(pipe, std::io::stderr())));
        let output = stdout.map(|pipe| forward(pipe, std::io::stdout())).unwrap_or_default();
        output + &errors.join().expect("forwarding lines does not panic").unwrap_or_default()
    });
    let exit = if child.wait()?.success() { ExitState::Success } else { ExitState::Failure };
    Ok(Ran { exit, text: without_colours(&text) })
}

/// True if the program starts and succeeds. Its output is not shown.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as a user would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    let words = command.get_args().map(|word| word.to_string_lossy());
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

fn announce(command: &Command) {
    println!("      $ {}", line(command));
}

fn forward(pipe: impl Read, mut to: impl Write) -> String {
    let mut reader = BufReader::new(pipe);
    let mut kept = Vec::new();
    loop {
        let start = kept.len();
        match reader.read_until(b'\n', &mut kept) {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&kept).into_owned(),
            Ok(_) => {
                // The reader of our output may be gone; the program continues, and its exit status still counts.
                let _ = to.write_all(&kept[start..]);
            }
        }
    }
}

/// Removes the escape sequences that colour a terminal (`ESC [ … letter`).
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
    fn colours_are_removed() {
        assert_eq!(without_colours("\u{1b}[32;1m  PASS\u{1b}[0m one"), "  PASS one");
    }

    #[test]
    fn both_streams_and_the_exit_status_are_kept() {
        let ran = show_and_keep(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert_eq!((ran.exit, ran.text.as_str()), (ExitState::Failure, "out\nerr\n"));
    }

    #[test]
    fn a_missing_program_does_not_work() {
        assert!(!works(&mut Command::new("no-such-program-anywhere")));
    }
}
