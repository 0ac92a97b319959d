//! `pleach demo-rank`: one of the demo's ranks. It calls the library as any program would, and checks every result.

use std::time::{Duration, Instant};

use anyhow::Result;
use pleach::{Communicator, Operator};
use units::{OpId, Rank};

use super::now_ns;
use super::operation::{DemoFoldOrder, DemoOperation};
use super::rank_report::{BatchReport, RankReport, RankTotals};
use crate::CommandOutcome;

/// However slow the machine is, an act has so many rounds.
const LEAST_ROUNDS: u32 = 3;

#[derive(clap::Args)]
pub struct DemoRankArgs {
    /// What the inputs are drawn from.
    #[arg(long)]
    seed: u64,
    /// How long to play.
    #[arg(long)]
    millis: u64,
    /// The order in which floats must have been folded.
    #[arg(long, value_enum)]
    folding: DemoFoldOrder,
}

pub fn run(arguments: &DemoRankArgs) -> Result<CommandOutcome> {
    match play(arguments) {
        Ok(()) => Ok(CommandOutcome::Right),
        Err(error) => {
            say(&RankReport::Failed { what: format!("{error:#}") });
            Ok(CommandOutcome::Wrong)
        }
    }
}

fn play(arguments: &DemoRankArgs) -> Result<()> {
    let world = pleach::join()?;
    say(&RankReport::Joined { explained: world.explain(8, Operator::Sum) });
    let (began, limit) = (Instant::now(), Duration::from_millis(arguments.millis));
    let mut next = 0;
    for round in 0.. {
        let by_clock = began.elapsed().as_secs_f64() / limit.as_secs_f64();
        let by_rounds = f64::from(round) / f64::from(LEAST_ROUNDS);
        // All must come to the same end: rank 0 looks at the clock for everyone.
        let mut share = [by_clock.min(by_rounds)];
        world.broadcast(&mut share, 0)?;
        if share[0] >= 1.0 {
            break;
        }
        for piece in DemoOperation::ALL {
            say(&RankReport::Done(batch(&world, arguments, piece, next, share[0])?));
            next += piece.batch();
        }
    }
    say(&RankReport::Ended(account(&world)));
    Ok(())
}

/// Some operations in a row: first all inputs, then all calls, then all checks, so that the calls are what is timed.
fn batch(
    world: &Communicator,
    arguments: &DemoRankArgs,
    piece: DemoOperation,
    first: u64,
    share: f64,
) -> Result<BatchReport> {
    let ops = || (first..first + piece.batch()).map(|op| OpId(op as u32));
    let mut buffers: Vec<_> = ops().map(|op| piece.input(arguments.seed, op, Rank(world.rank()))).collect();
    world.barrier()?;
    if world.rank() == 0 {
        say(&RankReport::Begins { piece, share });
    }
    let (mut entered_ns, mut left_ns) = (Vec::new(), Vec::new());
    for (op, buffer) in ops().zip(&mut buffers) {
        entered_ns.push(now_ns());
        piece.play(world, op, buffer)?;
        left_ns.push(now_ns());
    }
    let objection = |(op, buffer): (OpId, &_)| piece.objection(arguments.seed, op, arguments.folding, buffer);
    let wrong = ops().zip(&buffers).filter_map(objection).collect();
    Ok(BatchReport { piece, first, entered_ns, left_ns, wrong })
}

fn account(world: &Communicator) -> RankTotals {
    let (statistics, packets) = (world.statistics(), world.packets());
    RankTotals {
        operations: statistics.operations,
        aggregated: statistics.aggregated,
        sent: packets.sent,
        repeated: packets.repeated,
        hurt: packets.hurt_by_plan,
        lost: packets.lost_by_plan,
        damaged: packets.damaged,
    }
}

fn say(word: &RankReport) {
    println!("{}", serde_json::to_string(word).expect("plain values"));
}
