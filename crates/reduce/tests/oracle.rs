//! Every reduction kind against the oracle, on operands full of NaN, infinities, zeros of both signs and ties (P-36).

use oracle::{Reduction, ReferenceOrder, contribution, edge_contribution, reference_of};
use proptest::prelude::*;
use reduce::{ElementType, Operator, ReductionKind};
use units::{OpId, Rank};

fn kinds() -> impl Iterator<Item = ReductionKind> {
    let operators =
        |element| Operator::ALL.into_iter().filter_map(move |operator| ReductionKind::new(element, operator).ok());
    ElementType::ALL.into_iter().flat_map(operators)
}

fn operation(kind: ReductionKind, count: usize) -> Reduction {
    let element = kind.element().name().parse().expect("the oracle knows all types");
    let operator = kind.operator().name().parse().expect("the oracle knows all operators");
    Reduction { element, operator, count }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_kind_folds_like_the_oracle(seed: u64, ranks in 2_u32..10, count in 1_usize..20) {
        for kind in kinds() {
            let operation = operation(kind, count);
            prop_assert_eq!((operation.element_bytes(), operation.is_defined()), (kind.element_size(), true));
            for contribution in [contribution, edge_contribution] {
                let operand = |rank: Rank| contribution(seed, rank, OpId(0), &operation);
                let expected = reference_of(&operation, &ReferenceOrder::flat(ranks), operand);
                let operands: Vec<Vec<u8>> = (0..ranks).map(|rank| operand(Rank(rank))).collect();
                prop_assert_eq!(kind.fold_all(operands.iter().map(Vec::as_slice)), Ok(expected), "{}", kind);
            }
        }
    }
}

#[test]
fn reduce_and_oracle_reject_the_same_kinds() {
    for (element, operator) in ElementType::ALL.into_iter().flat_map(|e| Operator::ALL.map(|o| (e, o))) {
        let (name, verb) = (element.name().parse().unwrap(), operator.name().parse().unwrap());
        let is_defined = Reduction { element: name, operator: verb, count: 1 }.is_defined();
        assert_eq!(ReductionKind::new(element, operator).is_ok(), is_defined, "{element} {operator}");
    }
    assert_eq!(ElementType::ALL.len(), oracle::ReductionElement::ALL.len());
}
