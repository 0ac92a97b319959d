use std::time::Duration;

use transport::udp::LinkCut;

use super::{KernelFault, KernelJob, NasKernel, PathCount, reference_digests, run_kernel};

/// Iterations of about a third of a second.
fn few(kernel: NasKernel) -> u32 {
    match kernel {
        NasKernel::IntegerSort => 60,
        NasKernel::Fourier => 8,
        NasKernel::Wavefront => 20,
    }
}

#[test]
fn every_kernel_receives_over_the_network_what_it_does_in_memory() {
    for kernel in NasKernel::ALL {
        let iterations = few(kernel);
        let truth = reference_digests(kernel, iterations).expect("the reference runs");
        for paths in [PathCount::One, PathCount::Two] {
            let ran =
                run_kernel(&KernelJob { kernel, iterations, paths, fault: None }).expect("the result is correct");
            assert_eq!(Some(&ran.digest), truth.last(), "{kernel:?} with {paths:?}");
        }
    }
}

#[test]
fn every_kernel_survives_a_cut_cable() {
    for kernel in NasKernel::ALL {
        let iterations = few(kernel);
        let truth = reference_digests(kernel, iterations).expect("the reference runs");
        for (rank, cut) in [(3, LinkCut::Noticed), (4, LinkCut::Silent)] {
            let fault = KernelFault { rank, cut, iteration: iterations / 3, pause: Duration::from_millis(1) };
            let job = KernelJob { kernel, iterations, paths: PathCount::Two, fault: Some(fault) };
            let ran = run_kernel(&job).expect("the result is correct");
            assert_eq!(Some(&ran.digest), truth.last(), "{kernel:?}, {cut:?}");
            let outcome = ran.cut.expect("the cable was cut");
            assert!(outcome.moved > 0, "{kernel:?}, {cut:?}: {outcome:?}");
        }
    }
}
