//! A program on a host that does not outlive the test.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How often a process is looked at that should end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A running process of ours; dropped, it is killed, by its id.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a command, such as one made by [`Host::command`](super::Host::command).
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        Ok(Self { child: command.spawn()? })
    }

    /// The process and its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How it ended; `None` if it still runs after this time.
    ///
    /// # Errors
    /// The system would not tell.
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

    /// Ends it at once, as a power cut would.
    ///
    /// # Errors
    /// The system would not.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended and was waited for is left alone by `kill`: its id may be another's by now.
        let _ = self.kill();
    }
}
