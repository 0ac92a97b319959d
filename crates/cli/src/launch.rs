//! `pleach launch`: starts the processes of a job on this machine, and leaves nothing behind.
//!
//! Every rank is started through `pleach launch-rank` (`rank.rs`), which moves to its host and dies with us. `supervisor.rs` waits
//! for all of them; `lines.rs` puts ranks before lines.

mod lines;
pub(crate) mod rank;
mod supervisor;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use namespaces::Network;

use supervisor::{Signals, Supervisor};

/// The port of the rendezvous on hosts that nobody else uses.
const PORT: u16 = 7411;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// How many processes.
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// Where they run: beside each other, or on hosts of their own made of network namespaces (needs root).
    #[arg(long, value_enum, default_value_t = Hosts::Loopback)]
    hosts: Hosts,
    /// How many share one host, with --hosts netns.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_host: Option<u32>,
    /// Puts the rank before every line, as is done anyway on a terminal.
    #[arg(long)]
    prefix: bool,
    /// Seconds that the others have to end by themselves when one has failed, or when asked to end.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    grace: f64,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Hosts {
    /// All on this machine as it is.
    Loopback,
    /// Network namespaces, joined by a bridge.
    Netns,
}

const EXAMPLES: &str = "\
Examples:
  pleach launch -n 4 -- ./program --size 8
  pleach launch -n 2 --prefix -- sh -c 'echo rank $PLEACH_RANK of $PLEACH_SIZE'
  pleach launch -n 16 --hosts netns -- ./program                       16 hosts on one bridge
  pleach launch -n 16 --hosts netns --ranks-per-host 4 -- ./program    4 hosts

Sets PLEACH_RANK, PLEACH_SIZE, PLEACH_JOB, PLEACH_TOKEN and, between hosts, PLEACH_RENDEZVOUS. Signals are passed on. When
one process fails, the others have --grace seconds; then they are ended.

Exit status: the worst of the processes, 128 and the signal's number for one that was killed, 127 if there is no such
program, 2 if the command is wrong or the hosts cannot be made.";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        arguments.ranks_per_host.is_none() || arguments.hosts == Hosts::Netns,
        "--ranks-per-host needs --hosts netns: on loopback all share one host"
    );
    // From here on signals wait until the supervisor takes them, so that an early one leaves nothing behind either.
    let signals = Signals::take_over().context("signals cannot be taken over")?;
    let per_host = arguments.ranks_per_host.unwrap_or(1);
    let network = match arguments.hosts {
        Hosts::Loopback => None,
        Hosts::Netns => Some(Network::new(arguments.ranks.div_ceil(per_host) as usize)?),
    };
    let started = Starter::new(arguments)?;
    let mut supervisor = Supervisor::new(signals, Duration::from_secs_f64(arguments.grace));
    for rank in 0..arguments.ranks {
        let host = network.as_ref().map(|network| (network, (rank / per_host) as usize));
        let mut command = started.command(arguments, rank, host);
        supervisor.start(rank, &mut command).with_context(|| format!("rank {rank} cannot be started"))?;
    }
    let worst = supervisor.run()?;
    drop(network);
    Ok(ExitCode::from(worst))
}

/// What all ranks have in common.
struct Starter {
    own: std::path::PathBuf,
    job: String,
    token: String,
    is_prefixed: bool,
}

impl Starter {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("this program cannot find itself")?;
        let token = random_hex()?;
        let job = format!("launch-{}-{}", std::process::id(), &token[..8]);
        let is_prefixed = arguments.prefix || std::io::stdout().is_terminal();
        Ok(Self { own, job, token: random_hex()?, is_prefixed })
    }

    fn command(&self, arguments: &Arguments, rank: u32, host: Option<(&Network, usize)>) -> Command {
        let mut command = Command::new(&self.own);
        command.args(["launch-rank", "--parent", &std::process::id().to_string()]);
        if let Some((network, host)) = host {
            command.arg("--namespace").arg(network.host(host).entrance());
            command.env("PLEACH_RENDEZVOUS", format!("{}:{PORT}", network.host(0).address()));
        } else {
            // One that is inherited, perhaps from a job around this one, is another job's.
            command.env_remove("PLEACH_RENDEZVOUS");
        }
        command.arg("--").args(&arguments.program);
        command.env("PLEACH_RANK", rank.to_string()).env("PLEACH_SIZE", arguments.ranks.to_string());
        command.env("PLEACH_JOB", &self.job).env("PLEACH_TOKEN", &self.token);
        // A group of its own: what it starts can be ended with it, and a terminal's signals come through us, once.
        command.process_group(0);
        if rank != 0 || std::io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        if self.is_prefixed {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        command
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds, at most a day".to_owned())
}

/// 128 random bits.
fn random_hex() -> anyhow::Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("/dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
