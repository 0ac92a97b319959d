//! The table of choices is under review as a snapshot: whoever moves a constant sees what it moves.

use std::fmt::Write;

use proptest::prelude::*;
use reduce::{ElementType, Operator, ReductionKind};
use units::Rank;

use super::*;
use crate::collective::CollectiveSchedule;

const SUM: ReductionKind = match ReductionKind::new(ElementType::F32, Operator::Sum) {
    Ok(kind) => kind,
    Err(_) => unreachable!(),
};
const COLLECTIVES: [CollectiveOperation; 4] = [
    CollectiveOperation::Barrier,
    CollectiveOperation::Broadcast { root: Rank(0) },
    CollectiveOperation::Reduce { root: Rank(0), kind: SUM },
    CollectiveOperation::AllReduce { kind: SUM },
];
const TRANSPORTS: [TransportClass; 3] =
    [TransportClass::SharedMemory, TransportClass::Fabric, TransportClass::Datagrams];
const TWO_LEVELS: AggregationOffer =
    AggregationOffer { most_bytes: 1 << 26, levels: 2, children: 16, multicast: MulticastSupport::Unused };

/// A tree of nodes with up to 16 children.
fn offer_for(size: u32) -> AggregationOffer {
    let levels = (1..).find(|levels| 16_u32.pow(*levels) >= size).expect("there is one");
    AggregationOffer { levels: levels as u8, children: size.min(16) as u16, ..TWO_LEVELS }
}

fn situation() -> SelectionInput {
    SelectionInput {
        collective: CollectiveOperation::AllReduce { kind: SUM },
        bytes: 8,
        size: 64,
        ranks_per_host: 1,
        per_processor: 1,
        operands: OperandOrder::Commute,
        aggregation: AggregationAvailability::NotOffered(AggregationUnavailable::NoManager),
        transport: TransportClass::Datagrams,
        preferred: None,
    }
}

fn table(base: SelectionInput, collectives: &[CollectiveOperation]) -> String {
    let mut table = String::new();
    for collective in collectives {
        let every_length = [8, 256, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
        let lengths = if *collective == CollectiveOperation::Barrier { &[0] } else { &every_length[..] };
        for transport in TRANSPORTS {
            writeln!(table, "{collective}, {transport:?}").expect("strings do not fail");
            for size in [2, 3, 8, 16, 24, 100, 1024, 1 << 20] {
                write!(table, "{size:>8}").expect("strings do not fail");
                for bytes in lengths {
                    let aggregation = match base.aggregation {
                        AggregationAvailability::Offered(AggregationOffer { multicast, .. }) => {
                            AggregationAvailability::Offered(AggregationOffer { multicast, ..offer_for(size) })
                        }
                        not_offered => not_offered,
                    };
                    let (collective, bytes) = (*collective, *bytes);
                    let choice =
                        choose_method(&SelectionInput { collective, bytes, size, transport, aggregation, ..base });
                    let method = match choice.method {
                        InterHostMethod::Hosts(algorithm) => short(algorithm),
                        InterHostMethod::Aggregation => "nodes".to_owned(),
                        InterHostMethod::Multicast => "all".to_owned(),
                        InterHostMethod::OneParty => "-".to_owned(),
                    };
                    write!(table, " {method:>8}").expect("strings do not fail");
                }
                table.push('\n');
            }
        }
    }
    table
}

fn short(algorithm: CollectiveAlgorithm) -> String {
    match algorithm {
        CollectiveAlgorithm::RecursiveDoubling => "doubling".to_owned(),
        CollectiveAlgorithm::RecursiveKing { radix } => format!("king {radix}"),
        CollectiveAlgorithm::Rabenseifner => "Rabens.".to_owned(),
        CollectiveAlgorithm::Ring => "ring".to_owned(),
        CollectiveAlgorithm::Tree { radix } => format!("tree {radix}"),
        CollectiveAlgorithm::ScatterAllgather => "scatter".to_owned(),
        CollectiveAlgorithm::Dissemination { radix } => format!("diss. {radix}"),
        CollectiveAlgorithm::OrderedTree => "o-tree".to_owned(),
        CollectiveAlgorithm::OrderedBlocks => "o-blocks".to_owned(),
    }
}

#[test]
fn choices_of_hosts_alone() {
    insta::assert_snapshot!(table(situation(), &COLLECTIVES));
}

#[test]
fn choices_with_aggregation() {
    let base = SelectionInput { aggregation: AggregationAvailability::Offered(TWO_LEVELS), ..situation() };
    insta::assert_snapshot!(table(base, &COLLECTIVES));
}

#[test]
fn choices_where_multicast_is_heard() {
    let heard = AggregationOffer { multicast: MulticastSupport::Heard, ..TWO_LEVELS };
    let base = SelectionInput { aggregation: AggregationAvailability::Offered(heard), ..situation() };
    insta::assert_snapshot!(table(base, &COLLECTIVES[..2]));
}

#[test]
fn what_the_user_wants_is_done_where_it_can_be() {
    let heard =
        AggregationAvailability::Offered(AggregationOffer { multicast: MulticastSupport::Heard, ..TWO_LEVELS });
    let barrier =
        SelectionInput { collective: CollectiveOperation::Barrier, bytes: 0, aggregation: heard, ..situation() };
    let wants = |preferred, situation: SelectionInput| {
        choose_method(&SelectionInput { preferred: Some(preferred), ..situation })
    };
    assert_eq!(choose_method(&barrier).method, InterHostMethod::Aggregation);
    let short = |per_processor: u32| {
        choose_method(&SelectionInput { collective: COLLECTIVES[1], bytes: 8, per_processor, ..barrier })
    };
    assert_eq!(short(1).method, InterHostMethod::Multicast);
    assert!(matches!(short(8).method, InterHostMethod::Hosts(_)));
    assert_eq!(wants(PreferredMethod::Multicast, barrier).method, InterHostMethod::Multicast);
    assert!(matches!(wants(PreferredMethod::Hosts, barrier).method, InterHostMethod::Hosts(_)));
    let spread = CollectiveAlgorithm::Dissemination { radix: 4 };
    assert_eq!(wants(PreferredMethod::Algorithm(spread), barrier).method, InterHostMethod::Hosts(spread));
    // What cannot be is said, and something else done.
    let unheard = SelectionInput { aggregation: AggregationAvailability::Offered(TWO_LEVELS), ..barrier };
    for (situation, preferred) in [
        (unheard, PreferredMethod::Multicast),
        (SelectionInput { aggregation: situation().aggregation, ..barrier }, PreferredMethod::Aggregation),
        (barrier, PreferredMethod::Algorithm(CollectiveAlgorithm::Ring)),
        (SelectionInput { collective: COLLECTIVES[3], bytes: 8, ..barrier }, PreferredMethod::Multicast),
    ] {
        let (without, with) = (choose_method(&situation), wants(preferred, situation));
        assert_eq!(with.method, without.method, "{with}");
        assert_eq!(with.reasons()[0], ChoiceReason::CannotBeHad(preferred), "{with}");
    }
}

#[test]
fn choices_for_the_bits_of_the_tree() {
    let base = SelectionInput { operands: OperandOrder::AsInTree, ..situation() };
    insta::assert_snapshot!(table(base, &COLLECTIVES[2..]));
}

#[test]
fn choices_explain_themselves() {
    let explain = |situation: SelectionInput| choose_method(&situation).to_string();
    let offered = SelectionInput { aggregation: AggregationAvailability::Offered(TWO_LEVELS), ..situation() };
    let small_offer = AggregationAvailability::Offered(AggregationOffer { most_bytes: 256, ..TWO_LEVELS });
    let sentences = [
        explain(situation()),
        explain(offered),
        explain(SelectionInput { bytes: 16 << 20, ..offered }),
        explain(SelectionInput { bytes: 512, aggregation: small_offer, ..situation() }),
        explain(SelectionInput { ranks_per_host: 8, ..offered }),
        explain(SelectionInput { ranks_per_host: 64, ..offered }),
        explain(SelectionInput { ranks_per_host: 8, operands: OperandOrder::InRankOrder, ..offered }),
        explain(SelectionInput {
            operands: OperandOrder::AsInTree,
            aggregation: AggregationAvailability::NotOffered(AggregationUnavailable::NodeLost),
            ..situation()
        }),
        explain(SelectionInput { collective: CollectiveOperation::Barrier, bytes: 0, ..situation() }),
    ];
    insta::assert_snapshot!(sentences.join("\n"));
}

#[test]
fn operators_that_do_not_commute_never_take_the_ring_or_the_nodes() {
    for size in 2..200 {
        for bytes in [8, 4 << 10, 1 << 20, 16 << 20] {
            let aggregation = AggregationAvailability::Offered(TWO_LEVELS);
            let operands = OperandOrder::InRankOrder;
            let choice = choose_method(&SelectionInput { size, bytes, aggregation, operands, ..situation() });
            assert!(
                !matches!(
                    choice.method,
                    InterHostMethod::Aggregation | InterHostMethod::Hosts(CollectiveAlgorithm::Ring)
                ),
                "{choice}"
            );
            let commuting = choose_method(&SelectionInput { size, bytes, ..situation() });
            assert!(!matches!(commuting.method, InterHostMethod::Aggregation), "{commuting}");
        }
    }
}

#[test]
fn what_was_reserved_is_not_exceeded() {
    let offer = AggregationOffer { most_bytes: 1000, ..TWO_LEVELS };
    let choice = |bytes| {
        choose_method(&SelectionInput { bytes, aggregation: AggregationAvailability::Offered(offer), ..situation() })
    };
    assert_eq!(choice(1000).method, InterHostMethod::Aggregation);
    assert_ne!(choice(1004).method, InterHostMethod::Aggregation);
    assert_eq!(choice(1004).reasons()[0], ChoiceReason::TooLong { most_bytes: 1000 });
}

fn situations() -> impl Strategy<Value = SelectionInput> {
    let operands =
        prop::sample::select(vec![OperandOrder::Commute, OperandOrder::InRankOrder, OperandOrder::AsInTree]);
    let offer = (any::<u32>(), any::<u8>(), any::<u16>()).prop_map(|(most_bytes, levels, children)| {
        AggregationAvailability::Offered(AggregationOffer { most_bytes, levels, children, ..TWO_LEVELS })
    });
    let aggregation = prop_oneof![Just(AggregationAvailability::NotOffered(AggregationUnavailable::NoRoom)), offer];
    let collective = prop::sample::select(&COLLECTIVES[..]);
    let transport = prop::sample::select(&TRANSPORTS[..]);
    let size = prop_oneof![0..300_u32, any::<u32>()];
    let bytes = prop_oneof![0..10_000_u32, any::<u32>()];
    (collective, bytes, size, 0..70_u32, any::<u32>(), operands, aggregation, transport).prop_map(
        |(collective, bytes, size, ranks_per_host, per_processor, operands, aggregation, transport)| {
            let bytes = if collective == CollectiveOperation::Barrier { 0 } else { bytes / 4 * 4 };
            let preferred = None;
            SelectionInput {
                collective,
                bytes,
                size,
                ranks_per_host,
                per_processor,
                operands,
                aggregation,
                transport,
                preferred,
            }
        },
    )
}

proptest! {
    /// Nothing in a situation makes the selector panic, and what it chooses among hosts can be planned.
    #[test]
    fn every_choice_can_be_played(situation in situations()) {
        let choice = choose_method(&situation);
        prop_assert!(!choice.reasons().is_empty() && !choice.to_string().is_empty());
        prop_assert_eq!(&choice, &choose_method(&situation));
        if let InterHostMethod::Hosts(algorithm) = choice.method
            && !algorithm.is_ordered()
            && choice.parties <= crate::collective::MAX_RANKS
        {
            let plan = CollectiveSchedule::new(algorithm, situation.collective, Rank(0), choice.parties, situation.bytes);
            prop_assert!(plan.is_ok(), "{:?}", plan);
        }
    }
}

#[test]
fn where_processors_are_shared_few_messages_count_more_than_few_rounds() {
    let crowded = SelectionInput { per_processor: 32, ..situation() };
    assert_eq!(choose_method(&situation()).method, InterHostMethod::Hosts(CollectiveAlgorithm::RecursiveDoubling));
    assert!(matches!(choose_method(&crowded).method, InterHostMethod::Hosts(CollectiveAlgorithm::Tree { .. })));
    // One node for all would be the bottleneck of hosts with processors of their own.
    let flat = AggregationAvailability::Offered(AggregationOffer { levels: 1, children: 64, ..TWO_LEVELS });
    assert!(matches!(
        choose_method(&SelectionInput { aggregation: flat, ..situation() }).method,
        InterHostMethod::Hosts(_)
    ));
    assert_eq!(choose_method(&SelectionInput { aggregation: flat, ..crowded }).method, InterHostMethod::Aggregation);
}
