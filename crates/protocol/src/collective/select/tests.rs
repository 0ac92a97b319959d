//! Snapshots of the table of choices, so that a review shows the effect of a changed constant.

use std::fmt::Write;

use proptest::prelude::*;
use reduce::{ElementType, Operator, ReductionKind};
use units::Rank;

use super::*;
use crate::collective::{BlockLayout, CollectiveSchedule, ScanExtent};

const SUM: ReductionKind = match ReductionKind::new(ElementType::F32, Operator::Sum) {
    Ok(kind) => kind,
    Err(_) => unreachable!(),
};
const INTEGER_SUM: CollectiveOperation = CollectiveOperation::AllReduce {
    kind: match ReductionKind::new(ElementType::I64, Operator::Sum) {
        Ok(kind) => kind,
        Err(_) => unreachable!(),
    },
};
const COLLECTIVES: [CollectiveOperation; 4] = [
    CollectiveOperation::Barrier,
    CollectiveOperation::Broadcast { root: Rank(0) },
    CollectiveOperation::Reduce { root: Rank(0), kind: SUM },
    CollectiveOperation::AllReduce { kind: SUM },
];
const BLOCK_COLLECTIVES: [CollectiveOperation; 7] = [
    CollectiveOperation::ReduceScatter { kind: SUM },
    CollectiveOperation::Scan { kind: SUM, extent: ScanExtent::Inclusive },
    CollectiveOperation::Scan { kind: SUM, extent: ScanExtent::Exclusive },
    CollectiveOperation::AllGather,
    CollectiveOperation::Gather { root: Rank(0) },
    CollectiveOperation::Scatter { root: Rank(0) },
    CollectiveOperation::AllToAll,
];
const TRANSPORTS: [TransportClass; 3] =
    [TransportClass::SharedMemory, TransportClass::Fabric, TransportClass::Datagrams];
const TWO_LEVELS: AggregationOffer =
    AggregationOffer { max_bytes: 1 << 26, levels: 2, children: 16, multicast: MulticastSupport::Disabled };

/// A tree of nodes with up to 16 children.
fn offer_for(size: u32) -> AggregationOffer {
    let levels = (1..).find(|levels| 16_u32.pow(*levels) >= size).expect("there is one");
    AggregationOffer { levels: levels as u8, children: size.min(16) as u16, ..TWO_LEVELS }
}

fn input() -> SelectionInput {
    SelectionInput {
        collective: CollectiveOperation::AllReduce { kind: SUM },
        bytes: 8,
        size: 64,
        ranks_per_host: 1,
        ranks_per_processor: 1,
        operand_order: OperandOrder::Any,
        aggregation: AggregationAvailability::Unavailable(AggregationUnavailable::NoManager),
        transport: TransportClass::Datagrams,
        network_costs: None,
        measured: None,
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
                        InterHostMethod::PointToPoint(algorithm) => short(algorithm),
                        InterHostMethod::Aggregation => "nodes".to_owned(),
                        InterHostMethod::Multicast => "all".to_owned(),
                        InterHostMethod::SingleHost => "-".to_owned(),
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
        CollectiveAlgorithm::RecursiveHalving => "halving".to_owned(),
        CollectiveAlgorithm::Rabenseifner => "Rabens.".to_owned(),
        CollectiveAlgorithm::Ring => "ring".to_owned(),
        CollectiveAlgorithm::Tree { radix } => format!("tree {radix}"),
        CollectiveAlgorithm::ScatterAllgather => "scatter".to_owned(),
        CollectiveAlgorithm::Chain => "chain".to_owned(),
        CollectiveAlgorithm::Dissemination { radix } => format!("diss. {radix}"),
        CollectiveAlgorithm::Direct => "direct".to_owned(),
        CollectiveAlgorithm::OrderedTree => "o-tree".to_owned(),
        CollectiveAlgorithm::OrderedBlocks => "o-blocks".to_owned(),
    }
}

#[test]
fn choices_without_aggregation() {
    insta::assert_snapshot!(table(input(), &COLLECTIVES));
}

#[test]
fn choices_for_blocks_and_prefixes() {
    insta::assert_snapshot!(table(input(), &BLOCK_COLLECTIVES));
}

#[test]
fn aggregation_nodes_are_never_asked_for_blocks_or_prefixes() {
    let with_multicast = AggregationOffer { multicast: MulticastSupport::Verified, ..TWO_LEVELS };
    let aggregation = AggregationAvailability::Offered(with_multicast);
    let methods = [None, Some(PreferredMethod::Aggregation), Some(PreferredMethod::Multicast)];
    for (collective, preferred) in
        BLOCK_COLLECTIVES.into_iter().flat_map(|collective| methods.map(|method| (collective, method)))
    {
        let measured = Some(measured(1, 1_000_000));
        let choice = choose_method(&SelectionInput { collective, aggregation, preferred, measured, ..input() });
        assert!(matches!(choice.method, InterHostMethod::PointToPoint(_)), "{choice}");
        assert!(choice.reasons().contains(&ChoiceReason::NotAggregated), "{choice}");
    }
}

#[test]
fn choices_with_aggregation() {
    let base = SelectionInput { aggregation: AggregationAvailability::Offered(TWO_LEVELS), ..input() };
    insta::assert_snapshot!(table(base, &COLLECTIVES));
}

#[test]
fn choices_with_verified_multicast() {
    let with_multicast = AggregationOffer { multicast: MulticastSupport::Verified, ..TWO_LEVELS };
    let base = SelectionInput { aggregation: AggregationAvailability::Offered(with_multicast), ..input() };
    insta::assert_snapshot!(table(base, &COLLECTIVES[..2]));
}

#[test]
fn preferences_apply_where_they_are_available() {
    let with_multicast =
        AggregationAvailability::Offered(AggregationOffer { multicast: MulticastSupport::Verified, ..TWO_LEVELS });
    let barrier =
        SelectionInput { collective: CollectiveOperation::Barrier, bytes: 0, aggregation: with_multicast, ..input() };
    let prefer =
        |preferred, input: SelectionInput| choose_method(&SelectionInput { preferred: Some(preferred), ..input });
    let short = |ranks_per_processor: u32| {
        choose_method(&SelectionInput { collective: COLLECTIVES[1], bytes: 8, ranks_per_processor, ..barrier })
    };
    assert_eq!(short(1).method, InterHostMethod::Multicast);
    assert!(matches!(short(8).method, InterHostMethod::PointToPoint(_)));
    assert_eq!(prefer(PreferredMethod::Multicast, barrier).method, InterHostMethod::Multicast);
    assert!(matches!(prefer(PreferredMethod::Hosts, barrier).method, InterHostMethod::PointToPoint(_)));
    let dissemination = CollectiveAlgorithm::Dissemination { radix: 4 };
    assert_eq!(
        prefer(PreferredMethod::Algorithm(dissemination), barrier).method,
        InterHostMethod::PointToPoint(dissemination)
    );
    // An unavailable preference is reported, and the usual choice applies.
    let without_multicast = SelectionInput { aggregation: AggregationAvailability::Offered(TWO_LEVELS), ..barrier };
    for (input, preferred) in [
        (without_multicast, PreferredMethod::Multicast),
        (SelectionInput { aggregation: input().aggregation, ..barrier }, PreferredMethod::Aggregation),
        (barrier, PreferredMethod::Algorithm(CollectiveAlgorithm::Ring)),
        (SelectionInput { collective: COLLECTIVES[3], bytes: 8, ..barrier }, PreferredMethod::Multicast),
    ] {
        let (without, with) = (choose_method(&input), prefer(preferred, input));
        assert_eq!(with.method, without.method, "{with}");
        assert_eq!(with.reasons()[0], ChoiceReason::PreferenceUnavailable(preferred), "{with}");
    }
}

#[test]
fn the_error_of_an_unknown_algorithm_lists_all_that_can_be_requested() {
    let text = "nonsense".parse::<MethodPreferences>().expect_err("there is none").to_string();
    for algorithm in cost_model::CANDIDATES.into_iter().filter(|algorithm| !algorithm.is_ordered()) {
        let named = MethodPreferences::for_all(PreferredMethod::Algorithm(algorithm)).to_string();
        let last = named.rsplit(['=', ',']).next().unwrap_or_default();
        let name = last.split(':').next().unwrap_or_default();
        assert!(!name.is_empty() && text.contains(&format!(" {name}")), "{name} is not in: {text}");
    }
}

#[test]
fn choices_that_keep_the_bits_of_the_tree() {
    let base = SelectionInput { operand_order: OperandOrder::TreeOrder, ..input() };
    insta::assert_snapshot!(table(base, &COLLECTIVES[2..]));
}

#[test]
fn choices_explain_themselves() {
    let explain = |input: SelectionInput| choose_method(&input).to_string();
    let offered = SelectionInput { aggregation: AggregationAvailability::Offered(TWO_LEVELS), ..input() };
    let small_offer = AggregationAvailability::Offered(AggregationOffer { max_bytes: 256, ..TWO_LEVELS });
    let sentences = [
        explain(input()),
        explain(offered),
        explain(SelectionInput { bytes: 16 << 20, ..offered }),
        explain(SelectionInput { bytes: 512, aggregation: small_offer, ..input() }),
        explain(SelectionInput { ranks_per_host: 8, ..offered }),
        explain(SelectionInput { ranks_per_host: 64, ..offered }),
        explain(SelectionInput { ranks_per_host: 8, operand_order: OperandOrder::RankOrder, ..offered }),
        explain(SelectionInput {
            operand_order: OperandOrder::TreeOrder,
            aggregation: AggregationAvailability::Unavailable(AggregationUnavailable::NodeLost),
            ..input()
        }),
        explain(SelectionInput { collective: CollectiveOperation::Barrier, bytes: 0, ..input() }),
        explain(SelectionInput { collective: INTEGER_SUM, measured: Some(measured(20_000, 30_000)), ..offered }),
        explain(SelectionInput { collective: INTEGER_SUM, measured: Some(measured(30_000, 20_000)), ..offered }),
    ];
    insta::assert_snapshot!(sentences.join("\n"));
}

#[test]
fn without_a_tree_the_choice_says_which_of_the_reasons_holds() {
    for (why, text) in [
        (AggregationUnavailable::NoManager, "no aggregation manager is configured"),
        (AggregationUnavailable::ManagerUnusable, "the aggregation manager could not be used"),
        (AggregationUnavailable::Refused, "the aggregation manager refused a tree"),
        (AggregationUnavailable::NoNodes, "no aggregation nodes serve all hosts of the group"),
        (AggregationUnavailable::NoCapacity, "the aggregation nodes have too few resources left"),
        (AggregationUnavailable::NodeLost, "an aggregation node of the group was lost"),
        (AggregationUnavailable::SingleHost, "a single host needs no aggregation nodes"),
        (AggregationUnavailable::Disabled, "aggregation is disabled"),
    ] {
        let aggregation = AggregationAvailability::Unavailable(why);
        let explained = choose_method(&SelectionInput { aggregation, ..input() }).to_string();
        assert!(explained.starts_with(&format!("recursive doubling, among 64 ranks: {text}; ")), "{explained}");
    }
}

/// An allreduce of 8 bytes took so long through the nodes and among the hosts, one of 4 KiB twice as long.
fn measured(aggregation_ns: u64, point_to_point_ns: u64) -> MeasuredTimes {
    let times = |ns: u64| MethodTimes { ns: [ns, 2 * ns] };
    MeasuredTimes { point_to_point: times(point_to_point_ns), aggregation: times(aggregation_ns) }
}

#[test]
fn what_was_measured_decides_between_nodes_and_hosts() {
    let offered = SelectionInput { aggregation: AggregationAvailability::Offered(TWO_LEVELS), ..input() };
    for collective in [COLLECTIVES[0], INTEGER_SUM] {
        for bytes in [0, 8, 100, 1000, 4 << 10] {
            let choose = |measured| {
                choose_method(&SelectionInput { collective, bytes, size: 16, measured: Some(measured), ..offered })
                    .method
            };
            assert_eq!(choose(measured(20_000, 40_000)), InterHostMethod::Aggregation, "{collective} {bytes}");
            assert!(
                matches!(choose(measured(80_000, 20_000)), InterHostMethod::PointToPoint(_)),
                "{collective} {bytes}"
            );
        }
    }
    // Times that nobody can have measured do not make it panic.
    let absurd = SelectionInput { collective: INTEGER_SUM, measured: Some(measured(u64::MAX / 2, 0)), ..offered };
    assert!(matches!(choose_method(&absurd).method, InterHostMethod::PointToPoint(_)));
}

#[test]
fn broadcasts_long_vectors_and_rounded_sums_follow_the_estimates() {
    let offered = SelectionInput { aggregation: AggregationAvailability::Offered(TWO_LEVELS), ..input() };
    let measured = Some(measured(1, 1_000_000));
    for input in [
        SelectionInput { collective: COLLECTIVES[1], ..offered },
        SelectionInput { collective: INTEGER_SUM, bytes: MIN_STREAMED_BYTES, ..offered },
        SelectionInput { collective: COLLECTIVES[2], ..offered },
        SelectionInput { collective: COLLECTIVES[3], ..offered },
    ] {
        assert_eq!(choose_method(&SelectionInput { measured, ..input }), choose_method(&input));
    }
}

#[test]
fn operators_that_do_not_commute_never_use_the_ring_or_the_nodes() {
    for size in 2..200 {
        for bytes in [8, 4 << 10, 1 << 20, 16 << 20] {
            let aggregation = AggregationAvailability::Offered(TWO_LEVELS);
            let operand_order = OperandOrder::RankOrder;
            let choice = choose_method(&SelectionInput { size, bytes, aggregation, operand_order, ..input() });
            assert!(
                !matches!(
                    choice.method,
                    InterHostMethod::Aggregation | InterHostMethod::PointToPoint(CollectiveAlgorithm::Ring)
                ),
                "{choice}"
            );
            let commuting = choose_method(&SelectionInput { size, bytes, ..input() });
            assert!(!matches!(commuting.method, InterHostMethod::Aggregation), "{commuting}");
        }
    }
}

#[test]
fn aggregation_never_exceeds_the_reservation() {
    let aggregation = AggregationAvailability::Offered(AggregationOffer { max_bytes: 1000, ..TWO_LEVELS });
    let measured = Some(measured(10_000, 30_000));
    let choice =
        |bytes| choose_method(&SelectionInput { collective: INTEGER_SUM, bytes, aggregation, measured, ..input() });
    assert_eq!(choice(1000).method, InterHostMethod::Aggregation);
    assert_ne!(choice(1004).method, InterHostMethod::Aggregation);
    assert_eq!(choice(1004).reasons()[0], ChoiceReason::TooLong { max_bytes: 1000 });
}

fn inputs() -> impl Strategy<Value = SelectionInput> {
    let operand_order =
        prop::sample::select(vec![OperandOrder::Any, OperandOrder::RankOrder, OperandOrder::TreeOrder]);
    let offer = (any::<u32>(), any::<u8>(), any::<u16>()).prop_map(|(max_bytes, levels, children)| {
        AggregationAvailability::Offered(AggregationOffer { max_bytes, levels, children, ..TWO_LEVELS })
    });
    let aggregation =
        prop_oneof![Just(AggregationAvailability::Unavailable(AggregationUnavailable::NoCapacity)), offer];
    let collective = prop::sample::select([&COLLECTIVES[..], &BLOCK_COLLECTIVES[..]].concat());
    let transport = prop::sample::select(&TRANSPORTS[..]);
    let size = prop_oneof![0..300_u32, any::<u32>()];
    let bytes = prop_oneof![0..10_000_u32, any::<u32>()];
    (collective, bytes, size, 0..70_u32, any::<u32>(), operand_order, aggregation, transport).prop_map(
        |(collective, bytes, size, ranks_per_host, ranks_per_processor, operand_order, aggregation, transport)| {
            let bytes = if collective == CollectiveOperation::Barrier { 0 } else { bytes / 4 * 4 };
            let (measured, preferred) = (None, None);
            SelectionInput {
                collective,
                bytes,
                size,
                ranks_per_host,
                ranks_per_processor,
                operand_order,
                aggregation,
                transport,
                network_costs: None,
                measured,
                preferred,
            }
        },
    )
}

proptest! {
    /// No input makes the selection panic, and every point-to-point choice has a schedule.
    #[test]
    fn every_choice_has_a_schedule(input in inputs()) {
        let choice = choose_method(&input);
        prop_assert!(!choice.reasons().is_empty() && !choice.to_string().is_empty());
        prop_assert_eq!(&choice, &choose_method(&input));
        if let InterHostMethod::PointToPoint(algorithm) = choice.method
            && !algorithm.is_ordered()
            && choice.participant_count <= crate::collective::MAX_RANKS
        {
            let (collective, size) = (input.collective, choice.participant_count);
            let schedule = if collective.has_blocks() {
                let blocks = BlockLayout::equal(size.min(1 << 16), 4).expect("few and short");
                CollectiveSchedule::in_blocks(algorithm, collective, Rank(0), blocks.into())
            } else {
                CollectiveSchedule::new(algorithm, collective, Rank(0), size, input.bytes)
            };
            prop_assert!(schedule.is_ok(), "{:?}", schedule);
        }
    }
}

#[test]
fn oversubscription_prefers_few_messages_to_few_rounds() {
    let crowded = SelectionInput { ranks_per_processor: 32, ..input() };
    assert_eq!(choose_method(&input()).method, InterHostMethod::PointToPoint(CollectiveAlgorithm::RecursiveDoubling));
    assert!(matches!(
        choose_method(&crowded).method,
        InterHostMethod::PointToPoint(CollectiveAlgorithm::Tree { .. })
    ));
    // One node for all hosts is the bottleneck if every host has its own processor.
    let flat = AggregationAvailability::Offered(AggregationOffer { levels: 1, children: 64, ..TWO_LEVELS });
    assert!(matches!(
        choose_method(&SelectionInput { aggregation: flat, ..input() }).method,
        InterHostMethod::PointToPoint(_)
    ));
    assert_eq!(choose_method(&SelectionInput { aggregation: flat, ..crowded }).method, InterHostMethod::Aggregation);
}
