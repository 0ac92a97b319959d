//! A manager that is named and not used: one line of the job says so and why, and `--require-nodes` makes it an error.

use super::daemons::{Process, SECRET, client, wait_for_nodes};
use super::wrong_input::RANKS;
use super::*;

/// A job that gets no tree.
struct Unused<'a> {
    manager: &'a str,
    secret: Option<&'a str>,
    /// What the choice of a method says.
    reason: &'a str,
    /// What the line on stderr, the error and the explanation say.
    cause: String,
}

impl Unused<'_> {
    /// Exit status, stdout and stderr of a job of two hosts.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let job = ["-n", "2", "--ranks-per-host", "1", "--manager", self.manager];
        let mut command = launch(&[&job[..], arguments, &RANKS].concat());
        let ended = command.envs(self.secret.map(|secret| ("PLEACH_SECRET", secret))).output();
        let ended = ended.expect("pleach starts");
        (ended.status.code(), text(&ended.stdout), text(&ended.stderr))
    }

    fn check(&self) {
        let Self { manager, reason, cause, .. } = self;
        let (status, stdout, stderr) = self.run(&[]);
        let line = format!("pleach: warning: the job runs without aggregation nodes: {cause}");
        assert_eq!((status, stderr.lines().count()), (Some(0), 1), "{stderr}");
        assert!(stderr.starts_with(&line), "expected {line:?}: {stderr}");
        assert!(stderr.contains(&format!("`pleach doctor --manager {manager}` checks the cluster")), "{stderr}");
        assert!(stderr.contains("PLEACH_MANAGER_REQUIRED=1 makes this an error"), "{stderr}");
        let note =
            stdout.lines().find(|line| line.starts_with("note allreduce of 8 bytes: ")).expect("an explanation");
        for part in [format!(" {reason}; "), format!(" No aggregation nodes: {cause}")] {
            // The allreduce and the broadcast are explained.
            assert_eq!(note.matches(&part).count(), 2, "expected {part:?} twice: {note}");
        }
        let (status, stdout, stderr) = self.run(&["--require-nodes"]);
        let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!((status, errors.len(), stderr.matches(cause).count()), (Some(2), 1, 1), "{stderr}");
        assert!(errors[0].contains(cause), "{stderr}");
        assert_eq!(stdout, "", "no rank has started");
    }
}

/// A manager with the secret of the tests and perhaps a node.
fn cluster(manager: &[&str], node: Option<&[&str]>) -> (Process, Option<Process>) {
    let manager = Process::start(&[&["manager", "--listen", "127.0.0.1:0"], manager].concat());
    let node = node.map(|node| {
        let started = Process::start(&[&["node", "--manager", &manager.line, "--name", "one"], node].concat());
        wait_for_nodes(&mut client(&manager), 1);
        started
    });
    (manager, node)
}

const UNUSABLE: &str = "the aggregation manager could not be used";
const UNSERVED: &str = "no aggregation nodes serve all hosts of the group";

#[test]
fn a_manager_that_cannot_be_reached_is_named_once() {
    // A label of a name has at most 63 letters, so nobody is asked for this one.
    let unknown = format!("{}:4797", "x".repeat(70));
    for (manager, cause) in [
        ("127.0.0.1:1", "no connection to the manager at 127.0.0.1:1: Connection refused".to_owned()),
        (&unknown, format!("the address of the manager, {unknown} (PLEACH_MANAGER), is not found")),
    ] {
        Unused { manager, secret: None, reason: UNUSABLE, cause }.check();
    }
}

#[test]
fn a_job_without_the_right_secret_says_so_once() {
    let (manager, _) = cluster(&[], None);
    let manager = manager.line.as_str();
    for (secret, why) in [
        (None, "it requires the cluster's secret: set --secret-file or PLEACH_SECRET"),
        (
            Some("incorrect horse battery"),
            "it refused the job's credential, which is of another cluster or has expired",
        ),
    ] {
        let cause = format!("wrong secret for the manager at {manager}: {why}");
        Unused { manager, secret, reason: UNUSABLE, cause }.check();
    }
}

#[test]
fn a_job_that_the_manager_gives_no_tree_says_why_once() {
    for (arguments, node, reason, cause) in [
        (&[][..], None, UNSERVED, "no usable aggregation node is registered; start `pleach node`"),
        (
            &[],
            Some(&["--serves", "elsewhere"][..]),
            UNSERVED,
            "no aggregation node serves host host0; add it with `pleach node --serves`",
        ),
        (
            &["--default-quota", "operations=8"],
            Some(&[]),
            "the aggregation manager refused a tree",
            "the job's quota leaves 8 operations in flight at node one and 64 are needed",
        ),
    ] {
        let (manager, _node) = cluster(arguments, node);
        Unused { manager: &manager.line, secret: Some(SECRET), reason, cause: cause.to_owned() }.check();
    }
}
