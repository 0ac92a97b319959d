//! Every reduction kind against a naive scalar fold, and the laws that make results independent of the tree.

use proptest::prelude::*;
use reduce::{ElementType, Operator, ReductionKind};

fn kinds() -> impl Iterator<Item = ReductionKind> {
    ElementType::ALL.into_iter().flat_map(|element| {
        Operator::ALL.into_iter().filter_map(move |operator| ReductionKind::new(element, operator).ok())
    })
}

fn folded(kind: ReductionKind, left: &[u8], right: &[u8]) -> Vec<u8> {
    kind.fold_all([left, right].into_iter()).expect("whole operands of equal length")
}

/// The bytes, repeated from the start to complete the last element.
fn fitted(kind: ReductionKind, operands: &[Vec<u8>; 3]) -> [Vec<u8>; 3] {
    let bytes = operands[0].len().next_multiple_of(kind.element_size());
    operands.each_ref().map(|operand| operand.iter().copied().cycle().take(bytes).collect())
}

/// Sums and products of floats depend on the order of folding; everything else does not.
fn is_associative(kind: ReductionKind) -> bool {
    !(kind.element().is_float() && matches!(kind.operator(), Operator::Sum | Operator::Prod))
}

/// Bytes for 1 to 9 elements of 16 bytes: whole elements of any kind, and more than one vector register with a
/// remainder. Half of the bytes are chosen so that NaN, infinities and zeros are frequent.
fn three_operands() -> impl Strategy<Value = [Vec<u8>; 3]> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(vec![0x00, 0x80, 0x7f, 0xff, 0x7c, 0xf8, 0xf0])];
    let pattern = prop::collection::vec(byte, 1..=4);
    let element = (any::<[u8; 16]>(), pattern, any::<bool>()).prop_map(|(wild, pattern, repeat)| {
        if repeat { std::array::from_fn(|i| pattern[i % pattern.len()]) } else { wild }
    });
    prop::collection::vec([element.clone(), element.clone(), element], 1..=9)
        .prop_map(|rows| std::array::from_fn(|k| rows.iter().flat_map(|row| row[k]).collect()))
}

proptest! {
    #[test]
    fn every_kind_commutes(operands in three_operands()) {
        for kind in kinds() {
            let [a, b, _] = &fitted(kind, &operands);
            prop_assert_eq!(folded(kind, a, b), folded(kind, b, a), "{}", kind);
        }
    }

    #[test]
    fn all_but_float_sums_and_products_are_associative(operands in three_operands()) {
        for kind in kinds().filter(|kind| is_associative(*kind)) {
            let [a, b, c] = &fitted(kind, &operands);
            let left = folded(kind, &folded(kind, a, b), c);
            let right = folded(kind, a, &folded(kind, b, c));
            prop_assert_eq!(left, right, "{}", kind);
        }
    }

    #[test]
    fn fold_all_equals_successive_folds(operands in three_operands()) {
        for kind in kinds() {
            let fitted = fitted(kind, &operands);
            let [a, b, c] = &fitted;
            let all = kind.fold_all(fitted.iter().map(Vec::as_slice)).unwrap();
            prop_assert_eq!(all, folded(kind, &folded(kind, a, b), c), "{}", kind);
        }
    }

    #[test]
    fn combining_into_another_place_equals_a_fold(operands in three_operands()) {
        for kind in kinds() {
            let [a, b, result] = &mut fitted(kind, &operands);
            kind.combine(result, a, b).unwrap();
            prop_assert_eq!(&*result, &folded(kind, a, b), "{}", kind);
            prop_assert!(kind.combine(&mut result[1..], a, b).is_err() && kind.combine(result, &a[1..], b).is_err());
        }
    }

    #[test]
    fn alignment_does_not_matter(operands in three_operands(), shift in 1_usize..8) {
        for kind in kinds() {
            let [a, b, _] = &fitted(kind, &operands);
            let shifted: Vec<u8> = std::iter::repeat_n(0, shift).chain(b.iter().copied()).collect();
            let mut place: Vec<u8> = std::iter::repeat_n(0xee, shift).chain(a.iter().copied()).collect();
            kind.fold(&mut place[shift..], &shifted[shift..]).unwrap();
            prop_assert_eq!(&place[shift..], folded(kind, a, b), "{}", kind);
        }
    }

    #[test]
    fn the_value_of_minloc_is_the_minimum(operands in three_operands()) {
        let located = [(Operator::MinLoc, Operator::Min), (Operator::MaxLoc, Operator::Max)];
        let elements = ElementType::ALL.into_iter().filter(|element| !element.is_wide());
        for (element, (with_index, without)) in elements.flat_map(|element| located.map(|pair| (element, pair))) {
            let pairs = ReductionKind::new(element, with_index).unwrap();
            let values = ReductionKind::new(element, without).unwrap();
            let [a, b, _] = &operands;
            let values_of = |bytes: &[u8]| -> Vec<u8> {
                bytes.chunks(pairs.element_size()).flat_map(|pair| pair[..element.size()].to_vec()).collect()
            };
            let from_pairs = values_of(&folded(pairs, a, b));
            prop_assert_eq!(from_pairs, folded(values, &values_of(a), &values_of(b)), "{}", pairs);
        }
    }
}

/// Compares one element at a time with the rule written out for its type.
macro_rules! matches_scalar {
    ($name:ident, $number:ty, $element:ident, $($operator:ident: $rule:expr),+ $(,)?) => {
        proptest! {
            #[test]
            fn $name(pairs in prop::collection::vec(any::<($number, $number)>(), 1..40)) {
                let bytes = |side: fn(&($number, $number)) -> $number| -> Vec<u8> {
                    pairs.iter().flat_map(|pair| side(pair).to_le_bytes()).collect()
                };
                let (left, right) = (bytes(|pair| pair.0), bytes(|pair| pair.1));
                $({
                    let rule: fn($number, $number) -> $number = $rule;
                    let kind = ReductionKind::new(ElementType::$element, Operator::$operator).unwrap();
                    let expected: Vec<u8> = pairs.iter().flat_map(|(a, b)| rule(*a, *b).to_le_bytes()).collect();
                    prop_assert_eq!(folded(kind, &left, &right), expected, "{}", kind);
                })+
            }
        }
    };
}

macro_rules! integers_match_scalar {
    ($($name:ident: $number:ident $element:ident),+) => {$(
        matches_scalar!($name, $number, $element,
            Sum: |a, b| (a as i128 + b as i128) as $number,
            Prod: |a, b| (a as i128).wrapping_mul(b as i128) as $number,
            Min: |a, b| if a < b { a } else { b },
            Max: |a, b| if a > b { a } else { b },
            And: |a, b| a & b,
            Or: |a, b| a | b,
            Xor: |a, b| a ^ b,
        );
    )+};
}

integers_match_scalar!(
    i8_is_folded_as_scalars_are: i8 I8, u8_is_folded_as_scalars_are: u8 U8,
    i16_is_folded_as_scalars_are: i16 I16, u16_is_folded_as_scalars_are: u16 U16,
    i32_is_folded_as_scalars_are: i32 I32, u32_is_folded_as_scalars_are: u32 U32,
    i64_is_folded_as_scalars_are: i64 I64, u64_is_folded_as_scalars_are: u64 U64
);

matches_scalar!(f32_is_folded_as_scalars_are, f32, F32,
    Sum: |a, b| canonical_f32(a + b),
    Prod: |a, b| canonical_f32(a * b),
    Min: |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else if a.total_cmp(&b).is_lt() { a } else { b },
    Max: |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else if a.total_cmp(&b).is_gt() { a } else { b },
);

matches_scalar!(f64_is_folded_as_scalars_are, f64, F64,
    Sum: |a, b| canonical_f64(a + b),
    Prod: |a, b| canonical_f64(a * b),
    Min: |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else if a.total_cmp(&b).is_lt() { a } else { b },
    Max: |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else if a.total_cmp(&b).is_gt() { a } else { b },
);

fn canonical_f32(number: f32) -> f32 {
    if number.is_nan() { f32::from_bits(0x7fc0_0000) } else { number }
}

fn canonical_f64(number: f64) -> f64 {
    if number.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { number }
}

macro_rules! halves_match_the_half_crate {
    ($name:ident, $number:ty, $element:ident) => {
        proptest! {
            #[test]
            fn $name(pairs in prop::collection::vec(any::<(u16, u16)>(), 1..40)) {
                let left: Vec<u8> = pairs.iter().flat_map(|pair| pair.0.to_le_bytes()).collect();
                let right: Vec<u8> = pairs.iter().flat_map(|pair| pair.1.to_le_bytes()).collect();
                let rules: [(Operator, fn(f32, f32) -> f32); 2] =
                    [(Operator::Sum, |a, b| a + b), (Operator::Prod, |a, b| a * b)];
                for (operator, rule) in rules {
                    let kind = ReductionKind::new(ElementType::$element, operator).unwrap();
                    let expected: Vec<u8> = pairs
                        .iter()
                        .map(|(a, b)| rule(<$number>::from_bits(*a).to_f32(), <$number>::from_bits(*b).to_f32()))
                        .flat_map(|result| match result.is_nan() {
                            true => <$number>::NAN.to_le_bytes(),
                            false => <$number>::from_f32(result).to_le_bytes(),
                        })
                        .collect();
                    prop_assert_eq!(folded(kind, &left, &right), expected, "{}", kind);
                }
            }
        }
    };
}

halves_match_the_half_crate!(f16_is_computed_in_f32_and_rounded, half::f16, F16);
halves_match_the_half_crate!(bf16_is_computed_in_f32_and_rounded, half::bf16, Bf16);
