//! Failure-free times against formulas, to the picosecond.
//!
//! S is the time of a packet on a full port, d the delay of a device. Reduce is store-and-forward, broadcast cut-through (SE-1): the
//! reduce phase takes 3S + 4d over three levels, the whole operation 4S + 7d; splitting the adapters into k lanes adds (k - 1)S on the
//! way in and as much on the way out (SE-8).

use std::sync::Arc;

use simulator::collective::{
    CollectiveParameters, CollectiveTiming, ContributionContents, Framing, NoObserver, Replication,
    SimulatedCollective,
};
use simulator::fault::FaultPlan;
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::{Forwarding, LinkParameters};
use topology::Fabric;
use units::SimSpan;

const D: u64 = 100;
const S: u64 = 256;

fn link() -> LinkParameters {
    LinkParameters {
        byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Sdr),
        wire: SimSpan::ZERO,
        switch_delay: SimSpan::from_nanos(D),
        adapter_delay: SimSpan::from_nanos(D),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 16 * 1024,
        adapter_lanes: 1,
    }
}

fn paper_fabric() -> Arc<Fabric> {
    Arc::new(Fabric::xgft(&[24, 12, 6], &[1, 12, 6]).expect("SE-11"))
}

fn run(
    fabric: Arc<Fabric>,
    link: LinkParameters,
    change: impl FnOnce(&mut CollectiveParameters),
) -> Vec<CollectiveTiming> {
    let mut parameters = CollectiveParameters::new(ContributionContents::SizeOnly { bytes: 256 });
    parameters.framing = Framing::PayloadOnly;
    change(&mut parameters);
    let mut collective =
        SimulatedCollective::new(fabric, link, parameters, &FaultPlan::default(), 1, LinkWidth::X4).expect("it fits");
    collective.run(3, &mut NoObserver, |_| ())
}

fn nanos(reduce: u64, complete: u64) -> CollectiveTiming {
    CollectiveTiming { reduce: Some(SimSpan::from_nanos(reduce)), complete: Some(SimSpan::from_nanos(complete)) }
}

#[test]
fn a_plain_allreduce_over_1728_hosts_takes_4s_plus_7d() {
    let timings = run(paper_fabric(), link(), |_| ());
    assert_eq!(timings, [nanos(3 * S + 4 * D, 4 * S + 7 * D); 3]);
}

#[test]
fn temporal_copies_cost_nothing_without_errors() {
    for copies in [2, 4, 6] {
        let timings = run(paper_fabric(), link(), |p| p.replication = Replication::Temporal { copies });
        assert_eq!(timings, [nanos(3 * S + 4 * D, 4 * S + 7 * D); 3]);
    }
}

#[test]
fn spatial_copies_cost_the_adapters_bandwidth() {
    for copies in [2u8, 4] {
        let k = u64::from(copies);
        let timings = run(paper_fabric(), link(), |p| p.replication = Replication::Spatial { copies });
        assert_eq!(timings, [nanos((2 + k) * S + 4 * D, (2 + 2 * k) * S + 7 * D); 3]);
    }
}

#[test]
fn every_cable_adds_its_flight_time_once_per_direction() {
    let far = LinkParameters { wire: SimSpan::from_picos(12_345), ..link() };
    let timings = run(paper_fabric(), far, |_| ());
    let plain = run(paper_fabric(), link(), |_| ());
    let more = |span: Option<SimSpan>, cables: u64| span.map(|span| span + SimSpan::from_picos(12_345 * cables));
    for (timing, plain) in timings.iter().zip(&plain) {
        assert_eq!((timing.reduce, timing.complete), (more(plain.reduce, 3), more(plain.complete, 6)));
    }
}

#[test]
fn storing_on_the_way_down_costs_a_packet_time_per_switch() {
    let stored = LinkParameters { forwarding: Forwarding::StoreAndForward, ..link() };
    let timings = run(paper_fabric(), stored, |_| ());
    assert_eq!(timings, [nanos(3 * S + 4 * D, 6 * S + 7 * D); 3]);
}

#[test]
fn headers_count_when_framing_is_full() {
    // 256 B of payload, 32 of aggregation header, 12 of BTH, 14 of link framing; the multicast has 8 of DETH more.
    let timings = run(paper_fabric(), link(), |p| p.framing = Framing::Full);
    let (up, down) = (256 + 32 + 12 + 14, 256 + 32 + 12 + 14 + 8);
    assert_eq!(timings, [nanos(3 * up + 4 * D, 3 * up + down + 7 * D); 3]);
}

#[test]
fn one_level_and_four_levels_follow_the_same_formula() {
    for levels in 1..=4u64 {
        let children = vec![4; levels as usize];
        let mut parents = vec![2; levels as usize];
        parents[0] = 1;
        let fabric = Arc::new(Fabric::xgft(&children, &parents).expect("small"));
        let timings = run(fabric, link(), |_| ());
        let reduce = levels * S + (levels + 1) * D;
        assert_eq!(timings, [nanos(reduce, reduce + S + levels * D); 3]);
    }
}
