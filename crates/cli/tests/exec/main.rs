//! `pleach exec` and `pleach doctor -- …` as a user runs them: unmodified MPI programs, with killed nodes, faults and signals.

mod applications;
mod between_hosts;
#[path = "../launch/processes.rs"]
mod processes;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use processes::{Descendant, SOON, assert_gone, children, end_of, find, signal, signal_to, text, wait_for_children};
use serde_json::Value;

const OPEN_MPI: [&str; 6] =
    ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle"];
const FAULTS: &str =
    "[[fault]]\nkind = \"flip\"\nprobability = 0.01\n[[fault]]\nkind = \"lose\"\nprobability = 0.01\n";

fn file(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("exec-{}-{number}-{name}", std::process::id()))
}

/// Compiles a program of the MPI library's tests.
fn compile(compiler: &str, source: &str) -> String {
    let program = file(source.trim_end_matches(".c"));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pleach-mpi/tests/programs");
    let compiled = Command::new(compiler).args(["-O1", "-o"]).arg(&program).arg(sources.join(source)).output();
    let compiled = compiled.expect("the MPI's compiler");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    program.display().to_string()
}

/// A `pleach` command, with the variables that MPIs require of root.
fn pleach(command: &str, arguments: &[&str]) -> Command {
    let mut pleach = processes::pleach();
    pleach.arg(command).args(arguments).stdin(Stdio::null());
    pleach.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    // These tests are about what Pleach does, even where the MPI is faster.
    pleach.env("PLEACH_MPI_CHOICE", "pleach");
    // And about nodes, where there are any, even where the hosts alone are faster.
    pleach.env("PLEACH_ALGORITHM", "aggregation");
    // The library that was built with this test.
    let test = std::env::current_exe().expect("this test");
    pleach.env("PLEACH_MPI_LIBRARY", test.parent().expect("a folder"));
    pleach
}

/// Runs a job under Open MPI; its output and the report.
fn job(arguments: &[&str], ranks: &str, program: &[&str]) -> (Output, Value) {
    let report = file("report.json");
    let mut exec = pleach("exec", arguments);
    exec.args(["--format", "json", "--output"]).arg(&report).arg("--").args(OPEN_MPI).args(["1", "-n", ranks]);
    let output = exec.args(program).output().expect("pleach starts");
    (output, read(&report))
}

fn read(report: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(report).unwrap_or_default()).unwrap_or_default()
}

fn calls(report: &Value, kind: &str) -> u64 {
    let rows = report["report"][kind].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().filter_map(|row| row["calls"].as_u64()).sum()
}

/// Nobody listens at port 9.
#[test]
fn a_job_that_requires_nodes_and_has_none_ends_with_the_reason_under_open_mpi() {
    let program = compile("mpicc.openmpi", "survival.c");
    let unused = ["--manager", "127.0.0.1:9", "--ranks-per-host", "1"];
    let (output, _) = job(&unused, "2", &[&program, "10"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("the job runs without aggregation nodes").count(), 1, "{said}");
    let (output, _) = job(&[&unused[..], &["--require-nodes"]].concat(), "2", &[&program, "10"]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && text(&output.stdout).is_empty(), "{said}");
    assert!(said.contains("aborting the job: the job has no aggregation nodes"), "{said}");
}

#[test]
fn a_program_is_offloaded_and_reported_under_open_mpi() {
    let program = compile("mpicc.openmpi", "survival.c");
    let (output, report) = job(&[], "2", &[&program, "100"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "survival: 100 rounds\n");
    assert_eq!(
        (&report["status"], &report["report"]["ranks"], &report["report"]["hosts"]),
        (&0.into(), &2.into(), &1.into())
    );
    assert!(calls(&report, "taken") > 1000 && calls(&report, "left") == 0, "{report}");
    assert_eq!(report["report"]["mpi"]["abi"], "Open MPI");
}

#[test]
fn a_program_is_offloaded_and_reported_under_mpich() {
    let program = compile("mpicc.mpich", "survival.c");
    let output = pleach("exec", &["--", "mpirun.mpich", "-n", "2", &program, "100"]).output().expect("pleach starts");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(text(&output.stdout), "survival: 100 rounds\n");
    assert!(said.contains("(100 %)") && said.contains("ABI of MPICH") && said.contains("allreduce"), "{said}");
}

#[test]
fn every_program_of_a_job_of_several_gets_the_library_under_open_mpi() {
    let program = compile("mpicc.openmpi", "survival.c");
    let (output, report) = job(&[], "1", &[&program, "100", ":", "-n", "2", &program, "100"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((&report["report"]["ranks"], calls(&report, "left")), (&3.into(), 0), "{report}");
}

#[test]
fn the_exit_status_is_that_of_the_command_under_open_mpi() {
    let (output, report) = job(&[], "2", &["sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!((&report["status"], &report["report"]), (&7.into(), &Value::Null));
}

#[test]
fn a_program_that_does_not_exist_gives_the_error_and_no_report() {
    for program in ["/no/such/launcher", "no-such-launcher"] {
        let missing = pleach("exec", &["--", program]).output().expect("pleach starts");
        assert_eq!(missing.status.code(), Some(127));
        let expected = format!("pleach exec: cannot run {program}: there is no such program\n");
        assert_eq!(text(&missing.stderr), expected);
    }
    let behind = pleach("exec", &["--", "sh", "-c", "no-such-program"]).output().expect("pleach starts");
    let said = text(&behind.stderr);
    assert_eq!(behind.status.code(), Some(127), "{said}");
    assert!(said.contains("no-such-program") && !said.contains("launcher  "), "{said}");
}

#[test]
fn a_missing_library_and_a_missing_fault_plan_are_reported() {
    let output = pleach("exec", &["--library", "/no/such/library.so", "--", "true"]).output().expect("pleach starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no library /no/such/library.so"), "{}", text(&output.stderr));
    let output = pleach("exec", &["--faults", "/no/such/plan", "--", "true"]).output().expect("pleach starts");
    assert_eq!(output.status.code(), Some(2));
    let output = pleach("exec", &["--", "mpirun", "-x", "LD_PRELOAD=a.so", "true"]).output().expect("pleach starts");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_old_name_of_max_bytes_works_with_one_warning_under_open_mpi() {
    let program = compile("mpicc.openmpi", "survival.c");
    let report = file("report.json");
    let mut exec = pleach("exec", &["--format", "json", "--output"]);
    exec.arg(&report)
        .env("PLEACH_MPI_LARGEST", "64")
        .arg("--")
        .args(OPEN_MPI)
        .args(["1", "-n", "2", &program, "100"]);
    let output = exec.output().expect("pleach starts");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("PLEACH_MPI_LARGEST")).collect();
    assert!(matches!(warnings[..], [one] if one.contains("use PLEACH_MPI_MAX_BYTES")), "{said}");
    let report = read(&report);
    assert_eq!(calls(&report, "left"), 400, "two allreduces of 800 bytes per round and rank: {report}");
    assert!(calls(&report, "taken") > 0, "{report}");
}

#[test]
fn operations_use_nodes_while_bits_flip_and_packets_are_lost_under_open_mpi() {
    let program = compile("mpicc.openmpi", "survival.c");
    let plan = file("faults.toml");
    std::fs::write(&plan, FAULTS).expect("the target folder can be written to");
    let (output, report) = job(&["--nodes", "3", "--faults", &plan.display().to_string()], "4", &[&program, "100"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "survival: 100 rounds\n");
    let of_ranks = &report["report"];
    assert_eq!((&of_ranks["hosts"], &of_ranks["failures"]), (&4.into(), &0.into()), "{report}");
    assert!(of_ranks["operations"]["through_nodes"].as_u64() > Some(1000), "{report}");
    for what in ["damaged", "hurt_by_plan", "lost_by_plan", "repeated"] {
        assert!(of_ranks["packets"][what].as_u64() > Some(0), "{what}: {report}");
    }
    assert_eq!(report["nodes"].as_array().map(Vec::len), Some(3), "{report}");
}

/// Starts a job with a manager and nodes, and waits until its ranks have set up shared memory: a rank of Open MPI 4 whose launcher is
/// killed while the rank connects to it blocks forever, with the library or without.
fn start(report: &Path, rounds: &str) -> Child {
    let program = compile("mpicc.openmpi", "survival.c");
    let mut exec = pleach("exec", &["--nodes", "1", "--format", "json", "--output"]);
    exec.arg(report).arg("--").args(OPEN_MPI).args(["1", "-n", "3", &program, rounds]);
    let child = exec.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pleach starts");
    wait_for_children(&child, have_joined);
    child
}

/// True if the ranks of the launcher among these processes have set up shared memory.
fn have_joined(found: &[Descendant]) -> bool {
    let launcher = found.iter().find(|child| child.arguments.first().is_some_and(|word| word == OPEN_MPI[0]));
    let ranks = launcher.map_or(Vec::new(), |launcher| children(launcher.process));
    let has_joined = |rank: &Descendant| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", rank.process));
        maps.is_ok_and(|maps| maps.contains(" /dev/shm/"))
    };
    !ranks.is_empty() && ranks.iter().all(has_joined)
}

#[test]
fn a_killed_node_costs_no_result_under_open_mpi() {
    let report = file("report.json");
    let child = start(&report, "3000");
    std::thread::sleep(SOON / 20); // In the middle of the run.
    signal_to(find(&children(child.id()), &["node", "root"]).expect("a node").process, "KILL");
    let output = child.wait_with_output().expect("a child of this test");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(text(&output.stdout), "survival: 3000 rounds\n");
    assert!(said.contains("root was killed by SIGKILL; the job continues without it"), "{said}");
    let report = read(&report);
    assert!(
        report["report"]["operations"]["through_nodes"].as_u64() > Some(0) && report["report"]["failures"] == 0,
        "{report}"
    );
    assert_eq!(report["lost"], serde_json::json!(["root was killed by SIGKILL"]), "{report}");
}

#[test]
fn nothing_is_left_when_a_job_is_interrupted_or_killed_under_open_mpi() {
    for name in ["TERM", "KILL"] {
        let child = start(&file("report.json"), "100000000");
        let first = children(child.id());
        let mut all: Vec<u32> = first.iter().map(|child| child.process).collect();
        all.extend(first.iter().flat_map(|child| children(child.process)).map(|child| child.process));
        assert!(all.len() >= 6, "manager, node, launcher and ranks");
        signal(&child, name);
        let (status, _) = end_of(child);
        assert_ne!(status, Some(0));
        assert_gone(&all);
    }
}

#[test]
fn the_doctor_explains_and_the_program_does_not_run_under_open_mpi() {
    let program = compile("mpicc.openmpi", "survival.c");
    let mut doctor = pleach("doctor", &["--nodes", "1", "--format", "json", "--"]);
    let output = doctor.args(OPEN_MPI).args(["1", "-n", "3", &program, "100000000"]).output().expect("pleach starts");
    let said = text(&output.stdout);
    assert!(output.status.success() && !said.contains("survival"), "{said}{}", text(&output.stderr));
    let found: Value = serde_json::from_str(&said).expect("an object");
    let found: Vec<String> = found["findings"].as_array().expect("findings").iter().map(Value::to_string).collect();
    for words in
        ["3 ranks on 3 hosts joined", "300 operations went through them", "Open MPI v4", "gave the right sums"]
    {
        assert!(found.iter().any(|finding| finding.contains(words)), "{words}: {found:?}");
    }
}

#[test]
fn the_doctor_detects_a_program_without_mpi_under_open_mpi() {
    let mut doctor = pleach("doctor", &["--"]);
    let output = doctor.args(OPEN_MPI).args(["1", "-n", "1", "true"]).output().expect("pleach starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("no rank reported"), "{}", text(&output.stdout));
}
