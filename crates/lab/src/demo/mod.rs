//! `pleach demo`: the real thing on one machine. A manager, a two-level tree of node processes and 8 rank processes do barriers,
//! broadcasts and allreduces, without nodes and through them, while bits flip, packets vanish and a node is killed.
//!
//! In: seeds and times. Out: a live table, latencies of every act side by side, and how many results were wrong. Reading order:
//! `act.rs` plays one act (`rank.rs` is what its ranks do, `piece.rs` what they do it with and what must come out), `tally.rs`
//! adds up what they say (`word.rs`), `stage.rs` shows it, `summary.rs` ends the show. `simulated/` is another show.

mod act;
mod piece;
pub mod rank;
mod simulated;
mod stage;
mod summary;
mod tally;
mod word;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};

use crate::Outcome;
use crate::fabric::signals::{ENDING, Signals};
use act::{Act, Ended, Through, Weather};
use stage::Stage;

/// Ranks, and how many share a host.
const RANKS: u32 = 8;
const PER_HOST: u32 = 2;
/// A root and two leaves.
const NODES: u32 = 3;

/// Arguments of `pleach demo`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Another seed, other numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds of each of the five acts.
    #[arg(long, default_value_t = 2.0, value_parser = seconds, conflicts_with = "simulated")]
    seconds: f64,
    /// Another show: an allreduce over 1,728 simulated hosts while bits flip, packets vanish and a cable is cut.
    #[arg(long)]
    simulated: bool,
    /// Operations of each simulated act.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=100_000), requires = "simulated")]
    operations: u32,
}

const ACTS: [Act; 5] = [
    Act { title: "the hosts alone", short: "hosts", through: Through::Hosts, weather: Weather::Fine },
    Act { title: "through the nodes", short: "nodes", through: Through::Nodes, weather: Weather::Fine },
    Act {
        title: "the hosts alone; bits flip, packets vanish",
        short: "hosts*",
        through: Through::Hosts,
        weather: Weather::Foul,
    },
    Act {
        title: "through the nodes; bits flip, packets vanish",
        short: "nodes*",
        through: Through::Nodes,
        weather: Weather::Foul,
    },
    Act {
        title: "the same, and a node is killed",
        short: "killed*",
        through: Through::NodesUntilOneIsKilled,
        weather: Weather::Foul,
    },
];

/// What the user chose, and what all acts share.
struct Show {
    seed: u64,
    act: Duration,
    faults: FaultsFile,
    signals: Signals,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.simulated {
        let show = simulated::Show { seed: arguments.seed, operations: arguments.operations };
        return simulated::run(&show).map(exit_code);
    }
    let began = Instant::now();
    let signals = Signals::take_over(ENDING).context("signals cannot be taken over")?;
    let faults = FaultsFile::new()?;
    let show = Show { seed: arguments.seed, act: Duration::from_secs_f64(arguments.seconds), faults, signals };
    let mut stage = Stage::new();
    for line in summary::opening() {
        stage.say(&line);
    }
    let mut ended: Vec<Ended> = Vec::new();
    for (number, act) in ACTS.iter().enumerate() {
        match act.perform(number + 1, &show, &mut stage)? {
            act::Outcome::Ended(act) => ended.push(*act),
            act::Outcome::Interrupted(signal) => {
                stage.say(&format!("{signal}: ended, and so is every process of the demo."));
                return Ok(ExitCode::from(128 + signal as u8));
            }
        }
        if ended.iter().any(|act| act.tally.failure.is_some()) {
            break; // What comes after a hang or a lost rank would tell nothing.
        }
    }
    for line in summary::closing(&ended, began.elapsed()) {
        stage.say(&line);
    }
    Ok(exit_code(if ended.iter().all(Ended::is_right) { Outcome::Right } else { Outcome::Wrong }))
}

fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Right => ExitCode::SUCCESS,
        Outcome::Wrong => ExitCode::from(1),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0.1 to 3600".to_owned())
}

/// The machine's clock, the same in all its processes.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs()
}

/// One packet in 250 is hurt, and one in 250 vanishes, of all that ranks and nodes send.
const FAULTS: &str = "\
[[fault]]
kind = \"flip\"
probability = 0.004
[[fault]]
kind = \"lose\"
probability = 0.004
";

/// The plan of faults as a file that has no name but this process's, so that nothing is left however this one ends.
struct FaultsFile {
    path: PathBuf,
    _content: File,
}

impl FaultsFile {
    fn new() -> Result<Self> {
        let descriptor = memfd_create("pleach-demo-faults", MFdFlags::MFD_CLOEXEC).context("a file in memory")?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_raw_fd()).into();
        let mut content = File::from(descriptor);
        content.write_all(FAULTS.as_bytes()).context("a file in memory")?;
        Ok(Self { path, _content: content })
    }
}
