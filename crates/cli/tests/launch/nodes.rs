//! `pleach launch --nodes`: a manager and nodes for the job, which end with it.

use super::between_hosts::{can_have_hosts, leftovers};
use super::daemons::{Process, SECRET, client, until, wait_for_nodes};
use super::processes::{Descendant, children, find, signal_to, wait_for_children};
use super::*;
use control::ManagerClient;

/// A rank of the tests below: sums repeatedly, checks every sum, and prints its counters.
#[test]
#[ignore = "other tests launch it"]
fn as_a_rank() {
    use pleach::Operator;
    let world = pleach::join().expect("all ranks join");
    let (rank, size) = (f64::from(world.rank()), f64::from(world.size()));
    let rounds = std::env::var("PLEACH_TEST_ROUNDS").map_or(100, |rounds| rounds.parse().expect("a number"));
    let seconds = std::env::var("PLEACH_TEST_SECONDS").ok().map(|seconds| seconds.parse().expect("a number"));
    let began = Instant::now();
    for round in 0..rounds {
        // All ranks must leave in the same round.
        let mut is_over = [u8::from(seconds.is_some_and(|seconds: u64| began.elapsed().as_secs() >= seconds))];
        if seconds.is_some() {
            world.broadcast(&mut is_over, 0).expect("every rank takes part");
        }
        if is_over == [1] {
            break;
        }
        let mut sums = [rank + f64::from(round), 1.0];
        world.all_reduce(&mut sums, Operator::Sum).expect("every rank takes part");
        assert_eq!(sums, [size * (size - 1.0) / 2.0 + size * f64::from(round), size], "round {round}");
        if rounds > 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let packets = world.packets();
    println!("\nsummed aggregated {} damaged {}", world.statistics().aggregated, packets.damaged);
    println!("why {}", world.explain(16, Operator::Sum));
}

/// Ranks that use nodes even where the hosts alone are faster.
fn as_ranks(arguments: &[&str]) -> Command {
    let mut command = super::as_ranks("nodes::as_a_rank", arguments);
    command.env("PLEACH_ALGORITHM", "aggregation");
    command
}

/// What ranks print at the end: operations through nodes, and corrupted packets.
fn counters(output: &Output) -> Vec<(u64, u64)> {
    super::counters(output, ["summed aggregated", "damaged"])
}

fn are_all_there(found: &[Descendant]) -> bool {
    let has = |words: &[&str]| find(found, words).is_some();
    has(&["manager"]) && ["root", "leaf1", "leaf2"].iter().all(|name| has(&["node", name])) && found.len() >= 6
}

#[test]
fn ranks_find_the_nodes_and_their_operations_go_through_them() {
    let output = as_ranks(&["-n", "4", "--nodes", "3"]).output().expect("pleach starts");
    let counters = counters(&output);
    assert_eq!(counters.len(), 4);
    assert!(counters.iter().all(|(aggregated, _)| *aggregated >= 100), "{counters:?}, {}", text(&output.stdout));
}

#[test]
fn ranks_of_a_host_share_memory_and_their_leader_uses_the_node() {
    let output = as_ranks(&["-n", "4", "--nodes", "1", "--ranks-per-host", "2"]).output().expect("pleach starts");
    let mut aggregated: Vec<u64> = counters(&output).into_iter().map(|(aggregated, _)| aggregated).collect();
    aggregated.sort_unstable();
    assert_eq!(aggregated[..2], [0, 0], "{}", text(&output.stdout));
    assert!(aggregated[2] >= 100 && aggregated.len() == 4);
    // The other ranks know no tree, and say so.
    assert_eq!(text(&output.stdout).matches("this is another one.").count(), 2, "{}", text(&output.stdout));
}

#[test]
fn a_plan_of_faults_reaches_ranks_and_nodes_and_changes_no_result() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launch-faults.toml");
    let plan = "[[fault]]\nkind = \"flip\"\nprobability = 0.05\n[[fault]]\nkind = \"lose\"\nprobability = 0.02\n";
    std::fs::write(&file, plan).expect("the target folder can be written to");
    let plan = file.display().to_string();
    let output = as_ranks(&["-n", "2", "--nodes", "1", "--faults", &plan]).output().expect("pleach starts");
    let counters = counters(&output);
    // Ranks receive packets from the node only, so corrupted ones were corrupted there.
    assert!(counters.len() == 2 && counters.iter().map(|(_, damaged)| damaged).sum::<u64>() > 0, "{counters:?}");
}

#[test]
fn when_a_node_is_killed_the_job_goes_on() {
    let mut command = as_ranks(&["-n", "4", "--nodes", "3"]);
    let child = command.env("PLEACH_TEST_ROUNDS", "600").spawn().expect("pleach starts");
    let found = wait_for_children(&child, |found| are_all_there(found) && found.len() == 9);
    let leaf = find(&found, &["node", "leaf1"]).expect("just seen").process;
    std::thread::sleep(Duration::from_millis(300));
    signal_to(leaf, "KILL");
    let output = child.wait_with_output().expect("a child of this test");
    assert_eq!(counters(&output).len(), 4);
    // Rank 0 uses that node, and leaves it to the launcher, which knows why it ended.
    assert_eq!(text(&output.stderr), "pleach launch: leaf1 was killed by SIGKILL; the job continues without it\n");
    assert_gone(&found.iter().map(|child| child.process).collect::<Vec<_>>());
}

/// Runs a job while it uses a node of this name; `then` gets the nodes. The job must still run when `then` returns, and end well. Returns
/// what it wrote.
fn run_job_with_nodes(
    names: &[&str],
    topology: &str,
    then: impl FnOnce(&Process, &mut Vec<Process>, &mut ManagerClient),
) -> Output {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("renewal-{}.toml", names.join("-")));
    std::fs::write(&file, topology).expect("the target folder can be written to");
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0", "--topology", &file.display().to_string()]);
    let start = |name: &&str| Process::start(&["node", "--manager", &manager.line, "--name", name]);
    let mut nodes: Vec<Process> = names.iter().map(start).collect();
    let mut client = client(&manager);
    wait_for_nodes(&mut client, names.len());
    let mut command = as_ranks(&["-n", "3", "--ranks-per-host", "1", "--manager", &manager.line]);
    command.env("PLEACH_TEST_ROUNDS", "1000000000").env("PLEACH_TEST_SECONDS", "25").env("PLEACH_SECRET", SECRET);
    let child = command.spawn().expect("pleach starts");
    until("the job has a group", || node_in_use(&mut client).is_some());
    then(&manager, &mut nodes, &mut client);
    assert_eq!(client.status().expect("it answers").jobs.len(), 1, "the job still runs");
    let output = child.wait_with_output().expect("a child of this test");
    assert_eq!(counters(&output).len(), 3, "{}", text(&output.stderr));
    output
}

/// The node that serves the job's group through which operations go.
fn node_in_use(client: &mut ManagerClient) -> Option<String> {
    let operations = |client: &mut ManagerClient| -> Vec<(String, u64)> {
        let status = client.status().expect("it answers");
        let alive = status.nodes.into_iter().filter(|node| node.alive);
        alive.map(|node| (node.name, node.report.operations)).collect()
    };
    let before = operations(client);
    std::thread::sleep(Duration::from_millis(200));
    let after = operations(client);
    let advanced = |(name, count): &(String, u64)| before.iter().any(|(old, was)| old == name && count > was);
    after.into_iter().find(advanced).map(|(name, _)| name)
}

const ONE_OR_TWO: &str = "[[node]]\nname = \"one\"\nserves = [\"*\"]\n[[node]]\nname = \"two\"\nserves = [\"*\"]\n";
const ONLY: &str = "[[node]]\nname = \"only\"\nserves = [\"*\"]\n";

#[test]
fn a_job_whose_node_is_killed_uses_another_node() {
    let mut first = None;
    let output = run_job_with_nodes(&["one", "two"], ONE_OR_TWO, |_, nodes, client| {
        until("operations go through a node", || {
            first = node_in_use(client);
            first.is_some()
        });
        let (lost, other) = if first.as_deref() == Some("one") { (0, "two") } else { (1, "one") };
        drop(nodes.remove(lost));
        until("the job uses the other node", || node_in_use(client).as_deref() == Some(other));
    });
    let said = text(&output.stderr);
    let lost = format!("[0] pleach: warning: aggregation node {} (127.0.0.1:", first.expect("just seen"));
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("pleach: warning:")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with(&lost), "{said}");
    assert!(lines[0].ends_with(") is lost: its connection broke; the job continues without it"), "{said}");
    let explanations = explanations(&output);
    let of_new_tree =
        |line: &&String| line.contains("aggregation nodes, for 3") && line.ends_with(", after another tree failed.");
    assert_eq!(explanations.iter().filter(of_new_tree).count(), 3, "{explanations:?}");
}

/// What the ranks print about their communicator at the end, in the order of ranks.
fn explanations(output: &Output) -> Vec<String> {
    let said = text(&output.stdout);
    let mut lines: Vec<&str> = said.lines().filter(|line| line.contains("] why ")).collect();
    lines.sort_unstable();
    lines.into_iter().map(str::to_owned).collect()
}

#[test]
fn a_job_whose_only_node_is_killed_explains_why_it_has_none() {
    let output = run_job_with_nodes(&["only"], ONLY, |_, nodes, client| {
        nodes.clear();
        until("the node is lost", || client.status().expect("it answers").nodes.iter().all(|node| !node.alive));
    });
    let explanations = explanations(&output);
    let is_true = |line: &String| {
        line.contains("prescribed tree, among 3") && line.contains("an aggregation node of the group was lost")
    };
    assert!(explanations.len() == 3 && explanations.iter().all(is_true), "{explanations:?}");
    let by_owner = "No aggregation nodes: aggregation node only (127.0.0.1:";
    assert!(explanations[0].contains(by_owner), "{explanations:?}");
    assert!(explanations[0].ends_with(") is lost: its connection broke."), "{explanations:?}");
    let by_others =
        |line: &String| line.contains(" No aggregation nodes: the tree of group ") && line.ends_with(" has failed.");
    assert!(explanations[1..].iter().all(by_others), "{explanations:?}");
}

#[test]
fn a_job_returns_to_its_node_when_that_comes_back() {
    run_job_with_nodes(&["only"], ONLY, |manager, nodes, client| {
        nodes.clear();
        until("the node is lost", || client.status().expect("it answers").nodes.iter().all(|node| !node.alive));
        nodes.push(Process::start(&["node", "--manager", &manager.line, "--name", "only"]));
        until("the job uses it again", || node_in_use(client).is_some());
    });
}

#[test]
fn manager_and_nodes_end_with_the_job_however_it_ends() {
    for (script, code) in [("exit 0", 0), ("exit $((PLEACH_RANK * 7))", 7)] {
        let script = format!("sleep 0.3; {script}");
        let mut command = launch(&["-n", "2", "--nodes", "3", "--", "sh", "-c", &script]);
        let child = command.stderr(Stdio::piped()).spawn().expect("pleach starts");
        let found = wait_for_children(&child, are_all_there);
        assert_eq!(end_of(child).0, Some(code));
        assert_gone(&found.iter().map(|child| child.process).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_is_left_after_an_interrupt_or_a_kill() {
    for (name, code) in [("INT", Some(128 + 2)), ("TERM", Some(128 + 15)), ("KILL", None)] {
        let mut command = launch(&["-n", "2", "--nodes", "3", "--", "sleep", "60"]);
        let child = command.stderr(Stdio::piped()).spawn().expect("pleach starts");
        let found = wait_for_children(&child, are_all_there);
        signal(&child, name);
        assert_eq!(end_of(child).0, code, "{name}");
        assert_gone(&found.iter().map(|child| child.process).collect::<Vec<_>>());
    }
}

#[test]
fn an_interrupt_while_the_nodes_come_leaves_nothing_either() {
    let mut command = launch(&["-n", "2", "--nodes", "8", "--", "sleep", "60"]);
    let child = command.stderr(Stdio::piped()).spawn().expect("pleach starts");
    let found = wait_for_children(&child, |found| !found.is_empty());
    signal(&child, "INT");
    let process = child.id();
    assert_eq!(end_of(child).0, Some(128 + 2));
    assert_gone(&found.iter().map(|child| child.process).collect::<Vec<_>>());
    assert_eq!(children(process).len(), 0);
}

#[test]
fn wrong_commands_are_rejected() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let nonsense = folder.join("launch-nonsense.toml");
    std::fs::write(&nonsense, "[[fault]]\nkind = \"kill\"\n").expect("the target folder can be written to");
    let nonsense = nonsense.display().to_string();
    let missing = folder.join("no-such-plan.toml").display().to_string();
    for (arguments, words) in [
        (&["--nodes", "0"][..], "1..=64"),
        (&["--nodes", "65"], "1..=64"),
        (&["--nodes", "2", "--manager", "127.0.0.1:4797"], "--manager"),
        (&["--node-logs"], "--nodes"),
        (&["--manager", "127.0.0.1:4797", "--hosts", "netns"], "reach nothing outside"),
        (&["--faults", &missing], "No such file"),
        (&["--faults", &nonsense], "does not apply to a socket"),
    ] {
        let ended = output(&[&["-n", "2"], arguments, &["--", "true"]].concat());
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?} said: {said}");
    }
}

#[test]
fn the_address_of_an_existing_manager_is_passed_on_with_a_credential_instead_of_the_secret() {
    let script = "echo $PLEACH_MANAGER $PLEACH_SECRET$PLEACH_SECRET_FILE $PLEACH_JOB_CREDENTIAL";
    let ended = launch(&["-n", "1", "--manager", "127.0.0.1:9", "--", "sh", "-c", script])
        .env("PLEACH_SECRET", "correct horse")
        .output()
        .expect("pleach starts");
    // The ranks get a credential of their own and never see the secret.
    let said = text(&ended.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!((words.len(), words[0]), (2, "127.0.0.1:9"), "{said}");
    control::JobCredential::parse(words[1]).expect("a credential");
}

/// Nobody listens at port 9.
#[test]
fn a_manager_that_is_not_used_is_one_line_or_an_error_if_it_is_required() {
    let unused = ["-n", "2", "--ranks-per-host", "1", "--manager", "127.0.0.1:9"];
    let ended = as_ranks(&unused).output().expect("pleach starts");
    let said = text(&ended.stderr);
    assert_eq!((ended.status.code(), counters(&ended).len()), (Some(0), 2), "{said}");
    assert_eq!(said.matches("the job runs without aggregation nodes").count(), 1, "{said}");
    assert!(said.contains("127.0.0.1:9") && said.contains("pleach doctor --manager 127.0.0.1:9"), "{said}");
    let ended = as_ranks(&[&unused[..], &["--require-nodes"]].concat()).output().expect("pleach starts");
    let said = text(&ended.stderr) + &text(&ended.stdout);
    assert_ne!(ended.status.code(), Some(0), "{said}");
    // Each rank prints its error as it likes; these print its `Debug` form, which must be text too.
    let error = "all ranks join: the job has no aggregation nodes, and PLEACH_MANAGER_REQUIRED is set: no connection to the manager at 127.0.0.1:9: ";
    assert_eq!(said.matches(error).count(), 2, "{said}");
    assert!(!said.contains("summed aggregated"), "no rank has started: {said}");
}

#[test]
fn logs_of_manager_and_nodes_are_shown_on_request() {
    let ended = output(&["-n", "1", "--nodes", "2", "--node-logs", "--", "true"]);
    let said = text(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert!(["[manager] ", "[root] ", "[leaf1] "].iter().all(|name| said.contains(name)), "{said}");
    assert_eq!(text(&output(&["-n", "1", "--nodes", "2", "--", "true"]).stderr), "");
}

mod between_hosts {
    use super::*;

    #[test]
    fn nodes_have_hosts_of_their_own() {
        if can_have_hosts() {
            let output = as_ranks(&["-n", "4", "--hosts", "netns", "--nodes", "3"]).output().expect("pleach starts");
            let counters = counters(&output);
            assert_eq!(counters.len(), 4);
            assert!(
                counters.iter().all(|(aggregated, _)| *aggregated >= 100),
                "{counters:?}, {}",
                text(&output.stdout)
            );
        }
    }

    /// What the first of three ranks prints about its communicator, after a shell command at the last host.
    fn explained(at_last_host: &str) -> String {
        let program = env!("CARGO_BIN_EXE_pleach");
        let rank = format!("exec {program} bench-rank --batches 1 --seconds 0.01 allreduce:8");
        let script = format!("if [ $PLEACH_RANK = 2 ]; then {at_last_host}; fi; {rank}");
        let hosts = ["-n", "3", "--hosts", "netns", "--nodes", "1", "--algorithm", "aggregation"];
        let ended = output(&[&hosts[..], &["--", "sh", "-c", &script]].concat());
        assert!(ended.status.success(), "{}", text(&ended.stderr));
        let said = text(&ended.stdout);
        said.lines().find_map(|line| line.strip_prefix("note ")).expect("it prints an explanation").to_owned()
    }

    #[test]
    fn results_are_multicast_only_where_it_reaches_all_hosts() {
        if can_have_hosts() {
            let said = explained("true");
            assert!(said.contains("aggregation nodes, for 3") && said.contains("results by multicast"), "{said}");
            let drop_multicast = "nft 'add table ip deaf; add chain ip deaf in { type filter hook input priority 0; }; \
                          add rule ip deaf in ip daddr 224.0.0.0/4 drop'";
            let said = explained(drop_multicast);
            assert!(said.contains("aggregation nodes, for 3") && said.contains("does not reach all hosts"), "{said}");
        }
    }

    #[test]
    fn no_process_and_no_namespace_is_left_after_an_interrupt() {
        if can_have_hosts() {
            let mut command = launch(&["-n", "2", "--hosts", "netns", "--nodes", "3", "--", "sleep", "60"]);
            let child = command.stderr(Stdio::piped()).spawn().expect("pleach starts");
            let found = wait_for_children(&child, are_all_there);
            let process = child.id();
            // Two hosts for ranks, one for the manager, three for nodes, and the bridge.
            assert_eq!(leftovers(process).len(), 7);
            signal(&child, "INT");
            assert_eq!(end_of(child).0, Some(128 + 2));
            assert_gone(&found.iter().map(|child| child.process).collect::<Vec<_>>());
            assert_eq!(leftovers(process), [""; 0]);
        }
    }
}
