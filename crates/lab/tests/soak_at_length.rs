//! Many groups on many hosts for a long virtual time, under faults of packets: nothing is wrong, and nothing is left.

use faults::{FaultKind, FaultRule};
use lab::soak::{SoakCase, SoakFabric, SoakGroup, SoakLink, SoakOperation};

const HOSTS: u32 = 4_096;
const RANKS: u32 = 4;

/// Groups of four hosts each, which lie far from each other. Each minute all groups do an operation, within the same half second and most of them
/// at the same time as others.
fn groups_for(minutes: u64, groups: u32) -> SoakCase {
    let operation = |group: u64, minute: u64| {
        let operations = ["allreduce", "barrier", "broadcast", "reduce"];
        let algorithm = if (group + minute).is_multiple_of(8) { "tree" } else { "aggregation" };
        SoakOperation {
            operation: operations[(group % 4) as usize].to_owned(),
            algorithm: algorithm.to_owned(),
            element: "f64".to_owned(),
            operator: "sum".to_owned(),
            count: [1, 16, 300, 0][(minute % 4) as usize],
            segment_bytes: 1_024,
            after_faults: false,
            // The last minute ends with the last operation.
            start_ms: (minute + 1) * 60_000 - 500 + group % 500,
        }
    };
    let group = |group: u32| {
        let mut hosts: Vec<u32> = (0..RANKS).map(|rank| (group + rank * 1_024 + rank * group * 7) % HOSTS).collect();
        hosts.sort_unstable();
        hosts.dedup();
        SoakGroup {
            job: group,
            hosts,
            window: 4,
            copies: 1,
            late_ns: 20_000,
            results: ["multicast", "connections"][(group % 2) as usize].to_owned(),
            radix_limit: None,
            alternate_paths: false,
            operations: (0..minutes).map(|minute| operation(group.into(), minute)).collect(),
        }
    };
    let fault = |kind| FaultRule::new(kind).with_probability(0.001);
    SoakCase {
        seed: 26,
        retry_limit: u8::MAX,
        acknowledge_every: 4,
        fabric: SoakFabric::Xgft { children: vec![16, 16, 16], parents: vec![1, 16, 16] },
        link: SoakLink {
            rate: "EDR".to_owned(),
            wire_ns: 30,
            switch_delay_ns: 90,
            adapter_delay_ns: 100,
            forwarding: "cut-through".to_owned(),
            virtual_lanes: 1,
            buffer_bytes: 65_536,
        },
        groups: (0..groups).map(group).collect(),
        faults: [FaultKind::Lose, FaultKind::Flip, FaultKind::Duplicate].map(fault).to_vec(),
    }
}

fn check(case: &SoakCase) {
    let outcome = case.run(None).expect("a valid case");
    let operations: usize = case.groups.iter().map(|group| group.operations.len()).sum();
    println!(
        "{} groups, {operations} operations, {} hops, {} faulty packets, trace {:016x}",
        case.groups.len(),
        outcome.hops,
        outcome.faulty_packets,
        outcome.trace
    );
    assert!(outcome.is_clean(), "{:?}", outcome.problems());
    assert!(outcome.hops as usize > 20 * operations && outcome.faulty_packets > 0, "{outcome:?}");
    assert_eq!(outcome.failed_trees, 0, "no fault is worse than a lost packet");
}

#[test]
fn forty_groups_on_4096_hosts_for_two_minutes_of_virtual_time() {
    check(&groups_for(2, 40));
}

#[test]
#[ignore = "long: minutes of a processor"]
fn a_thousand_groups_on_4096_hosts_for_an_hour_of_virtual_time() {
    check(&groups_for(60, 1_000));
}
