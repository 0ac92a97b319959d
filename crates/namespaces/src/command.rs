//! Runs a command to its end, with a text as its standard input.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use crate::error::NamespaceError;

/// Runs a command and returns its standard output.
///
/// # Errors
/// The command does not exist, does not start, or fails.
pub(crate) fn run(command: &mut Command, input: &str) -> Result<String, NamespaceError> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => missing_program(&program),
        _ => NamespaceError::io(format!("running `{line}`"), source),
    };
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().map_err(failed)?;
    let stdin = child.stdin.take().expect("standard input is piped");
    // `ip` and `nft` read all input before they write more than a line, so this does not block. A command that ends
    // early closes the pipe; its standard error explains more than the write error does.
    let _ = { stdin }.write_all(input.as_bytes());
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = match failed_batch_line(input, &stderr) {
        Some(failed) => format!("{line} <<< {failed}"),
        None => line,
    };
    Err(NamespaceError::Command { line, stderr })
}

fn missing_program(program: &str) -> NamespaceError {
    NamespaceError::Missing(match program {
        "ip" | "tc" => format!("the program {program} (Debian package iproute2)"),
        _ => format!("the program {program}"),
    })
}

/// The line of a batch that `ip` reports as `Command failed -:3`.
fn failed_batch_line<'input>(input: &'input str, stderr: &str) -> Option<&'input str> {
    let (_, number) = stderr.split_once("Command failed -:")?;
    let number: usize = number.split_whitespace().next()?.parse().ok()?;
    input.lines().nth(number.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_batch_shows_the_line_that_failed() {
        let input = "link set dev lo up\nlink set dev nowhere up\n";
        let stderr = "Cannot find device \"nowhere\"\nCommand failed -:2\n";
        assert_eq!(failed_batch_line(input, stderr), Some("link set dev nowhere up"));
        assert_eq!(failed_batch_line(input, "Command failed -:0"), None);
        assert_eq!(failed_batch_line("", "Cannot open network namespace"), None);
    }
}
