//! Runs commands on this machine with a time limit.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::error::GuestError;

/// How often a running command is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a command and returns its exit status and output; kills it if it takes longer than `limit`.
///
/// # Errors
/// The command could not be started, or exceeded the limit.
pub fn run_bounded(command: &mut Command, limit: Duration) -> Result<Output, GuestError> {
    let line = line(command);
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|source| not_started(&line, source))?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = wait_bounded(&mut child, limit);
    let status = status.map_err(|source| GuestError::io(format!("waiting for `{line}`"), source))?;
    let Some(status) = status else {
        // Do not join the collectors: they may wait for grandchildren that hold the pipes.
        return Err(GuestError::Command { line, ended: format!("took over {limit:?}"), stderr: String::new() });
    };
    let [stdout, stderr] = [stdout, stderr].map(|collector| collector.join().expect("a collector does not panic"));
    Ok(Output { status, stdout, stderr })
}

/// As [`run_bounded`], but a bad exit status is an error. Returns the standard output.
pub(super) fn run_successfully(command: &mut Command, limit: Duration) -> Result<Vec<u8>, GuestError> {
    let output = run_bounded(command, limit)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(GuestError::Command { line: line(command), ended: output.status.to_string(), stderr })
}

/// Waits for the end of a process; kills it at the limit and returns `None`.
pub(super) fn wait_bounded(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The command line as text.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn not_started(line: &str, source: io::Error) -> GuestError {
    if source.kind() == io::ErrorKind::NotFound {
        return GuestError::Missing(format!("the program of `{line}`"));
    }
    GuestError::io(format!("starting `{line}`"), source)
}

fn collect(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // Keep what was read before an error.
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_exceeds_its_limit_is_killed() {
        let start = Instant::now();
        let error = run_bounded(Command::new("sleep").arg("60"), Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("`sleep 60` took over 50ms"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_missing_program_and_a_bad_status_are_different_errors() {
        let limit = Duration::from_secs(10);
        let missing = run_successfully(&mut Command::new("no-such-program-anywhere"), limit);
        assert!(matches!(missing, Err(GuestError::Missing(_))));
        let bad = run_successfully(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), limit).unwrap_err();
        assert!(bad.to_string().contains("exit status: 3: why"), "{bad}");
    }
}
