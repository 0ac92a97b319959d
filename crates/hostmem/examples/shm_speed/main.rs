//! Measures collectives within one host, beside those of an MPI library where it is installed.
//!
//! ```text
//! cargo run --release -p pleach-hostmem --example shm_speed -- [ranks=2] [rounds=5] [least=8] [most=16777216] [only=allreduce]
//!     [compiler=mpicc.openmpi] [mpirun="mpirun.openmpi --oversubscribe --bind-to core"]
//! ```
//! Both alternate, `rounds` times. The result of a round is the median of its batches; the table has the median of the rounds and,
//! with an MPI library, the ratio within a round: median, least and most. Doubles, sum, separate input and output. The time of a
//! broadcast includes its share of one barrier per batch. Ranks are bound to CPUs as long as there are enough.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hostmem::team::{CollectiveBuffers, Team, TeamCall, WaitMode};
use reduce::{ElementType, Operator, ReductionKind};

const BATCHES: usize = 15;
/// Bytes that a batch moves, so that it takes some milliseconds.
const BATCH_BYTES: usize = 20_000_000;
const RANK: &str = "PLEACH_SPEED_RANK";

/// What is measured: an operation, its bytes, and how often it is repeated in a batch.
type Task = (String, usize, usize);
/// By operation and bytes: the medians of the rounds, and the least of all batches.
type Times = BTreeMap<(String, usize), (Vec<f64>, f64)>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Ok(rank) = std::env::var(RANK) {
        let [name, ranks, tasks @ ..] = arguments.as_slice() else { panic!("name, ranks and tasks") };
        return measure(rank.parse().expect("a rank"), ranks.parse().expect("ranks"), name, &read_tasks(tasks));
    }
    let option = |name: &str| arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str, other: usize| option(name).map_or(other, |value| value.parse().expect("a number"));
    let ranks = number("ranks", 2);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let is_oversubscribed = ranks > processors;
    let tasks = tasks(
        option("only"),
        number("least", 8)..=number("most", 16 << 20),
        if is_oversubscribed { ranks } else { 1 },
    );
    let usual = if is_oversubscribed {
        "mpirun.openmpi --oversubscribe --bind-to none --mca mpi_yield_when_idle 1"
    } else {
        "mpirun.openmpi --oversubscribe --bind-to core"
    };
    let mpirun = option("mpirun").unwrap_or(usual);
    let peer = build_peer(option("compiler").unwrap_or("mpicc.openmpi"));
    let (mut ours, mut theirs) = (Times::new(), Times::new());
    let rounds = number("rounds", 5);
    for round in 0..rounds {
        read_into(&mut ours, &run_ours(ranks, is_oversubscribed, round, &tasks));
        if let Some(peer) = &peer {
            read_into(&mut theirs, &run_peer(mpirun, peer, ranks, &tasks));
        }
    }
    println!("{ranks} ranks, us: median of {rounds} rounds and least batch; the peer is {mpirun}");
    println!("{:<10} {:>9} {:>21} {:>21} {:>20}", "operation", "bytes", "ours", "peer", "ratio (spread)");
    for (task, (rounds, least)) in &ours {
        print!("{:<10} {:>9} {:>10.2} {least:>10.2}", task.0, task.1, median(rounds));
        if let Some((peer_rounds, peer_least)) = theirs.get(task).filter(|(peer, _)| peer.len() == rounds.len()) {
            let mut ratios: Vec<f64> = rounds.iter().zip(peer_rounds).map(|(ours, theirs)| ours / theirs).collect();
            ratios.sort_by(f64::total_cmp);
            let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
            print!(" {:>10.2} {peer_least:>10.2}", median(peer_rounds));
            print!(" {:>6.2} ({low:.2} to {high:.2})", median(&ratios));
        }
        println!();
    }
}

fn tasks(only: Option<&str>, sizes: std::ops::RangeInclusive<usize>, slowness: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for operation in
        ["barrier", "allreduce", "broadcast"].into_iter().filter(|name| only.is_none_or(|only| only == *name))
    {
        let all = [8, 48, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
        let sizes = all.into_iter().filter(|size| sizes.contains(size));
        let sizes: Vec<usize> = if operation == "barrier" { vec![0] } else { sizes.collect() };
        let repeats = |bytes: usize| (BATCH_BYTES / (bytes + 4_000) / slowness).max(2);
        tasks.extend(sizes.into_iter().map(|bytes| (operation.into(), bytes, repeats(bytes))));
    }
    tasks
}

fn read_tasks(words: &[String]) -> Vec<Task> {
    let task =
        |words: &[String]| (words[0].clone(), words[1].parse().expect("bytes"), words[2].parse().expect("repeats"));
    words.chunks_exact(3).map(task).collect()
}

fn write_tasks(tasks: &[Task]) -> impl Iterator<Item = String> {
    tasks.iter().flat_map(|(operation, bytes, repeats)| [operation.clone(), bytes.to_string(), repeats.to_string()])
}

/// One rank. Rank 0 prints what an operation took: the median batch and the least.
fn measure(rank: u16, ranks: u16, name: &str, tasks: &[Task]) {
    let patience = Duration::from_secs(10);
    let team = if rank == 0 { Team::create(name, ranks) } else { Team::join(name, rank, ranks, patience) };
    let mut team = team.expect("shared memory");
    let check = || Ok::<_, Infallible>(WaitMode::MaySleep);
    let kind = ReductionKind::new(ElementType::F64, Operator::Sum).expect("numbers can be added");
    let largest = tasks.iter().map(|task| task.1).max().unwrap_or(0);
    let (mut input, mut output) = (vec![0; largest], vec![1; largest]);
    for (operation, bytes, repeats) in tasks {
        let call = match operation.as_str() {
            "barrier" => TeamCall::Barrier,
            "broadcast" => TeamCall::Broadcast { root: 0 },
            _ => TeamCall::AllReduce { kind },
        };
        let mut batches = Vec::new();
        for _ in 0..=BATCHES {
            team.run(TeamCall::Barrier, &mut CollectiveBuffers::Empty, check).expect("a barrier");
            let began = Instant::now();
            for _ in 0..*repeats {
                let mut data = match call {
                    TeamCall::Barrier => CollectiveBuffers::Empty,
                    TeamCall::Broadcast { .. } => CollectiveBuffers::InPlace(&mut input[..*bytes]),
                    _ => CollectiveBuffers::Separate { input: &input[..*bytes], output: &mut output[..*bytes] },
                };
                team.run(call, &mut data, check).expect("an operation");
            }
            if matches!(call, TeamCall::Broadcast { .. }) {
                team.run(TeamCall::Barrier, &mut CollectiveBuffers::Empty, check).expect("a barrier");
            }
            batches.push(began.elapsed().as_secs_f64() * 1e6 / *repeats as f64);
        }
        let batches = &batches[1..]; // The first warms up.
        if rank == 0 {
            let least = batches.iter().copied().fold(f64::INFINITY, f64::min);
            println!("{operation} {bytes} {} {least}", median(batches));
        }
    }
}

fn run_ours(ranks: usize, is_oversubscribed: bool, round: usize, tasks: &[Task]) -> String {
    let name = format!("pleach-speed-{}-{round}", std::process::id());
    let program = std::env::current_exe().expect("this program");
    let start = |rank: usize| -> Child {
        let mut command = Command::new(if is_oversubscribed { program.as_os_str() } else { "taskset".as_ref() });
        if !is_oversubscribed {
            command.args(["-c", &rank.to_string()]).arg(&program);
        }
        command.arg(&name).arg(ranks.to_string()).args(write_tasks(tasks)).env(RANK, rank.to_string());
        command.stdout(Stdio::piped()).spawn().expect("another of this program")
    };
    let children: Vec<Child> = (0..ranks).map(start).collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().expect("its output")).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "a rank failed");
    outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout)).collect()
}

/// Compiles the same measurement for an MPI library, if there is one.
fn build_peer(compiler: &str) -> Option<PathBuf> {
    let folder = std::env::temp_dir();
    let (source, program) = (folder.join("pleach_shm_speed.c"), folder.join(format!("pleach_shm_speed_{compiler}")));
    std::fs::write(&source, include_str!("peer.c")).ok()?;
    let built = Command::new(compiler).arg("-O2").arg("-o").arg(&program).arg(&source).status();
    built.is_ok_and(|status| status.success()).then_some(program)
}

fn run_peer(mpirun: &str, program: &Path, ranks: usize, tasks: &[Task]) -> String {
    let mut words = mpirun.split_whitespace();
    let output = Command::new(words.next().expect("a program"))
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .args(words)
        .args(["-n", &ranks.to_string()])
        .arg(program)
        .args(write_tasks(tasks))
        .output()
        .expect("mpirun");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn read_into(times: &mut Times, lines: &str) {
    for line in lines.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let [operation, bytes, median, least] = words[..]
            && let (Ok(bytes), Ok(median), Ok(least)) = (bytes.parse(), median.parse(), least.parse::<f64>())
        {
            let (medians, best) = times.entry((operation.into(), bytes)).or_insert((Vec::new(), f64::INFINITY));
            medians.push(median);
            *best = best.min(least);
        }
    }
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
