//! Packet hops per second, for profiling: `cargo run --release -p simulator --example hops -- 32 2 20000000`.
use simulator::technology::{ByteTime, Rate, Width};
use simulator::{Forwarding, LinkParameters, Pattern, Traffic};
use std::sync::Arc;
use std::time::Instant;
use units::Span;

fn main() {
    let arguments: Vec<u32> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let (radix, levels, hops) = (arguments[0], arguments[1], arguments[2]);
    let mut parents = vec![radix; levels as usize];
    parents[0] = 1;
    let fabric = Arc::new(topology::Fabric::xgft(&vec![radix; levels as usize], &parents).expect("a shape"));
    let parameters = LinkParameters {
        byte_time: ByteTime::of(Width::X4, Rate::Edr),
        wire: Span::from_nanos(10),
        switch_delay: Span::from_nanos(100),
        adapter_delay: Span::from_nanos(100),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 32768,
        adapter_lanes: 1,
    };
    let hosts = fabric.hosts();
    let start = Instant::now();
    let mut traffic = Traffic::new(fabric, parameters, Pattern::Permutation, 4122, 1);
    println!("set-up {:?}", start.elapsed());
    traffic.run_hops(u64::from(hops) / 4);
    let start = Instant::now();
    traffic.run_hops(u64::from(hops));
    let took = start.elapsed();
    let summary = traffic.summary();
    println!(
        "{hosts} hosts: {:.2} M hops/s, {:.0} bytes/host, {:?}, mean latency {}, throughput {:.2}",
        f64::from(hops) / took.as_secs_f64() / 1e6,
        summary.memory as f64 / f64::from(hosts),
        summary,
        summary.mean_latency,
        summary.received as f64 * 4122.0 * 80.0 / summary.elapsed.as_picos() as f64 / f64::from(hosts)
    );
}
