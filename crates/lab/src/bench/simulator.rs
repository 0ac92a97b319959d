//! `pleach bench simulator`: the simulator's speed and memory, on one core.
//!
//! Traffic: every host of a fat tree sends full packets to one partner (a random permutation), the usual benchmark of packet
//! simulators; a hop is one link traversal. Allreduce: one allreduce over all hosts with the protocol machines. Wormhole: every
//! node of a 4-ary tree sends full packets to random nodes, each to another one, or all to its complement; a hop is one link
//! that a packet's head takes. Scenarios: see `scenarios`. Rates are medians of several intervals or runs, with the slowest and the fastest.

mod output;
mod scenarios;

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use quadrics::{MulticastRule, QsnetParameters, SaturationPattern, SaturationTraffic};
use serde::Serialize;
use simulator::collective::{CollectiveParameters, ContributionContents, NoObserver, SimulatedCollective};
use simulator::fault::FaultPlan;
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::{BackgroundTraffic, Forwarding, LinkParameters, TrafficPattern};
use topology::Fabric;
use units::SimSpan;

use super::process_memory_bytes;
use crate::CommandOutcome;
use crate::report::ReportArgs;
use scenarios::ScenarioRow;

/// A full packet: 4 KiB of payload, BTH, link header and CRCs.
const PACKET_BYTES: u32 = 4096 + 12 + 14;
/// Intervals of a run whose rates are compared.
const INTERVALS: usize = 9;

/// Simulator: packet hops per second on one core, bytes per host, and one allreduce over a million hosts.
#[derive(Args)]
#[command(after_help = "\
Examples:
  pleach bench simulator
  pleach bench simulator --largest 65536 --format json

Run nothing else on the machine meanwhile. It takes about a minute and 4 GiB.")]
pub(crate) struct BenchSimulatorArgs {
    /// Omit fabrics with more hosts than this.
    #[arg(long, default_value_t = 1 << 20)]
    largest: u32,
    /// Packet hops per interval, in millions.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    hops: u64,
    #[command(flatten)]
    report: ReportArgs,
}

#[derive(Serialize)]
struct SimulatorBenchReport {
    packet_bytes: u32,
    stretches: usize,
    hops_per_stretch: u64,
    traffic: Vec<TrafficRow>,
    allreduce: Vec<AllreduceRow>,
    wormhole: Vec<WormholeRow>,
    scenarios: Vec<ScenarioRow>,
}

#[derive(Serialize)]
struct TrafficRow {
    fabric: String,
    hosts: u32,
    set_up_s: f64,
    median_mhops_per_s: f64,
    slowest_mhops_per_s: f64,
    fastest_mhops_per_s: f64,
    idle_bytes_per_host: f64,
    busy_bytes_per_host: f64,
    trace: String,
}

#[derive(Serialize)]
struct AllreduceRow {
    fabric: String,
    hosts: u32,
    set_up_s: f64,
    run_s: f64,
    simulated_us: f64,
    hops: u64,
    resident_bytes_per_host: f64,
    peak_resident_gib: f64,
}

#[derive(Serialize)]
struct WormholeRow {
    pattern: &'static str,
    nodes: u32,
    median_mhops_per_s: f64,
    slowest_mhops_per_s: f64,
    fastest_mhops_per_s: f64,
    events_per_hop: f64,
    megabytes_per_second: f64,
    trace: String,
}

pub(crate) fn run(arguments: &BenchSimulatorArgs) -> Result<CommandOutcome> {
    let shapes: Vec<Arc<Fabric>> = [(32, 2), (16, 4), (32, 4)]
        .into_iter()
        .map(|(radix, levels)| fat_tree(radix, levels))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .filter(|fabric| fabric.hosts() <= arguments.largest)
        .collect();
    ensure!(!shapes.is_empty(), "the smallest fabric has 1024 hosts: increase --largest");
    let hops = arguments.hops * 1_000_000;
    // Allreduces first: growth of the resident memory can be measured only while the allocator holds no freed memory.
    let allreduce = shapes.iter().map(allreduce).collect::<Result<Vec<_>>>()?;
    let traffic = shapes.iter().map(|fabric| traffic(fabric, hops)).collect();
    let patterns = [("uniform", SaturationPattern::Uniform), ("complement", SaturationPattern::Complement)];
    let wormhole = [3, 5]
        .into_iter()
        .flat_map(|dimension| patterns.map(|(name, pattern)| wormhole(dimension, name, pattern, hops)))
        .collect::<Result<Vec<_>>>()?;
    let report = SimulatorBenchReport {
        packet_bytes: PACKET_BYTES,
        stretches: INTERVALS,
        hops_per_stretch: hops,
        traffic,
        allreduce,
        wormhole,
        scenarios: scenarios::measure(arguments.largest)?,
    };
    arguments.report.write(&report, output::table, output::html)?;
    Ok(CommandOutcome::Passed)
}

/// A full fat tree of switches with twice `radix` ports.
fn fat_tree(radix: u32, levels: usize) -> Result<Arc<Fabric>> {
    let mut parents = vec![radix; levels];
    parents[0] = 1;
    Ok(Arc::new(Fabric::xgft(&vec![radix; levels], &parents)?))
}

fn link() -> LinkParameters {
    LinkParameters {
        byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Edr),
        wire: SimSpan::from_nanos(10),
        switch_delay: SimSpan::from_nanos(100),
        adapter_delay: SimSpan::from_nanos(100),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 32 * 1024,
        adapter_lanes: 1,
    }
}

fn traffic(fabric: &Arc<Fabric>, hops: u64) -> TrafficRow {
    let hosts = fabric.hosts();
    let idle_bytes_per_host = BackgroundTraffic::idle_bytes_per_host(fabric.clone(), link());
    let start = Instant::now();
    let mut traffic = BackgroundTraffic::new(fabric.clone(), link(), TrafficPattern::Permutation, PACKET_BYTES, 1);
    let set_up_s = start.elapsed().as_secs_f64();
    // The fabric reaches its steady state after the first packets of every host have arrived.
    traffic.run_hops(hops.max(u64::from(hosts) * 16));
    let rates = rates(hops, || traffic.run_hops(hops));
    let summary = traffic.summary();
    TrafficRow {
        fabric: fabric.to_string(),
        hosts,
        set_up_s,
        median_mhops_per_s: rates[INTERVALS / 2],
        slowest_mhops_per_s: rates[0],
        fastest_mhops_per_s: rates[INTERVALS - 1],
        idle_bytes_per_host,
        busy_bytes_per_host: summary.memory as f64 / f64::from(hosts),
        trace: format!("{:016x}", summary.trace),
    }
}

/// The Quadrics network under background traffic alone.
fn wormhole(dimension: u32, name: &'static str, pattern: SaturationPattern, hops: u64) -> Result<WormholeRow> {
    let parameters = QsnetParameters {
        dimension,
        byte_time: ByteTime::of_megabits(3_200),
        switch_delay: SimSpan::from_nanos(35),
        wire: SimSpan::from_nanos(2),
        channels: 2,
        ageing: SimSpan::from_micros(20),
        rule: MulticastRule::Serialised { roots: 1 },
        damage: 0.0,
    };
    let mut flood = SaturationTraffic::new(parameters, pattern, 1)
        .with_context(|| format!("cannot build a network of dimension {dimension}"))?;
    flood.run_hops(hops / 10);
    let rates = rates(hops, || flood.run_hops(hops));
    let summary = flood.summary();
    Ok(WormholeRow {
        pattern: name,
        nodes: 4u32.pow(dimension),
        median_mhops_per_s: rates[INTERVALS / 2],
        slowest_mhops_per_s: rates[0],
        fastest_mhops_per_s: rates[INTERVALS - 1],
        events_per_hop: summary.counters.events as f64 / summary.counters.hops as f64,
        megabytes_per_second: summary.megabytes_per_second,
        trace: format!("{:016x}", summary.trace),
    })
}

/// Millions of hops per second in several intervals of so many hops, in ascending order.
fn rates(hops: u64, mut interval: impl FnMut()) -> Vec<f64> {
    let mut rates: Vec<f64> = (0..INTERVALS)
        .map(|_| {
            let start = Instant::now();
            interval();
            hops as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates
}

fn allreduce(fabric: &Arc<Fabric>) -> Result<AllreduceRow> {
    let hosts = fabric.hosts();
    let before = process_memory_bytes("VmRSS");
    let start = Instant::now();
    let parameters = CollectiveParameters::new(ContributionContents::SizeOnly { bytes: 256 });
    let mut collective =
        SimulatedCollective::new(fabric.clone(), link(), parameters, &FaultPlan::default(), 1, LinkWidth::X4)?;
    let set_up_s = start.elapsed().as_secs_f64();
    let resident = process_memory_bytes("VmRSS").saturating_sub(before);
    let start = Instant::now();
    let timings = collective.run(1, &mut NoObserver, |_| ());
    let run_s = start.elapsed().as_secs_f64();
    let complete = timings[0].complete.context("the allreduce did not complete")?;
    Ok(AllreduceRow {
        fabric: fabric.to_string(),
        hosts,
        set_up_s,
        run_s,
        simulated_us: complete.as_nanos_f64() / 1e3,
        hops: collective.counters().hops,
        resident_bytes_per_host: resident as f64 / f64::from(hosts),
        peak_resident_gib: process_memory_bytes("VmHWM") as f64 / (1u64 << 30) as f64,
    })
}
