//! The `pleach` program as a process: starting, signalling, and checking what it leaves behind.

use std::io::Read;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The program, without our variables and those of a batch system. `PLEACH_TEST_PROGRAM` is another build of it, for figures.
pub(crate) fn pleach() -> Command {
    let program = std::env::var_os("PLEACH_TEST_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_pleach").into());
    let mut command = Command::new(program);
    without_settings(&mut command);
    command
}

/// Removes our variables and those of a batch system around the tests.
pub(crate) fn without_settings(command: &mut Command) {
    let prefixes = ["PLEACH_", "SLURM_", "PBS_", "JOB_COMPLETION_INDEX"];
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| prefixes.iter().any(|prefix| name.to_string_lossy().starts_with(prefix))) {
        command.env_remove(name);
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_alive(process: u32) -> bool {
    // A zombie has ended; its parent has not reaped it yet.
    status_of(process).is_some_and(|(state, _)| state != 'Z')
}

/// A process's state and its parent.
fn status_of(process: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// A child of a process, with the arguments of its command line.
pub(crate) struct Descendant {
    pub(crate) process: u32,
    pub(crate) arguments: Vec<String>,
}

/// The living children of a process.
pub(crate) fn children(parent: u32) -> Vec<Descendant> {
    let names = std::fs::read_dir("/proc").expect("there is a /proc").flatten().map(|entry| entry.file_name());
    let processes = names.filter_map(|name| name.to_str()?.parse().ok());
    let found =
        processes.filter(|process| status_of(*process).is_some_and(|(state, found)| found == parent && state != 'Z'));
    found
        .map(|process| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            Descendant { process, arguments: text(&line).split('\0').map(str::to_owned).collect() }
        })
        .collect()
}

/// Waits until `are_enough` holds for the children of a process.
#[track_caller]
pub(crate) fn wait_for_children(parent: &Child, are_enough: impl Fn(&[Descendant]) -> bool) -> Vec<Descendant> {
    let began = Instant::now();
    loop {
        let found = children(parent.id());
        if are_enough(&found) {
            return found;
        }
        let seen: Vec<_> = found.iter().map(|child| child.arguments.join(" ")).collect();
        assert!(began.elapsed() < 3 * SOON, "not enough of {}: {seen:?}", parent.id());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The child whose command line has all of these arguments.
pub(crate) fn find<'c>(children: &'c [Descendant], arguments: &[&str]) -> Option<&'c Descendant> {
    children
        .iter()
        .find(|child| arguments.iter().all(|argument| child.arguments.iter().any(|found| found == argument)))
}

#[track_caller]
pub(crate) fn assert_gone(processes: &[u32]) {
    let began = Instant::now();
    while processes.iter().any(|process| is_alive(*process)) {
        assert!(began.elapsed() < SOON, "left behind: {processes:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(child: &Child, name: &str) {
    signal_to(child.id(), name);
}

/// Sends a signal to a process that belongs to the test.
pub(crate) fn signal_to(process: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status().expect("there is a sh");
    assert!(sent.success());
}

/// Waits for a process: its exit status, and its stderr if piped.
#[track_caller]
pub(crate) fn end_of(mut child: Child) -> (Option<i32>, String) {
    let began = Instant::now();
    while child.try_wait().expect("a child of this test").is_none() {
        if began.elapsed() > 3 * SOON {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut said).expect("text");
    }
    (child.wait().expect("a child of this test").code(), said)
}
