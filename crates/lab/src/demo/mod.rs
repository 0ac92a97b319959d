//! `pleach demo`: the real thing on one machine. A manager, a two-level tree of node processes and 8 rank processes do barriers,
//! broadcasts and allreduces, without nodes and through them, while bits flip, packets vanish and a node is killed.
//!
//! In: seeds and times. Out: a live table, latencies of every act side by side, and how many results were wrong. Reading order:
//! `act.rs` plays one act (`rank.rs` is what its ranks do, `piece.rs` what they do it with and what must come out), `tally.rs`
//! adds up what they say (`word.rs`), `stage.rs` shows it, `summary.rs` ends the show. `simulated/` is another show.

mod demo_view;
mod operation;
mod phase;
mod phase_statistics;
pub mod rank;
mod rank_report;
mod simulated;
mod summary;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};

use crate::CommandOutcome;
use crate::local_fabric::signals::{ENDING, SignalQueue};
use demo_view::DemoView;
use phase::{DemoPhase, DemoRoute, FaultInjection, PhaseResult};

/// Ranks, and how many share a host.
const RANKS: u32 = 8;
const PER_HOST: u32 = 2;
/// A root and two leaves.
const NODES: u32 = 3;

/// Arguments of `pleach demo`.
#[derive(clap::Args)]
pub struct DemoArgs {
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

const ACTS: [DemoPhase; 5] = [
    DemoPhase { title: "the hosts alone", short: "hosts", through: DemoRoute::Hosts, weather: FaultInjection::Fine },
    DemoPhase {
        title: "through the nodes",
        short: "nodes",
        through: DemoRoute::Nodes,
        weather: FaultInjection::Fine,
    },
    DemoPhase {
        title: "the hosts alone; bits flip, packets vanish",
        short: "hosts*",
        through: DemoRoute::Hosts,
        weather: FaultInjection::Foul,
    },
    DemoPhase {
        title: "through the nodes; bits flip, packets vanish",
        short: "nodes*",
        through: DemoRoute::Nodes,
        weather: FaultInjection::Foul,
    },
    DemoPhase {
        title: "the same, and a node is killed",
        short: "killed*",
        through: DemoRoute::NodesUntilOneIsKilled,
        weather: FaultInjection::Foul,
    },
];

/// What the user chose, and what all acts share.
struct DemoSettings {
    seed: u64,
    act: Duration,
    faults: FaultPlanFile,
    signals: SignalQueue,
}

pub fn run(arguments: &DemoArgs) -> Result<ExitCode> {
    if arguments.simulated {
        let show = simulated::SimulatedDemoSettings { seed: arguments.seed, operations: arguments.operations };
        return simulated::run(&show).map(exit_code);
    }
    let began = Instant::now();
    let signals = SignalQueue::take_over(ENDING).context("signals cannot be taken over")?;
    let faults = FaultPlanFile::new()?;
    let show =
        DemoSettings { seed: arguments.seed, act: Duration::from_secs_f64(arguments.seconds), faults, signals };
    let mut stage = DemoView::new();
    for line in summary::opening() {
        stage.say(&line);
    }
    let mut ended: Vec<PhaseResult> = Vec::new();
    for (number, act) in ACTS.iter().enumerate() {
        match act.perform(number + 1, &show, &mut stage)? {
            phase::PhaseOutcome::Ended(act) => ended.push(*act),
            phase::PhaseOutcome::Interrupted(signal) => {
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
    Ok(exit_code(if ended.iter().all(PhaseResult::is_right) { CommandOutcome::Right } else { CommandOutcome::Wrong }))
}

fn exit_code(outcome: CommandOutcome) -> ExitCode {
    match outcome {
        CommandOutcome::Right => ExitCode::SUCCESS,
        CommandOutcome::Wrong => ExitCode::from(1),
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
struct FaultPlanFile {
    path: PathBuf,
    _content: File,
}

impl FaultPlanFile {
    fn new() -> Result<Self> {
        let descriptor = memfd_create("pleach-demo-faults", MFdFlags::MFD_CLOEXEC).context("a file in memory")?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_raw_fd()).into();
        let mut content = File::from(descriptor);
        content.write_all(FAULTS.as_bytes()).context("a file in memory")?;
        Ok(Self { path, _content: content })
    }
}
