//! `pleach chaos-rank`: one rank of a round. It calls the library as any program does, and reports every result and error.
//!
//! It checks nothing itself: that is the judge's work.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::resource::{Resource, setrlimit};
use pleach::{Communicator, ElementType, Error, Operator, ReductionKind};

use super::rank_report::{ChaosRankReport, ReportedError};
use super::workload::{ChaosCollective, ChaosOperation, ChaosReduction, OperationName, digest};
use crate::CommandOutcome;

/// Arguments of `pleach chaos-rank`.
#[derive(Args)]
pub struct ChaosRankArgs {
    /// Seed of operations and inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The round ends when this file exists.
    #[arg(long)]
    stop_file: Option<PathBuf>,
    /// What to do when ranks are lost.
    #[arg(long, value_enum, default_value_t = AfterLoss::End)]
    after_loss: AfterLoss,
    /// Mount namespace to enter.
    #[arg(long)]
    mount_namespace: Option<PathBuf>,
    /// Open files that this process may have.
    #[arg(long)]
    descriptors: Option<u64>,
    /// Instead of all this: keep a mount namespace with so large a /dev/shm.
    #[arg(long)]
    hold_shm_bytes: Option<u64>,
}

/// What ranks do when others are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum AfterLoss {
    /// All end.
    End,
    /// Those that are left go on.
    Shrink,
}

/// How the operations of a communicator ended.
enum GenerationEnd {
    Stopped,
    Failed(Error),
}

/// Runs one rank. Failures of operations are reported, not returned.
///
/// # Errors
/// The surroundings of the rank cannot be prepared.
pub fn run(arguments: &ChaosRankArgs) -> Result<CommandOutcome> {
    if let Some(bytes) = arguments.hold_shm_bytes {
        hold_shared_memory(bytes)?;
        return Ok(CommandOutcome::Passed);
    }
    if let Some(path) = &arguments.mount_namespace {
        let entrance = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        setns(entrance, CloneFlags::CLONE_NEWNS).with_context(|| format!("cannot enter {}", path.display()))?;
    }
    if let Some(limit) = arguments.descriptors {
        setrlimit(Resource::RLIMIT_NOFILE, limit, limit).context("cannot limit the number of open files")?;
    }
    let began = Instant::now();
    match pleach::join() {
        Ok(world) => {
            print_report(&ChaosRankReport::Joined { millis: millis(began) });
            run_job(arguments, world);
        }
        Err(error) => print_report(&ChaosRankReport::JoinFailed { millis: millis(began), why: error.to_string() }),
    }
    Ok(CommandOutcome::Passed)
}

/// Keeps a mount namespace with a small /dev/shm of its own until this process is killed.
fn hold_shared_memory(bytes: u64) -> Result<()> {
    use nix::mount::{MsFlags, mount};
    unshare(CloneFlags::CLONE_NEWNS).context("cannot create a mount namespace")?;
    let nothing: Option<&str> = None;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)
        .context("cannot make mounts private")?;
    let size = format!("size={bytes}");
    mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some(size.as_str()))
        .context("cannot mount a tmpfs at /dev/shm")?;
    println!("ready");
    loop {
        std::thread::park();
    }
}

fn run_job(arguments: &ChaosRankArgs, mut world: Communicator) {
    let own = world.rank();
    let mut members: Vec<u32> = (0..world.size()).collect();
    for generation in 0.. {
        match run_generation(arguments, &world, own, members.len(), generation) {
            GenerationEnd::Stopped => {
                return print_report(&ChaosRankReport::Finished { aggregated: world.statistics().aggregated });
            }
            GenerationEnd::Failed(Error::RanksLost { .. }) if arguments.after_loss == AfterLoss::Shrink => {
                let began = Instant::now();
                match shrink(&world, own) {
                    Ok((shrunk, left)) => (world, members) = (shrunk, left),
                    Err(why) => return print_report(&ChaosRankReport::ShrinkFailed { generation, why }),
                }
                let (generation, members) = (generation + 1, members.clone());
                print_report(&ChaosRankReport::Shrunk { generation, members, millis: millis(began) });
            }
            GenerationEnd::Failed(_) => return,
        }
    }
}

/// A communicator of the ranks that are left, and their numbers in the first one.
fn shrink(world: &Communicator, own: u32) -> Result<(Communicator, Vec<u32>), String> {
    loop {
        let shrunk = world.shrink().map_err(|error| error.to_string())?;
        let mut members = vec![0; shrunk.size() as usize];
        match shrunk.all_gather(&[own], &mut members) {
            Ok(()) => return Ok((shrunk, members)),
            // Another rank was lost meanwhile.
            Err(Error::RanksLost { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn run_generation(
    arguments: &ChaosRankArgs,
    world: &Communicator,
    own: u32,
    ranks: usize,
    generation: u32,
) -> GenerationEnd {
    for index in 0.. {
        let name = OperationName { seed: arguments.seed, generation, index };
        let operation = name.operation(ranks);
        std::thread::sleep(Duration::from_micros(name.pause_micros(own)));
        let began = Instant::now();
        let done = perform(arguments, world, own, name, operation);
        let micros = began.elapsed().as_micros() as u64;
        match done {
            Ok((digest, is_end)) => {
                print_report(&ChaosRankReport::Result { generation, index, digest, micros, is_end });
                if is_end == Some(true) {
                    break;
                }
            }
            Err(error) => return failed(generation, index, micros, error),
        }
    }
    // Blocks until every rank has entered: another may still need this one.
    let began = Instant::now();
    match world.barrier() {
        Ok(()) => GenerationEnd::Stopped,
        Err(error) => failed(generation, u64::MAX, began.elapsed().as_micros() as u64, error),
    }
}

fn failed(generation: u32, index: u64, micros: u64, error: Error) -> GenerationEnd {
    print_report(&ChaosRankReport::Failed { generation, index, error: ReportedError::from(&error), micros });
    GenerationEnd::Failed(error)
}

/// One operation: the digest of the result, and what a stop poll said.
fn perform(
    arguments: &ChaosRankArgs,
    world: &Communicator,
    own: u32,
    name: OperationName,
    operation: ChaosOperation,
) -> Result<(u64, Option<bool>), Error> {
    let kind = reduction_kind(operation.reduction);
    let ranks = world.size() as usize;
    let block = operation.elements * operation.reduction.element_bytes();
    let result = match operation.collective {
        ChaosCollective::Barrier => world.barrier().map(|()| Vec::new())?,
        ChaosCollective::StopPoll => {
            let mut word = [u64::from(arguments.stop_file.as_ref().is_some_and(|path| path.exists()))];
            world.broadcast(&mut word, 0)?;
            return Ok((digest(&[]), Some(word[0] != 0)));
        }
        ChaosCollective::Broadcast { root } => {
            // What others had there must not matter.
            let mut vector = name.input(own, operation, 1);
            world.broadcast(&mut vector, root as u32)?;
            vector
        }
        ChaosCollective::Reduce { root } => {
            let mut vector = name.input(own, operation, 1);
            world.reduce_bytes(&mut vector, kind, root as u32)?;
            vector
        }
        ChaosCollective::AllReduce => {
            let mut vector = name.input(own, operation, 1);
            world.all_reduce_bytes(&mut vector, kind)?;
            vector
        }
        ChaosCollective::Scan => {
            let mut vector = name.input(own, operation, 1);
            world.scan_bytes(&mut vector, kind)?;
            vector
        }
        ChaosCollective::ReduceScatter => {
            let mut part = vec![0; block];
            let input = name.input(own, operation, ranks);
            world.reduce_scatter_v_bytes(&input, &mut part, &vec![block; ranks], kind)?;
            part
        }
        ChaosCollective::AllGather => {
            let mut all = vec![0; block * ranks];
            world.all_gather(&name.input(own, operation, 1), &mut all)?;
            all
        }
        ChaosCollective::AllToAll => {
            let mut all = vec![0; block * ranks];
            world.all_to_all(&name.input(own, operation, ranks), &mut all)?;
            all
        }
    };
    Ok((digest(&result), None))
}

fn reduction_kind(reduction: ChaosReduction) -> ReductionKind {
    let (element, operator) = match reduction {
        ChaosReduction::SumU64 => (ElementType::U64, Operator::Sum),
        ChaosReduction::XorU64 => (ElementType::U64, Operator::Xor),
        ChaosReduction::MinI64 => (ElementType::I64, Operator::Min),
        ChaosReduction::SumF64 => (ElementType::F64, Operator::Sum),
        ChaosReduction::SumI32 => (ElementType::I32, Operator::Sum),
        ChaosReduction::MaxU32 => (ElementType::U32, Operator::Max),
    };
    ReductionKind::new(element, operator).expect("defined for these types")
}

fn millis(since: Instant) -> u64 {
    since.elapsed().as_millis() as u64
}

/// In one write, so that a rank that is killed leaves whole lines.
fn print_report(report: &ChaosRankReport) {
    use std::io::Write;
    let line = serde_json::to_string(report).expect("plain values") + "\n";
    // Nobody listens any more if this fails.
    let _ = std::io::stdout().write_all(line.as_bytes());
}
