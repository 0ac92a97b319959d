//! A program on a host that ends with the test.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A running process; dropping it kills it, by its id.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a command, such as one made by [`Host::command`](super::Host::command).
    ///
    /// # Errors
    /// The command could not be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        Ok(Self { child: command.spawn()? })
    }

    /// The process and its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status; none if the process still runs after this time.
    ///
    /// # Errors
    /// Waiting failed.
    pub fn wait_at_most(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() >= deadline {
                return Ok(ended);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills the process (SIGKILL) and waits for its end.
    ///
    /// # Errors
    /// Killing or waiting failed.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `kill` does nothing after a successful wait: the kernel may have reused the id by then.
        let _ = self.kill();
    }
}
