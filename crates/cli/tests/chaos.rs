//! `pleach chaos` as people run it: every named case once, each as a test of its own. Those of the default run take about two minutes.

use std::process::{Command, Output};

use serde_json::Value;

fn chaos(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_pleach")).arg("chaos").args(arguments).output();
    output.expect("pleach starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("pleach writes UTF-8")
}

/// One round of a case, which must have no violation; where hosts cannot be created, the test prints so and returns.
fn check(case: &str, seed: &str) {
    let output = chaos(&["--case", case, "--seed", seed, "--format", "json"]);
    let said = text(&output.stderr);
    if output.status.code() == Some(2) && said.contains("hosts in network namespaces need") {
        return namespaces::skip_test(said);
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON report");
    assert_eq!((&report["rounds"], &report["failed_rounds"]), (&1.into(), &0.into()), "{report}");
    let judged = report["results"].as_u64().unwrap_or(0) + report["errors"].as_u64().unwrap_or(0);
    assert!(judged > 0, "nothing was judged: {report}");
    assert!(said.contains(&format!("chaos: {case} seed {seed}: ok")), "{said}");
}

mod between_hosts {
    use super::*;

    macro_rules! cases {
        ($($(#[$attribute:meta])* $test:ident: $case:literal, $seed:literal;)*) => {
            $(
                $(#[$attribute])*
                #[test]
                fn $test() {
                    check($case, $seed);
                }
            )*

            /// A case that is added must be run here too.
            #[test]
            fn every_case_is_tested() {
                let listed = text(&chaos(&["--list"]).stdout);
                let names: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
                let mut tested = vec![$($case),*];
                tested.dedup();
                assert_eq!(names, tested);
            }
        };
    }

    cases! {
        a_node_is_killed: "node-killed", "1";
        the_root_is_killed: "root-killed", "2";
        all_nodes_are_killed: "all-nodes-killed", "3";
        a_node_is_restarted: "node-restarted", "4";
        #[ignore = "long: with all cases, this takes four minutes"]
        a_node_is_stopped: "node-stopped", "5";
        the_manager_is_killed: "manager-killed", "6";
        the_manager_is_restarted: "manager-restarted", "7";
        a_rank_is_killed: "rank-killed", "8";
        rank_zero_is_killed: "rank-zero-killed", "9";
        two_ranks_are_killed: "two-ranks-killed", "10";
        a_host_is_killed: "host-killed", "11";
        #[ignore = "long: with all cases, this takes four minutes"]
        a_rank_is_stopped: "rank-stopped", "12";
        #[ignore = "long: with all cases, this takes four minutes"]
        a_host_is_cut_off: "host-cut-off", "13";
        the_network_is_divided: "partition", "14";
        #[ignore = "long: eleven hosts, and a minute until all silent ones are found"]
        the_hosts_with_low_ranks_are_cut_off: "low-hosts-cut-off", "30";
        a_host_is_cut_off_in_one_direction: "one-way-partition", "15";
        a_host_is_cut_off_for_a_short_time: "short-partition", "16";
        #[ignore = "long: with all cases, this takes four minutes"]
        a_link_works_in_one_direction: "one-way-cut", "17";
        the_path_of_the_rendezvous_is_lost: "rendezvous-path-lost", "18";
        links_flap: "links-flap", "19";
        #[ignore = "long: with all cases, this takes four minutes"]
        a_link_goes_down: "link-down", "20";
        #[ignore = "long: with all cases, this takes four minutes"]
        an_address_is_removed: "address-removed", "21";
        the_mtu_is_lowered: "mtu-lowered", "22";
        packets_are_lost: "loss", "23";
        packets_are_corrupted: "corruption", "24";
        #[ignore = "long: with all cases, this takes four minutes"]
        packets_are_duplicated: "duplication", "25";
        packets_are_reordered: "reordering", "26";
        shared_memory_is_full: "shm-full", "27";
        descriptors_are_few: "few-descriptors", "28";
        several_at_once: "mixed", "29";
    }
}

#[test]
fn wrong_arguments_are_rejected() {
    for (arguments, word) in [
        (&["--case", "no-such-case"][..], "the cases are node-killed"),
        (&["--minutes", "0"], "not a positive number"),
        (&["--minutes", "NaN"], "not a positive number"),
        (&["--minutes", "soon"], "not a number"),
        (&["--seed", "-1"], "unexpected argument"),
        (&["--format", "html"], "possible values: table, json"),
    ] {
        let output = chaos(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
}

#[test]
fn the_help_has_examples() {
    let help = text(&chaos(&["--help"]).stdout);
    assert!(help.contains("pleach chaos --minutes 10") && help.contains("Exit status"), "{help}");
}
