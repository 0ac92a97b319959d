//! Tables of the rules for NaN, zeros, overflow, ties and errors.

use reduce::{ElementType, FoldError, Operator, ReductionKind, ReductionKindError};

fn kind(name: &str) -> ReductionKind {
    let (element, operator) = name.split_once(' ').expect("an element and an operator");
    ReductionKind::new(element.parse().unwrap(), operator.parse().unwrap()).unwrap()
}

fn fold(name: &str, left: &[u8], right: &[u8]) -> Vec<u8> {
    kind(name).fold_all([left, right].into_iter()).unwrap()
}

fn fold_f64(operator: &str, left: f64, right: f64) -> u64 {
    let result = fold(&format!("f64 {operator}"), &left.to_le_bytes(), &right.to_le_bytes());
    u64::from_le_bytes(result.try_into().unwrap())
}

fn fold_u16(name: &str, left: u16, right: u16) -> u16 {
    u16::from_le_bytes(fold(name, &left.to_le_bytes(), &right.to_le_bytes()).try_into().unwrap())
}

const NAN_BITS: u64 = 0x7ff8_0000_0000_0000;

#[test]
fn any_nan_gives_the_canonical_nan() {
    let nans = [NAN_BITS, 0xfff8_0000_0000_0000, 0x7ff0_0000_0000_0001, 0xffff_ffff_ffff_ffff];
    for nan in nans.map(f64::from_bits) {
        for other in [0.0, 1.0, f64::NEG_INFINITY, nan] {
            for operator in ["sum", "prod", "min", "max"] {
                assert_eq!(fold_f64(operator, nan, other), NAN_BITS, "{operator} of {nan} and {other}");
                assert_eq!(fold_f64(operator, other, nan), NAN_BITS, "{operator} of {other} and {nan}");
            }
        }
    }
}

#[test]
fn a_nan_produced_by_the_operator_is_canonical() {
    assert_eq!(fold_f64("sum", f64::INFINITY, f64::NEG_INFINITY), NAN_BITS);
    assert_eq!(fold_f64("prod", 0.0, f64::NEG_INFINITY), NAN_BITS);
    assert_eq!(fold_u16("f16 sum", 0x7c00, 0xfc00), 0x7e00);
    assert_eq!(fold_u16("bf16 prod", 0x8000, 0x7f80), 0x7fc0);
    for operator in ["sum", "prod", "min", "max"] {
        assert_eq!(fold_u16(&format!("f16 {operator}"), 0xfd01, 0x3c00), 0x7e00);
        assert_eq!(fold_u16(&format!("bf16 {operator}"), 0x3f80, 0xff81), 0x7fc0);
        let single = fold(&format!("f32 {operator}"), &[0x01, 0, 0x80, 0xff], &1.0_f32.to_le_bytes());
        assert_eq!(single, 0x7fc0_0000_u32.to_le_bytes());
    }
}

#[test]
fn minus_zero_is_below_plus_zero() {
    let (minus, plus) = ((-0.0_f64).to_bits(), 0);
    for (left, right) in [(-0.0, 0.0), (0.0, -0.0)] {
        assert_eq!(fold_f64("min", left, right), minus);
        assert_eq!(fold_f64("max", left, right), plus);
    }
    assert_eq!(fold_f64("sum", -0.0, -0.0), minus);
    assert_eq!(fold_f64("sum", -0.0, 0.0), plus);
    for element in ["f16", "bf16"] {
        assert_eq!(fold_u16(&format!("{element} min"), 0, 0x8000), 0x8000);
        assert_eq!(fold_u16(&format!("{element} max"), 0x8000, 0), 0);
    }
}

#[test]
fn infinities_are_the_extremes() {
    assert_eq!(fold_f64("min", f64::NEG_INFINITY, f64::MIN), f64::NEG_INFINITY.to_bits());
    assert_eq!(fold_f64("max", f64::MAX, f64::INFINITY), f64::INFINITY.to_bits());
    assert_eq!(fold_f64("sum", f64::MAX, f64::MAX), f64::INFINITY.to_bits());
    assert_eq!(fold_u16("f16 sum", 0x7bff, 0x7bff), 0x7c00);
}

#[test]
fn integers_wrap() {
    assert_eq!(fold("i8 sum", &[127], &[1]), [0x80]);
    assert_eq!(fold("u8 prod", &[16], &[17]), [16]);
    let result = fold("i64 prod", &i64::MIN.to_le_bytes(), &(-1_i64).to_le_bytes());
    assert_eq!(result, i64::MIN.to_le_bytes());
}

#[test]
fn halves_are_rounded_at_every_step() {
    // 2048 + 1 + 1: each 1 is half of the last place and rounds to even; their sum would not.
    let (large, one) = (0x6800_u16.to_le_bytes(), 0x3c00_u16.to_le_bytes());
    let result = kind("f16 sum").fold_all([&large[..], &one, &one].into_iter()).unwrap();
    assert_eq!(result, large);
}

fn f64_pair(value: f64, index: i32) -> Vec<u8> {
    let mut pair = value.to_le_bytes().to_vec();
    pair.extend(index.to_le_bytes());
    pair.extend([0; 4]);
    pair
}

#[test]
fn equal_values_give_the_smaller_index_in_either_order() {
    for operator in ["f64 minloc", "f64 maxloc"] {
        for (left, right) in [(7, 3), (3, 7)] {
            assert_eq!(fold(operator, &f64_pair(1.5, left), &f64_pair(1.5, right)), f64_pair(1.5, 3));
        }
        assert_eq!(fold(operator, &f64_pair(1.5, -1), &f64_pair(1.5, i32::MAX)), f64_pair(1.5, -1));
        assert_eq!(fold(operator, &f64_pair(1.5, i32::MAX), &f64_pair(1.5, i32::MAX)), f64_pair(1.5, i32::MAX));
    }
    assert_eq!(fold("f64 minloc", &f64_pair(2.0, 0), &f64_pair(1.0, 9)), f64_pair(1.0, 9));
    assert_eq!(fold("f64 maxloc", &f64_pair(2.0, i32::MAX), &f64_pair(1.0, 9)), f64_pair(2.0, i32::MAX));
}

#[test]
fn nan_wins_with_its_index_and_zeros_of_different_sign_differ() {
    let (nan, canonical) = (f64_pair(-f64::NAN, 5), f64_pair(f64::from_bits(NAN_BITS), 5));
    for operator in ["f64 minloc", "f64 maxloc"] {
        assert_eq!(fold(operator, &nan, &f64_pair(0.0, 1)), canonical);
        assert_eq!(fold(operator, &f64_pair(0.0, 1), &nan), canonical);
        assert_eq!(fold(operator, &f64_pair(f64::NAN, 8), &nan), canonical);
    }
    assert_eq!(fold("f64 minloc", &f64_pair(0.0, 1), &f64_pair(-0.0, 5)), f64_pair(-0.0, 5));
    assert_eq!(fold("f64 maxloc", &f64_pair(0.0, 5), &f64_pair(-0.0, 1)), f64_pair(0.0, 5));
}

#[test]
fn pairs_have_the_c_layout_and_zero_padding() {
    for element in ElementType::ALL.into_iter().filter(|element| !element.is_wide()) {
        let expected = if element.size() == 8 { 16 } else { 8 };
        assert_eq!(ReductionKind::new(element, Operator::MinLoc).unwrap().element_size(), expected);
    }
    let left = [5_u8, 0xaa, 0xbb, 0xcc, 1, 0, 0, 0];
    let right = [4_u8, 0xdd, 0xee, 0xff, 2, 0, 0, 0];
    assert_eq!(fold("u8 minloc", &left, &right), [4, 0, 0, 0, 2, 0, 0, 0]);
    let wide = |value: i64, padding: u8| {
        let mut pair = f64_pair(f64::from_bits(value as u64), 6);
        pair[12..].fill(padding);
        pair
    };
    assert_eq!(fold("i64 maxloc", &wide(-2, 0x11), &wide(-1, 0x22)), wide(-1, 0));
}

#[test]
fn bitwise_operators_on_floats_are_rejected() {
    for element in ElementType::ALL.into_iter().filter(|element| !element.is_wide()) {
        for operator in [Operator::And, Operator::Or, Operator::Xor] {
            let refused = Err(ReductionKindError::BitsOfFloat { element, operator });
            let kind = ReductionKind::new(element, operator);
            assert_eq!(kind.is_err(), element.is_float());
            assert!(kind.is_ok() || kind == refused);
        }
    }
    let error = ReductionKind::new(ElementType::F64, Operator::Xor).unwrap_err();
    assert_eq!(error.to_string(), "xor is a bitwise operator and does not apply to f64; use an integer type");
}

#[test]
fn exact_sums_can_only_be_summed() {
    for element in [ElementType::WideF32, ElementType::WideF64] {
        for operator in Operator::ALL {
            let refused = Err(ReductionKindError::NotASum { element, operator });
            assert!(ReductionKind::new(element, operator) == refused || operator == Operator::Sum, "{operator}");
        }
        assert_eq!(ReductionKind::new(element, Operator::Sum).unwrap().element_size(), element.size());
    }
    let error = ReductionKind::new(ElementType::WideF64, Operator::MinLoc).unwrap_err();
    assert_eq!(error.to_string(), "minloc does not apply to wide-f64, which supports only sum");
}

#[test]
fn errors_leave_the_accumulator_untouched() {
    let mut accumulator = [1_u8; 12];
    let different = kind("f32 sum").fold(&mut accumulator, &[2; 8]);
    assert_eq!(different, Err(FoldError::LengthsDiffer { accumulator: 12, operand: 8 }));
    let part = kind("f64 sum").fold(&mut accumulator, &[2; 12]);
    assert_eq!(part, Err(FoldError::PartOfElement { length: 12, element_size: 8 }));
    assert_eq!(accumulator, [1; 12]);
}

#[test]
fn no_operand_is_an_error_and_one_operand_is_the_result() {
    assert_eq!(kind("f64 sum").fold_all(std::iter::empty()), Err(FoldError::NoOperand));
    let odd_nan = 0xfff8_0000_0000_1234_u64.to_le_bytes();
    assert_eq!(kind("f64 sum").fold_all(std::iter::once(&odd_nan[..])), Ok(odd_nan.to_vec()));
    let part = kind("f64 sum").fold_all(std::iter::once(&odd_nan[..3]));
    assert_eq!(part, Err(FoldError::PartOfElement { length: 3, element_size: 8 }));
    assert_eq!(kind("i32 max").fold_all([&[][..], &[]].into_iter()), Ok(vec![]));
}
