//! Every kernel against the scalar reference, and the reference against the definition.

use proptest::prelude::*;

use super::polynomial::FixedPolynomial;
use super::*;
use crate::kernel_harness::{self, GUARD_BYTES, random_bytes};

/// The definition, bit by bit.
fn by_shift_register<P: FixedPolynomial>(_: P, register: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(register, |register, byte| {
        (0..8).fold(register ^ u64::from(*byte), |value, _| (value >> 1) ^ (P::REVERSED * (value & 1)))
    })
}

fn kernels() -> impl Iterator<Item = CrcKernel> {
    CrcKernel::ALL.into_iter().filter(|kernel| kernel.is_available())
}

/// One length at one alignment of source and target: kernel against reference, with and without a copy, and nothing else written.
fn check<P: Polynomial>(
    polynomial: P,
    kernel: CrcKernel,
    source: &[u8],
    target: &mut [u8],
    from: usize,
    to: usize,
    length: usize,
) {
    let bytes = &source[from..from + length];
    let start = P::ONES & !(length as u64);
    let wanted = scalar::update(polynomial, start, bytes);
    assert_eq!(
        kernel.update(polynomial, start, bytes),
        wanted,
        "{length} bytes at {from}, {}, width {}",
        kernel.name(),
        P::WIDTH
    );
    check_copy(polynomial, kernel, bytes, target, to, wanted);
}

fn check_copy<P: Polynomial>(
    polynomial: P,
    kernel: CrcKernel,
    bytes: &[u8],
    target: &mut [u8],
    to: usize,
    wanted: u64,
) {
    let start = P::ONES & !(bytes.len() as u64);
    let name = format_args!("{}, width {}", kernel.name(), P::WIDTH);
    kernel_harness::check_copy(bytes, target, to, wanted, name, |bytes, room, whose| {
        kernel.copy(polynomial, start, bytes, room, whose)
    });
}

fn check_both(kernel: CrcKernel, source: &[u8], target: &mut [u8], from: usize, to: usize, length: usize) {
    check(Crc32cPolynomial, kernel, source, target, from, to, length);
    check(Crc64NvmePolynomial, kernel, source, target, from, to, length);
}

#[test]
fn the_machine_has_a_kernel_besides_the_tables_where_one_exists() {
    assert!(kernels().any(|kernel| kernel == CrcKernel::Scalar));
    assert!(CrcKernel::best().is_available());
    assert_eq!(Some(CrcKernel::best()), kernels().last());
}

#[test]
fn the_reference_agrees_with_the_shift_register() {
    let bytes = random_bytes(300, 1);
    for length in 0..bytes.len() {
        let bytes = &bytes[..length];
        assert_eq!(scalar::update(Crc32cPolynomial, 7, bytes), by_shift_register(Crc32cPolynomial, 7, bytes));
        assert_eq!(scalar::update(Crc64NvmePolynomial, 7, bytes), by_shift_register(Crc64NvmePolynomial, 7, bytes));
        let mut room = vec![0; length];
        assert_eq!(
            scalar::copy(Crc64NvmePolynomial, 7, bytes, &mut room),
            by_shift_register(Crc64NvmePolynomial, 7, bytes)
        );
        assert_eq!(room, bytes);
    }
}

/// The CRCs of packets differ from those of messages only in their polynomials; so testing all lengths is enough.
#[test]
fn kernels_agree_with_the_reference_for_the_crcs_of_packets() {
    let source = random_bytes(1500, 6);
    let mut target = vec![0; 1500 + 2 * GUARD_BYTES];
    for kernel in kernels() {
        for length in 0..=1500 {
            check(IcrcPolynomial, kernel, &source, &mut target, 0, 0, length);
            check(VcrcPolynomial, kernel, &source, &mut target, 0, 0, length);
        }
    }
}

/// Every length with an alignment of its own, so that all alignments of source and target occur many times.
#[test]
fn kernels_agree_with_the_reference_at_every_length() {
    let source = random_bytes(4096 + 64, 2);
    let mut target = vec![0; 4096 + 64 + 2 * GUARD_BYTES];
    for kernel in kernels() {
        for length in 0..=4096 {
            check_both(kernel, &source, &mut target, length * 7 % 64, length * 13 / 64 % 64, length);
        }
    }
}

#[test]
fn kernels_agree_with_the_reference_at_every_alignment() {
    let source = random_bytes(2200 + 64, 3);
    let mut target = vec![0; 2200 + 64 + 2 * GUARD_BYTES];
    for kernel in kernels() {
        for from in 0..64 {
            for to in 0..64 {
                for length in [9, 65, 700 + from, 2100 + to] {
                    check_both(kernel, &source, &mut target, from, to, length);
                }
            }
        }
    }
}

/// All lengths times all alignments of source and target: minutes.
#[test]
#[ignore = "takes minutes"]
fn kernels_agree_with_the_reference_at_every_length_and_alignment() {
    let source = random_bytes(4096 + 64, 4);
    let mut target = vec![0; 4096 + 64 + 2 * GUARD_BYTES];
    for kernel in kernels() {
        for length in 0..=4096 {
            for from in 0..64 {
                every_target(Crc32cPolynomial, kernel, &source[from..from + length], &mut target);
                every_target(Crc64NvmePolynomial, kernel, &source[from..from + length], &mut target);
            }
        }
    }
}

fn every_target<P: Polynomial>(polynomial: P, kernel: CrcKernel, bytes: &[u8], target: &mut [u8]) {
    let wanted = scalar::update(polynomial, P::ONES & !(bytes.len() as u64), bytes);
    for to in 0..64 {
        check_copy(polynomial, kernel, bytes, target, to, wanted);
    }
}

#[test]
fn large_copies_agree_too() {
    for length in [65_536, 300_001, 1 << 20, (3 << 20) + 17] {
        let source = random_bytes(length + 64, 5);
        let mut target = vec![0; length + 64 + 2 * GUARD_BYTES];
        for kernel in kernels() {
            check_both(kernel, &source, &mut target, 3, 5, length);
        }
    }
}

proptest! {
    #[test]
    fn parts_give_the_same_result_as_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..1500), cut in any::<proptest::sample::Index>()) {
        let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
        for kernel in kernels() {
            let pieces = kernel.update(Crc64NvmePolynomial, kernel.update(Crc64NvmePolynomial, Crc64NvmePolynomial::ONES, head), tail);
            prop_assert_eq!(pieces, scalar::update(Crc64NvmePolynomial, Crc64NvmePolynomial::ONES, &bytes));
            let pieces = kernel.update(Crc32cPolynomial, kernel.update(Crc32cPolynomial, Crc32cPolynomial::ONES, head), tail);
            prop_assert_eq!(pieces, scalar::update(Crc32cPolynomial, Crc32cPolynomial::ONES, &bytes));
        }
    }
}
