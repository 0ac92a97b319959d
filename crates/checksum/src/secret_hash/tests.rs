use super::*;
use crate::kernel_harness::{GUARD_BYTES, random_bytes};

/// Numbers of a generator that anyone can predict.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let bytes = random_bytes(8 * 4096, seed);
    let mut at = 0;
    move || {
        at += 8;
        u64::from_le_bytes(std::array::from_fn(|index| bytes[at - 8 + index]))
    }
}

fn kernels() -> impl Iterator<Item = CrcKernel> {
    CrcKernel::ALL.into_iter().filter(|kernel| kernel.is_available())
}

/// The definition, bit by bit.
fn definition(hash: &SecretHash, bytes: &[u8]) -> [u64; 2] {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let sums: Vec<[u64; 2]> = bytes
        .chunks(BLOCK_BYTES)
        .map(|block| {
            let mut padded = block.to_vec();
            padded.resize(block.len().next_multiple_of(ROW_BYTES), 0);
            let keys = hash.keys.0.as_flattened();
            let sum = padded.chunks(16).enumerate().fold(0_u128, |sum, (pair, bytes)| {
                let (first, second) = (word(&bytes[..8]) ^ keys[2 * pair], word(&bytes[8..]) ^ keys[2 * pair + 1]);
                (0..64).filter(|bit| second >> bit & 1 == 1).fold(sum, |sum, bit| sum ^ u128::from(first) << bit)
            });
            [sum as u64, (sum >> 64) as u64]
        })
        .collect();
    match &sums[..] {
        [] => [0; 2],
        [one] => *one,
        several => {
            let bytes: Vec<u8> = several.as_flattened().iter().flat_map(|sum| sum.to_le_bytes()).collect();
            [hash.blocks.update(CrcKernel::Scalar, u64::MAX, &bytes), 0]
        }
    }
}

#[test]
fn every_kernel_agrees_with_the_definition_at_every_length_and_alignment() {
    let mut hash = SecretHash::new(numbers(5));
    let source = random_bytes(3 * BLOCK_BYTES + 200, 2);
    let mut target = vec![0; source.len() + 2 * GUARD_BYTES];
    let lengths = (0..700).chain([1408, 2047, 2048, 2049, 2111, 2112, 4096, 4097, 6143, 6144, 6145, 6250]);
    for length in lengths {
        let bytes = &source[length % 64..][..length];
        let wanted = definition(&hash, bytes);
        for kernel in kernels() {
            hash.kernel = kernel;
            assert_eq!(hash.value(bytes), wanted, "{length} bytes, {kernel:?}");
            target.fill(0xa5);
            let room = GUARD_BYTES + length % 61;
            assert_eq!(hash.copy(bytes, &mut target[room..room + length]), wanted, "copy of {length}, {kernel:?}");
            assert!(target[room..room + length] == *bytes, "copy of {length}, {kernel:?}");
            let (before, behind) = (&target[..room], &target[room + length..]);
            assert!(before.iter().chain(behind).all(|byte| *byte == 0xa5), "written outside: {length}, {kernel:?}");
        }
    }
}

#[test]
fn parts_have_the_hash_of_the_whole() {
    let (hash, bytes) = (SecretHash::new(numbers(9)), random_bytes(5000, 4));
    let cuts = [0, 1, 7, 12, 63, 64, 65, 76, 128, 1400, 2048, 2050, 4999, 5000];
    for (index, first) in cuts.into_iter().enumerate() {
        for second in cuts.into_iter().skip(index) {
            let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            assert_eq!(hash.value_of_parts(parts), hash.value(&bytes), "{first} {second}");
        }
    }
}

/// Every bit counts, wherever it is, also where a public checksum would not notice: swapped words, swapped rows, swapped blocks.
#[test]
fn changes_that_keep_sums_change_the_hash() {
    let bytes = random_bytes(3 * BLOCK_BYTES, 6);
    for seed in 10..14 {
        let hash = SecretHash::new(numbers(seed));
        let usual = hash.value(&bytes);
        for at in (0..bytes.len()).step_by(97) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            assert_ne!(hash.value(&changed), usual, "bit at {at}");
        }
        for (length, from, to) in [(4, 0, 4), (4, 8, 16), (64, 64, 128), (BLOCK_BYTES, 0, BLOCK_BYTES)] {
            let mut swapped = bytes.clone();
            let (left, right) = swapped.split_at_mut(to);
            left[from..from + length].swap_with_slice(&mut right[..length]);
            assert_ne!(hash.value(&swapped), usual, "{length} bytes from {from} to {to}");
        }
    }
}

#[test]
fn secrets_give_different_hashes() {
    let bytes = random_bytes(100, 7);
    assert_ne!(SecretHash::new(numbers(32)).value(&bytes), SecretHash::new(numbers(34)).value(&bytes));
}
