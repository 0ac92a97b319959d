//! Published test vectors of each algorithm, and properties of all.

use proptest::prelude::*;

use crate::oneshot::oneshot;
use crate::pass::{CopyPass, Pass, ReadPass};
use crate::prefetch::TargetCache;
use crate::vector_width::VectorWidth;
use crate::{Algorithm, ChecksumState, copy, copy_then, copy_to, simple_hashes, value};

fn assert_vectors(algorithm: Algorithm, vectors: &[(&[u8], u64)]) {
    for (bytes, wanted) in vectors {
        let found = value(algorithm, bytes);
        assert_eq!(found, *wanted, "{algorithm} of {} bytes: {found:#x}, not {wanted:#x}", bytes.len());
    }
}

/// SMHasher's verification of a hash with a seed: the hash of the hashes of 0..n for n below 256, with seed 256 - n.
fn smhasher(hash: impl Fn(&[u8], u32) -> u32) -> u32 {
    let bytes: Vec<u8> = (0..=255).collect();
    let all: Vec<u8> = (0..256).flat_map(|n| hash(&bytes[..n], 256 - n as u32).to_le_bytes()).collect();
    hash(&all, 0)
}

fn split(bytes: &[u8]) -> (ReadPass<'_>, &[u8]) {
    let (whole, tail) = bytes.split_at(bytes.len() / 4 * 4);
    (ReadPass(whole), tail)
}

#[test]
fn sums_agree_with_their_definition() {
    // In no catalogue: little-endian words, the last padded with zeros.
    assert_vectors(Algorithm::Sum32, &[(b"", 0), (b"\x01\0\0\0\x02\0\0\x80\xff", 0x8000_0102)]);
    assert_vectors(Algorithm::Sum32, &[(b"\xff\xff\xff\xff\x02", 1)]);
    assert_vectors(Algorithm::Xor32, &[(b"", 0), (b"\x01\0\0\0\x03\0\0\x80\xff", 0x8000_00fd)]);
}

#[test]
fn adler_32_agrees_with_rfc_1950() {
    // The checksum of "Wikipedia" is derived step by step in the article on Adler-32; the others are zlib's, the last of so many bytes that
    // the sums wrap.
    assert_vectors(Algorithm::Adler32, &[(b"", 1), (b"Wikipedia", 0x11e6_0398), (b"abc", 0x024d_0127)]);
    assert_vectors(Algorithm::Adler32, &[(&vec![0xff; 1_000_000], 0x3843_e1be)]);
}

#[test]
fn fletcher_64_agrees_with_the_published_examples() {
    // From the article on Fletcher's checksum.
    assert_vectors(
        Algorithm::Fletcher64,
        &[
            (b"abcde", 0xc8c6_c527_6463_62c6),
            (b"abcdef", 0xc8c7_2b27_6463_c8c6),
            (b"abcdefgh", 0x312e_2b28_ccca_c8c6),
        ],
    );
}

#[test]
fn jenkins_agrees_with_the_published_examples() {
    // From the article on the Jenkins hash functions.
    assert_vectors(
        Algorithm::Jenkins,
        &[(b"a", 0xca2e_9442), (b"The quick brown fox jumps over the lazy dog", 0x519e_91f5)],
    );
}

#[test]
fn fnv_1a_agrees_with_its_authors() {
    // draft-eastlake-fnv, test vectors; for words, those with fewer than four bytes hold too.
    assert_vectors(
        Algorithm::Fnv1a,
        &[(b"", 0xcbf2_9ce4_8422_2325), (b"a", 0xaf63_dc4c_8601_ec8c), (b"foobar", 0x8594_4171_f739_67e8)],
    );
    assert_vectors(Algorithm::Fnv1aWords, &[(b"", 0x811c_9dc5), (b"a", 0xe40c_292c), (b"foo", 0xa9f3_7ed7)]);
    let word = (0x811c_9dc5 ^ u32::from_le_bytes(*b"fnv!")).wrapping_mul(0x0100_0193);
    assert_vectors(Algorithm::Fnv1aWords, &[(b"fnv!", word.into())]);
}

#[test]
fn knuth_is_the_multiplicative_hash_of_each_word() {
    // By definition: one word times the constant; two words, the first hash added to the second.
    assert_vectors(Algorithm::Knuth, &[(b"", 0), (b"\x01\0\0\0", 2_654_435_761), (b"\x02", 1_013_904_226)]);
    let twice = 2_654_435_761u32.wrapping_add(5).wrapping_mul(2_654_435_761);
    assert_vectors(Algorithm::Knuth, &[(b"\x01\0\0\0\x05\0\0\0", twice.into())]);
}

#[test]
fn murmur_2a_passes_its_authors_check() {
    // SMHasher lists 0x7FBD4396 for MurmurHash2A.
    let hash = |bytes: &[u8], seed| {
        let (mut whole, tail) = split(bytes);
        simple_hashes::murmur2a_end(simple_hashes::murmur2a(seed, &mut whole), tail, bytes.len() as u64)
    };
    assert_eq!(smhasher(hash), 0x7fbd_4396);
    assert_eq!(value(Algorithm::Murmur2a, b"pleach"), hash(b"pleach", simple_hashes::MURMUR_SEED).into());
}

#[test]
fn superfast_passes_the_same_check() {
    // SMHasher lists 0x980ACD1D for SuperFastHash, which there starts from zero; its author starts from the length.
    let hash = |bytes: &[u8], start| {
        let (mut whole, tail) = split(bytes);
        if bytes.is_empty() {
            0
        } else {
            simple_hashes::superfast_end(simple_hashes::superfast(start, &mut whole), tail)
        }
    };
    assert_eq!(smhasher(|bytes, _| hash(bytes, 0)), 0x980a_cd1d);
    assert_eq!(value(Algorithm::SuperFast, b"pleach"), hash(b"pleach", 6).into());
}

#[test]
fn crc_32c_agrees_with_rfc_3720() {
    let (rising, falling): (Vec<u8>, Vec<u8>) = ((0..32).collect(), (0..32).rev().collect());
    assert_vectors(
        Algorithm::Crc32c,
        &[
            (b"", 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (&falling, 0x113f_db5c),
        ],
    );
}

#[test]
fn crc_64_nvme_agrees_with_its_specification() {
    // NVM Command Set Specification 1.0d, 5.2.1.3.5; the check value is from the CRC catalogue.
    let rising: Vec<u8> = (0..4096).map(|place| place as u8).collect();
    let falling: Vec<u8> = (0..4096).rev().map(|place| place as u8).collect();
    assert_vectors(
        Algorithm::Crc64Nvme,
        &[
            (b"", 0),
            (b"123456789", 0xae8b_1486_0a79_9888),
            (&[0; 4096], 0x6482_d367_eb22_b64e),
            (&[0xff; 4096], 0xc0dd_ba73_02ec_a3ac),
            (&rising, 0x3e72_9f5f_6750_449c),
            (&falling, 0x9a2d_f64b_8e9e_517e),
        ],
    );
}

#[test]
fn xxh3_agrees_with_its_sanity_check() {
    // xxHash's own sanity check, with its buffer, without a seed.
    let mut state = 2_654_435_761u64;
    let buffer: Vec<u8> = std::iter::repeat_with(|| {
        let byte = (state >> 56) as u8;
        state = state.wrapping_mul(11_400_714_785_074_694_797);
        byte
    })
    .take(2367)
    .collect();
    let vectors = [
        (0, 0x2d06_8005_38d3_94c2),
        (1, 0xc44b_dff4_074e_ecdb),
        (6, 0x27b5_6a84_cd2d_7325),
        (12, 0xa713_daf0_dfbb_77e7),
        (24, 0xa3fe_70bf_9d35_10eb),
        (48, 0x397d_a259_ecba_1f11),
        (80, 0xbcde_fbbb_2c47_c90a),
        (195, 0xcd94_217e_e362_ec3a),
        (403, 0xcdeb_804d_65c6_dea4),
        (512, 0x617e_4959_9013_cb6b),
        (2048, 0xdd59_e2c3_a5f0_38e0),
        (2240, 0x6e73_a905_39cf_2948),
        (2367, 0xcb37_aeb9_e5d3_61ed),
    ];
    assert_vectors(Algorithm::Xxh3, &vectors.map(|(length, wanted)| (&buffer[..length], wanted)));
}

#[test]
fn values_fit_their_bits() {
    let bytes: Vec<u8> = (0..999u32).map(|place| (place * place) as u8).collect();
    for algorithm in Algorithm::ALL {
        let all = (0..bytes.len()).fold(0, |all, length| all | value(algorithm, &bytes[..length]));
        assert_eq!(64 - all.leading_zeros(), algorithm.bits(), "{algorithm}");
    }
}

#[test]
fn every_copy_strategy_gives_the_same_checksum_at_every_length() {
    let bytes = spread_bytes(4096 + 64);
    for algorithm in Algorithm::ALL {
        for length in 0..=4096 {
            let (start, room_start) = (length % 61, length % 37);
            let from = &bytes[start..start + length];
            let wanted = value(algorithm, from);
            for way in [copy, copy_then] {
                let mut room = vec![0xa5; 64 + length + 64];
                assert_eq!(
                    way(algorithm, from, &mut room[room_start..room_start + length]),
                    wanted,
                    "{algorithm}, {length}"
                );
                assert!(room[room_start..room_start + length] == *from);
                let beside = room[..room_start].iter().chain(&room[room_start + length..]);
                assert!(beside.into_iter().all(|byte| *byte == 0xa5), "{algorithm}, {length}");
            }
        }
    }
}

#[test]
fn every_copy_strategy_gives_the_same_checksum_of_many_blocks() {
    let bytes = spread_bytes(200_003);
    for algorithm in Algorithm::ALL {
        let wanted = value(algorithm, &bytes);
        let to_others = |algorithm, from: &_, to: &mut _| copy_to(algorithm, from, to, TargetCache::Remote);
        for way in [copy, copy_then, to_others] {
            let mut room = vec![0; bytes.len()];
            assert_eq!(way(algorithm, &bytes, &mut room), wanted, "{algorithm}");
            assert!(room == bytes, "{algorithm}");
        }
    }
}

/// Algorithms that are plain loops; the others have their own kernels and tests.
fn plain_loops() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.is_cyclic() && *algorithm != Algorithm::Xxh3)
}

/// Wide vectors against the baseline, with and without a copy, and nothing else written.
fn check_widths(algorithm: Algorithm, bytes: &[u8], target: &mut [u8], to: usize) {
    let wanted = oneshot(algorithm, VectorWidth::Usual, ReadPass(bytes));
    for width in VectorWidth::ALL.iter().copied().filter(|width| width.is_available()) {
        let case = || format!("{algorithm}, {width:?}, {} bytes to {to}", bytes.len());
        assert_eq!(oneshot(algorithm, width, ReadPass(bytes)), wanted, "{}", case());
        let (begin, end) = (64 + to, 64 + to + bytes.len());
        target[to..end + 64].fill(0xa5);
        assert_eq!(
            oneshot(algorithm, width, CopyPass::new(bytes, &mut target[begin..end], TargetCache::Local)),
            wanted,
            "{}",
            case()
        );
        assert!(target[begin..end] == *bytes, "{}", case());
        let clean = target[to..begin] == [0xa5; 64] && target[end..end + 64] == [0xa5; 64];
        assert!(clean, "written outside the copy: {}", case());
    }
}

fn spread_bytes(length: u32) -> Vec<u8> {
    (0..length).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn every_vector_width_gives_the_same_checksum_at_every_length() {
    let source = spread_bytes(4096 + 64);
    let mut target = vec![0; 4096 + 64 + 128];
    for algorithm in plain_loops() {
        for length in 0..=4096 {
            let from = length * 7 % 64;
            check_widths(algorithm, &source[from..from + length], &mut target, length * 13 / 64 % 64);
        }
    }
}

#[test]
fn every_vector_width_gives_the_same_checksum_at_every_alignment() {
    let source = spread_bytes(600 + 64);
    let mut target = vec![0; 600 + 64 + 128];
    for algorithm in plain_loops() {
        for from in 0..64 {
            for to in 0..64 {
                check_widths(algorithm, &source[from..from + 500 + to], &mut target, to);
            }
        }
    }
}

#[test]
#[should_panic(expected = "the same length")]
fn a_copy_into_a_shorter_target_panics() {
    copy(Algorithm::Crc32c, &[0; 100], &mut [0; 99]);
}

#[test]
fn a_pass_yields_every_byte_once_and_keeps_the_incomplete_chunk() {
    let bytes: Vec<u8> = (0..23).collect();
    let mut pass = ReadPass(&bytes);
    let mut seen = Vec::new();
    let mut head = pass.split(10);
    head.for_each_chunk(|group: &[u8; 4]| seen.extend_from_slice(group));
    assert_eq!((head.remaining(), pass.remaining(), seen.len()), (2, 13, 8));
    assert_eq!(pass.split(99).remaining(), 13);
}

proptest! {
    #[test]
    fn parts_give_the_same_result_as_the_whole(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        copies in any::<u8>()
    ) {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        for algorithm in Algorithm::ALL {
            let mut state = ChecksumState::new(algorithm, bytes.len() as u64);
            for (number, piece) in places.windows(2).enumerate() {
                let piece = &bytes[piece[0]..piece[1]];
                if copies >> (number % 8) & 1 == 1 {
                    let mut room = vec![0; piece.len()];
                    state.copy(piece, &mut room);
                    prop_assert_eq!(&room, piece);
                } else {
                    state.update(piece);
                }
            }
            prop_assert_eq!(state.finish(), value(algorithm, &bytes), "{}", algorithm);
        }
    }
}
