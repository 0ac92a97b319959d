//! The costs of the network: measured alike by all ranks, and used by all ranks as rank 0 has them.

use pleach::{NetworkCosts, Operator};

use super::rank_processes::{RankProcesses, is_rank};
use super::{in_every_layout, world};

#[test]
fn all_ranks_measure_the_same_network() {
    in_every_layout("network_costs::all_ranks_measure_the_same_network", 2, || {
        let world = world();
        let before = world.statistics();
        let measured = world.measure_network();
        if world.hosts() == 1 {
            let error = measured.expect_err("there is no network").to_string();
            return assert!(error.contains("on one host"), "{error}");
        }
        if processors() < 2 {
            return assert!(measured.is_err(), "{measured:?}");
        }
        let costs = measured.expect("every rank takes part");
        assert_eq!(world.statistics(), before, "the measurement does not count");
        let mut greatest = [costs.message_ns, costs.byte_ps, costs.short_ns, costs.long_ns];
        let mine = greatest;
        world.all_reduce(&mut greatest, Operator::Max).expect("every rank takes part");
        assert_eq!(mine, greatest);
        assert!((100..100_000_000).contains(&costs.message_ns), "{costs:?}");
        let mut sum = [1_u64];
        world.all_reduce(&mut sum, Operator::Sum).expect("every rank takes part");
        assert_eq!(sum, [2]);
    });
}

fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// Regression: the wait for a processor was saved as the time of the network.
#[test]
fn ranks_that_share_a_processor_measure_no_network() {
    const TEST: &str = "network_costs::ranks_that_share_a_processor_measure_no_network";
    let ranks = RankProcesses::new(TEST, processors() + 1).with("PLEACH_SHARED_MEMORY", "off");
    ranks.run(|| {
        let world = world();
        let error = world.measure_network().expect_err("it would be wrong").to_string();
        let expected = format!("{} ranks share {} processors", processors() + 1, processors());
        assert!(error.starts_with(&expected) && error.contains("one rank on each host"), "{error}");
        let mut sum = [1_u32];
        world.all_reduce(&mut sum, Operator::Sum).expect("the communicator still works");
        assert_eq!(sum, [world.size()]);
    });
}

/// A network on which a message costs a second, and bytes nothing: the fewest messages in a row are best, at any length.
const SLOW_MESSAGES: &str = r#"{ "version": 1, "hosts": 2, "short_ns": 0, "long_ns": 0, "message_ns": 100000000,
    "next_message_ns": 1, "byte_ps": 1, "fold_byte_ps": 1 }"#;

#[test]
fn all_ranks_choose_by_the_costs_that_rank_zero_has() {
    const TEST: &str = "network_costs::all_ranks_choose_by_the_costs_that_rank_zero_has";
    let body = || {
        // Only rank 0 has the file.
        if std::env::var("PLEACH_RANK").as_deref() != Ok("0") {
            // SAFETY: this process has one thread that uses the environment.
            unsafe { std::env::remove_var("PLEACH_NETWORK_COSTS") };
        }
        let world = world();
        let text = world.explain(4096, Operator::Sum);
        assert!(text.contains("measured on this network: 100000.0 us per message, 1000.00 GB/s"), "{text}");
        let mut sums = [f64::from(world.rank()); 512];
        world.all_reduce(&mut sums, Operator::Sum).expect("every rank takes part");
        assert_eq!(sums, [10.0; 512]);
    };
    if is_rank() {
        return body();
    }
    let file = std::env::temp_dir().join(format!("pleach-test-network-costs-{}.json", std::process::id()));
    std::fs::write(&file, SLOW_MESSAGES).expect("written");
    assert!(NetworkCosts::load(&file).is_ok());
    let ranks = RankProcesses::new(TEST, 5).with("PLEACH_SHARED_MEMORY", "off");
    ranks.with("PLEACH_NETWORK_COSTS", file.to_str().expect("a path in UTF-8")).run(body);
    std::fs::remove_file(&file).expect("removed");
}
