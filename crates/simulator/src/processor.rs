//! The processors of hosts: software takes time, one task after another, and the operating system interrupts it.
//!
//! In: a host, a time and an amount of work. Out: when the work is done. Detours (timer ticks, daemons, interrupts) start at
//! random, independently on each host, and delay the host's computing and polling until they end (SH-9).

use faults::RandomStream;
use units::{SimSpan, SimTime};

/// The operating system's noise on every host.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OsNoise {
    /// Detours per second and host, exponentially distributed.
    pub per_second: f64,
    /// The mean duration of a detour, exponentially distributed.
    pub mean: SimSpan,
}

/// The transport service over which a message reaches a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportService {
    /// A reliable connection, into a buffer of the host.
    Connection,
    /// A datagram, such as a multicast.
    Datagram,
}

/// The time of a host's software and adapter, without [`crate::LinkParameters::adapter_delay`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostCosts {
    /// The processor's time for a call, whatever its size.
    pub call: SimSpan,
    /// The processor's time to post one message.
    pub post: SimSpan,
    /// The processor's time to receive one message.
    pub poll: SimSpan,
    /// Picoseconds for each byte of payload from the processor to the adapter.
    pub send_byte_ps: u64,
    /// The additional time until a datagram with payload is visible.
    pub datagram: SimSpan,
    /// Picoseconds for each byte of a datagram's payload.
    pub datagram_byte_ps: u64,
    /// A datagram with more payload than this takes `step` longer.
    pub step_over_bytes: u32,
    /// See `step_over_bytes`: the step of Table I and of the UD columns of Table VI (SH-8, SH-13).
    pub step: SimSpan,
    /// The noise, if any.
    pub noise: Option<OsNoise>,
}

impl HostCosts {
    /// The time from the processor to the adapter.
    pub fn sending(&self, bytes: u32) -> SimSpan {
        SimSpan::from_picos(self.send_byte_ps * u64::from(bytes))
    }

    /// The time from the adapter until the processor can see the message.
    pub fn receiving(&self, bytes: u32, way: TransportService) -> SimSpan {
        if bytes == 0 || way == TransportService::Connection {
            return SimSpan::ZERO;
        }
        let step = if bytes > self.step_over_bytes { self.step } else { SimSpan::ZERO };
        self.datagram + SimSpan::from_picos(self.datagram_byte_ps * u64::from(bytes)) + step
    }
}

/// A host's processor.
#[derive(Clone, Copy, Debug)]
struct Processor {
    free_at: SimTime,
    /// The start of the next detour.
    detour: SimTime,
    lasts: SimSpan,
    detours: u64,
}

/// One processor for each host.
#[derive(Debug)]
pub struct HostProcessors {
    noise: Option<OsNoise>,
    seed: u64,
    each: Vec<Processor>,
}

impl HostProcessors {
    /// One idle processor for each host.
    pub fn new(hosts: u32, noise: Option<OsNoise>, seed: u64) -> Self {
        let idle = Processor { free_at: SimTime::ZERO, detour: SimTime::NEVER, lasts: SimSpan::ZERO, detours: 0 };
        let mut processors = Self { noise, seed, each: vec![idle; hosts as usize] };
        for host in 0..hosts as usize {
            processors.draw(host, SimTime::ZERO);
        }
        processors
    }

    /// When work that can start at `from` is done.
    pub fn work(&mut self, host: usize, from: SimTime, work: SimSpan) -> SimTime {
        let begin = from.max(self.each[host].free_at);
        let mut end = begin;
        // A detour that ended before `from` costs nothing; one in progress delays the work.
        while self.each[host].detour <= end {
            let over = self.each[host].detour + self.each[host].lasts;
            end = end.max(over);
            self.draw(host, over);
        }
        end += work;
        while self.each[host].detour < end {
            let (at, lasts) = (self.each[host].detour, self.each[host].lasts);
            end += lasts;
            self.draw(host, at + lasts);
        }
        self.each[host].free_at = end;
        end
    }

    /// Draws the next detour after a time.
    fn draw(&mut self, host: usize, after: SimTime) {
        let Some(noise) = self.noise.filter(|noise| noise.per_second > 0.0) else { return };
        let stream = RandomStream::new(self.seed, 0x0e15_0000_0000 + host as u64);
        let processor = &mut self.each[host];
        let exponential = |n: u64, mean_picos: f64| {
            let uniform = (stream.at(n) >> 11) as f64 / (1u64 << 53) as f64;
            SimSpan::from_picos((-(1.0 - uniform).ln() * mean_picos).min(1e18) as u64)
        };
        processor.detour = after + exponential(2 * processor.detours, 1e12 / noise.per_second);
        processor.lasts = exponential(2 * processor.detours + 1, noise.mean.as_picos() as f64);
        processor.detours += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANO: SimSpan = SimSpan::from_nanos(1);

    #[test]
    fn work_is_done_one_task_after_another() {
        let mut processors = HostProcessors::new(2, None, 1);
        let at = |nanos| SimTime::ZERO + SimSpan::from_nanos(nanos);
        assert_eq!(processors.work(0, at(10), NANO.times(5)), at(15));
        assert_eq!(processors.work(0, at(12), NANO.times(5)), at(20));
        assert_eq!(processors.work(1, at(12), NANO.times(5)), at(17));
        assert_eq!(processors.work(0, at(30), NANO), at(31));
    }

    #[test]
    fn noise_takes_its_share_of_the_time() {
        // 1,000 detours a second of 20 us each: 2 % of the time, so work takes 2 % longer.
        let noise = OsNoise { per_second: 1e3, mean: SimSpan::from_micros(20) };
        let mut processors = HostProcessors::new(1, Some(noise), 7);
        let (mut now, pieces) = (SimTime::ZERO, 200_000);
        for _ in 0..pieces {
            now = processors.work(0, now, SimSpan::from_micros(10));
        }
        let longer = now.since(SimTime::ZERO).as_nanos_f64() / (f64::from(pieces) * 10e3) - 1.0;
        assert!((0.018..0.022).contains(&longer), "{longer}");
    }

    #[test]
    fn every_host_has_its_own_detours_and_a_seed_repeats_them() {
        let noise = OsNoise { per_second: 1e5, mean: SimSpan::from_micros(3) };
        let ends = |seed| {
            let mut processors = HostProcessors::new(3, Some(noise), seed);
            (0..3).map(|host| processors.work(host, SimTime::ZERO, SimSpan::from_micros(500))).collect::<Vec<_>>()
        };
        assert_eq!(ends(1), ends(1));
        assert_ne!(ends(1), ends(2));
        assert!(ends(1)[0] != ends(1)[1] && ends(1)[1] != ends(1)[2]);
    }
}
