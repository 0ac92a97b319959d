//! The property that the fold relies on.

use super::*;

#[test]
fn two_operands_give_the_same_bits_in_either_order() {
    let mut specials: Vec<u8> = Vec::new();
    for pattern in [0u64, 1, 1 << 63, 0x7ff0 << 48, 0xfff0 << 48, 0x7ff8_0000_0000_0001, 0x7ff4_0000_dead_beef, !0] {
        specials.extend(pattern.to_le_bytes());
        specials.extend(((pattern >> 32) as u32).to_le_bytes());
        specials.extend(((pattern >> 48) as u16).to_le_bytes());
        specials.extend([0; 2]);
    }
    for (seed, kind) in all_kinds().enumerate() {
        for shift in 0..8 {
            let length = 4_096usize.next_multiple_of(kind.element_size());
            let mut left = contribution(seed as u64, shift, length);
            let mut right = contribution(seed as u64, shift + 100, length);
            // Every special value against every other, over the rounds.
            left[..128].copy_from_slice(&specials);
            right[..128].copy_from_slice(&specials);
            right[..128].rotate_left(usize::from(shift) * 16);
            let (mut one, mut other) = (left.clone(), right.clone());
            kind.fold(&mut one, &right).expect("whole elements");
            kind.fold(&mut other, &left).expect("whole elements");
            assert_eq!(one, other, "{kind}");
        }
    }
}
