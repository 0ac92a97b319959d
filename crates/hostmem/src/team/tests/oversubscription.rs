//! Ranks that share one CPU.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::super::region::{LEAF_BYTES, SLOT_BYTES};
use super::*;

/// Binds the calling thread to its first allowed CPU.
fn bind_to_one_cpu() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the kernel answers");
    let first =
        (0..CpuSet::count()).find(|&processor| allowed.is_set(processor) == Ok(true)).expect("it runs somewhere");
    let mut only = CpuSet::new();
    only.set(first).expect("such a processor exists");
    sched_setaffinity(Pid::from_raw(0), &only).expect("it is allowed");
}

#[test]
fn ranks_on_one_cpu_share_results_at_every_size() {
    team_of(5, |mut team| {
        bind_to_one_cpu();
        for kind in [kind(ElementType::F64, Operator::Sum), kind(ElementType::U8, Operator::Xor)] {
            for round in 0..40 {
                for length in [0, 8, 40, 48, 56, 512, LEAF_BYTES, 4096, SLOT_BYTES] {
                    let passing = if round % 2 == 0 { BufferMode::InPlace } else { BufferMode::Apart };
                    let call = TeamCall::AllReduce { kind };
                    let mut buffers = TestBuffers::new(call, round, &team, length, passing);
                    run(&mut team, call, &mut buffers.data()).expect("all agree");
                    buffers.check(team.ranks());
                    run(&mut team, TeamCall::Barrier, &mut CollectiveBuffers::Empty).expect("all come");
                }
            }
        }
        assert!(team.oversubscription.is_shared, "the ranks know that they share a CPU");
    });
}
