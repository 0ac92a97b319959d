//! Measures what the network between the hosts of a communicator costs.

use std::time::Instant;

use protocol::collective::{
    CollectiveAlgorithm, CollectiveOperation, LONG_PROBE, MethodPreferences, NetworkProbe, PreferredMethod,
    SHORT_PROBE, TransportCosts,
};
use reduce::{ElementType, Operator, ReductionKind};

use crate::communicator::Communicator;
use crate::error::Error;
use crate::job_process::OversubscribedMachine;
use crate::network_costs::{NetworkCosts, VERSION};

/// Operations before the timed ones, and timed ones: the median counts.
const WARM_UP_ROUNDS: usize = 20;
const SHORT_ROUNDS: usize = 501;
const LONG_ROUNDS: usize = 51;

impl Communicator {
    /// Measures what the network between the hosts of this communicator costs; the same at all ranks, which call it at once. Takes
    /// less than a second on a fast network. Operations must not be in flight.
    ///
    /// # Errors
    /// If all ranks are on one host, ranks share a processor, or a rank is lost.
    pub fn measure_network(&self) -> Result<NetworkCosts, Error> {
        if self.hosts() < 2 {
            return Err(Error::invalid("all ranks are on one host: there is no network between them to measure"));
        }
        if let Some(machine) = self.inner().process().most_oversubscribed(self.inner().world_ranks()) {
            return Err(Error::invalid(shared_processors(&machine)));
        }
        let statistics = self.statistics();
        let short_ns = self.measure_probe(SHORT_PROBE, SHORT_ROUNDS)?;
        let long_ns = self.measure_probe(LONG_PROBE, LONG_ROUNDS)?;
        let mut agreed = [short_ns, long_ns, measure_fold()?];
        self.all_reduce(&mut agreed, Operator::Max)?;
        self.inner().set_statistics(statistics);
        let [short_ns, long_ns, fold_byte_ps] = agreed;
        let probe = NetworkProbe { hosts: self.hosts(), kind: probe_kind()?, short_ns, long_ns, fold_byte_ps };
        let TransportCosts { message_ns, next_message_ns, byte_ps, fold_byte_ps } = TransportCosts::fitted(&probe);
        let hosts = self.hosts();
        Ok(NetworkCosts {
            version: VERSION,
            hosts,
            short_ns,
            long_ns,
            message_ns,
            next_message_ns,
            byte_ps,
            fold_byte_ps,
        })
    }

    /// The median time of an allreduce by this algorithm, as this rank sees it.
    fn measure_probe(&self, (algorithm, bytes): (CollectiveAlgorithm, u32), rounds: usize) -> Result<u64, Error> {
        let only = MethodPreferences::for_all(PreferredMethod::Algorithm(algorithm));
        let before = self.inner().prefer(only);
        let times = self.time_rounds(bytes as usize, rounds);
        self.inner().prefer(before);
        let mut times = times?;
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    fn time_rounds(&self, bytes: usize, rounds: usize) -> Result<Vec<u64>, Error> {
        let mut vector = vec![0; bytes];
        let collective = CollectiveOperation::AllReduce { kind: probe_kind()? };
        let mut times = Vec::with_capacity(rounds);
        for round in 0..WARM_UP_ROUNDS + rounds {
            let start = Instant::now();
            self.inner().run(collective, &mut vector)?;
            if round >= WARM_UP_ROUNDS {
                times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
        }
        Ok(times)
    }
}

/// The wait for a processor is much longer than a message takes, and nothing tells them apart.
fn shared_processors(machine: &OversubscribedMachine) -> String {
    let OversubscribedMachine { host, ranks, cpus } = machine;
    format!(
        "{ranks} ranks share {cpus} processors on the machine of host {host}: waiting for a processor would count as the network's \
         time; start at most one rank per processor, best one rank on each host"
    )
}

/// Sums of `double`, as most programs have.
fn probe_kind() -> Result<ReductionKind, Error> {
    ReductionKind::new(ElementType::F64, Operator::Sum).map_err(Error::internal)
}

/// What folding one byte costs here, in picoseconds.
fn measure_fold() -> Result<u64, Error> {
    const BYTES: usize = 256 << 10;
    let (mut sum, operand) = (vec![0_u8; BYTES], vec![0_u8; BYTES]);
    let kind = probe_kind()?;
    let mut least = u64::MAX;
    for _ in 0..32 {
        let start = Instant::now();
        kind.fold(&mut sum, &operand).map_err(Error::internal)?;
        std::hint::black_box(&mut sum);
        least = least.min(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(least.saturating_mul(1000) / BYTES as u64)
}
