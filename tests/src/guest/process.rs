//! Commands on this machine, none of which may run for ever.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::error::GuestError;

/// How often a running command is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a command, ends it if it takes longer than `limit`, and returns how it ended and what it wrote.
///
/// # Errors
/// It could not be started, or it was still running at the limit.
pub fn run_bounded(command: &mut Command, limit: Duration) -> Result<Output, GuestError> {
    let line = line(command);
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|source| not_started(&line, source))?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = wait_bounded(&mut child, limit);
    let status = status.map_err(|source| GuestError::io(format!("waiting for `{line}`"), source))?;
    let Some(status) = status else {
        // The collectors may wait for grandchildren that hold the pipes; they are not waited for.
        return Err(GuestError::Command { line, ended: format!("took over {limit:?}"), message: String::new() });
    };
    let [stdout, stderr] = [stdout, stderr].map(|collector| collector.join().expect("a collector does not panic"));
    Ok(Output { status, stdout, stderr })
}

/// As [`run_bounded`], and a bad exit status is an error. Returns what was written to standard output.
pub(super) fn succeed(command: &mut Command, limit: Duration) -> Result<Vec<u8>, GuestError> {
    let output = run_bounded(command, limit)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(GuestError::Command { line: line(command), ended: output.status.to_string(), message })
}

/// Waits until a process ends; one that is late is killed, and the answer is `None`.
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

/// The command as one would type it.
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
            // What could be read before an error is still worth showing.
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_is_ended() {
        let start = Instant::now();
        let error = run_bounded(Command::new("sleep").arg("60"), Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("`sleep 60` took over 50ms"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_missing_program_and_a_bad_status_are_told_apart() {
        let limit = Duration::from_secs(10);
        let missing = succeed(&mut Command::new("no-such-program-anywhere"), limit);
        assert!(matches!(missing, Err(GuestError::Missing(_))));
        let bad = succeed(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), limit).unwrap_err();
        assert!(bad.to_string().contains("exit status: 3: why"), "{bad}");
    }
}
