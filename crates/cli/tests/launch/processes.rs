//! The program as a process: how it is started and ended, and what it leaves behind.

use std::io::Read;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The program, with nothing set for it.
pub(crate) fn pleach() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PLEACH_")) {
        command.env_remove(name);
    }
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_alive(process: u32) -> bool {
    // A zombie whose parent is gone or busy is as good as gone.
    status_of(process).is_some_and(|(state, _)| state != 'Z')
}

/// A process's state and its parent.
fn status_of(process: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// A child of a process, with the words of its command line.
pub(crate) struct Descendant {
    pub(crate) process: u32,
    pub(crate) words: Vec<String>,
}

/// The living children of a process.
pub(crate) fn children(parent: u32) -> Vec<Descendant> {
    let names = std::fs::read_dir("/proc").expect("there is a /proc").flatten().map(|entry| entry.file_name());
    let processes = names.filter_map(|name| name.to_str()?.parse().ok());
    let ours =
        processes.filter(|process| status_of(*process).is_some_and(|(state, found)| found == parent && state != 'Z'));
    ours.map(|process| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        Descendant { process, words: text(&line).split('\0').map(str::to_owned).collect() }
    })
    .collect()
}

/// Waits until a process has children that are enough.
#[track_caller]
pub(crate) fn wait_for_children(parent: &Child, are_enough: impl Fn(&[Descendant]) -> bool) -> Vec<Descendant> {
    let began = Instant::now();
    loop {
        let found = children(parent.id());
        if are_enough(&found) {
            return found;
        }
        let seen: Vec<_> = found.iter().map(|child| child.words.join(" ")).collect();
        assert!(began.elapsed() < 3 * SOON, "not enough of {}: {seen:?}", parent.id());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The child whose command line has all of these words.
pub(crate) fn find<'c>(children: &'c [Descendant], words: &[&str]) -> Option<&'c Descendant> {
    children.iter().find(|child| words.iter().all(|word| child.words.iter().any(|found| found == word)))
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

/// Sends a signal to a process that the test knows to be one of its own.
pub(crate) fn signal_to(process: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status().expect("there is a sh");
    assert!(sent.success());
}

/// The exit status of a process, and what it said to its standard error, if that is piped.
#[track_caller]
pub(crate) fn end_of(mut child: Child) -> (Option<i32>, String) {
    let began = Instant::now();
    while child.try_wait().expect("ours").is_none() {
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
    (child.wait().expect("ours").code(), said)
}
