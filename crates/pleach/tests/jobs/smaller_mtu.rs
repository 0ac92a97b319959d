//! The MTU of one host's link becomes smaller while its ranks use trees.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use namespaces::NamespaceNetwork;
use pleach::{Communicator, Operator};
use transport::udp::FaultInjector;

use super::local_services::LocalServices;
use super::rank_processes::{is_rank, wait_with_stderr};
use super::world;

/// An operation that takes longer has lost its tree.
const SLOW: Duration = Duration::from_secs(3);
/// A neighbour that is silent for so long is lost: about 8 s, and more on a busy machine. If its answers elsewhere put that off, it takes 60 s.
const MAX_STALL: Duration = Duration::from_secs(30);
/// After a stall: a second until the manager is asked, and the time in which another tree would fail like the first.
const AFTERWARDS: Duration = Duration::from_secs(14);

/// So many short operations at a time: one alone is answered by its result, and several by acknowledgements as well, which show that the node lives.
const SHORT_ONES: usize = 32;

/// Against endless runs without a stall.
const AT_MOST: Duration = Duration::from_secs(100);

#[derive(Clone, Copy)]
enum LongOperation {
    /// The contributions of a rank are too long: it loses the node.
    AllReduce,
    /// The results for a rank are too long: the node loses it, and the manager revokes the tree.
    Broadcast,
}

/// Does an operation on a vector of many segments, and short ones through another tree meanwhile. How long that took.
fn run(operation: LongOperation, long_ones: &Communicator, short_ones: &Communicator) -> Duration {
    let own = u64::from(long_ones.rank() == 0);
    let (began, mut values) = (Instant::now(), vec![own; 8_192]);
    pleach::scope(|scope| {
        let request = match operation {
            LongOperation::AllReduce => long_ones.start_all_reduce(scope, &mut values, Operator::Sum),
            LongOperation::Broadcast => long_ones.start_broadcast(scope, &mut values, 0),
        };
        let request = request.expect("started");
        while !is_everywhere(short_ones, request.test()) {}
        request.wait().expect("done");
    });
    assert!(values.iter().all(|value| *value == 1));
    began.elapsed()
}

/// Whether all ranks pass true.
fn is_everywhere(communicator: &Communicator, here: bool) -> bool {
    let mut answers = [[u8::from(here)]; SHORT_ONES];
    pleach::scope(|scope| {
        let started = answers.iter_mut().map(|answer| communicator.start_all_reduce(scope, answer, Operator::Min));
        for request in started.collect::<Result<Vec<_>, _>>().expect("started") {
            request.wait().expect("every rank takes part");
        }
    });
    answers == [[1]; SHORT_ONES]
}

fn run_while_the_mtu_becomes_smaller(operation: LongOperation) {
    let (long_ones, rounds_before) = (world(), 50);
    let short_ones = long_ones.dup().expect("every rank takes part");
    let began = Instant::now();
    let (mut stalls, mut stalled_at, mut aggregated) = (Vec::new(), None, 0);
    for round in 0.. {
        if round == rounds_before && long_ones.rank() == 1 {
            let lowered = Command::new("ip").args(["link", "set", "dev", "net0", "mtu", "1400"]).status();
            assert!(lowered.expect("ip is there").success());
        }
        let took = run(operation, &long_ones, &short_ones);
        if took > SLOW {
            stalls.push(took);
            stalled_at.get_or_insert_with(Instant::now);
            aggregated = long_ones.statistics().aggregated;
        }
        if is_everywhere(
            &short_ones,
            stalled_at.is_some_and(|at: Instant| at.elapsed() > AFTERWARDS) || began.elapsed() > AT_MOST,
        ) {
            break;
        }
    }
    assert!(stalls.len() == 1 && stalls[0] < MAX_STALL, "{stalls:?}");
    let again = long_ones.statistics().aggregated - aggregated;
    assert!(again > 100, "{again} operations through another tree after {stalls:?}");
}

/// Starts a node and two ranks on hosts of their own.
fn check(test: &str, operation: LongOperation) {
    if is_rank() {
        return run_while_the_mtu_becomes_smaller(operation);
    }
    let network = match NamespaceNetwork::new(3) {
        Ok(network) => network,
        Err(error) => return namespaces::skip_test(error),
    };
    let node_host = network.host(2);
    let address = node_host.address();
    let services =
        node_host.inside(|| LocalServices::at(address.into(), &[("node", &[])], &FaultInjector::default()));
    let services = services.expect("the namespace exists");
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", test, "--nocapture"]).stdout(Stdio::null()).stderr(Stdio::piped());
        command.envs([
            ("PLEACH_TEST_ROLE", "rank".to_owned()),
            ("PLEACH_RANK", rank.to_string()),
            ("PLEACH_SIZE", "2".to_owned()),
            ("PLEACH_RENDEZVOUS", format!("{}:4000", network.host(0).address())),
            ("PLEACH_ADDRESSES", network.host(rank).address().to_string()),
            ("PLEACH_TOKEN", format!("{test}-{}", std::process::id())),
            ("PLEACH_SHARED_MEMORY", "off".to_owned()),
            ("PLEACH_MANAGER", services.manager()),
            ("PLEACH_ALGORITHM", "aggregation".to_owned()),
            // A leader that gets no multicasts leaves the tree before anybody loses anybody.
            ("PLEACH_RESULTS", "connections".to_owned()),
        ]);
        network.host(rank).start(&mut command).expect("a process")
    };
    for (rank, child) in [start(0), start(1)].into_iter().enumerate() {
        let (status, stderr) = wait_with_stderr(child);
        assert_eq!(status, Some(0), "rank {rank}: {stderr}");
    }
}

/// Found by reading: the loss of the tree was put off for a minute because short packets were answered, and each tree after it had the same
/// long segments.
#[test]
fn a_tree_whose_segments_no_longer_fit_is_replaced_once_and_soon() {
    check("smaller_mtu::a_tree_whose_segments_no_longer_fit_is_replaced_once_and_soon", LongOperation::AllReduce);
}

#[test]
fn a_tree_whose_results_no_longer_fit_is_replaced_once_and_soon() {
    check("smaller_mtu::a_tree_whose_results_no_longer_fit_is_replaced_once_and_soon", LongOperation::Broadcast);
}
