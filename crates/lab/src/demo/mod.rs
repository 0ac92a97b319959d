//! `pleach demo`: the whole stack on one machine. A manager, a two-level tree of node processes and 8 rank processes run barriers,
//! broadcasts and allreduces, without nodes and through them, while bits flip, packets are lost and a node is killed.
//!
//! In: a seed and a duration. Out: a live table, the latencies of all phases side by side, and the number of wrong results. Reading
//! order: `phase.rs` runs one phase, `rank.rs` is one of its ranks, `operation.rs` has the operations and their correct results,
//! `rank_report.rs` is what ranks report, `phase_statistics.rs` adds the reports up, `demo_view.rs` shows them, `summary.rs` prints
//! the end. `simulated/` is the demo in the simulator.

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
use crate::local_fabric::signals::{SignalQueue, TERMINATION};
use demo_view::DemoView;
use phase::{DemoPhase, DemoRoute, FaultInjection, PhaseResult};

/// Number of ranks, and of ranks per host.
const RANKS: u32 = 8;
const PER_HOST: u32 = 2;
/// A root and two leaves.
const NODES: u32 = 3;

/// Arguments of `pleach demo`.
#[derive(clap::Args)]
pub struct DemoArgs {
    /// Seed of the input data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds of each of the five phases.
    #[arg(long, default_value_t = 2.0, value_parser = seconds, conflicts_with = "simulated")]
    seconds: f64,
    /// Simulate instead: an allreduce over 1,728 hosts while bits flip, packets are lost and a cable is cut.
    #[arg(long)]
    simulated: bool,
    /// Operations of each simulated phase.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=100_000), requires = "simulated")]
    operations: u32,
}

const PHASES: [DemoPhase; 5] = [
    DemoPhase { title: "hosts alone", short: "hosts", route: DemoRoute::HostAlgorithms, faults: FaultInjection::Off },
    DemoPhase {
        title: "through nodes",
        short: "nodes",
        route: DemoRoute::AggregationNodes,
        faults: FaultInjection::Off,
    },
    DemoPhase {
        title: "hosts alone; bits flip, packets are lost",
        short: "hosts*",
        route: DemoRoute::HostAlgorithms,
        faults: FaultInjection::On,
    },
    DemoPhase {
        title: "through nodes; bits flip, packets are lost",
        short: "nodes*",
        route: DemoRoute::AggregationNodes,
        faults: FaultInjection::On,
    },
    DemoPhase {
        title: "the same, and a node is killed",
        short: "killed*",
        route: DemoRoute::AggregationNodesThenKill,
        faults: FaultInjection::On,
    },
];

/// The user's choices, and what all phases share.
struct DemoSettings {
    seed: u64,
    phase_duration: Duration,
    faults: FaultPlanFile,
    signals: SignalQueue,
}

/// Runs the demo.
///
/// # Errors
/// If its processes cannot be started.
pub fn run(arguments: &DemoArgs) -> Result<ExitCode> {
    if arguments.simulated {
        let settings = simulated::SimulatedDemoSettings { seed: arguments.seed, operations: arguments.operations };
        return simulated::run(&settings).map(exit_code);
    }
    let began = Instant::now();
    let signals = SignalQueue::take_over(TERMINATION).context("cannot handle signals")?;
    let faults = FaultPlanFile::new()?;
    let settings = DemoSettings {
        seed: arguments.seed,
        phase_duration: Duration::from_secs_f64(arguments.seconds),
        faults,
        signals,
    };
    let mut view = DemoView::new();
    for line in summary::opening() {
        view.print(&line);
    }
    let mut results: Vec<PhaseResult> = Vec::new();
    for (number, phase) in PHASES.iter().enumerate() {
        match phase.run(number + 1, &settings, &mut view)? {
            phase::PhaseOutcome::Ended(phase) => results.push(*phase),
            phase::PhaseOutcome::Interrupted(signal) => {
                view.print(&format!("{signal}: stopped, with all processes of the demo."));
                return Ok(ExitCode::from(128 + signal as u8));
            }
        }
        if results.iter().any(|phase| phase.statistics.failure.is_some()) {
            break; // After a hang or a lost rank further phases mean nothing.
        }
    }
    for line in summary::closing(&results, began.elapsed()) {
        view.print(&line);
    }
    Ok(exit_code(if results.iter().all(PhaseResult::passed) {
        CommandOutcome::Passed
    } else {
        CommandOutcome::Failed
    }))
}

fn exit_code(outcome: CommandOutcome) -> ExitCode {
    match outcome {
        CommandOutcome::Passed => ExitCode::SUCCESS,
        CommandOutcome::Failed => ExitCode::from(1),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "must be a number of seconds from 0.1 to 3600".to_owned())
}

/// The monotonic clock, which all processes of the machine share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has CLOCK_MONOTONIC");
    now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs()
}

/// Of the packets that ranks and nodes send, one in 250 gets a flipped bit and one in 250 is lost.
const FAULTS: &str = "\
[[fault]]
kind = \"flip\"
probability = 0.004
[[fault]]
kind = \"lose\"
probability = 0.004
";

/// The fault plan as an anonymous file in memory, which vanishes with this process however it ends.
struct FaultPlanFile {
    path: PathBuf,
    _content: File,
}

impl FaultPlanFile {
    fn new() -> Result<Self> {
        let descriptor =
            memfd_create("pleach-demo-faults", MFdFlags::MFD_CLOEXEC).context("cannot create a file in memory")?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_raw_fd()).into();
        let mut content = File::from(descriptor);
        content.write_all(FAULTS.as_bytes()).context("cannot create a file in memory")?;
        Ok(Self { path, _content: content })
    }
}
