//! The table of choices is under review as a snapshot: whoever moves a constant sees what it moves.

use std::fmt::Write;

use proptest::prelude::*;
use reduce::{ElementType, Kind, Operator};
use units::Rank;

use super::*;
use crate::collective::Plan;

const SUM: Kind = match Kind::new(ElementType::F32, Operator::Sum) {
    Ok(kind) => kind,
    Err(_) => unreachable!(),
};
const COLLECTIVES: [Collective; 4] = [
    Collective::Barrier,
    Collective::Broadcast { root: Rank(0) },
    Collective::Reduce { root: Rank(0), kind: SUM },
    Collective::AllReduce { kind: SUM },
];
const TRANSPORTS: [Transport; 3] = [Transport::SharedMemory, Transport::Fabric, Transport::Datagrams];
const TWO_LEVELS: Offer = Offer { most_bytes: 1 << 26, levels: 2, children: 16, multicast: Multicast::Unused };

/// A tree of nodes with up to 16 children.
fn offer_for(size: u32) -> Offer {
    let levels = (1..).find(|levels| 16_u32.pow(*levels) >= size).expect("there is one");
    Offer { levels: levels as u8, children: size.min(16) as u16, ..TWO_LEVELS }
}

fn situation() -> Situation {
    Situation {
        collective: Collective::AllReduce { kind: SUM },
        bytes: 8,
        size: 64,
        ranks_per_host: 1,
        per_processor: 1,
        operands: Operands::Commute,
        aggregation: Aggregation::NotOffered(NotOffered::NoManager),
        transport: Transport::Datagrams,
        preferred: None,
    }
}

fn table(base: Situation, collectives: &[Collective]) -> String {
    let mut table = String::new();
    for collective in collectives {
        let every_length = [8, 256, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
        let lengths = if *collective == Collective::Barrier { &[0] } else { &every_length[..] };
        for transport in TRANSPORTS {
            writeln!(table, "{collective}, {transport:?}").expect("strings do not fail");
            for size in [2, 3, 8, 16, 24, 100, 1024, 1 << 20] {
                write!(table, "{size:>8}").expect("strings do not fail");
                for bytes in lengths {
                    let aggregation = match base.aggregation {
                        Aggregation::Offered(Offer { multicast, .. }) => {
                            Aggregation::Offered(Offer { multicast, ..offer_for(size) })
                        }
                        not_offered => not_offered,
                    };
                    let (collective, bytes) = (*collective, *bytes);
                    let choice = choose(&Situation { collective, bytes, size, transport, aggregation, ..base });
                    let method = match choice.method {
                        Method::Hosts(algorithm) => short(algorithm),
                        Method::Aggregation => "nodes".to_owned(),
                        Method::Multicast => "all".to_owned(),
                        Method::OneParty => "-".to_owned(),
                    };
                    write!(table, " {method:>8}").expect("strings do not fail");
                }
                table.push('\n');
            }
        }
    }
    table
}

fn short(algorithm: Algorithm) -> String {
    match algorithm {
        Algorithm::RecursiveDoubling => "doubling".to_owned(),
        Algorithm::RecursiveKing { radix } => format!("king {radix}"),
        Algorithm::Rabenseifner => "Rabens.".to_owned(),
        Algorithm::Ring => "ring".to_owned(),
        Algorithm::Tree { radix } => format!("tree {radix}"),
        Algorithm::ScatterAllgather => "scatter".to_owned(),
        Algorithm::Dissemination { radix } => format!("diss. {radix}"),
        Algorithm::OrderedTree => "o-tree".to_owned(),
        Algorithm::OrderedBlocks => "o-blocks".to_owned(),
    }
}

#[test]
fn choices_of_hosts_alone() {
    insta::assert_snapshot!(table(situation(), &COLLECTIVES));
}

#[test]
fn choices_with_aggregation() {
    let base = Situation { aggregation: Aggregation::Offered(TWO_LEVELS), ..situation() };
    insta::assert_snapshot!(table(base, &COLLECTIVES));
}

#[test]
fn choices_where_multicast_is_heard() {
    let heard = Offer { multicast: Multicast::Heard, ..TWO_LEVELS };
    let base = Situation { aggregation: Aggregation::Offered(heard), ..situation() };
    insta::assert_snapshot!(table(base, &COLLECTIVES[..2]));
}

#[test]
fn what_the_user_wants_is_done_where_it_can_be() {
    let heard = Aggregation::Offered(Offer { multicast: Multicast::Heard, ..TWO_LEVELS });
    let barrier = Situation { collective: Collective::Barrier, bytes: 0, aggregation: heard, ..situation() };
    let wants = |preferred, situation: Situation| choose(&Situation { preferred: Some(preferred), ..situation });
    assert_eq!(choose(&barrier).method, Method::Aggregation);
    let short =
        |per_processor: u32| choose(&Situation { collective: COLLECTIVES[1], bytes: 8, per_processor, ..barrier });
    assert_eq!(short(1).method, Method::Multicast);
    assert!(matches!(short(8).method, Method::Hosts(_)));
    assert_eq!(wants(Preferred::Multicast, barrier).method, Method::Multicast);
    assert!(matches!(wants(Preferred::Hosts, barrier).method, Method::Hosts(_)));
    let spread = Algorithm::Dissemination { radix: 4 };
    assert_eq!(wants(Preferred::Algorithm(spread), barrier).method, Method::Hosts(spread));
    // What cannot be is said, and something else done.
    let unheard = Situation { aggregation: Aggregation::Offered(TWO_LEVELS), ..barrier };
    for (situation, preferred) in [
        (unheard, Preferred::Multicast),
        (Situation { aggregation: situation().aggregation, ..barrier }, Preferred::Aggregation),
        (barrier, Preferred::Algorithm(Algorithm::Ring)),
        (Situation { collective: COLLECTIVES[3], bytes: 8, ..barrier }, Preferred::Multicast),
    ] {
        let (without, with) = (choose(&situation), wants(preferred, situation));
        assert_eq!(with.method, without.method, "{with}");
        assert_eq!(with.reasons()[0], Reason::CannotBeHad(preferred), "{with}");
    }
}

#[test]
fn choices_for_the_bits_of_the_tree() {
    let base = Situation { operands: Operands::AsInTree, ..situation() };
    insta::assert_snapshot!(table(base, &COLLECTIVES[2..]));
}

#[test]
fn choices_explain_themselves() {
    let explain = |situation: Situation| choose(&situation).to_string();
    let offered = Situation { aggregation: Aggregation::Offered(TWO_LEVELS), ..situation() };
    let small_offer = Aggregation::Offered(Offer { most_bytes: 256, ..TWO_LEVELS });
    let sentences = [
        explain(situation()),
        explain(offered),
        explain(Situation { bytes: 16 << 20, ..offered }),
        explain(Situation { bytes: 512, aggregation: small_offer, ..situation() }),
        explain(Situation { ranks_per_host: 8, ..offered }),
        explain(Situation { ranks_per_host: 64, ..offered }),
        explain(Situation { ranks_per_host: 8, operands: Operands::InRankOrder, ..offered }),
        explain(Situation {
            operands: Operands::AsInTree,
            aggregation: Aggregation::NotOffered(NotOffered::NodeLost),
            ..situation()
        }),
        explain(Situation { collective: Collective::Barrier, bytes: 0, ..situation() }),
    ];
    insta::assert_snapshot!(sentences.join("\n"));
}

#[test]
fn operators_that_do_not_commute_never_take_the_ring_or_the_nodes() {
    for size in 2..200 {
        for bytes in [8, 4 << 10, 1 << 20, 16 << 20] {
            let aggregation = Aggregation::Offered(TWO_LEVELS);
            let operands = Operands::InRankOrder;
            let choice = choose(&Situation { size, bytes, aggregation, operands, ..situation() });
            assert!(!matches!(choice.method, Method::Aggregation | Method::Hosts(Algorithm::Ring)), "{choice}");
            let commuting = choose(&Situation { size, bytes, ..situation() });
            assert!(!matches!(commuting.method, Method::Aggregation), "{commuting}");
        }
    }
}

#[test]
fn what_was_reserved_is_not_exceeded() {
    let offer = Offer { most_bytes: 1000, ..TWO_LEVELS };
    let choice = |bytes| choose(&Situation { bytes, aggregation: Aggregation::Offered(offer), ..situation() });
    assert_eq!(choice(1000).method, Method::Aggregation);
    assert_ne!(choice(1004).method, Method::Aggregation);
    assert_eq!(choice(1004).reasons()[0], Reason::TooLong { most_bytes: 1000 });
}

fn situations() -> impl Strategy<Value = Situation> {
    let operands = prop::sample::select(vec![Operands::Commute, Operands::InRankOrder, Operands::AsInTree]);
    let offer = (any::<u32>(), any::<u8>(), any::<u16>()).prop_map(|(most_bytes, levels, children)| {
        Aggregation::Offered(Offer { most_bytes, levels, children, ..TWO_LEVELS })
    });
    let aggregation = prop_oneof![Just(Aggregation::NotOffered(NotOffered::NoRoom)), offer];
    let collective = prop::sample::select(&COLLECTIVES[..]);
    let transport = prop::sample::select(&TRANSPORTS[..]);
    let size = prop_oneof![0..300_u32, any::<u32>()];
    let bytes = prop_oneof![0..10_000_u32, any::<u32>()];
    (collective, bytes, size, 0..70_u32, any::<u32>(), operands, aggregation, transport).prop_map(
        |(collective, bytes, size, ranks_per_host, per_processor, operands, aggregation, transport)| {
            let bytes = if collective == Collective::Barrier { 0 } else { bytes / 4 * 4 };
            let preferred = None;
            Situation {
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
        let choice = choose(&situation);
        prop_assert!(!choice.reasons().is_empty() && !choice.to_string().is_empty());
        prop_assert_eq!(&choice, &choose(&situation));
        if let Method::Hosts(algorithm) = choice.method
            && !algorithm.is_ordered()
            && choice.parties <= crate::collective::MAX_RANKS
        {
            let plan = Plan::new(algorithm, situation.collective, Rank(0), choice.parties, situation.bytes);
            prop_assert!(plan.is_ok(), "{:?}", plan);
        }
    }
}

#[test]
fn where_processors_are_shared_few_messages_count_more_than_few_rounds() {
    let crowded = Situation { per_processor: 32, ..situation() };
    assert_eq!(choose(&situation()).method, Method::Hosts(Algorithm::RecursiveDoubling));
    assert!(matches!(choose(&crowded).method, Method::Hosts(Algorithm::Tree { .. })));
    // One node for all would be the bottleneck of hosts with processors of their own.
    let flat = Aggregation::Offered(Offer { levels: 1, children: 64, ..TWO_LEVELS });
    assert!(matches!(choose(&Situation { aggregation: flat, ..situation() }).method, Method::Hosts(_)));
    assert_eq!(choose(&Situation { aggregation: flat, ..crowded }).method, Method::Aggregation);
}
