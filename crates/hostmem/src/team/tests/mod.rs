//! Teams of threads and of processes, without and with faults.

mod agreement;
mod all_operations;
mod cma_broadcast;
mod exchange;
mod fold;
mod outstanding;
mod oversubscription;
mod processes;
mod region;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use reduce::{ElementType, Operator, ReductionKind};

use super::{CollectiveBuffers, Team, TeamCall, TeamError, TeamWaitError, WaitMode};

const PATIENCE: Duration = Duration::from_secs(20);

fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("pleach-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Runs `body` as every rank of a team, each in a thread with its own mapping. Returns the values in rank order.
fn team_of<R: Send>(ranks: u16, body: impl Fn(Team) -> R + Sync) -> Vec<R> {
    let name = fresh_name();
    let rank = |rank: u16| {
        let team = match rank {
            0 => Team::create(&name, ranks),
            _ => Team::join(&name, rank, ranks, PATIENCE),
        };
        body(team.expect("shared memory"))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|number| scope.spawn(move || rank(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank did not panic")).collect()
    })
}

fn run(team: &mut Team, call: TeamCall, data: &mut CollectiveBuffers<'_>) -> Result<(), TeamError> {
    match team.run(call, data, || Ok::<_, Infallible>(WaitMode::MaySleep)) {
        Ok(()) => Ok(()),
        Err(TeamWaitError::Team(error)) => Err(error),
        Err(TeamWaitError::Check(never)) => match never {},
    }
}

fn kind(element: ElementType, operator: Operator) -> ReductionKind {
    ReductionKind::new(element, operator).expect("they go together")
}

fn all_kinds() -> impl Iterator<Item = ReductionKind> {
    let pair =
        |element| Operator::ALL.into_iter().filter_map(move |operator| ReductionKind::new(element, operator).ok());
    ElementType::ALL.into_iter().flat_map(pair)
}

/// Reproducible random numbers.
#[derive(Clone)]
struct TestRandom(u64);

impl TestRandom {
    fn next(&mut self) -> u64 {
        units::splitmix64(&mut self.0)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// The contribution of a rank to an operation. Any bits: as floats, some are NaN or infinite.
fn contribution(seed: u64, rank: u16, length: usize) -> Vec<u8> {
    let mut draw = TestRandom(seed.wrapping_mul(1009).wrapping_add(rank.into()));
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| draw.next().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// The buffer that `rank` must have afterwards, computed by a simple reference.
fn expected(call: TeamCall, seed: u64, rank: u16, ranks: u16, length: usize) -> Vec<u8> {
    let fold = |kind: ReductionKind| {
        let mut sum = contribution(seed, 0, length);
        for other in 1..ranks {
            kind.fold(&mut sum, &contribution(seed, other, length)).expect("whole elements");
        }
        sum
    };
    match call {
        TeamCall::Barrier => Vec::new(),
        TeamCall::Broadcast { root } => contribution(seed, root, length),
        TeamCall::AllReduce { kind } => fold(kind),
        TeamCall::Reduce { root, kind } if root == rank => fold(kind),
        TeamCall::Reduce { .. } => contribution(seed, rank, length),
        TeamCall::Exchange { .. } => unreachable!("`exchange` has its own tests"),
    }
}

/// How a rank passes its buffers.
#[derive(Clone, Copy, Debug)]
enum BufferMode {
    InPlace,
    Apart,
}

/// The buffers of one operation of one rank.
struct TestBuffers {
    call: TeamCall,
    seed: u64,
    rank: u16,
    input: Vec<u8>,
    output: Vec<u8>,
    passing: BufferMode,
}

impl TestBuffers {
    fn new(call: TeamCall, seed: u64, team: &Team, length: usize, passing: BufferMode) -> Self {
        let length = if call == TeamCall::Barrier { 0 } else { length };
        let input = contribution(seed, team.rank(), length);
        // In place, the output begins with the input; otherwise with another pattern.
        let output = match passing {
            BufferMode::InPlace => input.clone(),
            BufferMode::Apart => vec![0xa5; length],
        };
        Self { call, seed, rank: team.rank(), input, output, passing }
    }

    fn gets_nothing(&self) -> bool {
        match self.call {
            TeamCall::Broadcast { root } => root == self.rank,
            TeamCall::Reduce { root, .. } => root != self.rank,
            _ => false,
        }
    }

    fn data(&mut self) -> CollectiveBuffers<'_> {
        match (self.call, self.passing) {
            (TeamCall::Barrier, _) => CollectiveBuffers::Empty,
            (_, BufferMode::InPlace) => CollectiveBuffers::InPlace(&mut self.output),
            _ if self.gets_nothing() => CollectiveBuffers::InputOnly(&self.input),
            (TeamCall::Broadcast { .. }, _) => CollectiveBuffers::InPlace(&mut self.output),
            _ => CollectiveBuffers::Separate { input: &self.input, output: &mut self.output },
        }
    }

    fn check(&self, ranks: u16) {
        let found = match self.passing {
            BufferMode::Apart if self.gets_nothing() => &self.input,
            _ => &self.output,
        };
        let length = self.input.len();
        let right = expected(self.call, self.seed, self.rank, ranks, length);
        let wrong = found.iter().zip(&right).position(|(found, right)| found != right);
        let Self { call, rank, passing, .. } = self;
        assert_eq!(wrong, None, "{call:?} of {length} bytes, {passing:?}, rank {rank} of {ranks}: wrong from byte");
    }
}
