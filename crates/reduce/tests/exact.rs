//! Exact sums: hand-picked hard cases, and random ones against the oracle's long arithmetic.

use std::ops::Range;

use oracle::{ExactSum, ReductionElement};
use proptest::prelude::*;
use reduce::{ElementType, Operator, ReductionKind, WideError, WideFloat, sum_exact};

const NAN_BITS: u64 = 0x7ff8_0000_0000_0000;
const BOTH: [WideFloat; 2] = [WideFloat::F32, WideFloat::F64];

fn fold(format: WideFloat, accumulator: &mut [u8], operand: &[u8]) {
    ReductionKind::new(format.wide(), Operator::Sum).unwrap().fold(accumulator, operand).unwrap();
}

fn narrow_bytes(format: WideFloat, number: f64) -> Vec<u8> {
    match format {
        WideFloat::F32 => (number as f32).to_le_bytes().to_vec(),
        WideFloat::F64 => number.to_le_bytes().to_vec(),
    }
}

fn widened(format: WideFloat, number: f64) -> Vec<u8> {
    let mut wide = vec![0xee; format.wide().size()];
    format.widen(&narrow_bytes(format, number), &mut wide).unwrap();
    wide
}

/// The bits of the rounded sum, as those of an `f64`.
fn rounded(format: WideFloat, wide: &[u8]) -> u64 {
    let mut narrow = vec![0xee; format.narrow().size()];
    format.round(wide, &mut narrow).unwrap();
    match format {
        WideFloat::F32 => {
            let number = f32::from_le_bytes(narrow.try_into().unwrap());
            assert!(!number.is_nan() || number.to_bits() == 0x7fc0_0000, "a NaN that is not canonical");
            if number.is_nan() { NAN_BITS } else { f64::from(number).to_bits() }
        }
        WideFloat::F64 => u64::from_le_bytes(narrow.try_into().unwrap()),
    }
}

/// Folds a list from first to last, and checks that accumulating the numbers one by one gives the same bytes.
fn folded(format: WideFloat, numbers: &[f64]) -> Vec<u8> {
    let mut sum = vec![0; format.wide().size()];
    let mut accumulated = sum.clone();
    for number in numbers {
        fold(format, &mut sum, &widened(format, *number));
        format.accumulate(&mut accumulated, &narrow_bytes(format, *number)).unwrap();
    }
    assert_eq!(sum, accumulated);
    sum
}

fn sum(format: WideFloat, numbers: &[f64]) -> f64 {
    f64::from_bits(rounded(format, &folded(format, numbers)))
}

fn oracles(format: WideFloat, numbers: &[f64]) -> ExactSum {
    let element: ReductionElement = format.wide().name().parse().expect("the oracle knows all types");
    let mut sum = ExactSum::new(element);
    numbers.iter().for_each(|number| sum.add(*number));
    sum
}

#[track_caller]
fn assert_sum(format: WideFloat, numbers: &[f64], expected: f64) {
    let mut backwards = numbers.to_vec();
    backwards.reverse();
    for numbers in [numbers, &backwards] {
        assert_eq!(sum(format, numbers).to_bits(), expected.to_bits(), "{format:?} {numbers:?}");
        assert_eq!(oracles(format, numbers).round().to_bits(), expected.to_bits(), "the oracle, {format:?}");
        if format == WideFloat::F64 {
            assert_eq!(sum_exact(numbers.iter().copied()).to_bits(), expected.to_bits(), "{numbers:?}");
        }
    }
}

#[test]
fn small_addends_survive_cancellation() {
    let (huge, tiny) = (2f64.powi(1023), f64::from_bits(1));
    assert_sum(WideFloat::F64, &[huge, tiny, -huge], tiny);
    assert_sum(WideFloat::F64, &[huge, huge, -tiny, -huge, -huge], -tiny);
    assert_sum(WideFloat::F64, &[1e16, 1.0, -1e16], 1.0);
    let (huge, tiny) = (2f64.powi(127), f64::from(f32::from_bits(1)));
    assert_sum(WideFloat::F32, &[huge, tiny, -huge], tiny);
    assert_sum(WideFloat::F32, &[-huge, -tiny, huge, -huge, huge], -tiny);
}

#[test]
fn ties_round_to_even_and_the_smallest_addend_breaks_them() {
    for (format, last) in [(WideFloat::F32, 2f64.powi(-23)), (WideFloat::F64, 2f64.powi(-52))] {
        let trace = if format == WideFloat::F32 { 2f64.powi(-149) } else { f64::from_bits(1) };
        assert_sum(format, &[1.0, last / 2.0], 1.0);
        assert_sum(format, &[1.0 + last, last / 2.0], 1.0 + 2.0 * last);
        assert_sum(format, &[1.0, last / 2.0, trace], 1.0 + last);
        assert_sum(format, &[1.0 + last, last / 2.0, -trace], 1.0 + last);
        assert_sum(format, &[-1.0, -last / 2.0, -trace], -1.0 - last);
        // Rounded up to the next power of two.
        assert_sum(format, &[2.0 - last, last / 2.0], 2.0);
    }
}

#[test]
fn only_the_final_sum_may_overflow() {
    for (format, largest, half_step) in
        [(WideFloat::F32, f64::from(f32::MAX), 2f64.powi(103)), (WideFloat::F64, f64::MAX, 2f64.powi(970))]
    {
        assert_sum(format, &[largest, largest, largest, -largest, -largest], largest);
        assert_sum(format, &[largest, largest], f64::INFINITY);
        assert_sum(format, &[-largest, -largest], f64::NEG_INFINITY);
        assert_sum(format, &[largest, half_step], f64::INFINITY);
        assert_sum(format, &[largest, half_step, -1.0], largest);
        assert_sum(format, &[-largest, -half_step, 1.0], -largest);
    }
}

#[test]
fn subnormals_are_exact() {
    let smallest = f64::from_bits(1);
    assert_sum(WideFloat::F64, &[smallest; 5], f64::from_bits(5));
    assert_sum(WideFloat::F64, &[f64::MIN_POSITIVE, -smallest], f64::from_bits((1 << 52) - 1));
    assert_sum(WideFloat::F64, &[f64::from_bits((1 << 52) - 1), smallest], f64::MIN_POSITIVE);
    let smallest = f32::from_bits(1);
    assert_sum(
        WideFloat::F32,
        &[f32::MIN_POSITIVE.into(), -f64::from(smallest)],
        f32::from_bits((1 << 23) - 1).into(),
    );
}

#[test]
fn a_sum_of_negative_zeros_alone_is_negative_zero() {
    for format in BOTH {
        assert_sum(format, &[-0.0], -0.0);
        assert_sum(format, &[-0.0; 7], -0.0);
        assert_sum(format, &[-0.0, 0.0], 0.0);
        assert_sum(format, &[1.5, -1.5], 0.0);
        assert_sum(format, &[-1.5, -0.0, 1.5], 0.0);
        assert_sum(format, &[], -0.0);
    }
}

#[test]
fn infinities_persist_and_nan_is_canonical() {
    let odd_nan = f64::from_bits(0xfff0_0000_0000_0001);
    for format in BOTH {
        let (largest, nan) = (f64::from(f32::MAX), f64::from_bits(NAN_BITS));
        assert_sum(format, &[f64::INFINITY, -largest, -largest], f64::INFINITY);
        assert_sum(format, &[f64::NEG_INFINITY, f64::NEG_INFINITY, largest], f64::NEG_INFINITY);
        assert_sum(format, &[f64::INFINITY, 1.0, f64::NEG_INFINITY], nan);
        assert_sum(format, &[odd_nan, 1.0], nan);
        assert_sum(format, &[odd_nan, f64::INFINITY, -0.0], nan);
    }
}

#[test]
fn the_layout_is_as_documented() {
    let wide = widened(WideFloat::F64, f64::from_bits(1));
    assert_eq!((wide[0], wide[1..271].iter().all(|byte| *byte == 0), wide[271]), (1, true, 8));
    let wide = widened(WideFloat::F32, -f64::from(f32::from_bits(3)));
    assert_eq!((wide[0], wide[1..39].iter().all(|byte| *byte == 0xff), wide[39]), (0xfd, true, 8));
    assert_eq!(widened(WideFloat::F32, -0.0), [0; 40]);
    for (number, flags) in [(f64::NAN, 9), (f64::INFINITY, 10), (f64::NEG_INFINITY, 12), (0.0, 8)] {
        for format in BOTH {
            let mut expected = vec![0; format.wide().size()];
            expected[format.wide().size() - 1] = flags;
            assert_eq!(widened(format, number), expected);
        }
    }
}

/// Adds up 2^33 of the largest number by doubling: within the documented capacity of both formats.
#[test]
fn sums_hold_more_than_four_billion_of_the_largest_number() {
    for (format, largest) in [(WideFloat::F32, f64::from(f32::MAX)), (WideFloat::F64, f64::MAX)] {
        for sign in [1.0, -1.0] {
            let mut sum = widened(format, sign * largest);
            let mut rest = widened(format, -sign * largest);
            for _ in 0..33 {
                let (twice, twice_rest) = (sum.clone(), rest.clone());
                fold(format, &mut sum, &twice);
                fold(format, &mut rest, &twice_rest);
            }
            assert_eq!(f64::from_bits(rounded(format, &sum)), sign * f64::INFINITY);
            fold(format, &mut sum, &rest);
            fold(format, &mut sum, &widened(format, sign));
            assert_eq!(f64::from_bits(rounded(format, &sum)), sign);
        }
    }
}

#[test]
fn lengths_are_checked_before_anything_is_written() {
    let mut wide = [7; 272];
    let part = WideFloat::F64.widen(&[1; 7], &mut wide);
    assert_eq!(part, Err(WideError::PartOfElement { element: ElementType::F64, length: 7 }));
    let part = WideFloat::F64.accumulate(&mut wide[..40], &[1; 8]);
    assert_eq!(part, Err(WideError::PartOfElement { element: ElementType::WideF64, length: 40 }));
    let part = part.unwrap_err().to_string();
    assert_eq!(part, "40 bytes are not a multiple of the 272-byte element wide-f64");
    let differ = WideFloat::F64.accumulate(&mut wide, &[1; 16]);
    assert_eq!(differ, Err(WideError::CountsDiffer { floats: 2, wide: 1 }));
    assert_eq!(wide, [7; 272]);
    let mut floats = [7; 12];
    let differ = WideFloat::F32.round(&[0; 80], &mut floats);
    assert_eq!(differ, Err(WideError::CountsDiffer { floats: 3, wide: 2 }));
    assert_eq!(floats, [7; 12]);
    assert_eq!(WideFloat::F32.round(&[], &mut []), Ok(()));
}

#[test]
fn formats_and_element_types_round_trip() {
    for format in BOTH {
        assert_eq!([format.narrow(), format.wide()].map(WideFloat::of), [Some(format); 2]);
        assert!(format.narrow().is_float() && format.wide().is_wide());
    }
    assert_eq!(WideFloat::of(ElementType::F16), None);
}

/// The choices of [`numbers`] that are neither infinite nor NaN.
const FINITE: Range<u32> = 0..56;
const ALL: Range<u32> = 0..58;

/// Numbers of all magnitudes, with few distinct exponents at a time so that they interact, and often a negated
/// earlier one.
fn numbers(format: WideFloat, choices: Range<u32>) -> impl Strategy<Value = Vec<f64>> {
    let cut = move |bits: u64| match format {
        WideFloat::F32 => f64::from(f32::from_bits(bits as u32)),
        WideFloat::F64 => f64::from_bits(bits),
    };
    let (fraction, exponents) = if format == WideFloat::F32 { (23, 0xff) } else { (52, 0x7ff) };
    let near = (any::<u64>(), 0..3_u64, any::<bool>());
    let number = (near, choices, any::<prop::sample::Index>());
    (0..exponents - 2, prop::collection::vec(number, 0..40)).prop_map(move |(base, draws)| {
        let mut numbers: Vec<f64> = Vec::new();
        for ((bits, above, negative), choice, earlier) in draws {
            let mantissa = bits & ((1 << fraction) - 1);
            let sign = if negative { -1.0 } else { 1.0 };
            let near = sign * cut((((base + above) % exponents) << fraction) | mantissa);
            let anywhere = sign * cut((((bits >> 50) % exponents) << fraction) | mantissa);
            numbers.push(match choice {
                0..20 => near,
                20..35 => anywhere,
                35..50 if !numbers.is_empty() => -numbers[earlier.index(numbers.len())],
                50 => sign * 0.0,
                51 => sign * cut(mantissa),
                52 => sign * cut(1 + mantissa % 3),
                53 => sign * cut((exponents << fraction) - 1),
                // A single bit: sums of these make ties.
                54..56 => sign * cut((base % exponents) << fraction),
                56 => sign * f64::INFINITY,
                57 => cut((exponents << fraction) | mantissa.max(1)),
                _ => -near,
            });
        }
        numbers
    })
}

fn lists() -> impl Strategy<Value = (WideFloat, Vec<f64>)> {
    (prop::sample::select(BOTH.to_vec()), prop::sample::select(vec![FINITE, ALL]))
        .prop_flat_map(|(format, choices)| numbers(format, choices).prop_map(move |list| (format, list)))
}

/// Folds a list as a random tree.
fn fold_tree(format: WideFloat, numbers: &[f64], dice: &mut u64) -> Vec<u8> {
    if let [number] = numbers {
        return widened(format, *number);
    }
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let (left, right) = numbers.split_at(1 + (*dice >> 33) as usize % (numbers.len() - 1));
    let mut sum = fold_tree(format, left, dice);
    fold(format, &mut sum, &fold_tree(format, right, dice));
    sum
}

proptest! {
    #[test]
    fn sums_match_long_arithmetic((format, numbers) in lists()) {
        let (ours, theirs) = (folded(format, &numbers), oracles(format, &numbers));
        prop_assert_eq!(&ours, &theirs.wide_bytes());
        prop_assert_eq!(rounded(format, &ours), theirs.round().to_bits());
        if format == WideFloat::F64 {
            prop_assert_eq!(sum_exact(numbers).to_bits(), theirs.round().to_bits());
        }
    }

    #[test]
    fn every_order_and_tree_gives_the_same_bits((format, numbers) in lists(), mut dice: u64) {
        prop_assume!(!numbers.is_empty());
        let mut shuffled = numbers.clone();
        for place in (1..shuffled.len()).rev() {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(place, (dice >> 33) as usize % (place + 1));
        }
        prop_assert_eq!(fold_tree(format, &shuffled, &mut dice), folded(format, &numbers));
    }

    #[test]
    fn sums_of_two_numbers_match_the_processor(a: u64, b: u64) {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        let expected = if (x + y).is_nan() { NAN_BITS } else { (x + y).to_bits() };
        prop_assert_eq!(sum(WideFloat::F64, &[x, y]).to_bits(), expected);
        let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let expected = if (x + y).is_nan() { NAN_BITS } else { f64::from(x + y).to_bits() };
        prop_assert_eq!(sum(WideFloat::F32, &[x.into(), y.into()]).to_bits(), expected);
    }

    /// Every byte pattern is a valid sum: it folds and rounds as the layout says.
    #[test]
    fn every_byte_pattern_is_a_sum(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 2 * 272),
        run in 0_usize..272,
        flags in prop_oneof![Just(0_u8), Just(0xf0), any::<u8>()],
    ) {
        for format in BOTH {
            let size = format.wide().size();
            let (mut left, mut right) = (bytes[..size].to_vec(), bytes[size..2 * size].to_vec());
            // A run of equal bytes, like the sign extension of small numbers.
            let sign = left[size - 2];
            left[run.min(size - 2)..size - 1].fill(if sign & 1 == 0 { 0 } else { 0xff });
            (left[size - 1], right[size - 1]) = (flags, flags & 0x0f);
            let mut expected = oracles(format, &[]);
            expected.add_wide(&left);
            prop_assert_eq!(rounded(format, &left), expected.round().to_bits());
            expected.add_wide(&right);
            fold(format, &mut left, &right);
            prop_assert_eq!(&left, &expected.wide_bytes());
        }
    }
}
