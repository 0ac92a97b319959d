//! Jobs: where their hosts are, what is refused, and what runs.

use super::*;
use crate::segmented::HostOperation;
use crate::shared_fabric::GroupMethod;

/// 32 hosts, four at each leaf.
const SMALL: &str = "[fabric]\nkind = \"xgft\"\nchildren = [4, 8]\nparents = [1, 4]\n";

fn parse(jobs: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(&format!("{SMALL}{jobs}"), "a.toml")
}

fn hosts(jobs: &str) -> Vec<Vec<u32>> {
    let scenario = parse(jobs).unwrap_or_else(|error| panic!("{error}"));
    scenario.jobs.into_iter().map(|job| job.hosts).collect()
}

#[test]
fn packed_jobs_take_the_first_hosts_that_are_free() {
    let text = "[[job]]\nmembers = 3\n[[job]]\nhosts = [1, \"4-5\"]\nalgorithm = \"ring\"\n[[job]]\nmembers = 2\n";
    assert_eq!(hosts(text), [vec![0, 2, 3], vec![1, 4, 5], vec![6, 7]]);
}

#[test]
fn random_jobs_have_hosts_of_their_own_that_depend_on_the_seed() {
    let text = "[[job]]\nmembers = 16\nplacement = \"random\"\nalgorithm = \"ring\"\n\
                [[job]]\nmembers = 16\nplacement = \"random\"\nalgorithm = \"ring\"\n";
    let found = hosts(text);
    let mut all = found.concat();
    all.sort_unstable();
    assert_eq!(all, (0..32).collect::<Vec<_>>());
    assert_ne!(found[0], (0..16).collect::<Vec<_>>());
    assert_eq!(hosts(text), found);
    let other =
        Scenario::parse(&format!("seed = 2\n{SMALL}{text}"), "a.toml").unwrap_or_else(|error| panic!("{error}"));
    assert_ne!(other.jobs[0].hosts, found[0]);
}

#[test]
fn a_list_keeps_its_order_among_hosts_and_a_tree_takes_them_in_theirs() {
    let text = "[[job]]\nhosts = [9, 3, 7]\nalgorithm = \"ring\"\n[[job]]\nhosts = [9, 3, 7]\n";
    assert_eq!(hosts(text), [[9, 3, 7], [3, 7, 9]]);
}

#[test]
fn a_job_has_the_fields_of_a_collective() {
    let text = "[[job]]\nname = \"a\"\nmembers = 4\noperation = \"alltoall\"\nelement = \"u8\"\nbytes = 1000\noperations = 7\n\
                segment-bytes = 300\nstart-us = 1.5\n[[job]]\nmembers = 8\nsize-only-bytes = 10000\n";
    let mut scenario = parse(text).unwrap_or_else(|error| panic!("{error}"));
    let [first, second] = &scenario.jobs[..] else { panic!("two jobs") };
    assert_eq!((first.name.as_str(), first.names()), ("a", ("alltoall", "pairwise")));
    assert_eq!((first.operation, first.operations, first.vector.segments()), (HostOperation::AllToAll, 7, 4));
    assert_eq!((first.start, first.check), (units::SimSpan::from_nanos(1_500), ResultCheck::Bits));
    assert_eq!((second.name.as_str(), second.names()), ("job 2", ("allreduce", "aggregation")));
    assert!(matches!(second.method, GroupMethod::Tree(_)));
    assert_eq!((second.vector.segments(), second.bytes(), second.check), (3, 10_000, ResultCheck::Delivery));
    assert_eq!(scenario.total_operations(), 17);
    assert!(scenario.set_operations(3) && !scenario.set_operations(0));
    assert_eq!(scenario.total_operations(), 6);
}

#[test]
fn what_a_job_cannot_have_is_an_error_at_its_place() {
    for (text, message) in [
        ("[[job]]\n", "a job needs members, or a list of hosts"),
        ("[[job]]\nmembers = 33\n", "job.members: 33 members, and 32 hosts have no job"),
        ("[[job]]\nmembers = 30\n[[job]]\nmembers = 3\n", "3 members, and 2 hosts have no job"),
        ("[[job]]\nmembers = 2\nhosts = [1]\n", "job.members: a list of hosts says how many"),
        ("[[job]]\nplacement = \"random\"\nhosts = [1]\n", "job.placement: a list of hosts says how many"),
        ("[[job]]\nhosts = [1, \"0-3\"]\n", "host 1 is listed twice"),
        ("[[job]]\nhosts = [32]\n", "is not a host from 0 to 31"),
        ("[[job]]\nhosts = []\n", "a job needs a host"),
        ("[[job]]\nhosts = [true]\n", "a host's number, or a range"),
        ("[[job]]\nname = \"a\"\nmembers = 2\n[[job]]\nname = \"a\"\nmembers = 2\n", "another job is called \"a\""),
        ("[[job]]\nmembers = 2\nplacement = \"near\"\n", "job.placement: \"near\" is not one of its values"),
        ("[[job]]\nmembers = 2\nbytes = 12\n", "job.bytes: 12 is not a whole number of elements"),
        (
            "[[job]]\nmembers = 2\nalgorithm = \"chain\"\n",
            "job.algorithm: \"chain\" is not an algorithm of this operation",
        ),
        ("[[job]]\nmembers = 2\noperations = 200000\n", "job.operations: 200000 is out of range"),
        ("[[job]]\nmembers = 2\npace = \"drained\"\n", "unknown field `pace`"),
        ("[collective]\n[[job]]\nmembers = 2\n", "[collective] and [[job]] exclude each other"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    let many = "[[job]]\nhosts = [0]\nalgorithm = \"ring\"\n".repeat(65);
    assert!(parse(&many).expect_err("too many").to_string().contains("at most 64 jobs"));
    let qsnet =
        "[fabric]\nkind = \"k-ary-n-tree\"\nk = 4\nn = 2\n[link]\ntechnology = \"qsnet\"\n[[job]]\nmembers = 2\n";
    let error = Scenario::parse(qsnet, "a.toml").expect_err("no jobs there").to_string();
    assert!(error.contains("run on InfiniBand and Ethernet"), "{error}");
}
