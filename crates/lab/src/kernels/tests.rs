use std::time::Duration;

use transport::udp::Cut;

use super::{Fault, Job, Kernel, PathCount, reference, run};

/// Iterations of about a third of a second.
fn few(kernel: Kernel) -> u32 {
    match kernel {
        Kernel::IntegerSort => 60,
        Kernel::Fourier => 8,
        Kernel::Wavefront => 20,
    }
}

#[test]
fn every_kernel_receives_over_the_network_what_it_does_in_memory() {
    for kernel in Kernel::ALL {
        let iterations = few(kernel);
        let truth = reference(kernel, iterations).expect("memory does not err");
        for paths in [PathCount::One, PathCount::Two] {
            let ran = run(&Job { kernel, iterations, paths, fault: None }).expect("the result is right");
            assert_eq!(Some(&ran.digest), truth.last(), "{kernel:?} with {paths:?}");
        }
    }
}

#[test]
fn no_kernel_notices_a_cut_cable() {
    for kernel in Kernel::ALL {
        let iterations = few(kernel);
        let truth = reference(kernel, iterations).expect("memory does not err");
        for (rank, cut) in [(3, Cut::Noticed), (4, Cut::Silent)] {
            let fault = Fault { rank, cut, iteration: iterations / 3, pause: Duration::from_millis(1) };
            let job = Job { kernel, iterations, paths: PathCount::Two, fault: Some(fault) };
            let ran = run(&job).expect("the result is right");
            assert_eq!(Some(&ran.digest), truth.last(), "{kernel:?}, {cut:?}");
            let outcome = ran.cut.expect("the cable was cut");
            assert!(outcome.moved > 0, "{kernel:?}, {cut:?}: {outcome:?}");
        }
    }
}
