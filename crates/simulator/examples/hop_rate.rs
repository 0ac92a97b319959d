//! Packet hops per second of bare traffic, for comparisons of two versions of the simulator without the rest of the workspace:
//! `cargo run --release -p pleach-simulator --example hop_rate`.

use std::sync::Arc;
use std::time::Instant;

use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::{BackgroundTraffic, Forwarding, LinkParameters, TrafficPattern};
use topology::Fabric;
use units::SimSpan;

fn main() {
    let link = LinkParameters {
        byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Hdr),
        wire: SimSpan::from_nanos(20),
        switch_delay: SimSpan::from_nanos(130),
        adapter_delay: SimSpan::from_nanos(250),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 65_536,
        adapter_lanes: 1,
    };
    let fabric = Arc::new(Fabric::xgft(&[16, 8, 8], &[1, 16, 8]).expect("1,024 hosts"));
    let mut rates: Vec<f64> = (0..7)
        .map(|_| {
            let pattern = TrafficPattern::Permutation;
            let mut traffic = BackgroundTraffic::new(fabric.clone(), link.clone(), pattern, 2_048, 1);
            traffic.run_hops(500_000);
            let started = Instant::now();
            traffic.run_hops(10_000_000);
            10.0 / started.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{:.1} M hops/s (median of {}; {:.1} to {:.1})", rates[3], rates.len(), rates[0], rates[6]);
}
