//! `pleach bench-rank`: one of the processes that `pleach bench collectives` measures.
//!
//! In: measures such as `allreduce:8`. Out: the lines of `bench/samples.rs` on the standard output of rank 0. Rank 0 prints
//! `begin` and `end` around each measure, so that the parent reads the nodes' processor time at the same moments. `peer.c`
//! does the same with MPI, and `gloo_peer.py` with gloo.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use pleach::{Communicator, Operator};

use crate::CommandOutcome;
use crate::bench::samples::MeasureTimes;

/// Operations before anything is timed: they open connections, touch memory, and let estimates settle.
const WARM_UP: u32 = 50;

/// Arguments of `pleach bench-rank`.
#[derive(Args)]
pub struct BenchRankArgs {
    /// Measures: barrier, or allreduce, broadcast or reduce with a number of bytes, as in allreduce:8.
    #[arg(required = true)]
    measures: Vec<String>,
    /// Batches of each measure.
    #[arg(long)]
    batches: u32,
    /// Seconds that a batch should take.
    #[arg(long)]
    seconds: f64,
}

/// One operation that is repeated.
struct Measure<'a> {
    name: &'a str,
    operation: BenchOperation,
    vector: Vec<f64>,
}

#[derive(Clone, Copy)]
enum BenchOperation {
    Barrier,
    AllReduce,
    Broadcast,
    Reduce,
}

impl<'a> Measure<'a> {
    fn parse(name: &'a str) -> Result<Self> {
        let (operation, bytes) = name.split_once(':').unwrap_or((name, "0"));
        let bytes: usize =
            bytes.parse().with_context(|| format!("{name}: the text after the colon is not a number of bytes"))?;
        let operation = match operation {
            "barrier" => BenchOperation::Barrier,
            "allreduce" => BenchOperation::AllReduce,
            "broadcast" => BenchOperation::Broadcast,
            "reduce" => BenchOperation::Reduce,
            _ => bail!("{name}: unknown operation; known are barrier, allreduce, broadcast and reduce"),
        };
        Ok(Self { name, operation, vector: vec![0.0; bytes / 8] })
    }

    fn once(&mut self, world: &Communicator) -> Result<(), pleach::Error> {
        match self.operation {
            BenchOperation::Barrier => world.barrier(),
            BenchOperation::AllReduce => world.all_reduce(&mut self.vector, Operator::Sum),
            BenchOperation::Broadcast => world.broadcast(&mut self.vector, 0),
            BenchOperation::Reduce => world.reduce(&mut self.vector, Operator::Sum, 0),
        }
    }

    /// Runs so many operations. Returns the microseconds of one.
    fn batch(&mut self, world: &Communicator, iterations: u32) -> Result<f64> {
        world.barrier()?;
        let began = Instant::now();
        for _ in 0..iterations {
            self.once(world)?;
        }
        // A root may return long before the other ranks: the batch ends when all have returned.
        if matches!(self.operation, BenchOperation::Broadcast | BenchOperation::Reduce) {
            world.barrier()?;
        }
        Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(iterations))
    }

    /// Runs the operation once with values whose result is known.
    fn check(&mut self, world: &Communicator) -> Result<()> {
        let (rank, ranks) = (f64::from(world.rank()), f64::from(world.size()));
        for (element, value) in self.vector.iter_mut().enumerate() {
            *value = contribution(rank, element);
        }
        self.once(world)?;
        let expected = |element: usize| match self.operation {
            BenchOperation::Broadcast => contribution(0.0, element),
            BenchOperation::Reduce if world.rank() != 0 => contribution(rank, element),
            // The ranks of all, and the same pattern from each.
            _ => ranks * (ranks - 1.0) / 2.0 + ranks * contribution(0.0, element),
        };
        let wrong = self.vector.iter().enumerate().find(|(element, value)| **value != expected(*element));
        if let Some((element, value)) = wrong {
            bail!("{}: wrong result at rank {rank}: element {element} is {value}", self.name);
        }
        self.vector.fill(0.0);
        Ok(())
    }
}

/// What a rank contributes: another value for each rank and for neighbouring elements. Sums of them are exact.
fn contribution(rank: f64, element: usize) -> f64 {
    rank + 1.0 + (element % 1009) as f64
}

/// Runs one rank of `pleach bench collectives`.
///
/// # Errors
/// If an operation fails or a result is wrong.
pub fn run(arguments: &BenchRankArgs) -> Result<CommandOutcome> {
    let world = pleach::join()?;
    let is_first = world.rank() == 0;
    print_line(is_first, || {
        let (sum, broadcast) = (world.explain(8, Operator::Sum), world.explain_broadcast(8));
        format!("note allreduce of 8 bytes: {sum} Broadcast of 8 bytes: {broadcast}")
    })?;
    for name in &arguments.measures {
        let mut measure = Measure::parse(name)?;
        measure.check(&world)?;
        measure.batch(&world, WARM_UP)?;
        let micros = measure.batch(&world, WARM_UP)?;
        let mut iterations = [(arguments.seconds * 1e6 / micros).clamp(10.0, 1e6) as u32];
        world.broadcast(&mut iterations, 0)?;
        print_line(is_first, || format!("begin {name}"))?;
        world.barrier()?;
        let before = processor_micros()?;
        let times: Result<Vec<f64>> = (0..arguments.batches).map(|_| measure.batch(&world, iterations[0])).collect();
        let mut cpu = [processor_micros()? - before];
        world.all_reduce(&mut cpu, Operator::Sum)?;
        let times = MeasureTimes {
            measure: name.clone(),
            iterations: iterations[0],
            micros: times?,
            cpu_micros: cpu[0] / f64::from(arguments.batches) / f64::from(iterations[0]),
        };
        let text = serde_json::to_string(&times)?;
        print_line(is_first, || format!("end {text}"))?;
        measure.check(&world)?;
    }
    Ok(CommandOutcome::Passed)
}

fn print_line(is_first: bool, line: impl FnOnce() -> String) -> Result<()> {
    if is_first {
        let mut output = std::io::stdout().lock();
        writeln!(output, "{}", line())?;
        output.flush()?;
    }
    Ok(())
}

/// Processor time of this process so far, in user and kernel mode.
fn processor_micros() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64)
}
