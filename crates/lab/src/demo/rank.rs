//! `pleach demo-rank`: one rank of the demo. It calls the library as any program does, and checks every result.

use std::time::{Duration, Instant};

use anyhow::Result;
use pleach::{Communicator, Operator};
use units::{OpId, Rank};

use super::now_ns;
use super::operation::{DemoFoldOrder, DemoOperation};
use super::rank_report::{BatchReport, RankReport, RankTotals};
use crate::CommandOutcome;

/// Minimum rounds of a phase, even on a slow machine.
const MIN_ROUNDS: u32 = 3;

/// How much longer a phase may take on a slow machine.
const MAX_EXTENSION: Duration = Duration::from_secs(15);
/// The share of a phase that is over as long as something is missing in it.
const LAST_SHARE: f64 = 0.99;

/// Arguments of `pleach demo-rank`.
#[derive(clap::Args)]
pub struct DemoRankArgs {
    /// Seed of the input data.
    #[arg(long)]
    seed: u64,
    /// Duration in milliseconds.
    #[arg(long)]
    millis: u64,
    /// The expected fold order of floats.
    #[arg(long, value_enum)]
    fold_order: DemoFoldOrder,
    /// Continue until this process has ended, and for one round after that.
    #[arg(long)]
    until_ended: Option<u32>,
}

/// Runs one rank of the demo. A failure is reported to the demo, not returned.
///
/// # Errors
/// None.
pub fn run(arguments: &DemoRankArgs) -> Result<CommandOutcome> {
    match run_phase(arguments) {
        Ok(()) => Ok(CommandOutcome::Passed),
        Err(error) => {
            print_report(&RankReport::Failed { what: format!("{error:#}") });
            Ok(CommandOutcome::Failed)
        }
    }
}

fn run_phase(arguments: &DemoRankArgs) -> Result<()> {
    let world = pleach::join()?;
    print_report(&RankReport::Joined { explained: world.explain(8, Operator::Sum) });
    let (began, limit) = (Instant::now(), Duration::from_millis(arguments.millis));
    let mut next = 0;
    let mut has_ended = arguments.until_ended.is_none();
    for round in 0.. {
        let by_clock = began.elapsed().as_secs_f64() / limit.as_secs_f64();
        let by_rounds = f64::from(round) / f64::from(MIN_ROUNDS);
        // All ranks must stop after the same round: rank 0 reads the clock for all. On a busy machine the demo kills its node late.
        let is_last = has_ended || began.elapsed() > limit + MAX_EXTENSION;
        let mut share = [by_clock.min(by_rounds).min(if is_last { 1.0 } else { LAST_SHARE })];
        has_ended |= arguments.until_ended.is_some_and(process_has_ended);
        world.broadcast(&mut share, 0)?;
        if share[0] >= 1.0 {
            break;
        }
        for operation in DemoOperation::ALL {
            print_report(&RankReport::BatchDone(batch(&world, arguments, operation, next, share[0])?));
            next += operation.batch();
        }
    }
    print_report(&RankReport::Finished(totals(&world)));
    Ok(())
}

/// True if a process does not exist, or only waits for its parent to read its status.
fn process_has_ended(id: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return true };
    // The state follows the name, which is in parentheses and may contain any character.
    let state = text.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X') | None)
}

/// One batch: first all inputs, then all calls, then all checks, so that only the calls are timed.
fn batch(
    world: &Communicator,
    arguments: &DemoRankArgs,
    operation: DemoOperation,
    first: u64,
    share: f64,
) -> Result<BatchReport> {
    let numbers = || (first..first + operation.batch()).map(|op| OpId(op as u32));
    let mut buffers: Vec<_> = numbers().map(|op| operation.input(arguments.seed, op, Rank(world.rank()))).collect();
    world.barrier()?;
    if world.rank() == 0 {
        print_report(&RankReport::BatchStarted { operation, share });
    }
    let (mut entered_ns, mut left_ns) = (Vec::new(), Vec::new());
    for (op, buffer) in numbers().zip(&mut buffers) {
        entered_ns.push(now_ns());
        operation.call(world, op, buffer)?;
        left_ns.push(now_ns());
    }
    let check = |(op, buffer): (OpId, &_)| operation.check(arguments.seed, op, arguments.fold_order, buffer);
    let wrong = numbers().zip(&buffers).filter_map(check).collect();
    Ok(BatchReport { operation, first, entered_ns, left_ns, wrong })
}

fn totals(world: &Communicator) -> RankTotals {
    let (statistics, packets) = (world.statistics(), world.packets());
    RankTotals {
        operations: statistics.operations,
        aggregated: statistics.aggregated,
        sent: packets.sent,
        retransmitted: packets.repeated,
        damaged_by_plan: packets.hurt_by_plan,
        lost_by_plan: packets.lost_by_plan,
        damaged: packets.damaged,
    }
}

fn print_report(report: &RankReport) {
    println!("{}", serde_json::to_string(report).expect("plain values"));
}
