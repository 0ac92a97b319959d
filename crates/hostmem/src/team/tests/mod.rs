//! Teams of threads and of processes, in good company and in bad.

mod agreement;
mod all_operations;
mod cma_broadcast;
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

/// Runs `body` as every rank of a team, each in a thread with a mapping of its own. What each gave back, in rank order.
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

/// Numbers that anyone can make again from the same seed.
#[derive(Clone)]
struct TestRandom(u64);

impl TestRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// What a rank brings to an operation. Any bits: as floats, some are NaN or infinite.
fn brought(seed: u64, rank: u16, length: usize) -> Vec<u8> {
    let mut draw = TestRandom(seed.wrapping_mul(1009).wrapping_add(rank.into()));
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| draw.next().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// What rank `rank` must have afterwards, by the plainest means.
fn expected(call: TeamCall, seed: u64, rank: u16, ranks: u16, length: usize) -> Vec<u8> {
    let fold = |kind: ReductionKind| {
        let mut sum = brought(seed, 0, length);
        for other in 1..ranks {
            kind.fold(&mut sum, &brought(seed, other, length)).expect("whole elements");
        }
        sum
    };
    match call {
        TeamCall::Barrier => Vec::new(),
        TeamCall::Broadcast { root } => brought(seed, root, length),
        TeamCall::AllReduce { kind } => fold(kind),
        TeamCall::Reduce { root, kind } if root == rank => fold(kind),
        TeamCall::Reduce { .. } => brought(seed, rank, length),
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
        let input = brought(seed, team.rank(), length);
        // In place, the output is what is given; else it begins with something else.
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
            (TeamCall::Barrier, _) => CollectiveBuffers::Nothing,
            (_, BufferMode::InPlace) => CollectiveBuffers::InPlace(&mut self.output),
            _ if self.gets_nothing() => CollectiveBuffers::Give(&self.input),
            (TeamCall::Broadcast { .. }, _) => CollectiveBuffers::InPlace(&mut self.output),
            _ => CollectiveBuffers::Apart { input: &self.input, output: &mut self.output },
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
