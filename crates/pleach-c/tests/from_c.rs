//! C programs against `pleach.h`: they compile without a warning, and do their work as processes of a job.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Compiles a program of this crate against the library that was built with this test.
fn compile(source: &str, name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = library_folder(name);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
        .arg(&program)
        .arg(here.join(source))
        .arg("-I")
        .arg(here.join("include"))
        .arg("-L")
        .arg(&folder)
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .arg("-lpleach_c")
        .output()
        .expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// A folder with the library under the names that the linker and the loader look for.
fn library_folder(name: &str) -> PathBuf {
    let built = std::env::current_exe().expect("this program").with_file_name("libpleach_c.so");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-libraries"));
    std::fs::create_dir_all(&folder).expect("a folder");
    for link in ["libpleach_c.so", "libpleach_c.so.0"] {
        let _ = std::fs::remove_file(folder.join(link)); // Of the last run.
        std::os::unix::fs::symlink(&built, folder.join(link)).expect("a link");
    }
    folder
}

/// Runs a job of this program; the stdout of each rank. All must succeed.
fn run(program: &Path, ranks: u32) -> Vec<String> {
    let rendezvous = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let start = |rank: u32| {
        Command::new(program)
            .env("PLEACH_RANK", rank.to_string())
            .env("PLEACH_SIZE", ranks.to_string())
            .env("PLEACH_RENDEZVOUS", rendezvous.to_string())
            .env("PLEACH_TOKEN", format!("c-{}", std::process::id()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process")
    };
    let children: Vec<Child> = (0..ranks).map(start).collect();
    children.into_iter().enumerate().map(|(rank, child)| stdout_of(rank, child)).collect()
}

fn stdout_of(rank: usize, mut child: Child) -> String {
    let began = Instant::now();
    while child.try_wait().expect("a child of this process").is_none() {
        if began.elapsed() > TIMEOUT {
            child.kill().expect("a child of this process");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("a child of this process");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "rank {rank}: {}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn everything_can_be_called_from_c() {
    run(&compile("tests/everything.c", "everything"), 3);
}

#[test]
fn the_example_sums() {
    let stdout = run(&compile("examples/sums.c", "sums"), 4);
    assert_eq!(stdout.concat(), "4 ranks: 6 in all; the largest is 3, of rank 1\n");
}

/// A launcher of an MPI starts a program that knows Pleach alone: their ranks, and what they print.
fn sums_under(launcher: &[&str]) -> String {
    let program = compile("examples/sums.c", &format!("sums-{}", launcher[0]));
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT.as_secs().to_string()).args(launcher).args(["-n", "2"]).arg(program);
    // Open MPI demands these of root.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_string_lossy().starts_with("PLEACH_")) {
        command.env_remove(name);
    }
    let ended = command.stdin(Stdio::null()).output().expect("a launcher");
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

#[test]
fn a_program_without_mpi_is_a_job_under_open_mpi() {
    let stdout = sums_under(&["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"]);
    assert_eq!(stdout, "2 ranks: 1 in all; the largest is 1, of rank 1\n");
}

#[test]
fn a_program_without_mpi_is_a_job_under_mpich() {
    assert_eq!(sums_under(&["mpirun.mpich"]), "2 ranks: 1 in all; the largest is 1, of rank 1\n");
}
