//! Multicast broadcasts and barriers between real processes: several groups at once, of ranks that are not neighbours, on a network that
//! loses packets, with a node that is killed.

use super::between_hosts::can_have_hosts;
use super::processes::{find, signal_to, wait_for_children};
use super::*;

/// A rank of the tests below: all ranks, every second and every third of them broadcast in turn, some of them late.
#[test]
#[ignore = "other tests launch it"]
fn as_a_rank() {
    let world = pleach::join().expect("all ranks join");
    let rounds: u32 = std::env::var("PLEACH_TEST_ROUNDS").map_or(40, |rounds| rounds.parse().expect("a number"));
    let part = |of: u32| world.split(Some(world.rank() % of), 0).expect("all split").expect("with a colour");
    let groups = [world.clone(), part(2), part(3)];
    for round in 0..rounds {
        for (place, group) in groups.iter().enumerate() {
            if (world.rank() * 7 + round) % 11 == 3 {
                std::thread::sleep(Duration::from_millis(2));
            }
            let root = round % group.size();
            let words = [1, 5, 700][(round as usize + place) % 3];
            let expected = |word: usize| u64::from(round) << 32 | u64::from(root) << 24 | word as u64;
            let mut vector: Vec<u64> =
                (0..words).map(|word| if group.rank() == root { expected(word) } else { 0 }).collect();
            group.broadcast(&mut vector, root).expect("every rank takes part");
            let is_right = vector.iter().enumerate().all(|(word, value)| *value == expected(word));
            assert!(is_right, "rank {} round {round} group {place}", world.rank());
        }
        // Multicasts of several groups do not interfere, nor do operations in flight beside them.
        let mut first = [u64::from(round); 3];
        let mut second = [if groups[1].rank() == 0 { u64::from(round) + 5 } else { 0 }];
        pleach::scope(|scope| {
            let sum = groups[0].start_all_reduce(scope, &mut first, pleach::Operator::Sum).expect("it starts");
            let cast = groups[1].start_broadcast(scope, &mut second, 0).expect("it starts");
            groups[2].barrier().expect("all ranks join");
            sum.wait().expect("all add");
            cast.wait().expect("every rank takes part");
        });
        assert_eq!(first, [u64::from(round) * u64::from(world.size()); 3]);
        assert_eq!(second, [u64::from(round) + 5]);
    }
    let packets = world.packets();
    println!("\ncast {} lost {}", world.statistics().multicast, packets.lost_by_plan);
    println!("why {} {}", world.explain_broadcast(8), world.explain_barrier());
}

fn as_ranks(arguments: &[&str]) -> Command {
    super::as_ranks("multicast::as_a_rank", arguments)
}

/// What ranks print at the end: multicast operations, and packets dropped by the fault plan.
fn counters(output: &Output) -> Vec<(u64, u64)> {
    super::counters(output, ["cast", "lost"])
}

#[test]
fn broadcasts_are_multicast_where_it_reaches_all_hosts() {
    let output = as_ranks(&["-n", "5", "--nodes", "3"]).output().expect("pleach starts");
    let counted = counters(&output);
    // Where ranks share CPUs, only those of several packets are.
    let is_one_of = |cast: u64| cast == 13 || cast == 40;
    assert!(
        counted.len() == 5 && counted.iter().all(|(cast, _)| is_one_of(*cast)),
        "{counted:?}, {}",
        text(&output.stdout)
    );
    let wanted = as_ranks(&["-n", "5", "--nodes", "3", "--algorithm", "hbcast"]).output().expect("pleach starts");
    assert_eq!(self::counters(&wanted).into_iter().map(|(cast, _)| cast).collect::<Vec<_>>(), [40; 5]);
}

#[test]
fn the_first_ranks_preference_holds_for_all() {
    let output = as_ranks(&["-n", "4", "--nodes", "1", "--algorithm", "hosts,barrier=hgsync"]).output();
    let output = output.expect("pleach starts");
    let said = text(&output.stdout);
    assert!(counters(&output).iter().all(|(cast, _)| *cast == 0), "{said}");
    assert!(
        said.contains("the user requested hosts alone") && said.contains("the user requested multicast"),
        "{said}"
    );
    let wrong = super::output(&["-n", "1", "--algorithm", "hbkast", "--", "true"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("hbkast"), "{}", text(&wrong.stderr));
}

#[test]
fn lost_multicasts_are_repaired_between_hosts() {
    if can_have_hosts() {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("multicast-faults.toml");
        let plan =
            "[[fault]]\nkind = \"lose\"\nprobability = 0.05\n[[fault]]\nkind = \"duplicate\"\nprobability = 0.05\n";
        std::fs::write(&file, plan).expect("the target folder can be written to");
        let plan = file.display().to_string();
        let mut command =
            as_ranks(&["-n", "6", "--hosts", "netns", "--nodes", "3", "--algorithm", "multicast", "--faults", &plan]);
        let output = command.output().expect("pleach starts");
        let counted = counters(&output);
        assert!(
            counted.len() == 6 && counted.iter().all(|(cast, _)| *cast >= 30),
            "{counted:?}, {}",
            text(&output.stdout)
        );
        assert!(counted.iter().map(|(_, lost)| lost).sum::<u64>() > 50, "{counted:?}");
    }
}

#[test]
fn a_node_that_is_killed_changes_no_broadcast() {
    let mut command = as_ranks(&["-n", "4", "--nodes", "3", "--algorithm", "multicast"]);
    let child = command.env("PLEACH_TEST_ROUNDS", "300").spawn().expect("pleach starts");
    let found = wait_for_children(&child, |found| find(found, &["node", "leaf1"]).is_some() && found.len() == 9);
    let leaf = find(&found, &["node", "leaf1"]).expect("just seen").process;
    std::thread::sleep(Duration::from_millis(400));
    signal_to(leaf, "KILL");
    let output = child.wait_with_output().expect("a child of this test");
    let counted = counters(&output);
    assert!(counted.len() == 4 && counted.iter().all(|(cast, _)| *cast < 300), "{counted:?}");
}
