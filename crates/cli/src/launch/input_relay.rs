//! The stdin of `pleach launch` for rank 0 on another host.
//!
//! It has a connection of its own: that which carries signals must never wait for a rank that does not read. The launcher's stdin is
//! that of `AGENT HOST pleach launch-host --input NAME`. There NAME is a socket without a file, on which the process that started rank 0
//! listens; every other process of the host sees it, so both ends check the other's user.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, ChildStdin};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::local_fabric::{describe_exit_status, random_hex};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

/// Either end waits so long for the other.
const MEETING_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A name for the socket of a job, if this process has input for its ranks: a terminal stays here, and nothing is in /dev/null.
pub(super) fn name_if_needed() -> Result<Option<String>> {
    let stdin = io::stdin();
    let is_null = |found: std::fs::Metadata| {
        std::fs::metadata("/dev/null").is_ok_and(|null| (null.rdev(), null.dev()) == (found.rdev(), found.dev()))
    };
    let metadata = stdin.as_fd().try_clone_to_owned().and_then(|stdin| File::from(stdin).metadata());
    if stdin.is_terminal() || metadata.is_ok_and(is_null) {
        return Ok(None);
    }
    Ok(Some(format!("pleach-input-{}", random_hex()?)))
}

/// Waits for the input of a rank.
pub(super) struct InputListener(UnixListener);

impl InputListener {
    pub(super) fn bind(name: &str) -> io::Result<Self> {
        Ok(Self(UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?))
    }

    /// Copies the input to a rank in a thread of its own. The rank's input ends with it, or if none comes.
    pub(super) fn relay_to(self, mut rank: ChildStdin) {
        std::thread::spawn(move || {
            let deadline = Instant::now() + MEETING_TIMEOUT;
            while let Some(mut input) = self.accept(deadline) {
                if is_of_this_user(&input) {
                    let _ = io::copy(&mut input, &mut rank); // An error: the rank does not read any more.
                    return;
                }
            }
        });
    }

    fn accept(&self, deadline: Instant) -> Option<UnixStream> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waiting = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut waiting, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        ready.ok().filter(|count| *count > 0)?;
        self.0.accept().ok().map(|(stream, _)| stream)
    }
}

/// Sends the stdin of this process to the rank that waits for it.
pub(super) fn send_input(name: &str) -> Result<()> {
    let address = SocketAddr::from_abstract_name(name).context("malformed name of a socket")?;
    let began = Instant::now();
    let mut stream = loop {
        match UnixStream::connect_addr(&address) {
            Ok(stream) => break stream,
            Err(_) if began.elapsed() < MEETING_TIMEOUT => std::thread::sleep(RETRY_INTERVAL),
            Err(error) => return Err(error).context("rank 0 does not wait for its stdin"),
        }
    };
    ensure!(is_of_this_user(&stream), "a process of another user waits for the stdin of rank 0");
    let _ = io::copy(&mut io::stdin().lock(), &mut stream); // An error: the rank does not read any more.
    Ok(())
}

fn is_of_this_user(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

/// The connection of the launcher that carries its stdin. Ends when this is dropped.
pub(super) struct InputConnection {
    agent: Child,
    host: String,
    is_running: bool,
}

impl InputConnection {
    pub(super) fn new(agent: Child, host: &str) -> Self {
        Self { agent, host: host.to_owned(), is_running: true }
    }

    /// Says once if it has failed.
    pub(super) fn failure(&mut self) -> Option<String> {
        if !self.is_running {
            return None;
        }
        let status = self.agent.try_wait().ok().flatten()?;
        self.is_running = false;
        let how = describe_exit_status(status);
        (!status.success()).then(|| format!("the connection to host {} for the stdin of rank 0 {how}", self.host))
    }
}

impl Drop for InputConnection {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn input_reaches_the_rank_and_ends() {
        let name = format!("pleach-test-{}", random_hex().expect("random numbers"));
        let listener = InputListener::bind(&name).expect("a free name");
        let mut rank = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat");
        listener.relay_to(rank.stdin.take().expect("piped"));
        let mut sender =
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("it listens");
        assert!(is_of_this_user(&sender));
        let sent: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        let expected = sent.clone();
        let writer = std::thread::spawn(move || sender.write_all(&sent));
        let mut got = Vec::new();
        rank.stdout.take().expect("piped").read_to_end(&mut got).expect("it ends");
        writer.join().expect("no panic").expect("all was read");
        assert!(got == expected && rank.wait().expect("our child").success());
    }
}
