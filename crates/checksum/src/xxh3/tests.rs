//! Every kernel against an independent implementation, with and without a copy, at once and incrementally.

use proptest::prelude::*;

use super::*;
use crate::kernel_harness::{self, GUARD_BYTES, random_bytes};
use crate::pass::CopyPass;
use crate::prefetch::TargetCache;

fn kernels() -> impl Iterator<Item = Xxh3Kernel> {
    Xxh3Kernel::ALL.iter().copied().filter(|kernel| kernel.is_available())
}

fn check_copy(kernel: Xxh3Kernel, bytes: &[u8], target: &mut [u8], to: usize, wanted: u64) {
    kernel_harness::check_copy(bytes, target, to, wanted, format_args!("{kernel:?}"), |bytes, room, whose| {
        whole_by(kernel, CopyPass::new(bytes, room, whose))
    });
}

fn check(kernel: Xxh3Kernel, bytes: &[u8], target: &mut [u8], to: usize) {
    let wanted = XxHash3_64::oneshot(bytes);
    assert_eq!(whole_by(kernel, ReadPass(bytes)), wanted, "{} bytes, {kernel:?}", bytes.len());
    check_copy(kernel, bytes, target, to, wanted);
}

#[test]
fn the_best_kernel_is_the_widest_there_is() {
    assert_eq!(kernels().next(), Some(Xxh3Kernel::Scalar));
    assert_eq!(kernels().last(), Some(Xxh3Kernel::best()));
    assert!(kernels().count() > 1 || cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))));
}

/// Every length with an alignment of its own, so that all alignments of source and target occur many times.
#[test]
fn kernels_agree_with_an_independent_implementation_at_every_length() {
    let source = random_bytes(4096 + 64, 2);
    let mut target = vec![0; 4096 + 64 + 2 * GUARD_BYTES];
    for kernel in kernels() {
        for length in 0..=4096 {
            let from = length * 7 % 64;
            check(kernel, &source[from..from + length], &mut target, length * 13 / 64 % 64);
        }
    }
}

#[test]
fn kernels_agree_with_an_independent_implementation_at_every_alignment() {
    let source = random_bytes(2200 + 64, 3);
    let mut target = vec![0; 2200 + 64 + 2 * GUARD_BYTES];
    for kernel in kernels() {
        for from in 0..64 {
            for to in 0..64 {
                for length in [9, 241 + to, 700 + from, 2100 + to] {
                    check(kernel, &source[from..from + length], &mut target, to);
                }
            }
        }
    }
}

/// All lengths times all alignments of source and target: minutes.
#[test]
#[ignore = "takes minutes"]
fn kernels_agree_with_an_independent_implementation_at_every_length_and_alignment() {
    let source = random_bytes(4096 + 64, 4);
    let mut target = vec![0; 4096 + 64 + 2 * GUARD_BYTES];
    for length in 0..=4096 {
        for from in 0..64 {
            let bytes = &source[from..from + length];
            let wanted = XxHash3_64::oneshot(bytes);
            for kernel in kernels() {
                assert_eq!(whole_by(kernel, ReadPass(bytes)), wanted, "{length} bytes at {from}, {kernel:?}");
                for to in 0..64 {
                    check_copy(kernel, bytes, &mut target, to, wanted);
                }
            }
        }
    }
}

#[test]
fn large_copies_agree_too() {
    for length in [20_480, 65_536, 300_001, 1 << 20, (3 << 20) + 17] {
        let source = random_bytes(length + 64, 5);
        let mut target = vec![0; length + 64 + 2 * GUARD_BYTES];
        for kernel in kernels() {
            check(kernel, &source[3..3 + length], &mut target, 5);
        }
    }
}

/// Two parts, split wherever a boundary may be: the short formulas, the buffer, stripes, blocks.
#[test]
fn two_parts_give_the_same_result_as_the_whole_at_every_cut() {
    let bytes = random_bytes(2500, 6);
    for length in [239, 240, 241, 255, 256, 257, 319, 320, 321, 512, 1024, 1025, 1088, 2048, 2049, 2500] {
        let wanted = XxHash3_64::oneshot(&bytes[..length]);
        for cut in 0..=length {
            let mut running = Xxh3State::new();
            running.absorb(&mut ReadPass(&bytes[..cut]));
            running.absorb(&mut ReadPass(&bytes[cut..length]));
            assert_eq!(running.end(length as u64), wanted, "{length} bytes cut at {cut}");
        }
    }
}

proptest! {
    #[test]
    fn parts_give_the_same_result_as_the_whole(pieces in proptest::collection::vec((0usize..700, any::<bool>()), 0..12), seed in any::<u64>()) {
        let bytes = random_bytes(pieces.iter().map(|(length, _)| length).sum(), seed);
        for kernel in kernels() {
            let mut running = Xxh3State::by(kernel);
            let mut rest = &bytes[..];
            for (length, copies) in &pieces {
                let (piece, later) = rest.split_at(*length);
                rest = later;
                let mut room = vec![0; *length];
                if *copies {
                    running.absorb(&mut CopyPass::new(piece, &mut room, TargetCache::Local));
                    prop_assert!(room == piece);
                } else {
                    running.absorb(&mut ReadPass(piece));
                }
            }
            prop_assert_eq!(running.end(bytes.len() as u64), XxHash3_64::oneshot(&bytes), "{:?}", kernel);
        }
    }

    #[test]
    fn long_messages_agree_at_any_length(length in 4097usize..200_000, from in 0usize..64, to in 0usize..64, seed in any::<u64>()) {
        let source = random_bytes(from + length, seed);
        let mut target = vec![0; length + 64 + 2 * GUARD_BYTES];
        for kernel in kernels() {
            check(kernel, &source[from..], &mut target, to);
        }
    }
}
