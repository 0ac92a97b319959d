//! How fast the ranks of one host combine, beside Open MPI where it is installed.
//!
//! ```text
//! cargo run --release -p runtime --example shm_speed -- [ranks [rounds [largest bytes]]]
//! ```
//! Both run in turn, `rounds` times; each round gives the median and the least of its batches. On a machine that does other things
//! as well, the least tells more. Doubles, sum, input and result apart. A broadcast's time includes its share of one barrier per batch.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reduce::{ElementType, Kind, Operator};
use runtime::shm::{Attention, Call, Data, Team};

const BATCHES: usize = 15;
const SIZES: [usize; 11] = [8, 48, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// By operation and bytes: median and least of the batches of each round.
type Times = BTreeMap<(String, usize), (Vec<f64>, Vec<f64>)>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [rank, ranks, largest, name] = arguments.as_slice()
        && name.starts_with("pleach-")
    {
        let [rank, ranks] = [rank, ranks].map(|number| number.parse().expect("a rank"));
        return measure(rank, ranks, largest.parse().expect("bytes"), name);
    }
    let number = |index: usize, other: usize| {
        arguments.get(index).map_or(other, |argument| argument.parse().expect("ranks, rounds, largest bytes"))
    };
    let (ranks, rounds, largest) = (number(0, 2), number(1, 5), number(2, 16 << 20));
    let peer = build_peer();
    let (mut ours, mut theirs) = (Times::new(), Times::new());
    for round in 0..rounds {
        read_into(&mut ours, &run_ours(ranks, round, largest));
        if let Some(peer) = &peer {
            read_into(&mut theirs, &run_peer(peer, ranks, largest));
        }
    }
    println!("{ranks} ranks, us: median of {rounds} rounds, and least of all batches");
    println!("{:<10} {:>9} {:>21} {:>21} {:>13}", "operation", "bytes", "ours", "Open MPI", "ratios");
    for ((operation, bytes), times) in &mut ours {
        let (median, least) = summary(times);
        print!("{operation:<10} {bytes:>9} {median:>10.2} {least:>10.2}");
        if let Some((peer, best)) = theirs.get_mut(&(operation.clone(), *bytes)).map(summary) {
            print!(" {peer:>10.2} {best:>10.2} {:>6.2} {:>6.2}", median / peer, least / best);
        }
        println!();
    }
}

/// One rank. Rank 0 prints what a batch took per operation, median over the batches.
fn measure(rank: u16, ranks: u16, largest: usize, name: &str) {
    let patience = Duration::from_secs(10);
    let team = if rank == 0 { Team::create(name, ranks) } else { Team::join(name, rank, ranks, patience) };
    let mut team = team.expect("shared memory");
    let check = || Ok::<_, Infallible>(Attention::MaySleep);
    let kind = Kind::new(ElementType::F64, Operator::Sum).expect("numbers can be added");
    let (mut input, mut output) = (vec![1; largest], vec![0; largest]);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let slowness = if usize::from(ranks) > processors { usize::from(ranks) } else { 1 };
    let calls = [Call::Barrier, Call::AllReduce { kind }, Call::Broadcast { root: 0 }];
    for call in calls {
        let sizes: &[usize] = if call == Call::Barrier { &[0] } else { &SIZES };
        for &bytes in sizes.iter().filter(|&&bytes| bytes <= largest) {
            let repeats = repeats(bytes, slowness);
            let mut batches = Vec::new();
            for _ in 0..=BATCHES {
                team.run(Call::Barrier, &mut Data::Nothing, check).expect("a barrier");
                let began = Instant::now();
                for _ in 0..repeats {
                    let mut data = match call {
                        Call::Barrier => Data::Nothing,
                        Call::Broadcast { .. } => Data::InPlace(&mut input[..bytes]),
                        _ => Data::Apart { input: &input[..bytes], output: &mut output[..bytes] },
                    };
                    team.run(call, &mut data, check).expect("an operation");
                }
                if matches!(call, Call::Broadcast { .. }) {
                    team.run(Call::Barrier, &mut Data::Nothing, check).expect("a barrier");
                }
                batches.push(began.elapsed().as_secs_f64() * 1e6 / repeats as f64);
            }
            if rank == 0 {
                let operation = match call {
                    Call::Barrier => "barrier",
                    Call::Broadcast { .. } => "broadcast",
                    _ => "allreduce",
                };
                let batches = &mut batches[1..];
                batches.sort_by(f64::total_cmp);
                println!("{operation} {bytes} {} {}", batches[BATCHES / 2], batches[0]);
            }
        }
    }
}

/// A batch takes some milliseconds. The peer's program has the same formula.
fn repeats(bytes: usize, slowness: usize) -> usize {
    (20_000_000 / (bytes + 4_000) / slowness).max(2)
}

fn run_ours(ranks: usize, round: usize, largest: usize) -> String {
    let name = format!("pleach-speed-{}-{round}", std::process::id());
    let program = std::env::current_exe().expect("this program");
    let start = |rank: usize| -> Child {
        let arguments = [rank.to_string(), ranks.to_string(), largest.to_string(), name.clone()];
        Command::new(&program).args(arguments).stdout(Stdio::piped()).spawn().expect("another of this program")
    };
    let children: Vec<Child> = (0..ranks).map(start).collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().expect("its output")).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "a rank failed");
    outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout)).collect()
}

const PEER: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static int by_size(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return (x > y) - (x < y); }
int main(int argc, char **argv) {
    int rank, ranks; size_t largest = strtoul(argv[1], 0, 10), slowness = strtoul(argv[2], 0, 10);
    MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *input = calloc(largest, 1), *output = calloc(largest, 1); double batch[15];
    const char *names[] = {"barrier", "allreduce", "broadcast"};
    size_t sizes[] = {8, 48, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
    for (size_t i = 0; i < largest; i++) input[i] = output[i] = 1;
    for (int op = 0; op < 3; op++) for (int s = 0; s < (op ? 11 : 1); s++) {
        size_t bytes = op ? sizes[s] : 0, repeats = 20000000 / (bytes + 4000) / slowness;
        if (bytes > largest) continue;
        if (repeats < 2) repeats = 2;
        for (int b = -1; b < 15; b++) {
            MPI_Barrier(MPI_COMM_WORLD); double began = MPI_Wtime();
            for (size_t i = 0; i < repeats; i++) {
                if (op == 0) MPI_Barrier(MPI_COMM_WORLD);
                if (op == 1) MPI_Allreduce(input, output, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
                if (op == 2) MPI_Bcast(input, bytes / 8, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            }
            if (op == 2) MPI_Barrier(MPI_COMM_WORLD);
            if (b >= 0) batch[b] = (MPI_Wtime() - began) * 1e6 / repeats;
        }
        qsort(batch, 15, sizeof batch[0], by_size);
        if (rank == 0) printf("%s %zu %f %f\n", names[op], bytes, batch[7], batch[0]);
    }
    MPI_Finalize();
}
"#;

/// Compiles the same measurement for Open MPI, if there is one.
fn build_peer() -> Option<std::path::PathBuf> {
    let folder = std::env::temp_dir();
    let (source, program) = (folder.join("pleach_shm_speed.c"), folder.join("pleach_shm_speed"));
    std::fs::write(&source, PEER).ok()?;
    let built = Command::new("mpicc.openmpi").arg("-O2").arg("-o").arg(&program).arg(&source).status();
    built.is_ok_and(|status| status.success()).then_some(program)
}

fn run_peer(program: &std::path::Path, ranks: usize, largest: usize) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (binding, slowness): (&[&str], usize) = if ranks > processors {
        (&["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"], ranks)
    } else {
        (&["--bind-to", "core"], 1)
    };
    let output = Command::new("mpirun.openmpi")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .args(["--oversubscribe", "-n", &ranks.to_string()])
        .args(binding)
        .arg(program)
        .args([largest.to_string(), slowness.to_string()])
        .output()
        .expect("mpirun");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn read_into(times: &mut Times, lines: &str) {
    for line in lines.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let [operation, bytes, median, least] = words[..]
            && let (Ok(bytes), Ok(median), Ok(least)) = (bytes.parse(), median.parse(), least.parse())
        {
            let (medians, leasts) = times.entry((operation.into(), bytes)).or_default();
            medians.push(median);
            leasts.push(least);
        }
    }
}

/// The median of the rounds' medians, and the least of all batches.
fn summary((medians, leasts): &mut (Vec<f64>, Vec<f64>)) -> (f64, f64) {
    medians.sort_by(f64::total_cmp);
    (medians[medians.len() / 2], leasts.iter().copied().fold(f64::INFINITY, f64::min))
}
