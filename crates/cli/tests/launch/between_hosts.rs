//! Ranks on hosts made of network namespaces; where these cannot be created, the tests print so and return.

use super::*;

pub(super) fn leftovers(process: u32) -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("pleach-net-{process}-"))).collect()
}

/// False if hosts cannot be created, after printing why; with `CI` set it panics, since the output of passing tests is not read.
pub(super) fn can_have_hosts() -> bool {
    let tried = output(&["-n", "1", "--hosts", "netns", "--", "true"]);
    let said = text(&tried.stderr);
    if tried.status.code() == Some(2) && said.contains("hosts in network namespaces need") {
        namespaces::skip_test(said);
        return false;
    }
    assert!(tried.status.success(), "{said}");
    true
}

#[test]
fn ranks_meet_across_hosts_and_find_those_beside_them() {
    if can_have_hosts() {
        let hosts = "[[0, 1], [2, 3], [4]]";
        let expected: Vec<String> = (0..5).map(|rank| format!("{rank} {hosts}")).collect();
        assert_eq!(met(&["-n", "5", "--hosts", "netns", "--ranks-per-host", "2"]), expected);
    }
}

#[test]
fn no_namespace_is_left_behind_after_an_interrupt() {
    if can_have_hosts() {
        let script = "echo $$; exec sleep 60";
        let (child, processes) = start(&["-n", "2", "--hosts", "netns", "--", "sh", "-c", script], 2);
        let process = child.id();
        assert_eq!(leftovers(process).len(), 3);
        signal(&child, "INT");
        assert_eq!(end_of(child).0, Some(128 + 2));
        assert_gone(&processes);
        assert_eq!(leftovers(process), [""; 0]);
    }
}

/// The MTU of one host's link becomes smaller while ranks exchange packets that no longer fit: they continue with shorter ones.
#[test]
fn a_smaller_mtu_in_mid_run_costs_only_time() {
    if !can_have_hosts() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_pleach");
    let measures = ["--batches", "3", "--seconds", "1", "allreduce:4096", "broadcast:65536"];
    let ranks = [&["-n", "3", "--hosts", "netns", "--", program, "bench-rank"][..], &measures].concat();
    let child = launch(&ranks).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pleach starts");
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(1500));
    let hosts = leftovers(child.id());
    let host = hosts.iter().find(|name| name.ends_with("host1")).expect("it has begun");
    let lowered = Command::new("ip").args(["-n", host, "link", "set", "dev", "net0", "mtu", "1400"]).status();
    assert!(lowered.expect("ip is there").success());
    let ended = child.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert_eq!(text(&ended.stdout).lines().filter(|line| line.starts_with("end ")).count(), 2);
    assert!(began.elapsed() > Duration::from_secs(3), "it was over before the MTU changed");
}

/// A host that loses power closes no connection: only the missing heartbeats show it.
#[test]
fn a_host_that_vanishes_is_noticed_by_both_sides() {
    use bootstrap::{self, EnvironmentVariables, JobEnvironment, LocalEndpoint, RankEvent, RendezvousTimeouts};
    let network = match namespaces::NamespaceNetwork::new(2) {
        Ok(network) => network,
        Err(error) => {
            assert!(!can_have_hosts(), "{error}");
            return;
        }
    };
    let terms = RendezvousTimeouts { peer: Duration::from_secs(3), ..RendezvousTimeouts::default() };
    let join = |rank: usize| {
        let rendezvous = format!("{}:7411", network.host(0).address());
        let variables = [("RANK", rank.to_string()), ("SIZE", "2".to_owned()), ("RENDEZVOUS", rendezvous)];
        let job = [("JOB", "vanish".to_owned())];
        let variables: EnvironmentVariables =
            variables.into_iter().chain(job).map(|(name, value)| (format!("PLEACH_{name}"), value)).collect();
        let place = JobEnvironment::from_variables(&variables, |_| None).expect("all is said");
        let joined = network
            .host(rank)
            .inside(|| bootstrap::join(&place, LocalEndpoint::default(), &terms))
            .expect("it moves");
        joined.expect("both ranks join")
    };
    let (mut zero, mut one) = std::thread::scope(|scope| {
        let one = scope.spawn(|| join(1));
        (join(0), one.join().expect("no panic"))
    });
    assert_eq!(zero.table.hosts(), [[0], [1]]);
    let switch = network.names().pop().expect("the switch is last").to_owned();
    let cut = Command::new("ip").args(["-n", &switch, "link", "set", "dev", "port1", "down"]).status();
    assert!(cut.expect("ip is there").success());
    let began = Instant::now();
    let mut events = [None, None];
    while events.iter().any(Option::is_none) {
        assert!(began.elapsed() < SOON, "{events:?}");
        events[0] = events[0].take().or_else(|| zero.failure_detector.turn());
        events[1] = events[1].take().or_else(|| one.failure_detector.turn());
        std::thread::sleep(Duration::from_millis(10));
    }
    // Of two equal sides, the one with rank 0 goes on.
    assert_eq!(events[0], Some(RankEvent::Lost { ranks: vec![1] }));
    assert_eq!(events[1], Some(RankEvent::NewCoordinator { rank: 1 }));
    assert_eq!(one.failure_detector.turn(), Some(RankEvent::CutOff { ranks: vec![0] }));
    assert!(began.elapsed() > Duration::from_millis(500), "the cut itself is not seen by a socket");
}

/// As in an indexed Job of Kubernetes: each pod runs `pleach launch`, and the ranks of all are one job.
#[test]
fn ranks_of_several_pods_are_one_job() {
    let network = match namespaces::NamespaceNetwork::new(2) {
        Ok(network) => network,
        Err(error) => return namespaces::skip_test(error),
    };
    let rendezvous = format!("{}:7411", network.host(0).address());
    let pods: Vec<Child> = (0..2)
        .map(|pod| {
            let mut command = as_ranks("over_ssh::as_a_rank", &["-n", "2"]);
            command.env("JOB_COMPLETION_INDEX", pod.to_string()).env("PLEACH_PODS", "2");
            command.env("PLEACH_RENDEZVOUS", &rendezvous).env("PLEACH_TOKEN", "correct horse");
            network.host(pod).start(&mut command).expect("pleach starts")
        })
        .collect();
    let ended = pods.into_iter().map(|child| child.wait_with_output().expect("it ends"));
    for (pod, ended) in ended.collect::<Vec<_>>().into_iter().enumerate() {
        let said = text(&ended.stdout);
        assert!(ended.status.success(), "{said}{}", text(&ended.stderr));
        for rank in [2 * pod, 2 * pod + 1] {
            assert!(said.contains(&format!("[{rank}] summed 6 hosts 2")), "rank {rank}: {said}");
        }
    }
}
